"""HTTP as a session needs it: who sends and receives, and what a status means to a session.

The gateway's HTTP is in credential_wire.py, the terminal's in login_wire.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final, TypeVar
from urllib.parse import urljoin, urlsplit

from server.client.mcp_session.session_messages import (
    MESSAGE_BYTES,
    Answered,
    ServerAway,
    ServerFailure,
    ServerGone,
    ServerRefusal,
    is_error,
    outcome,
    read_message,
)
from server.client.mcp_session.session_request import SessionRequest
from server.lib.http_client.fetch import UpstreamAnswer, header_line
from server.mcp.call_failures import BackendError

T = TypeVar("T")

JSON: Final = "application/json"
# Sessions of callers that are listened to at once, each with a connection. The one that was begun first gives way.
HEARD_AT_ONCE: Final = 32
EVENTS: Final = "text/event-stream"
# One answer as a stream, with all that is told before it, so many times the longest message; and for most servers in bytes.
STREAM_MESSAGES: Final = 4
STREAM_BYTES: Final = STREAM_MESSAGES * MESSAGE_BYTES
# What is told unasked may go on for as long as the server lives.
ENDLESS_BYTES: Final = 1 << 62
ERROR_BYTES: Final = 64 * 1024


class HttpWire(ABC):
    """The HTTP of one server, with a credential and in the words of its user. `call` None: the request is our own.

    Failures are `BackendError`s, also out of reading the body: `Unanswered` where none came.
    """

    most: int = MESSAGE_BYTES  # bytes of the longest message that is taken

    async def ask(
        self,
        message: bytes,
        headers: bytes,
        call: SessionRequest | None,
        read: Callable[[UpstreamAnswer], Awaitable[T]],
    ) -> T:
        """Return what `read` makes of the answer to this message. Raises what the block of `post` raises."""
        async with self.post(message, headers, call) as answer:
            return await read(answer)

    @abstractmethod
    def post(
        self, message: bytes, headers: bytes, call: SessionRequest | None
    ) -> AbstractAsyncContextManager[UpstreamAnswer]: ...

    @abstractmethod
    def stream(
        self, message: bytes | None, headers: bytes, call: SessionRequest | None
    ) -> AbstractAsyncContextManager[UpstreamAnswer]:
        """Open a stream that lasts: a GET, or a POST of this message."""

    def attend(
        self, headers: bytes, call: SessionRequest | None
    ) -> AbstractAsyncContextManager[UpstreamAnswer]:
        """Open the stream of a session on which its server says what belongs to no request."""
        return self.stream(None, headers, call)

    @abstractmethod
    async def delete(self, headers: bytes, call: SessionRequest | None) -> None: ...

    @abstractmethod
    def problem(self, answer: UpstreamAnswer, body: bytes = b"") -> BackendError | ServerRefusal:
        """Return the error that an answer with a bad status is: the refusal in its body, or what the status means."""

    @abstractmethod
    def elsewhere(self, target: str) -> HttpWire:
        """Return the wire to another address of this origin, as the server named it. Raises `ValueError`."""

    async def aclose(self) -> None:
        """Close the connections that are the wire's own."""
        return


class CredentialRefused(ServerFailure):
    """A server that wants another credential than it was shown."""

    fate = "not made"


class SessionGone(ServerGone):
    """A session that the server does not know any more: nothing was done."""

    fate = "not made"

    def __init__(self, text: str = "does not know this session") -> None:
        super().__init__(text)


class NotReached(ServerAway):
    """A server that could not be reached: nothing was sent."""

    def __init__(self, text: str, *, busy: bool = False) -> None:
        super().__init__(text)
        self.busy = busy  # of our own making: as many calls run as may


def refusal_in(body: bytes) -> ServerRefusal | None:
    """Return the JSON-RPC error in the body of an answer with a bad status, if there is one. Frameworks have an `error` of their own."""
    message = read_message(body) if body[:1] == b"{" else None
    if not isinstance(message, Answered) or message.error is None or not is_error(message.error):
        return None
    found = outcome(message)
    return found if isinstance(found, ServerRefusal) else None


def is_passing(status: int) -> bool:
    """Return whether the same request may be answered with a better status soon."""
    return status in (408, 429) or status >= 500


def has_no_endpoint(status: int) -> bool:
    """Return whether a server that answers `initialize` so has no endpoint of this transport there, unless the body says more."""
    return status in (400, 404, 405, 406)


def is_stream(answer: UpstreamAnswer) -> bool:
    return answer.status < 300 and answer.media_type == EVENTS


def lines_of(headers: Mapping[str, str]) -> bytes:
    """Write headers as lines. Raises `ValueError` for what cannot be sent."""
    return b"".join([header_line(name, value) for name, value in headers.items()])


def same_origin(url: str, target: str) -> str:
    """Return the address that `target` names, seen from `url`. Raises `ValueError` for one at another origin."""
    found = urljoin(url, target)
    ours, theirs = urlsplit(url), urlsplit(found)
    if (ours.scheme, ours.netloc) != (theirs.scheme, theirs.netloc):
        raise ValueError("names an address at another place")
    return found
