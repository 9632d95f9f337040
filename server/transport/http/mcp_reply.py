"""One answer on `/mcp`: JSON by default, an event stream from the first event on, and the headers that every answer has.

What is answered is decided elsewhere; a status can be chosen until the first byte is out, which is the first event.
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from server.mcp.errors import WIRE, McpError, ServerStopping
from server.mcp.messages import RequestId
from server.mcp.result_encoding import encode_error
from server.mcp.versions import REVISIONS, Revision
from server.transport.http.handler import Cycle, Pairs

KEEP_ALIVE: Final = b": keep-alive\n\n"
EXPOSED: Final = b", ".join(
    (
        b"WWW-Authenticate",
        b"DPoP-Nonce",
        b"Mcp-Session-Id",
        b"MCP-Protocol-Version",
        b"Retry-After",
        b"PAYMENT-REQUIRED",
        b"PAYMENT-RESPONSE",
        b"X-PAYMENT-RESPONSE",
        b"X-x402-Idempotent",
    )
)
_JSON_HEADERS: Final = MappingProxyType(
    {
        version: (
            (b"content-type", b"application/json"),
            (b"cache-control", b"no-store"),
            (b"mcp-protocol-version", version.encode()),
        )
        for version in REVISIONS
    }
)
_STREAM_HEADERS: Final = MappingProxyType(
    {
        version: (
            (b"content-type", b"text/event-stream"),
            (b"cache-control", b"no-cache, no-transform"),
            (b"x-accel-buffering", b"no"),
            (b"mcp-protocol-version", version.encode()),
        )
        for version in REVISIONS
    }
)


# No client's Accept is longer; what comes after is not read.
_MAX_ACCEPT: Final = 512


def frame(message: bytes, event_id: str | None = None) -> bytes:
    """One JSON text, which has no line breaks, as one server-sent event (basic/transports/streamable-http, 2026-07-28)."""
    if event_id is None:
        return b"data: %s\n\n" % message
    return b"id: %s\ndata: %s\n\n" % (event_id.encode(), message)


def accepted(header: bytes | None) -> tuple[bool, bool]:
    """Whether the client takes JSON, and whether it takes an event stream. No header is both, as HTTP has it."""
    return _accepted(header[:_MAX_ACCEPT]) if header and header.strip() else (True, True)


@lru_cache(maxsize=128)
def _accepted(header: bytes) -> tuple[bool, bool]:
    takes_json = takes_events = False
    for part in header.lower().split(b","):
        media_range, *parameters = (piece.strip() for piece in part.split(b";"))
        if any(_is_zero(parameter) for parameter in parameters):
            continue
        takes_json = takes_json or media_range in (b"application/json", b"application/*", b"*/*")
        takes_events = takes_events or media_range in (b"text/event-stream", b"text/*", b"*/*")
    return takes_json, takes_events


def _is_zero(parameter: bytes) -> bool:
    name, _, value = parameter.partition(b"=")
    return name.strip() == b"q" and not value.strip().strip(b"0.")


class McpReply:
    """Of one request. `revision` is set as soon as it is known. A caller who has left is no error of the last write: there is
    nobody to answer, and nothing more to do."""

    __slots__ = (
        "_cors",
        "_cycle",
        "_ended",
        "opening",
        "revision",
        "streaming",
        "takes_events",
        "takes_json",
        "written",
    )

    def __init__(
        self, cycle: Cycle, *, takes_json: bool, takes_events: bool, cors: bytes | None, revision: Revision
    ) -> None:
        """`cors` is for Access-Control-Allow-Origin; None without an Origin header."""
        self._cycle = cycle
        self._cors = cors
        self._ended = False
        self.streaming = False
        self.written = False  # the answer, whole
        self.revision = revision
        self.opening = b""  # what a stream begins with
        self.takes_json: Final = takes_json
        self.takes_events: Final = takes_events

    async def finish(self, status: int, body: bytes, extra: Pairs = ()) -> None:
        """The whole answer, or the last event of the stream that was opened meanwhile."""
        if self._ended:
            return
        self._ended = True
        try:
            if self.streaming:
                await self._cycle.piece(frame(body), more=False)
            elif status == 200 and not self.takes_json:
                # A client that takes nothing but event streams gets its one answer as the only event.
                headers = _stream_headers(self.revision.version, self._cors)
                await self._cycle.answer(status, headers + extra, frame(body))
            else:
                headers = _json_headers(self.revision.version, self._cors)
                await self._cycle.answer(status, headers + extra, body)
        except OSError:
            return
        self.written = True

    async def empty(self, status: int, extra: Pairs = ()) -> None:
        if self._ended:
            return
        self._ended = True
        headers = (
            (b"mcp-protocol-version", self.revision.version.encode()),
            *extra,
            *cors_headers(self._cors),
        )
        with suppress(OSError):
            await self._cycle.answer(status, headers, b"")

    async def refuse(
        self,
        error: McpError,
        request_id: RequestId | None = None,
        *,
        status: int | None = None,
        extra: Pairs = (),
    ) -> None:
        """A JSON-RPC error; its status is the table's, unless HTTP has its own for it."""
        body = encode_error(request_id, error, self.revision)
        await self.finish(status or status_of(error, self.revision), body, extra)

    async def tell_stopping(self, request_id: RequestId | None) -> None:
        """The server goes, and does not wait for what would be the answer."""
        await self.refuse(ServerStopping(), request_id)

    async def event(self, message: bytes) -> None:
        """Dropped for a client that takes no streams."""
        await self.push(frame(message))

    async def ping(self) -> None:
        """A sign of life. It opens the stream, since a proxy closes what stays silent for a minute."""
        await self.push(KEEP_ALIVE)

    async def push(self, framed: bytes, *, more: bool = True, yields: bool = True) -> None:
        """A piece of the stream as it is, the last one unless `more`. The first piece opens the stream. `yields`: as of `Cycle.piece`."""
        if not self.streaming:
            if not self.takes_events:
                return
            self.streaming = True
            await self._cycle.start(200, _stream_headers(self.revision.version, self._cors))
            framed = self.opening + framed
        await self._cycle.piece(framed, more=more, yields=yields)

    async def close(self, last: bytes = b"") -> None:
        """The end of a stream that has no answer, or not on this connection; it is opened for `last` if need be."""
        if self.takes_events and not self._ended:
            self._ended = True
            with suppress(OSError):
                await self.push(last, more=False)


# The handful of heads that good answers have, for each page that may call.
@lru_cache(maxsize=64)
def _json_headers(version: str, cors: bytes | None) -> Pairs:
    return (*_JSON_HEADERS[version], *cors_headers(cors))


@lru_cache(maxsize=64)
def _stream_headers(version: str, cors: bytes | None) -> Pairs:
    return (*_STREAM_HEADERS[version], *cors_headers(cors))


def cors_headers(origin: bytes | None) -> Pairs:
    if origin is None:
        return ()
    return (
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", EXPOSED),
        (b"vary", b"origin"),
    )


def status_of(error: McpError, revision: Revision) -> int:
    row = WIRE[type(error)]
    return row.modern if revision.modern else row.legacy
