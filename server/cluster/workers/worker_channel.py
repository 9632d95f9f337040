"""What a parent and one of its workers say to each other, over a pair of sockets: questions with answers, and news without.

Both ends run this. Messages are JSON with their length before them. What is sent waits in memory, within bounds, so that a worker that
hangs holds up nobody else.
"""

from __future__ import annotations

import itertools
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final, Literal

import msgspec
import trio

# The longest answer of the admin socket, and what is around it.
MESSAGE_BYTES: Final = 16 * 1024 * 1024
# Beyond so many messages that the other end does not take, it hangs.
BACKLOG: Final = 1024
_LENGTH_BYTES: Final = 4
_NOTHING: Final = msgspec.Raw(b"null")

Answering = Callable[[msgspec.Raw], Awaitable[Any]]
IncomingMessages = Callable[[msgspec.Raw], None]


class WorkerMessage(msgspec.Struct, frozen=True, kw_only=True):
    kind: str  # question, answer, failure or news; any other is passed over
    number: int = 0  # of a question, and of what answers it
    name: str = ""
    body: msgspec.Raw = _NOTHING


class ChannelGone(Exception):
    """The other end is gone, or hangs: there is no answer."""


class WorkerChannel:
    """`answering`: what each question that comes is answered with, one task each; `hearing`: what is done at each piece of news, at once
    and in order. What has no name there, or is of no kind that is known, is passed over. `failed` is told the name of a question whose answer broke, while its exception is
    handled: whoever asked learns only that there is none."""

    def __init__(
        self,
        sock: socket.socket,
        *,
        answering: Mapping[str, Answering],
        hearing: Mapping[str, IncomingMessages],
        failed: Callable[[str], None],
    ) -> None:
        self._stream = trio.SocketStream(trio.socket.from_stdlib_socket(sock))
        self._answering = answering
        self._hearing = hearing
        self._failed = failed
        self._put, self._take = trio.open_memory_channel[WorkerMessage](BACKLOG)
        self._numbers = itertools.count(1)
        self._waiting: dict[int, tuple[trio.Event, list[WorkerMessage]]] = {}
        self._gone = False

    async def run(self) -> None:
        """Until the other end is gone."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write_on, nursery.cancel_scope)
                while (message := await self._read()) is not None:
                    if message.kind == "question":
                        nursery.start_soon(self._answer, message)
                    elif message.kind == "news":
                        if (hear := self._hearing.get(message.name)) is not None:
                            hear(message.body)
                    elif message.kind not in ("answer", "failure"):
                        continue  # of a version that was started from a newer file than this one
                    elif (waiting := self._waiting.pop(message.number, None)) is not None:
                        waiting[1].append(message)
                        waiting[0].set()
                nursery.cancel_scope.cancel()
        finally:
            self._gone = True
            for event, _ in self._waiting.values():
                event.set()
            self._waiting.clear()
            self._stream.socket.close()

    async def ask(self, name: str, body: Any = None) -> msgspec.Raw:
        """Raises `ChannelGone`. Whoever asks says how long it waits."""
        number, event, answers = next(self._numbers), trio.Event(), list[WorkerMessage]()
        self._send(WorkerMessage(kind="question", number=number, name=name, body=_encoded(body)))
        self._waiting[number] = (event, answers)
        try:
            await event.wait()
        finally:
            self._waiting.pop(number, None)
        if not answers or answers[0].kind == "failure":
            raise ChannelGone
        return answers[0].body

    def tell(self, name: str, body: Any = None) -> bool:
        """Whether it is under way: nobody waits for news."""
        try:
            self._send(WorkerMessage(kind="news", name=name, body=_encoded(body)))
        except ChannelGone:
            return False
        return True

    def _send(self, message: WorkerMessage) -> None:
        if self._gone:
            raise ChannelGone
        try:
            self._put.send_nowait(message)
        except trio.WouldBlock:
            raise ChannelGone from None

    async def _answer(self, question: WorkerMessage) -> None:
        answering = self._answering.get(question.name)
        kind: Literal["answer", "failure"] = "failure"
        body = _NOTHING
        if answering is not None:
            try:
                body, kind = _encoded(await answering(question.body)), "answer"
            except Exception:  # and the channel goes on
                self._failed(question.name)
        with suppress(ChannelGone):
            self._send(WorkerMessage(kind=kind, number=question.number, body=body))

    async def _write_on(self, everything: trio.CancelScope) -> None:
        try:
            async for message in self._take:
                await self._stream.send_all(_framed(message))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            everything.cancel()

    async def _read(self) -> WorkerMessage | None:
        """None at the end; what breaks off or cannot be read is one, too."""
        head = await self._exactly(_LENGTH_BYTES)
        if head is None or (length := int.from_bytes(head)) > MESSAGE_BYTES:
            return None
        data = await self._exactly(length)
        try:
            return None if data is None else msgspec.json.decode(data, type=WorkerMessage)
        except msgspec.MsgspecError:
            return None

    async def _exactly(self, length: int) -> bytes | None:
        found = bytearray()
        while len(found) < length:
            try:
                more = await self._stream.receive_some(min(length - len(found), 65_536))
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return None
            if not more:
                return None
            found += more
        return bytes(found)


def last_news(name: str, body: Any) -> bytes:
    """As it is sent by a process that no longer runs a channel."""
    return _framed(WorkerMessage(kind="news", name=name, body=_encoded(body)))


def _framed(message: WorkerMessage) -> bytes:
    data = msgspec.json.encode(message)
    return len(data).to_bytes(_LENGTH_BYTES) + data


def _encoded(body: Any) -> msgspec.Raw:
    return body if isinstance(body, msgspec.Raw) else msgspec.Raw(msgspec.json.encode(body, enc_hook=str))
