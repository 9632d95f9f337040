"""Clients whose id is the address of their metadata: having them in the store, from their own address or from a pinned copy.

A copy is fresh for as long as its server says, within bounds. While its address cannot be reached the old copy counts for
another week, and of well-known clients the one that comes with this package; what a server says it no longer has, or what is
wrong in itself, counts no more at once. Documents are judged in client_metadata_document.py. Nothing is fetched inside a
job, and nothing is fetched here: that is lent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from auth.audit import audit_trail
from auth.clients import client_metadata_document as client_metadata
from auth.clients import pinned
from auth.clients.client_identifier_urls import (
    CannotFetch,
    DocumentAddress,
    FetchDocument,
    client_id_problem,
    read_address,
)
from auth.clients.client_metadata_document import BadDocument, DocumentDescription
from auth.throttling import attempt_limits
from auth.throttling.attempt_limits import Limit
from auth.values import scopes, sealed_rows
from auth.values.database import Db, JobStore, Row, from_row
from auth.values.identity_model import Millis
from auth.values.limits_and_lifetimes import DAY, MINUTE, SECOND, RegistrationPolicy

KIND: Final = "document"
EVENT: Final = "client.document"

# What a server says about how long is kept to within these.
FRESH_AT_LEAST: Final = 5 * MINUTE
FRESH_AT_MOST: Final = DAY
FRESH_USUALLY: Final = 60 * MINUTE  # where it says nothing
STALE: Final = 7 * DAY
# How soon an address is tried again: after a failure that somebody may be mending now, and while there is a copy to go on with.
RETRY: Final = 60 * SECOND
RETRY_MEANWHILE: Final = 15 * MINUTE

UNREACHABLE: Final = (
    "cannot be reached"  # all that a stranger is told: names that only we can resolve are none of theirs
)
TOO_MANY: Final = "too many new clients were tried; try again later"
NOT_AT_THIS_HOST: Final = "this server takes no client ids at this host"
NOT_PINNED: Final = "this server knows no client of this address"
ANOTHERS: Final = "this address is the id of another client"


# Does the same work once for all who ask for it at the same time. Lent by the server.
ShareWork: TypeAlias = Callable[[str, Callable[[], Awaitable[str | None]]], Awaitable[str | None]]


class KnownDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A row of `client_documents`."""

    body: str | None
    source: str
    fresh_until: Millis
    stale_until: Millis
    problem: str = ""  # why there is none, or only a pinned one

    def verdict(self) -> str | None:
        return None if self.body is not None else _told(self.problem)


class DocumentCopy(KnownDocument, frozen=True, kw_only=True):
    """A document that was found good."""

    described: DocumentDescription


class DocumentFailure(msgspec.Struct, frozen=True, kw_only=True):
    told: str  # to whoever asked
    reason: str  # to the operator
    definite: bool


