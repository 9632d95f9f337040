"""The login from a terminal by device code (RFC 8628 §3): request a code, show it, poll until somebody decides.

The command decides what is shown, and how; callers pass in how to wait and what time it is. The other way to log in is in
browser_login.py; signing_in.py takes one of the two ways. `remember` stores a login under its lock, so that no refresh of the login before
it can come in between.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from shlex import quote
from typing import Final

import msgspec
import trio

from server.client.client_errors import (
    BadAnswer,
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
from server.lib.json_objects import decode_object, positive
from server.lib.oauth_client.addresses import host_of, may_follow
from server.lib.oauth_client.client_identity import ClientIdentity
from server.lib.oauth_client.proof_key import ProofKey
from server.lib.oauth_client.token_requests import DEVICE_CODE, GrantRefusal, Tokens, post_form, read_refusal
from server.lib.secret import Secret

OURS: Final = ClientIdentity()
# RFC 8628 §3.2, §3.5.
DEFAULT_INTERVAL_SECONDS = 5.0
SLOW_DOWN_SECONDS = 5.0
# A pause is no longer than this, even if the server asks for more: the approval should be seen while the person is there.
MAX_INTERVAL_SECONDS = 60.0
# Whoever has not approved by then has gone for a phone, or is somebody else.
PATIENT_AFTER_SECONDS = 120
# After trouble on the network the pause doubles, up to this.
MAX_BACK_OFF_SECONDS = 30.0
MAX_LIFETIME_SECONDS = 3600.0
# RFC 8628 §6.1: something that is easy to type. It is shown as a word of a command, so a server may not write one.
_USER_CODE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")
# Saying goodbye to the login before is a courtesy, not worth a wait.
FAREWELL_SECONDS = 5.0
# Whoever pressed Ctrl-C wants the prompt back.
WITHDRAWAL_SECONDS = 2.0


class DeviceCode(msgspec.Struct, frozen=True, kw_only=True):
    device_code: Secret
    user_code: str
    verification_uri: str
    verification_uri_complete: str | None
    expires_at: Millis
    interval: float


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
    answer = await post_form(asking(client), endpoint, form, identity=identity)
    if answer.status != 200:
        with oauth_trouble(endpoint):
            refusal = read_refusal(answer)
        raise refused(refusal, endpoint, identity)
    body = decode_object(answer.body) or {}
    device_code, user_code = body.get("device_code"), body.get("user_code")
    uri = body.get("verification_uri", body.get("verification_url"))
    complete = body.get("verification_uri_complete")
    lifetime = positive(body.get("expires_in"))
    if not (
        isinstance(device_code, str)
        and 0 < len(device_code) <= 4096
        and isinstance(user_code, str)
        and _USER_CODE.fullmatch(user_code)
        and isinstance(uri, str)
        and may_follow(uri, typed=place.url)
        and lifetime
    ):
        raise BadAnswer(f"{host_of(endpoint)} sent no usable device code")
    return DeviceCode(
        device_code=Secret(device_code),
        user_code=user_code,
        verification_uri=uri,
        verification_uri_complete=complete
        if isinstance(complete, str) and may_follow(complete, typed=place.url)
        else None,
        expires_at=now() + int(min(lifetime, MAX_LIFETIME_SECONDS) * 1000),
        interval=min(positive(body.get("interval")) or DEFAULT_INTERVAL_SECONDS, MAX_INTERVAL_SECONDS),
    )


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
    form = {
        "grant_type": DEVICE_CODE,
        "device_code": code.device_code.reveal(),
        "resource": place.resource,
    }
    interval = pause = code.interval
    patient_at = now() + PATIENT_AFTER_SECONDS * 1000
    in_trouble = False
    while True:
        left = (code.expires_at - now()) / 1000
        if left <= 0:
            raise _expired(place)
        await sleep(min(pause, left))
        try:
            answer = await ask_for_tokens(
                client, place.server.token_endpoint, form, identity=identity, key=key, now=now()
            )
        except Unreachable as error:
            if not in_trouble:
                trouble(error)
            in_trouble = True
            pause = min(pause * 2, max(MAX_BACK_OFF_SECONDS, interval))
            if isinstance(error, ServerBusy) and error.retry_after_seconds:
                pause = max(error.retry_after_seconds, interval)
            continue
        in_trouble = False
        if isinstance(answer, Tokens):
            return answer
        if answer.error == "slow_down":
            interval = min(max(interval + SLOW_DOWN_SECONDS, answer.interval or 0), MAX_INTERVAL_SECONDS)
        elif answer.error == "expired_token":
            raise _expired(place)
        elif answer.error != "authorization_pending":
            raise refused(answer, place.server.token_endpoint, identity)
        pause = max(interval, DEFAULT_INTERVAL_SECONDS) if now() >= patient_at else interval


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


def _expired(place: Place) -> LoginExpired:
    return LoginExpired("nobody approved the login in time", hint=f"ostiary login {quote(place.url)}")


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
