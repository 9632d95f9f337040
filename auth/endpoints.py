"""The OAuth endpoints: path × steps. How a posted form is answered is in posted.py; here is what each endpoint does with it.

Pages of people (/authorize, /device, sign-in) are in entry.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from auth import core, forms, metadata, replies
from auth.authorize import par
from auth.clients import register
from auth.db import Db
from auth.device import request as device
from auth.entropy import SEED_BYTES
from auth.errors import Refusal
from auth.forms import Form
from auth.grants import chain
from auth.grants.exchange import Exchange, Issue
from auth.model import Millis
from auth.posted import Endpoint, Job
from auth.requester import Requester
from auth.tokens import access as tokens
from auth.tokens import introspection, verify
from auth.tokens.verify import BadToken
from auth.upstream import assertion as identity_assertion
from auth.wire import Reply, Request

if TYPE_CHECKING:
    from auth.identity import Identity

# RFC 6749 sets no size; our longest legal form has about 10 KiB. The listener refuses more before it parses.
FORM_BYTES: Final = 64 * 1_024


async def _prepare_token(identity: Identity, form: Form, who: Requester, now: Millis) -> Job:
    asked = forms.token_form(form)
    await identity.reload_keys()
    asserted = await identity_assertion.prove(identity, asked, who.origin, now)
    exchange = Exchange(
        form=asked,
        requester=who,
        site=identity.site,
        policy=identity.policy,
        refresh_keys=identity.keys.refresh,
        seed=identity.entropy(SEED_BYTES),
        now=now,
        asserted=asserted,
        proof=form.proof,
    )
    return partial(core.exchange_token, exchange=exchange)


def _finish_token(identity: Identity, issue: Issue, who: Requester) -> Reply:
    del who
    return replies.answer(
        tokens.answer(
            issue,
            site=identity.site,
            policy=identity.policy.tokens,
            key=identity.keys.ring.signing(issue.issued_at),
            refresh_keys=identity.keys.refresh,
            seed=identity.entropy(SEED_BYTES),
        )
    )


async def _prepare_device(identity: Identity, form: Form, who: Requester, now: Millis) -> Job:
    asked = forms.device_form(form)
    ask = device.CodeRequest(
        scope=asked.scope,
        resources=asked.resources,
        client_name=asked.client_name,
        hostname=asked.hostname,
        requester=who,
    )
    seed, mac_key = identity.entropy(SEED_BYTES), identity.subkey(device.MAC_PURPOSE)

    def job(db: Db) -> device.DeviceAuthorization | Refusal:
        client = core.authenticate(
            db, asked.credentials, endpoint="device_authorization", requester=who, now=now
        )
        if isinstance(client, Refusal):
            return client
        return device.request_code(
            db,
            client=client,
            ask=ask,
            seed=seed,
            mac_key=mac_key,
            site=identity.site,
            policy=identity.policy.device,
            now=now,
        )

    return job


def _finish_device(identity: Identity, codes: device.DeviceAuthorization, who: Requester) -> Reply:
    page, user_code = identity.site.public(who.origin) + metadata.DEVICE, codes.user_code.reveal()
    return replies.answer(
        {
            "device_code": codes.device_code.reveal(),
            "user_code": user_code,
            "verification_uri": page,
            "verification_uri_complete": f"{page}?user_code={user_code}",
            "expires_in": codes.expires_in_seconds,
            "interval": codes.interval_seconds,
        }
    )


async def _prepare_revoke(identity: Identity, form: Form, who: Requester, now: Millis) -> Job:
    asked = forms.revoke_form(form)
    await identity.reload_keys()
    link = chain.parse(identity.keys.refresh, asked.token, now)
    grant_id = None if link is None else link.grant_id
    if link is None:
        try:
            grant_id = verify.read(
                asked.token, identity.site.issuer, identity.keys, now, expired_too=True
            ).grant_id
        except BadToken:
            grant_id = None  # §2.2: not an error

    def job(db: Db) -> tokens.Revoked | Refusal:
        client = core.authenticate(db, asked.credentials, endpoint="revocation", requester=who, now=now)
        if isinstance(client, Refusal):
            return client
        return tokens.revoke_by_token(db, client, grant_id, requester=who, now=now)

    return job


def _finish_revoke(identity: Identity, revoked: tokens.Revoked, who: Requester) -> Reply:
    del identity, revoked, who
    return replies.empty()


FORMS: Final[Mapping[str, Endpoint]] = MappingProxyType(
    {
        #                              prepare          finish
        metadata.TOKEN:                Endpoint(_prepare_token,  _finish_token, takes_proof=True),
        metadata.DEVICE_AUTHORIZATION: Endpoint(_prepare_device, _finish_device),
        metadata.REVOKE:               Endpoint(_prepare_revoke, _finish_revoke),
        metadata.PAR:                  par.ENDPOINT,
        metadata.INTROSPECT:           introspection.ENDPOINT,
    }
)  # fmt: skip

Special = Callable[["Identity", Request], Awaitable[Reply]]


# Endpoints that take something else than a form: exact paths; one that ends in a slash stands for all below it.
SPECIAL: Final[Mapping[str, Special]] = MappingProxyType(
    {metadata.REGISTER: register.create, metadata.REGISTER + "/": register.manage}
)


def special_of(path: str) -> Special | None:
    found = SPECIAL.get(path)
    return found if found is not None else SPECIAL.get(path[: path.rfind("/") + 1])


def is_endpoint(path: str) -> bool:
    """Whether programs ask for this path, and no person."""
    return path in FORMS or special_of(path) is not None
