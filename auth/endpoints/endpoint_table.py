"""The table of OAuth endpoints, path × steps, and the steps of some. How a posted form is answered is in posted_forms.py.

Pages of people (/authorize, /device, sign-in) are routes in `server/console/pages`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

from auth.authorization import device_authorization as device
from auth.context.identity_parts import Parts
from auth.endpoints import (
    client_registration,
    json_replies,
    posted_forms,
    pushed_authorization,
    token_introspection,
)
from auth.endpoints.posted_forms import FormEndpoint, Job
from auth.grants import identity_assertions as identity_assertion
from auth.grants import request_parameters
from auth.grants.request_parameters import CheckedForm
from auth.grants.token_request import GrantRequest, Issue
from auth.tokens import access_tokens as tokens
from auth.values import endpoint_paths
from auth.values.database import Db
from auth.values.entropy import SEED_BYTES
from auth.values.http_messages import WireReply, WireRequest
from auth.values.identity_model import Client, Millis
from auth.values.oauth_errors import OAuthRefusal
from auth.values.requester import Requester

# RFC 6749 sets no size; our longest legal form has about 10 KiB. The listener refuses more before it parses.
FORM_BYTES: Final = 64 * 1_024


async def _prepare_token(parts: Parts, form: CheckedForm, who: Requester, now: Millis) -> Job:
    from auth.endpoints import token_endpoint  # Authlib, which a server without logins need not carry

    asked = request_parameters.token_form(form)
    shown = asked.refresh_token
    if parts.keys.shared and shown is not None and parts.keys.refresh.lacks(shown):
        parts.keys.may_be_new(now)
    if parts.keys.stale or not parts.keys.trusted:
        await parts.reload_keys()
    asserted = None
    if asked.assertion is not None:
        asserted = await identity_assertion.prove(parts, asked, who.origin, now)
    exchange = GrantRequest(
        form=asked,
        requester=who,
        site=parts.site,
        policy=parts.policy,
        refresh_keys=parts.keys.refresh,
        seed=parts.entropy(SEED_BYTES),
        now=now,
        asserted=asserted,
        proof=form.proof,
    )
    return partial(token_endpoint.exchange_token, exchange=exchange)


def _finish_token(parts: Parts, issue: Issue, who: Requester) -> WireReply:
    del who
    return json_replies.answer(tokens.answer(parts, issue))


async def _prepare_device(parts: Parts, form: CheckedForm, who: Requester, now: Millis) -> Job:
    ask = partial(
        device.request_code,
        ask=device.CodeRequest(
            scope=form.get("scope") or "",
            resources=form.resources,
            client_name=form.get("client_name") or "",
            hostname=form.get("hostname") or "",
            requester=who,
        ),
        seed=parts.entropy(SEED_BYTES),
        mac_key=parts.subkey(device.MAC_PURPOSE),
        site=parts.site,
        policy=parts.policy.device,
        now=now,
    )
    return posted_forms.by_client(form, "device_authorization", who, now, ask)


def _finish_device(parts: Parts, codes: device.DeviceAuthorization, who: Requester) -> WireReply:
    page, user_code = parts.site.public(who.origin) + endpoint_paths.DEVICE, codes.user_code.reveal()
    return json_replies.answer(
        {
            "device_code": codes.device_code.reveal(),
            "user_code": user_code,
            "verification_uri": page,
            "verification_uri_complete": f"{page}?user_code={user_code}",
            "expires_in": codes.expires_in_seconds,
            "interval": codes.interval_seconds,
        }
    )


async def _prepare_revoke(parts: Parts, form: CheckedForm, who: Requester, now: Millis) -> Job:
    token = form.need("token")
    found = await posted_forms.known_token(parts, token, now, expired_too=True)
    grant_id = None if found is None else found.grant_id  # §2.2: not an error

    def ask(db: Db, client: Client) -> tokens.Revoked | OAuthRefusal:
        # Whoever no longer waits for a login has no token yet, and shows what it would get one for. The answer is the same for
        # any text (§2.2), so nobody learns which codes there are.
        if grant_id is None and device.withdraw(db, client.id, token, requester=who, now=now):
            return tokens.Revoked(known=True)
        return tokens.revoke_by_token(db, client, grant_id, requester=who, now=now)

    return posted_forms.by_client(form, "revocation", who, now, ask)


def _finish_revoke(parts: Parts, revoked: tokens.Revoked, who: Requester) -> WireReply:
    del parts, revoked, who
    return json_replies.empty()


FORMS: Final[Mapping[str, FormEndpoint]] = MappingProxyType(
    {
        #                              prepare          finish
        endpoint_paths.TOKEN:                FormEndpoint(_prepare_token,  _finish_token, takes_proof=True),
        endpoint_paths.DEVICE_AUTHORIZATION: FormEndpoint(_prepare_device, _finish_device),
        endpoint_paths.REVOKE:               FormEndpoint(_prepare_revoke, _finish_revoke),
        endpoint_paths.PAR:                  pushed_authorization.ENDPOINT,
        endpoint_paths.INTROSPECT:           token_introspection.ENDPOINT,
    }
)  # fmt: skip

Special = Callable[[Parts, WireRequest], Awaitable[WireReply]]


# Endpoints that take something else than a form: exact paths; one that ends in a slash stands for all below it.
SPECIAL: Final[Mapping[str, Special]] = MappingProxyType(
    {
        endpoint_paths.REGISTER: client_registration.create,
        endpoint_paths.REGISTER + "/": client_registration.manage,
    }
)


def special_of(path: str) -> Special | None:
    found = SPECIAL.get(path)
    return found if found is not None else SPECIAL.get(path[: path.rfind("/") + 1])


def is_endpoint(path: str) -> bool:
    """Return whether programs ask for this path, and no person."""
    return path in FORMS or special_of(path) is not None
