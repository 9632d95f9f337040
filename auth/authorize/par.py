"""Pushed authorization requests (RFC 9126): a client hands in its request beforehand, and the browser brings only its address.

A pushed request may be opened more than once, because signing in comes between, but decided once. It waits `pushed_ms` for its
first opening; from then on a person has `OPENED_MS` since the push to sign in and read.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from auth import audit, core, replies
from auth.authorize import request as authorize
from auth.authorize.request import Asked, NoPlace, SendBack, Wanted
from auth.db import Db
from auth.entropy import SEED_BYTES, Entropy
from auth.errors import STATUS, Refusal
from auth.forms import Form
from auth.model import Client, Millis
from auth.people import attempts
from auth.people.attempts import Limit
from auth.policy import MINUTE, FormLimits, Policy
from auth.posted import Endpoint, Job, is_counted
from auth.requester import Requester
from auth.site import Site
from auth.tokens import dpop
from auth.tokens.dpop import Proof
from auth.wire import Reply

if TYPE_CHECKING:
    from auth.identity import Identity

PREFIX: Final = "urn:ietf:params:oauth:request_uri:"
OPENED_MS: Final[Millis] = 10 * MINUTE
SWEPT: Final = 20  # requests that are over, by each that comes


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
    proof = form.proof
    if proof is not None:  # RFC 9449 §10.1: as good as naming the key, and better
        asked = replace(asked, values={"dpop_jkt": proof.jkt, **asked.values})
    seed, counted = identity.entropy(SEED_BYTES), is_counted(identity, who)

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
            proof=proof,
            site=identity.site,
            who=who,
            seed=seed,
            policy=identity.policy,
            counted=counted,
            now=now,
        )

    return job


def push(
    db: Db,
    client: Client,
    asked: Asked,
    *,
    proof: Proof | None = None,
    site: Site,
    who: Requester,
    seed: bytes,
    policy: Policy,
    counted: bool,
    now: Millis,
) -> Pushed | Refusal:
    """A job: keep the request of an authenticated client, if a browser could come with it."""
    lives_ms = policy.tokens.pushed_ms
    _sweep(db, now)
    refused = _one_too_many(db, client, policy.limits, who, now) if counted else None
    if refused is None:
        refused = _unfit(asked, authorize.check(asked, client, site, who.origin))
    if refused is None and proof is not None:
        refused = _unproven(db, asked, proof)
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


def _unfit(asked: Asked, found: NoPlace | SendBack | Wanted) -> Refusal | None:
    if asked.get("request_uri") is not None:  # §2.1: never inside a pushed one
        return Refusal(error="invalid_request", description="request_uri cannot be pushed")
    if len(authorize.write(asked)) > authorize.CHARACTERS:
        return Refusal(error="invalid_request", description="the request is too long")
    if isinstance(found, NoPlace):
        return Refusal(error="invalid_request", description="redirect_uri is not one of this client")
    if isinstance(found, SendBack):
        error = found.error if found.error in STATUS else "invalid_request"
        return Refusal(error=error, description=found.description)
    return None


def _sweep(db: Db, now: Millis) -> None:
    """Part of a job: what is over makes room here and now, for it is long, and anybody may push."""
    db.execute(
        "DELETE FROM pushed_requests WHERE uri_hash IN"
        " (SELECT uri_hash FROM pushed_requests WHERE expires_at <= ? ORDER BY expires_at, uri_hash LIMIT ?)",
        now,
        SWEPT,
    )


def _one_too_many(db: Db, client: Client, limits: FormLimits, who: Requester, now: Millis) -> Refusal | None:
    """Part of a job: whether strangers keep as much here as they may. A program that the operator entered is none."""
    if client.kind not in ("dynamic", "document"):
        return None
    bucket = f"pushed:{who.network}"
    limit = Limit(tries=limits.pushed_per_minute_per_network, window=MINUTE)
    opens = attempts.closed_until(db, [(bucket, limit)], now)
    waiting = db.fetch_one("SELECT COUNT(*) AS n FROM pushed_requests WHERE expires_at > ?", now)
    if not opens and waiting is not None and waiting["n"] >= limits.pushed:
        opens = now + MINUTE
    if opens:
        return Refusal(
            error="temporarily_unavailable",
            description="too many requests were pushed",
            retry_after_seconds=max(1, -(-(opens - now) // 1_000)),
        )
    attempts.count(db, bucket, now)
    return None


def _unproven(db: Db, asked: Asked, proof: Proof) -> Refusal | None:
    """Part of a job: uses the proof up."""
    if asked.get("dpop_jkt") != proof.jkt:
        return dpop.refusal("is by another key than dpop_jkt names")
    return None if dpop.use_up(db, proof) else dpop.refusal("was used before")


def _finish(identity: Identity, pushed: Pushed, who: Requester) -> Reply:
    del identity, who
    body: Mapping[str, object] = {
        "request_uri": pushed.request_uri,
        "expires_in": pushed.expires_in_seconds,
    }
    return dataclasses.replace(replies.answer(body), status=201)


ENDPOINT: Final = Endpoint(_prepare, _finish, takes_proof=True)


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
