"""Which of a server's tools somebody wants, or may have at most, in one line of text: `readonly,search,-delete`.

    default · all · none · readonly · read · write · financial · a group of the settings · a tool; with `-`, without it

Read from left to right. A text that begins by taking away begins with the default. `;` joins texts that must all agree: the
first is what the caller has (empty: the server's default), and each further one can only narrow it. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Final, NamedTuple

from server.mcp.terms import Tier

MAX_TEXT: Final = 2_048
MAX_PARTS: Final = 128
MAX_TEXTS: Final = 4  # of one request, which must all agree
# Texts whose outcome one server remembers, for each tool: as many as there are keys and habits. Who makes up new ones pays.
REMEMBERED: Final = 64

WORDS: Final = frozenset({"default", "all", "none", "readonly", "read", "write", "financial"})
GROUP: Final = r"[a-z][a-z0-9_-]{0,63}"

_PART: Final = re.compile(r"-?[A-Za-z0-9_.][A-Za-z0-9_.-]{0,127}")
_TIERS: Final[Mapping[str, Tier]] = MappingProxyType(
    {"readonly": "read", "read": "read", "write": "write", "financial": "financial"}
)


class BadSelection(ValueError):
    """The text is no selection; says why."""


class Part(NamedTuple):
    adds: bool
    word: str


def parse(text: str) -> tuple[Part, ...]:
    """One text, without `;`. Raises `BadSelection`. Whether its words mean something here is not looked at: `unknown`."""
    if len(text) > MAX_TEXT:
        raise BadSelection(f"a selection of tools has at most {MAX_TEXT} characters")
    written = [part.strip() for part in text.split(",")] if text.strip() else []
    if len(written) > MAX_PARTS:
        raise BadSelection(f"a selection of tools has at most {MAX_PARTS} parts")
    for part in written:
        if _PART.fullmatch(part) is None:
            raise BadSelection(
                "a selection of tools is a list of words, separated by commas: default, all, none, readonly,"
                " a group or a tool; with a dash before it, without that"
            )
    return tuple(Part(not part.startswith("-"), part.removeprefix("-")) for part in written)


def unknown(text: str, *, groups: Collection[str], tools: Collection[str]) -> list[str]:
    """Its words that are neither of the language, nor a group, nor a tool. Raises `BadSelection`."""
    return [word for _, word in parse(text) if word not in WORDS and word not in groups and word not in tools]


class SelectableNames(NamedTuple):
    """What a selection may name at one server."""

    groups: Collection[str]
    tools: Collection[str]


def nowhere(text: str, servers: Collection[SelectableNames]) -> list[str]:
    """Its words that mean nothing at any of these: bound to no server, it may name what only one of them has. Raises
    `BadSelection`."""
    strange = [unknown(text, groups=known.groups, tools=known.tools) for known in servers]
    return [
        word for word in dict.fromkeys(strange[0] if strange else ()) if all(word in them for them in strange)
    ]


class Selections:
    """Of one server, with its groups (name → patterns of tool names) and its default."""

    def __init__(self, *, default: str = "", groups: Mapping[str, Sequence[str]] | None = None) -> None:
        """Raises `BadSelection`."""
        self._groups = groups or {}
        self._default = parse(default)
        self._chosen: dict[str, dict[tuple[str, Tier], bool]] = {}

    @property
    def selects(self) -> bool:
        """Whether callers without a selection of their own do not see everything."""
        return bool(self._default)

    def has(self, text: str, tool: str, tier: Tier) -> bool:
        chosen = self._chosen.get(text)
        if chosen is None:
            while len(self._chosen) >= REMEMBERED:
                del self._chosen[next(iter(self._chosen))]
            chosen = self._chosen[text] = {}
        answer = chosen.get((tool, tier))
        if answer is None:
            answer = chosen[tool, tier] = self._decide(text, tool, tier)
        return answer

    def _decide(self, text: str, tool: str, tier: Tier) -> bool:
        first, *further = text.split(";")
        try:
            return all(self._holds(parse(each) or self._default, tool, tier) for each in (first, *further))
        except BadSelection:  # one that was stored by other rules: nothing is better than everything
            return False

    def _holds(self, parts: Sequence[Part], tool: str, tier: Tier) -> bool:
        held = not parts or (not parts[0].adds and self._by_default(parts, tool, tier))
        for adds, word in parts:
            if word == "none":
                held = held and not adds
            elif self._means(word, parts, tool, tier):
                held = adds
        return held

    def _by_default(self, parts: Sequence[Part], tool: str, tier: Tier) -> bool:
        """In the default itself, the default is everything."""
        return parts is self._default or not self._default or self._holds(self._default, tool, tier)

    def _means(self, word: str, parts: Sequence[Part], tool: str, tier: Tier) -> bool:
        if word == "all":
            return True
        if word == "default":
            return self._by_default(parts, tool, tier)
        if word in _TIERS:
            return tier == _TIERS[word]
        if word in self._groups:
            return any(fnmatchcase(tool, pattern) for pattern in self._groups[word])
        return word == tool