class ClientDocuments:
    """The `client_identifier_urls.Documents` over the store. Without `fetch`, pinned documents are all there are."""

    def __init__(
        self,
        store: JobStore,
        *,
        fetch: FetchDocument | None,
        share: ShareWork,
        policy: RegistrationPolicy,
        fetch_for_people: FetchDocument | None = None,
    ) -> None:
        """Use `fetch_for_people` for those who are signed in, where strangers must not take its time; otherwise there is one for all."""
        self._store = store
        self._fetch = fetch
        self._fetch_for_people = fetch_for_people or fetch
        self._share = share
        self._policy = policy

    async def ensure(self, client_id: str, *, network: str, signed_in: bool, now: Millis) -> str | None:
        problem = client_id_problem(client_id)
        if problem is not None:
            return f"a client id that is an address {problem}"
        address = read_address(client_id)
        hosts = self._policy.document_hosts
        if hosts and not (isinstance(address, DocumentAddress) and address.host in hosts):
            return NOT_AT_THIS_HOST
        known = await self._store.read(partial(find, url=client_id))
        fetch = self._fetch_for_people if signed_in else self._fetch
        if fetch is None:
            return await self._pinned_only(client_id, known, network, now)
        if known is not None and known.fresh_until > now:
            return known.verdict()
        renew = partial(self._renew, client_id, fetch, network=network, signed_in=signed_in, now=now)
        # Nobody who is signed in waits behind what a stranger has begun.
        return await self._share(f"{'people' if signed_in else 'strangers'} {client_id}", renew)

    async def _pinned_only(
        self, url: str, known: KnownDocument | None, network: str, now: Millis
    ) -> str | None:
        body = pinned.body(url)
        if body is None:
            return NOT_PINNED
        if known is not None and known.body == body.decode() and known.stale_until > now:
            return None
        # Not fresh for a moment: a server that may fetch again does so.
        copy = _pinned_copy(url, body, fresh_until=now, stale_until=now + STALE)
        return await self._store.write(partial(accept, url=url, copy=copy, network=network, now=now))

    async def _renew(
        self, url: str, fetch: FetchDocument, *, network: str, signed_in: bool, now: Millis
    ) -> str | None:
        known, admitted = await self._store.write(
            partial(admit, url=url, network=None if signed_in else network, policy=self._policy, now=now)
        )
        if known is not None and known.fresh_until > now:
            return known.verdict()
        body = pinned.body(url)
        pin = None if body is None else partial(_pinned_copy, url, body)
        if not admitted:
            if known is not None and known.body is not None and known.stale_until > now:
                return None
            if pin is None:
                return TOO_MANY
            copy = pin(fresh_until=now, stale_until=now, problem="too many were tried")
            return await self._store.write(partial(accept, url=url, copy=copy, network=network, now=now))
        result = await _look(url, fetch, now)
        if isinstance(result, DocumentCopy):
            return await self._store.write(partial(accept, url=url, copy=result, network=network, now=now))
        again = now + RETRY_MEANWHILE
        instead = None if pin is None else pin(fresh_until=again, stale_until=again, problem=result.reason)
        return await self._store.write(
            partial(fall_back, url=url, failure=result, pin=instead, network=network, now=now)
        )


async def _look(url: str, fetch: FetchDocument, now: Millis) -> DocumentCopy | DocumentFailure:
    try:
        fetched = await fetch(url)
    except CannotFetch as problem:
        told = str(problem) if problem.definite else UNREACHABLE
        return DocumentFailure(told=told, reason=str(problem), definite=problem.definite)
    try:
        described = client_metadata.read(url, fetched.body)
    except BadDocument as problem:
        return DocumentFailure(told=str(problem), reason=str(problem), definite=True)
    age = FRESH_USUALLY if fetched.max_age_seconds is None else fetched.max_age_seconds * SECOND
    fresh_until = now + min(max(age, FRESH_AT_LEAST), FRESH_AT_MOST)
    return DocumentCopy(
        body=fetched.body.decode(),
        described=described,
        source="network",
        fresh_until=fresh_until,
        stale_until=fresh_until + STALE,
    )


def _pinned_copy(
    url: str, body: bytes, *, fresh_until: Millis, stale_until: Millis, problem: str = ""
) -> DocumentCopy:
    return DocumentCopy(
        body=body.decode(),
        described=client_metadata.read(url, body),
        source="pinned",
        fresh_until=fresh_until,
        stale_until=stale_until,
        problem=problem,
    )


def _told(problem: str) -> str:
    return f"the document at this client id's address {problem}"


# ---------------------------------------------------------------- jobs


def find(db: Db, url: str) -> KnownDocument | None:
    row = db.fetch_one("SELECT * FROM client_documents WHERE url = ?", url)
    return None if row is None else from_row(KnownDocument, row)


def admit(
    db: Db, url: str, *, network: str | None, policy: RegistrationPolicy, now: Millis
) -> tuple[KnownDocument | None, bool]:
    """Return what is known by now, and whether its address may be asked. `network` None: somebody signed in asks, which is free."""
    known = find(db, url)
    if network is None or (known is not None and known.fresh_until > now):
        return known, True
    window = policy.fetches_per_network_ms
    buckets = (
        (f"document:network:{network}", Limit(tries=policy.fetches_per_network, window=window)),
        ("document:all", Limit(tries=policy.fetches, window=window)),
    )
    if attempt_limits.closed_until(db, buckets, now):
        return known, False
    for bucket, _ in buckets:
        attempt_limits.count(db, bucket, now)
    return known, True


