"""The OAuth endpoints: path × step, and `Identity`, the one object through which the server talks to all of this.

A form-posted endpoint is three steps: `prepare` (async: whatever is slow or needs no store), a job (sync, inside one
transaction), `finish` (sign and write down, after the commit). The listener has parsed the form (at most `FORM_BYTES`),
resolved the caller's address and allow-listed the origin. Pages of people (/device, sign-in) are not here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from types import MappingProxyType
from typing import Any, Final

from auth import core, device, forms, keys, live, metadata, replies, setup, tokens, verify
from auth.authorize import not_available
from auth.clients import BadCredentials
from auth.db import Db, Store
from auth.encode import json_bytes
from auth.entropy import SEED_BYTES
from auth.errors import Refusal
from auth.forms import BadForm, Form
from auth.grants import chain
from auth.grants.exchange import Exchange, Issue
from auth.keys import Keys
from auth.live import Change, Live
from auth.model import Millis, Principal
from auth.network import is_loopback
from auth.pages import NONCE_BYTES
from auth.policy import Policy
from auth.requester import Requester
from auth.site import Site
from auth.throttle import Throttle
from auth.verify import BadToken, Refused, Verifier
from auth.wire import Reply, Request

# RFC 6749 sets no size; our longest legal form has about 10 KiB. The listener refuses more before it parses.
FORM_BYTES: Final = 64 * 1_024

# Answers to a poll that decide nothing (RFC 8628 §3.5) and leave no audit row.
WAITING: Final = frozenset({"authorization_pending", "slow_down"})

READ: Final = ("GET", "HEAD", "OPTIONS")
POST: Final = ("POST", "OPTIONS")


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    """The parts, and what the server may ask of them. Built by `found` once per process; see `server/app.py`."""

    store: Store
    clock: Callable[[], Millis]
    entropy: Callable[[int], bytes] = field(repr=False)
    subkey: Callable[[str], bytes] = field(repr=False)
    site: Site
    policy: Policy
    keys: Keys
    live: Live
    verifier: Verifier
    throttle: Throttle

    async def handle(self, request: Request) -> Reply | None:
        """The answer, or None if the path is none of ours. A HEAD is answered like a GET: the listener drops the body.

        Raises only what the store raises (full, closing).
        """
        endpoint = ENDPOINTS.get(request.path)
        if endpoint is not None:
            return await self._post(endpoint, request)
        if request.path == metadata.AUTHORIZE:
            return not_available(request, self.entropy(NONCE_BYTES))
        published = metadata.document(self.site, request.path, request.origin)
        is_keys = request.path == metadata.JWKS
        if published is None and not is_keys and not metadata.is_probe(self.site, request.path):
            return None
        if request.method == "OPTIONS":
            return replies.preflight(READ)
        if request.method not in READ:
            return replies.wrong_method(READ)
        if is_keys:
            await self.reload_keys()
            return replies.document(request, self.keys.ring.jwks(self.clock()))
        return replies.not_found() if published is None else replies.document(request, json_bytes(published))

    async def _post(self, endpoint: Endpoint, request: Request) -> Reply:
        if request.method == "OPTIONS":
            return replies.preflight(POST)
        if request.method != "POST":
            return replies.wrong_method(POST)
        who, now = Requester.of(request), self.clock()
        limits, refused = self.policy.limits, f"\nrefused {who.network}"  # no client id has a line end
        wait = self._wait_seconds(who, who.network, limits.per_minute_per_network, now)
        if not wait and self._is_counted(who):
            wait = self.throttle.closed_seconds(refused, limits.refused_per_minute_per_network, now)
        if wait:
            return replies.refuse(_too_often(wait))
        try:
            form = forms.read(request)
        except BadForm as problem:
            return replies.refuse(Refusal(error="invalid_request", description=str(problem)))
        except BadCredentials as problem:
            return replies.refuse(Refusal(error=problem.error, description=str(problem)), basic=True)
        client_and_network = f"{form.credentials.client_id} {who.network}"
        wait = self._wait_seconds(who, client_and_network, limits.per_minute_per_client, now)
        if wait:
            return replies.refuse(_too_often(wait))
        try:
            job = await endpoint.prepare(self, form, who, now)
        except BadForm as problem:
            return replies.refuse(Refusal(error="invalid_request", description=str(problem)))
        await self.reload_keys()
        outcome = await self.store.write(job)
        if _left_a_refusal(outcome) and self._is_counted(who):
            self.throttle.count(refused, now)
        if isinstance(outcome, Refusal):
            return replies.refuse(outcome, basic=form.credentials.basic)
        return endpoint.finish(self, outcome, who)

    def _wait_seconds(self, who: Requester, key: str, limit: int, now: Millis) -> int:
        return self.throttle.wait_seconds(key, limit, now) if self._is_counted(who) else 0

    def _is_counted(self, who: Requester) -> bool:
        """Not this machine itself: whoever is on it has better ways to keep it busy, and all its programs share an address.

        A server with a public name is another matter: there a loopback address may be a proxy that nobody has listed.
        """
        return not (self.site.loopback and is_loopback(who.ip))

    def check_nowait(
        self, authorization: str | None, *, server: str, origin: str, path: str | None = None
    ) -> Principal | Refused | None:
        """The bearer check of a request to `server`, without waiting; None if the store must be asked: then `check`."""
        return self.verifier.check_nowait(
            authorization, server=server, origin=origin, path=path, now=self.clock()
        )

    async def check(
        self, authorization: str | None, *, server: str, origin: str, path: str | None = None
    ) -> Principal | Refused:
        await self.reload_keys()
        return await self.verifier.check(
            authorization, server=server, origin=origin, path=path, now=self.clock()
        )

    def apply_changes(self, changes: Sequence[Change]) -> None:
        """For the store's `on_changes`: what was committed, before its writers wake."""
        self.live.apply_changes(changes)
        if any(change.kind == "key" for change in changes):
            self.keys.changed()

    async def reload_keys(self) -> None:
        if self.keys.stale:
            await self.keys.reload(lambda: self.store.read(keys.rows))


