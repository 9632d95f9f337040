"""How a caller stands to what is offered: whether it may use it, could be allowed to, or must not know of it."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import TypeAlias

from auth import scopes
from auth.model import Principal, PrincipalKind
from server.backends.catalog import AnyEntry

Policy: TypeAlias = Callable[[Principal, AnyEntry], bool]


class Standing(Enum):
    ALLOWED = auto()
    GRANTABLE = auto()  # lacks a scope that the user could grant: listed, and refused with a challenge
    HIDDEN = auto()


def standing(principal: Principal, entry: AnyEntry) -> Standing:
    needed = entry.terms.scopes
    if not needed or principal.kind is PrincipalKind.LOCAL or not scopes.missing(principal.scopes, needed):
        return Standing.ALLOWED
    # Nobody can grant anything to a caller without a login.
    if principal.kind in (PrincipalKind.ANONYMOUS, PrincipalKind.PAYER):
        return Standing.HIDDEN
    return Standing.GRANTABLE


def everyone(_principal: Principal, _entry: AnyEntry) -> bool:
    """The policy that hides nothing."""
    return True
