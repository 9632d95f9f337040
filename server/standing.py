"""How a caller stands to what is offered: whether it may use it, could be allowed to, or must not know of it."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import TypeAlias

from auth import scopes
from auth.model import Principal, PrincipalKind
from server.backends.catalog import AnyEntry, Entry, Terms
from server.selection import Selections

Policy: TypeAlias = Callable[[Principal, AnyEntry], bool]


class Standing(Enum):
    ALLOWED = auto()
    GRANTABLE = auto()  # lacks a scope that the user could grant: listed, and refused with a challenge
    HIDDEN = auto()


def standing(principal: Principal, terms: Terms) -> Standing:
    needed = terms.scopes
    if not needed or principal.kind is PrincipalKind.LOCAL:
        return Standing.ALLOWED
    missing = scopes.missing(principal.scopes, needed)
    if not missing:
        return Standing.ALLOWED
    # Only somebody who is asked can grant more: nobody is behind a caller without a login, and behind a key or a program
    # with credentials of its own stands whoever set it up, who is not there. And nobody can grant what they may not do.
    if principal.kind is not PrincipalKind.USER:
        return Standing.HIDDEN
    reach = principal.reach
    if scopes.EVERYTHING in reach or not scopes.missing(reach, missing):
        return Standing.GRANTABLE
    return Standing.HIDDEN


def challenged(principal: Principal, terms: Terms) -> frozenset[str]:
    """All that a login must cover to go on here, with what it covers already: several clients ask for exactly what the
    challenge names, and would lose the rest."""
    return principal.scopes.union(scopes.missing(principal.scopes, terms.scopes))


def everyone(_principal: Principal, _entry: AnyEntry) -> bool:
    """The policy that hides nothing."""
    return True


def selecting(selections: Selections) -> Policy:
    """The policy that hides the tools which a caller's selection, or else the server's, leaves out."""
    selects = selections.selects

    def may_know(principal: Principal, entry: AnyEntry) -> bool:
        text = principal.tools
        if not (text or selects) or not isinstance(entry, Entry):
            return True
        # Who started the program, and holds its pipes, chooses by its settings.
        if principal.kind is PrincipalKind.LOCAL:
            return True
        return selections.has(text, entry.tool.name, entry.terms.tier)

    return may_know
