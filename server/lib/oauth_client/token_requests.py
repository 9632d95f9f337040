"""Requests to token endpoints (RFC 6749 §5), with a proof of a key where tokens are bound to one (RFC 9449), and what their answers mean."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from server.lib.json_objects import decode_object, positive
from server.lib.oauth_client.client_identity import ClientIdentity
from server.lib.oauth_client.oauth_answers import Ask, OAuthAnswer, OAuthFailure
from server.lib.oauth_client.proof_key import NONCE_HEADER, Millis, ProofKey, usable_nonce
from server.lib.secret import Secret

DEVICE_CODE: Final = "urn:ietf:params:oauth:grant-type:device_code"
AUTHORIZATION_CODE: Final = "authorization_code"
REFRESH_TOKEN: Final = "refresh_token"
CLIENT_CREDENTIALS: Final = "client_credentials"
JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
TOKEN_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN_TYPE: Final = "urn:ietf:params:oauth:token-type:access_token"
# RFC 9068 tokens are signed: whoever exchanges one may look into it, which is more than ACCESS_TOKEN_TYPE promises.
JWT_TYPE: Final = "urn:ietf:params:oauth:token-type:jwt"
NONCE_WANTED: Final = "use_dpop_nonce"
FORM: Final = "application/x-www-form-urlencoded"
# Ours are under 1 KiB; what does not fit a request header cannot be used.
MAX_TOKEN: Final = 16 * 1024
MAX_LIFETIME_SECONDS: Final = 10 * 365 * 24 * 3600
MAX_SCOPE: Final = 4096
MAX_ERROR: Final = 100
MAX_DESCRIPTION: Final = 300
# A login, or who we are there, is over; anything else may pass.
_FINAL: Final = frozenset(
    {"invalid_grant", "invalid_client", "unauthorized_client", "unsupported_grant_type", "invalid_scope"}
)


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens that came of a request."""

    access_token: Secret
    refresh_token: Secret | None = None
    scope: str | None = None
    expires_in: float | None = None  # None: it was not said
    id_token: Secret | None = None

    def expires_at(self, now: Millis) -> Millis | None:
        """Return when the access token runs out; None if it was not said."""
        return None if self.expires_in is None else now + int(self.expires_in * 1000)


class GrantRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """A well-formed no (RFC 6749 §5.2), in the words of the other side, cut and not cleaned."""

    error: str
    description: str = ""
    interval: float | None = None  # some servers name the new interval with slow_down
    status: int = 400

    @property
    def final(self) -> bool:
        """The answer to whether asking again is in vain until somebody does something."""
        return self.error in _FINAL

    @property
    def word(self) -> str:
        """The error where it looks like a registered one, or ""."""
        return self.error[:40] if self.error.replace("_", "").isalpha() else ""

    def failure(self) -> OAuthFailure:
        """Return the failure that this is where tokens are needed; its text holds nothing that the other side says but a code."""
        return OAuthFailure(
            f"gave no token ({self.word or f'status {self.status}'})",
            reason="refused",
            status=self.status,
            error=self.error,
            final=self.final,
        )


async def ask_for_tokens(
    ask: Ask,
    endpoint: str,
    form: Mapping[str, str],
    *,
    identity: ClientIdentity,
    key: ProofKey | None = None,
    now: Millis = 0,
    any_type: bool = False,
) -> Tokens | GrantRefusal:
    """Request tokens, and return them or the refusal. Raise `OAuthFailure`, also for a server that is busy.

    With a `key`, only tokens that are bound to it are taken; with `any_type`, those of which it was not said how they are shown, too."""
    nonce: str | None = None
    while True:
        shown = {} if key is None else {"DPoP": key.proof("POST", endpoint, now=now, nonce=nonce)}
        answer = await post_form(ask, endpoint, form, identity=identity, headers=shown)
        body = answer.json_object() if answer.status == 200 else {}
        if answer.status == 200 and ("access_token" in body or "error" not in body):
            return read_tokens(body, bound=key is not None, any_type=any_type)
        refusal = read_refusal(answer)
        wanted = usable_nonce(answer.headers.get(NONCE_HEADER, ""))
        if key is None or refusal.error != NONCE_WANTED or wanted is None or nonce is not None:
            return refusal
        nonce = wanted  # RFC 9449 §8: once more, with what the server wants to see in the proof


