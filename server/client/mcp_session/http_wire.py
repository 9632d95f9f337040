"""HTTP as a session needs it: who sends and receives, and what a status means that says nothing in JSON-RPC.

The gateway's HTTP is in credential_wire.py, the terminal's in login_wire.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol, TypeVar

from server.client.mcp_session.session_request import SessionRequest
from server.client.mcp_session.upstream_messages import (
    MESSAGE_BYTES,
    Answered,
    UpstreamAway,
    UpstreamFailure,
    UpstreamRefusal,
    outcome,
    read_message,
)
from server.lib.http_client.fetch import UpstreamAnswer, header_line

T = TypeVar("T")

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
# One answer as a stream, with all that is told before it.
STREAM_BYTES: Final = 4 * MESSAGE_BYTES
# What is told unasked may go on for as long as the upstream lives.
ENDLESS_BYTES: Final = 1 << 62
ERROR_BYTES: Final = 64 * 1024


class HttpWire(Protocol):
    """The HTTP of one upstream, with a credential and in the words of whoever asks. `call` None: the request is our own.

    Failures are `BackendError`s, `UpstreamGone` and `NotReached` among them, also out of reading the body.
    """

    async def ask(
        self,
        message: bytes,
        headers: bytes,
        call: SessionRequest | None,
        read: Callable[[UpstreamAnswer], Awaitable[T]],
    ) -> T:
        """Return what `read` makes of the answer to this message. Raises what the block of `post` raises; every call goes this way, which
        takes fewer steps."""
        ...

    def post(
        self, message: bytes, headers: bytes, call: SessionRequest | None
    ) -> AbstractAsyncContextManager[UpstreamAnswer]: ...

    def stream(
        self, message: bytes | None, headers: bytes, call: SessionRequest | None
    ) -> AbstractAsyncContextManager[UpstreamAnswer]:
        """Open a stream that lasts: a GET, or a POST of this message."""
        ...

    async def delete(self, headers: bytes, call: SessionRequest | None) -> None: ...

    def elsewhere(self, target: str) -> HttpWire:
        """Return the wire to another address of this origin, as the upstream named it. Raises `ValueError`."""
        ...

    async def aclose(self) -> None: ...


class UpstreamNotLetIn(UpstreamFailure):
    """An upstream that wants another credential than it was shown."""


class UpstreamSessionLost(Exception):
    """A session that the upstream does not know any more: nothing was done."""


class NotReached(UpstreamAway):
    """An upstream that could not be reached: nothing was sent."""

    def __init__(self, text: str, *, busy: bool = False) -> None:
        super().__init__(text)
        self.busy = busy  # of our own making: as many calls run as may


async def refusal_in(answer: UpstreamAnswer) -> UpstreamRefusal | None:
    """Return the JSON-RPC error in the body of an answer with a bad status, if there is one."""
    body = await answer.beginning(ERROR_BYTES)
    message = read_message(body) if body[:1] == b"{" else None
    if not isinstance(message, Answered) or message.error is None:
        return None
    found = outcome(message)
    return found if isinstance(found, UpstreamRefusal) else None


def status_problem(status: int) -> UpstreamFailure:
    if status in (429, 503):
        return UpstreamFailure(f"is busy (status {status})")
    if 300 <= status < 400:
        return UpstreamFailure("redirects: the settings must name the address that it redirects to")
    if status == 403:
        return UpstreamNotLetIn("does not allow this (status 403)")
    return UpstreamFailure(f"answered with status {status}")


def lines_of(headers: Mapping[str, str]) -> bytes:
    """Write headers as lines. Raises `ValueError` for what cannot be sent."""
    return b"".join([header_line(name, value) for name, value in headers.items()])
