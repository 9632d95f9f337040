"""The other end of a worker without a process: what a test makes it say is said, and time is the test's."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import trio
import trio.testing

from server.agents.python.agent_process import Worker, WorkerAnswer
from server.agents.python.offer import AgentOffer

TOOL = {"name": "say", "inputSchema": {"type": "object"}}


PLENTY = 1 << 30


class MemoryInlet:
    """Into a pipe that holds as much as it is told; `room_for` is how many more bytes fit in. `heard` gets them."""

    def __init__(self, heard: Callable[[bytes], None]) -> None:
        self.room_for = PLENTY
        self.broken = False
        self._heard = heard
        self._changed = trio.Event()

    def write_some(self, data: bytes | memoryview) -> int:
        if self.broken:
            raise trio.BrokenResourceError
        taken = bytes(data[: self.room_for])
        self.room_for -= len(taken)
        self._heard(taken)
        return len(taken)

    async def room(self) -> None:
        await trio.lowlevel.checkpoint()
        while not self.room_for and not self.broken:
            await self._changed.wait()

    def change(self, *, room_for: int = 0, broken: bool = False) -> None:
        self.room_for, self.broken = room_for, broken
        self._changed.set()
        self._changed = trio.Event()

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()
        self.change(broken=True)


class MemoryOutflow:
    def __init__(self) -> None:
        self._data = b""
        self._ended = False
        self._changed = trio.Event()

    def read_some(self) -> bytes | None:
        data, self._data = self._data, b""
        return data if data or self._ended else None

    async def news(self) -> None:
        await trio.lowlevel.checkpoint()
        while not self._data and not self._ended:
            await self._changed.wait()

    def put(self, data: bytes) -> None:
        self._data += data
        self._changed.set()
        self._changed = trio.Event()

    def end(self) -> None:
        self._ended = True
        self.put(b"")


class MemoryPeer:
    """A `Peer`. Ends when its input does, with `exit status 0`, or when a test says so."""

    def __init__(self) -> None:
        self._heard = trio.testing.MemoryReceiveStream()
        self.input = MemoryInlet(self._heard.put_data)
        self.output = MemoryOutflow()
        self._over = trio.Event()
        self._how = "exit status 0"
        self.closed = False
        self._lines: list[bytes] = []
        self._rest = b""

    async def listen(self) -> None:
        await trio.lowlevel.checkpoint()

    def last_words(self) -> str:
        return "; it said: oh"

    async def ended(self) -> str:
        await self._over.wait()
        return self._how

    async def aclose(self) -> None:
        self.closed = True
        await self.input.aclose()
        self._heard.put_eof()
        self.output.end()

    async def say(self, event: str, **fields: Any) -> None:
        await self.say_bytes(json.dumps({"event": event, **fields}).encode() + b"\n")

    async def say_bytes(self, data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        self.output.put(data)

    async def get_ready(self, *tools: Any) -> None:
        await self.say("ready", protocol=1, python="3.12.1", catalog={"tools": list(tools) or [TOOL]})

    async def hear(self) -> Any:
        while not self._lines:
            data = await self._heard.receive_some()
            assert data, "nothing more is said"
            *self._lines, self._rest = (self._rest + data).split(b"\n")
        return json.loads(self._lines.pop(0))

    def end(self, how: str) -> None:
        self._how = how
        self._over.set()
        self.output.end()

    def fall_silent(self) -> None:
        self.output.end()


@dataclass
class Working:
    peer: MemoryPeer
    worker: Worker
    offers: list[AgentOffer] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)


@asynccontextmanager
async def working(log: Any, *, calls_at_once: int = 64) -> AsyncGenerator[Working]:
    peer = MemoryPeer()
    offers, updated = list[AgentOffer](), list[str]()
    heard = WorkerAnswer(offer=offers.append, updated=updated.append)
    worker = Worker(peer, heard, calls_at_once=calls_at_once, name="main[1]", log=log)

    async def run(*, task_status: trio.TaskStatus[None]) -> None:
        await worker.run(start_seconds=20, task_status=task_status)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.get_ready)
        await nursery.start(run)
        yield Working(peer, worker, offers, updated)
        nursery.cancel_scope.cancel()
