"""The authorization request (RFC 6749 §4.1.1, RFC 7636, RFC 8707, OAuth 2.1): read, judged, written down again, without side effects.

Nothing is redirected before the client and its redirect address are known to belong together. The page that a browser comes to
is in auth/pages/authorization_endpoint.py, a person's answer in auth/pages/consent_decisions.py, pushed requests are in auth/endpoints/pushed_authorization.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final
from urllib.parse import parse_qsl, urlencode

import msgspec

from auth.authorization import pkce
from auth.clients import redirect_uris
from auth.grants.request_parameters import AUTHORIZATION, LENGTH, LENGTHS
from auth.jose.public_keys import is_thumbprint
from auth.values.endpoint_paths import AUTHORIZE
from auth.values.identity_model import AUTHORIZATION_CODE, Client, Millis
from auth.values.issuer_and_resources import ForeignResource, Site
from auth.values.limits_and_lifetimes import DAY

NAMES: Final = AUTHORIZATION  # everything else is ignored (RFC 6749 §3.1)
RESOURCE: Final = "resource"
RESOURCES: Final = 8

# A path that carries a request through sign-in has to fit into a request line.
CHARACTERS: Final = 8_000

MAX_AGE: Final[Millis] = 365 * DAY  # more is not meant


class AuthorizationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request as it came, with what is wrong with its form: names that came twice, or hold what they never can."""

    values: Mapping[str, str]
    resources: tuple[str, ...] = ()
    repeated: frozenset[str] = frozenset()
    unfit: frozenset[str] = frozenset()

    def get(self, name: str) -> str | None:
        return None if name in self.repeated or name in self.unfit else self.values.get(name)


class NoPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A request without an address that the browser may be sent to: a page of ours tells the person, and an answer the client that
    pushed it."""

    why: str


class SendBack(msgspec.Struct, frozen=True, kw_only=True):
    """An error for the client, at an address that is its own (§4.1.2.1)."""

    redirect_uri: str
    # Whether the operator knows the address, or it leads no further than the person's own machine. To any other, which a
    # stranger may have registered for this, nobody is sent who has not signed in (RFC 9700 §4.11.2).
    vouched: bool
    state: str | None
    error: str
    description: str


class WantedAccess(msgspec.Struct, frozen=True, kw_only=True):
    """A request that a person may be asked about."""

    client_id: str
    redirect_uri: str
    vouched: bool  # as in `SendBack`
    challenge: str
    server: str
    scope: str  # under the client's ceiling
    state: str | None
    prompts: frozenset[str]
    max_age_ms: Millis | None
    dpop_jkt: str | None = None  # the key that alone may redeem the code

    def refused(self, error: str, description: str) -> SendBack:
        return SendBack(
            redirect_uri=self.redirect_uri,
            vouched=self.vouched,
            state=self.state,
            error=error,
            description=description,
        )


# ---------------------------------------------------------------- as text


def read(pairs: Sequence[tuple[str, str]]) -> AuthorizationRequest:
    """Read a request. An empty parameter counts as absent (§3.1)."""
    values: dict[str, str] = {}
    resources: list[str] = []
    repeated: set[str] = set()
    unfit: set[str] = set()
    for name, value in pairs:
        if name not in NAMES and name != RESOURCE:
            continue
        if not (value.isascii() and value.isprintable()) or len(value) > LENGTHS.get(name, LENGTH):
            unfit.add(name)
        elif name == RESOURCE:
            resources += [value] if value else []
        elif name in values:
            repeated.add(name)
        else:
            values[name] = value
    if len(resources) > RESOURCES:
        unfit.add(RESOURCE)
    return AuthorizationRequest(
        values=MappingProxyType({name: value for name, value in values.items() if value}),
        resources=tuple(resources[:RESOURCES]),
        repeated=frozenset(repeated),
        unfit=frozenset(unfit),
    )


def write(asked: AuthorizationRequest) -> str:
    """Write a request as a query string, the same for the same request."""
    known = [(name, asked.values[name]) for name in NAMES if name in asked.values]
    return urlencode([*known, *((RESOURCE, resource) for resource in asked.resources)])


def read_text(query: str) -> AuthorizationRequest:
    """Read what `write` wrote, or somebody pretends it did."""
    return read(parse_qsl(query[:CHARACTERS], keep_blank_values=True))


def path_of(query: str) -> str:
    return f"{AUTHORIZE}?{query}"


# ---------------------------------------------------------------- judged


def check(
    asked: AuthorizationRequest, client: Client | None, site: Site, origin: str
) -> NoPlace | SendBack | WantedAccess:
    """Judge a request. `client` is the one that it names, if there is such a one; `origin` the name under which we were called."""
    if asked.get("client_id") is None:
        return NoPlace(why="The request does not say which program it comes from.")
    if client is None or not client.enabled:
        return NoPlace(why="The program that sent you here is not registered on this server (any more).")
    redirect_uri = _redirect_uri(asked, client)
    if isinstance(redirect_uri, NoPlace):
        return redirect_uri
    server = site.meant(asked.resources, (origin,), client.server)
    scope = site.scopes.asked(asked.get("scope") or "", client.scope)
    prompts = frozenset((asked.get("prompt") or "").split())
    problem = _problem(asked, client, server, scope, prompts)
    if problem is not None:
        error, description = problem
        return SendBack(
            redirect_uri=redirect_uri,
            vouched=_vouched(client, redirect_uri),
            state=asked.get("state"),
            error=error,
            description=description,
        )
    assert not isinstance(server, ForeignResource)  # that is a problem
    age = asked.get("max_age")
    return WantedAccess(
        client_id=client.id,
        redirect_uri=redirect_uri,
        vouched=_vouched(client, redirect_uri),
        challenge=asked.values["code_challenge"],
        server=server,
        scope=scope,
        state=asked.get("state"),
        prompts=prompts,
        max_age_ms=None if age is None else min(int(age) * 1_000, MAX_AGE),
        dpop_jkt=asked.get("dpop_jkt"),
    )


def _redirect_uri(asked: AuthorizationRequest, client: Client) -> str | NoPlace:
    if "redirect_uri" in asked.repeated or "redirect_uri" in asked.unfit:
        return NoPlace(why="The request names no address, or several, for the way back.")
    named = asked.get("redirect_uri")
    if named is None:
        if len(client.redirect_uris) == 1:  # §3.1.2.3
            return client.redirect_uris[0]
        return NoPlace(why="The request does not say where to send you back to.")
    if redirect_uris.fits(client.redirect_uris, named):
        return named
    return NoPlace(why="The request wants you sent back to an address that is not the program’s own.")


def _vouched(client: Client, redirect_uri: str) -> bool:
    return client.kind not in ("dynamic", "document") or redirect_uris.is_loopback(redirect_uri)


def _problem(
    asked: AuthorizationRequest,
    client: Client,
    server: str | ForeignResource,
    scope: str,
    prompts: frozenset[str],
) -> tuple[str, str] | None:
    """Find the first thing that is wrong: an error code and a sentence for the client, which repeats nothing of the request."""
    method = asked.get("code_challenge_method")
    age = asked.get("max_age")
    jkt = asked.get("dpop_jkt")
    table = (
        # what is wrong                                         error                       in words
        (bool(asked.repeated),                                  "invalid_request",          "a parameter is given more than once"),
        (bool(asked.unfit),                                     "invalid_request",          "a parameter is too long or unreadable"),
        (asked.get("request") is not None,                      "request_not_supported",    "request objects are not taken here"),
        (asked.get("request_uri") is not None,                  "invalid_request_uri",      "only a pushed request has an address here"),
        (asked.get("response_type") is None,                    "invalid_request",          "response_type is missing"),
        (asked.get("response_type") != "code",                  "unsupported_response_type", "response_type must be code"),
        (asked.get("response_mode") not in (None, "query"),     "invalid_request",          "response_mode must be query"),
        (AUTHORIZATION_CODE not in client.grant_types,          "unauthorized_client",      "this client may not ask for a code"),
        (not pkce.is_challenge(asked.get("code_challenge") or ""), "invalid_request",       "a code_challenge of 43 characters is needed"),
        (method != pkce.METHOD,                                 "invalid_request",          "code_challenge_method must be S256"),
        (isinstance(server, ForeignResource),                           "invalid_target",           "no such resource on this server"),
        (not scope,                                             "invalid_scope",            "none of these scopes exists for this client"),
        ("none" in prompts and len(prompts) > 1,                "invalid_request",          "prompt=none stands alone"),
        (age is not None and not (age.isdigit() and len(age) < 10), "invalid_request",      "max_age is a number of seconds"),
        (jkt is not None and not is_thumbprint(jkt),       "invalid_request",          "dpop_jkt is the SHA-256 thumbprint of a key"),
    )  # fmt: skip
    return next(((error, words) for wrong, error, words in table if wrong), None)


def answer(back: SendBack, *, issuer: str) -> str:
    """Return the address of an error response, with `iss` (RFC 9207)."""
    said = {"error": back.error, "error_description": back.description}
    return redirect_uris.with_answer(back.redirect_uri, {**said, **_state(back.state), "iss": issuer})


def success(wanted: WantedAccess, code: str, *, issuer: str) -> str:
    return redirect_uris.with_answer(
        wanted.redirect_uri, {"code": code, **_state(wanted.state), "iss": issuer}
    )


def _state(state: str | None) -> Mapping[str, str]:
    return {} if state is None else {"state": state}
