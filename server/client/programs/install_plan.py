"""What installing and uninstalling would do to a file: a new text, or why not. Nothing is written here."""

from __future__ import annotations

from collections.abc import Container, Mapping, Set
from itertools import chain, count
from pathlib import PurePath
from types import MappingProxyType
from typing import Any, Final, cast
from urllib.parse import urlsplit

import msgspec

from server.client.client_errors import ClientError
from server.client.programs.config_edit import Editor, UnreadableSettings
from server.client.programs.config_edit_json import JsonEditor
from server.client.programs.config_edit_toml import TomlEditor
from server.client.programs.config_edit_yaml import YamlEditor
from server.client.programs.installed_entries import Installed
from server.client.programs.program_table import Entry, Format, Program

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
    """The file as it is to be, and our records of it, oldest first."""

    text: str
    records: tuple[Installed, ...]
    replaces: str = ""  # the address that the entry of this name has now, if it is another one


class Undone(msgspec.Struct, frozen=True, kw_only=True):
    """The file without some entries of ours, and the records of those that are left, oldest first."""

    text: str
    left: tuple[Installed, ...]
    made_file: bool  # an entry that is gone had made the file, and none is left to say so


def to_install(
    program: Program, text: str, new: Installed, entry: Entry, *, records: Mapping[str, Installed]
) -> Plan | None:
    """Plan to put `entry` in; None where it is there already. Raises `UnreadableSettings`, `ForeignEntry`.

    `new` is completed with what was put, and what stood there.
    """
    editor = EDITORS[program.format]
    there = editor.read(text, program.key).get(new.name)
    if there is not None and holds(there, entry):
        return None
    replaces = ""
    if there is not None:
        address = address_of_ours(program, there, records.get(new.name))
        if address is None or (address != new.url and new.name not in records):
            raise ForeignEntry(
                f"there is another server called {new.name} in it already",
                hint="give it another name: --name",
            )
        replaces = "" if address == new.url else address
    undone = without(program, text, {new.name} if there is not None else set(), records)
    row, text = _put(
        editor,
        program,
        undone.text,
        msgspec.structs.replace(new, made_file=new.made_file or undone.made_file),
        entry,
    )
    return Plan(text=text, records=(*undone.left, row), replaces=replaces)


def without(program: Program, text: str, gone: Set[str], records: Mapping[str, Installed]) -> Undone:
    """Take `gone` out, so that the file is as if they had never been there; failing that, without these entries.

    Each entry was put into what the ones before it had left. So the later ones go first, and come back afterwards.
    Raises `UnreadableSettings`.
    """
    editor = EDITORS[program.format]
    there = editor.read(text, program.key)
    kept = {name: row for name, row in records.items() if name in there}
    first = next((index for index, name in enumerate(kept) if name in gone), len(kept))
    again: list[tuple[Installed, Entry]] = []
    for name, row in reversed(list(kept.items())[first:]):
        restored = _restored(editor, program, text, row)
        if restored is None and name in gone:
            restored = editor.drop(text, program.key, name).applied(text)
            _check(editor, program, text, restored, name, None)
        if restored is None:
            continue  # somebody wrote in it, and it stays where it is
        text = restored
        if name not in gone:
            again.append((row, there[name]))
            del kept[name]
    for name in sorted(gone - records.keys()):
        after = editor.drop(text, program.key, name).applied(text)
        _check(editor, program, text, after, name, None)
        text = after
    left = [row for name, row in kept.items() if name not in gone]
    for row, entry in reversed(again):
        back, text = _put(editor, program, text, row, entry)
        left.append(back)
    made_file = any(row.made_file for row in records.values())
    if left:
        left[0] = msgspec.structs.replace(left[0], made_file=made_file)
    return Undone(text=text, left=tuple(left), made_file=made_file and not left)


def holds(there: Entry, entry: Entry) -> bool:
    """Return whether the entry is there already, whatever its program or a person added to it."""
    return all(there.get(field) == value for field, value in entry.items())


def address_of_ours(program: Program, entry: Entry, record: Installed | None) -> str | None:
    """Return the address for which we would write this entry; None where it is not ours.

    With a record, an entry is ours if it is for the recorded address, whatever was added to it. Without one, it has to be
    exactly what we would write, or a bridge of ours, wherever the executable was then.
    """
    command, arguments = entry.get("command"), entry.get("args")
    found: str | None = None
    if isinstance(command, str) and isinstance(arguments, list):
        words = [word for word in cast("list[Any]", arguments) if isinstance(word, str)]
        ours = PurePath(command).name.startswith("ostiary") or "server" in words
        if ours and "connect" in words:
            found = next((word for word in reversed(words) if "://" in word), None)
    elif program.direct is not None:
        for value in entry.values():
            if isinstance(value, str) and "://" in value:
                wanted = dict(program.direct(value))
                if wanted == {field: entry.get(field) for field in (wanted if record else entry)}:
                    found = value
    return found if record is None or record.url == found else None


def free_name(base: str, url: str, taken: Container[str]) -> str:
    """Return `base`, or the first name after it that no server of the file has: with the port, then numbered."""
    port = urlsplit(url).port
    names = chain([base], [f"{base}-{port}"] if port else [], (f"{base}-{number}" for number in count(2)))
    return next(name for name in names if name not in taken)


def _put(editor: Editor, program: Program, text: str, row: Installed, entry: Entry) -> tuple[Installed, str]:
    change = editor.put(text, program.key, row.name, entry)
    after = change.applied(text)
    _check(editor, program, text, after, row.name, entry)
    return msgspec.structs.replace(row, put=change.new, replaced=text[change.start : change.end]), after


def _restored(editor: Editor, program: Program, text: str, row: Installed) -> str | None:
    """Return the text from before this entry; None where somebody wrote around it since."""
    if text.count(row.put) != 1:
        return None
    restored = text.replace(row.put, row.replaced)
    try:
        _check(editor, program, text, restored, row.name, None)
    except UnreadableSettings:
        return None
    return restored


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
