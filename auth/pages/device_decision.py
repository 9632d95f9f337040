"""The answer to the confirm page (RFC 8628 §3.3): approve or deny, once.

The job that decides checks everything again: the session, the proof where one is due, and that the request still waits.
Asking for a code and redeeming it are in auth/authorization/device_authorization.py and grants.
"""

from __future__ import annotations

from functools import partial
from typing import Final, Literal

import msgspec

from auth.authorization import device_authorization as device
from auth.authorization.device_authorization import DeviceApproved, DeviceDenied, DeviceRequest, NotPending
from auth.pages import device_confirmation, opened_servers, reauthentication, reauthentication_proof
from auth.pages.consent_decisions import offered
from auth.pages.device_confirmation import mac_of, waiting
from auth.pages.html_shell import redirect
from auth.pages.page_visit import PageVisit, sign_in_then, signed_in
from auth.pages.reauthentication_proof import Given, NoProof
from auth.pages.user_code_entry import path_with
from auth.people import browser_sessions
from auth.people.browser_sessions import BrowserSession, SignedOutMeanwhile
from auth.people.user_accounts import Throttled
from auth.values import scopes
from auth.values.database import Db
from auth.values.http_messages import WireReply
from auth.values.identity_model import Millis
from auth.values.requester import Requester, clean

PROVE: Final = "Show that it is you, to approve a device on another network."


class NeedsProof(msgspec.Struct, frozen=True):
    """A proof is due that did not come."""


class WrongProof(msgspec.Struct, frozen=True):
    pass


class RequestIsOver(msgspec.Struct, frozen=True, kw_only=True):
    """A request that waits no more: somebody decided, or the time ran out."""

    state: Literal["approved", "denied", "expired"]


@signed_in("/device")
async def decide(visit: PageVisit, session: BrowserSession) -> WireReply:
    request_id = visit.form.get("request", "")
    code = device.normalise(visit.form.get("user_code", ""))
    if code is None or not visit.shows(device_confirmation.purpose(request_id, code)):
        return visit.stale_form()
    match visit.form.get("decision"):
        case "approve":
            return await _approve(visit, session, request_id, code)
        case "deny":
            return await _deny(visit, request_id)
        case _:
            return visit.stale_form()


async def _deny(visit: PageVisit, request_id: str) -> WireReply:
    outcome = await visit.write(deny, cookie=visit.cookie, request_id=request_id, now=visit.now)
    match outcome:
        case DeviceDenied():
            return _done(visit, outcome.request, granted=())
        case RequestIsOver():
            return _over(visit, outcome)
        case SignedOutMeanwhile():
            return redirect(sign_in_then("/device"))


def deny(
    db: Db, *, cookie: str, request_id: str, now: Millis
) -> DeviceDenied | RequestIsOver | SignedOutMeanwhile:
    """Deny a request, as a job, also one whose approval has not been redeemed yet."""
    session = browser_sessions.find(db, cookie, now)
    if session is None:
        return SignedOutMeanwhile()
    outcome = device.deny(db, request_id, by=session.user.id, now=now)
    return outcome if isinstance(outcome, DeviceDenied) else _how_it_ended(db, request_id)


