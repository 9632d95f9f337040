"""The browsers in which a person is signed in, on Access, and signing them out."""

from __future__ import annotations

from typing import Final

import msgspec

from auth.audit import audit_trail
from auth.pages import account_notices, navigation
from auth.pages.html_shell import ago, day
from auth.pages.page_visit import PageVisit, signed_in
from auth.people import browser_sessions
from auth.people.browser_names import browser_name
from auth.people.browser_sessions import BrowserSession
from auth.values.database import Db
from auth.values.http_messages import WireReply
from auth.values.identity_model import Millis
from auth.values.requester import Requester

PURPOSE: Final = "account browsers"
OTHERS: Final = "others"


class BrowserRow(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    ip: str
    since: str
    used: str
    this: bool


class BrowserSection(msgspec.Struct, frozen=True, kw_only=True):
    rows: tuple[BrowserRow, ...]
    form_token: str


async def look(visit: PageVisit, session: BrowserSession) -> BrowserSection:
    found = await visit.read(browser_sessions.listing, user_id=session.user.id, now=visit.now)
    rows = [
        BrowserRow(
            id=each.id,
            name=browser_name(each.user_agent),
            ip=each.ip,
            since=day(each.created_at),
            used=ago(each.last_used_at, visit.now),
            this=session.id_hash.startswith(each.id),
        )
        for each in found
    ]
    return BrowserSection(
        rows=tuple(sorted(rows, key=lambda row: not row.this)), form_token=visit.token(PURPOSE)
    )


@signed_in(navigation.ACCESS, PURPOSE)
async def end(visit: PageVisit, session: BrowserSession) -> WireReply:
    del session
    which = visit.form.get("browser", "")
    ended = await visit.write(end_browsers, cookie=visit.cookie, which=which, who=visit.who, now=visit.now)
    if ended is None:
        return account_notices.back(visit, navigation.ACCESS, "gone")
    if which == OTHERS:
        return account_notices.back(visit, navigation.ACCESS, "browsers-ended")
    return account_notices.back(visit, navigation.ACCESS, "browser-ended", browser_name(ended))


def end_browsers(db: Db, *, cookie: str, which: str, who: Requester, now: Millis) -> str | None:
    """Sign out one of this person's other browsers, or all of them, as a job; return what the one says of itself, None if nothing ended."""
    session = browser_sessions.find(db, cookie, now)
    if session is None or which == session.id_hash[: browser_sessions.ID_CHARACTERS]:
        return None  # this one signs out at the top of the page
    said = ""
    if which == OTHERS:
        ended = browser_sessions.end_all(db, session.user.id, but=session.id_hash)
    else:
        there = browser_sessions.listing(db, user_id=session.user.id, now=now)
        said = next((each.user_agent for each in there if each.id == which), "")
        ended = browser_sessions.end_by_id(db, which, user_id=session.user.id)
    if ended:
        actor = audit_trail.actor(session.user.id)
        reason = f"{ended} other" if which == OTHERS else which
        audit_trail.record(db, now, "user.browser_ended", actor=actor, who=who, reason=reason)
    return said if ended else None