async def fetch_tokens(
    ask: Ask, endpoint: str, form: Mapping[str, str], identity: ClientIdentity, *, any_type: bool = False
) -> Tokens:
    """Request tokens, and return them. Raise `OAuthFailure`, whose text holds nothing that the other side says but a code."""
    answer = await ask_for_tokens(ask, endpoint, form, identity=identity, any_type=any_type)
    if isinstance(answer, Tokens):
        return answer
    raise answer.failure()


def client_credentials_form(*, scope: str, resource: str = "") -> dict[str, str]:
    """Return the form that asks for a token of the client's own (RFC 6749 §4.4)."""
    return _said({"grant_type": CLIENT_CREDENTIALS, "resource": resource, "scope": scope})


def exchange_form(token: Secret, *, resource: str, scope: str) -> dict[str, str]:
    """Return the form that exchanges a signed token for one that is meant for `resource` (RFC 8693 §2.1)."""
    form = {
        "grant_type": TOKEN_EXCHANGE,
        "subject_token": token.reveal(),
        "subject_token_type": JWT_TYPE,
        "requested_token_type": ACCESS_TOKEN_TYPE,
        "resource": resource,
        "scope": scope,
    }
    return _said(form)


def assertion_form(assertion: Secret, *, scope: str) -> dict[str, str]:
    """Return the form that asks for a token by an assertion about its subject (RFC 7523 §2.1)."""
    return _said({"grant_type": JWT_BEARER, "assertion": assertion.reveal(), "scope": scope})


def _said(form: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in form.items() if value}


async def post_form(
    ask: Ask,
    endpoint: str,
    form: Mapping[str, str],
    *,
    identity: ClientIdentity,
    headers: Mapping[str, str] = MappingProxyType({}),
) -> OAuthAnswer:
    """Send a form as this client."""
    fields, own = identity.signed(form)
    return await ask("POST", endpoint, {**own, **headers, "Content-Type": FORM}, urlencode(fields).encode())


def read_tokens(body: Mapping[str, Any], *, bound: bool = False, any_type: bool = False) -> Tokens:
    """Read the answer of a token endpoint. Raise `OAuthFailure` where there is no token that can be used."""
    access = _token(body.get("access_token"))
    if access is None:
        raise OAuthFailure("sent no usable access token", reason="no token")
    # RFC 8693 §2.2.1: `N_A` is of a token that is no access token.
    kind = body.get("token_type")
    if not any_type and (not isinstance(kind, str) or kind.lower() != ("dpop" if bound else "bearer")):
        wrong = "is not bound to our key" if bound else "is no bearer token"
        raise OAuthFailure(f"sent a token that {wrong}", reason="no token")
    expires_in, scope, id_token = positive(body.get("expires_in")), body.get("scope"), body.get("id_token")
    return Tokens(
        access_token=access,
        refresh_token=_token(body.get("refresh_token")),
        scope=scope if isinstance(scope, str) and len(scope) <= MAX_SCOPE else None,
        expires_in=min(expires_in, MAX_LIFETIME_SECONDS) if expires_in is not None else None,
        id_token=Secret(id_token) if isinstance(id_token, str) else None,
    )


def read_refusal(answer: OAuthAnswer) -> GrantRefusal:
    """Read the error of an answer that is no success. Raise `OAuthFailure` where there is none, or only trouble that may pass."""
    body = decode_object(answer.body) or {}
    error, description = body.get("error"), body.get("error_description")
    refusal = GrantRefusal(
        error=error[:MAX_ERROR] if isinstance(error, str) else "",
        description=description[:MAX_DESCRIPTION] if isinstance(description, str) else "",
        interval=positive(body.get("interval")),
        status=answer.status,
    )
    busy, status = answer.status == 429 or answer.status >= 500, answer.status
    if busy or not refusal.error:
        raise OAuthFailure(
            "is busy"
            if status in (429, 503)
            else f"answered with status {status}" + ("" if busy else " and no OAuth error"),
            reason="busy" if busy else "status",
            status=status,
            description=refusal.description,
            retry_after=answer.headers.get("retry-after", ""),
        )
    return refusal


def _token(value: object) -> Secret | None:
    # RFC 6749 appendix A.12, A.17: visible ASCII. Anything else could not go into a header as it is.
    if isinstance(value, str) and 0 < len(value) <= MAX_TOKEN and all("!" <= c <= "~" for c in value):
        return Secret(value)
    return None
