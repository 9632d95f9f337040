"""A server in a TOML file: a table of its own at the end, or where it was. Every change is checked by reading both texts."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from server.client.programs.config_edit import TextEdit, UnreadableSettings, newline_of
from server.lib.shortened import short_reason

_HEADER: Final = re.compile(r"^[ \t]*\[.*$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True, slots=True)
class TomlEditor:
    def read(self, text: str, key: str) -> Mapping[str, Mapping[str, Any]]:
        table = _read(text).get(key, {})
        if not isinstance(table, dict):
            raise UnreadableSettings(f"its {key} is no table")
        found = cast("dict[str, Any]", table)
        return {name: cast("dict[str, Any]", each) for name, each in found.items() if isinstance(each, dict)}

    def put(self, text: str, key: str, name: str, entry: Mapping[str, Any]) -> TextEdit:
        newline = newline_of(text)
        block = self.alone(key, name, entry).replace("\n", newline)
        if name not in self.read(text, key):
            glue = "" if not text.strip() else newline if text.endswith("\n") else newline * 2
            change = TextEdit(start=len(text), end=len(text), new=glue + block)
            return _first_good([change], text, key, name, dict(entry))
        changes: list[TextEdit] = []
        for start, end in _places(text, key, name):
            kept = text[start:end]
            # The empty lines after it belong to what follows.
            changes.append(TextEdit(start=start, end=end, new=block.rstrip() + kept[len(kept.rstrip()) :]))
        return _first_good(changes, text, key, name, dict(entry))

    def drop(self, text: str, key: str, name: str) -> TextEdit:
        changes = [TextEdit(start=start, end=end, new="") for start, end in _places(text, key, name)]
        return _first_good(changes, text, key, name, None)

    def alone(self, key: str, name: str, entry: Mapping[str, Any]) -> str:
        lines = [f"[{key}.{name}]", *(f"{field} = {_value(value)}" for field, value in entry.items())]
        return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value).items()
        return "{ " + ", ".join(f"{field} = {_value(each)}" for field, each in fields) + " }"
    # A JSON string or list of strings is a TOML one as well.
    return json.dumps(value, ensure_ascii=False)


def _read(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UnreadableSettings(f"it is no TOML: {short_reason(error)}") from None


def _places(text: str, key: str, name: str) -> list[tuple[int, int]]:
    """Wherever something looks like this table with those below it. A text of several lines may look so, too: that is
    found out by `_first_good`."""
    ours = re.compile(
        rf"""[ \t]*\[[ \t]*(?:{re.escape(key)}|"{re.escape(key)}")[ \t]*\.[ \t]*"""
        rf"""(?:{re.escape(name)}|"{re.escape(name)}")(?:[ \t]*\.[^\]]*)?[ \t]*\]""",
    )
    headers = list(_HEADER.finditer(text))
    runs: list[list[int]] = []  # where the tables begin that stand together, and where they end
    for header, following in zip(headers, [*headers[1:], None], strict=True):
        if ours.match(text, header.start()) is None:
            continue
        end = following.start() if following is not None else len(text)
        if runs and runs[-1][-1] == header.start():
            runs[-1].append(end)
        else:
            runs.append([header.start(), end])
    return [(start, run[-1]) for run in runs for start in run[:-1]]


def _first_good(
    changes: list[TextEdit], text: str, key: str, name: str, entry: dict[str, Any] | None
) -> TextEdit:
    """The first after which nothing but this one server is different."""
    wanted = _read(text)
    table = dict(cast("dict[str, Any]", wanted.get(key, {})))
    table.pop(name, None)
    if entry is not None:
        table[name] = entry
    expected = {**wanted, key: table}
    without_table = {each: value for each, value in wanted.items() if each != key}
    for change in changes:
        try:
            made = tomllib.loads(change.applied(text))
        except tomllib.TOMLDecodeError:
            continue
        if made == expected or (not table and made == without_table):
            return change
    raise UnreadableSettings("it is written in a way in which nothing can be changed safely")
