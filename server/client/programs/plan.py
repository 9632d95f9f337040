"""What installing and uninstalling would do to a file: a new text, or why not. Nothing is written here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from types import MappingProxyType
from typing import Any, Final, cast

import msgspec

from server.client.errors import ClientError
from server.client.programs.edit import Editor, UnreadableSettings
from server.client.programs.edit_json import JsonEditor
from server.client.programs.edit_toml import TomlEditor
from server.client.programs.edit_yaml import YamlEditor
from server.client.programs.ledger import Installed
from server.client.programs.table import Entry, Format, Program

EDITORS: Final[Mapping[Format, Editor]] = MappingProxyType(
    {
        "json": JsonEditor(comments=False),
        "jsonc": JsonEditor(comments=True),
        "toml": TomlEditor(),
        "yaml": YamlEditor(),
    }
)


class ForeignEntry(ClientError):
    """There is a server of that name that we did not put there."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    text: str  # the whole file as it is to be
    put: str = ""
    replaced: str = ""


def to_install(
    program: Program, text: str, name: str, entry: Entry, *, before: Installed | None
) -> Plan | None:
    """None where it is there already. Raises `UnreadableSettings`, `ForeignEntry`."""
    editor = EDITORS[program.format]
    there = editor.read(text, program.key).get(name)
    if there is not None:
        if all(there.get(field) == value for field, value in entry.items()):
            return None  # whatever its program or a person added
        if before is None and not looks_like_ours(program, there):
            raise ForeignEntry(
                f"there is another server called {name} in it already", hint="give it another name: --name"
            )
        text = without(program, text, name, before).text
    change = editor.put(text, program.key, name, entry)
    plan = Plan(text=change.applied(text), put=change.new, replaced=text[change.start : change.end])
    _check(editor, program, text, plan.text, name, entry)
    return plan


def without(program: Program, text: str, name: str, before: Installed | None) -> Plan:
    """The file as if we had never been there; failing that, without our entry. Raises `UnreadableSettings`."""
    editor = EDITORS[program.format]
    if before is not None and text.count(before.put) == 1:
        restored = text.replace(before.put, before.replaced)
        try:
            _check(editor, program, text, restored, name, None)
        except UnreadableSettings:
            pass  # somebody wrote around it: then only ours goes
        else:
            return Plan(text=restored)
    plan = Plan(text=editor.drop(text, program.key, name).applied(text))
    _check(editor, program, text, plan.text, name, None)
    return plan


def looks_like_ours(program: Program, entry: Mapping[str, Any]) -> bool:
    """Exactly what we would write for its address, or a bridge of ours, wherever the executable was then."""
    command, arguments = entry.get("command"), entry.get("args")
    if isinstance(command, str) and isinstance(arguments, list):
        words = cast("list[Any]", arguments)
        ours = PurePath(command).name.startswith("ostiary") or "server" in words
        return ours and "connect" in words
    if program.direct is None:
        return False
    return any(
        isinstance(value, str) and "://" in value and dict(program.direct(value)) == dict(entry)
        for value in entry.values()
    )


def _check(editor: Editor, program: Program, before: str, after: str, name: str, entry: Entry | None) -> None:
    """Every other server must be what it was."""
    wanted = {each: value for each, value in editor.read(before, program.key).items() if each != name}
    if entry is not None:
        wanted[name] = entry
    made = editor.read(after, program.key)
    if {each: dict(value) for each, value in made.items()} != {
        each: dict(value) for each, value in wanted.items()
    }:
        raise UnreadableSettings("it is written in a way in which nothing can be changed safely")
