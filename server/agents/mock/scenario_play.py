"""A tool's scenarios, in their order: the first whose condition holds is played."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import trio
from msgspec import UNSET

from server.agents.base.backend import ProtocolFailure, ToolCall
from server.agents.base.short_schema import read_schema
from server.agents.mock.mock_document import MockAsk, MockStep, MockTool, Scenario
from server.agents.mock.scenario_conditions import Condition
from server.agents.python.call_endings import tool_answer
from server.mcp.call_failures import BackendError
from server.mcp.call_outlet import LogLevel, LogMessage, Outlet, Progress
from server.mcp.call_questions import Question
from server.mcp.messages import TextContent
from server.mcp.result_encoding import ToolResult

NOTHING_FITS: Final = {"message": "No matching scenario"}
ANSWERS: Final = "answers"  # what was answered, as an argument beside the others
LEVELS: Final[tuple[LogLevel, ...]] = (
    "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency",
)  # fmt: skip
TEXT_FORM: Final = {"answer": "string"}


class MockedTool:
    """A tool of a document that was checked."""

    def __init__(self, tool: MockTool) -> None:
        self._scenarios = [_Scene(scenario) for scenario in tool.scenarios]

    async def play(self, call: ToolCall, outlet: Outlet) -> ToolResult:
        """Raises `BackendError`, and whatever comes out of the outlet."""
        found = _first(self._scenarios, call.arguments)
        return _json(NOTHING_FITS) if found is None else await found.play(call, outlet, call.arguments)


class _Scene:
    def __init__(self, scenario: Scenario) -> None:
        self.condition = Condition(scenario.when)
        self._scenario = scenario
        self._then = [_Scene(then) for then in scenario.then]

    async def play(self, call: ToolCall, outlet: Outlet, arguments: Mapping[str, Any]) -> ToolResult:
        scenario = self._scenario
        await trio.sleep(scenario.delay_seconds)
        answers: dict[str, Any] = dict(arguments.get(ANSWERS) or {}) if ANSWERS in arguments else {}
        for step in scenario.steps:
            answer = await _take(step, call, outlet)
            if answer is not None and step.ask is not UNSET:
                answers[step.ask.id] = answer
        if self._then:
            arguments = {**arguments, ANSWERS: answers}
            if (then := _first(self._then, arguments)) is not None:
                return await then.play(call, outlet, arguments)
        return _answer(scenario)


def _first(scenes: Sequence[_Scene], arguments: Mapping[str, Any]) -> _Scene | None:
    return next((scene for scene in scenes if scene.condition.holds(arguments)), None)


async def _take(step: MockStep, call: ToolCall, outlet: Outlet) -> Mapping[str, Any] | None:
    """What was answered, if it asks."""
    await trio.sleep(step.wait_seconds)
    if step.progress is not UNSET and call.wants_progress:
        await outlet.emit(Progress(progress=step.progress, total=step.total, message=step.message))
    if step.log is not UNSET and _wanted(step.level, call.log_level):
        await outlet.emit(LogMessage(level=step.level, data=step.log))
    if step.ask is UNSET:
        return None
    return (await outlet.ask({step.ask.id: _question(step.ask)}))[step.ask.id]


def _wanted(level: LogLevel, least: LogLevel | None) -> bool:
    return least is not None and LEVELS.index(level) >= LEVELS.index(least)


def _question(ask: MockAsk) -> Question:
    form = read_schema(ask.schema or TEXT_FORM)
    return Question(method="elicitation/create", params={"message": ask.prompt, "requestedSchema": form})


def _answer(scenario: Scenario) -> ToolResult:
    if scenario.protocol_error is not UNSET:
        error = scenario.protocol_error
        raise ProtocolFailure(error.message, error.code, error.data)
    if scenario.error is not UNSET:
        return ToolResult(content=(TextContent(text=scenario.error),), is_error=True)
    if scenario.result is not UNSET:
        return tool_answer(msgspec.Raw(msgspec.json.encode(scenario.result)))
    return _json(None if scenario.respond is UNSET else scenario.respond)


def _json(value: Any) -> ToolResult:
    """A text as it is; all else as JSON in one text, and structured where it is an object."""
    if isinstance(value, str):
        return ToolResult(content=(TextContent(text=value),))
    if value is None:
        return ToolResult(content=())
    text = msgspec.json.encode(value).decode()
    content = (TextContent(text=text),)
    return (
        ToolResult(content=content, structured=value)
        if isinstance(value, dict)
        else ToolResult(content=content)
    )


def unplayable(name: str) -> BackendError:
    return BackendError(f"the mock has no tool {name}")
