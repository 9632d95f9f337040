"""The login from a terminal by device code (RFC 8628 §3): request a code, show it, poll until somebody decides.

The command decides what is shown, and how; callers pass in how to wait and what time it is. The other way to log in is in
browser_login.py; signing_in.py takes one of the two ways. `remember` stores a login under its lock, so that no refresh of the login before
it can come in between.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from shlex import quote
from typing import Final

import trio

from server.client.client_errors import (
    ClientError,
    ClientUnknown,
    LoginDenied,
    LoginError,
    LoginExpired,
    ServerBusy,
    Unreachable,
)
from server.client.discovery import Place
from server.client.oauth_exchange import ask_for_tokens, asking, oauth_trouble, revoke
from server.client.token_file import Millis, StoredLogin, TokenFile
from server.lib.http_client.http_client import HttpClient
from server.lib.oauth_client.addresses import host_of
from server.lib.oauth_client.client_identity import ClientIdentity
from server.lib.oauth_client.device_authorization import DeviceCode, PollUnanswered, poll, request_code
from server.lib.oauth_client.proof_key import ProofKey
from server.lib.oauth_client.token_requests import GrantRefusal, Tokens

OURS: Final = ClientIdentity()
# Saying goodbye to the login before is a courtesy, not worth a wait.
FAREWELL_SECONDS = 5.0
# Whoever pressed Ctrl-C wants the prompt back.
WITHDRAWAL_SECONDS = 2.0


async def ask_for_code(
    client: HttpClient,
    place: Place,
    *,
    scope: str,
    names: Mapping[str, str],
    now: Callable[[], Millis],
    identity: ClientIdentity = OURS,
) -> DeviceCode:
    """Request a device code (RFC 8628 §3.1). `names` (client_name, hostname) say to the person who approves who we are."""
    endpoint = place.server.device_authorization_endpoint
    if endpoint is None or not place.server.device_login:
        raise LoginError(
            f"{place.server.issuer} offers no login by device code",
            hint=f"ostiary login {quote(place.url)} --browser",
        )
    form = {"resource": place.resource, **names}
    if scope:
        form["scope"] = scope
    with oauth_trouble(endpoint):
        answer = await request_code(
            asking(client), endpoint, form, identity=identity, typed=place.url, now=now
        )
    if isinstance(answer, GrantRefusal):
        raise refused(answer, endpoint, identity)
    return answer


async def wait_for_tokens(
    client: HttpClient,
    place: Place,
    code: DeviceCode,
    *,
    now: Callable[[], Millis],
    sleep: Callable[[float], Awaitable[object]] = trio.sleep,
    trouble: Callable[[ClientError], None] = lambda error: None,
    identity: ClientIdentity = OURS,
    key: ProofKey | None = None,
) -> Tokens:
    """Poll until somebody approves the login, and return its tokens (RFC 8628 §3.4–3.5).

    Raise `LoginDenied`, `LoginExpired`, `LoginError` or `BadAnswer`. Network trouble is reported to `trouble` once per stretch of it,
    and waited out until the code expires.
    """
    endpoint, form = place.server.token_endpoint, code.form(place.resource)
    in_trouble = False

    async def request() -> Tokens | GrantRefusal | PollUnanswered:
        nonlocal in_trouble
        try:
            answer = await ask_for_tokens(client, endpoint, form, identity=identity, key=key, now=now())
        except Unreachable as error:
            if not in_trouble:
                trouble(error)
            in_trouble = True
            return PollUnanswered(error.retry_after_seconds if isinstance(error, ServerBusy) else None)
        in_trouble = False
        return answer

    answer = await poll(code, request, now=now, sleep=sleep)
    if isinstance(answer, Tokens):
        return answer
    if answer.error == "expired_token":
        raise LoginExpired("nobody approved the login in time", hint=f"ostiary login {quote(place.url)}")
    raise refused(answer, endpoint, identity)


async def withdraw(client: HttpClient, place: Place, code: DeviceCode, *, identity: ClientIdentity) -> None:
    """Revoke a device code for which nobody waits any more, so that the server need not show it to those who approve.

    This is a courtesy, also of a task that is cancelled: it takes a bounded time, and errors are ignored. A server that cannot revoke
    the code forgets it by itself.
    """
    endpoint = place.server.revocation_endpoint
    if endpoint is None:
        return
    with trio.move_on_after(WITHDRAWAL_SECONDS, shield=True), suppress(ClientError):
        await revoke(client, endpoint, code.device_code, hint="device_code", identity=identity)


def login_from(
    place: Place,
    tokens: Tokens,
    *,
    asked_scope: str,
    now: Millis,
    identity: ClientIdentity = OURS,
    key: ProofKey | None = None,
) -> StoredLogin:
    return StoredLogin(
        url=place.url,
        resource=place.resource,
        issuer=place.server.issuer,
        token_endpoint=place.server.token_endpoint,
        revocation_endpoint=place.server.revocation_endpoint,
        client_id=identity.client_id,
        client_secret=identity.secret,
        auth_method=identity.method,
        access_token=tokens.access_token,
        refresh_token=tokens.refresh_token,
        proof_key=None if key is None else key.kept,
        scope=asked_scope if tokens.scope is None else tokens.scope,  # RFC 6749 §5.1: left out when as asked
        obtained_at=now,
        expires_at=tokens.expires_at(now),
    )


async def remember(client: HttpClient, file: TokenFile, login: StoredLogin) -> None:
    """Store the login, and end the one that it replaces at the server, as far as that can be done quickly."""
    lock = await trio.to_thread.run_sync(file.lock_of, login.url)
    async with lock.held_async():
        before = await trio.to_thread.run_sync(file.get, login.url)
        await trio.to_thread.run_sync(file.begin, login)
    if before is not None:
        with trio.move_on_after(FAREWELL_SECONDS):
            try:
                await end(client, before)
            except ClientError:
                return  # it will expire by itself


async def end(client: HttpClient, login: StoredLogin) -> bool:
    """Revoke a login at its server: the refresh token takes the whole grant with it. Return False if the server offers no way."""
    if login.revocation_endpoint is None:
        return False
    token, hint = (
        (login.refresh_token, "refresh_token")
        if login.refresh_token is not None
        else (login.access_token, "access_token")
    )
    await revoke(client, login.revocation_endpoint, token, hint=hint, identity=login.identity)
    return True


def refused(refusal: GrantRefusal, endpoint: str, identity: ClientIdentity) -> LoginError:
    """Return the `LoginError` with which a refusal ends a login (RFC 6749 §4.1.2.1, §5.2; RFC 8628 §3.5)."""
    host = host_of(endpoint)
    if refusal.error == "access_denied":
        return LoginDenied("the login was denied")
    if refusal.error in ("invalid_client", "unauthorized_client"):
        return ClientUnknown(
            f"{host} does not know the client {identity.client_id} or allows it no such login",
            hint="register a client there, and pass its id: --client-id",
        )
    if refusal.error == "invalid_scope":
        return LoginError(
            f"{host} does not grant the scopes asked for", hint="leave out --scope, or name others"
        )
    if refusal.error == "invalid_grant":
        return LoginError(f"{host} does not take this code any more", hint="log in again")
    said = f": {refusal.description}" if refusal.description else ""
    return LoginError(f"{host} refused the login ({refusal.error}){said}")
