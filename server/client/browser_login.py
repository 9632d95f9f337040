"""The login through a browser on this machine: an authorization code with PKCE (RFC 6749 §4.1, RFC 7636, RFC 8252).

All steps but one, the token request, are pure. loopback.py waits for the browser; the command decides what is shown.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from shlex import quote
from typing import Final
from urllib.parse import parse_qsl

import msgspec

from server.client.client_errors import LoginError
from server.client.device_login import refused
from server.client.discovery import Place
from server.client.oauth_exchange import ask_for_tokens
from server.client.token_file import Millis
from server.lib.http_client.http_client import HttpClient
from server.lib.oauth_client.addresses import host_of
from server.lib.oauth_client.authorization_code import authorization_link, code_form, comes_from
from server.lib.oauth_client.client_identity import ClientIdentity
from server.lib.oauth_client.issuer_metadata import S256
from server.lib.oauth_client.proof_key import ProofKey
from server.lib.oauth_client.token_requests import GrantRefusal, Tokens
from server.lib.secret import Secret

# 43 characters of each: the shortest verifier that RFC 7636 §4.1 allows is long enough for any guessing.
RANDOM_BYTES: Final = 32
MAX_ANSWER: Final = 16 * 1024
MAX_PARAMETERS: Final = 50


class StrangeCallback(Exception):
    """The error that a callback does not come from this login: it is answered, and the wait goes on."""


class BrowserTrip(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt to log in through the browser. Its link holds nothing that could be redeemed without the verifier."""

    link: str
    redirect_uri: str
    state: Secret
    verifier: Secret


def begin(
    place: Place, identity: ClientIdentity, *, redirect_uri: str, scope: str, key: ProofKey | None = None
) -> BrowserTrip:
    """Begin a login, and return it with the link to open in the browser.

    Raise `LoginError` if the server offers no login in a browser, or does not say that it protects it with PKCE.
    """
    server = place.server
    if server.authorization_endpoint is None or not server.browser_login:
        raise LoginError(
            f"{server.issuer} offers no login in a browser", hint=f"ostiary login {quote(place.url)} --device"
        )
    if S256 not in server.challenge_methods:
        # MCP authorization, "Authorization Code Protection": without it a stolen code is a stolen login.
        raise LoginError(
            f"{server.issuer} does not say that it protects logins in a browser (PKCE with S256)",
            hint="this is the server's to put right; code_challenge_methods_supported is missing",
        )
    state, verifier = secrets.token_urlsafe(RANDOM_BYTES), secrets.token_urlsafe(RANDOM_BYTES)
    link = authorization_link(
        server.authorization_endpoint,
        client_id=identity.client_id,
        redirect_uri=redirect_uri,
        state=state,
        verifier=verifier,
        more={
            "resource": place.resource,
            "scope": scope,
            "dpop_jkt": ""
            if key is None
            else key.thumbprint,  # RFC 9449 §10: nobody else can redeem the code
        },
    )
    return BrowserTrip(
        link=link,
        redirect_uri=redirect_uri,
        state=Secret(state),
        verifier=Secret(verifier),
    )


def read_answer(query: str, attempt: BrowserTrip, place: Place, identity: ClientIdentity) -> Secret:
    """Return the authorization code from the query that came back to the redirect address.

    Raise `StrangeCallback` if the query does not belong to this login, and `LoginError` if it refuses the login or cannot be used.
    The state is checked before anything else, so that another program or page can neither end nor answer the login.
    """
    given = _parameters(query)
    state = given.get("state", "")
    if not hmac.compare_digest(state.encode(), attempt.state.reveal().encode()):
        raise StrangeCallback
    server = place.server
    issuer = given.get("iss")
    if not comes_from(server.issuer, issuer, always=server.names_itself):
        said = "no name" if issuer is None else f"the name {issuer[:200]}"
        raise LoginError(f"the answer came with {said}, not from {server.issuer}, and was not used")
    if "error" in given:
        refusal = GrantRefusal(
            error=given["error"][:100], description=given.get("error_description", "")[:300]
        )
        raise refused(refusal, server.authorization_endpoint or server.issuer, identity)
    code = given.get("code", "")
    if not code or not all(" " <= c <= "~" for c in code):
        raise LoginError(f"{host_of(server.issuer)} answered without a code")
    return Secret(code)


async def redeem(
    client: HttpClient,
    place: Place,
    attempt: BrowserTrip,
    code: Secret,
    identity: ClientIdentity,
    *,
    key: ProofKey | None = None,
    now: Millis = 0,
) -> Tokens:
    """Exchange the authorization code for tokens (RFC 6749 §4.1.3); a code is never sent twice.

    Raise `LoginError`, `Unreachable` or `BadAnswer`.
    """
    form = code_form(
        code=code.reveal(),
        redirect_uri=attempt.redirect_uri,
        verifier=attempt.verifier.reveal(),
        resource=place.resource,
    )
    answer = await ask_for_tokens(
        client, place.server.token_endpoint, form, identity=identity, key=key, now=now
    )
    if isinstance(answer, Tokens):
        return answer
    raise refused(answer, place.server.token_endpoint, identity)


def query_of(pasted: str) -> str:
    """Return the query of a redirect address as a person copies it: all of the address, or from the question mark on."""
    text = pasted.strip().strip("'\"<>")
    _, mark, query = text.partition("?")
    return (query if mark else text).partition("#")[0]


def is_answer(query: str) -> bool:
    """Return whether a query says anything at all about how a login ended."""
    try:
        return not {"code", "error"}.isdisjoint(_parameters(query))
    except StrangeCallback:
        return False


def _parameters(query: str) -> Mapping[str, str]:
    if len(query) > MAX_ANSWER:
        raise StrangeCallback
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=MAX_PARAMETERS, errors="strict")
    except (ValueError, UnicodeDecodeError):
        raise StrangeCallback from None
    given = dict(pairs)
    if len(given) != len(pairs):  # RFC 6749 §3.1: no parameter twice
        raise StrangeCallback
    return given
