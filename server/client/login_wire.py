"""The HTTP of a session that the terminal has with one server: sent with its login, and refused in its words."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from server.client.carrier import Carrier
from server.client.mcp_session.http_wire import STREAM_BYTES, HttpWire, refusal_in, same_origin
from server.client.mcp_session.session_messages import ServerRefusal
from server.client.mcp_session.session_request import SessionRequest
from server.lib.http_client.fetch import UpstreamAnswer
from server.mcp.call_failures import BackendError


class LoginWire(HttpWire):
    """An `HttpWire` over a `Carrier`."""

    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier

    def post(
        self, message: bytes, headers: bytes, call: SessionRequest | None
    ) -> AbstractAsyncContextManager[UpstreamAnswer]:
        return self._carrier.open("POST", body=message, lines=headers, limit=STREAM_BYTES)

    def stream(
        self, message: bytes | None, headers: bytes, call: SessionRequest | None
    ) -> AbstractAsyncContextManager[UpstreamAnswer]:
        method = "GET" if message is None else "POST"
        return self._carrier.open(method, body=message or b"", lines=headers)

    async def delete(self, headers: bytes, call: SessionRequest | None) -> None:
        async with self._carrier.open("DELETE", lines=headers):
            return

    def problem(self, answer: UpstreamAnswer, body: bytes = b"") -> BackendError | ServerRefusal:
        refusal = None if _is_final(answer.status) else refusal_in(body)
        return refusal or self._carrier.problem(answer)

    def elsewhere(self, target: str) -> LoginWire:
        """Return the wire to another address of this origin, as the server named it. Raises `ValueError`."""
        return LoginWire(self._carrier.at(same_origin(self._carrier.url, target)))


def _is_final(status: int) -> bool:
    """Return whether a status says enough, whatever the body says: it is none by which an era is found out."""
    return 300 <= status < 400 or status in (402, 403, 413, 429) or status >= 500
