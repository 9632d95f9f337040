"""Servers in a YAML file. Only the plain shape is edited in which every program writes its own settings, top-level keys at the
margin and blocks below them; what the file means is read by the YAML reader, before and after. Anything else is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec

from server.client.programs.config_edit import TextEdit, UnreadableSettings, newline_of
from server.lib.yaml.flow_style import BadYaml
from server.lib.yaml.yaml_reader import read_yaml

_TOP: Final = re.compile(r"(?P<key>[A-Za-z_][\w.-]*|\"[^\"\\]*\"|'[^']*')[ \t]*:(?=[ \t]|$)(?P<rest>.*)")
_CHILD: Final = re.compile(r"(?P<key>[A-Za-z0-9_][\w.-]*|\"[^\"\\]*\"|'[^']*')[ \t]*:(?=[ \t]|$)")
_BEGINS: Final = re.compile(r"---[ \t]*([ \t]#.*)?")
_NOTHING: Final = re.compile(r"[ \t]*(#.*)?")
STEP: Final = "  "


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    start: int
    end: int  # with its line break
    text: str

    @property
    def indent(self) -> int:
        return len(self.text) - len(self.text.lstrip(" "))

    @property
    def says_nothing(self) -> bool:
        return _NOTHING.fullmatch(self.text) is not None


class _Table(msgspec.Struct, frozen=True, kw_only=True):
    header: _Line
    children: dict[str, tuple[int, int]]  # lines, from its key to its last word
    indent: int


@dataclass(frozen=True, kw_only=True, slots=True)
class YamlEditor:
    def read(self, text: str, key: str) -> Mapping[str, Mapping[str, Any]]:
        try:
            top = read_yaml(text)
        except BadYaml as error:
            raise UnreadableSettings(f"it is no YAML that can be read: {error}") from None
        table = _table(_lines(text), key)
        if top is not None and not isinstance(top, dict):
            raise UnreadableSettings("it is no table of settings")
        servers: Any = cast("dict[str, Any]", top or {}).get(key)
        found = cast("dict[str, Any]", servers) if isinstance(servers, dict) else {}
        if list(found) != list(table.children if table else ()):
            raise UnreadableSettings(f"its {key} is not written as a block")
        return {
            name: cast("dict[str, Any]", each) if isinstance(each, dict) else {}
            for name, each in found.items()
        }

    def put(self, text: str, key: str, name: str, entry: Mapping[str, Any]) -> TextEdit:
        lines, newline = _lines(text), newline_of(text)
        table = _table(lines, key)
        if table is None:
            glue = "" if not text or text.endswith("\n") else newline
            return TextEdit(
                start=len(text), end=len(text), new=glue + newline.join([*_block(key, name, entry), ""])
            )
        written = _entry(name, entry, " " * (table.indent or len(STEP)))
        if name in table.children:
            first, last = table.children[name]
            ended = lines[last - 1].end > lines[last - 1].start + len(lines[last - 1].text)
            new = newline.join(written) + (newline if ended else "")
            return TextEdit(start=lines[first].start, end=lines[last - 1].end, new=new)
        if not table.children:  # `mcp_servers: {}`, or with nothing behind it
            header = f"{key}:"
            new = newline.join([header, *written])
            end = table.header.start + len(table.header.text)
            return TextEdit(start=table.header.start, end=end, new=new)
        return TextEdit(start=table.header.end, end=table.header.end, new=newline.join(written) + newline)

    def drop(self, text: str, key: str, name: str) -> TextEdit:
        lines = _lines(text)
        table = _table(lines, key)
        if table is None or name not in table.children:
            raise UnreadableSettings(f"there is no {name} in it")
        first, last = table.children[name]
        if len(table.children) == 1:  # an empty block would be no table any more
            end = lines[last - 1].start + len(lines[last - 1].text)
            header_end = table.header.start + len(table.header.text)
            between = text[header_end : lines[first].start]
            return TextEdit(start=table.header.start, end=end, new=f"{key}: {{}}{between.rstrip()}")
        return TextEdit(start=lines[first].start, end=lines[last - 1].end, new="")

    def alone(self, key: str, name: str, entry: Mapping[str, Any]) -> str:
        return "\n".join(_block(key, name, entry)) + "\n"


def _block(key: str, name: str, entry: Mapping[str, Any]) -> list[str]:
    return [f"{key}:", *_entry(name, entry, STEP)]


def _entry(name: str, entry: Mapping[str, Any], indent: str) -> list[str]:
    # JSON's strings and lists of strings are YAML's as well, and what they mean needs no thought.
    fields = [f"{indent}{STEP}{field}: {_scalar(value)}" for field, value in entry.items()]
    return [f"{indent}{name}:", *fields]


def _scalar(value: Any) -> str:
    plain = isinstance(value, str) and re.fullmatch(r"[a-z]+", value) and value not in _WORDS
    return str(value) if plain else json.dumps(value, ensure_ascii=False)


# What YAML 1.1 takes for something else than a text.
_WORDS: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})


def _lines(text: str) -> list[_Line]:
    """The lines of a plain file. Raises `UnreadableSettings` for what is none."""
    found: list[_Line] = []
    start = 0
    for raw in text.splitlines(keepends=True):
        found.append(_Line(start=start, end=start + len(raw), text=raw.rstrip("\r\n")))
        start += len(raw)
    for number, line in enumerate(found, 1):
        if "\t" in line.text[: len(line.text) - len(line.text.lstrip())]:
            raise UnreadableSettings(f"line {number} is indented with a tab")
        if line.indent or line.says_nothing or line.text.startswith("- "):
            continue
        if _BEGINS.fullmatch(line.text) and all(each.says_nothing for each in found[: number - 1]):
            continue
        if _TOP.fullmatch(line.text) is None:
            # A document mark, a list, braces, or the rest of a text that went over a line.
            raise UnreadableSettings(f"line {number} is not written as key: value")
    return found


def _table(lines: list[_Line], key: str) -> _Table | None:
    tops = [
        (index, found)
        for index, line in enumerate(lines)
        if not line.indent and (found := _TOP.fullmatch(line.text)) and found["key"].strip("\"'") == key
    ]
    if not tops:
        return None
    if len(tops) > 1:
        raise UnreadableSettings(f"it has {key} twice")
    index, found = tops[0]
    rest = found["rest"].partition(" #")[0].strip()
    body = _body(lines, index + 1, 0)
    said = [number for number in body if not lines[number].says_nothing]
    following = lines[index + 1 + len(body) :]
    a_list = bool(following) and following[0].text.startswith("-")
    if rest not in ("", "{}") or (rest == "{}" and said) or (not said and a_list):
        raise UnreadableSettings(f"its {key} is not written as a block")
    children: dict[str, tuple[int, int]] = {}
    indent = next((lines[number].indent for number in body if not lines[number].says_nothing), 0)
    for number in body:
        line = lines[number]
        if line.says_nothing or line.indent > indent:
            continue
        child = _CHILD.match(line.text, indent) if line.indent == indent else None
        if child is None:
            raise UnreadableSettings(f"line {number + 1}, below {key}, is not written as a block")
        if (name := child["key"].strip("\"'")) in children:
            raise UnreadableSettings(f"it has {name} twice")
        below = _body(lines, number + 1, indent)
        children[name] = (
            number,
            1 + max([number, *(each for each in below if not lines[each].says_nothing)]),
        )
    return _Table(header=lines[index], children=children, indent=indent)


def _body(lines: list[_Line], start: int, indent: int) -> list[int]:
    """The lines below one that stands `indent` in, up to the next that does not."""
    found: list[int] = []
    for number in range(start, len(lines)):
        if not lines[number].says_nothing and lines[number].indent <= indent:
            break
        found.append(number)
    return found
