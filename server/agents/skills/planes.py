"""The container `.3md`: Markdown in planes along one axis. Text in, a `PlaneDocument` out, or `Bad3md` by the format's own names.

What planes mean, an agent and its skills, is skills_book.py's. Spec: 3md 1.0 (frontmatter §3, planes §4, errors §6, links §8).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

DEFAULT_AXIS: Final = "layer"
# Far more than anybody writes into one document; each costs a dictionary.
MAX_PLANES: Final = 10_000
MAX_NUMBER_DIGITS: Final = 100

FaultOfForm: TypeAlias = Literal[
    "missingFrontmatter",
    "invalidFrontmatter",
    "missingVersion",
    "missingPlanePosition",
    "invalidPlaneDirective",
    "duplicatePlane",
]

_RESERVED: Final = frozenset({"3md", "axis", "title"})
_PLACED: Final = frozenset({"z", "x", "y", "label"})
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?").fullmatch
_BLANK: Final = " \t"

Position: TypeAlias = int | float  # a whole number is an int, so that it is written as one


class Bad3md(ValueError):
    """Not a `.3md` document; `fault` is the format's own name for what is wrong."""

    def __init__(self, fault: FaultOfForm, reason: str, line: int | None = None) -> None:
        super().__init__(f"{fault}: {reason}" + (f" (line {line})" if line else ""))
        self.fault: Final = fault


class Plane(msgspec.Struct, frozen=True, kw_only=True):
    z: Position
    label: str | None = None
    x: Position | None = None
    y: Position | None = None
    attributes: Mapping[str, str]
    body: str


class PlaneDocument(msgspec.Struct, frozen=True, kw_only=True):
    version: str
    axis: str = DEFAULT_AXIS
    title: str | None = None
    metadata: Mapping[str, str]
    preamble: str | None = None
    planes: Sequence[Plane]  # as they are written


def read_3md(text: str) -> PlaneDocument:
    """Raises `Bad3md`."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    fields, begins = _frontmatter(lines)
    reserved = {key.lower(): value for key, value in fields if key.lower() in _RESERVED}
    if not reserved.get("3md"):
        raise Bad3md("missingVersion", "the frontmatter has no 3md: line with a version")
    preamble, planes = _planes(lines, begins)
    return PlaneDocument(
        version=reserved["3md"],
        axis=reserved.get("axis", "").strip().lower() or DEFAULT_AXIS,
        title=reserved.get("title"),
        metadata={key: value for key, value in fields if key.lower() not in _RESERVED},
        preamble=preamble,
        planes=planes,
    )


def position(text: str) -> Position | None:
    """A finite decimal; None for what is none."""
    if len(text) > MAX_NUMBER_DIGITS or not _NUMBER(text):
        return None
    value = float(text)
    if not math.isfinite(value):
        return None
    return int(value) if value.is_integer() else value


def _frontmatter(lines: Sequence[str]) -> tuple[list[tuple[str, str]], int]:
    """Keys with their values, and the line behind the closing fence."""
    at = 0
    while at < len(lines) and not lines[at].strip(_BLANK):
        at += 1
    if at == len(lines) or lines[at].strip(_BLANK) != "---":
        raise Bad3md("missingFrontmatter", "it does not begin with a line of ---", at + 1)
    fields: list[tuple[str, str]] = []
    for number in range(at + 1, len(lines)):
        line = lines[number].strip(_BLANK)
        if line == "---":
            return fields, number + 1
        if not line or line.startswith("#"):
            continue
        key, colon, value = line.partition(":")
        if not colon:
            raise Bad3md("invalidFrontmatter", "a line of it has no colon", number + 1)
        fields.append((key.strip(_BLANK), _unquoted(value.strip(_BLANK))))
    raise Bad3md("invalidFrontmatter", "it is not closed by a line of ---", at + 1)


def _planes(lines: Sequence[str], begins: int) -> tuple[str | None, Sequence[Plane]]:
    directives: list[int] = []
    fence = ""
    for number in range(begins, len(lines)):
        line = lines[number]
        text = line.strip(_BLANK)
        mark = text[:3] if text[:3] in ("```", "~~~") else ""
        if fence:
            fence = "" if mark == fence else fence
        elif mark:
            fence = mark
        elif line.startswith("@plane") and line[6:7] in ("", " ", "\t"):
            directives.append(number)
    if not directives:
        whole = _trimmed(lines[begins:])
        return None, () if whole is None else (Plane(z=0, attributes={}, body=whole),)
    if len(directives) > MAX_PLANES:
        raise Bad3md("invalidPlaneDirective", f"there are more than {MAX_PLANES} planes")
    found: dict[Position, Plane] = {}
    for place, number in enumerate(directives):
        end = directives[place + 1] if place + 1 < len(directives) else len(lines)
        plane = _plane(lines[number], number + 1, _trimmed(lines[number + 1 : end]) or "")
        if plane.z in found:
            raise Bad3md("duplicatePlane", f"there are two planes at z={plane.z}", number + 1)
        found[plane.z] = plane
    return _trimmed(lines[begins : directives[0]]), tuple(found.values())


def _plane(directive: str, line: int, body: str) -> Plane:
    attributes: dict[str, str] = {}
    for token in _tokens(directive[len("@plane") :], line):
        key, equals, value = token.partition("=")
        if not equals or not key:
            raise Bad3md("invalidPlaneDirective", f"{token[:40]!r} is not key=value", line)
        attributes[key.lower()] = _unquoted(value)
    if "z" not in attributes:
        raise Bad3md("missingPlanePosition", "a plane has no z", line)
    placed: dict[str, Position] = {}
    for key in ("z", "x", "y"):
        if key in attributes:
            number = position(attributes[key])
            if number is None:
                raise Bad3md("invalidPlaneDirective", f"{key} is not a finite decimal number", line)
            placed[key] = number
    return Plane(
        z=placed["z"],
        x=placed.get("x"),
        y=placed.get("y"),
        label=attributes.get("label"),
        attributes={key: value for key, value in attributes.items() if key not in _PLACED},
        body=body,
    )


def _tokens(text: str, line: int) -> list[str]:
    """Split at spaces that are not in quotes; a backslash in quotes keeps what follows it."""
    found: list[str] = []
    start: int | None = None
    quote = ""
    at = 0
    while at < len(text):
        character = text[at]
        if quote:
            if character == "\\":
                at += 1
            elif character == quote:
                quote = ""
        elif character in _BLANK:
            if start is not None:
                found.append(text[start:at])
                start = None
            at += 1
            continue
        elif character in "\"'":
            quote = character
        if start is None:
            start = at
        at += 1
    if quote:
        raise Bad3md("invalidPlaneDirective", "a quote is not closed", line)
    if start is not None:
        found.append(text[start:])
    return found


def _unquoted(value: str) -> str:
    if len(value) < 2 or value[0] not in "\"'" or value[-1] != value[0]:
        return value
    return re.sub(r"\\(.)", r"\1", value[1:-1])


def _trimmed(lines: Sequence[str]) -> str | None:
    """Without the blank lines around it; None where nothing is left."""
    first, end = 0, len(lines)
    while first < end and not lines[first].strip(_BLANK):
        first += 1
    while end > first and not lines[end - 1].strip(_BLANK):
        end -= 1
    return "\n".join(lines[first:end]) if first < end else None
