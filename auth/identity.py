"""`Identity`, the one object through which the server talks to all of this: OAuth's endpoints and documents, the check of a
token, what to forget when something changed. The door to the pages of people is entry.py; what an endpoint does is in endpoints.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from types import MappingProxyType
from typing import Final

from auth import audit, endpoints, metadata, posted, replies, setup
from auth.clients.documents import NO_DOCUMENTS, Documents, FetchDocument
from auth.keys import ring as keys
from auth.keys.ring import Keys
from auth.parts import NO_HASHING, Hashing, Parts
from auth.tokens import dpop, live
from auth.tokens.challenge import BearerRefusal
from auth.tokens.credentials import AcceptedCredentials, CredentialCheck
from auth.tokens.key_ring import ApiKeyRing
from auth.tokens.live import LiveLogins, StoredChange
from auth.tokens.presentation import Presentation
from auth.tokens.proof_claims import ProofClaims
from auth.tokens.verify import TokenVerifier
from auth.upstream import provider as upstream_provider
from auth.upstream.provider import Upstreams
from auth.values.cashier import Cashier
from auth.values.connections import Connections
from auth.values.db import JobStore
from auth.values.encode import json_bytes
from auth.values.model import Millis, Principal
from auth.values.offerings import Offerings
from auth.values.paths import DID_DOCUMENT, JWKS, KEY_DOCUMENTS
from auth.values.policy import Policy
from auth.values.site import Site
from auth.values.wire import WireReply, WireRequest

READ: Final = ("GET", "HEAD", "OPTIONS")


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    """The parts, what is known of logins and keys in memory, and what the server may ask of them. Built by `found` once per
    process; see `server/program/services.py`."""

    parts: Parts
    live: LiveLogins
    verifier: TokenVerifier
    key_ring: ApiKeyRing
    credentials: CredentialCheck

    async def handle(self, request: WireRequest) -> WireReply | None:
        """The answer, or None if the path is none of ours. A HEAD is answered like a GET: the listener drops the body.

        Raises only what the store raises (full, closing).
        """
        parts = self.parts
        endpoint = endpoints.FORMS.get(request.path)
        if endpoint is not None:
            return await posted.answer(parts, endpoint, request)
        special = endpoints.special_of(request.path)
        if special is not None:
            return await special(parts, request)
        published = metadata.document(parts.site, parts.policy, request.path, request.origin, self._title)
        is_keys = request.path in KEY_DOCUMENTS
        if published is None and not is_keys and not metadata.is_probe(parts.site, request.path):
            return None
        if request.method == "OPTIONS":
            return replies.preflight(READ)
        if request.method not in READ:
            return replies.wrong_method(READ)
        if is_keys:
            await parts.reload_keys()
            if request.path == JWKS:
                return replies.document(request, parts.keys.ring.jwks(parts.clock()))
            if request.path == DID_DOCUMENT:
                return replies.document(request, keys.did_document(parts.keys.receipts, parts.site.issuer))
            return replies.document(request, parts.keys.receipts)
        return replies.not_found() if published is None else replies.document(request, json_bytes(published))

    def _title(self, server: str) -> str:
        offerings = self.parts.offerings
        return "" if offerings is None else offerings.server(server).title

    def check_nowait(self, shown: Presentation) -> Principal | BearerRefusal | None:
        """Who calls, decided from memory; None if the store must be asked: then `check`."""
        return self.credentials.check_nowait(shown, self.parts.clock())

    async def check(self, shown: Presentation) -> Principal | BearerRefusal:
        """Decide the same, with what is missing for it read from the store. Raises `NotStored`, and what the store raises: then nobody
        knows."""
        return await self.credentials.check(shown, self.parts.clock())

    def apply_changes(self, changes: Sequence[StoredChange]) -> None:
        """For the store's `on_changes`: what was committed, before its writers wake."""
        self.live.apply_changes(changes)
        self.key_ring.apply_changes(changes)
        if any(change.kind == "key" for change in changes):
            self.parts.keys.changed()

    def heed_others(self) -> None:
        """From now on there may be other processes on the same database; they may have changed keys since these were read."""
        self.parts.keys.changed()
        self.parts.keys.shared = self.key_ring.shared = True
        store = self.parts.store
        self.verifier.proof_claims = ProofClaims(lambda proof: store.write(partial(dpop.use_up, proof=proof)))

    def trust(self, trusted: bool) -> None:
        """For the store's `on_trust`: with False, what others have changed may not be known here."""
        self.live.trust(trusted)
        self.key_ring.trust(trusted)
        self.parts.keys.trust(trusted)


async def found(
    store: JobStore,
    *,
    clock: Callable[[], Millis],
    entropy: Callable[[int], bytes],
    subkey: Callable[[str], bytes],
    site: Site,
    policy: Policy,
    documents: Documents = NO_DOCUMENTS,
    fetch: FetchDocument | None = None,
    access: Mapping[str, AcceptedCredentials] = MappingProxyType({}),
    upstreams: Upstreams | None = None,
    hashing: Hashing = NO_HASHING,
    cashier: Cashier | None = None,
    connections: Connections | None = None,
    offerings: Offerings | None = None,
    began: Millis | None = None,
) -> Identity:
    """Set the store up if need be, load the keys, and put the parts together. `began`: since when this process remembers what it saw, if
    not from now on.

    Raises `sealing.CannotUnseal` if the store's keys were sealed with another key file.
    """
    now, subkey = clock(), cache(subkey)  # derived once: the keys are in this process's memory either way
    store.chain_audit(subkey(audit.KEY_PURPOSE))
    preparation = setup.prepare(subkey, entropy, policy.tokens, now)
    await store.write(partial(setup.found, preparation=preparation, now=now))
    ring = Keys(await store.read(keys.every), subkey=subkey)
    logins = LiveLogins(lambda grant_id: store.read(partial(live.read_live, grant_id=grant_id)))
    key_ring = ApiKeyRing(store)
    parts = Parts(
        store=store,
        clock=clock,
        entropy=entropy,
        subkey=subkey,
        site=site,
        policy=policy,
        keys=ring,
        documents=documents,
        fetch=fetch,
        upstreams=upstream_provider.none() if upstreams is None else upstreams,
        hashing=hashing,
        cashier=cashier,
        connections=connections,
        offerings=offerings,
    )
    verifier = TokenVerifier(
        site=site,
        keys=ring,
        live=logins,
        reload_keys=parts.reload_keys,
        nonces=dpop.ProofNonces(subkey(dpop.NONCE_PURPOSE), now if began is None else began),
    )
    return Identity(
        parts=parts,
        live=logins,
        verifier=verifier,
        key_ring=key_ring,
        credentials=CredentialCheck(site=site, verifier=verifier, ring=key_ring, access=access),
    )
