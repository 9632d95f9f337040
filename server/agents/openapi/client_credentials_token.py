"""The request for an access token of the client's own (RFC 6749 §4.4, client credentials)."""

from __future__ import annotations

from server.agents.openapi.openapi_settings import ClientGrant
from server.lib.oauth_client.client_identity import BASIC, ClientIdentity
from server.lib.oauth_client.oauth_answers import OAuthFailure
from server.lib.oauth_client.oauth_fetcher import OAuthFetcher
from server.lib.oauth_client.token_requests import Tokens, ask_for_tokens
from server.lib.secret import Secret
from server.mcp.call_failures import BackendError


async def ask_token(grant: ClientGrant, secret: Secret) -> Tokens:
    """Request a token. Raise `BackendError`, which holds nothing that the token endpoint said: it knows the secret."""
    identity = ClientIdentity(client_id=grant.client_id, secret=secret, method=BASIC)
    form = {"grant_type": "client_credentials", **({"scope": grant.scope} if grant.scope else {})}
    try:
        answer = await ask_for_tokens(OAuthFetcher(), grant.token_url, form, identity=identity, any_type=True)
    except OAuthFailure as failure:
        why = f"answered {failure.status}" if failure.status else str(failure)
        raise BackendError(f"the API's token endpoint {why}") from None
    if isinstance(answer, Tokens):
        return answer
    raise BackendError(f"the API's token endpoint answered {answer.status} and gave no token")
