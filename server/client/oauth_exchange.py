"""Exchanges of the terminal with authorization servers, and what is said to people where one fails."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager

from server.client.client_errors import BadAnswer, ClientError, LoginError
from server.client.http_exchange import busy, exchange
from server.lib.http_client.http_client import HttpClient
from server.lib.oauth_client import token_requests
from server.lib.oauth_client.addresses import host_of
from server.lib.oauth_client.client_identity import ClientIdentity
from server.lib.oauth_client.oauth_answers import Ask, OAuthAnswer, OAuthFailure
from server.lib.oauth_client.proof_key import NONCE_HEADER, Millis, ProofKey
from server.lib.oauth_client.token_requests import GrantRefusal, Tokens, post_form, read_refusal
from server.lib.secret import Secret

RETRY_AFTER = "retry-after"
REGISTER_BY_HAND = "register a client there by hand, and pass its id: --client-id"


def asking(client: HttpClient) -> Ask:
    """Return an `Ask` over `client` that raises `Unreachable` and `BadAnswer`."""

    async def ask(method: str, url: str, headers: Mapping[str, str], body: bytes) -> OAuthAnswer:
        answer = await exchange(client, method, url, headers=headers, content=body)
        told = {name: answer.head.value(name.encode()) for name in (NONCE_HEADER, RETRY_AFTER)}
        return OAuthAnswer(status=answer.status, body=answer.body, headers=told)

    return ask


@contextmanager
def oauth_trouble(endpoint: str) -> Generator[None]:
    """Turn failures of a request to `endpoint` into `ClientError`s: `ServerBusy` if trying again later may help, else `BadAnswer`."""
    try:
        yield
    except OAuthFailure as failure:
        raise _client_error(failure, endpoint) from None


def _client_error(failure: OAuthFailure, endpoint: str) -> ClientError:
    host = host_of(endpoint)
    match failure.reason:
        case "busy":
            said = f": {failure.description}" if failure.description else ""
            return busy(f"{host} {failure}{said}", failure.retry_after)
        case "refused":
            said = f": {failure.description}" if failure.description else ""
            return LoginError(
                f"{host} does not register this program ({failure.error}){said}", hint=REGISTER_BY_HAND
            )
        case _:
            return BadAnswer(f"{host} {failure}")


async def ask_for_tokens(
    client: HttpClient,
    endpoint: str,
    form: Mapping[str, str],
    *,
    identity: ClientIdentity,
    key: ProofKey | None = None,
    now: Millis = 0,
) -> Tokens | GrantRefusal:
    """Request tokens. Raise `Unreachable`, `ServerBusy` (try again later) or `BadAnswer`."""
    with oauth_trouble(endpoint):
        return await token_requests.ask_for_tokens(
            asking(client), endpoint, form, identity=identity, key=key, now=now
        )


async def revoke(
    client: HttpClient, endpoint: str, token: Secret, *, hint: str, identity: ClientIdentity
) -> None:
    """Revoke a token (RFC 7009 §2.1). Raise `Unreachable`, `ServerBusy`, or `BadAnswer` when the server did not agree."""
    form = {"token": token.reveal(), "token_type_hint": hint}
    with oauth_trouble(endpoint):
        answer = await post_form(asking(client), endpoint, form, identity=identity)
        if answer.status != 200:
            refusal = read_refusal(answer)
            raise BadAnswer(f"{host_of(endpoint)} did not revoke the login ({refusal.error})")
