"""How a form that a program posts is answered: limits, the form, the client's document or keys, one job, what follows its commit.

An endpoint is two functions: `prepare` (async: whatever is slow or needs no store) returns a job (sync, inside one
transaction), and `finish` (sign and write down, after the commit) turns its outcome into the reply. The table is in
endpoints.py. The listener has parsed the form, resolved the caller's address and allow-listed the origin.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from auth import forms, replies
from auth.clients import assertion as client_assertion
from auth.clients.assertion import BadAssertion
from auth.clients.documents import is_document
from auth.clients.registry import BadCredentials
from auth.db import Db
from auth.errors import Refusal
from auth.forms import BadForm, Form
from auth.model import Millis
from auth.network import is_loopback
from auth.requester import Requester
from auth.tokens import access as tokens
from auth.tokens import dpop
from auth.wire import Reply, Request

if TYPE_CHECKING:
    from auth.identity import Identity

# Answers to a poll that decide nothing (RFC 8628 §3.5) and leave no audit row.
WAITING: Final = frozenset({"authorization_pending", "slow_down"})

POST: Final = ("POST", "OPTIONS")

Job = Callable[[Db], Any]


class Endpoint(msgspec.Struct, frozen=True):
    prepare: Callable[[Identity, Form, Requester, Millis], Awaitable[Job]]
    finish: Callable[[Identity, Any, Requester], Reply]
    takes_proof: bool = False  # of a key: RFC 9449


async def answer(identity: Identity, endpoint: Endpoint, request: Request) -> Reply:
    if request.method == "OPTIONS":
        return replies.preflight(POST)
    if request.method != "POST":
        return replies.wrong_method(POST)
    who, now = Requester.of(request), identity.clock()
    wait = wait_to_ask(identity, who, now)
    if wait:
        return replies.refuse(too_often(wait))
    try:
        form = forms.read(request)
    except BadForm as problem:
        return replies.refuse(Refusal(error="invalid_request", description=str(problem)))
    except BadCredentials as problem:
        return replies.refuse(Refusal(error=problem.error, description=str(problem)), basic=True)
    client_id = form.credentials.client_id
    limit = identity.policy.limits.per_minute_per_client
    # Up to 2 048 characters can stand in a client id that nobody has: what is kept of it is short.
    name = hashlib.sha256((client_id or "").encode()).hexdigest()[:32]
    wait = wait_seconds(identity, who, f"{name} {who.network}", limit, now)
    if wait:
        return replies.refuse(too_often(wait))
    if client_id is not None and is_document(client_id):
        unknown = await identity.documents.ensure(client_id, network=who.network, signed_in=False, now=now)
        if unknown is not None:
            return replies.refuse(Refusal(error="invalid_client", description=unknown))
    credentials = await client_assertion.prove(identity, form.credentials, who, path=request.path, now=now)
    form = replace(form, credentials=credentials)
    if endpoint.takes_proof and (text := request.headers.get("dpop")) is not None:
        urls = dpop.urls_of(identity.site, who.origin, request.path)
        try:
            form = replace(form, proof=dpop.read(text, method=request.method, urls=urls, now=now))
        except BadAssertion as problem:
            return replies.refuse(dpop.refusal(str(problem)))
    try:
        job = await endpoint.prepare(identity, form, who, now)
    except BadForm as problem:
        return replies.refuse(Refusal(error="invalid_request", description=str(problem)))
    await identity.reload_keys()
    outcome = await identity.store.write(job)
    if _left_a_refusal(outcome):
        note_refusal(identity, who, now)
    if isinstance(outcome, Refusal):
        return replies.refuse(outcome, basic=form.credentials.basic)
    await identity.reload_keys()  # a key that was dropped meanwhile must not sign what comes now
    return endpoint.finish(identity, outcome, who)


def wait_to_ask(identity: Identity, who: Requester, now: Millis) -> int:
    """Counts one request of this network: 0 if it may go on, else after how many seconds."""
    limits = identity.policy.limits
    wait = wait_seconds(identity, who, who.network, limits.per_minute_per_network, now)
    if not wait and is_counted(identity, who):
        wait = identity.throttle.closed_seconds(_refused(who), limits.refused_per_minute_per_network, now)
    return wait


def note_refusal(identity: Identity, who: Requester, now: Millis) -> None:
    """A refusal that left an audit row."""
    if is_counted(identity, who):
        identity.throttle.count(_refused(who), now)


def _refused(who: Requester) -> str:
    return f"\nrefused {who.network}"  # no client id has a line end


def wait_seconds(identity: Identity, who: Requester, key: str, limit: int, now: Millis) -> int:
    return identity.throttle.wait_seconds(key, limit, now) if is_counted(identity, who) else 0


def is_counted(identity: Identity, who: Requester) -> bool:
    """Not this machine itself: whoever is on it has better ways to keep it busy, and all its programs share an address.

    A server with a public name is another matter: there a loopback address may be a proxy that nobody has listed.
    """
    return not (identity.site.loopback and is_loopback(who.ip))


def too_often(wait: int) -> Refusal:
    return Refusal(error="temporarily_unavailable", description="too many requests", retry_after_seconds=wait)


def _left_a_refusal(outcome: Any) -> bool:
    """Whether the job wrote a refusal into the audit trail."""
    if isinstance(outcome, Refusal):
        return outcome.error not in WAITING
    return outcome == tokens.Revoked(known=False)
