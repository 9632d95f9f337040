"""Scopes: which exist, what they mean, and how a wider one covers a narrower (`mcp` covers `mcp:tools`).

A *ceiling* is a text of scopes that bounds what somebody may have; `*` in it is everything, whatever the configuration adds.
Granted scopes never contain `*`. A financial scope is no part of `mcp`: it is asked for, shown and granted by its own name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import Final

import msgspec

EVERYTHING: Final = "*"

# Clients append it when they want a refresh token. Ours follow from the client's registration, so it is accepted, means
# nothing, and never reaches a grant or a token.
OFFLINE_ACCESS: Final = "offline_access"


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    words: str  # what it allows, for the person who is asked
    without_money: str = ""  # the same where nothing moves money; "": no different
    financial: bool = False  # moves money: marked, and never ticked beforehand
    listed: bool = True  # published; clients ask for everything that is


MCP: Final = Scope(
    name="mcp",
    words="Use this agent: everything it offers, except what moves money",
    without_money="Use this agent: everything it offers",
)
TOOLS: Final = Scope(name="mcp:tools", words="List and call the agent's tools")
RESOURCES: Final = Scope(name="mcp:resources", words="Read the agent's resources and prompts")
READ: Final = Scope(
    name="mcp:tools:read", words="Call the agent's tools that only look things up", listed=False
)
WRITE: Final = Scope(name="mcp:tools:write", words="Call the agent's tools that change things", listed=False)
FINANCIAL: Final = Scope(
    name="financial", words="Call the agent's tools that move money", financial=True, listed=False
)
STANDARD: Final = (MCP, TOOLS, RESOURCES, READ, WRITE, FINANCIAL)


class Vocabulary:
    """The scopes of one installation: the standard ones, and what the configuration adds. Immutable."""

    def __init__(self, more: Sequence[Scope] = ()) -> None:
        """Add the scopes of `more`. One of them may replace a standard scope of the same name (to publish `financial`, say)."""
        self._scopes = {scope.name: scope for scope in (*STANDARD, *more)}

    def __repr__(self) -> str:
        return f"Vocabulary({', '.join(self._scopes)})"

    def __contains__(self, name: str) -> bool:
        return name in self._scopes

    def same_as(self, other: Vocabulary) -> bool:
        return list(self._scopes.values()) == list(other._scopes.values())

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._scopes)

    @property
    def listed(self) -> tuple[str, ...]:
        """The scopes that the metadata publishes."""
        return tuple(scope.name for scope in self._scopes.values() if scope.listed)

    @property
    def usual(self) -> str:
        """The scopes for a client that asks for none, as one text."""
        return join(scope.name for scope in self._scopes.values() if scope.listed and not scope.financial)

    @property
    def ordinary(self) -> tuple[str, ...]:
        """The `usual` scopes, without those that another of them covers."""
        return widest(parse(self.usual))

    def words(self, name: str, *, money: bool = True) -> str:
        """Return what a scope allows, in words for people. `money`: whether it could include anything that moves money."""
        scope = self._scopes.get(name)
        if scope is None:
            return name
        return scope.words if money else scope.without_money or scope.words

    def financial(self, name: str) -> bool:
        scope = self._scopes.get(name)
        return scope is not None and scope.financial

    def asked(self, text: str, ceiling: str) -> str:
        """Return the requested scopes that exist and lie under `ceiling`; if none are requested, start from the usual ones."""
        named = parse(text)
        known = join(name for name in named if name in self._scopes) if named else self.usual
        return narrow(known, ceiling)

    def unasked(self, text: str, named: Collection[str]) -> str:
        """Return the scopes of `text` for a login to which nobody agrees: what moves money only if it is in `named`.

        They come in one order, so that the same scopes are the same row.
        """
        found = parse(text)
        return join(
            name for name in self._scopes if name in found and (name in named or not self.financial(name))
        )


@lru_cache(
    maxsize=512
)  # of a pure function, as `narrow` is: an installation has few texts, and each comes with every request
def parse(text: str) -> tuple[str, ...]:
    """Parse a space-separated text into scopes: each once, in order, without `offline_access`."""
    return tuple(scope for scope in dict.fromkeys(text.split()) if scope != OFFLINE_ACCESS)


def join(scopes: Iterable[str]) -> str:
    return " ".join(dict.fromkeys(scopes))


def covers(granted: Iterable[str], needed: str) -> bool:
    return any(needed == scope or needed.startswith(scope + ":") for scope in granted)


def missing(granted: frozenset[str], needed: Collection[str]) -> tuple[str, ...]:
    if granted.issuperset(needed):
        return ()
    return tuple(scope for scope in needed if scope not in granted and not covers(granted, scope))


def widest(names: Sequence[str]) -> tuple[str, ...]:
    """Return the scopes that no other of `names` covers."""
    return tuple(name for name in names if not covers((other for other in names if other != name), name))


@lru_cache(maxsize=512)
def narrow(wanted: str, ceiling: str) -> str:
    """Return the part of `wanted` under `ceiling`. A wanted scope that is wider becomes the ceiling's scopes within it.

    Either may contain `*`, which stands for all scopes: then the result is the other one.
    """
    roof, asked = parse(ceiling), parse(wanted)
    if EVERYTHING in roof:
        return join(asked)
    if EVERYTHING in asked:
        return join(roof)
    kept: list[str] = []
    for scope in asked:
        if covers(roof, scope):
            kept.append(scope)
        else:
            kept.extend(part for part in roof if covers((scope,), part))
    return join(kept)


def within(wanted: Iterable[str], ceiling: str) -> bool:
    """Return whether all of `wanted` lies under `ceiling`."""
    roof = parse(ceiling)
    return EVERYTHING in roof or all(covers(roof, scope) for scope in wanted)