async def _approve(visit: PageVisit, session: BrowserSession, request_id: str, code: str) -> WireReply:
    found = await visit.read(waiting, code_mac=mac_of(visit, code), now=visit.now)
    if found is None or found.ask.id != request_id:
        return _over(visit, await visit.read(_how_it_ended, request_id=request_id))
    refused = device_confirmation.not_from_here(visit, found.ask)
    if refused is not None:
        await visit.write(
            device.not_approved, request_id, by=session.user.id, reason="not from here", now=visit.now
        )
        return refused
    ticked = tuple(name for name in offered(found.ask, session.user) if name in visit.scopes)
    again = partial(device_confirmation.page, visit, session, found, code, ticked=ticked)
    if not ticked:
        return await again(problem="Leave at least one thing ticked, or choose Deny.")

    if any(visit.parts.site.scopes.financial(name) for name in ticked):
        asking = await reauthentication.ask(
            visit, session, "to let a program move money", back=path_with(code)
        )
        if asking is not None:
            return asking

    given: Given | None = None
    if device_confirmation.needs_proof(found.ask, session, visit.request.ip, visit.now):
        shown = await reauthentication_proof.given(visit, session)
        if isinstance(shown, NoProof):
            return await again(problem=PROVE)
        if isinstance(shown, Throttled):
            return visit.too_many(shown.until, back=("/device", "Back"))
        given = shown

    outcome = await visit.write(
        approve,
        cookie=visit.cookie,
        ask=found.ask,
        scope=scopes.join(ticked),
        who=visit.who,
        given=given,
        now=visit.parts.clock(),
    )
    match outcome:
        case DeviceApproved():
            return _done(visit, outcome.request, granted=scopes.parse(outcome.scope))
        case RequestIsOver():
            return _over(visit, outcome)
        case WrongProof():
            by_passkey = isinstance(given, reauthentication_proof.ByPasskey)
            wrong = "That passkey was not accepted." if by_passkey else "That is not your passphrase."
            return await again(problem=f"{wrong} Nothing was approved.")
        case NeedsProof():
            return await again(problem=PROVE)
        case SignedOutMeanwhile():
            return redirect(sign_in_then("/device"))


def approve(
    db: Db,
    *,
    cookie: str,
    ask: DeviceRequest,
    scope: str,
    who: Requester,
    given: Given | None,
    now: Millis,
) -> DeviceApproved | RequestIsOver | WrongProof | NeedsProof | SignedOutMeanwhile:
    """Check everything once more, as a job, then decide. A wrong proof is written down; it approves nothing."""
    session = browser_sessions.find(db, cookie, now)
    if session is None:
        return SignedOutMeanwhile()
    if given is not None:
        if not reauthentication_proof.conclude(db, given, session=session, who=who, now=now):
            return WrongProof()
    elif device_confirmation.needs_proof(ask, session, who.ip, now):
        return NeedsProof()
    outcome = device.approve(db, ask.id, subject=session.user.id, by=session.user.id, scope=scope, now=now)
    match outcome:
        case DeviceApproved():
            return outcome
        case NotPending(reason="gone"):
            return _how_it_ended(db, ask.id)
        case NotPending():  # the account was changed under the page: what it may give has to be shown anew
            return SignedOutMeanwhile()


def _how_it_ended(db: Db, request_id: str) -> RequestIsOver:
    """Tell somebody who has shown that they knew the code: to them the difference is no secret."""
    row = db.fetch_one("SELECT state FROM device_codes WHERE id = ?", request_id)
    match None if row is None else row["state"]:
        case "approved" | "used":
            return RequestIsOver(state="approved")
        case "denied":
            return RequestIsOver(state="denied")
        case _:
            return RequestIsOver(state="expired")


def _over(visit: PageVisit, over: RequestIsOver) -> WireReply:
    status, title, what_happened, what_next = {
        "approved": (
            409,
            "Already approved",
            "This login was approved before. Nothing was changed now.",
            "If it was not you, run `ostiary sessions` and `ostiary revoke` on the server.",
        ),
        "denied": (
            409,
            "Already denied",
            "This login was denied before. Nothing was changed now.",
            "If it was yours, start it again in your terminal and enter the new code.",
        ),
        "expired": (
            410,
            "This code has expired",
            "Nobody decided in time, and nothing was approved.",
            "Start the login again in your terminal and enter the new code.",
        ),
    }[over.state]
    return visit.error(status, title, what_happened, what_next, back=("/device", "Enter another code"))


def _done(visit: PageVisit, ask: DeviceRequest, *, granted: tuple[str, ...]) -> WireReply:
    return visit.page(
        "done.html",
        title="Approved" if granted else "Denied",
        approved=bool(granted),
        program=ask.client_name or ask.registered_name,
        device=clean(ask.hostname, device.HOSTNAME_LENGTH),
        opened=opened_servers.server_of(visit, ask.server),
        granted=opened_servers.scope_words(visit, ask.server, granted),
    )
