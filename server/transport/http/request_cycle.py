"""One request and its response. Most are a value each way: `arrived` is the body, `answer` the response in one write.

A body may also come in pieces (`receive`), and a response go in pieces (`start`, `piece`): the ASGI application of the pages is
hosted in these words (asgi.py). The body is read only when somebody asks. A handler learns that its peer has left from
`Disconnected`, which every write raises, or by waiting for it (`wait_gone`).
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable
from time import perf_counter
from typing import Any, Final, Protocol, cast

import trio

from server.lib.chunked_body import OF_REQUESTS, ChunkedBody, MalformedChunks, TooManyTrailers

from .connection_refusals import Disconnected, RequestRefused
from .disconnect_watch import DisconnectWatch
from .handler import Address, Handler, Pairs, Scope
from .request_head import CHUNKED, Head
from .response import CONTINUE, BadResponse, HttpResponse, whole
from .shared_state import Serving

_ASGI: Final = {"version": "3.0", "spec_version": "2.4"}


def scope_of(head: Head, connection: CycleConnection) -> Scope:
    """Return the words of the head and of its connection, without those of one request."""
    return {
        "type": "http",
        "asgi": _ASGI,
        "http_version": head.version,
        "method": head.method,
        "scheme": connection.scheme,
        "path": head.path,
        "raw_path": head.raw_path,
        "query_string": head.query,
        "root_path": "",
        "headers": head.headers,
        "client": connection.client,
        "server": connection.server,
        "state": {},
        "extensions": {},
    }


class CycleConnection(Protocol):
    """The connection of a request, as far as the request needs it (server_connection.py)."""

    serving: Serving
    client: Address | None
    server: Address | None
    scheme: str
    buffer: bytes
    deadline: float
    gone: bool
    cut: bool
    sent: bool
    at_drain: Callable[[], None] | None
    when_heard_of: Callable[[], None] | None

    async def read(self) -> bytes: ...

    async def write(self, data: bytes) -> None: ...

    def due_at(self, deadline: float, *, answer: bool) -> None: ...

    def has_left(self) -> bool: ...

    def abandon(self) -> None: ...


class ConnectionCycle:
    """A request and its response, as handlers see them (`server.transport.http.handler.Cycle`)."""

    __slots__ = (
        "_body_due", "_body_ended", "_chunks", "_connection", "_ended", "_given", "_handler", "_head", "_held_back",
        "_keep_alive", "_left", "_received", "_refusal", "_response", "_wants_continue", "client", "last_word", "request_id", "status",
    )  # fmt: skip

    def __init__(self, connection: CycleConnection, head: Head, handler: Handler) -> None:
        """Begin a request. Raises `RequestRefused` when the announced body is too large."""
        length = head.length
        serving = connection.serving
        if length > serving.limits.body_bytes:
            raise RequestRefused(413, "the request body is too large")
        self._connection = connection
        self._head = head
        self._handler = handler
        self._left = length
        self._chunks = ChunkedBody(OF_REQUESTS, serving.limits.trailer_bytes) if length == CHUNKED else None
        self._received = 0
        self._body_ended = length == 0
        self._body_due = math.inf
        self._given = False  # the end of the body was handed out
        self._wants_continue = head.expects_continue and length != 0
        self._refusal: RequestRefused | None = None
        self._response: HttpResponse | None = None  # one that is written in pieces
        self._held_back = b""  # a head that waits for its body
        self._ended = False
        self._keep_alive = False
        self.request_id: Final = f"{serving.boot_id}-{serving.sequence():x}"
        self.client: Final[Address | None] = handler.client or connection.client
        self.last_word: Callable[[], Awaitable[None]] | None = None
        self.status = 0  # of the response, once there is one

    @property
    def now(self) -> float:
        return self._connection.serving.now

    @property
    def draining(self) -> trio.Event:
        return self._connection.serving.draining

    @property
    def peer_may_be_sending(self) -> bool:
        """Closing now could reset the connection before the peer has read its answer."""
        return not self._body_ended or bool(self._connection.buffer)

    async def run(self) -> bool:
        """Answer it, and return whether the connection may carry another. Raises `RequestRefused` when nothing was sent."""
        connection = self._connection
        serving = connection.serving
        serving.counters.requests += 1
        began = perf_counter()
        try:
            await self._handler.answer(self)
        except Exception as error:
            return self._failed(error)
        finally:
            response = self._response
            if connection.sent and not self._ended and response is not None and response.ends_by_close:
                connection.cut = True
            self._handler.done(self, perf_counter() - began)
        if not connection.sent and not connection.gone:
            serving.counters.crashed += 1
            serving.log.error("http.no_response", request=self.request_id)
            raise RequestRefused(500, "internal error")
        if not self._ended or connection.gone or not self._keep_alive:
            return False
        return self._body_ended or await self._discard()

    def _failed(self, error: Exception) -> bool:
        connection = self._connection
        nothing_sent = not connection.sent and not connection.gone
        if self._refusal is not None and nothing_sent:
            raise self._refusal
        if not _is_expected(error):
            connection.serving.counters.crashed += 1
            connection.serving.log.error("http.app_failed", request=self.request_id, exc_info=error)
        if nothing_sent:
            raise RequestRefused(500, "internal error")
        return False

    # -- the request -------------------------------------------------------------------------------------------------

    def arrived(self) -> bytes | None:
        connection = self._connection
        data, left = connection.buffer, self._left
        if self._chunks is not None or self._given or self._refusal is not None or len(data) < left:
            return None
        if len(data) == left:
            connection.buffer = b""
        else:
            data, connection.buffer = data[:left], data[left:]
        self._left = 0
        self._body_ended = self._given = True
        return data

    async def receive(self) -> dict[str, Any]:
        """Return, as ASGI has it, a piece of the body, or that the peer has left. Raises `RequestRefused` for a body that breaks the rules."""
        connection = self._connection
        while not self._given:
            if self._refusal is not None:
                raise self._refusal
            piece = b"" if self._body_ended else self._take()
            if piece or self._body_ended:
                self._given = self._body_ended
                return {"type": "http.request", "body": piece, "more_body": not self._body_ended}
            if connection.gone or not await self._pull():
                return {"type": "http.disconnect"}
        while not self._ended and not connection.gone:
            if len(connection.buffer) >= connection.serving.limits.pipeline_bytes:
                # It pipelines far ahead: left unread, it is noticed when a write fails.
                await trio.sleep_forever()
            data = await connection.read()
            if not data:
                connection.gone = True
            connection.buffer += data
        return {"type": "http.disconnect"}

    async def wait_gone(self) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass

    def has_left(self) -> bool:
        return self._connection.has_left()

    def when_heard_of(self, call: Callable[[], None] | None) -> None:
        self._connection.when_heard_of = call

    def abandon(self) -> None:
        self._connection.abandon()

    def attend(self, companion: DisconnectWatch) -> None:
        self._connection.serving.companions.add(companion)

    async def part(self, companion: DisconnectWatch) -> None:
        if companion.started:
            await companion.dismiss()
        else:
            self._connection.serving.companions.discard(companion)

    def at_drain(self, end: Callable[[], None]) -> None:
        self._connection.at_drain = end
        if self.draining.is_set():
            end()

    def _take(self) -> bytes:
        """Return the part of this request's body that has arrived. Raises `RequestRefused`."""
        connection = self._connection
        data = connection.buffer
        if self._chunks is None:
            left = self._left
            if len(data) <= left:
                connection.buffer = b""
            else:
                connection.buffer = data[left:]
                data = data[:left]
            self._left = left - len(data)
            self._body_ended = self._left == 0
            return data
        connection.buffer = b""
        try:
            content, connection.buffer, self._body_ended = self._chunks.feed(data)
        except MalformedChunks as problem:
            status = 431 if isinstance(problem, TooManyTrailers) else 400
            self._refusal = RequestRefused(status, str(problem))
            raise self._refusal from problem
        self._received += len(content)
        if self._received > connection.serving.limits.body_bytes:
            self._refusal = RequestRefused(413, "the request body is too large")
            raise self._refusal
        return content

    async def _pull(self) -> bool:
        """Wait for more of the body, within its deadline; return False when the peer will send no more."""
        connection = self._connection
        if self._wants_continue:
            self._wants_continue = False
            if not connection.sent:
                await connection.write(CONTINUE)
        if self._body_due == math.inf:
            self._body_due = trio.current_time() + connection.serving.limits.body_seconds
        connection.due_at(min(self._body_due, connection.serving.owed_by), answer=True)
        try:
            connection.buffer = await connection.read()
        finally:
            connection.deadline = math.inf
        if not connection.buffer:
            connection.gone = True
        return not connection.gone

    async def _discard(self) -> bool:
        """Read off the little that is left of a body nobody wanted; return whether the next request can follow."""
        try:
            while not self._body_ended:
                self._take()
                if not self._body_ended and not await self._pull():
                    return False
        except RequestRefused:
            return False
        return True

    # -- the response ------------------------------------------------------------------------------------------------

    async def answer(self, status: int, headers: Pairs, body: bytes) -> None:
        """Send all of it. `headers` say nothing of its length. Raises `Disconnected`."""
        connection = self._connection
        if self._ended or self._response is not None:
            raise BadResponse("a second response to one request")
        if connection.gone:
            raise Disconnected("the peer is gone")
        keep_alive = (
            self._head.keep_alive and not connection.serving.draining.is_set()
            if self._body_ended and self._refusal is None
            else self._may_keep_alive()
        )
        head, body, self._keep_alive = whole(
            status, headers, body, self._head, keep_alive=keep_alive, date=connection.serving.date
        )
        self.status = status
        self._ended = connection.sent = True
        if len(body) <= connection.serving.limits.write_piece_bytes:
            await connection.write(head + body)
        else:  # joining them would copy much
            await connection.write(head)
            await connection.write(body)

    async def start(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Begin a response whose body comes in pieces. Raises `Disconnected`."""
        connection = self._connection
        if self._ended or self._response is not None:
            raise BadResponse("a second response to one request")
        if connection.gone:
            raise Disconnected("the peer is gone")
        response = HttpResponse()
        head, body_follows = response.head(status, headers, self._head, keep_alive=self._may_keep_alive())
        self._response, self._keep_alive = response, response.keep_alive
        self.status = status
        if body_follows:
            self._held_back = head
        else:
            connection.sent = True
            await connection.write(head)

    async def piece(self, body: bytes, *, more: bool, yields: bool = True) -> None:
        """Send a piece, and wait as long as the peer does not read. `yields`: others have their turn before it returns. Raises `Disconnected`."""
        connection = self._connection
        response = self._response
        if response is None or self._ended:
            raise BadResponse("a body outside of a response")
        data = response.frame(body, more=more)
        if not more:
            self._ended = True
        if self._held_back:
            data = await self._with_head(data)
        if data:
            connection.sent = True
            await connection.write(data)
        elif connection.gone:
            raise Disconnected("the peer is gone")
        if more and yields:
            await trio.lowlevel.checkpoint()  # a producer that never waits must still be cancellable

    async def _with_head(self, data: bytes) -> bytes:
        """Return the bytes to send now that the head's body is here: both in one write, unless joining them would copy much."""
        head, self._held_back = self._held_back, b""
        connection = self._connection
        if len(data) <= connection.serving.limits.write_piece_bytes:
            return head + data
        connection.sent = True
        await connection.write(head)
        return data

    def _may_keep_alive(self) -> bool:
        """Say whether the rest of the request, if any, is short enough to be read off."""
        if (
            not self._head.keep_alive
            or self._refusal is not None
            or self._connection.serving.draining.is_set()
        ):
            return False
        if self._body_ended:
            return True
        small = self._chunks is None and self._left <= self._connection.serving.limits.discard_bytes
        return small and not self._wants_continue


def _is_expected(error: BaseException) -> bool:
    """Say whether an error is the peer's doing, not ours."""
    if isinstance(error, BaseExceptionGroup):
        return all(_is_expected(one) for one in cast("BaseExceptionGroup[BaseException]", error).exceptions)
    return isinstance(error, Disconnected | RequestRefused)
