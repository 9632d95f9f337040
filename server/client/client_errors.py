"""Failures at the other end of the wire, said for a person: one sentence, and what to do next.

No message here may carry a token, a code that grants anything, or a body. Text that came from a server is cleaned by
whoever prints it, and cut by whoever raises it.
"""

from __future__ import annotations

from collections.abc import Mapping
from shlex import quote
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from server.mcp.call_failures import BackendError, Unanswered

if TYPE_CHECKING:
    from server.lib.oauth_client.challenge import Challenge

# Of what a server says of its refusal.
MAX_SAID: Final = 300


class ClientError(BackendError):
    """An expected failure. `str(error)` is lower case without a full stop; `hint` says what to do about it."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class BadAddress(ClientError):
    """An address of which no MCP server may be spoken to."""


class Unreachable(ClientError, Unanswered):
    """No answer came over the network; trying again may help. `sent` says whether the server may have seen the request."""

    def __init__(self, message: str, *, hint: str | None = None, sent: bool = True) -> None:
        super().__init__(message, hint=hint)
        self.sent = sent


class ServerBusy(Unreachable):
    """The server asked to be left alone for a while (429, 503)."""

    def __init__(
        self, message: str, *, retry_after_seconds: float | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_seconds = retry_after_seconds


class BadAnswer(ClientError):
    """An answer came that the standards do not allow."""


class DiscoveryError(ClientError):
    """The way from the typed URL to an authorization server broke at a step."""


class LoginError(ClientError):
    """A login ended without tokens."""


class ClientUnknown(LoginError):
    """The authorization server does not know our client id, or allows it no such login."""


class LoginDenied(LoginError):
    """Somebody pressed deny."""


class LoginExpired(LoginError):
    """Nobody decided in time."""


class NotLoggedIn(ClientError):
    """The lack of a token for this server, or one that is no longer accepted and cannot be refreshed."""


class TokenFileError(ClientError):
    """The token file may not be used as it is."""


class ScopeNeeded(ClientError):
    """The token is good, but not for this. `scope`: what the server says is needed, if it does."""

    def __init__(self, message: str, *, hint: str | None = None, scope: str = "") -> None:
        super().__init__(message, hint=hint)
        self.scope = scope


class CallRefused(ClientError):
    """The server answered a request with a JSON-RPC error, which is `error` where it is known."""

    def __init__(
        self,
        message: str,
        *,
        code: int,
        hint: str | None = None,
        error: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.error = error


def scope_needed(challenge: Challenge, url: str) -> ScopeNeeded:
    """Return a refusal for want of scopes, in the server's own words if it has some: the scopes that it names are all that a new login is to
    ask for, not those that this one lacks."""
    scope = challenge.scope or ""
    said = " ".join((challenge.description or "").split())[:MAX_SAID]
    if not said:
        said = (
            f"this needs a login with the scopes {scope}"
            if scope
            else "this needs more than the login may do"
        )
    more = f" --scope {quote(scope)}" if scope else ""
    return ScopeNeeded(said, hint=f"ostiary login {quote(url)}{more}", scope=scope)
