"""A server in a JSON file: put in after the last one, replaced where it is, taken out with its comma and nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from server.client.programs.config_edit import TextEdit, UnreadableSettings, newline_of
from server.client.programs.json_tree import Member, Node, end_of_comments, parse


class JsonEditor(msgspec.Struct, frozen=True, kw_only=True):
    comments: bool

    def read(self, text: str, key: str) -> Mapping[str, Mapping[str, Any]]:
        table = self._table(text, key)
        if table is None:
            return {}
        found = cast("dict[str, Any]", table.value)
        return {name: cast("dict[str, Any]", each) for name, each in found.items() if isinstance(each, dict)}

    def put(self, text: str, key: str, name: str, entry: Mapping[str, Any]) -> TextEdit:
        if not text.strip():
            return TextEdit(start=0, end=len(text), new=self.alone(key, name, entry))
        top, table = self._top(text), self._table(text, key)
        step, newline = _step_of(text, top), newline_of(text)
        if table is None:
            return _added(text, top, key, {name: dict(entry)}, step, newline, level=1)
        there = _member(table, name)
        if there is not None:
            new = _written(dict(entry), step, newline, level=2)
            return TextEdit(start=there.node.start, end=there.node.end, new=new)
        return _added(text, table, name, dict(entry), step, newline, level=2)

    def drop(self, text: str, key: str, name: str) -> TextEdit:
        table = self._table(text, key)
        there = None if table is None else _member(table, name)
        if table is None or there is None:
            raise UnreadableSettings(f"there is no {name} in it")
        index = table.members.index(there)
        before = table.members[index - 1] if index else None
        after_comma = table.start + 1 if before is None or before.comma is None else before.comma + 1
        # A comment in front of it is not ours to remove.
        start = end_of_comments(text, after_comma, there.start)
        if there.comma is not None:
            return TextEdit(start=start, end=there.comma + 1, new="")
        if before is None or before.comma is None:
            # The only one: the braces close up, unless somebody wrote something between them.
            closing = table.end - 1
            kept = start != after_comma or end_of_comments(text, there.node.end, closing) != there.node.end
            return TextEdit(start=start, end=there.node.end if kept else closing, new="")
        if start != after_comma:  # a comment stands between the comma and us
            return TextEdit(
                start=before.comma, end=there.node.end, new=text[before.comma + 1 : start].rstrip(" \t")
            )
        return TextEdit(start=before.comma, end=there.node.end, new="")

    def alone(self, key: str, name: str, entry: Mapping[str, Any]) -> str:
        return json.dumps({key: {name: dict(entry)}}, indent=2, ensure_ascii=False) + "\n"

    def _top(self, text: str) -> Node:
        top = parse(text, comments=self.comments)
        if not isinstance(top.value, dict):
            raise UnreadableSettings("it is no JSON object")
        return top

    def _table(self, text: str, key: str) -> Node | None:
        if not text.strip():
            return None
        there = _member(self._top(text), key)
        if there is not None and not isinstance(there.node.value, dict):
            raise UnreadableSettings(f"its {key} is no JSON object")
        return None if there is None else there.node


def _member(node: Node, key: str) -> Member | None:
    return next((member for member in node.members if member.key == key), None)


def _added(text: str, node: Node, key: str, value: Any, step: str, newline: str, *, level: int) -> TextEdit:
    """`key` as the last member of an object whose members stand `level` steps in."""
    last = node.members[-1] if node.members else None
    one_line = not step or (last is not None and "\n" not in text[node.start : node.end])
    written = f"{json.dumps(key)}: {_written(value, '' if one_line else step, newline, level=level)}"
    line = written if one_line else f"{newline}{step * level}{written}"
    blank = " " if one_line else ""
    if last is not None and last.comma is not None:
        return TextEdit(start=last.comma + 1, end=last.comma + 1, new=f"{blank}{line},")
    if last is not None:
        return TextEdit(start=last.node.end, end=last.node.end, new=f",{blank}{line}")
    inside = text[node.start + 1 : node.end - 1].rstrip()  # comments, if anything: we come after them
    close = "" if one_line else f"{newline}{step * (level - 1)}"
    return TextEdit(start=node.start + 1 + len(inside), end=node.end - 1, new=f"{line}{close}")


def _written(value: Any, step: str, newline: str, *, level: int) -> str:
    if not step:
        return json.dumps(value, ensure_ascii=False)
    lines = json.dumps(value, indent=step, ensure_ascii=False).splitlines()
    return f"{newline}{step * level}".join(lines)


def _step_of(text: str, top: Node) -> str:
    """How far this file goes in for each level; nothing where it is written in one line."""
    if not top.members:
        return "  "
    line = text.rfind("\n", 0, top.members[0].start)
    if line < 0:
        return ""
    between = text[line + 1 : top.members[0].start]
    return between if between and not between.strip() else "  "
