"""What a docstring says: the first paragraph, and the parameters in Google's, NumPy's or Sphinx's manner."""

from __future__ import annotations

import re
from typing import Any

_GOOGLE = re.compile(r"(?:Args|Arguments|Parameters|Params|Attributes):\s*$")
_SECTION = re.compile(r"[A-Z][A-Za-z ]*:\s*$")
_GOOGLE_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")
_NUMPY = re.compile(r"(?:Parameters|Other Parameters|Attributes)\s*$")
_RULE = re.compile(r"-{3,}\s*$")
_NUMPY_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?::.*)?$")
_SPHINX = re.compile(r":(?:param|parameter|arg|argument|ivar|cvar)\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)")


def summary_of(doc: str | None) -> str | None:
    """The first paragraph, on one line."""
    if not doc or not doc.strip():
        return None
    lines: list[str] = []
    for line in doc.strip().splitlines():
        stripped = line.strip()
        if not stripped or _SPHINX.match(stripped) or _GOOGLE.match(stripped):
            break
        lines.append(stripped)
    return " ".join(lines) or None


def described(schema: dict[str, Any], text: str | None) -> dict[str, Any]:
    """With a description, unless the hint has given one."""
    if not text or "description" in schema:
        return schema
    return {**schema, "description": " ".join(text.split())}


def parameters_of(doc: str | None) -> dict[str, str]:
    """What is said of each parameter; `doc` is a cleaned docstring."""
    if not doc:
        return {}
    lines = doc.splitlines()
    found: dict[str, list[str]] = {}
    for number, line in enumerate(lines):
        sphinx = _SPHINX.match(line)
        if sphinx:
            found[sphinx[1]] = [sphinx[2], *_deeper(lines[number + 1 :], 1)]
        elif _GOOGLE.match(line):
            _entries(lines[number + 1 :], _GOOGLE_ENTRY, found)
        elif _NUMPY.match(line) and number + 1 < len(lines) and _RULE.match(lines[number + 1]):
            _entries(lines[number + 2 :], _NUMPY_ENTRY, found)
    return {name: text for name, words in found.items() if (text := " ".join(" ".join(words).split()))}


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _deeper(lines: list[str], least: int) -> list[str]:
    """The lines that belong to the one before them."""
    found: list[str] = []
    for line in lines:
        if not line.strip() or _indent(line) < least:
            break
        found.append(line.strip())
    return found


def _entries(lines: list[str], entry: re.Pattern[str], found: dict[str, list[str]]) -> None:
    level: int | None = None
    for number, line in enumerate(lines):
        if not line.strip():
            continue
        level = _indent(line) if level is None else level
        if _indent(line) < level or _SECTION.match(line) or _starts_a_section(lines, number):
            return
        match = entry.match(line.strip())
        if _indent(line) == level and match:
            first = match[2] if match.re.groups > 1 else ""
            found[match[1]] = [first, *_deeper(lines[number + 1 :], level + 1)]


def _starts_a_section(lines: list[str], number: int) -> bool:
    return number + 1 < len(lines) and _RULE.match(lines[number + 1].strip()) is not None
