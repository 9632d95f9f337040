"""Pushed authorization requests (RFC 9126): a client hands in its request beforehand, and the browser brings only its address.

A pushed request may be opened more than once, because signing in comes between, but decided once. It waits `pushed_ms` for its
first opening; from then on a person has `OPENED_MS` since the push to sign in and read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from auth import audit, authorize, core, replies
from auth.authorize import Asked, NoPlace, SendBack
from auth.db import Db
from auth.entropy import SEED_BYTES, Entropy
from auth.errors import STATUS, Refusal
from auth.forms import Form
from auth.model import Client, Millis
from auth.policy import MINUTE
from auth.posted import Endpoint, Job
from auth.requester import Requester
from auth.site import Site
from auth.wire import Reply

if TYPE_CHECKING:
    from auth.identity import Identity

PREFIX: Final = "urn:ietf:params:oauth:request_uri:"
OPENED_MS: Final[Millis] = 10 * MINUTE


@dataclass(frozen=True, kw_only=True, slots=True)
class Pushed:
    request_uri: str = field(repr=False)
    expires_in_seconds: int


# ---------------------------------------------------------------- the endpoint


async def _prepare(identity: Identity, form: Form, who: Requester, now: Millis) -> Job:
    asked = authorize.read(
        (
            *((name, form.values[name]) for name in authorize.NAMES if name in form.values),
            *((authorize.RESOURCE, resource) for resource in form.resources),
        )
    )
    # The id may have come in the Authorization header alone.
    client_id = form.credentials.client_id
    if client_id is not None:
        asked = replace(asked, values={**asked.values, "client_id": client_id})
    seed = identity.entropy(SEED_BYTES)

    def job(db: Db) -> Pushed | Refusal:
        client = core.authenticate(
            db, form.credentials, endpoint="pushed_authorization_request", requester=who, now=now
        )
        if isinstance(client, Refusal):
            return client
        return push(
            db,
            client,
            asked,
            site=identity.site,
            who=who,
            seed=seed,
            lives_ms=identity.policy.tokens.pushed_ms,
            now=now,
        )

    return job


def push(
    db: Db,
    client: Client,
    asked: Asked,
    *,
    site: Site,
    who: Requester,
    seed: bytes,
    lives_ms: Millis,
    now: Millis,
) -> Pushed | Refusal:
    """A job: keep the request of an authenticated client, if a browser could come with it."""
    found = authorize.check(asked, client, site, who.origin)
    refused = None
    if asked.get("request_uri") is not None:  # §2.1: never inside a pushed one
        refused = Refusal(error="invalid_request", description="request_uri cannot be pushed")
    elif len(authorize.write(asked)) > authorize.CHARACTERS:
        refused = Refusal(error="invalid_request", description="the request is too long")
    elif isinstance(found, NoPlace):
        refused = Refusal(error="invalid_request", description="redirect_uri is not one of this client")
    elif isinstance(found, SendBack):
        error = found.error if found.error in STATUS else "invalid_request"
        refused = Refusal(error=error, description=found.description)
    audit.record(
        db,
        at=now,
        event="request.pushed",
        actor=f"client:{client.id}",
        client_id=client.id,
        ip=who.ip,
        user_agent=who.user_agent,
        outcome="ok" if refused is None else "refused",
        reason="" if refused is None else refused.error,
    )
    if refused is not None:
        return refused
    secret = Entropy(seed).token()
    db.execute(
        "INSERT INTO pushed_requests (uri_hash, client_id, parameters, created_at, expires_at) VALUES (?, ?, ?, ?, ?)",
        _hash(PREFIX + secret),
        client.id,
        authorize.write(asked),
        now,
        now + lives_ms,
    )
    return Pushed(request_uri=PREFIX + secret, expires_in_seconds=lives_ms // 1_000)


def _finish(identity: Identity, pushed: Pushed, who: Requester) -> Reply:
    del identity, who
    body: Mapping[str, object] = {
        "request_uri": pushed.request_uri,
        "expires_in": pushed.expires_in_seconds,
    }
    return replace(replies.answer(body), status=201)


ENDPOINT: Final = Endpoint(_prepare, _finish)


# ---------------------------------------------------------------- what becomes of it


def is_pushed(asked: Asked) -> bool:
    return (asked.get("request_uri") or "").startswith(PREFIX)


def find(db: Db, asked: Asked, now: Millis) -> Asked | None:
    """The request behind the address that `asked` consists of, as its client pushed it; whatever else the browser brought is
    ignored (§4). None if it is unknown, another client's, over or decided."""
    row = db.fetch_one(
        "SELECT client_id, parameters FROM pushed_requests WHERE uri_hash = ? AND used_at IS NULL AND expires_at > ?",
        _hash(asked.values["request_uri"]),
        now,
    )
    if row is None or row["client_id"] != asked.get("client_id"):
        return None
    return authorize.read_text(row["parameters"])


def opened(db: Db, asked: Asked, now: Millis) -> None:
    """Part of a job: somebody has come with it, and now needs the time that people need."""
    db.execute(
        "UPDATE pushed_requests SET expires_at = created_at + ? WHERE uri_hash = ? AND used_at IS NULL AND expires_at > ?"
        " AND expires_at < created_at + ?",
        OPENED_MS,
        _hash(asked.values["request_uri"]),
        now,
        OPENED_MS,
    )


def use_up(db: Db, asked: Asked, now: Millis) -> bool:
    """Part of a job: decide it. False if somebody has."""
    return bool(
        db.execute(
            "UPDATE pushed_requests SET used_at = ? WHERE uri_hash = ? AND used_at IS NULL AND expires_at > ?",
            now,
            _hash(asked.values["request_uri"]),
            now,
        )
    )


def _hash(request_uri: str) -> str:
    return hashlib.sha256(request_uri.encode()).hexdigest()
