"""On which line of the settings each of them stands, for whoever has to mend one. The file was read before and is TOML; nothing is
judged here, and what cannot be followed has no line.

A place is written as errors name it: `server[2].agent[1].url`, `server[1].tools.echo.price`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

_BLANK: Final = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE: Final = re.compile(r"[ \t]*")
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
# A text, with its quotes; of three, first, for two quotes are an empty one as well.
_STRING: Final = re.compile(
    r'"""(?:\\.|[^\\])*?"""+|' + r"'''.*?'''+|" + r'"(?:\\.|[^"\\\n])*"|' + r"'[^'\n]*'", re.DOTALL
)
_PLAIN: Final = re.compile(r"[^,\]}#\n]*")  # a number, a date, a word
_DEEPEST: Final = 60


def lines_of(text: str) -> Mapping[str, int]:
    """Empty, or as far as it could be followed."""
    scan = _Scan(text)
    with suppress(_Lost, RecursionError):
        scan.document()
    return scan.found


def line_of(lines: Mapping[str, int], place: str) -> int:
    """The line of a place, or of what it is a part of; 0 if neither is written."""
    while place:
        if place in lines:
            return lines[place]
        place = place[: max(place.rfind("."), place.rfind("["), 0)]
    return 0


class _Lost(Exception):
    pass


class _Scan:
    def __init__(self, text: str) -> None:
        self.found: dict[str, int] = {}
        self._text = text
        self._at = 0
        self._counted = (0, 1)  # up to where line ends are counted, and the line there
        self._tables: dict[str, int] = {}  # [[name]]: how many so far

    def document(self) -> None:
        prefix = ""
        self._skip(_BLANK)
        while self._at < len(self._text):
            if self._peek() == "[":
                prefix = self._header()
            else:
                self._entry(prefix, 0)
            self._skip(_BLANK)

    def _header(self) -> str:
        line, many = self._line(), self._text.startswith("[[", self._at)
        self._at += 2 if many else 1
        steps = self._key()
        self._at += 2 if many else 1
        place = ""
        for step in steps[:-1]:
            place = _joined(place, step)
            self.found.setdefault(place, line)
            place = self._newest(place)
        place = _joined(place, steps[-1])
        if many:
            self._tables[place] = count = self._tables.get(place, 0) + 1
            self.found.setdefault(place, line)
            place = f"{place}[{count}]"
        self.found.setdefault(place, line)
        return place

    def _newest(self, place: str) -> str:
        """The table that a header within it means."""
        count = self._tables.get(place)
        return place if count is None else f"{place}[{count}]"

    def _entry(self, prefix: str, depth: int) -> None:
        line, place = self._line(), prefix
        for step in self._key():
            place = _joined(place, step)
            self.found.setdefault(place, line)
        self._expect("=")
        self._skip(_SPACE)
        self._value(place, depth)

    def _value(self, place: str, depth: int) -> None:
        if depth > _DEEPEST:
            raise _Lost
        opens = self._peek()
        if opens == "[":
            self._at += 1
            self._skip(_BLANK)
            count = 0
            while self._peek() != "]":
                count += 1
                self.found.setdefault(f"{place}[{count}]", self._line())
                self._value(f"{place}[{count}]", depth + 1)
                self._separator()
            self._at += 1
        elif opens == "{":
            self._at += 1
            self._skip(_BLANK)
            while self._peek() != "}":
                self._entry(place, depth + 1)
                self._separator()
            self._at += 1
        elif opens in "\"'":
            self._take(_STRING)
        else:
            self._take(_PLAIN)

    def _separator(self) -> None:
        self._skip(_BLANK)
        if self._peek() == ",":
            self._at += 1
            self._skip(_BLANK)

    def _key(self) -> list[str]:
        steps: list[str] = []
        while True:
            self._skip(_SPACE)
            quoted = self._peek() in "\"'"
            step = self._take(_STRING if quoted else _BARE)
            steps.append(step[1:-1] if quoted else step)
            self._skip(_SPACE)
            if self._peek() != ".":
                return steps
            self._at += 1

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _peek(self) -> str:
        if self._at >= len(self._text):
            raise _Lost
        return self._text[self._at]

    def _skip(self, what: re.Pattern[str]) -> None:
        if found := what.match(self._text, self._at):
            self._at = found.end()

    def _take(self, what: re.Pattern[str]) -> str:
        found = what.match(self._text, self._at)
        if found is None or found.end() == self._at:
            raise _Lost
        self._at = found.end()
        return found[0]

    def _expect(self, character: str) -> None:
        if self._peek() != character:
            raise _Lost
        self._at += 1

    def _line(self) -> int:
        at, line = self._counted
        line += self._text.count("\n", at, self._at)
        self._counted = (self._at, line)
        return line


def _joined(place: str, step: str) -> str:
    return f"{place}.{step}" if place else step
