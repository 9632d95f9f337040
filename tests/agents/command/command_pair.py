"""A command back-end made of settings as they are written, and what it leaves in the log."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import trio

from server.agents.base.backend import ToolCall
from server.agents.command.command_agent import CommandBackend, CommandConfig, problems
from server.mcp.call_outlet import LogMessage, Progress
from server.mcp.call_questions import Question
from server.mcp.result_encoding import ToolResult
from tests.agents.python.python_pair import Log

PYTHON = sys.executable
ENVIRONMENT = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "ONLY": "this"}
PATIENCE = 60  # seconds that any wait may take on a slow machine


def command(*tools: dict[str, Any], log: Log | None = None, **settings: Any) -> CommandBackend:
    config = msgspec.convert({**settings, "tool": list(tools)}, CommandConfig)
    assert problems(config) == []
    return CommandBackend(config, environment=ENVIRONMENT, name="main[1]", log=(log or Log()).logger)


def code(text: str, *words: str | Sequence[str], **settings: Any) -> dict[str, Any]:
    """A tool that is a piece of Python."""
    escaped = f"import os, sys, time, json\n{text}".replace("{", "{{").replace("}", "}}")
    return {"name": "do", "run": [PYTHON, "-I", "-S", "-c", escaped, *words], **settings}


async def call(backend: CommandBackend, tool: str = "do", **arguments: Any) -> ToolResult:
    asked = ToolCall(tool=tool, arguments=arguments, subject="user-1", call_id="call-7")
    with trio.fail_after(PATIENCE):
        return await backend.call(asked, Silent())


class Silent:
    async def emit(self, event: Progress | LogMessage) -> None:
        raise AssertionError(f"nothing was to be said: {event}")

    async def ask(self, questions: Mapping[str, Question]) -> Any:
        raise AssertionError(f"nothing was to be asked: {questions}")

    async def checkpoint(self, data: Any) -> None:
        raise AssertionError("nothing was to be kept")

    async def become_task(self) -> bool:
        return False

    async def close_stream(self) -> None:
        """There is none."""


async def soon(happened: Callable[[], object]) -> None:
    """Returns when it has happened: in another process, so there is nothing else to wait for."""
    with trio.fail_after(PATIENCE):
        while not happened():
            await trio.sleep(0.01)
