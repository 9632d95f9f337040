"""The HTTP of a session that the terminal has with one server: sent with its login, and refused in its words."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from server.client.carrier import Carrier
from server.client.mcp_session.http_wire import STREAM_BYTES
from server.client.mcp_session.session_request import SessionRequest
from server.lib.http_client.fetch import UpstreamAnswer

T = TypeVar("T")


class LoginWire:
    """An `HttpWire` over a `Carrier`."""

    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier

    async def ask(
        self,
        message: bytes,
        headers: bytes,
        call: SessionRequest | None,
        read: Callable[[UpstreamAnswer], Awaitable[T]],
    ) -> T:
        async with self.post(message, headers, call) as answer:
            return await read(answer)

    @asynccontextmanager
    async def post(
        self, message: bytes, headers: bytes, call: SessionRequest | None
    ) -> AsyncGenerator[UpstreamAnswer]:
        async with self._carrier.open("POST", body=message, lines=headers, limit=STREAM_BYTES) as answer:
            if _is_final(answer.status):
                raise self._carrier.problem(answer)
            yield answer

    @asynccontextmanager
    async def stream(
        self, message: bytes | None, headers: bytes, call: SessionRequest | None
    ) -> AsyncGenerator[UpstreamAnswer]:
        method = "GET" if message is None else "POST"
        async with self._carrier.open(method, body=message or b"", lines=headers) as answer:
            yield answer

    async def delete(self, headers: bytes, call: SessionRequest | None) -> None:
        async with self._carrier.open("DELETE", lines=headers):
            return

    def elsewhere(self, target: str) -> LoginWire:
        """Refuse: a login is shown at no other address than the one that was typed."""
        raise ValueError("names an address at another place")

    async def aclose(self) -> None:
        """Do nothing: the client is closed by whoever opened it."""


def _is_final(status: int) -> bool:
    """Return whether a status says enough, whatever the body says: it is none by which an era is found out."""
    return 300 <= status < 400 or status in (402, 403, 413, 429) or status >= 500
