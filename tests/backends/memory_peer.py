"""The other end of a worker without a process: what a test makes it say is said, and time is the test's."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import trio
import trio.testing

from server.backends.offer import Offer
from server.backends.worker import Heard, Worker

TOOL = {"name": "say", "inputSchema": {"type": "object"}}


class MemoryPeer:
    """A `Peer`. Ends when its input does, with `exit status 0`, or when a test says so."""

    def __init__(self) -> None:
        self.input, self._heard = trio.testing.memory_stream_one_way_pair()
        self._said, self.output = trio.testing.memory_stream_one_way_pair()
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
        self.input.close()
        self.output.close()

    async def say(self, event: str, **fields: Any) -> None:
        await self.say_bytes(json.dumps({"event": event, **fields}).encode() + b"\n")

    async def say_bytes(self, data: bytes) -> None:
        await self._said.send_all(data)

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
        self._said.close()


@dataclass
class Working:
    peer: MemoryPeer
    worker: Worker
    offers: list[Offer] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)


@asynccontextmanager
async def working(log: Any, *, calls_at_once: int = 64) -> AsyncGenerator[Working]:
    peer = MemoryPeer()
    offers, updated = list[Offer](), list[str]()
    heard = Heard(offer=offers.append, updated=updated.append)
    worker = Worker(peer, heard, calls_at_once=calls_at_once, name="main[1]", log=log)

    async def run(*, task_status: trio.TaskStatus[None]) -> None:
        await worker.run(start_seconds=20, task_status=task_status)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.get_ready)
        await nursery.start(run)
        yield Working(peer, worker, offers, updated)
        nursery.cancel_scope.cancel()
