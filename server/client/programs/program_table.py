"""One row for each program: its files, the key that holds its servers, and how it writes one down.

The rest follows from what a program speaks: over HTTP with a login of its own it is given the address; one that only starts
local programs is given `ostiary connect`, which is the bridge. No row has a place for a secret.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import quote, urlencode

import msgspec

Format: TypeAlias = Literal["json", "jsonc", "toml", "yaml"]
Entry: TypeAlias = Mapping[str, Any]


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """The facts on which the place of a file depends."""

    home: Path
    platform: str  # sys.platform
    environ: Mapping[str, str]

    @property
    def settings(self) -> Path:
        """The folder where desktop programs keep their settings."""
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support"
        base = self.environ.get("XDG_CONFIG_HOME", "")
        return Path(base) if os.path.isabs(base) else self.home / ".config"

    def chosen(self, variable: str, *otherwise: str) -> Path:
        """Return a directory that a variable of the program moves elsewhere."""
        base = self.environ.get(variable, "")
        return Path(base) if os.path.isabs(base) else self.home.joinpath(*otherwise)


def _command(program: str, arguments: list[str]) -> Entry:
    return {"command": program, "args": arguments}


class Program(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    format: Format = "jsonc"
    key: str = "mcpServers"  # of the table of servers, at the top of the file
    user_file: Callable[[Surroundings], Path]
    project_file: str | None = None  # from the top of a project; None: it has no such thing
    direct: Callable[[str], Entry] | None  # None: it speaks stdio only
    bridge: Callable[[str, list[str]], Entry] = _command
    then: str  # what to do in the program before the server is there
    log_in: str | None = None  # how it is told to log in, where it does not ask by itself
    add: str | None = None  # typed by who has no `ostiary`: a command of its own, which writes the same file
    link: Callable[[str, Entry], str] | None = None  # an address that opens it, with the entry in it


def _typed_command(program: str, arguments: list[str]) -> Entry:
    return {"type": "stdio", "command": program, "args": arguments}


def _cursor_link(name: str, entry: Entry) -> str:
    config = base64.b64encode(json.dumps(entry, separators=(",", ":")).encode()).decode()
    return f"cursor://anysphere.cursor-deeplink/mcp/install?{urlencode({'name': name, 'config': config})}"


def _vscode_link(name: str, entry: Entry) -> str:
    return f"vscode:mcp/install?{quote(json.dumps({'name': name, **entry}, separators=(',', ':')), safe='')}"


PROGRAMS: Final[Mapping[str, Program]] = MappingProxyType(
    {
        "claude-code": Program(
            title="Claude Code",
            format="json",
            user_file=lambda where: where.chosen("CLAUDE_CONFIG_DIR") / ".claude.json",
            project_file=".mcp.json",
            direct=lambda url: {"type": "http", "url": url},
            bridge=_typed_command,
            then="start claude anew",
            log_in="claude mcp login {name}",
            add="claude mcp add --transport http --scope user {name} {url}",
        ),
        "claude-desktop": Program(
            title="Claude Desktop",
            format="json",
            user_file=lambda where: where.settings / "Claude" / "claude_desktop_config.json",
            direct=None,
            then="quit Claude Desktop and start it anew",
        ),
        "cursor": Program(
            title="Cursor",
            user_file=lambda where: where.home / ".cursor" / "mcp.json",
            project_file=".cursor/mcp.json",
            direct=lambda url: {"url": url},
            then="start Cursor anew, and switch the server on in its settings",
            link=_cursor_link,
        ),
        "vscode": Program(
            title="VS Code",
            key="servers",
            user_file=lambda where: where.settings / "Code" / "User" / "mcp.json",
            project_file=".vscode/mcp.json",
            direct=lambda url: {"type": "http", "url": url},
            bridge=_typed_command,
            then="run “MCP: List Servers” in VS Code and start it",
            link=_vscode_link,
        ),
        "codex": Program(
            title="Codex",
            format="toml",
            key="mcp_servers",
            user_file=lambda where: where.chosen("CODEX_HOME", ".codex") / "config.toml",
            project_file=".codex/config.toml",
            direct=lambda url: {"url": url},
            then="start codex anew",
            log_in="codex mcp login {name}",
            add="codex mcp add {name} --url {url}",
        ),
        "gemini": Program(
            title="Gemini CLI",
            user_file=lambda where: where.chosen("GEMINI_CLI_HOME") / ".gemini" / "settings.json",
            project_file=".gemini/settings.json",
            # Its `url` is the transport of 2024; a login is begun only where it is switched on.
            direct=lambda url: {"httpUrl": url, "oauth": {"enabled": True}},
            then="start gemini anew",
            log_in="/mcp auth {name}, in gemini",
            add="gemini mcp add --scope user --transport http {name} {url}",
        ),
        "windsurf": Program(
            title="Windsurf",
            user_file=lambda where: where.home / ".codeium" / "windsurf" / "mcp_config.json",
            direct=lambda url: {"serverUrl": url},
            then="refresh the MCP servers in Windsurf",
        ),
        "hermes": Program(
            title="Hermes",
            format="yaml",
            key="mcp_servers",
            user_file=lambda where: where.chosen("HERMES_HOME", ".hermes") / "config.yaml",
            direct=lambda url: {"url": url, "auth": "oauth"},
            then="start hermes anew",
            log_in="hermes mcp login {name}",
        ),
    }
)
