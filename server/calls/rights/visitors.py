"""What whoever shows nothing to log in with may use of a server that asks everybody else to: `anonymous_tools`."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from auth.values.identity_model import Principal, PrincipalKind
from server.agents.base.catalog import ToolEntry
from server.calls.rights.tiers import SCOPES

# Nobody can be told from anybody else among them; and nobody may do anything by a scope.
VISITOR: Final = Principal(kind=PrincipalKind.ANONYMOUS, subject="visitor", reach=frozenset())
_OF_TIERS: Final = frozenset({SCOPES["read"], SCOPES["write"]})


class AnonymousTools(msgspec.Struct, frozen=True):
    """`names`: tools that are named in full. `patterns` have a `*` for any letters, and so cover tools that nobody has thought of: they
    mean those alone that only read. What moves money, costs something, or needs a scope of the installation's own is for no visitor."""

    names: frozenset[str] = frozenset()
    patterns: tuple[str, ...] = ()

    def admits(self, entry: object) -> bool:
        if not isinstance(entry, ToolEntry) or entry.price is not None:
            return False
        terms, name = entry.terms, entry.tool.name
        if terms.tier == "financial" or not terms.scopes <= _OF_TIERS:
            return False
        if name in self.names:
            return True
        return terms.tier == "read" and any(fnmatchcase(name, pattern) for pattern in self.patterns)


def visitor_tools(written: Sequence[str]) -> AnonymousTools | None:
    """None: visitors are asked to log in first."""
    if not written:
        return None
    patterns = tuple(word for word in written if "*" in word)
    return AnonymousTools(frozenset(written).difference(patterns), patterns)


def is_visitor(principal: Principal) -> bool:
    return principal.subject == VISITOR.subject and principal.kind is PrincipalKind.ANONYMOUS
