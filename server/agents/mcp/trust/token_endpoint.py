"""Asking the token endpoint of an upstream's authorization server (RFC 6749 §5, RFC 8693 §2): one form, one answer.

Over the server's own client, bounded in size and time and without redirects; who asks for what is up to the credentials beside. What
an authorization server says never reaches a caller, and of its errors only the registered word.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol, cast
from urllib.parse import urlencode, urlsplit

import msgspec

from auth.providers.provider_requests import AskProvider, ProviderUnavailable
from auth.values.identity_model import Millis, Secret
from server.client.client_identity import ClientIdentity

MAX_TOKEN: Final = 16 * 1024
MAX_LIFETIME_SECONDS: Final = 10 * 365 * 24 * 3600
# What says nothing of how long it lives is asked for anew after this.
UNSAID_SECONDS: Final = 300
# A login, or who we are there, is over; anything else may pass.
_FINAL: Final = frozenset(
    {"invalid_grant", "invalid_client", "unauthorized_client", "unsupported_grant_type", "invalid_scope"}
)


class UpstreamTokens(msgspec.Struct, frozen=True, kw_only=True):
    access: Secret
    refresh: Secret | None
    scope: str | None
    expires_at: Millis | None  # None: it was not said


class TokenDenied(Exception):
    """No token. The text continues a sentence about the authorization server, and holds nothing of what it said but a code."""

    def __init__(self, words: str, *, final: bool) -> None:
        super().__init__(words)
        self.final = final  # asking again is in vain until somebody does something


class AskForTokens(Protocol):
    async def __call__(
        self, endpoint: str, form: Mapping[str, str], identity: ClientIdentity, /
    ) -> UpstreamTokens: ...


class TokenEndpoints:
    """`AskForTokens`, over whatever makes requests here."""

    def __init__(self, ask: AskProvider, clock: Any) -> None:
        self._ask = ask
        self._clock = clock

    async def __call__(
        self, endpoint: str, form: Mapping[str, str], identity: ClientIdentity
    ) -> UpstreamTokens:
        """Raises `TokenDenied`."""
        fields, headers = identity.signed(form)
        sent = {**headers, "Content-Type": "application/x-www-form-urlencoded"}
        try:
            answer = await self._ask("POST", endpoint, sent, urlencode(fields).encode())
        except ProviderUnavailable as problem:
            raise TokenDenied(str(problem), final=False) from None
        said = _object(answer.body)
        if answer.status != 200 or "access_token" not in said:
            error = said.get("error")
            code = error if isinstance(error, str) and error.replace("_", "").isalpha() else ""
            words = f"gave no token ({code[:40]})" if code else f"gave no token (status {answer.status})"
            raise TokenDenied(words, final=code in _FINAL and answer.status < 500)
        return _read(said, self._clock())


def _read(said: Mapping[str, Any], now: Millis) -> UpstreamTokens:
    access, kind = _token(said.get("access_token")), said.get("token_type")
    # RFC 8693 §2.2.1: `N_A` is of a token that is no access token, which is of no use here.
    if access is None or not isinstance(kind, str) or kind.lower() != "bearer":
        raise TokenDenied("sent a token that cannot be used", final=False)
    lives, scope = said.get("expires_in"), said.get("scope")
    if isinstance(lives, str) and lives.isascii() and lives.isdigit() and len(lives) < 12:
        lives = int(lives)  # some write it as a text
    good = isinstance(lives, (int, float)) and not isinstance(lives, bool) and 0 < lives < 1e12
    return UpstreamTokens(
        access=access,
        refresh=_token(said.get("refresh_token")),
        scope=scope if isinstance(scope, str) and len(scope) <= 4096 else None,
        expires_at=now + int(min(cast("float", lives), MAX_LIFETIME_SECONDS) * 1000) if good else None,
    )


def _token(value: object) -> Secret | None:
    # RFC 6749 appendix A.12, A.17: visible ASCII. Anything else could not go into a header as it is.
    if isinstance(value, str) and 0 < len(value) <= MAX_TOKEN and all("!" <= c <= "~" for c in value):
        return Secret(value)
    return None


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}


def host_of(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2]
