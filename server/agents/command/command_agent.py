"""`kind = "command"`: tools that are commands. A call starts the program with words made of its arguments, and what the program prints
is the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from server.agents.base.agent_turns import SharedPlaces
from server.agents.base.backend import ToolCall, Trouble
from server.agents.base.short_schema import read_schema, with_defaults
from server.agents.command.agent_program import (
    EnvironmentSetting,
    FolderSetting,
    Programs,
    Words,
    program_problems,
)
from server.agents.command.command_words import ArgvTemplate, UnfitArgument, Word, read_word
from server.agents.command.program_run import ProgramEnd, run_to_end
from server.agents.command.program_tool import MOST_TOOLS, ToolSettings, describe, tool_faults, tools_problems
from server.agents.command.resource_limits import ProcessBounds
from server.agents.python.offer import LONGEST_SECONDS
from server.lib.log.logger import Logger
from server.mcp.call_failures import BackendError
from server.mcp.call_outlet import Outlet
from server.mcp.messages import TextContent, Tool
from server.mcp.result_encoding import ToolResult
from server.mcp.schema import ToolSchema


class CommandTool(ToolSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[server.agent.tool]]` of a command."""

    run: Words = ()
    stdin: Annotated[str, Meta(max_length=65536, description='"json", or a text such as "{text}"')] = ""
    stdout: Annotated[Literal["text", "json"], Meta(description='"text" or "json"')] = "text"
    success: Annotated[
        tuple[Annotated[int, Meta(ge=0, le=255)], ...],
        Meta(min_length=1, max_length=256, description="a list of exit statuses, e.g. [0, 1]"),
    ] = (0,)
    show_stderr: Annotated[bool, Meta(description="true or false")] = False
    allow_dashes: Annotated[bool, Meta(description="true or false")] = False


class CommandConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[server.agent]]` with `kind = "command"`."""

    tool: Annotated[
        tuple[CommandTool, ...],
        Meta(max_length=MOST_TOOLS, description="[[server.agent.tool]] tables with name and run"),
    ] = ()
    cwd: FolderSetting = ""
    environment: EnvironmentSetting = ()
    unconfined: Annotated[bool, Meta(description="true or false")] = False
    limits: Annotated[ProcessBounds, Meta(description="a table, e.g. { cpu_seconds = 10 }")] = ProcessBounds()
    output_kib: Annotated[int, Meta(ge=1, le=8192, description="KiB from 1 to 8192")] = 1024
    deadline_seconds: Annotated[float, Meta(gt=0, le=LONGEST_SECONDS, description="seconds up to 86400")] = (
        60.0
    )
    calls_at_once: Annotated[int, Meta(ge=1, le=1000, description="a number from 1 to 1000")] = 8

    def __repr__(self) -> str:  # the environment may hold a value that should have been a reference
        return f"{type(self).__name__}({', '.join(tool.name for tool in self.tool)})"


def problems(config: CommandConfig) -> list[tuple[str, str]]:
    """(key, what is wrong and what to write) for each rule that types cannot hold."""
    found = program_problems(config)
    if not config.tool:
        found.append(("tool", "is missing; write [[server.agent.tool]] with name and run"))
    return [*found, *tools_problems(config.tool, _faults)]


def _faults(tool: CommandTool) -> list[tuple[str, str]]:
    faults = tool_faults(tool)
    if tool.output and tool.stdout != "json":
        faults.append(("output", 'describes JSON; set stdout = "json", or leave it out'))
    if tool.task == "by_hand":
        faults.append(("task", 'cannot be "by_hand", for a command says nothing meanwhile; write "optional"'))
    template: ArgvTemplate | None = None
    stdin: Word | None = None
    try:
        stdin = read_word(tool.stdin)
    except ValueError as error:
        faults.append(("stdin", str(error)))
    try:
        fed = tool.stdin == "json" or (stdin is not None and bool(stdin.names))
        template = ArgvTemplate(tool.run, allow_dashes=tool.allow_dashes, fed=fed)
    except ValueError as error:
        faults.append(("run", str(error)))
    if faults or template is None or stdin is None:
        return faults
    schema = read_schema(tool.input)
    properties: Mapping[str, Any] = schema.get("properties") or {}
    certain = {*schema.get("required", ())} | {
        name for name, own in properties.items() if isinstance(own, Mapping) and "default" in own
    }
    for key, names in (("run", template.names), ("stdin", frozenset(stdin.names))):
        if unknown := sorted(names - properties.keys()):
            faults.append((key, f"has {{{unknown[0]}}}, which is no argument; describe it in input"))
    if missing := sorted(template.needed & properties.keys() - certain):
        what = f"has {{{missing[0]}}}, which callers may leave out; put it in a list of its own with its flag"
        faults.append(("run", what))
    return faults


class _Command:
    """A tool, ready to be called. Raises `ValueError` where its program is not there."""

    def __init__(self, tool: CommandTool, programs: Programs) -> None:
        self.settings = tool
        self.tool = describe(tool)
        self.schema = ToolSchema(self.tool)
        self._template = ArgvTemplate(tool.run, allow_dashes=tool.allow_dashes)
        self._program = programs.find(self._template.program)
        self._stdin = None if tool.stdin in ("", "json") else read_word(tool.stdin)

    @property
    def listens(self) -> bool:
        return self.settings.stdin != ""

    def filled(self, arguments: Mapping[str, Any]) -> tuple[Sequence[str | bytes], bytes]:
        """Its words, and what it reads. Raises `UnfitArgument`."""
        values = with_defaults(self.tool.input_schema, arguments)
        words = self._template.filled(self._program, values)
        if self.settings.stdin == "json":
            return words, msgspec.json.encode(dict(values)) + b"\n"
        text = "" if self._stdin is None else self._stdin.filled(values) or ""
        return words, text.encode("utf-8", "replace")


class CommandBackend:
    """A `Backend`, `HasDeadlines` and `Watched`."""

    def __init__(
        self, config: CommandConfig, *, environment: Mapping[str, str], name: str, log: Logger
    ) -> None:
        """`environment` is what the programs get to see (`child_environment.child_environment`), `name` is for the log.

        Raises `ValueError` for settings that turn out not to work."""
        self._programs = Programs(config, environment, name=name, log=log)
        self._commands = {tool.name: _Command(tool, self._programs) for tool in config.tool}
        self._places = SharedPlaces(config.calls_at_once)
        self._most = config.output_kib * 1024
        self._name = name
        self._log = log

    def tools(self) -> Sequence[Tool]:
        return [command.tool for command in self._commands.values()]

    def deadline(self, tool: str) -> float | None:
        command = self._commands.get(tool)
        return None if command is None else command.settings.deadline_seconds

    def trouble(self) -> Trouble | None:
        return self._programs.trouble

    async def call(self, call: ToolCall, outlet: Outlet) -> ToolResult:
        command = self._commands.get(call.tool)
        if command is None:
            raise BackendError(f"there is no command {call.tool}")
        try:
            words, given = command.filled(call.arguments)
        except UnfitArgument as error:
            return _failed(f"Invalid arguments.\n{error}")
        start = partial(self._programs.start, words, listens=command.listens)
        async with self._places.taken(call.sharer, unhurried=call.unhurried):
            end = await run_to_end(start, given, self._most)
        if end.code not in command.settings.success:
            self._log.warning("agent.command_failed", agent=self._name, tool=call.tool, how=end.how)
            return _failed(_why(command, end))
        return self._answer(command, end.output)

    async def aclose(self) -> None:
        self._programs.close()

    def _answer(self, command: _Command, output: bytes) -> ToolResult:
        """Raises `BackendError` where it is not what its owner says that it is."""
        text = output.decode("utf-8", "replace").rstrip("\r\n")
        if command.settings.stdout == "text":
            return ToolResult(content=(TextContent(text=text),))
        try:
            structured = msgspec.json.decode(output)
        except (ValueError, RecursionError) as error:
            raise BackendError("the program printed something that is not JSON") from error
        if not command.schema.conforms(structured):
            raise BackendError("the program's answer is not what its output schema promises")
        return ToolResult(content=(TextContent(text=text),), structured=structured)


def _why(command: _Command, end: ProgramEnd) -> str:
    text = f"{command.tool.name} failed ({end.how})."
    if command.settings.show_stderr and end.last_words:
        text += "\n" + "\n".join(end.last_words)
    return text


def _failed(text: str) -> ToolResult:
    return ToolResult(content=(TextContent(text=text),), is_error=True)
