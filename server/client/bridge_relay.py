"""The relay of an HTTP response to a bridge's client, as lines: all in order, and one answer for each id, whatever the server does.

Both eras of MCP use it. The requests are made in bridge_modern.py and bridge_session.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from shlex import quote
from typing import Any

import msgspec

from server.client.bridge_messages import BridgedRequest, answer_rest, answered, decode, is_answer, one_line
from server.client.carrier import Carrier, body_of, hear, is_stream, lacks_scope
from server.client.client_errors import BadAnswer
from server.client.http_exchange import MAX_RETRY_AFTER_SECONDS
from server.client.stdio_lines import Write
from server.lib.http_client.fetch import UpstreamAnswer
from server.lib.json_objects import mapping
from server.lib.server_sent_events import EventDecoder

OnAnswer = Callable[[Mapping[str, Any]], None]
# Returns the answer that the client receives in place of the server's; None: none yet, because the server is asked once more.
Revise = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any] | None]]


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """The times that a bridge waits for things. A client has its own, shorter ones: it cancels its request when they are over."""

    # Not a byte of an answer, nor a sign of life: the connection is dead. Tools may think for minutes in silence.
    answer_seconds: float = 600.0
    # The same for streams on which nothing may happen for long: their server should send comments, not all do.
    stream_seconds: float = 3600.0
    # Notifications and answers to the server are accepted at once, or not at all.
    telling_seconds: float = 30.0
    # Before a stream is opened again, unless the server named a time; doubled each time, up to the second figure.
    reconnect_seconds: float = 1.0
    reconnect_at_most_seconds: float = 30.0
    # After the end of stdin. Who pipes requests in wants their answers, who ends a session waits two seconds (the
    # official SDKs, before SIGTERM) and is not made to wait: the signal ends us at once.
    drain_seconds: float = 5.0
    # Ending a session is a courtesy.
    farewell_seconds: float = 2.0

    def pause(self, retry_millis: int | None, attempt: int) -> float:
        """Return the seconds to wait before a stream is opened for the `attempt`-th time (from 0) since anything came."""
        wished = self.reconnect_seconds if retry_millis is None else retry_millis / 1000
        wished = min(wished, MAX_RETRY_AFTER_SECONDS)
        backed_off = self.reconnect_seconds * 2 ** min(attempt, 16) if attempt else 0.0
        return min(max(wished, backed_off), max(self.reconnect_at_most_seconds, wished))


class Relay:
    """The relay of everything that the server sends back for one request, or for one batch."""

    def __init__(
        self,
        asking: BridgedRequest,
        carrier: Carrier,
        write: Write,
        on_answer: OnAnswer | None = None,
        *,
        revise: Revise | None = None,
    ) -> None:
        """Create the relay of a request or a batch; `revise` may be given for a single request only."""
        self._asking = asking
        self._carrier = carrier
        self._write = write
        self._on_answer = on_answer
        self._revise = revise

    async def hear(self, response: UpstreamAnswer, decoder: EventDecoder) -> bool:
        """Relay a successful response until all is answered. Return False if its stream ended before that."""
        if await hear(response, self.take, decoder):
            return True
        if is_stream(response):
            return False
        raise BadAnswer(
            f"{self._carrier.host} answers with status {response.status} and no result",
            hint=f"is this an MCP server? `ostiary doctor {quote(self._carrier.url)}` looks closer",
        )

    async def take(self, data: bytes) -> bool:
        message = decode(data)
        if not isinstance(message, dict | list):
            return False  # a priming event, or noise
        if not self._asking.batch and is_unaddressed(message):
            return await self.refuse(mapping(message))
        found = answered(message, self._asking.left)
        if found and self._on_answer is not None:
            self._on_answer(mapping(message))
        if found and self._revise is not None:
            revised = await self._revise(mapping(message))
            if revised is None:
                return True
            if revised is not message:
                data = msgspec.json.encode(revised)
        self._asking.left.difference_update(found)
        await self._write(one_line(data))
        return not self._asking.left

    async def refuse(self, message: Mapping[str, Any]) -> bool:
        """Answer every id that has no answer yet with this one refusal. Return True: all is answered then."""
        await self._write(answer_rest(self._asking, message))
        return True


async def refusal(response: UpstreamAnswer, carrier: Carrier) -> Mapping[str, Any]:
    """Return the JSON-RPC answer in an HTTP error. Without one, or if a scope is lacking, raise the error that the status means."""
    if not lacks_scope(response):
        message = decode(await body_of(response))
        if isinstance(message, dict) and is_answer(mapping(message)):
            return mapping(message)
    raise carrier.problem(response)


def is_unaddressed(message: Any) -> bool:
    fields = mapping(message)
    return bool(fields) and is_answer(fields) and fields.get("id") is None
