"""The entry of a user code (RFC 8628 §3.3, §5.1): sign in first, then the code, and few wrong ones.

Without a session no code is ever looked up. Wrong codes are counted in the transaction that looks, so parallel guesses
cannot pass. The page that a right code shows is in device_confirmation.py.
"""

from __future__ import annotations

from typing import Final

import msgspec

from auth.audit import audit_trail
from auth.authorization import device_authorization as device
from auth.pages import device_confirmation
from auth.pages.device_confirmation import WaitingDevice, mac_of, waiting
from auth.pages.html_shell import redirect
from auth.pages.page_visit import PageVisit, sign_in_then
from auth.people.browser_sessions import BrowserSession
from auth.people.user_accounts import Throttled
from auth.throttling import attempt_limits
from auth.throttling.attempt_limits import Limit
from auth.values.database import Db
from auth.values.http_messages import WireReply
from auth.values.identity_model import Millis
from auth.values.limits_and_lifetimes import MINUTE
from auth.values.requester import Requester

# §4.1: with 34.6 bits and at most 1 000 live codes, five guesses hit with 2 * 10^-7.
PER_SESSION: Final = Limit(tries=5, window=15 * MINUTE, lock=15 * MINUTE)
PER_ACCOUNT: Final = Limit(tries=10, window=15 * MINUTE, lock=15 * MINUTE)
SERVER_WIDE: Final = Limit(tries=60, window=MINUTE)

# One sentence for unknown, expired and used: it must not tell which guesses were close.
NO_SUCH_CODE: Final = "No login is waiting under this code. It may be mistyped, expired, or used already."
NO_CODE_AT_ALL: Final = f"A code has {device.CODE_LENGTH} letters, like BCDF-GHJK"
TYPED: Final = 32  # of what is put back into the field


def path_with(code: str | None) -> str:
    return "/device" if code is None else f"/device?user_code={device.display(code)}"


class NoSuchCode(msgspec.Struct, frozen=True):
    """A code that is unknown, expired, denied, approved or used: nobody is told which."""


async def show(visit: PageVisit) -> WireReply:
    """Show the form; with a code in the link, what waits under it, unless another site sent the browser here.

    A link from somewhere else only fills the form in: its reader has to press a button, and no page can use up
    somebody's tries by navigating them about.
    """
    code = device.normalise(visit.query("user_code"))
    session = await visit.session()
    if session is None:
        return redirect(sign_in_then(path_with(code)))
    if code is not None and visit.request.headers.get("sec-fetch-site") in ("none", "same-origin"):
        return await _look(visit.of(session), session, code)
    return _form(visit.of(session), code, problem="")


async def enter(visit: PageVisit) -> WireReply:
    typed = visit.form.get("user_code", "")
    code = device.normalise(typed)
    session = await visit.session()
    if session is None:
        return redirect(sign_in_then(path_with(code)))
    visit = visit.of(session)
    if not visit.shows("device"):
        return visit.stale_form()
    if code is None:
        return _form(visit, None, problem=_why_none(typed), typed=typed[:TYPED])
    return await _look(visit, session, code)


async def _look(visit: PageVisit, session: BrowserSession, code: str) -> WireReply:
    found = await visit.write(
        look_up, code_mac=mac_of(visit, code), session=session, who=visit.who, now=visit.now
    )
    match found:
        case Throttled():
            return visit.too_many(found.until, back=("/device", "Back"))
        case NoSuchCode():
            return _form(visit, code, problem=NO_SUCH_CODE)
        case WaitingDevice():
            return await device_confirmation.page(visit, session, found, code)


def look_up(
    db: Db, *, code_mac: str, session: BrowserSession, who: Requester, now: Millis
) -> WaitingDevice | NoSuchCode | Throttled:
    """Find what waits under the code, as a job. A miss is counted and written down here and now; the limits bound both."""
    buckets = (
        (f"entry:session:{session.id_hash[:32]}", PER_SESSION),
        (f"entry:account:{session.user.id}", PER_ACCOUNT),
        ("entry:all", SERVER_WIDE),
    )
    until = attempt_limits.closed_until(db, buckets, now)
    if until:
        return Throttled(until=until)
    found = waiting(db, code_mac, now)
    if found is None and device.was_one(db, code_mac):
        return NoSuchCode()  # an old link, opened again: nobody who guesses comes upon one of these
    if found is None:
        for bucket, _ in buckets:
            attempt_limits.count(db, bucket, now)
        closed = attempt_limits.closed_until(db, buckets, now)
        refused = "no such code, and entry is closed" if closed else "no such code"
        actor = audit_trail.actor(session.user.id)
        audit_trail.record(db, now, "device.code_entered", actor=actor, who=who, refused=refused)
        return NoSuchCode()
    return found


def _why_none(typed: str) -> str:
    """Return what is wrong with what cannot be a code."""
    signs = [sign for sign in typed[: 2 * TYPED].upper() if sign.isalnum()]
    strange = list(dict.fromkeys(sign for sign in signs if sign not in device.ALPHABET))
    if strange:
        return f"{NO_CODE_AT_ALL}, and none of them is {' or '.join(strange[:3])}. Look at it again."
    return f"{NO_CODE_AT_ALL}; this has {len(signs)}."


def _form(visit: PageVisit, code: str | None, *, problem: str, typed: str = "") -> WireReply:
    return visit.page(
        "device.html",
        title="Enter the code",
        status=400 if problem else 200,
        form_token=visit.token("device"),
        user_code=typed if code is None else device.display(code),
        problem=problem,
    )