def accept(db: Db, url: str, *, copy: DocumentCopy, network: str, now: Millis) -> str | None:
    """Write the client as its document describes it; return a sentence if the id is somebody else's."""
    known = find(db, url)
    row = db.fetch_one("SELECT * FROM clients WHERE id = ?", url)
    if row is not None and row["kind"] != KIND:
        return ANOTHERS
    if row is None:
        _insert(db, url, copy.described, now)
        what = "accepted"
    else:
        what = "changed" if _update(db, url, copy.described, row) else ""
    _put(db, url, copy, now)
    before = ("", "") if known is None else (known.source, known.problem)
    if before != (copy.source, copy.problem):
        source = "from its address" if copy.source == "network" else "the pinned copy"
        what = ", ".join(filter(None, (what, source, copy.problem)))
    if what:
        left_out = copy.described.left_out
        more = f"; {left_out} redirect addresses elsewhere left out" if left_out else ""
        audit_trail.record(db, now, EVENT, client_id=url, reason=what + more, ip=network)
    return None


def fall_back(
    db: Db, url: str, *, failure: DocumentFailure, pin: DocumentCopy | None, network: str, now: Millis
) -> str | None:
    """Go on, after a try that brought nothing, with an old copy or the pinned one, if that may be; or have no such client."""
    known = find(db, url)
    if not failure.definite:
        if known is not None and known.body is not None and known.stale_until > now:
            again = now + RETRY_MEANWHILE
            _put(db, url, replace(known, fresh_until=again, problem=failure.reason), now)
            if not known.problem:
                kept = f"the copy we have, {failure.reason}"
                audit_trail.record(db, now, EVENT, client_id=url, reason=kept, ip=network)
            return None
        if pin is not None:
            return accept(db, url, copy=pin, network=network, now=now)
    again = now + RETRY
    none = KnownDocument(
        body=None, source="network", fresh_until=again, stale_until=again, problem=failure.told
    )
    _put(db, url, none, now)
    audit_trail.record(db, now, EVENT, client_id=url, refused=failure.reason, ip=network)
    return _told(failure.told)


def _put(db: Db, url: str, known: KnownDocument, now: Millis) -> None:
    db.execute(
        "INSERT INTO client_documents (url, body, source, fetched_at, fresh_until, stale_until, problem)"
        " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (url) DO UPDATE SET body = excluded.body, source = excluded.source,"
        " fetched_at = excluded.fetched_at, fresh_until = excluded.fresh_until, stale_until = excluded.stale_until,"
        " problem = excluded.problem",
        url,
        known.body,
        known.source,
        now,
        known.fresh_until,
        known.stale_until,
        known.problem,
    )


def _columns(described: DocumentDescription) -> dict[str, object]:
    return {
        "name": described.name,
        "auth_method": described.auth_method,
        "grant_types": " ".join(described.grant_types),
        "redirect_uris": " ".join(described.redirect_uris),
        "client_uri": described.client_uri,
        "jwks": described.jwks,
        "jwks_uri": described.jwks_uri,
        "metadata": described.metadata,
    }


def _insert(db: Db, url: str, described: DocumentDescription, now: Millis) -> None:
    row = {
        "id": url,
        "kind": KIND,
        "scope": scopes.EVERYTHING,
        "state": "enabled",
        "created_at": now,
        "introspects": 0,
        **dict.fromkeys(("secret_hash", "server", "registration_hash")),
        **_columns(described),
    }
    sealed_rows.insert(db, sealed_rows.CLIENTS, row)


def _update(db: Db, url: str, described: DocumentDescription, row: Row) -> bool:
    """Update a client; return whether there was anything to change. `state` and `scope`, of the operator, stay."""
    columns = _columns(described)
    if all(row[name] == value for name, value in columns.items()):
        return False
    changed = sealed_rows.update(db, sealed_rows.CLIENTS, url, columns, row=row)
    if changed:
        db.changed("client", url)
    return changed
