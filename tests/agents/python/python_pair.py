"""A Python agent at work, its caller, and what it leaves in the log; with the double of the agent's side, or the real one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent
from typing import Any

import msgspec
import structlog
import trio

from server.agents.base.backend import Announce, ToolCall
from server.agents.base.child_environment import child_environment
from server.agents.python.python_agent import SHIM, PythonBackend
from server.agents.python.python_settings import PythonConfig, problems
from server.mcp.call_outlet import LogMessage, Progress
from server.mcp.call_questions import Question
from server.mcp.messages import TextContent
from server.mcp.result_encoding import ToolResult

DOUBLE = Path(__file__).parent.parent / "base" / "double"
PATIENCE = 60  # seconds that any wait in these tests may take on a slow machine

# A script for the double: every call is answered with the word that it brought.
PARROT = """
ready()
while True:
    call = hear()
    if call["do"] == "call":
        say("final", id=call["id"], result=text(call["arguments"].get("word", "-")))
"""


async def soon(happened: Callable[[], object]) -> None:
    """Returns when it has happened: in another process, so there is nothing else to wait for."""
    while not happened():
        await trio.sleep(0.01)


class Log:
    """Events by name, with what they hold."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.logger: Any = structlog.wrap_logger(
            None,
            processors=[self._keep],
            wrapper_class=structlog.make_filtering_bound_logger(0),
            context_class=dict,
        )

    def of(self, event: str) -> list[dict[str, Any]]:
        return [each for each in self.events if each["event"] == event]

    def _keep(self, _: object, level: str, event: Any) -> Any:
        self.events.append({**event, "level": level})
        raise structlog.DropEvent


@dataclass
class Caller:
    """An outlet that keeps what it is told. `answer` answers questions."""

    answer: Callable[[Mapping[str, Question]], Awaitable[Mapping[str, Mapping[str, Any]]]] | None = None
    becomes_task: bool = False
    events: list[Progress | LogMessage] = field(default_factory=list)
    asked: list[Mapping[str, Question]] = field(default_factory=list)
    kept: list[Any] = field(default_factory=list)
    closed: int = 0

    async def emit(self, event: Progress | LogMessage) -> None:
        await trio.lowlevel.checkpoint()
        self.events.append(event)

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Mapping[str, Any]]:
        self.asked.append(questions)
        assert self.answer is not None, f"nothing was to be asked: {questions}"
        return await self.answer(questions)

    async def checkpoint(self, data: Any) -> None:
        await trio.lowlevel.checkpoint()
        self.kept.append(data)

    async def become_task(self) -> bool:
        return self.becomes_task

    async def close_stream(self) -> None:
        self.closed += 1


@dataclass
class AtWork:
    backend: PythonBackend
    file: Path
    log: Log
    nursery: trio.Nursery  # the test's own, for calls that run beside it
    changes: int = 0  # how often the lists were said to have changed
    updated: list[str] = field(default_factory=list)

    async def call(self, tool: str = "say", outlet: Caller | None = None, **arguments: Any) -> ToolResult:
        return await self.backend.call(tool_call(tool, **arguments), outlet or Caller())

    async def say(self, tool: str = "say", outlet: Caller | None = None, **arguments: Any) -> str:
        return text_of(await self.call(tool, outlet, **arguments))

    def write(self, script: str) -> None:
        self.file.write_text(dedent(script), "utf-8")


def tool_call(tool: str = "say", **arguments: Any) -> ToolCall:
    return ToolCall(tool=tool, arguments=arguments, subject="user-1", call_id="call-7")


def text_of(answer: ToolResult) -> str:
    (block,) = answer.content
    assert isinstance(block, TextContent)
    return block.text


def make_backend(file: Path, log: Log, *, shim: Path, **settings: Any) -> PythonBackend:
    if "module" not in settings:
        settings["file"] = str(file)
    config = msgspec.convert(settings, PythonConfig)
    assert problems(config) == []
    environment = child_environment(config.environment)
    return PythonBackend(config, environment=environment, name="main[1]", log=log.logger, shim=shim)


@asynccontextmanager
async def at_work(
    folder: Path, script: str, *, shim: Path = DOUBLE, name: str = "agent.py", **settings: Any
) -> AsyncGenerator[AtWork]:
    """Started, and ended with the block. What does not come to an end fails the test."""
    file, log = folder / name, Log()
    file.write_text(dedent(script), "utf-8")
    backend = make_backend(file, log, shim=shim, **settings)
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            work = AtWork(backend=backend, file=file, log=log, nursery=nursery)

            def lists() -> None:
                work.changes += 1

            await nursery.start(backend.run, Announce(lists, work.updated.append))
            yield work
            nursery.cancel_scope.cancel()


REAL = SHIM
