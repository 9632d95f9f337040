"""A proof once more of who one is, before an act that a stolen or unattended browser must not be enough for.

A step that needs it calls `ask` first. People who proved themselves lately notice nothing; anybody else gets a page that asks
and then sends the very same form again. The confirm page of a device asks by itself (device_confirmation.py, device_decision.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, TypeVar

from auth.audit import audit_trail
from auth.pages import reauthentication_proof
from auth.pages.page_visit import PageVisit
from auth.pages.reauthentication_proof import Given, NoProof
from auth.people import browser_sessions
from auth.people.browser_sessions import BrowserSession
from auth.people.user_accounts import Throttled
from auth.values.database import Db
from auth.values.http_messages import WireReply
from auth.values.identity_model import Millis
from auth.values.limits_and_lifetimes import MINUTE
from auth.values.requester import Requester

T = TypeVar("T")

LATELY: Final[Millis] = 15 * MINUTE
NOT_REPEATED: Final = reauthentication_proof.FIELDS | frozenset(
    {"form_token", "new_passphrase", "new_passphrase_again"}
)


async def ask(
    visit: PageVisit, session: BrowserSession, why: str, *, back: str = "/account"
) -> WireReply | None:
    """Return None if this person has proven themselves within `LATELY`, or does so with this form; else the page that asks for it.

    `why` ends the sentence "Show once more that it is you, …", like "to end somebody's login"; `back` is where "Cancel" leads.
    The form's own token must have been looked at already. A job that follows may rely on `lately` with the session as it finds it.
    """
    if lately(session, visit.now):
        return None
    if not reauthentication_proof.is_given(visit):
        return await _page(visit, session, why, back, problem="")
    given = await reauthentication_proof.given(visit, session)
    if isinstance(given, Throttled):
        return visit.too_many(given.until, back=("/account", "Back"))
    proven = not isinstance(given, NoProof) and await visit.write(
        _conclude, cookie=visit.cookie, given=given, who=visit.who, now=visit.now
    )
    wrong = (
        "passkey was not accepted"
        if visit.form.get(reauthentication_proof.CREDENTIAL)
        else "is not your passphrase"
    )
    return None if proven else await _page(visit, session, why, back, problem=f"That {wrong}.")


async def carry_out(
    visit: PageVisit,
    session: BrowserSession,
    why: str,
    job: Callable[[Db], T | Literal["prove"]],
    *,
    back: str,
) -> T | Literal["prove"] | WireReply:
    """Run a job that finds out by itself whether it needs a proof; then `ask`, and run it again."""
    job = audit_trail.asked_from(job, visit.who)
    outcome = await visit.write(job)
    if outcome != "prove":
        return outcome
    asked = await ask(visit, session, why, back=back)
    return await visit.write(job) if asked is None else asked


def lately(session: BrowserSession, now: Millis) -> bool:
    return now - session.auth_time <= LATELY


def _conclude(db: Db, *, cookie: str, given: Given, who: Requester, now: Millis) -> bool:
    db.takes_away()  # or what follows does
    session = browser_sessions.find(db, cookie, now)
    return session is not None and reauthentication_proof.conclude(
        db, given, session=session, who=who, now=now
    )


async def _page(visit: PageVisit, session: BrowserSession, why: str, back: str, *, problem: str) -> WireReply:
    offer = await reauthentication_proof.offer(visit, session)
    return reauthentication_proof.scripted(visit, offer.passkey).page(
        "prove.html",
        title="Is it you?",
        status=400 if problem else 200,
        why=why,
        back=back,
        account=session.user.name,
        proof=offer,
        action=visit.request.path,
        form_token=visit.form.get("form_token", ""),
        repeated=tuple((name, value) for name, value in visit.form.items() if name not in NOT_REPEATED),
        scopes=visit.scopes,
        problem=problem,
    )
