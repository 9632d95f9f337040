"""`kind = "agent"`: an agent that is a program of any language, started for each call, which says in lines what it does and asks
(program_events.py) until it has an answer (program_call.py)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Final, cast

import msgspec
import trio
from msgspec import Meta, Raw

from server.agents.base.backend import Feature, ToolCall
from server.agents.command.agent_program import ProgramSettings, program_problems
from server.agents.command.program_call import ProgramCall
from server.agents.command.program_tool import (
    MOST_TOOLS,
    ProgramBackend,
    ProgramTool,
    ToolSettings,
    tool_faults,
    tools_problems,
)
from server.agents.python.call_endings import tool_answer
from server.agents.python.offer import LONGEST_SECONDS
from server.lib.log.logger import Logger
from server.mcp.call_failures import BackendError
from server.mcp.call_outlet import Outlet
from server.mcp.messages import TextContent
from server.mcp.result_encoding import ToolResult, text_result
from server.mcp.schema import ToolSchema

# What an agent can do of which nothing is said.
RUN_AGENT: Final = ToolSettings(
    name="run_agent",
    description="Gives the agent a task, and returns what came of it.",
    input={"task": {"type": "string", "description": "What to do, in words.", "minLength": 1}},
    task="optional",
)


class AgentConfig(ProgramSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table `[[server.agent]]` with `kind = "agent"`."""

    run: Annotated[
        tuple[Annotated[str, Meta(max_length=4096)], ...],
        Meta(max_length=200, description='the program and its arguments, e.g. ["node", "agent.mjs"]'),
    ] = ()
    tool: Annotated[
        tuple[ToolSettings, ...],
        Meta(max_length=MOST_TOOLS, description="[[server.agent.tool]] tables with a name"),
    ] = ()
    line_kib: Annotated[int, Meta(ge=1, le=8192, description="KiB from 1 to 8192")] = 1024
    deadline_seconds: Annotated[float, Meta(gt=0, le=LONGEST_SECONDS, description="seconds up to 86400")] = (
        300.0
    )
    waiting_at_once: Annotated[int, Meta(ge=1, le=10_000, description="a number from 1 to 10000")] = 100

    def __repr__(self) -> str:  # the environment may hold a value that should have been a reference
        return f"{type(self).__name__}(run={self.run!r})"


def problems(config: AgentConfig) -> list[tuple[str, str]]:
    """Return (key, what is wrong and what to write) for each rule that types cannot hold."""
    found = program_problems(config)
    if not config.run or not config.run[0]:
        found.append(("run", 'is missing; write the program and its arguments, e.g. ["node", "agent.mjs"]'))
    if any("\0" in word for word in config.run):
        found.append(("run", "must not hold a zero byte"))
    return [*found, *tools_problems(config.tool, tool_faults)]


class AgentBackend(ProgramBackend[ProgramTool]):
    """A `Backend` whose tools are all of one program, which may write to its callers' logs (`DeclaresFeatures`)."""

    features: Final[frozenset[Feature]] = frozenset({"logging"})

    def __init__(
        self, config: AgentConfig, *, environment: Mapping[str, str], name: str, log: Logger
    ) -> None:
        super().__init__(config, environment=environment, name=name, log=log)
        self._offered = {tool.name: ProgramTool(tool) for tool in config.tool or (RUN_AGENT,)}
        self._words = (self._programs.find(config.run[0]), *config.run[1:])
        self._waiting = trio.Semaphore(config.waiting_at_once)
        self._line_bytes = config.line_kib * 1024

    async def call(self, call: ToolCall, outlet: Outlet) -> ToolResult:
        offered = self._offered.get(call.tool)
        if offered is None:
            raise BackendError(f"there is no tool {call.tool}")
        schema = offered.schema
        start = partial(self._programs.start, self._words, listens=True)
        async with self._places.taken(call.sharer, unhurried=call.unhurried) as turn:
            talk = ProgramCall(
                call,
                outlet,
                self._programs,
                start,
                turn=turn,
                waiting=self._waiting,
                line_bytes=self._line_bytes,
            )
            answer = _answer(await talk.run(), schema)
        if schema.promises and not answer.is_error and not schema.conforms(answer.structured):
            raise BackendError("the agent's answer is not what its output schema promises")
        return answer


def _answer(result: Raw, schema: ToolSchema) -> ToolResult:
    """Read its final word: a text, a result as MCP has it, or any JSON. Raises `BackendError`."""
    try:
        value: Any = msgspec.json.decode(result)
    except (ValueError, RecursionError) as error:
        raise BackendError("the agent gave a result that is none") from error
    if isinstance(value, dict) and isinstance(cast("dict[str, Any]", value).get("content"), list):
        return tool_answer(result)
    if isinstance(value, str) and not schema.promises:
        return text_result(value)
    text = value if isinstance(value, str) else bytes(result).decode()
    content = () if value is None else (TextContent(text=text),)
    if isinstance(value, dict) or schema.promises:
        return ToolResult(content=content, structured=value)
    return ToolResult(content=content)
