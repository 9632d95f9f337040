"""A house whose callers may have sessions, with somebody to do their work."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import trio

from server.agents.base.backend import ToolCall
from server.agents.base.catalog import Source
from server.calls.sessions.session import Session
from server.calls.sessions.sessions import Sessions
from server.mcp.call_outlet import Outlet, Progress
from server.mcp.call_questions import Question
from server.mcp.result_encoding import ToolResult
from tests.interaction.agents import House, house, says
from tests.pair import NodeConversation, Pair

PROGRESS: dict[str, Any] = {"_meta": {"progressToken": "p-1"}}
ASKED = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


@dataclass
class Living:
    house: House
    sessions: Sessions

    @property
    def pair(self) -> Pair:
        return self.house.pair

    def session(self, talk: NodeConversation) -> Session:
        """The server's side of a conversation."""
        return self.sessions._all[talk.id]


@asynccontextmanager
async def living(*sources: Source, sessions: Sessions | None = None, **how: Any) -> AsyncGenerator[Living]:
    sessions = Sessions() if sessions is None else sessions
    made = house(*sources, sessions=sessions, **how)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.mcp.crew.run)
        yield Living(made, sessions)
        nursery.cancel_scope.cancel()


class Steps:
    """A tool that reports each step when it is told to go on, and says how it ended."""

    def __init__(self) -> None:
        self.begun = trio.Event()
        self.ended = trio.Event()
        self.how = ""
        self._go_on, self._orders = trio.open_memory_channel[str](100)

    def report(self) -> None:
        self._go_on.send_nowait("report")

    def close_stream(self) -> None:
        self._go_on.send_nowait("close")

    def finish(self) -> None:
        self._go_on.send_nowait("finish")

    async def __call__(self, call: ToolCall, outlet: Outlet) -> ToolResult:
        self.begun.set()
        step = 0
        try:
            async for order in self._orders:
                if order == "finish":
                    break
                if order == "close":
                    await outlet.close_stream()
                    continue
                step += 1
                await outlet.emit(Progress(progress=step, total=step))
            self.how = "finished"
            return says(f"{step} steps")
        except trio.Cancelled:
            self.how = "cancelled"
            raise
        finally:
            self.ended.set()


async def asks(call: ToolCall, outlet: Outlet) -> ToolResult:
    """A tool that needs to know a name."""
    params = {"message": "who?", "requestedSchema": ASKED}
    answers = await outlet.ask({"who": Question(method="elicitation/create", params=params)})
    return says(f"{answers['who']['action']}: {answers['who'].get('content')}")