async def found(
    store: Store,
    *,
    clock: Callable[[], Millis],
    entropy: Callable[[int], bytes],
    subkey: Callable[[str], bytes],
    site: Site,
    policy: Policy,
) -> Identity:
    """Set the store up if need be, load the keys, and put the parts together.

    Raises `keys.CannotUnseal` if the store's keys were sealed with another key file.
    """
    now, subkey = clock(), cache(subkey)  # derived once: the keys are in this process's memory either way
    await store.write(partial(setup.found, preparation=setup.prepare(subkey, entropy, now), now=now))
    ring = Keys(await store.read(keys.rows), subkey=subkey)
    logins = Live(lambda grant_id: store.read(partial(live.read_live, grant_id=grant_id)))
    return Identity(
        store=store,
        clock=clock,
        entropy=entropy,
        subkey=subkey,
        site=site,
        policy=policy,
        keys=ring,
        live=logins,
        verifier=Verifier(site=site, keys=ring, live=logins),
        throttle=Throttle(),
    )


def _left_a_refusal(outcome: Any) -> bool:
    """Whether the job wrote a refusal into the audit trail."""
    if isinstance(outcome, Refusal):
        return outcome.error not in WAITING
    return outcome == tokens.Revoked(known=False)


def _too_often(wait: int) -> Refusal:
    return Refusal(error="temporarily_unavailable", description="too many requests", retry_after_seconds=wait)


# ---------------------------------------------------------------- the steps

Job = Callable[[Db], Any]


@dataclass(frozen=True, slots=True)
class Endpoint:
    prepare: Callable[[Identity, Form, Requester, Millis], Awaitable[Job]]
    finish: Callable[[Identity, Any, Requester], Reply]


async def _prepare_token(identity: Identity, form: Form, who: Requester, now: Millis) -> Job:
    exchange = Exchange(
        form=forms.token_form(form),
        requester=who,
        site=identity.site,
        policy=identity.policy,
        refresh_key=identity.subkey(chain.KEY_PURPOSE),
        seed=identity.entropy(SEED_BYTES),
        now=now,
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
            refresh_key=identity.subkey(chain.KEY_PURPOSE),
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
    link = chain.parse(identity.subkey(chain.KEY_PURPOSE), asked.token)
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


ENDPOINTS: Final[Mapping[str, Endpoint]] = MappingProxyType(
    {
        #                              prepare          finish
        metadata.TOKEN:                Endpoint(_prepare_token,  _finish_token),
        metadata.DEVICE_AUTHORIZATION: Endpoint(_prepare_device, _finish_device),
        metadata.REVOKE:               Endpoint(_prepare_revoke, _finish_revoke),
    }
)  # fmt: skip
