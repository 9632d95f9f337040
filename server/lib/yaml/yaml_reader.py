"""YAML as people write it in documents that could be JSON: text in, what JSON has out, or `BadYaml` with the line.

Read are block and flow collections, every style of scalar, comments, anchors, aliases and merge keys, by the core schema of
YAML 1.2. Not read, and refused by name, are several documents in one text, tags of one's own, keys that are not text, and
whatever would make two keys the same. Keys stay the text that is written: `200:` is "200". Nothing is constructed, nothing is
fetched. Aliases share what they name, and all that they would unfold to is counted. What stands inside quotes, brackets and
braces is flow_style.py's. Spec: YAML 1.2.2.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple, cast

from server.lib.yaml.flow_style import BadYaml, InlineReader
from server.lib.yaml.yaml_scalars import plain

# Values that a document may have when every alias is written out. The largest published description of an API has 400,000.
MAX_VALUES: Final = 1_000_000
MAX_DEPTH: Final = 100

_UNREADABLE: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
_PROPERTY: Final = re.compile(r"([&!])([^\s,\[\]{}]*)(?:[ \t]+|$)")
_PLAIN_TAGS: Final = frozenset({"!str", "!null", "!bool", "!int", "!float", "!map", "!seq"})
_BLOCK_HEADER: Final = re.compile(r"([|>])(?:([-+])?([1-9])?|([1-9])([-+])?)[ \t]*(?:[ \t]#.*)?$")
_NOT_PLAIN: Final = frozenset("[]{},#&*!|>'\"%@`")


def read_yaml(text: str, *, most: int = MAX_VALUES) -> Any:
    """What one document holds; None where it holds nothing. Raises `BadYaml`."""
    found = _UNREADABLE.search(text)
    if found:
        raise BadYaml(text.count("\n", 0, found.start()) + 1, "holds a character that no text has")
    return _BlockReader(text.removeprefix("\ufeff"), most).document()


class _Properties(NamedTuple):
    """What stands before a value: an anchor, and whether a tag makes it text."""

    anchor: str
    text: bool
    rest: str


class _BlockReader(InlineReader):
    """The lines of a document, read from the top. `self.at` is the line that is looked at."""

    def __init__(self, text: str, most: int) -> None:
        super().__init__(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), most)
        self._depth = 0

    def document(self) -> Any:
        self._skip_directives()
        value = self._node(-1) if self._look() else None
        if self._look():
            line = self.lines[self.at]
            if line.startswith("---"):
                raise self.bad("begins a second document; one alone is read")
            raise self.bad("belongs to nothing above it")
        self._depth = 0
        return value

    # ── lines ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _skip_directives(self) -> None:
        while self._look() and self.lines[self.at].startswith("%"):
            self.at += 1
        if self._look() and re.match(r"---(?:\s|$)", self.lines[self.at]):
            rest = self.lines[self.at][3:]
            self.lines[self.at] = "   " + rest if rest.strip() and not rest.lstrip().startswith("#") else ""

    def _look(self) -> bool:
        """Go on to the next line that says something; whether there is one."""
        while self.at < len(self.lines):
            line = self.lines[self.at].lstrip(" ")
            if line.startswith("\t") and line.strip() and not line.lstrip().startswith("#"):
                raise self.bad("is indented by a tab; YAML wants spaces")
            if line.strip() and not line.startswith("#"):
                return not re.match(r"\.\.\.(?:\s|$)", self.lines[self.at])
            self.at += 1
        return False

    def _indent(self) -> int:
        line = self.lines[self.at]
        return len(line) - len(line.lstrip(" "))

    # ── values ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _node(self, parent: int) -> Any:
        """The value that begins on this line, which is indented by more than `parent`."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self.bad(f"is nested more than {MAX_DEPTH} levels deep")
        indent = self._indent()
        content = self.lines[self.at][indent:]
        if _is_item(content):
            value: Any = self._sequence(indent)
        elif content.startswith("? ") or content == "?":
            raise self.bad("has a key that is not a text on one line")
        elif self._key(content) is not None:
            value = self._mapping(indent)
        else:
            value = self._inline(indent, parent)
        self._depth -= 1
        return value

    def _sequence(self, indent: int) -> list[Any]:
        found: list[Any] = []
        while self._look() and self._indent() == indent:
            line = self.lines[self.at]
            if not _is_item(line[indent:]):
                break
            self.count()
            rest = line[indent + 1 :].lstrip(" ")
            begins = len(line) - len(rest)
            if not rest or rest.startswith("#"):
                self.at += 1
                found.append(self._below(indent))
            elif _is_item(rest) or self._key(rest) is not None:
                # `- a: 1` is a mapping that begins where `a` stands.
                self.lines[self.at] = " " * begins + rest
                found.append(self._node(indent))
            else:
                found.append(self._inline(begins, indent))
        self._check_end(indent)
        return found

    def _mapping(self, indent: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        merged: list[Any] = []
        while self._look() and self._indent() == indent:
            line = self.lines[self.at]
            read = self._key(line[indent:])
            if read is None:
                break
            key, length, quoted = read
            self.count()
            if key in found:
                raise self.bad(f"has the key {key[:80]!r} a second time")
            begins = indent + length
            while begins < len(line) and line[begins] in " \t":
                begins += 1
            if begins == len(line) or line[begins] == "#":
                self.at += 1
                value = self._below(indent, items=True)
            else:
                value = self._inline(begins, indent, items=True)
            if key == "<<" and not quoted:
                merged += cast("list[Any]", value) if isinstance(value, list) else [value]
                continue
            found[key] = value
        self._check_end(indent)
        return self.merged(found, merged) if merged else found

    def _below(self, indent: int, *, items: bool = False) -> Any:
        """The value on the lines that follow, None if there is none. `items`: those of a sequence may stand below their key."""
        if not self._look():
            return None
        deeper = self._indent()
        if deeper > indent:
            return self._node(indent)
        if items and deeper == indent and _is_item(self.lines[self.at][indent:]):
            return self._sequence(indent)
        return None

    def _check_end(self, indent: int) -> None:
        if self._look() and self._indent() > indent:
            raise self.bad("is indented more than what it stands with")
        if not self._look() or self._indent() < indent:
            return
        rest = self.lines[self.at][indent:]
        if not _is_item(rest) and self._key(rest) is None and not self.lines[self.at].startswith("---"):
            raise self.bad("is neither a key with its value nor an item")

    def _inline(self, begins: int, parent: int, *, items: bool = False) -> Any:
        """A value that begins in the middle of a line, and may go on below, indented by more than `parent`."""
        self.count()
        marks = self._properties(self.lines[self.at][begins:])
        rest = marks.rest
        begins = len(self.lines[self.at]) - len(rest)
        if not rest or rest.startswith("#"):
            self.at += 1
            value = self._below(parent, items=items)
            if marks.text and value is None:
                value = ""
        elif rest[0] in "|>":
            value = self._block(rest, parent)
        elif rest[0] == "*":
            value = self._alias(rest)
        elif rest[0] in "\"'[{":
            value = self.started(begins)
        else:
            text = self._words(begins, parent)
            value = text if marks.text else plain(text)
        if marks.anchor:
            self.anchor(marks.anchor, value)
        return value

    def _properties(self, rest: str) -> _Properties:
        anchor, is_text = "", False
        while rest[:1] in ("&", "!") and (found := _PROPERTY.match(rest)):
            kind, name = found.groups()
            if kind == "&":
                if not name or anchor:
                    raise self.bad("has an anchor without a name, or two of them")
                anchor = name
            elif name in _PLAIN_TAGS:
                is_text = name == "!str"
            else:
                raise self.bad(f"has the tag !{name[:40]}, which means nothing here")
            rest = rest[found.end() :]
        if anchor and self._key(rest) is not None:
            raise self.bad("has an anchor at a key; write it behind the colon")
        return _Properties(anchor, is_text, rest)

    def _alias(self, rest: str) -> Any:
        name, _, behind = rest[1:].partition(" ")
        if behind.strip() and not behind.lstrip().startswith("#"):
            raise self.bad("has something behind an alias")
        value = self.aliased(name.strip())
        self.at += 1
        return value

    def _words(self, begins: int, parent: int) -> str:
        """A plain scalar, which may go on below."""
        first = self.lines[self.at][begins:]
        if first[0] in _NOT_PLAIN or (first[0] in "-?:" and first[1:2] in ("", " ")):
            raise self.bad(f"begins a text with {first[0]!r}, which has to be quoted")
        parts: list[str] = [self._without_comment(first)]
        ended = len(parts[0]) < len(first.rstrip())
        self.at += 1
        blank = 0
        while not ended and self.at < len(self.lines):
            line = self.lines[self.at]
            text = line.strip()
            if not text:
                blank += 1
                self.at += 1
                continue
            if len(line) - len(line.lstrip(" ")) <= parent or text.startswith("#"):
                break
            if parent < 0 and re.match(r"(?:---|\.\.\.)(?:\s|$)", line):
                break
            cut = self._without_comment(text)
            ended = len(cut) < len(text)
            parts.append(("\n" * blank if blank else " ") + cut)
            blank = 0
            self.at += 1
        return "".join(parts)

    def _without_comment(self, text: str) -> str:
        found = re.search(r"[ \t]#", text)
        cut = (text[: found.start()] if found else text).rstrip()
        if ": " in cut or cut.endswith(":"):
            raise self.bad("has a colon in a text that goes on, or in one without quotes")
        return cut

    def _block(self, header: str, parent: int) -> str:
        found = _BLOCK_HEADER.match(header)
        if not found:
            raise self.bad("has something behind | or >")
        folded = found[1] == ">"
        chomp, digit = found[2] or found[5] or "", found[3] or found[4]
        self.at += 1
        indent = max(parent, 0) + int(digit) if digit else 0
        taken: list[str] = []
        while self.at < len(self.lines):
            line = self.lines[self.at]
            own = len(line) - len(line.lstrip(" "))
            if own == len(line):
                taken.append(line)
                self.at += 1
                continue
            if not indent:
                indent = max(own, 1) if own > parent else 0
                if not indent:
                    break
            if own < indent or (parent < 0 and re.match(r"(?:---|\.\.\.)(?:\s|$)", line)):
                break
            taken.append(line)
            self.at += 1
        unended = self.at == len(self.lines) and bool(taken) and bool(taken[-1])
        if self.at == len(self.lines) and taken and not taken[-1]:
            taken.pop()  # what follows the last line break is no line
        lines = [line[indent:] if indent else "" for line in taken]
        end = len(lines)
        while end and not lines[end - 1]:
            end -= 1
        body = _folded(lines[:end]) if folded else "\n".join(lines[:end])
        if chomp == "-" or unended:
            return body
        if chomp == "+":
            return body + "\n" * (len(lines) - end + (1 if end else 0))
        return body + "\n" if end else ""


def _is_item(content: str) -> bool:
    return content.startswith("- ") or content == "-"


def _folded(lines: list[str]) -> str:
    """§8.1.3: a line break between two lines of text is a space, unless one of them is indented further."""
    found = ""
    blank = 0
    before = ""
    for number, line in enumerate(lines):
        if not line:
            blank += 1
            continue
        kept = line[0] in " \t" or before[:1] in (" ", "\t")
        if number == blank:
            found = "\n" * blank + line
        elif kept:
            found += "\n" * (blank + 1) + line
        else:
            found += ("\n" * blank if blank else " ") + line
        blank, before = 0, line
    return found
