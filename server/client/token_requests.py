"""Asking an authorization server's token and revocation endpoints (RFC 6749 §5, RFC 7009) as whoever we are there.

Which grant, when, and what a refusal means are decided by the callers: device_login.py and access_token.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from server.client.client_errors import BadAnswer
from server.client.client_identity import ClientIdentity
from server.client.http_exchange import HttpAnswer, busy, exchange, host_of
from server.client.proof_key import ProofKey, read_nonce
from server.client.token_file import Millis, StoredLogin
from server.lib.http_client.http_client import HttpClient
from server.settings.secret_reference import Secret

DEVICE_CODE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
AUTHORIZATION_CODE = "authorization_code"
REFRESH_TOKEN = "refresh_token"
NONCE_WANTED = "use_dpop_nonce"
# Ours are under 1 KiB; what does not fit a request header cannot be used.
MAX_TOKEN = 16 * 1024
MAX_LIFETIME_SECONDS = 10 * 365 * 24 * 3600


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    access_token: Secret
    refresh_token: Secret | None
    scope: str | None
    expires_in: float | None

    def renewing(self, login: StoredLogin, *, now: Millis) -> StoredLogin:
        """`login` after a refresh. A server that does not rotate sends no refresh token: then the old one stays."""
        return msgspec.structs.replace(
            login,
            access_token=self.access_token,
            refresh_token=self.refresh_token or login.refresh_token,
            scope=login.scope if self.scope is None else self.scope,
            obtained_at=now,
            expires_at=self.expires_at(now),
        )

    def expires_at(self, now: Millis) -> Millis | None:
        return None if self.expires_in is None else now + int(self.expires_in * 1000)


class GrantRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """RFC 6749 §5.2: a well-formed no."""

    error: str
    description: str = ""
    interval: float | None = None  # some servers name the new interval with slow_down


async def ask_for_tokens(
    client: HttpClient,
    endpoint: str,
    form: Mapping[str, str],
    *,
    identity: ClientIdentity,
    key: ProofKey | None = None,
    now: Millis = 0,
) -> Tokens | GrantRefusal:
    """Raises `Unreachable`, `ServerBusy` (try again later) or `BadAnswer`. With a `key`, only tokens that are bound to it are taken."""
    fields, headers = identity.signed(form)
    nonce: str | None = None
    while True:
        shown = {} if key is None else {"DPoP": key.proof("POST", endpoint, now=now, nonce=nonce)}
        answer = await exchange(client, "POST", endpoint, form=fields, headers={**headers, **shown})
        if answer.status == 200:
            return read_tokens(answer, endpoint, bound=key is not None)
        refusal = read_refusal(answer, endpoint)
        wanted = read_nonce(answer.head) if refusal.error == NONCE_WANTED else None
        if key is None or wanted is None or nonce is not None:
            return refusal
        nonce = wanted  # RFC 9449 §8: once more, with what the server wants to see in the proof


async def revoke(
    client: HttpClient, endpoint: str, token: Secret, *, hint: str, identity: ClientIdentity
) -> None:
    """RFC 7009 §2.1. Raises `Unreachable`, `ServerBusy`, or `BadAnswer` when the server did not agree."""
    fields, headers = identity.signed({"token": token.reveal(), "token_type_hint": hint})
    answer = await exchange(client, "POST", endpoint, form=fields, headers=headers)
    if answer.status != 200:
        refusal = read_refusal(answer, endpoint)
        raise BadAnswer(f"{host_of(endpoint)} did not revoke the login ({refusal.error})")


def read_tokens(answer: HttpAnswer, endpoint: str, *, bound: bool = False) -> Tokens:
    body = answer.json_object()
    if body is None:
        raise BadAnswer(f"the token endpoint at {host_of(endpoint)} did not answer in JSON")
    access = _token(body.get("access_token"))
    kind = body.get("token_type")
    expires_in = number(body.get("expires_in"))
    scope = body.get("scope")
    if access is None:
        raise BadAnswer(f"the token endpoint at {host_of(endpoint)} sent no usable access token")
    if not isinstance(kind, str) or kind.lower() != ("dpop" if bound else "bearer"):
        wanted = "is not bound to our key" if bound else "is no bearer token"
        raise BadAnswer(f"the token endpoint at {host_of(endpoint)} sent a token that {wanted}")
    return Tokens(
        access_token=access,
        refresh_token=_token(body.get("refresh_token")),
        scope=scope if isinstance(scope, str) else None,
        expires_in=min(expires_in, MAX_LIFETIME_SECONDS) if expires_in is not None else None,
    )


def read_refusal(answer: HttpAnswer, endpoint: str) -> GrantRefusal:
    """The error object of an answer that is no success. Raises `ServerBusy` or `BadAnswer` where there is none."""
    body = answer.json_object()
    description = _described(body)
    if answer.status in (429, 500, 502, 503, 504):
        said = "is busy" if answer.status in (429, 503) else f"answers with status {answer.status}"
        own = f": {description}" if description else ""
        raise busy(f"{host_of(endpoint)} {said}{own}", answer.head)
    error = body.get("error") if body else None
    if not body or not isinstance(error, str) or not error:
        raise BadAnswer(f"{host_of(endpoint)} answered with status {answer.status} and no OAuth error")
    return GrantRefusal(
        error=error[:100],
        description=description,
        interval=number(body.get("interval")),
    )


def _described(body: Mapping[str, Any] | None) -> str:
    """What the server says to people, cut."""
    description = body.get("error_description") if body else None
    return description[:300] if isinstance(description, str) else ""


def number(value: Any) -> float | None:
    """A JSON number above zero; some servers write it as a string."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 12:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 < value < 1e12 else None


def _token(value: Any) -> Secret | None:
    # RFC 6749 appendix A.12, A.17: visible ASCII. Anything else could not go into a header as it is.
    if isinstance(value, str) and 0 < len(value) <= MAX_TOKEN and all("!" <= c <= "~" for c in value):
        return Secret(value)
    return None
