"""Pushed authorization requests (RFC 9126): a client hands in its request beforehand, and the browser brings only its address.

A pushed request may be opened more than once, because signing in comes between, but decided once. The request waits `pushed_ms` for
somebody who is signed in; from then on they have `OPENED_MS` since the push to read. A browser in which nobody is signed in gets
more time only for a program that proved who it is: strangers must not make each other's requests last.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from msgspec.structs import replace

from auth.audit import audit_trail
from auth.authorization import authorization_request as authorize
from auth.authorization.authorization_request import AuthorizationRequest, NoPlace, SendBack, WantedAccess
from auth.client_authentication import dpop_proofs
from auth.client_authentication.dpop_proofs import DpopProof
from auth.context.identity_parts import Parts
from auth.endpoints import json_replies
from auth.endpoints.posted_forms import FormEndpoint, Job, by_client, limits_of
from auth.grants.request_parameters import CheckedForm
from auth.throttling import attempt_limits
from auth.throttling.attempt_limits import Limit
from auth.values.database import Db
from auth.values.entropy import SEED_BYTES, Entropy
from auth.values.http_messages import WireReply
from auth.values.identity_model import Client, Millis
from auth.values.issuer_and_resources import Site
from auth.values.limits_and_lifetimes import MINUTE, FormLimits, Policy
from auth.values.oauth_errors import STATUS, OAuthRefusal, try_later
from auth.values.requester import Requester

PREFIX: Final = "urn:ietf:params:oauth:request_uri:"
OPENED_MS: Final[Millis] = 10 * MINUTE
SWEPT: Final = 20  # requests that are over, by each that comes

_UNENTERED: Final = ("dynamic", "document")
_STRANGERS: Final = "(c.auth_method = 'none' OR c.kind IN ('dynamic', 'document'))"  # `is_stranger`


@dataclass(frozen=True, kw_only=True, slots=True)
class PushedRequest:
    request_uri: str = field(repr=False)
    expires_in_seconds: int


# ---------------------------------------------------------------- the endpoint


async def _prepare(parts: Parts, form: CheckedForm, who: Requester, now: Millis) -> Job:
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
    ask = partial(
        push,
        asked=asked,
        proof=proof,
        site=parts.site,
        who=who,
        seed=parts.entropy(SEED_BYTES),
        policy=parts.policy,
        limits=limits_of(parts, who),
        now=now,
    )
    return by_client(form, "pushed_authorization_request", who, now, ask)


def push(
    db: Db,
    client: Client,
    asked: AuthorizationRequest,
    *,
    proof: DpopProof | None = None,
    site: Site,
    who: Requester,
    seed: bytes,
    policy: Policy,
    limits: FormLimits,
    now: Millis,
) -> PushedRequest | OAuthRefusal:
    """Keep the request of an authenticated client, as a job, if a browser could come with it."""
    lives_ms = policy.tokens.pushed_ms
    _sweep(db, now)
    refused = _one_too_many(db, client, limits, who, now)
    if refused is None:
        refused = _unfit(asked, authorize.check(asked, client, site, who.origin))
    if refused is None and proof is not None:
        refused = _unproven(db, asked, proof)
    error = "" if refused is None else refused.error
    audit_trail.record_client(db, now, "request.pushed", client.id, who, refused=error)
    if refused is not None:
        return refused
    secret = Entropy(seed).token()
    uri_hash = _hash(PREFIX + secret)
    if limits.pushed_share is not None and is_stranger(client):
        attempt_limits.count(db, _around(who) + uri_hash, now)
    db.execute(
        "INSERT INTO pushed_requests (uri_hash, client_id, parameters, created_at, expires_at) VALUES (?, ?, ?, ?, ?)",
        uri_hash,
        client.id,
        authorize.write(asked),
        now,
        now + lives_ms,
    )
    return PushedRequest(request_uri=PREFIX + secret, expires_in_seconds=lives_ms // 1_000)


def _unfit(asked: AuthorizationRequest, found: NoPlace | SendBack | WantedAccess) -> OAuthRefusal | None:
    if asked.get("request_uri") is not None:  # §2.1: never inside a pushed one
        return OAuthRefusal(error="invalid_request", description="request_uri cannot be pushed")
    if len(authorize.write(asked)) > authorize.CHARACTERS:
        return OAuthRefusal(error="invalid_request", description="the request is too long")
    if isinstance(found, NoPlace):
        return OAuthRefusal(error="invalid_request", description="redirect_uri is not one of this client")
    if isinstance(found, SendBack):
        error = found.error if found.error in STATUS else "invalid_request"
        return OAuthRefusal(error=error, description=found.description)
    return None


def _sweep(db: Db, now: Millis) -> None:
    """Make room, as part of a job: requests that are over go here and now, for each is long, and anybody may push."""
    db.execute(
        "DELETE FROM pushed_requests WHERE uri_hash IN"
        " (SELECT uri_hash FROM pushed_requests WHERE expires_at <= ? ORDER BY expires_at, uri_hash LIMIT ?)",
        now,
        SWEPT,
    )


def _one_too_many(
    db: Db, client: Client, limits: FormLimits, who: Requester, now: Millis
) -> OAuthRefusal | None:
    """Refuse, as part of a job, if strangers keep as much here as they may. Requests of others do not count, nor those that are decided.
    Nobody's request is thrown out for another's: a neighbourhood that holds many places gets no more as long as few are free."""
    if not is_stranger(client):
        return None
    bucket = f"pushed:{who.network}"
    limit = Limit(tries=limits.pushed_per_minute_per_network, window=MINUTE)
    opens = attempt_limits.closed_until(db, [(bucket, limit)], now)
    waiting = db.fetch_one(
        "SELECT COUNT(*) AS n, COUNT(CASE WHEN EXISTS (SELECT 1 FROM attempts a WHERE a.bucket = ? || p.uri_hash) THEN 1 END) AS held"
        " FROM pushed_requests p JOIN clients c ON c.id = p.client_id"
        f" WHERE p.expires_at > ? AND p.used_at IS NULL AND {_STRANGERS}",
        _around(who),
        now,
    )
    taken, held = (0, 0) if waiting is None else (waiting["n"], waiting["held"])
    free, share = limits.pushed - taken, limits.pushed_share
    if not opens and (free <= 0 or (share is not None and held * share >= free)):
        opens = now + MINUTE
    if opens:
        return try_later("too many requests were pushed", opens - now)
    attempt_limits.count(db, bucket, now)
    return None


def _around(who: Requester) -> str:
    """Return what the bucket begins with of each request that this neighbourhood has pushed."""
    return f"pushed:around:{who.neighbourhood}:"


def is_stranger(client: Client) -> bool:
    """Return whether anybody may be behind it: the operator entered no such program, or it has nothing to show, so that whoever
    knows its id can name it. The built-in one is of that kind."""
    return client.public or client.kind in _UNENTERED


def _unproven(db: Db, asked: AuthorizationRequest, proof: DpopProof) -> OAuthRefusal | None:
    """Use the proof up, as part of a job."""
    if asked.get("dpop_jkt") != proof.jkt:
        return dpop_proofs.refusal("is by another key than dpop_jkt names")
    return None if dpop_proofs.use_up(db, proof) else dpop_proofs.refusal("was used before")


def _finish(parts: Parts, pushed: PushedRequest, who: Requester) -> WireReply:
    del parts, who
    body: Mapping[str, object] = {
        "request_uri": pushed.request_uri,
        "expires_in": pushed.expires_in_seconds,
    }
    return dataclasses.replace(json_replies.answer(body), status=201)


ENDPOINT: Final = FormEndpoint(_prepare, _finish, takes_proof=True)


# ---------------------------------------------------------------- what becomes of it


def is_pushed(asked: AuthorizationRequest) -> bool:
    return (asked.get("request_uri") or "").startswith(PREFIX)


def find(db: Db, asked: AuthorizationRequest, now: Millis) -> AuthorizationRequest | None:
    """Find the request behind the address that `asked` consists of, as its client pushed it; whatever else the browser brought is
    ignored (§4). Return None if it is unknown, another client's, over or decided."""
    row = db.fetch_one(
        "SELECT client_id, parameters FROM pushed_requests WHERE uri_hash = ? AND used_at IS NULL AND expires_at > ?",
        _hash(asked.values["request_uri"]),
        now,
    )
    if row is None or row["client_id"] != asked.get("client_id"):
        return None
    return authorize.read_text(row["parameters"])


def opened(db: Db, asked: AuthorizationRequest, now: Millis) -> None:
    """Give the person who has come with it, as part of a job, the time that people need."""
    db.execute(
        "UPDATE pushed_requests SET expires_at = created_at + ? WHERE uri_hash = ? AND used_at IS NULL AND expires_at > ?"
        " AND expires_at < created_at + ?",
        OPENED_MS,
        _hash(asked.values["request_uri"]),
        now,
        OPENED_MS,
    )


def use_up(db: Db, asked: AuthorizationRequest, now: Millis) -> bool:
    """Decide a request, as part of a job; return False if somebody has."""
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
