"""The answer to a form that a program posts: limits, the form, the client's document or keys, one job, what follows its commit.

An endpoint is two functions: `prepare` (async: whatever is slow or needs no store) returns a job (sync, inside one
transaction), and `finish` (sign and write down, after the commit) turns its outcome into the reply. The table is in
endpoint_table.py. The listener has parsed the form, resolved the caller's address and allow-listed the origin.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from auth.client_authentication import client_assertions as client_assertion
from auth.client_authentication import dpop_proofs
from auth.clients.client_identifier_urls import is_document
from auth.clients.client_registry import BadCredentials
from auth.context.identity_parts import Parts
from auth.endpoints import json_replies
from auth.grants import refresh_tokens, request_parameters
from auth.grants.refresh_tokens import ChainLink
from auth.grants.request_parameters import BadForm, CheckedForm
from auth.jose.jws import BadJws
from auth.tokens import access_token_verifier
from auth.tokens import access_tokens as tokens
from auth.tokens.access_token_verifier import BadToken, Claims
from auth.values.database import Db
from auth.values.http_messages import WireReply, WireRequest
from auth.values.identity_model import Client, Millis
from auth.values.ip_networks import is_loopback
from auth.values.limits_and_lifetimes import FormLimits
from auth.values.oauth_errors import OAuthRefusal
from auth.values.requester import Requester

# Answers to a poll that decide nothing (RFC 8628 §3.5) and leave no audit row.
WAITING: Final = frozenset({"authorization_pending", "slow_down"})

POST: Final = ("POST", "OPTIONS")

Job = Callable[[Db], Any]


class FormEndpoint(msgspec.Struct, frozen=True):
    prepare: Callable[[Parts, CheckedForm, Requester, Millis], Awaitable[Job]]
    finish: Callable[[Parts, Any, Requester], WireReply]
    takes_proof: bool = False  # of a key: RFC 9449


async def answer(parts: Parts, endpoint: FormEndpoint, request: WireRequest) -> WireReply:
    if request.method != "POST":
        return (
            json_replies.preflight(POST) if request.method == "OPTIONS" else json_replies.wrong_method(POST)
        )
    who, now = Requester.of(request), parts.clock()
    limits = limits_of(parts, who)
    if wait := _wait_to_ask(parts, limits, who, now):
        return json_replies.refuse(too_often(wait))
    try:
        form = request_parameters.read(request)
    except BadForm as problem:
        return json_replies.refuse(OAuthRefusal(error="invalid_request", description=str(problem)))
    except BadCredentials as problem:
        return json_replies.refuse(OAuthRefusal(error=problem.error, description=str(problem)), basic=True)
    client_id = form.credentials.client_id
    if (limit := limits.per_minute_per_client) is not None:
        # Up to 2 048 characters can stand in a client id that nobody has: what is kept of it is short.
        name = hashlib.sha256((client_id or "").encode()).hexdigest()[:32]
        if wait := parts.throttle.wait_seconds(f"{name} {who.network}", limit, now):
            return json_replies.refuse(too_often(wait))
    if client_id is not None and is_document(client_id):
        unknown = await parts.documents.ensure(client_id, network=who.network, signed_in=False, now=now)
        if unknown is not None:
            return json_replies.refuse(OAuthRefusal(error="invalid_client", description=unknown))
    if form.credentials.assertion is not None:
        credentials = await client_assertion.prove(parts, form.credentials, who, path=request.path, now=now)
        form = replace(form, credentials=credentials)
    if endpoint.takes_proof and (text := request.headers.get("dpop")) is not None:
        urls = dpop_proofs.urls_of(parts.site, who.origin, request.path)
        try:
            form = replace(form, proof=dpop_proofs.read(text, method=request.method, urls=urls, now=now))
        except BadJws as problem:
            return json_replies.refuse(dpop_proofs.refusal(str(problem)))
    try:
        job = await endpoint.prepare(parts, form, who, now)
    except BadForm as problem:
        return json_replies.refuse(OAuthRefusal(error="invalid_request", description=str(problem)))
    if parts.keys.stale or not parts.keys.trusted:
        await parts.reload_keys()
    outcome = await parts.store.write(job)
    if _left_a_refusal(outcome):
        note_refusal(parts, who, now)
    if isinstance(outcome, OAuthRefusal):
        return json_replies.refuse(outcome, basic=form.credentials.basic)
    # A key that was dropped meanwhile must not sign what comes now.
    if parts.keys.stale or not parts.keys.trusted:
        await parts.reload_keys()
    return endpoint.finish(parts, outcome, who)


def by_client(
    form: CheckedForm, endpoint: str, who: Requester, now: Millis, ask: Callable[[Db, Client], Any]
) -> Job:
    """Make the job of an endpoint that is asked by clients which prove who they are."""

    def job(db: Db) -> Any:
        from auth.endpoints import token_endpoint  # Authlib, which a server without logins need not carry

        client = token_endpoint.authenticate(db, form.credentials, endpoint=endpoint, requester=who, now=now)
        return client if isinstance(client, OAuthRefusal) else ask(db, client)

    return job


async def known_token(
    parts: Parts, token: str, now: Millis, *, expired_too: bool = False
) -> ChainLink | Claims | None:
    """Read a refresh token or an access token; return None for any other text. Raise what the store raises."""
    await parts.reload_keys()
    link = refresh_tokens.parse(parts.keys.refresh, token, now)
    if link is not None:
        return link
    try:
        return access_token_verifier.read(token, parts.site.issuer, parts.keys, now, expired_too=expired_too)
    except BadToken:
        return None


def wait_to_ask(parts: Parts, who: Requester, now: Millis) -> int:
    """Count one request of this network; return 0 if it may go on, else after how many seconds."""
    return _wait_to_ask(parts, limits_of(parts, who), who, now)


def _wait_to_ask(parts: Parts, limits: FormLimits, who: Requester, now: Millis) -> int:
    most, throttle = limits.per_minute_per_network, parts.throttle
    if most is not None and (wait := throttle.wait_seconds(who.network, most, now)):
        return wait
    return throttle.closed_seconds(_refused(who), limits.refused_per_minute_per_network, now)


def note_refusal(parts: Parts, who: Requester, now: Millis) -> None:
    """Count a refusal that left an audit row."""
    parts.throttle.count(_refused(who), now)


def _refused(who: Requester) -> str:
    return f"\nrefused {who.network}"  # no client id has a line end


def limits_of(parts: Parts, who: Requester) -> FormLimits:
    return parts.policy.at_home if is_at_home(parts, who) else parts.policy.limits


def is_at_home(parts: Parts, who: Requester) -> bool:
    """Return whether this is a program of this machine. A web page in a browser of this machine is none, wherever it is from.

    On a server with a public name nobody is: there a loopback address may be a proxy that nobody has listed.
    """
    return parts.site.loopback and not who.page and is_loopback(who.ip)


def too_often(wait: int) -> OAuthRefusal:
    return OAuthRefusal(
        error="temporarily_unavailable", description="too many requests", retry_after_seconds=wait
    )


def _left_a_refusal(outcome: Any) -> bool:
    """Return whether the job wrote a refusal into the audit trail."""
    if isinstance(outcome, OAuthRefusal):
        return outcome.error not in WAITING
    return outcome == tokens.Revoked(known=False)
