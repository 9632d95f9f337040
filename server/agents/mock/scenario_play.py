"""The scenarios of a tool, in their order: the first whose condition holds is played."""

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
from server.mcp.call_outlet import LogMessage, Outlet, Progress, is_wanted
from server.mcp.call_questions import Question
from server.mcp.result_encoding import ToolResult, failed_result, text_result

NOTHING_FITS: Final = {"message": "No matching scenario"}
ANSWERS: Final = "answers"  # what was answered, as an argument beside the others
TEXT_FORM: Final = {"answer": "string"}


class MockedTool:
    """A tool of a document that was checked."""

    def __init__(self, tool: MockTool) -> None:
        self._scenarios = [_Scene(scenario) for scenario in tool.scenarios]

    async def play(self, call: ToolCall, outlet: Outlet) -> ToolResult:
        """Run the scenario that fits. Raises `BackendError`, and whatever comes out of the outlet."""
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
    """Take one step, and return what was answered, if it asks."""
    await trio.sleep(step.wait_seconds)
    if step.progress is not UNSET and call.wants_progress:
        await outlet.emit(Progress(progress=step.progress, total=step.total, message=step.message))
    if step.log is not UNSET and is_wanted(step.level, call.log_level):
        await outlet.emit(LogMessage(level=step.level, data=step.log))
    if step.ask is UNSET:
        return None
    return (await outlet.ask({step.ask.id: _question(step.ask)}))[step.ask.id]


def _question(ask: MockAsk) -> Question:
    form = read_schema(ask.schema or TEXT_FORM)
    return Question(method="elicitation/create", params={"message": ask.prompt, "requestedSchema": form})


def _answer(scenario: Scenario) -> ToolResult:
    if scenario.protocol_error is not UNSET:
        error = scenario.protocol_error
        raise ProtocolFailure(error.message, error.code, error.data)
    if scenario.error is not UNSET:
        return failed_result(scenario.error)
    if scenario.result is not UNSET:
        return tool_answer(msgspec.Raw(msgspec.json.encode(scenario.result)))
    return _json(None if scenario.respond is UNSET else scenario.respond)


def _json(value: Any) -> ToolResult:
    """Return a text as it is; all else as JSON in one text, and structured where it is an object."""
    if isinstance(value, str):
        return text_result(value)
    if value is None:
        return ToolResult(content=())
    result = text_result(msgspec.json.encode(value).decode())
    return msgspec.structs.replace(result, structured=value) if isinstance(value, dict) else result


def unplayable(name: str) -> BackendError:
    return BackendError(f"the mock has no tool {name}")
