"""Scopes: which exist, what they mean, and how a wider one covers a narrower (`mcp` covers `mcp:tools`)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from types import MappingProxyType
from typing import Final

SCOPES: Final = MappingProxyType(
    {
        "mcp": "Use this agent: everything it offers",
        "mcp:tools": "List and call the agent's tools",
    }
)
ALL: Final = " ".join(SCOPES)

# Clients append it when they want a refresh token. Ours follow from the client's registration, so it is accepted, means
# nothing, and never reaches a grant or a token.
OFFLINE_ACCESS: Final = "offline_access"


def parse(text: str) -> tuple[str, ...]:
    """The scopes in a space separated text, once each, in order, without `offline_access`."""
    return tuple(scope for scope in dict.fromkeys(text.split()) if scope != OFFLINE_ACCESS)


def join(scopes: Iterable[str]) -> str:
    return " ".join(dict.fromkeys(scopes))


def covers(granted: Iterable[str], needed: str) -> bool:
    return any(needed == scope or needed.startswith(scope + ":") for scope in granted)


def missing(granted: frozenset[str], needed: Collection[str]) -> tuple[str, ...]:
    if granted.issuperset(needed):
        return ()
    return tuple(scope for scope in needed if scope not in granted and not covers(granted, scope))


def narrow(wanted: str, ceiling: str) -> str:
    """What of `wanted` lies under `ceiling`. A wanted scope that is wider than the ceiling becomes the ceiling's part of it."""
    roof = parse(ceiling)
    kept: list[str] = []
    for scope in parse(wanted):
        if covers(roof, scope):
            kept.append(scope)
        else:
            kept.extend(part for part in roof if covers((scope,), part))
    return join(kept)
