"""One HTTP/1.1 connection that we made: a request goes out, its answer comes in, one exchange after the other.

The form of an answer's head is in response_head.py, that of chunked bodies in server/lib/chunked_body.py; a connection is made in dialing.py,
and used again by pool.py. There are no cookies, redirects or caches here to switch off, nothing is
sent twice, and no timer runs: whoever asks bounds the exchange. Cancelled anywhere, a connection is not `reusable`. RFC 9112.
"""

from __future__ import annotations

import math

import trio

from server.lib.chunked_body import OF_ANSWERS, ChunkedBody, MalformedChunks
from server.lib.http_client.failures import BrokenOff, FetchFailed, NotHttp, Silent, TooLarge
from server.lib.http_client.response_head import (
    CHUNKED,
    HEAD_BYTES,
    HEAD_END,
    UNTIL_CLOSE,
    ResponseHead,
    read_response_head,
    refuse_unfinished_head,
)
from server.lib.http_client.tls_stream import TlsStream
from server.lib.http_client.upstream_socket import UpstreamSocket

# The kernel takes this much for an idle connection, whatever the system: nothing has to be read meanwhile.
AT_ONCE_BYTES = 16 * 1024
# A checksum or a signature has some hundred bytes.
TRAILER_BYTES = 8 * 1024


class UpstreamConnection:
    """A connection for one exchange after the other: `begin`, then `part` until `complete`. Its owner closes it."""

    __slots__ = (
        "_buffer", "_chunks", "_keep_alive", "_left", "_most", "_passed", "_searched", "_sent", "_stream", "complete", "expires_at", "reusable",
        "silence_seconds",
    )  # fmt: skip

    def __init__(self, stream: UpstreamSocket | TlsStream, *, most: float = math.inf) -> None:
        """Take the stream over; `most` bytes may come over it, heads and all."""
        self._stream = stream
        self._most = most
        self._buffer = b""
        self._chunks = ChunkedBody(OF_ANSWERS, TRAILER_BYTES)
        self._left = 0  # of the body: bytes, CHUNKED or UNTIL_CLOSE
        self._searched = self._passed = (
            0  # of the head: bytes without its end, and of interim answers before it
        )
        self._keep_alive = False
        self._sent = True
        self.complete = True  # the answer was read to its end
        self.reusable = False  # and both sides know where the next one begins
        self.expires_at = math.inf  # for the pool
        self.silence_seconds = math.inf  # that the next bytes may take

    async def begin(self, request: bytes) -> ResponseHead:
        """Send the request and return the head of its final answer. Raises `FetchFailed`."""
        self.complete = self.reusable = self._sent = False
        self._buffer, self._searched, self._passed = b"", 0, 0
        if len(request) > AT_ONCE_BYTES:
            return await self._head_while_sending(request)
        try:
            await self._stream.send_all(request)
            self._sent = True
        except trio.BrokenResourceError:
            pass  # it may have answered before it hung up
        return self._parsed(await self._receive()) or await self._head()

    async def part(self) -> bytes:
        """Return more of the body, b"" at its end. Raises `FetchFailed`."""
        data, self._buffer = self._buffer, b""
        while not self.complete:
            if not data:
                data = await self._receive()
            left = self._left
            if not data:
                self.complete = True
            elif left >= 0:
                if len(data) < left:
                    self._left = left - len(data)
                    return data
                self._end(followed=len(data) > left)
                return data[:left]
            elif left == CHUNKED:
                try:
                    content, rest, ended = self._chunks.feed(data)
                except MalformedChunks as problem:
                    raise NotHttp from problem
                if ended:
                    self._end(followed=bool(rest))
                if content:
                    return content
                data = b""
            else:
                return data
        return b""

    def is_quiet(self) -> bool:
        """Return whether it is there, and nothing has come that nobody asked for."""
        return self._stream.is_quiet()

    @property
    def followed(self) -> bool:
        """Say whether something came with the head that was read last."""
        return bool(self._buffer)

    def close(self) -> None:
        """Close at once. In the middle of an exchange this is how the other side learns that nobody waits any more."""
        if self.complete and self._sent:
            self._stream.say_goodbye()
        self._stream.close()

    async def _head(self) -> ResponseHead:
        """Return the head of the final answer, of which nothing, or a beginning, has come."""
        while True:
            head = self._parsed(await self._receive())
            if head is not None:
                return head

    def _parsed(self, data: bytes) -> ResponseHead | None:
        """Return the head of the final answer, if it has come with `data`."""
        buffer = self._buffer + data if self._buffer else data
        searched = self._searched
        while True:
            end = HEAD_END.search(buffer, searched)
            if end is None:
                refuse_unfinished_head(buffer)
                self._searched = max(0, len(buffer) - 2)
                self._buffer = buffer
                return None
            size = end.end()
            self._passed += size
            if self._passed > HEAD_BYTES:
                raise NotHttp
            head = read_response_head(buffer[:size])
            buffer = buffer[size:]
            if head.status >= 200:
                break
            if head.status == 101:  # nobody asked to speak anything else
                raise NotHttp
            searched = 0
        self._left = head.length
        self._keep_alive = head.keep_alive
        self._buffer = buffer
        if head.length == 0:
            self._end(followed=bool(buffer))
        elif head.length == CHUNKED:
            self._chunks = ChunkedBody(OF_ANSWERS, TRAILER_BYTES)
        return head

    async def _head_while_sending(self, request: bytes) -> ResponseHead:
        """Send a long request and return the head of its answer, which may come first (§9.5).

        A refusal makes the rest of the request useless. Any other answer may have begun early, and still wait for the rest."""
        head: ResponseHead | None = None
        failure: FetchFailed | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._send, request)
            try:
                head = await self._head()
            except FetchFailed as problem:  # not out of the nursery, which would make a group of it
                failure = problem
            if head is None or head.status >= 400:
                nursery.cancel_scope.cancel()
        if head is None:
            raise failure or BrokenOff
        return head

    async def _send(self, request: bytes) -> None:
        try:
            await self._stream.send_all(request)
            self._sent = True
        except trio.BrokenResourceError:
            pass  # as in `begin`

    async def _receive(self) -> bytes:
        """Return more bytes; b"" only where the answer ends with the connection."""
        try:
            if self.silence_seconds == math.inf:
                data = await self._stream.receive_some()
            else:
                with trio.fail_after(self.silence_seconds):
                    data = await self._stream.receive_some()
        except trio.TooSlowError:
            raise Silent from None
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise BrokenOff from error
        if not data and self._left != UNTIL_CLOSE:
            raise BrokenOff
        self._most -= len(data)
        if self._most < 0:
            raise TooLarge("answered with more than anybody needs")
        return data

    def _end(self, *, followed: bool) -> None:
        """Note the end of the answer. `followed`: more came than was announced, so the next answer could begin anywhere."""
        self._left = 0
        self.complete = True
        self.reusable = self._keep_alive and self._sent and not followed
