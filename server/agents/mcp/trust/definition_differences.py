"""A definition line by line, and what differs between two of them, for the eyes of whoever accepts it.

Each member is a line of its own with the way to it, each line of a text a line of the difference. Nothing is left out because it is long
or looks alike: who hides something in the middle of a schema is the one whom this is about. Lines are raw; `shown` makes one harmless
to a terminal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any, Final, Literal, cast

import msgspec

from server.lib.log.visible_text import escaped

# What a difference is worked out for; beyond it all of the old goes and all of the new comes, which is as true.
COMPARED_LINES: Final = 1_500


class DiffLine(msgspec.Struct, frozen=True):
    sign: Literal["-", "+", " "]
    text: str


def lines_of(text: str) -> list[str]:
    """Of a definition's canonical JSON. One that was cut is shown as it is."""
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        return [text[at : at + 500] for at in range(0, len(text), 500)]
    return list(_walk("", value))


def difference(old: str, new: str) -> list[DiffLine]:
    """From what was accepted (empty: nothing was) to what is offered."""
    before, after = lines_of(old), lines_of(new)
    if max(len(before), len(after)) > COMPARED_LINES:
        return [*(DiffLine("-", line) for line in before), *(DiffLine("+", line) for line in after)]
    found: list[DiffLine] = []
    for tag, from_1, to_1, from_2, to_2 in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "equal":
            found += [DiffLine(" ", line) for line in before[from_1:to_1]]
        else:
            found += [DiffLine("-", line) for line in before[from_1:to_1]]
            found += [DiffLine("+", line) for line in after[from_2:to_2]]
    return found


def near_changes(lines: Sequence[DiffLine], *, context: int = 2) -> list[DiffLine | None]:
    """What changed, with a few lines around it; None where something that is the same was left out."""
    near: set[int] = set()
    for place, line in enumerate(lines):
        if line.sign != " ":
            near |= set(range(place - context, place + context + 1))
    shown: list[DiffLine | None] = []
    for place, line in enumerate(lines):
        if place in near:
            shown.append(line)
        elif not shown or shown[-1] is not None:
            shown.append(None)
    return shown


def _walk(way: str, value: Any) -> Iterator[str]:
    match value:
        case dict() if value:
            for name, part in cast("dict[str, Any]", value).items():
                yield from _walk(f"{way}.{name}" if way else name, part)
        case list() if value:
            for place, part in enumerate(cast("list[Any]", value)):
                yield from _walk(f"{way}[{place}]", part)
        case str() if "\n" in value:
            yield f"{way}:"
            yield from (f"  | {line}" for line in value.split("\n"))
        case str():
            yield f"{way}: {value}"
        case _:
            yield f"{way}: {json.dumps(value)}"


# Letters and marks that nobody sees, in which whole sentences can be hidden: selectors, fillers, blanks that are not blanks.
_UNSEEN: Final = re.compile(
    "[\u00a0\u034f\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200a\u202f\u205f\u2800\u3000\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef]"
)


def shown(text: str) -> str:
    """A line as it may be printed: what steers a terminal, and what nobody would see, as its code."""
    return _UNSEEN.sub(_code, escaped(text))


def _code(found: re.Match[str]) -> str:
    return "".join(f"\\u{unit:04x}" for unit in _units(found[0]))


def _units(character: str) -> list[int]:
    raw = character.encode("utf-16-be")
    return [int.from_bytes(raw[at : at + 2]) for at in range(0, len(raw), 2)]
