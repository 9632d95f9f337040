"""What answers at an MCP endpoint, as an ASGI application: for a client in memory (tests/pair.py), without a connection.

What a connection does for a request (server/transport/http/request_cycle.py) is done here in the simplest way; that both do the same is the interaction
tests' to see, which run over sockets as well.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import trio

from auth.tokens.presented_credentials import Presentation
from auth.values.identity_model import Principal
from server.transport.admission.bearer_check import EntryRefusal
from server.transport.http.disconnect_watch import DisconnectWatch
from server.transport.http.handler import Address, Pairs, Resolve

Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]


class AsgiCycle:
    """Implements `server.transport.http.handler.Cycle`."""

    def __init__(self, scope: Mapping[str, Any], receive: Receive, send: Send, nursery: trio.Nursery) -> None:
        self.request_id: str = scope["state"]["request_id"]
        self.client: Address | None = scope.get("client")
        self.draining: trio.Event = scope["state"]["draining"]
        self.last_word: Callable[[], Awaitable[None]] | None = None
        self.status = 0
        self._receive = receive
        self.running = trio.CancelScope()
        self._send = send
        self._nursery = nursery

    @property
    def now(self) -> float:
        return trio.current_time()

    def arrived(self) -> bytes | None:
        return None

    async def receive(self) -> Mapping[str, Any]:
        return await self._receive()

    async def wait_gone(self) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass

    def has_left(self) -> bool:
        return False

    async def answer(self, status: int, headers: Pairs, body: bytes) -> None:
        length = () if status == 204 else ((b"content-length", b"%d" % len(body)),)
        await self.start(status, (*headers, *length))
        await self.piece(body, more=False)

    async def start(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self.status = status
        await self._send({"type": "http.response.start", "status": status, "headers": list(headers)})

    async def piece(self, body: bytes, *, more: bool, yields: bool = True) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": more})

    def when_heard_of(self, call: Callable[[], None] | None) -> None:
        """Nobody sends a second request here."""

    def abandon(self) -> None:
        self.running.cancel()

    def attend(self, companion: DisconnectWatch) -> None:
        companion.prepare()
        self._nursery.start_soon(companion.run)

    async def part(self, companion: DisconnectWatch) -> None:
        await companion.dismiss()

    def at_drain(self, end: Callable[[], None]) -> None:
        async def wait() -> None:
            await self.draining.wait()
            end()

        if self.draining.is_set():
            end()
        else:
            self._nursery.start_soon(wait)


def asgi(resolve: Resolve) -> Callable[[Any, Any, Any], Awaitable[None]]:
    async def app(scope: Any, receive: Receive, send: Send) -> None:
        failed: Exception | None = None
        async with trio.open_nursery() as nursery:
            cycle = AsgiCycle(scope, receive, send, nursery)
            with cycle.running:
                try:
                    await resolve(scope).answer(cycle)
                except Exception as error:
                    failed = error
            nursery.cancel_scope.cancel()
        if failed is not None:
            raise failed

    return app


class FakeDoorkeeper:
    """Asks `authenticate` of every request, so that a test can put another in its place."""

    def __init__(
        self,
        authenticate: Callable[[Presentation], Awaitable[Principal | EntryRefusal]],
        forbid: Callable[[frozenset[str], frozenset[str], Presentation], EntryRefusal],
    ) -> None:
        self.authenticate = authenticate
        self.forbid = forbid

    def who_nowait(self, shown: Presentation) -> Principal | EntryRefusal | None:
        return None
