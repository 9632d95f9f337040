"""A client over a pipe, without a process: it talks to a `PipeConversation`."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import trio
import trio.testing

from auth.values.identity_model import Principal, PrincipalKind
from server.calls.sessions.sessions import Sessions
from server.transport.stdio.stdio_conversation import PipeConversation
from tests.interaction.agents import House
from tests.interaction.clients import Asked, Client, Next
from tests.pair import encode, patience
from tests.requirements import Cell

LOCAL = Principal(kind=PrincipalKind.LOCAL, subject="local:1000")
LINE_BYTES = 64 * 1024


class _PipeAsked(Asked):
    def __init__(self, client: PipeClient, request_id: Any) -> None:
        self._client = client
        self.id = request_id

    async def next(self) -> Any:
        with trio.fail_after(patience()):
            return await self._client.next(self.id)

    async def cancel(self) -> None:
        await self._client.note("notifications/cancelled", {"requestId": self.id})
        await trio.testing.wait_all_tasks_blocked()

    async def rest(self) -> list[Any]:
        await trio.testing.wait_all_tasks_blocked()
        return self._client.there(self.id)


class PipeClient(Client):
    """What is not for the request that is read for is put by for the one that it is for. `lines` is all that was said."""

    def __init__(
        self, cell: Cell, made: House, capabilities: Mapping[str, Any], conversation: PipeConversation
    ) -> None:
        super().__init__(cell, made, capabilities)
        self.lines: list[bytes] = []
        self.finished = trio.Event()  # the conversation is over
        self.stopping = trio.Event()
        self._conversation = conversation
        self._in, self._read = trio.open_memory_channel[bytes](1000)
        self._write, self._out = trio.open_memory_channel[bytes](1000)
        self._put_by: list[Any] = []

    async def run(self) -> None:
        async def read() -> bytes:
            try:
                return await self._read.receive()
            except trio.EndOfChannel:
                return b""

        async def write(lines: bytes) -> None:
            for line in lines.split(b"\n"):
                self.lines.append(line)
                await self._write.send(line)

        await self._conversation.run(read, write, stopping=self.stopping)
        self.finished.set()

    def close(self) -> None:
        """The client closes its end."""
        self._in.close()

    async def line(self, body: bytes) -> None:
        await self._in.send(body + b"\n")

    async def next(self, request_id: Any) -> Any:
        for message in self._put_by:
            if _is_for(message, request_id):
                self._put_by.remove(message)
                return message
        while not _is_for(message := json.loads(await self._out.receive()), request_id):
            self._put_by.append(message)
        return message

    def there(self, request_id: Any) -> list[Any]:
        """All that was said for it already, and was not read."""
        while True:
            try:
                self._put_by.append(json.loads(self._out.receive_nowait()))
            except trio.WouldBlock:
                break
        found = [message for message in self._put_by if _is_for(message, request_id)]
        self._put_by = [message for message in self._put_by if message not in found]
        return found

    @asynccontextmanager
    async def begins(
        self, method: str, params: Any = None, *, request_id: Any = None
    ) -> AsyncGenerator[Asked]:
        request_id = self._id(request_id)
        body, _ = self._build(method, params, request_id)
        await self.line(body)
        yield _PipeAsked(self, request_id)

    async def raw(self, body: bytes) -> Any:
        await self.line(body)
        await trio.testing.wait_all_tasks_blocked()
        try:
            return json.loads(self._out.receive_nowait())
        except trio.WouldBlock:
            return None

    async def send(self, message: Any) -> None:
        await self.line(encode(message))

    @asynccontextmanager
    async def aside(self) -> AsyncGenerator[Next]:
        async def next_aside() -> Any:
            with trio.fail_after(patience()):
                return await self.next(None)

        yield next_aside


def _is_for(message: Any, request_id: Any) -> bool:
    """Answers and subscriptions name their request. Anything else is for whoever reads: the tests keep it apart."""
    if isinstance(message, list):
        return True
    if "method" not in message:
        return message.get("id") == request_id and type(message.get("id")) is type(request_id)
    meta = message.get("params", {}).get("_meta", {})
    return meta.get("io.modelcontextprotocol/subscriptionId", request_id) == request_id


def pipe(
    cell: Cell, made: House, sessions: Sessions, capabilities: Mapping[str, Any], *, widened: bool
) -> PipeClient:
    conversation = PipeConversation(
        made.endpoint,
        sessions,
        LOCAL,
        boot_id="boot",
        max_line=LINE_BYTES,
        drain_seconds=60,
        widened=widened,
    )
    return PipeClient(cell, made, capabilities, conversation)
