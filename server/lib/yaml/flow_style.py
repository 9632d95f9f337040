"""What stands inside quotes, brackets and braces, over one line or several; keys, anchors, and how much there is in all."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, cast

from server.lib.yaml.yaml_scalars import CODES, ESCAPES, coded, paired, plain

MAX_FLOW_DEPTH: Final = 100
MAX_ANCHORS: Final = 10_000

_NO_KEY: Final = frozenset("[]{},#&*!|>'\"%@` \t")
_BLANK: Final = ("", " ", "\t")
_FLOW_ENDS: Final = frozenset(",[]{}")


class BadYaml(ValueError):
    """Text that is not read; says where and why, and what is written there only as far as it is a key."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line} {reason}")
        self.line = line


class InlineReader:
    """Lines, and the place in them; `column` counts only while something inline is read."""

    def __init__(self, lines: list[str], most: int) -> None:
        self.lines = lines
        self.at: int = 0
        self._column = 0
        self._most = most
        self._values = 0
        self._flow_depth = 0
        self._anchors: dict[str, tuple[Any, int]] = {}

    def bad(self, reason: str) -> BadYaml:
        return BadYaml(min(self.at, len(self.lines) - 1) + 1, reason)

    # ── how much there is ────────────────────────────────────────────────────────────────────────────────────────────

    def count(self, more: int = 1) -> None:
        self._values += more
        if self._values > self._most:
            raise self.bad(f"is where it holds more than {self._most} values, aliases written out")

    def anchor(self, name: str, value: Any) -> None:
        if len(self._anchors) >= MAX_ANCHORS:
            raise self.bad(f"has more than {MAX_ANCHORS} anchors")
        self._anchors[name] = (value, self._weight(value))

    def aliased(self, name: str) -> Any:
        if name not in self._anchors:
            raise self.bad(f"names the anchor {name[:80]!r}, which nothing complete above it has")
        value, weight = self._anchors[name]
        self.count(weight)
        return value

    def merged(self, own: dict[str, Any], sources: list[Any]) -> dict[str, Any]:
        """Merge keys: what is written wins, then what was named first."""
        found = dict(own)
        for source in sources:
            if not isinstance(source, Mapping):
                raise self.bad("merges something that is not a mapping")
            for key, value in cast("Mapping[str, Any]", source).items():
                found.setdefault(key, value)
        return found

    def _weight(self, value: Any) -> int:
        """How many values it is. Never walks further than the bound."""
        total = 0
        rest: list[Any] = [value]
        while rest:
            each = rest.pop()
            total += 1
            if total > self._most:
                raise self.bad(f"is where it holds more than {self._most} values, aliases written out")
            if isinstance(each, dict):
                rest += cast("dict[str, Any]", each).values()
            elif isinstance(each, list):
                rest += cast("list[Any]", each)
        return total

    # ── keys ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _key(self, content: str) -> tuple[str, int, bool] | None:
        """The key that `content` begins with, how long it is with its colon, and whether it was quoted; None for no key."""
        if content[:1] in ("'", '"'):
            end = _closing(content)
            behind = content[end:].lstrip(" \t") if end else ""
            if not behind.startswith(":") or behind[1:2] not in _BLANK:
                return None
            quoted = self._unquoted(content[1 : end - 1], double=content[0] == '"')
            return quoted, len(content) - len(behind) + 1, True
        place = _plain_colon(content)
        if place is None:
            return None
        return content[:place].rstrip(" \t"), place + 1, False

    # ── quotes and brackets ──────────────────────────────────────────────────────────────────────────────────────────

    def started(self, begins: int) -> Any:
        """What begins with a quote, bracket or brace at this column; afterwards nothing may follow on its last line."""
        self._column = begins
        value = self._flow_value()
        rest = self.lines[self.at][self._column :]
        if rest.strip() and not re.match(r"[ \t]+#", rest):
            raise self.bad("has something behind the end of a value")
        self.at += 1
        return value

    def _flow_value(self) -> Any:
        character = self.lines[self.at][self._column]
        if character in "\"'":
            return self._quoted(character)
        if character == "[":
            return self._flow_sequence()
        if character == "{":
            return self._flow_mapping()
        if character == "*":
            return self.aliased(self._flow_word()[1:])
        if character in "&!":
            raise self.bad("has an anchor or a tag inside brackets or braces")
        return plain(self._flow_word())

    def _flow_sequence(self) -> list[Any]:
        found: list[Any] = []
        self._open()
        while self._peek() != "]":
            self.count()
            value = self._flow_value()
            if self._peek() == ":":  # `[a: 1]` holds a mapping
                self._column += 1
                value = {self._flow_key(value): self._flow_pair_value("]")}
            found.append(value)
            self._separate("]")
        self._close()
        return found

    def _flow_mapping(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        merged: list[Any] = []
        self._open()
        while (first := self._peek()) != "}":
            self.count()
            if first in "[{":
                raise self.bad("has a key that is not a text")
            quoted = first in "\"'"
            key = self._quoted(first) if quoted else self._flow_word()
            value = None
            if self._peek() == ":":
                self._column += 1
                value = self._flow_pair_value("}")
            if key == "<<" and not quoted:
                merged += cast("list[Any]", value) if isinstance(value, list) else [value]
            elif key in found:
                raise self.bad(f"has the key {key[:80]!r} a second time")
            else:
                found[key] = value
            self._separate("}")
        self._close()
        return self.merged(found, merged) if merged else found

    def _flow_pair_value(self, end: str) -> Any:
        return None if self._peek() in (",", end) else self._flow_value()

    def _flow_key(self, value: Any) -> str:
        if not isinstance(value, str):
            raise self.bad("has a key that is not a text")
        return value

    def _open(self) -> None:
        self._flow_depth += 1
        if self._flow_depth > MAX_FLOW_DEPTH:
            raise self.bad(f"is nested more than {MAX_FLOW_DEPTH} levels deep")
        self._column += 1

    def _close(self) -> None:
        self._flow_depth -= 1
        self._column += 1

    def _separate(self, end: str) -> None:
        following = self._peek()
        if following == ",":
            self._column += 1
        elif following != end:
            raise self.bad(f"lacks a comma or {end}")

    def _peek(self) -> str:
        """The next character that is neither space nor comment, on this line or a later one."""
        while True:
            line = self.lines[self.at]
            while self._column < len(line) and line[self._column] in " \t":
                self._column += 1
            behind_space = self._column == 0 or line[self._column - 1] in " \t"
            if self._column < len(line) and not (line[self._column] == "#" and behind_space):
                return line[self._column]
            self._next_line()

    def _next_line(self) -> None:
        if self.at + 1 >= len(self.lines):
            raise self.bad("is where the text ends, inside of quotes, brackets or braces")
        self.at += 1
        self._column = 0

    def _flow_word(self) -> str:
        line = self.lines[self.at]
        start = self._column
        while self._column < len(line):
            character = line[self._column]
            if character in _FLOW_ENDS:
                break
            following = line[self._column + 1 : self._column + 2]
            if character == ":" and (not following or following in " \t,[]{}"):
                break
            if character == "#" and self._column and line[self._column - 1] in " \t":
                break
            self._column += 1
        word = line[start : self._column].strip()
        if not word:
            raise self.bad("lacks a value between two commas")
        if self._column == len(line) and self._continues():
            raise self.bad(
                "has a text without quotes that goes on on the next line, inside brackets or braces"
            )
        return word

    def _continues(self) -> bool:
        following = self.lines[self.at + 1].strip() if self.at + 1 < len(self.lines) else ""
        return bool(following) and following[0] not in ",]}:#"

    def _quoted(self, quote: str) -> str:
        """From the opening quote to the closing one. §7.3: line breaks are folded, unless blank lines follow."""
        pieces: list[str] = []
        self._column += 1
        while True:
            line = self.lines[self.at]
            end = _end_of_quoted(line, self._column, quote)
            if end is not None:
                pieces.append(line[self._column : end])
                self._column = end + 1
                return self._unquoted("\n".join(pieces), double=quote == '"')
            pieces.append(line[self._column :])
            self._next_line()

    def _unquoted(self, raw: str, *, double: bool) -> str:
        if not double:
            return _fold(raw).replace("''", "'")
        found: list[str] = []
        place = 0
        raw = _fold(raw, escaped=True)
        while (back := raw.find("\\", place)) >= 0:
            found.append(raw[place:back])
            kind = raw[back + 1 : back + 2]
            if kind in CODES:
                character = coded(raw, back + 2, kind)
                if character is None:
                    raise self.bad(f"has \\{kind} without its digits")
                found.append(character)
                place = back + 2 + CODES[kind]
            elif kind in ESCAPES and kind:
                found.append(ESCAPES[kind])
                place = back + 2
            else:
                raise self.bad(f"has an escape that does not exist: \\{kind}")
        text = "".join([*found, raw[place:]])
        return paired(text) if any("\ud800" <= each <= "\udfff" for each in text) else text


def _plain_colon(content: str) -> int | None:
    """Where the colon of a key without quotes stands: a space or the end of the line follows it."""
    if content[:1] in _NO_KEY or (content[:1] in ("-", "?", ":") and content[1:2] in _BLANK):
        return None
    place = content.find(":")
    while place >= 0 and content[place + 1 : place + 2] not in _BLANK:
        place = content.find(":", place + 1)
    if place < 0 or content.find(" #", 0, place) >= 0:
        return None
    return place


def _closing(content: str) -> int:
    """Where the quoted text that `content` begins with ends, its quote included; 0 where it does not on this line."""
    end = _end_of_quoted(content, 1, content[0])
    return 0 if end is None else end + 1


def _end_of_quoted(line: str, place: int, quote: str) -> int | None:
    while place < len(line):
        if line[place] == "\\" and quote == '"':
            place += 2
        elif line[place] != quote:
            place += 1
        elif quote == "'" and line[place + 1 : place + 2] == "'":
            place += 2
        else:
            return place
    return None


def _fold(raw: str, *, escaped: bool = False) -> str:
    if "\n" not in raw:
        return raw
    lines = raw.split("\n")
    found = lines[0]
    blank = 0
    for number, line in enumerate(lines[1:], 1):
        text = line.lstrip(" \t")
        last = number == len(lines) - 1
        if not text and not last:
            blank += 1
            continue
        if escaped and not blank and _ends_escaped(found):
            found = found[:-1] + text  # `\` at the end of a line: the break is not there
        else:
            found = found.rstrip(" \t") + ("\n" * blank if blank else " ") + text
        blank = 0
    return found


def _ends_escaped(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1
