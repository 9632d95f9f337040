"""Credentials for calls of an upstream: tokens that are made or fetched for each call, and kept while they are good.

Four ways to a token are functions here: one of ours (own_tokens.py), one for ourselves (RFC 6749 §4.4), one for the caller in exchange for ours
(RFC 8693), and one for an assertion about the caller (draft-ietf-oauth-identity-assertion-authz-grant §4; what we send is what
auth/grants/identity_assertions.py takes). The owner's own login is in owner_login.py. Never the token that a caller showed here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final, Protocol, TypeAlias

from auth.values.identity_model import Millis
from server.agents.base.backend import AgentRequest, Trouble, Watched
from server.agents.mcp.trust.own_tokens import ID_JAG, TokenIssuer, claims_of, person_of, whose
from server.agents.mcp.trust.pin_rows import UpstreamKey
from server.agents.mcp.upstream_credentials import StaticCredential
from server.client.mcp_session.session_request import Credential
from server.lib.log.logger import Logger
from server.lib.oauth_client.addresses import host_of
from server.lib.oauth_client.client_identity import ClientIdentity
from server.lib.oauth_client.oauth_answers import Ask, OAuthFailure
from server.lib.oauth_client.token_cache import NoToken, TokenCache
from server.lib.oauth_client.token_requests import (
    Tokens,
    assertion_form,
    client_credentials_form,
    exchange_form,
    fetch_tokens,
)
from server.mcp.call_failures import BackendError

# Of what is sent to an authorization server to be exchanged at once.
ASSERTION_SECONDS: Final = 120

MakeToken: TypeAlias = Callable[[AgentRequest | None], Awaitable[Tokens]]
Whose: TypeAlias = Callable[[AgentRequest | None], str]


class TokenCredential:
    """A token for whoever calls. `whose` says for whom it is good besides."""

    def __init__(
        self,
        upstream: UpstreamKey,
        make: MakeToken,
        whose: Whose,
        *,
        clock: Callable[[], Millis],
        log: Logger,
    ) -> None:
        self._upstream = upstream
        self._make = make
        self._whose = whose
        self._clock = clock
        self._log = log
        self._cache = TokenCache(clock)
        self._trouble: Trouble | None = None

    def trouble(self) -> Trouble | None:
        return self._trouble

    async def headers(self, call: AgentRequest | None) -> Mapping[str, str]:
        """Return the header with a token for this call. Raises `BackendError`."""
        try:
            token = await self._cache.get(self._whose(call), lambda: self._make(call))
        except NoToken as refusal:
            if self._trouble is None or self._trouble.words != str(refusal):
                self._log.warning("upstream.no_token", upstream=str(self._upstream), reason=str(refusal))
                self._trouble = Trouble(words=str(refusal), since=self._clock())
            raise BackendError(
                "this tool cannot be used now: its upstream gave us no token, and the owner of this server is told why"
            ) from None
        self._trouble = None
        return {"Authorization": f"Bearer {token.reveal()}"}

    async def refused(self, call: AgentRequest | None, challenge: str) -> bool:
        """Drop the token, and return whether a new one may be taken: a key may have changed, or the upstream ended the old one."""
        return self._cache.drop(self._whose(call))


class OwnCredential(Credential, Watched, Protocol):
    """A credential that may be out of order."""


class WithHeaders:
    """A credential, and what the settings send besides."""

    def __init__(self, own: OwnCredential, static: StaticCredential, *, ours: Collection[str] = ()) -> None:
        """Keep the parts. `ours`: headers of the settings that go with what this server asks in its own name, and with nobody's call; in small
        letters."""
        self._own = own
        self._ours = frozenset(ours)
        self._static = static
        # What was last shown of its own, and the same with what the settings send: made once, and not for each call.
        self._last: tuple[Mapping[str, str], Mapping[str, str]] | None = None

    def trouble(self) -> Trouble | None:
        return self._own.trouble()

    async def headers(self, call: AgentRequest | None) -> Mapping[str, str]:
        own = await self._own.headers(call)
        last = self._last
        if last is not None and last[0] is own:
            return last[1]
        static = await self._static.headers(call)
        if call is not None and self._ours:
            static = {name: value for name, value in static.items() if name.lower() not in self._ours}
        both = {**static, **own}
        self._last = (own, both)
        return both

    async def refused(self, call: AgentRequest | None, challenge: str) -> bool:
        return await self._own.refused(call, challenge)


def own_token(issuer: TokenIssuer, audience: str, *, server: str, scope: str, seconds: int) -> MakeToken:
    """Make tokens of our own (`identity = "token"`). Raises `ValueError` for an audience of our own."""
    issuer.check_audience(audience)

    async def make(call: AgentRequest | None) -> Tokens:
        claims = claims_of(call, server) | ({"scope": scope} if scope else {})
        return Tokens(access_token=issuer.mint(audience, seconds=seconds, claims=claims), expires_in=seconds)

    return make


def client_credentials(
    ask: Ask, token_url: str, identity: ClientIdentity, *, audience: str, scope: str
) -> MakeToken:
    """Fetch tokens for ourselves, the same for all callers (`identity = "client-credentials"`)."""
    form = client_credentials_form(scope=scope, resource=audience)
    return lambda call: _fetch(ask, token_url, form, identity)


def exchanged(
    ask: Ask,
    token_url: str,
    identity: ClientIdentity,
    issuer: TokenIssuer,
    *,
    server: str,
    audience: str,
    scope: str,
) -> MakeToken:
    """Exchange a token of ours for one about the caller (`identity = "exchange"`).

    The authorization server alone can use the token that is exchanged.
    """
    issuer.check_audience(token_url)

    async def make(call: AgentRequest | None) -> Tokens:
        _demand_person(call)
        shown = issuer.mint(token_url, seconds=ASSERTION_SECONDS, claims=claims_of(call, server))
        form = exchange_form(shown, resource=audience, scope=scope)
        return await _fetch(ask, token_url, form, identity)

    return make


def asserted(
    ask: Ask,
    token_url: str,
    identity: ClientIdentity,
    issuer: TokenIssuer,
    *,
    authorization_server: str,
    server: str,
    audience: str,
    scope: str,
) -> MakeToken:
    """Fetch tokens for an assertion about the caller (`identity = "id-jag"`).

    This server is the identity provider that the upstream's authorization server believes.
    """
    issuer.check_audience(authorization_server)

    async def make(call: AgentRequest | None) -> Tokens:
        _demand_person(call)
        claims = {
            "sub": claims_of(call, server)["sub"],
            "client_id": identity.client_id,  # §4.1: who we are there, not who calls here
            "resource": audience,
            **({"scope": scope} if scope else {}),
        }
        said = issuer.mint(authorization_server, seconds=ASSERTION_SECONDS, kind=ID_JAG, claims=claims)
        return await _fetch(ask, token_url, assertion_form(said, scope=scope), identity)

    return make


def for_everybody(call: AgentRequest | None) -> str:
    return ""


def for_caller(server: str) -> Whose:
    return lambda call: whose(call, server)


async def _fetch(ask: Ask, token_url: str, form: Mapping[str, str], identity: ClientIdentity) -> Tokens:
    try:
        return await fetch_tokens(ask, token_url, form, identity)
    except OAuthFailure as failure:
        raise NoToken(f"{host_of(token_url)} {failure}") from None


def _demand_person(call: AgentRequest | None) -> None:
    """Refuse a caller without an account, with `BackendError`. The server's own questions are its own doing."""
    if call is not None and person_of(call) is None:
        raise BackendError("this tool acts in the name of a person: log in with an account to use it")
