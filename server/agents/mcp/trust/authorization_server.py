"""The authorization servers of upstreams at which people connect accounts: what each says of itself, and registering with it.

The issuer is in the settings, and everything else comes from its own document.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from auth.values.connected_accounts import CannotConnect
from auth.values.identity_model import Millis
from auth.values.limits_and_lifetimes import MINUTE
from server.lib.oauth_client.client_identity import BASIC, NONE, POST
from server.lib.oauth_client.dynamic_registration import Registered, register
from server.lib.oauth_client.issuer_metadata import S256, ServerMetadata, find_server
from server.lib.oauth_client.oauth_answers import Ask, OAuthFailure
from server.lib.oauth_client.token_requests import AUTHORIZATION_CODE, REFRESH_TOKEN

KEPT: Final[Millis] = 60 * MINUTE


class AuthorizationServers:
    """The documents of authorization servers, remembered for an hour. Methods raise `CannotConnect`."""

    def __init__(self, ask: Ask, clock: Callable[[], Millis]) -> None:
        self._ask = ask
        self._clock = clock
        self._kept: dict[str, tuple[ServerMetadata, Millis]] = {}  # by issuer, which the settings bound

    async def find(self, issuer: str) -> ServerMetadata:
        """Return what the authorization server says of itself."""
        now = self._clock()
        kept = self._kept.get(issuer)
        if kept is not None and 0 <= now - kept[1] < KEPT:
            return kept[0]
        try:
            found = await find_server(
                self._ask,
                issuer,
                typed=issuer,
                required=("authorization_endpoint",),
                optional=("registration_endpoint",),
            )
        except OAuthFailure as failure:
            raise CannotConnect(str(failure)) from failure
        if S256 not in found.challenge_methods:
            raise CannotConnect("does not say that it protects codes (PKCE with S256)")
        self._kept[issuer] = (found, now)
        return found

    async def register(self, server: ServerMetadata, *, redirect_uri: str, scope: str) -> Registered:
        """Register as a client that people are sent back to at `redirect_uri`."""
        if server.registration_endpoint is None:
            raise CannotConnect("lets no program register itself, and the settings name no client")
        wanted = {
            "client_name": "Ostiary",
            "grant_types": [AUTHORIZATION_CODE, REFRESH_TOKEN],
            # A server has a place to keep a secret in.
            "token_endpoint_auth_method": next(
                (each for each in (BASIC, POST, NONE) if each in server.auth_methods), BASIC
            ),
            "application_type": "web",
            "software_id": "ostiary",
        }
        try:
            return await register(self._ask, server, wanted, redirect_uri=redirect_uri, scope=scope)
        except OAuthFailure as failure:
            raise CannotConnect(str(failure)) from failure
