"""A login at a resource, as it is kept by whoever refreshes it."""

from __future__ import annotations

from typing import Final, Self

import msgspec

from server.lib.oauth_client.client_identity import KnownClient
from server.lib.oauth_client.proof_key import Millis
from server.lib.oauth_client.token_requests import REFRESH_TOKEN, Tokens
from server.lib.secret import Secret

# A token that ends within this time is refreshed first: it must survive the way to the server and a clock a little off.
FRESH_FOR_MILLIS: Final[Millis] = 60_000


class OAuthLogin(KnownClient, frozen=True, kw_only=True):
    """The tokens for one resource, and all that it takes to refresh them without discovering anything again."""

    resource: str  # as the server spells it
    token_endpoint: str
    revocation_endpoint: str | None = None
    access_token: Secret
    refresh_token: Secret | None = None
    scope: str = ""
    obtained_at: Millis
    expires_at: Millis | None = None  # None: the server did not say

    def fresh(self, now: Millis) -> bool:
        """Tell whether the access token has some time left."""
        if self.expires_at is None:
            return True
        if now < self.obtained_at - FRESH_FOR_MILLIS:  # the clock was set back: nothing can be told from it
            return False
        # Never more than a tenth of a short life, or a token of one minute would never be used.
        return now < self.expires_at - min(FRESH_FOR_MILLIS, (self.expires_at - self.obtained_at) // 10)

    def refresh_form(self) -> dict[str, str]:
        """Return the form that asks for the next tokens (RFC 6749 §6). There must be a refresh token."""
        assert self.refresh_token is not None
        return {
            "grant_type": REFRESH_TOKEN,
            "refresh_token": self.refresh_token.reveal(),
            "resource": self.resource,
        }

    def renewed(self, tokens: Tokens, *, now: Millis) -> Self:
        """Return the login after a refresh. A server that does not rotate sends no refresh token: then the old one stays."""
        return msgspec.structs.replace(
            self,
            access_token=tokens.access_token,
            refresh_token=tokens.refresh_token or self.refresh_token,
            scope=self.scope if tokens.scope is None else tokens.scope,  # RFC 6749 §5.1: as before
            obtained_at=now,
            expires_at=tokens.expires_at(now),
        )
