"""Extensions that go through a gateway: what a client and a server declare of them in `capabilities.extensions`, with its contents.

A client's are kept as words beside its abilities: the name alone where the contents are the usual ones of that extension, else
the name, a blank, and the contents as JSON. Extensions that are dealt with here (tasks, skills, payments) are between us and each side.
Spec: SEP-1724 "Extensions"; ext-apps, "Client<>Server Capability Negotiation".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, cast

import msgspec

from server.mcp.skills_extension import SKILLS_EXTENSION
from server.mcp.versions import PAYMENT_EXTENSION, TASKS_EXTENSION

APPS: Final = "io.modelcontextprotocol/ui"
PAGE_TYPE: Final = "text/html;profile=mcp-app"
# Of a client of the handshake era that wants to be told the keys of questions: each has its own in `_meta`, below this name.
QUESTION_KEYS: Final = "io.ostiary/question-keys"
OURS: Final = frozenset({TASKS_EXTENSION, SKILLS_EXTENSION, PAYMENT_EXTENSION})
# The contents that nearly every client declares, and that are said for clients which nobody knows yet.
USUAL: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType({APPS: {"mimeTypes": [PAGE_TYPE]}})
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,62}/[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
# Of one client: they stay as long as its session.
MOST: Final = 8
CONTENTS_BYTES: Final = 512
_NONE: Final[Mapping[str, Any]] = MappingProxyType({})


def extension_words(declared: Mapping[str, Any]) -> set[str]:
    """Return the words for a client's `extensions`. Contents that are too large to be kept count as the usual ones."""
    found: set[str] = set()
    for name, contents in declared.items():
        if len(found) < MOST and name not in OURS and NAME.fullmatch(name) and isinstance(contents, Mapping):
            given = _written(cast("Mapping[str, Any]", contents))
            found.add(name if contents == USUAL.get(name, _NONE) or not given else f"{name} {given}")
    return found


def is_extension(word: str) -> bool:
    """Return whether a word of a client is about an extension, and not an ability."""
    return "/" in word


def draws_pages(words: Iterable[str]) -> bool:
    """Return whether a client says that it draws pages."""
    return any(name_of(word) == APPS for word in words)


def name_of(word: str) -> str:
    return word.partition(" ")[0]


def declared_by(words: Iterable[str], passed: frozenset[str]) -> dict[str, Any]:
    """Return the `extensions` for these words of a client, as far as they are `passed` on."""
    found: dict[str, Any] = {}
    for word in words:
        name, _, contents = word.partition(" ")
        if name in passed and is_extension(name):
            found[name] = msgspec.json.decode(contents) if contents else dict(USUAL.get(name, _NONE))
    return found


def carried(declared: object, passed: Iterable[str]) -> Mapping[str, Mapping[str, Any]]:
    """Return what of a server's `extensions` is told to its clients here: those that are `passed` on, without contents that are too large."""
    if not isinstance(declared, Mapping):
        return {}
    theirs = cast("Mapping[str, Any]", declared)
    found: dict[str, Mapping[str, Any]] = {}
    for name in passed:
        contents = theirs.get(name)
        if isinstance(contents, Mapping):
            given = cast("Mapping[str, Any]", contents)
            found[name] = given if _written(given) else {}
    return found


def united(declared: Iterable[Mapping[str, Mapping[str, Any]]]) -> Mapping[str, Mapping[str, Any]]:
    """Return the extensions that any of these have. Lists in the contents hold what any has, and of all else the first one's counts."""
    found: dict[str, dict[str, Any]] = {}
    for one in declared:
        for name, contents in one.items():
            known = found.setdefault(name, {})
            for key, value in contents.items():
                before = known.setdefault(key, value)
                if isinstance(before, list) and isinstance(value, list):
                    theirs = cast("list[Any]", value)
                    known[key] = [
                        *cast("list[Any]", before),
                        *(each for each in theirs if each not in before),
                    ]
    return found


def _written(contents: Mapping[str, Any]) -> str:
    """Return the contents as JSON; empty where they are too large, or no JSON."""
    try:
        text = msgspec.json.encode(contents, order="sorted").decode()
    except (TypeError, ValueError, RecursionError):
        return ""
    return text if len(text) <= CONTENTS_BYTES else ""
