"""The MCP servers that a program's own file names (`.mcp.json`, those of Claude, Cursor and VS Code), as agents of one server."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from server.cli import terminal

if TYPE_CHECKING:
    from server.agents.mcp.mcp_settings import McpConfig, Prefix, Share

# The table of servers: `servers` is VS Code's word.
TABLES: Final = ("mcpServers", "servers")
# The address of a server: Gemini's word comes first, because its `url` means the transport of 2024.
ADDRESSES: Final = ("httpUrl", "url", "serverUrl")
SWITCHES_OFF: Final = {"disabled": True, "enabled": False}
IDENTIFIER_CHARACTERS: Final = 32
FILE_BYTES: Final = 16 * 1024 * 1024  # some programs keep more than servers in theirs

# `${NAME}` and `${NAME:-default}` of Claude Code, `${env:NAME}` of Cursor and VS Code.
_VARIABLE: Final = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_OTHER_VARIABLE: Final = re.compile(r"\$\{[^}]*\}")


class NamedServers(NamedTuple):
    agents: tuple[McpConfig, ...]
    left_out: tuple[str, ...]  # the names of servers that are switched off


def table_of(path: Path) -> Mapping[str, Any] | None:
    """Return the table of servers in a JSON file, or None if there is none or no such file."""
    from server.client.programs.config_edit import UnreadableSettings
    from server.client.programs.json_tree import parse

    try:
        with path.expanduser().open("rb") as file:
            whole = parse(file.read(FILE_BYTES).decode("utf-8-sig"), comments=True).value
    except (OSError, ValueError, UnreadableSettings):
        return None
    tables = (cast("dict[str, Any]", whole).get(key) for key in TABLES) if isinstance(whole, dict) else ()
    return next((cast("dict[str, Any]", table) for table in tables if isinstance(table, dict)), None)


def named_servers(
    path: Path,
    table: Mapping[str, Any],
    environ: Mapping[str, str],
    prefix: Prefix = "always",
    share: Share = "caller",
) -> NamedServers:
    """Return what the table names; a server that stands alone keeps the names of its tools. Raises `CliError`."""
    served = {name: entry for name, entry in table.items() if not _switched_off(entry)}
    if not served:
        raise terminal.CliError(f"{path} names no server that is switched on")
    identifiers = [""] if len(served) == 1 else _identifiers(served)
    agents = tuple(
        _agent(
            f"{path}: {terminal.clean(name)}",
            entry,
            identifier,
            environ,
            prefix if identifier else "always",
            share,
        )
        for (name, entry), identifier in zip(served.items(), identifiers, strict=True)
    )
    return NamedServers(agents, tuple(name for name in table if name not in served))


def _switched_off(entry: object) -> bool:
    return isinstance(entry, dict) and any(
        cast("dict[str, Any]", entry).get(key) is off for key, off in SWITCHES_OFF.items()
    )


def _identifiers(names: Mapping[str, Any]) -> Iterator[str]:
    """Make an id of each name: in lower case, other characters as dashes, numbered where two would be the same."""
    taken: set[str] = set()
    for name in names:
        first = re.sub(r"[^a-z0-9_]+", "-", name.lower()).strip("-_")[:IDENTIFIER_CHARACTERS] or "server"
        identifier, number = first, 2
        while identifier in taken:
            ending = f"-{number}"
            identifier, number = first[: IDENTIFIER_CHARACTERS - len(ending)] + ending, number + 1
        taken.add(identifier)
        yield identifier


def _agent(
    where: str,
    entry: object,
    identifier: str,
    environ: Mapping[str, str],
    prefix: Prefix,
    share: Share,
) -> McpConfig:
    from server.agents.mcp.mcp_settings import McpConfig, problems

    reader = _EntryReader(where, entry, environ)
    command = reader.text("command")
    agent = McpConfig(
        command=(command, *reader.texts("args")) if command else (),
        env=reader.table("env") if command else {},
        working_dir=reader.text("cwd") if command else "",
        url="" if command else reader.address(),
        headers={} if command else reader.table("headers"),
        id=identifier,
        prefix=prefix,
        share=share if command else "caller",
        # Whoever names the file means what is in it: it is believed what it says first.
        trust="first-use",
    )
    for key, what in problems(agent):
        raise terminal.CliError(f"{where}: {key} {what}")
    return agent


class _EntryReader:
    """The reader of one entry's values, with the variables in them replaced."""

    def __init__(self, where: str, entry: object, environ: Mapping[str, str]) -> None:
        if not isinstance(entry, dict):
            raise terminal.CliError(f"{where} is no table")
        self._where = where
        self._entry = cast("dict[str, Any]", entry)
        self._environ = environ

    def address(self) -> str:
        return next((found for key in ADDRESSES if (found := self.text(key))), "")

    def text(self, key: str) -> str:
        return self._value(key, self._entry.get(key) or "")

    def texts(self, key: str) -> tuple[str, ...]:
        found: object = self._entry.get(key) or []
        if not isinstance(found, list):
            raise self._wrong(key, "is no list")
        return tuple(self._value(key, each) for each in cast("list[object]", found))

    def table(self, key: str) -> dict[str, str]:
        found: object = self._entry.get(key) or {}
        if not isinstance(found, dict):
            raise self._wrong(key, "is no table")
        read = {
            name: self._value(f"{key}.{name}", value) for name, value in cast("dict[str, Any]", found).items()
        }
        for name, value in read.items():
            if value.startswith(("env:", "file:")):
                raise self._wrong(
                    f"{key}.{name}",
                    "begins like a reference to a secret, which ostiary would follow",
                    "write this server in ostiary.toml, with the value in a file or a variable",
                )
        return read

    def _value(self, key: str, value: object) -> str:
        if not isinstance(value, str):
            raise self._wrong(key, "is no text")

        def replaced(found: re.Match[str]) -> str:
            name, default = found.groups()
            there = self._environ.get(name) or default
            if there is None:
                raise self._wrong(key, f"names the variable {name}, which is not set", f"export {name}=…")
            return there

        if unknown := _OTHER_VARIABLE.search(_VARIABLE.sub("", value)):
            asked = terminal.clean(unknown[0])
            raise self._wrong(key, f"holds {asked}, which only its own program can fill in")
        return _VARIABLE.sub(replaced, value)

    def _wrong(self, key: str, what: str, hint: str | None = None) -> terminal.CliError:
        return terminal.CliError(f"{self._where}: {terminal.clean(key)} {what}", hint=hint)
