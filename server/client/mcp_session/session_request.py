"""The request of one caller, as far as a session knows it; and what is shown of the caller to a server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from server.mcp.call_outlet import LaterNews, LogLevel
from server.mcp.caller_view import CallerIdentity


class SessionRequest(Protocol):
    """A caller, and what that caller can be asked and told while the request runs."""

    @property
    def subject(self) -> str: ...

    @property
    def sharer(self) -> str:
        """The one whose part of the sessions or connections this caller takes; the subject where it is empty."""
        ...

    @property
    def apart(self) -> str:
        """The name of the caller and of its client's session, for whom a session is begun; empty: the connection's own serves."""
        ...

    @property
    def handshake(self) -> bool:
        """True if the caller's client speaks the handshake era."""
        ...

    @property
    def session_can(self) -> frozenset[str] | None:
        """The words of `ABILITIES` that the client has in all of its session; None where it has no session, or that is not known."""
        ...

    @property
    def caller(self) -> CallerIdentity | None: ...

    @property
    def can(self) -> frozenset[str]:
        """The words of `server.mcp.call_questions.ABILITIES` that the caller's client has."""
        ...

    @property
    def wants_progress(self) -> bool: ...

    @property
    def log_level(self) -> LogLevel | None: ...

    def bare(self) -> SessionRequest:
        """Name the caller and its client's extensions, and nothing that belongs to the request: for what outlives it."""
        ...

    def quiet(self) -> SessionRequest:
        """Return the request without anybody who is asked or told meanwhile."""
        ...

    def later(self) -> LaterNews | None:
        """Return the way to the caller's session after this request; None: nobody hears anything then."""
        ...


class Credential(Protocol):
    """The headers that a server over HTTP is shown. A failure that a caller is told is a `BackendError`."""

    # `call` is the `SessionRequest` as its maker made it: who asks more of it than a session does, knows what else there is.
    async def headers(self, call: Any) -> Mapping[str, str]:
        """Return what is shown with each request. `call` None: the connection's own (finding out what there is). Headers that were given once
        are never changed by anybody: the very same again say the very same."""
        ...

    async def refused(self, call: Any, challenge: str) -> bool:
        """Return whether to try once more, with other headers: the server answered 401, with this `WWW-Authenticate`."""
        ...
