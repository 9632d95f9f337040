"""`Identity`, the one object through which the server talks to all of this: OAuth's endpoints and documents, the check of a
token, what to forget when something changed. The door to the pages of people is auth/pages/page_admission.py; what an endpoint does is in auth/endpoints/endpoint_table.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from types import MappingProxyType
from typing import Final

from auth.administration import store_preparation
from auth.audit import audit_trail
from auth.client_authentication import dpop_proofs
from auth.clients.client_identifier_urls import NO_DOCUMENTS, Documents, FetchDocument
from auth.context.identity_parts import NO_HASHING, Hashing, Parts
from auth.endpoints import endpoint_table, json_replies, posted_forms, server_metadata
from auth.keys import signing_keys as keys
from auth.keys.signing_keys import Keys
from auth.providers import provider_requests as upstream_provider
from auth.providers.provider_requests import Upstreams
from auth.tokens import live_logins
from auth.tokens.accepted_credentials import AcceptedCredentials, CredentialCheck
from auth.tokens.access_token_verifier import TokenVerifier
from auth.tokens.api_key_ring import ApiKeyRing
from auth.tokens.dpop_replays import ProofClaims
from auth.tokens.live_logins import LiveLogins, StoredChange
from auth.tokens.presented_credentials import Presentation
from auth.tokens.www_authenticate import BearerRefusal
from auth.values.cashier import Cashier
from auth.values.compact_json import json_bytes
from auth.values.connected_accounts import Connections
from auth.values.database import JobStore
from auth.values.endpoint_paths import DID_DOCUMENT, JWKS, KEY_DOCUMENTS
from auth.values.http_messages import WireReply, WireRequest
from auth.values.identity_model import Millis, Principal
from auth.values.issuer_and_resources import Site
from auth.values.limits_and_lifetimes import Policy
from auth.values.offered_servers import Offerings

READ: Final = ("GET", "HEAD", "OPTIONS")


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    """The parts, what is known of logins and keys in memory, and what the server may ask of them. Built by `found` once per
    process; see `server/run/services.py`."""

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
        endpoint = endpoint_table.FORMS.get(request.path)
        if endpoint is not None:
            return await posted_forms.answer(parts, endpoint, request)
        special = endpoint_table.special_of(request.path)
        if special is not None:
            return await special(parts, request)
        published = server_metadata.document(
            parts.site, parts.policy, request.path, request.origin, self._title
        )
        is_keys = request.path in KEY_DOCUMENTS
        if published is None and not is_keys and not server_metadata.is_probe(parts.site, request.path):
            return None
        if request.method == "OPTIONS":
            return json_replies.preflight(READ)
        if request.method not in READ:
            return json_replies.wrong_method(READ)
        if is_keys:
            await parts.reload_keys()
            if request.path == JWKS:
                return json_replies.document(request, parts.keys.ring.jwks(parts.clock()))
            if request.path == DID_DOCUMENT:
                return json_replies.document(
                    request, keys.did_document(parts.keys.receipts, parts.site.issuer)
                )
            return json_replies.document(request, parts.keys.receipts)
        return (
            json_replies.not_found()
            if published is None
            else json_replies.document(request, json_bytes(published))
        )

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
        self.verifier.proof_claims = ProofClaims(
            lambda proof: store.write(partial(dpop_proofs.use_up, proof=proof))
        )

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

    Raises `sealed_secrets.CannotUnseal` if the store's keys were sealed with another key file.
    """
    now, subkey = clock(), cache(subkey)  # derived once: the keys are in this process's memory either way
    store.chain_audit(subkey(audit_trail.KEY_PURPOSE))
    preparation = store_preparation.prepare(subkey, entropy, policy.tokens, now)
    await store.write(partial(store_preparation.found, preparation=preparation, now=now))
    ring = Keys(await store.read(keys.every), subkey=subkey)
    logins = LiveLogins(lambda grant_id: store.read(partial(live_logins.read_live, grant_id=grant_id)))
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
        nonces=dpop_proofs.ProofNonces(subkey(dpop_proofs.NONCE_PURPOSE), now if began is None else began),
    )
    return Identity(
        parts=parts,
        live=logins,
        verifier=verifier,
        key_ring=key_ring,
        credentials=CredentialCheck(site=site, verifier=verifier, ring=key_ring, access=access),
    )
