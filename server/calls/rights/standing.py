"""How a caller stands to what is offered: whether it may use it, could be allowed to, or must not know of it."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from functools import lru_cache
from typing import Final, TypeAlias

from auth.values import scopes
from auth.values.identity_model import Principal, PrincipalKind
from server.agents.base.catalog import AnyEntry, ToolEntry
from server.calls.rights.visitors import VISITOR, AnonymousTools
from server.mcp.errors import InsufficientScope
from server.mcp.terms import CallTerms
from server.settings.tool_selection import Selections

Policy: TypeAlias = Callable[[Principal, AnyEntry], bool]  # whether the caller may know of it

# Logins that may do the same are many, and tools whose calls need the same.
_missing: Final = lru_cache(maxsize=512)(scopes.missing)


class Standing(Enum):
    ALLOWED = auto()
    GRANTABLE = auto()  # lacks a scope that the user could grant: listed, and refused with a challenge
    HIDDEN = auto()


class Rights:
    """Who may know of what at one server, and use it."""

    def __init__(
        self, policy: Policy | None = None, *, bounds_all: bool = True, visitors: AnonymousTools | None = None
    ) -> None:
        """`policy` None hides nothing. `bounds_all`: it bounds also callers who have no selection of their own. `visitors`: what those
        may use who have not logged in; None: there are none."""
        self.visitors = visitors
        self._policy = policy
        self._bounds_all = bounds_all

    def take(self, newer: Rights) -> None:
        """From now on these are the rights here."""
        self._policy, self._bounds_all, self.visitors = newer._policy, newer._bounds_all, newer.visitors

    def standing(self, principal: Principal, entry: AnyEntry) -> Standing:
        policy = self._policy
        if principal.subject == VISITOR.subject and principal.kind is PrincipalKind.ANONYMOUS:
            # The server's own selection is of what people see who have logged in. What the request asks for can only be less.
            narrowed = policy is not None and bool(principal.tools) and not policy(principal, entry)
            admitted = self.visitors is not None and self.visitors.admits(entry) and not narrowed
            return Standing.ALLOWED if admitted else Standing.HIDDEN
        if policy is not None and (self._bounds_all or principal.tools) and not policy(principal, entry):
            return Standing.HIDDEN
        if principal.kind is PrincipalKind.PAYER:
            return Standing.ALLOWED if _is_for_payers(entry) else Standing.HIDDEN
        if entry.terms.scopes.issubset(principal.scopes):
            return Standing.ALLOWED
        return standing(principal, entry.terms)


def _is_for_payers(entry: AnyEntry) -> bool:
    """Who pays needs no scope for what is sold, and there is nothing else for them; nor do they move money that is not theirs."""
    if not isinstance(entry, ToolEntry) or entry.terms.tier == "financial":
        return False
    return entry.price is not None and entry.price.sold_to(PrincipalKind.PAYER)


def standing(principal: Principal, terms: CallTerms) -> Standing:
    needed = terms.scopes
    if needed.issubset(principal.scopes) or principal.kind is PrincipalKind.LOCAL:
        return Standing.ALLOWED
    missing = _missing(principal.scopes, needed)
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


def insufficient(principal: Principal, terms: CallTerms) -> InsufficientScope:
    """Names all that a login must cover to go on here, with what it covers already: several clients ask for exactly what the
    challenge names, and would lose the rest."""
    missing = frozenset(scopes.missing(principal.scopes, terms.scopes))
    return InsufficientScope(principal.scopes | missing, missing)


def rights_of(selections: Selections, visitors: AnonymousTools | None = None) -> Rights:
    """What a caller's selection, or else the server's, leaves out is hidden."""
    return Rights(selecting(selections), bounds_all=selections.selects, visitors=visitors)


def selecting(selections: Selections) -> Policy:
    """The policy that hides the tools which a caller's selection, or else the server's, leaves out."""
    selects = selections.selects

    def may_know(principal: Principal, entry: AnyEntry) -> bool:
        text = principal.tools
        if not (text or selects) or not isinstance(entry, ToolEntry):
            return True
        # Who started the program, and holds its pipes, chooses by its settings.
        if principal.kind is PrincipalKind.LOCAL:
            return True
        return selections.has(text, entry.tool.name, entry.terms.tier)

    return may_know
