"""What can go wrong at the other end of the wire, said for a person: one sentence, and what to do next.

No message here may carry a token, a code that grants anything, or a body. Text that came from a server is cleaned by
whoever prints it, and cut by whoever raises it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any


class ClientError(Exception):
    """An expected failure. `str(error)` is lower case without a full stop; `hint` says what to do about it."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class BadAddress(ClientError):
    """What was typed is no address of an MCP server that may be spoken to."""


class Unreachable(ClientError):
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
    """There is no token for this server, or it is no longer accepted and cannot be refreshed."""


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
