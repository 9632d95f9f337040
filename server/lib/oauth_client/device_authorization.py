"""The login by device code (RFC 8628 §3): a code is requested, somebody approves it anywhere, and the device polls until then."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec

from server.lib.json_objects import decode_object, positive
from server.lib.oauth_client.addresses import may_follow
from server.lib.oauth_client.client_identity import ClientIdentity
from server.lib.oauth_client.oauth_answers import Ask, OAuthFailure
from server.lib.oauth_client.proof_key import Millis
from server.lib.oauth_client.token_requests import (
    DEVICE_CODE,
    GrantRefusal,
    Tokens,
    post_form,
    read_refusal,
)
from server.lib.secret import Secret

# RFC 8628 §3.2, §3.5.
DEFAULT_INTERVAL_SECONDS: Final = 5.0
SLOW_DOWN_SECONDS: Final = 5.0
# A pause is no longer than this, even if the server asks for more: the approval should be seen while the person is there.
MAX_INTERVAL_SECONDS: Final = 60.0
# Whoever has not approved by then has gone for a phone, or is somebody else.
PATIENT_AFTER_SECONDS: Final = 120
# After trouble on the network the pause doubles, up to this.
MAX_BACK_OFF_SECONDS: Final = 30.0
MAX_LIFETIME_SECONDS: Final = 3600.0
MAX_CODE: Final = 4096
# RFC 8628 §6.1: something that is easy to type. It is shown as a word of a command, so a server may not write one.
_USER_CODE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")


class DeviceCode(msgspec.Struct, frozen=True, kw_only=True):
    """A code for a device that waits for somebody to approve it."""

    device_code: Secret
    user_code: str
    verification_uri: str
    verification_uri_complete: str | None
    expires_at: Millis
    interval: float

    def form(self, resource: str) -> dict[str, str]:
        """Return the form that asks whether somebody has approved it (§3.4)."""
        return {
            "grant_type": DEVICE_CODE,
            "device_code": self.device_code.reveal(),
            "resource": resource,
        }


class PollUnanswered(msgspec.Struct, frozen=True):
    """The outcome of a poll that brought no answer: trouble that may pass."""

    retry_after_seconds: float | None = None


async def request_code(
    ask: Ask,
    endpoint: str,
    form: Mapping[str, str],
    *,
    identity: ClientIdentity,
    typed: str,
    now: Callable[[], Millis],
) -> DeviceCode | GrantRefusal:
    """Request a device code (§3.1), and return it or the refusal. Raise `OAuthFailure`.

    `typed` is the address that a person named, from which it is decided where they may be sent."""
    answer = await post_form(ask, endpoint, form, identity=identity)
    if answer.status != 200:
        return read_refusal(answer)
    body = decode_object(answer.body) or {}
    device_code, user_code = body.get("device_code"), body.get("user_code")
    uri = body.get("verification_uri", body.get("verification_url"))
    complete = body.get("verification_uri_complete")
    lifetime = positive(body.get("expires_in"))
    if not (
        isinstance(device_code, str)
        and 0 < len(device_code) <= MAX_CODE
        and isinstance(user_code, str)
        and _USER_CODE.fullmatch(user_code)
        and isinstance(uri, str)
        and may_follow(uri, typed=typed)
        and lifetime
    ):
        raise OAuthFailure("sent no usable device code", reason="no object")
    may_open = isinstance(complete, str) and may_follow(complete, typed=typed)
    return DeviceCode(
        device_code=Secret(device_code),
        user_code=user_code,
        verification_uri=uri,
        verification_uri_complete=complete if may_open else None,
        expires_at=now() + int(min(lifetime, MAX_LIFETIME_SECONDS) * 1000),
        interval=min(positive(body.get("interval")) or DEFAULT_INTERVAL_SECONDS, MAX_INTERVAL_SECONDS),
    )


async def poll(
    code: DeviceCode,
    request: Callable[[], Awaitable[Tokens | GrantRefusal | PollUnanswered]],
    *,
    now: Callable[[], Millis],
    sleep: Callable[[float], Awaitable[object]],
) -> Tokens | GrantRefusal:
    """Repeat `request` until somebody decides (§3.5), and return the tokens, or the refusal that ends it."""
    interval = pause = code.interval
    patient_at = now() + PATIENT_AFTER_SECONDS * 1000
    while (left := (code.expires_at - now()) / 1000) > 0:
        await sleep(min(pause, left))
        answer = await request()
        if isinstance(answer, PollUnanswered):
            pause = min(pause * 2, max(MAX_BACK_OFF_SECONDS, interval))
            if answer.retry_after_seconds:
                pause = max(answer.retry_after_seconds, interval)
            continue
        if isinstance(answer, Tokens):
            return answer
        if answer.error == "slow_down":
            interval = min(max(interval + SLOW_DOWN_SECONDS, answer.interval or 0), MAX_INTERVAL_SECONDS)
        elif answer.error != "authorization_pending":
            return answer
        pause = max(interval, DEFAULT_INTERVAL_SECONDS) if now() >= patient_at else interval
    return GrantRefusal(error="expired_token")
