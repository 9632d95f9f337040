"""JSON read with the place of everything in the text, so that a part of it can be changed and the rest left alone.

With `comments`, as VS Code and others write it: `//` and `/* */`, and a comma after the last entry. Strict otherwise.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import msgspec

from server.client.programs.config_edit import UnreadableSettings

# Deeper than any configuration, shallower than Python's own stack.
MAX_DEPTH: Final = 64
_BLANK: Final = re.compile(r"[ \t\r\n]+")
_COMMENT: Final = re.compile(r"//[^\r\n]*|/\*.*?\*/", re.DOTALL)
_STRING: Final = re.compile(r'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9A-Fa-f]{4})*"')
_SCALAR: Final = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null", re.ASCII)


class Node(msgspec.Struct, kw_only=True):
    start: int
    end: int
    value: Any
    members: list[Member] = msgspec.field(default_factory=list["Member"])  # of an object


class Member(msgspec.Struct, kw_only=True):
    key: str
    start: int  # of the key
    node: Node
    comma: int | None = None  # the place of the one after it


def parse(text: str, *, comments: bool) -> Node:
    """The whole text as one value. Raises `UnreadableSettings` with the line."""
    reader = _Reader(text, comments)
    node = reader.value(reader.blank(0), 0)
    rest = reader.blank(node.end)
    if rest != len(text):
        raise reader.wrong(rest)
    return node


def end_of_comments(text: str, start: int, end: int) -> int:
    """Where the last comment between these ends; `start` if there is none."""
    position = start
    last = start
    while position < end:
        if found := _COMMENT.match(text, position, end):
            last = position = found.end()
        else:
            position += 1
    return last


class _Reader:
    def __init__(self, text: str, comments: bool) -> None:
        self._text = text
        self._comments = comments

    def wrong(self, position: int) -> UnreadableSettings:
        line = self._text.count("\n", 0, position) + 1
        return UnreadableSettings(f"line {line} is no {'JSON with comments' if self._comments else 'JSON'}")

    def blank(self, position: int) -> int:
        while True:
            found = _BLANK.match(self._text, position)
            if found is None and self._comments:
                found = _COMMENT.match(self._text, position)
            if found is None:
                return position
            position = found.end()

    def value(self, position: int, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise UnreadableSettings("it is nested deeper than any configuration")
        opening = self._text[position : position + 1]
        if opening == "{":
            return self._object(position, depth)
        if opening == "[":
            return self._array(position, depth)
        found = (_STRING if opening == '"' else _SCALAR).match(self._text, position)
        if found is None:
            raise self.wrong(position)
        return Node(start=position, end=found.end(), value=json.loads(found[0]))

    def _object(self, start: int, depth: int) -> Node:
        node = Node(start=start, end=start, value={})
        position = self.blank(start + 1)
        while self._text[position : position + 1] != "}":
            name = self.value(position, depth) if self._text[position : position + 1] == '"' else None
            if name is None or (node.members and node.members[-1].comma is None):
                raise self.wrong(position)
            colon = self.blank(name.end)
            if self._text[colon : colon + 1] != ":":
                raise self.wrong(colon)
            inner = self.value(self.blank(colon + 1), depth + 1)
            if name.value in node.value:
                raise UnreadableSettings(f"it has “{str(name.value)[:60]}” twice in one place")
            node.value[name.value] = inner.value
            member = Member(key=name.value, start=position, node=inner)
            node.members.append(member)
            position = self.blank(inner.end)
            if self._text[position : position + 1] == ",":
                member.comma = position
                position = self.blank(position + 1)
        if node.members and node.members[-1].comma is not None and not self._comments:
            raise self.wrong(node.members[-1].comma)
        node.end = position + 1
        return node

    def _array(self, start: int, depth: int) -> Node:
        node = Node(start=start, end=start, value=[])
        position, comma = self.blank(start + 1), True
        while self._text[position : position + 1] != "]":
            if not comma:
                raise self.wrong(position)
            inner = self.value(position, depth + 1)
            node.value.append(inner.value)
            position = self.blank(inner.end)
            comma = self._text[position : position + 1] == ","
            if comma:
                position = self.blank(position + 1)
        if node.value and comma and not self._comments:
            raise self.wrong(position)
        node.end = position + 1
        return node
