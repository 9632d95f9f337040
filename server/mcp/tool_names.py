"""The names of tools that hosts take: what programs refuse that show a server's tools to a model, and how that is said.

One name that a host refuses may keep all tools of the server from it. The protocol allows more (2026-07-28: server/tools, "Tool Names").
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from types import MappingProxyType
from typing import Final

HOSTS: Final = "Claude, Claude Desktop, Codex and Copilot"
MOST_CHARACTERS: Final = 64
MEND: Final = 'use 1 to 64 letters, digits, _ and -; of an upstream: separator = "__", a shorter id, or rename = { "old.name" = "new_name" }'
MOST_LEGAL: Final = 128  # characters, by the protocol
NAMED: Final = 10  # in one sentence
# Of a server whose tools are found by searching: one finds them, the other calls one by its name.
FIND_TOOLS: Final = "find_tools"
CALL_TOOL: Final = "call_tool"
# The entry in `_meta` of a list for a client that wants it whole.
DISCOVERY: Final = "io.ostiary/discovery"
WHOLE_LIST: Final = MappingProxyType({DISCOVERY: "list"})

_ILLEGAL: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_TAKEN: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}").fullmatch


class LegalNames:
    """Names that the protocol allows (SEP-986), each given once: letters without their marks, `_` for what is no letter, and a number behind
    one that is given already."""

    def __init__(self, most: int = MOST_LEGAL) -> None:
        self._most = most
        self._given: set[str] = set()
        self._numbers: dict[str, int] = {}  # name → the last number behind it: many may be the same name

    def give(self, written: str) -> str:
        usual = name = legal(written)[: self._most]
        while name in self._given:
            number = self._numbers[usual] = self._numbers.get(usual, 1) + 1
            ending = f"_{number}"
            name = usual[: self._most - len(ending)] + ending
        self._given.add(name)
        return name


def legal(written: str) -> str:
    """Return a name as the protocol allows it, or the same one."""
    if written and not _ILLEGAL.search(written):
        return written
    apart = unicodedata.normalize("NFKD", written)
    return (
        _ILLEGAL.sub("_", "".join(each for each in apart if not unicodedata.combining(each))).strip("_")
        or "unnamed"
    )


def not_offered(name: str, offered: Iterable[str]) -> str:
    """Say that no agent offers this tool, and which one was meant or what there is."""
    from difflib import get_close_matches

    there = sorted(offered)
    if near := get_close_matches(name, there, n=1):
        return f"{name}, which no agent offers; did you mean {near[0]}?"
    more = f" and {len(there) - NAMED} more" if len(there) > NAMED else ""
    return f"{name}, which no agent offers; there is {', '.join(there[:NAMED]) or 'no tool'}{more}"


def fault_in_name(name: str) -> str | None:
    """Say why hosts refuse this name; None: they take it."""
    if _TAKEN(name):
        return None
    if len(name) > MOST_CHARACTERS:
        return f"its name has {len(name)} characters, and {HOSTS} refuse more than {MOST_CHARACTERS}"
    return f"its name has characters that {HOSTS} refuse, such as a dot"


def refused_names(names: Iterable[str]) -> list[str]:
    """Return those that hosts refuse."""
    return [name for name in names if not _TAKEN(name)]


def refusal(names: list[str]) -> str:
    """Say in one sentence that hosts refuse these."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    count = "a name" if len(names) == 1 else f"{len(names)} names"
    return f"{HOSTS} refuse {count}, and perhaps the whole server: {', '.join(names[:NAMED])}{more}"
