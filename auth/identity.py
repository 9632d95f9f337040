"""`Identity`, the one object through which the server talks to all of this: OAuth's endpoints and documents, the check of a
token, what to forget when something changed. Pages of people are in entry.py; what an endpoint does is in endpoints.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from types import MappingProxyType
from typing import Final

from auth import audit, endpoints, metadata, posted, replies, setup
from auth.clients.documents import NO_DOCUMENTS, Documents, Fetch
from auth.clients.key_sets import KeySets
from auth.db import Store
from auth.encode import json_bytes
from auth.keys import ring as keys
from auth.keys.ring import Keys
from auth.model import Millis, Principal
from auth.policy import Policy
from auth.site import Site
from auth.throttle import Throttle
from auth.tokens import api_keys, live
from auth.tokens.credentials import Access, Credentials
from auth.tokens.dpop import Presented
from auth.tokens.key_ring import KeyRing
from auth.tokens.live import Change, Live
from auth.tokens.verify import Refused, Verifier
from auth.upstream import provider as upstream_provider
from auth.upstream.provider import Upstreams
from auth.wire import Reply, Request

READ: Final = ("GET", "HEAD", "OPTIONS")


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    """The parts, and what the server may ask of them. Built by `found` once per process; see `server/services.py`."""

    store: Store
    clock: Callable[[], Millis]
    entropy: Callable[[int], bytes] = field(repr=False)
    subkey: Callable[[str], bytes] = field(repr=False)
    site: Site
    policy: Policy
    keys: Keys
    live: Live
    verifier: Verifier
    key_ring: KeyRing
    credentials: Credentials
    throttle: Throttle
    documents: Documents
    fetch: Fetch | None  # documents of clients; None: this server asks nobody
    key_sets: KeySets = field(default_factory=KeySets)
    upstreams: Upstreams = field(default_factory=upstream_provider.none)  # whose assertions may count

    async def handle(self, request: Request) -> Reply | None:
        """The answer, or None if the path is none of ours. A HEAD is answered like a GET: the listener drops the body.

        Raises only what the store raises (full, closing).
        """
        endpoint = endpoints.FORMS.get(request.path)
        if endpoint is not None:
            return await posted.answer(self, endpoint, request)
        special = endpoints.special_of(request.path)
        if special is not None:
            return await special(self, request)
        published = metadata.document(self.site, self.policy, request.path, request.origin)
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

    def check_nowait(
        self,
        authorization: str | None,
        *,
        server: str,
        origin: str,
        path: str | None = None,
        api_key: str | None = None,
        address: str = "",
        proof: Presented | None = None,
    ) -> Principal | Refused | None:
        """Who calls `server`, by what the request shows, without waiting; None if the store must be asked: then `check`."""
        return self.credentials.check_nowait(
            authorization,
            server=server,
            origin=origin,
            path=path,
            api_key=api_key,
            address=address,
            proof=proof,
            now=self.clock(),
        )

    async def check(
        self,
        authorization: str | None,
        *,
        server: str,
        origin: str,
        path: str | None = None,
        api_key: str | None = None,
        address: str = "",
        proof: Presented | None = None,
    ) -> Principal | Refused:
        await self.reload_keys()
        return await self.credentials.check(
            authorization,
            server=server,
            origin=origin,
            path=path,
            api_key=api_key,
            address=address,
            proof=proof,
            now=self.clock(),
        )

    def apply_changes(self, changes: Sequence[Change]) -> None:
        """For the store's `on_changes`: what was committed, before its writers wake."""
        self.live.apply_changes(changes)
        self.key_ring.apply_changes(changes)
        if any(change.kind == "key" for change in changes):
            self.keys.changed()

    async def reload_keys(self) -> None:
        if self.keys.stale:
            await self.keys.reload(lambda: self.store.read(keys.every))


async def found(
    store: Store,
    *,
    clock: Callable[[], Millis],
    entropy: Callable[[int], bytes],
    subkey: Callable[[str], bytes],
    site: Site,
    policy: Policy,
    documents: Documents = NO_DOCUMENTS,
    fetch: Fetch | None = None,
    access: Mapping[str, Access] = MappingProxyType({}),
    upstreams: Upstreams | None = None,
) -> Identity:
    """Set the store up if need be, load the keys, and put the parts together.

    Raises `sealing.CannotUnseal` if the store's keys were sealed with another key file.
    """
    now, subkey = clock(), cache(subkey)  # derived once: the keys are in this process's memory either way
    store.chain_audit(subkey(audit.KEY_PURPOSE))
    preparation = setup.prepare(subkey, entropy, policy.tokens, now)
    await store.write(partial(setup.found, preparation=preparation, now=now))
    ring = Keys(await store.read(keys.every), subkey=subkey)
    logins = Live(lambda grant_id: store.read(partial(live.read_live, grant_id=grant_id)))
    verifier = Verifier(site=site, keys=ring, live=logins)
    key_ring = KeyRing(lambda: store.read(api_keys.every))
    await key_ring.reload()
    return Identity(
        store=store,
        clock=clock,
        entropy=entropy,
        subkey=subkey,
        site=site,
        policy=policy,
        keys=ring,
        live=logins,
        verifier=verifier,
        key_ring=key_ring,
        credentials=Credentials(site=site, verifier=verifier, ring=key_ring, access=access),
        throttle=Throttle(),
        documents=documents,
        fetch=fetch,
        upstreams=upstream_provider.none() if upstreams is None else upstreams,
    )
