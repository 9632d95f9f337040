"""What the authorization server of an upstream says of itself (RFC 8414), and registering with it (RFC 7591): for people who connect accounts.

Its issuer is in the settings, and everything else comes from its own document, which may name
addresses as far as `may_follow` lets a server that somebody typed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast
from urllib.parse import urlsplit, urlunsplit

import msgspec

from auth.providers.provider_requests import AskProvider, ProviderUnavailable
from auth.values.connected_accounts import CannotConnect
from auth.values.identity_model import Millis, Secret
from auth.values.limits_and_lifetimes import MINUTE
from server import __version__
from server.client.address import may_follow
from server.client.client_identity import BASIC, METHODS, NONE, POST, ClientIdentity

KEPT: Final[Millis] = 60 * MINUTE
CREDENTIAL_CHARACTERS: Final = 4_096
CLIENT_NAME: Final = "Ostiary"


class AuthorizationServer(msgspec.Struct, frozen=True, kw_only=True):
    issuer: str
    authorization: str
    token: str
    registration: str | None
    names_itself: bool  # RFC 9207: every answer carries `iss`
    auth_methods: tuple[str, ...]


class ForeignClient(msgspec.Struct, frozen=True, kw_only=True):
    """What it made of us, and for which redirect address."""

    issuer: str
    redirect_uri: str
    client_id: str
    client_secret: Secret | None = None
    auth_method: str = NONE
    expires_at: Millis | None = None

    @property
    def identity(self) -> ClientIdentity:
        return ClientIdentity(client_id=self.client_id, secret=self.client_secret, method=self.auth_method)


class AuthorizationServers:
    """Asks, and remembers for an hour. Raises `CannotConnect`."""

    def __init__(self, ask: AskProvider, clock: Callable[[], Millis]) -> None:
        self._ask = ask
        self._clock = clock
        self._kept: dict[str, tuple[AuthorizationServer, Millis]] = {}  # by issuer, which the settings bound

    async def find(self, issuer: str) -> AuthorizationServer:
        now = self._clock()
        kept = self._kept.get(issuer)
        if kept is not None and 0 <= now - kept[1] < KEPT:
            return kept[0]
        for place in _places(issuer):
            said = await self._document(place)
            if said is not None:
                found = _read(said, issuer)
                self._kept[issuer] = (found, now)
                return found
        raise CannotConnect("publishes no document about itself")

    async def register(self, server: AuthorizationServer, *, redirect_uri: str, scope: str) -> ForeignClient:
        if server.registration is None:
            raise CannotConnect("lets no program register itself, and the settings name no client")
        wanted: dict[str, Any] = {
            "client_name": CLIENT_NAME,
            "redirect_uris": [redirect_uri],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            # A server has a place to keep a secret in.
            "token_endpoint_auth_method": next(
                (each for each in (BASIC, POST, NONE) if each in server.auth_methods), BASIC
            ),
            "application_type": "web",
            "software_id": "ostiary",
            "software_version": __version__,
        }
        if scope:
            wanted["scope"] = scope
        headers = {"content-type": "application/json", "accept": "application/json"}
        try:
            answer = await self._ask("POST", server.registration, headers, msgspec.json.encode(wanted))
        except ProviderUnavailable as problem:
            raise CannotConnect(str(problem)) from problem
        if answer.status not in (200, 201):
            raise CannotConnect(f"does not register this server (status {answer.status})")
        return _registered(_object(answer.body), server, redirect_uri)

    async def _document(self, url: str) -> Mapping[str, Any] | None:
        try:
            answer = await self._ask("GET", url, {"accept": "application/json"}, b"")
        except ProviderUnavailable as problem:
            raise CannotConnect(str(problem)) from problem
        if answer.status in (401, 403, 404, 405, 410):
            return None
        if answer.status != 200:
            raise CannotConnect(f"answered with status {answer.status}")
        return _object(answer.body)


def _places(issuer: str) -> list[str]:
    """RFC 8414 §3, and OpenID Connect's place."""
    parts = urlsplit(issuer)
    path = parts.path.rstrip("/")
    found = [
        urlunsplit(parts._replace(path=f"/.well-known/{word}{path}"))
        for word in ("oauth-authorization-server", "openid-configuration")
    ]
    if path:
        found.append(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
    return found


def _read(said: Mapping[str, Any], issuer: str) -> AuthorizationServer:
    if said.get("issuer") != issuer:
        raise CannotConnect("says that it is another issuer than the settings name")
    if "S256" not in _words(said.get("code_challenge_methods_supported")):
        raise CannotConnect("does not say that it protects codes (PKCE with S256)")
    registration = said.get("registration_endpoint")
    return AuthorizationServer(
        issuer=issuer,
        authorization=_address(said, "authorization_endpoint", issuer),
        token=_address(said, "token_endpoint", issuer),
        registration=None if registration is None else _address(said, "registration_endpoint", issuer),
        names_itself=said.get("authorization_response_iss_parameter_supported") is True,
        auth_methods=_words(said.get("token_endpoint_auth_methods_supported")) or (BASIC,),
    )


def _registered(said: Mapping[str, Any], server: AuthorizationServer, redirect_uri: str) -> ForeignClient:
    """RFC 7591 §3.2.1. What it made of us is what counts."""
    client_id, secret = _credential(said.get("client_id")), _credential(said.get("client_secret"))
    method = said.get("token_endpoint_auth_method") or (NONE if secret is None else BASIC)
    if client_id is None or method not in METHODS or (method != NONE and secret is None):
        raise CannotConnect("registered this server in a way that cannot be used")
    ends = said.get("client_secret_expires_at")
    known = isinstance(ends, int) and not isinstance(ends, bool) and 0 < ends < 2**40
    return ForeignClient(
        issuer=server.issuer,
        redirect_uri=redirect_uri,
        client_id=client_id,
        client_secret=None if secret is None or method == NONE else Secret(secret),
        auth_method=str(method),
        expires_at=cast("int", ends) * 1_000 if known and secret is not None else None,
    )


def _address(said: Mapping[str, Any], name: str, issuer: str) -> str:
    value = said.get(name)
    if not isinstance(value, str) or not value.isascii() or not may_follow(value, typed=issuer):
        raise CannotConnect(f"has no {name} with https at a place where it may be")
    return value


def _credential(value: object) -> str | None:
    # RFC 6749 appendix A.1, A.2: visible ASCII and blanks.
    if (
        isinstance(value, str)
        and 0 < len(value) <= CREDENTIAL_CHARACTERS
        and all(" " <= c <= "~" for c in value)
    ):
        return value
    return None


def _words(value: object) -> tuple[str, ...]:
    listed = cast("list[object]", value)[:100] if isinstance(value, list) else []
    return tuple(each for each in listed if isinstance(each, str))


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise CannotConnect("did not answer with a JSON object") from None
