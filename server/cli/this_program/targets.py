"""The one server that `ostiary serve TARGET` serves without any settings, with the agents that TARGET is or names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from shlex import join, quote
from shutil import which
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from server.cli import terminal
from server.cli.this_program.mcp_servers_file import named_servers, table_of

if TYPE_CHECKING:
    from server.agents.mcp.mcp_settings import Prefix, Share
    from server.cli.this_program.python_servers import WrittenServer
    from server.settings.setting_shapes import ServerConfig

# As much of an agent's own rules as clients are told at once.
INSTRUCTIONS: Final = 8_000
TITLE: Final = 100
PREFIX_FOR: Final = "--prefix goes with a file of mcpServers"
PREFIX_HINT: Final = 'ostiary serve --prefix "on collision" .mcp.json'
JAVASCRIPT: Final = frozenset({".js", ".mjs", ".cjs"})


Era: TypeAlias = Literal["auto", "stateless", "handshake"]


class Target(NamedTuple):
    server: ServerConfig
    line: str = ""  # for people and programs that look for it on stderr
    max_body_kib: int | None = None  # where more has to fit into a line than usual
    file: Path | None = None  # the servers' own settings, which no program that is started may open


def what_to_serve(
    target: str | None,
    upstream: str | None,
    command: tuple[str, ...],
    variables: tuple[str, ...],
    era: Era | None = None,
    prefix: Prefix | None = None,
    share: Share | None = None,
) -> Target | None:
    """Return what the command line alone says, or None where the settings say it. Raises `CliError`."""
    written = _server_in(target)
    if variables and not command and written is None:
        raise terminal.Misuse("--env goes with a command", hint="ostiary serve --env API_KEY -- COMMAND …")
    if era is not None and not command and upstream is None and written is None:
        raise terminal.Misuse(
            "--era goes with a command or --upstream", hint="ostiary serve --era handshake -- COMMAND …"
        )
    table = _table_in(target)
    if share is not None and not command and written is None and table is None:
        raise terminal.Misuse("--share goes with a command", hint="ostiary serve --share all -- COMMAND …")
    said = [
        name
        for name, given in (("TARGET", target), ("--upstream", upstream), ("a command", command))
        if given
    ]
    if len(said) > 1:
        raise terminal.Misuse(
            f"{' and '.join(said)} are {'two' if len(said) == 2 else 'three'} servers",
            hint="several are for ostiary.toml",
        )
    if written is not None and prefix is None:
        from server.cli.this_program.python_servers import command_of

        started = command_of(written)
        behind = _behind(None, started, variables, era or "auto", share or "caller")
        return behind._replace(
            line=f"{target}: a server of its own, started as {terminal.clean(join(started))}"
        )
    if target is not None:
        if table is not None:
            return _of_program(Path(target), table, prefix or "always", share or "caller")
        return _target_of(target, prefix)
    if prefix is not None:
        raise terminal.Misuse(PREFIX_FOR, hint=PREFIX_HINT)
    return _behind(upstream, command, variables, era or "auto", share or "caller") if said else None


def _behind(
    upstream: str | None, command: tuple[str, ...], variables: tuple[str, ...], era: Era, share: Share
) -> Target:
    from server.agents.mcp.mcp_settings import McpConfig, problems
    from server.settings.setting_shapes import ServerConfig

    if command and which(command[0]) is None:
        raise terminal.Misuse(
            f"there is no program {terminal.clean(command[0])}",
            hint="give its path, if it is not in one of the folders of your PATH",
        )
    # Whoever named it here means it: it is believed what it says first.
    agent = McpConfig(
        url=upstream or "", command=command, env=variables, era=era, share=share, trust="first-use"
    )
    if found := problems(agent):
        key, what = found[0]
        named = {"url": "--upstream", "env": "--env"}.get(key, "the command")
        raise terminal.Misuse(f"{named} {what}")
    return Target(ServerConfig(name="main", agents=(agent,)))


def _target_of(written: str, prefix: Prefix | None) -> Target:
    path = Path(written)
    if prefix is not None:
        raise terminal.Misuse(PREFIX_FOR, hint=PREFIX_HINT)
    if path.suffix.lower() == ".py":
        return _python(path)
    if path.suffix.lower() == ".3md" or path.is_dir():
        return _skills(written)
    if path.suffix.lower() == ".json":
        return _mock(path)
    raise terminal.Misuse(f"{written} is nothing that can be served by itself", hint=_what_was_meant(path))


def _table_in(target: str | None) -> Mapping[str, Any] | None:
    return table_of(Path(target)) if target is not None and target.lower().endswith(".json") else None


def _of_program(path: Path, table: Mapping[str, Any], prefix: Prefix, share: Share) -> Target:
    from server.settings.setting_shapes import ServerConfig

    named = named_servers(path, table, os.environ, prefix, share)
    line = f"{path}: serving {', '.join(agent.id or agent.place for agent in named.agents)}"
    if named.left_out:
        line += f"; switched off there: {', '.join(map(terminal.clean, named.left_out))}"
    return Target(ServerConfig(name="main", agents=named.agents), line, file=path.expanduser().absolute())


def _what_was_meant(path: Path) -> str:
    """Return the line to type for somebody who left out a word."""
    written = str(path)
    if written.startswith(("http:/", "https:/")):
        return f"ostiary serve --upstream {quote(written.replace(':/', '://', 1))}"
    if path.suffix in JAVASCRIPT:
        return f"ostiary serve -- node {quote(written)}"
    if which(written) is not None:
        return f"ostiary serve -- {quote(written)} …"
    return (
        "a Python file, a .3md document, a folder of SKILL.md files, a mock (.json), or a file with mcpServers;"
        " a program comes after --"
    )


def _skills(written: str) -> Target:
    from server.agents.skills.skills_agent import LINE_KIB, SkillsConfig
    from server.agents.skills.skills_source import CannotOpenSkills, open_skills
    from server.settings.setting_shapes import ServerConfig

    try:
        opened = open_skills(Path(written))
    except CannotOpenSkills as problem:
        raise terminal.CliError(str(problem), hint=f"ostiary skills check {quote(written)}") from None
    book = opened.book
    server = ServerConfig(
        name="main",
        title=book.name[:TITLE],
        instructions=book.identity[:INSTRUCTIONS],
        agents=(SkillsConfig(path=str(opened.path)),),
    )
    line = f"[agent-3md mcp] {book.name}: {len(book.skills)} skills from {opened.path}"
    return Target(server, line, LINE_KIB)


def _python(path: Path) -> Target:
    from server.settings.setting_shapes import ServerConfig
    from server.settings.settings_reader import agent_shape

    if not path.expanduser().is_file():
        raise terminal.CliError(
            f"there is no file {path}", hint="`ostiary serve` by itself serves a demo agent"
        )
    agent = agent_shape("python")(file=str(path.expanduser().absolute()))
    return Target(ServerConfig(name="main", title=path.stem[:TITLE], agents=(agent,)))


def _server_in(target: str | None) -> WrittenServer | None:
    """Return the file as a server of another library, if it is one."""
    path = None if target is None else Path(target).expanduser()
    if path is None or path.suffix.lower() != ".py":
        return None
    from server.cli.this_program.python_servers import read_server

    return read_server(path)


def _mock(path: Path) -> Target:
    from server.agents.mock.mock_agent import MockConfig
    from server.settings.setting_shapes import ServerConfig

    file = path.expanduser().absolute()
    name = _read_mock(file).name
    return Target(ServerConfig(name="main", title=name[:TITLE], agents=(MockConfig(file=str(file)),)))


def mocked(server: ServerConfig, files: tuple[str, ...]) -> ServerConfig:
    """Return the server with the tools that these mocks have switched to them. Raises `CliError`."""
    from msgspec.structs import replace

    from server.settings.policy_settings import ToolConfig

    tools = dict(server.tools)
    for file in files:
        path = Path(file).expanduser().absolute()
        for tool in _read_mock(path).tools:
            if tool.enabled:
                tools[tool.name] = replace(tools.get(tool.name, ToolConfig()), mock=str(path))
    return replace(server, tools=tools)


def _read_mock(path: Path) -> Any:
    from server.agents.mock.mock_document import BadMock, read_mock

    try:
        return read_mock(path)
    except BadMock as problem:
        hint = "ostiary import URL --out FILE makes a mock of a server that runs"
        if "`openapi`" in str(problem) or "`swagger`" in str(problem):
            hint = 'an OpenAPI document is served by kind = "openapi" in ostiary.toml'
        raise terminal.CliError(str(problem), hint=hint) from None
