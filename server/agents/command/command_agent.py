"""`kind = "command"`: tools that are commands. A call starts the program with words made of its arguments, and what the program prints
is the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from server.agents.base.backend import ToolCall
from server.agents.base.short_schema import read_schema, with_defaults
from server.agents.command.agent_program import Programs, ProgramSettings, Words, program_problems
from server.agents.command.command_words import ArgvTemplate, UnfitArgument, Word, read_word
from server.agents.command.program_run import ProgramEnd, run_to_end
from server.agents.command.program_tool import (
    MOST_TOOLS,
    ProgramBackend,
    ProgramTool,
    ToolSettings,
    tool_faults,
    tools_problems,
)
from server.agents.python.offer import LONGEST_SECONDS
from server.lib.log.logger import Logger
from server.mcp.call_failures import BackendError
from server.mcp.call_outlet import Outlet
from server.mcp.messages import TextContent
from server.mcp.result_encoding import ToolResult, failed_result, text_result


class CommandTool(ToolSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table `[[server.agent.tool]]` of a command."""

    run: Words = ()
    stdin: Annotated[str, Meta(max_length=65536, description='"json", or a text such as "{text}"')] = ""
    stdout: Annotated[Literal["text", "json"], Meta(description='"text" or "json"')] = "text"
    success: Annotated[
        tuple[Annotated[int, Meta(ge=0, le=255)], ...],
        Meta(min_length=1, max_length=256, description="a list of exit statuses, e.g. [0, 1]"),
    ] = (0,)
    show_stderr: Annotated[bool, Meta(description="true or false")] = False
    allow_dashes: Annotated[bool, Meta(description="true or false")] = False


class CommandConfig(ProgramSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table `[[server.agent]]` with `kind = "command"`."""

    tool: Annotated[
        tuple[CommandTool, ...],
        Meta(max_length=MOST_TOOLS, description="[[server.agent.tool]] tables with name and run"),
    ] = ()
    output_kib: Annotated[int, Meta(ge=1, le=8192, description="KiB from 1 to 8192")] = 1024
    deadline_seconds: Annotated[float, Meta(gt=0, le=LONGEST_SECONDS, description="seconds up to 86400")] = (
        60.0
    )

    def __repr__(self) -> str:  # the environment may hold a value that should have been a reference
        return f"{type(self).__name__}({', '.join(tool.name for tool in self.tool)})"


def problems(config: CommandConfig) -> list[tuple[str, str]]:
    """Return (key, what is wrong and what to write) for each rule that types cannot hold."""
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


class _Command(ProgramTool):
    """A tool, ready to be called. Raises `ValueError` where its program is not there."""

    settings: CommandTool

    def __init__(self, settings: CommandTool, programs: Programs) -> None:
        super().__init__(settings)
        self._template = ArgvTemplate(settings.run, allow_dashes=settings.allow_dashes)
        self._program = programs.find(self._template.program)
        self._stdin = None if settings.stdin in ("", "json") else read_word(settings.stdin)

    @property
    def listens(self) -> bool:
        return self.settings.stdin != ""

    def filled(self, arguments: Mapping[str, Any]) -> tuple[Sequence[str | bytes], bytes]:
        """Return its words, and what it reads. Raises `UnfitArgument`."""
        values = with_defaults(self.tool.input_schema, arguments)
        words = self._template.filled(self._program, values)
        if self.settings.stdin == "json":
            return words, msgspec.json.encode(dict(values)) + b"\n"
        text = "" if self._stdin is None else self._stdin.filled(values) or ""
        return words, text.encode("utf-8", "replace")


class CommandBackend(ProgramBackend[_Command]):
    """A `Backend` each of whose tools is a command."""

    def __init__(
        self, config: CommandConfig, *, environment: Mapping[str, str], name: str, log: Logger
    ) -> None:
        super().__init__(config, environment=environment, name=name, log=log)
        self._offered = {tool.name: _Command(tool, self._programs) for tool in config.tool}
        self._most = config.output_kib * 1024
        self._name = name
        self._log = log

    async def call(self, call: ToolCall, outlet: Outlet) -> ToolResult:
        command = self._offered.get(call.tool)
        if command is None:
            raise BackendError(f"there is no command {call.tool}")
        try:
            words, given = command.filled(call.arguments)
        except UnfitArgument as error:
            return failed_result(f"Invalid arguments.\n{error}")
        start = partial(self._programs.start, words, listens=command.listens)
        async with self._places.taken(call.sharer, unhurried=call.unhurried):
            end = await run_to_end(start, given, self._most)
        if end.code not in command.settings.success:
            self._log.warning("agent.command_failed", agent=self._name, tool=call.tool, how=end.how)
            return failed_result(_why(command, end))
        return self._answer(command, end.output)

    def _answer(self, command: _Command, output: bytes) -> ToolResult:
        """Return the output as an answer. Raises `BackendError` where it is not what its owner says that it is."""
        text = output.decode("utf-8", "replace").rstrip("\r\n")
        if command.settings.stdout == "text":
            return text_result(text)
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
