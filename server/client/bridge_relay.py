"""The relay of what a server sends back to a bridge's client, as lines: all in order, and one answer for each id, whatever the server does.

Both eras of MCP use it. The requests are made in bridge_modern.py and bridge_session.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

import msgspec

from server.client.bridge_messages import BridgedRequest, answer_rest, answered, decode, is_answer, one_line
from server.client.carrier import Carrier, lacks_scope
from server.client.login_wire import LoginWire
from server.client.mcp_session.http_wire import refusal_in
from server.client.mcp_session.session_messages import ServerRefusal
from server.client.mcp_session.session_request import SessionRequest
from server.client.stdio_lines import Write
from server.lib.http_client.fetch import UpstreamAnswer
from server.lib.json_objects import mapping
from server.mcp.call_failures import BackendError

T = TypeVar("T")
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
    # After the end of stdin. Who pipes requests in wants their answers, who ends a session waits two seconds (the
    # official SDKs, before SIGTERM) and is not made to wait: the signal ends us at once.
    drain_seconds: float = 5.0
    # A last line to a client that may not be reading.
    farewell_seconds: float = 2.0


class BridgeWire(LoginWire):
    """The HTTP of a bridge: as long as its client has patience, and a refusal in JSON-RPC goes to the client whatever its status."""

    def __init__(self, carrier: Carrier, patience: Patience) -> None:
        super().__init__(carrier)
        self._patience = patience

    async def ask(
        self,
        message: bytes,
        headers: bytes,
        call: SessionRequest | None,
        read: Callable[[UpstreamAnswer], Awaitable[T]],
    ) -> T:
        seconds = self._patience.answer_seconds
        async with self._carrier.open("POST", body=message, lines=headers, silence_seconds=seconds) as answer:
            return await read(answer)

    def post(
        self, message: bytes, headers: bytes, call: SessionRequest | None
    ) -> AbstractAsyncContextManager[UpstreamAnswer]:
        seconds = self._patience.telling_seconds
        return self._carrier.open("POST", body=message, lines=headers, silence_seconds=seconds)

    def stream(
        self, message: bytes | None, headers: bytes, call: SessionRequest | None
    ) -> AbstractAsyncContextManager[UpstreamAnswer]:
        method, seconds = "GET" if message is None else "POST", self._patience.stream_seconds
        return self._carrier.open(method, body=message or b"", lines=headers, silence_seconds=seconds)

    def problem(self, answer: UpstreamAnswer, body: bytes = b"") -> BackendError | ServerRefusal:
        refusal = None if lacks_scope(answer) else refusal_in(body)
        return refusal or self._carrier.problem(answer)


class Relay:
    """The relay of everything that the server sends back for one request, or for one batch."""

    def __init__(
        self,
        asking: BridgedRequest,
        write: Write,
        on_answer: OnAnswer | None = None,
        *,
        revise: Revise | None = None,
    ) -> None:
        """Create the relay of a request or a batch; `revise` may be given for a single request only."""
        self._asking = asking
        self._write = write
        self._on_answer = on_answer
        self._revise = revise

    async def take(self, data: bytes) -> bool | None:
        """Relay one message. Return True if all is answered, else None."""
        message = decode(data)
        if not isinstance(message, dict | list):
            return None  # a priming event, or noise
        fields = mapping(message)
        if not self._asking.batch and is_answer(fields) and fields.get("id") is None:
            return await self.refuse(fields)
        found = answered(message, self._asking.left)
        if found and self._on_answer is not None:
            self._on_answer(fields)
        if found and self._revise is not None:
            revised = await self._revise(fields)
            if revised is None:
                return True
            if revised is not message:
                data = msgspec.json.encode(revised)
        self._asking.left.difference_update(found)
        await self._write(one_line(data))
        return None if self._asking.left else True

    async def refuse(self, message: Mapping[str, Any]) -> bool:
        """Answer every id that has no answer yet with this one refusal. Return True: all is answered then."""
        await self._write(answer_rest(self._asking, message))
        return True

    async def refused(self, refusal: ServerRefusal) -> None:
        """Answer with a refusal that came with a bad status."""
        await self.refuse({"jsonrpc": "2.0", "error": refusal.raw})
