"""Hooks: code of the owner's that looks at a call before it is made, and at its answer afterwards.

A function of a Python file runs where Python agents run, in a process of the owner's own interpreter; a command is started for each call.
Both are given one JSON object and answer with one: `proceed`, with other arguments perhaps; `deny`; or `substitute`, with a result. A hook
that fails, takes too long or says something else has not agreed: the call fails, its caller is told no more than that, and the owner is
told what was wrong, as of an agent that is out of order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, cast

import msgspec
import trio
from msgspec import UNSET, Raw, UnsetType

from server.agents.base.agent_faults import TroubleWatch
from server.agents.base.agent_turns import SharedPlaces
from server.agents.base.backend import Announce, ToolCall, Trouble
from server.agents.python.call_endings import tool_answer
from server.lib.counted import counted
from server.lib.log.logger import Logger
from server.lib.shortened import short_reason
from server.mcp.call_failures import BackendError
from server.mcp.call_outlet import NullOutlet, Outlet
from server.mcp.messages import Tool
from server.mcp.result_encoding import ToolResult
from server.settings.rule_settings import HookConfig, HookProgram

# What a hook may say: an answer of a tool fits, and little besides.
MOST_SAID: Final = 8 * 1024 * 1024
LONGEST_REASON: Final = 2000
COMMANDS_AT_ONCE: Final = 16
# What callers are told, whatever is wrong with it.
OUT_OF_ORDER: Final = (
    "something that the owner of this server has put in front of its tools is out of order. The owner is told; calling again helps"
    " once that is mended."
)
_NOBODY: Final = NullOutlet("a hook can ask nobody")


class HookFailed(Exception):
    """The failure to give an answer that can be used; says why, for the owner."""


class HookCaller(msgspec.Struct, frozen=True):
    """The caller for whom it is asked."""

    subject: str
    sharer: str
    call_id: str


class HookSaid(msgspec.Struct, frozen=True, kw_only=True):
    decision: Literal["proceed", "deny", "substitute"]
    arguments: dict[str, Any] | None = None  # others than those that came
    reason: str = ""
    result: ToolResult | None = None


class _Said(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    decision: Literal["proceed", "deny", "substitute"]
    arguments: dict[str, Any] | UnsetType = UNSET
    reason: str = ""
    result: Raw | UnsetType = UNSET


class HookRunner:
    """An agent that nobody calls but us: a `Backend`, `Watched` and `ExplainsRefusals`."""

    refusal = OUT_OF_ORDER

    def __init__(self) -> None:
        self.watch: Final = TroubleWatch()

    def tools(self) -> Sequence[Tool]:
        return ()

    async def call(self, call: ToolCall, outlet: Outlet) -> ToolResult:
        raise BackendError(f"there is no tool {call.tool}")

    def lacks(self, function: str) -> str | None:
        """Return why it could not be asked, in words."""
        return None

    async def ask(self, function: str, given: Mapping[str, Any], caller: HookCaller) -> bytes:
        """Ask it. Raises `BackendError`, `HookFailed`."""
        raise NotImplementedError

    async def aclose(self) -> None:
        pass


class Hook:
    """The hook `before` or `after` of one server."""

    def __init__(self, config: HookConfig, runner: HookRunner, place: Literal["before", "after"]) -> None:
        """Take a hook. Raises `ValueError` for a function that is not there."""
        self.tools: Final = config.tools
        self.place: Final = place
        self._function = config.function
        self._seconds = config.deadline_seconds
        self._runner = runner
        if (why := runner.lacks(config.function)) is not None:
            raise ValueError(f"hooks.{place}: {why}")

    async def ask(self, given: Mapping[str, Any], caller: HookCaller) -> HookSaid:
        """Ask the hook. Raises `HookFailed`."""
        try:
            said = read_answer(await self._answer(given, caller), self.place)
        except BackendError as error:
            raise HookFailed(str(error)) from error
        self._runner.watch.is_over()
        return said

    def blame(self, error: HookFailed) -> None:
        """Tell its owner, as of an agent that is out of order, until it answers again."""
        self._runner.watch.begins(f"the hook {self.place} did not answer a call as it should: {error}")

    async def _answer(self, given: Mapping[str, Any], caller: HookCaller) -> bytes:
        with trio.move_on_after(self._seconds):
            return await self._runner.ask(self._function, given, caller)
        raise HookFailed(f"it took longer than {counted(self._seconds, 'second')}")


def read_answer(said: bytes, place: Literal["before", "after"]) -> HookSaid:
    """Read what a hook said. Raises `HookFailed`."""
    try:
        found = msgspec.json.decode(said, type=_Said)
    except (ValueError, RecursionError) as error:
        like = '{"decision": "proceed"}'
        raise HookFailed(
            f"what it said is no answer of a hook, such as {like}: {short_reason(error)}"
        ) from error
    arguments = None if found.arguments is UNSET else found.arguments
    if arguments is not None and (place == "after" or found.decision != "proceed"):
        raise HookFailed("it gave arguments where there is nothing to do with them")
    if (found.result is not UNSET) is not (found.decision == "substitute"):
        raise HookFailed('a result belongs to "substitute", and to nothing else')
    if found.result is UNSET:
        return HookSaid(decision=found.decision, arguments=arguments, reason=found.reason[:LONGEST_REASON])
    try:
        return HookSaid(decision="substitute", result=tool_answer(found.result))
    except BackendError as error:
        raise HookFailed(f"its result is none: {error}") from error


def open_hook(program: HookProgram, *, environment: Mapping[str, str], name: str, log: Logger) -> HookRunner:
    """Open the program of a hook. Raises `ValueError` for what is not there."""
    make = CommandHooks if program.run else PythonHooks
    return make(program, environment, name=name, log=log)


class PythonHooks(HookRunner):
    """The functions of a Python file. Also `Active` and `TellsWhenBusy`."""

    def __init__(
        self, program: HookProgram, environment: Mapping[str, str], *, name: str, log: Logger
    ) -> None:
        from server.agents.python.python_agent import PythonBackend
        from server.agents.python.python_settings import PythonConfig

        config = PythonConfig(file=program.file, python=program.python)
        super().__init__()
        self._python = PythonBackend(config, environment=environment, name=name, log=log)
        self._file = Path(program.file).name

    async def run(self, announce: Announce, *, task_status: trio.TaskStatus[None]) -> None:
        """Run the process. Raises `BackendError` where the file cannot be loaded. Callers hear of nothing in it."""
        unheard = Announce(lists=lambda: None, resource=lambda _: None)
        await self._python.run(unheard, task_status=task_status)

    def lacks(self, function: str) -> str | None:
        tool = self._find(function)
        if tool is None:
            return f"{self._file} has no function {function}"
        if _parameter(tool) is None:
            return f"{function} in {self._file} should take one argument, the call"
        return None

    async def ask(self, function: str, given: Mapping[str, Any], caller: HookCaller) -> bytes:
        tool = self._find(function)
        parameter = None if tool is None else _parameter(tool)
        if parameter is None:
            raise HookFailed(self.lacks(function))
        call = ToolCall(
            tool=function,
            arguments={parameter: given},
            subject=caller.subject,
            sharer=caller.sharer,
            call_id=caller.call_id,
        )
        answer = await self._python.call(call, _NOBODY)
        if answer.is_error or answer.structured is UNSET:
            raise HookFailed(f"{function} returned something else than a dict, or failed")
        return msgspec.json.encode(answer.structured)

    def trouble(self) -> Trouble | None:
        return self._python.trouble() or self.watch.found

    @property
    def busy(self) -> bool:
        return self._python.busy

    async def aclose(self) -> None:
        await self._python.aclose()

    def _find(self, function: str) -> Tool | None:
        return next((tool for tool in self._python.tools() if tool.name == function), None)


class CommandHooks(HookRunner):
    """A program that is started for each call. Also `TellsWhenBusy`."""

    def __init__(
        self, program: HookProgram, environment: Mapping[str, str], *, name: str, log: Logger
    ) -> None:
        from server.agents.command.agent_program import Programs, ProgramSettings

        super().__init__()
        settings = ProgramSettings(environment=program.environment)
        self._programs = Programs(settings, environment, name=name, log=log)
        self._words = (self._programs.find(program.run[0]), *program.run[1:])
        self._places = SharedPlaces(COMMANDS_AT_ONCE)
        self._under_way = 0

    async def ask(self, function: str, given: Mapping[str, Any], caller: HookCaller) -> bytes:
        from server.agents.command.program_run import run_to_end

        start = partial(self._programs.start, self._words, listens=True)
        self._under_way += 1
        try:
            async with self._places.taken(caller.sharer, unhurried=False):
                end = await run_to_end(start, msgspec.json.encode(given) + b"\n", MOST_SAID)
        finally:
            self._under_way -= 1
        if end.code != 0:
            raise HookFailed(f"its program failed ({end.how})")
        return end.output

    def trouble(self) -> Trouble | None:
        return self._programs.trouble or self.watch.found

    @property
    def busy(self) -> bool:
        return self._under_way > 0

    async def aclose(self) -> None:
        self._programs.close()


def _parameter(tool: Tool) -> str | None:
    """Return the name of the one thing that it takes."""
    properties: Any = tool.input_schema.get("properties")
    names = list(cast("Mapping[str, Any]", properties)) if isinstance(properties, Mapping) else []
    return names[0] if len(names) == 1 else None
