"""One request and its response: the ASGI 3 side of a connection, `receive` and `send`, and what happens when either end fails.

The body is read only when the application asks. An application that streams and wants to know that its peer left runs a task
that waits for `http.disconnect` and cancels the rest; every other one learns it from `Disconnected`, which `send` raises.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, cast

import trio

from .body import ChunkedBody
from .head import CHUNKED, Head
from .refusal import Disconnected, Refused
from .response import CONTINUE, BadResponse, Response
from .serving import Message, Scope

if TYPE_CHECKING:
    from .connection import Connection

_ASGI: Final = {"version": "3.0", "spec_version": "2.4"}


class Cycle:
    __slots__ = (
        "_body_due", "_body_ended", "_chunks", "_connection", "_ended", "_given", "_head", "_held_back", "_left",
        "_received", "_refusal", "_request_id", "_response", "_wants_continue",
    )  # fmt: skip

    def __init__(self, connection: Connection, head: Head) -> None:
        """Raises `Refused` when the announced body is too large."""
        length = head.length
        limits = connection.serving.limits
        if length > limits.body_bytes:
            raise Refused(413, "the request body is too large")
        self._connection = connection
        self._head = head
        self._left = length
        self._chunks = ChunkedBody(limits.trailer_bytes) if length == CHUNKED else None
        self._received = 0
        self._body_ended = length == 0
        self._body_due = math.inf
        self._given = False  # the application has seen the end of the body
        self._wants_continue = head.expects_continue and length != 0
        self._refusal: Refused | None = None
        self._response: Response | None = None
        self._held_back = b""  # a head that waits for its body
        self._ended = False
        self._request_id = ""

    @property
    def peer_may_be_sending(self) -> bool:
        """Closing now could reset the connection before the peer has read its answer."""
        return not self._body_ended or bool(self._connection.buffer)

    async def run(self) -> bool:
        """Answer it. → whether the connection may carry a further request. Raises `Refused` when nothing was sent."""
        connection = self._connection
        serving = connection.serving
        serving.counters.requests += 1
        try:
            await serving.app(self._scope(), self.receive, self.send)
        except Exception as error:
            return self._failed(error)
        finally:
            if (
                connection.sent
                and not self._ended
                and self._response is not None
                and self._response.ends_by_close
            ):
                connection.cut = True
        if not connection.sent and not connection.gone:
            serving.counters.crashed += 1
            serving.log.error("http.no_response", request=self._request_id)
            raise Refused(500, "internal error")
        response = self._response
        if not self._ended or connection.gone or response is None or not response.keep_alive:
            return False
        return self._body_ended or await self._discard()

    def _scope(self) -> Scope:
        connection, head = self._connection, self._head
        serving = connection.serving
        self._request_id = f"{serving.boot_id}-{serving.sequence():x}"
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
            "state": {"request_id": self._request_id, "draining": serving.draining},
            "extensions": {},
        }

    def _failed(self, error: Exception) -> bool:
        connection = self._connection
        nothing_sent = not connection.sent and not connection.gone
        if self._refusal is not None and nothing_sent:
            raise self._refusal
        if not _is_expected(error):
            connection.serving.counters.crashed += 1
            connection.serving.log.error("http.app_failed", request=self._request_id, exc_info=error)
        if nothing_sent:
            raise Refused(500, "internal error")
        return False

    # -- ASGI receive ----------------------------------------------------------------------------------------------

    async def receive(self) -> dict[str, Any]:
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
                await (
                    trio.sleep_forever()
                )  # it pipelines far ahead: left unread, it is noticed when a write fails
            data = await connection.read()
            if not data:
                connection.gone = True
            connection.buffer += data
        return {"type": "http.disconnect"}

    def _take(self) -> bytes:
        """The part of this request's body that has arrived. Raises `Refused`."""
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
            self._received += len(content)
            if self._received > connection.serving.limits.body_bytes:
                raise Refused(413, "the request body is too large")
        except Refused as refusal:
            self._refusal = refusal
            raise
        return content

    async def _pull(self) -> bool:
        """Wait for more of the body, within its deadline. → False when the peer will send no more."""
        connection = self._connection
        if self._wants_continue:
            self._wants_continue = False
            if not connection.sent:
                await connection.write(CONTINUE)
        if self._body_due == math.inf:
            self._body_due = trio.current_time() + connection.serving.limits.body_seconds
        connection.due_at(self._body_due, answer=True)
        try:
            connection.buffer = await connection.read()
        finally:
            connection.deadline = math.inf
        if not connection.buffer:
            connection.gone = True
        return not connection.gone

    async def _discard(self) -> bool:
        """Read off the little that is left of a body nobody wanted. → whether the next request can follow."""
        try:
            while not self._body_ended:
                self._take()
                if not self._body_ended and not await self._pull():
                    return False
        except Refused:
            return False
        return True

    # -- ASGI send -------------------------------------------------------------------------------------------------

    async def send(self, message: Message) -> None:
        connection = self._connection
        kind = message["type"]
        if kind == "http.response.body":
            response = self._response
            if response is None or self._ended:
                raise BadResponse("a body outside of a response")
            more = message.get("more_body", False)
            data = response.frame(message.get("body", b""), more=more)
            if not more:
                self._ended = True
            if self._held_back:
                data = await self._with_head(data)
            if data:
                connection.sent = True
                await connection.write(data)
            elif connection.gone:
                raise Disconnected("the peer is gone")
            if more:
                await trio.lowlevel.checkpoint()  # a producer that never waits must still be cancellable
        elif kind == "http.response.start":
            if self._response is not None:
                raise BadResponse("a second response to one request")
            if connection.gone:
                raise Disconnected("the peer is gone")
            response = Response()
            head, body_follows = response.head(
                message["status"], message.get("headers", ()), self._head, keep_alive=self._may_keep_alive()
            )
            self._response = response
            if body_follows:
                self._held_back = head
            else:
                connection.sent = True
                await connection.write(head)
        else:
            raise BadResponse("an ASGI message that was not offered")

    async def _with_head(self, data: bytes) -> bytes:
        """What is to be sent now that the head's body is here: both in one write, unless joining them would copy much."""
        head, self._held_back = self._held_back, b""
        connection = self._connection
        if len(data) <= connection.serving.limits.write_piece_bytes:
            return head + data
        connection.sent = True
        await connection.write(head)
        return data

    def _may_keep_alive(self) -> bool:
        """Whether the rest of the request, if any, is short enough to be read off."""
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
    """The peer's doing, not ours."""
    if isinstance(error, BaseExceptionGroup):
        return all(_is_expected(one) for one in cast("BaseExceptionGroup[BaseException]", error).exceptions)
    return isinstance(error, Disconnected | Refused)
