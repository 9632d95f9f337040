"""The HTTP transport of 2024-11-05 as one stream of messages: what is said goes out as POSTs to an address that the server names
on a GET, on which everything comes back. Spec: 2024-11-05 basic/transports, "HTTP with SSE".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import trio

from server.client.mcp_session.http_sessions import HttpSession, say_in
from server.client.mcp_session.http_wire import HttpWire, is_stream
from server.client.mcp_session.session_messages import NoMcpServer, ServerGone, said_too_much
from server.client.mcp_session.session_request import SessionRequest
from server.lib.server_sent_events import EventDecoder, EventTooLarge
from server.mcp.call_failures import BackendError

WAITING: Final = 64
ENDPOINT_CHARACTERS: Final = 2048


class SseStream:
    """Stream of one caller, with that caller's credential, or ours. `run` holds the GET."""

    def __init__(self, wire: HttpWire, call: SessionRequest | None) -> None:
        """Keep the parts. `call`: whose stream it is; None: ours."""
        self.most = wire.most
        self._wire = wire
        self._call = call
        self._target: HttpWire | None = None
        self._found = trio.Event()
        self._put, self._got = trio.open_memory_channel[Sequence[bytes]](0)
        self._say, self._said = trio.open_memory_channel[bytes](WAITING)
        self._over: BackendError | None = None

    async def run(self) -> None:
        with self._put:
            async with trio.open_nursery() as nursery:

                async def until_over(half: Callable[[], Awaitable[None]]) -> None:
                    try:
                        await half()
                    except BackendError as error:
                        self._over = self._over or error
                    nursery.cancel_scope.cancel()

                # A message that does not get there has no answer, so the stream ends with either half.
                nursery.start_soon(until_over, self._post_what_waits)
                nursery.start_soon(until_over, self._listen)

    def send_nowait(self, message: bytes) -> bool:
        try:
            self._say.send_nowait(message)
        except trio.WouldBlock:
            return False
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return True
        return True

    async def send(self, message: bytes) -> None:
        try:
            await self._say.send(message)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return

    async def receive(self) -> Sequence[bytes]:
        try:
            return await self._got.receive()
        except trio.EndOfChannel:
            raise self._over or ServerGone("ended the stream that it answers on") from None

    async def aclose(self) -> None:
        self._say.close()
        if self._target is not None:
            await self._target.aclose()

    async def _listen(self) -> None:
        async with self._wire.stream(None, b"", self._call) as answer:
            if not is_stream(answer):
                raise NoMcpServer(f"has no MCP endpoint there (status {answer.status})")
            decoder = EventDecoder(limit=self.most)
            try:
                while chunk := await answer.part():
                    messages = decoder.feed(chunk)
                    if decoder.endpoint is not None and self._target is None:
                        self._target = self._elsewhere(decoder.endpoint)
                        self._found.set()
                    if messages:
                        await self._put.send(messages)
            except EventTooLarge as error:
                raise said_too_much(self.most) from error

    def _elsewhere(self, endpoint: bytes) -> HttpWire:
        try:
            target = endpoint.decode("ascii")
            if len(target) > ENDPOINT_CHARACTERS:
                raise ValueError("is too long")
            return self._wire.elsewhere(target)
        except ValueError:
            raise NoMcpServer("names an address for messages that is not its own") from None

    async def _post_what_waits(self) -> None:
        await self._found.wait()
        assert self._target is not None
        async for message in self._said:
            # In order: what begins a session comes before what uses it.
            await say_in(self._target, HttpSession(None, b""), message, self._call)
