"""A wire and a stream on which an upstream says what is written for it, and what was said there is kept."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import trio
from msgspec import Raw

from server.client.mcp_session.credential_wire import UNPAID_MORE, status_problem
from server.client.mcp_session.http_wire import ERROR_BYTES, JSON, HttpWire, refusal_in
from server.client.mcp_session.line_streams import MessageStream
from server.client.mcp_session.session_messages import MESSAGE_BYTES, PaymentAsked


class Answer:
    """One answer, as far as it is read."""

    def __init__(self, status: int, body: bytes = b"", kind: str = JSON, **headers: str) -> None:
        self.status = status
        self.media_type = kind
        self._parts = [body]
        self._headers = headers
        self.goes_on_until: trio.Event | None = None  # its body
        self.finished = trio.Event()

    def header(self, name: bytes) -> str:
        return self._headers.get(name.decode().replace("-", "_"), "")

    async def part(self) -> bytes:
        if not self._parts and self.goes_on_until is not None:
            await self.goes_on_until.wait()
        return self._parts.pop(0) if self._parts else b""

    async def read(self, limit: int) -> bytes:
        return await self.part()

    async def beginning(self, limit: int) -> bytes:
        assert limit == ERROR_BYTES
        return await self.part()

    async def finish(self, seconds: float) -> None:
        self.finished.set()


class Wire:
    """A wire on which these answers come, whatever is asked."""

    url = "https://mcp.example/mcp"
    most = MESSAGE_BYTES

    def __init__(self, *answers: Answer) -> None:
        self._answers: Iterable[Answer] = iter(answers)
        self.said: list[dict[str, Any]] = []

    @asynccontextmanager
    async def post(self, message: bytes | None, headers: bytes, call: Any) -> AsyncGenerator[Answer]:
        await trio.lowlevel.checkpoint()
        self.said.append(json.loads(message) if message else {})
        yield next(iter(self._answers))

    stream = post

    def attend(self, headers: bytes, call: Any) -> Any:
        return self.stream(None, headers, call)

    async def ask(
        self, message: bytes, headers: bytes, call: Any, read: Callable[[Answer], Awaitable[Raw]]
    ) -> Raw:
        async with self.post(message, headers, call) as answer:
            return await read(answer)

    def problem(self, answer: Answer, body: bytes = b"") -> Exception:
        if answer.status == 402:
            return PaymentAsked(answer.header, body, more=UNPAID_MORE)
        return refusal_in(body) or status_problem(answer.status)

    async def delete(self, headers: bytes, call: Any) -> None:
        self.said.append({"method": "DELETE"})

    def elsewhere(self, target: str) -> Wire:
        return self

    async def aclose(self) -> None:
        return


def wire(*answers: Answer) -> HttpWire:
    return cast("HttpWire", Wire(*answers))


def said(over: HttpWire) -> list[str]:
    return [each.get("method", "") for each in cast("Wire", over).said]


class Stream:
    """A stream on which an upstream answers each message with what `answer` makes of it. `full`: it takes nothing at once."""

    def __init__(self, answer: Callable[[dict[str, Any]], Iterable[Any]], *, full: bool = False) -> None:
        self.said: list[dict[str, Any]] = []
        self.closed = False
        self._answer = answer
        self._full = full
        self._say, self._heard = trio.open_memory_channel[Sequence[bytes]](10_000)

    async def run(self) -> None:
        await trio.sleep_forever()

    def send_nowait(self, message: bytes) -> bool:
        if self._full:
            return False
        self._take(message)
        return True

    async def send(self, message: bytes) -> None:
        await trio.lowlevel.checkpoint()
        self._take(message)

    def hear(self, *messages: Any) -> None:
        lines = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in messages]
        self._say.send_nowait(lines)

    def _take(self, message: bytes) -> None:
        self.said.append(json.loads(message))
        self.hear(*self._answer(self.said[-1]))

    async def receive(self) -> Sequence[bytes]:
        return await self._heard.receive()

    async def aclose(self) -> None:
        self.closed = True

    def of(self, method: str) -> list[dict[str, Any]]:
        return [each.get("params", {}) for each in self.said if each.get("method") == method]


def stream(over: Stream) -> MessageStream:
    return cast("MessageStream", over)
