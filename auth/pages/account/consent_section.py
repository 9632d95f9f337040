"""Consents of a person that are remembered for a while, on Access, and forgetting one.

Forgetting ends no login; it makes the program ask before the next one. Remembering is the consent page's.
"""

from __future__ import annotations

from typing import Final

import msgspec

from auth.administration import guest_accounts as people
from auth.audit import audit_trail
from auth.pages import account_notices, navigation
from auth.pages.page_visit import PageVisit, signed_in
from auth.people import browser_sessions
from auth.people.browser_sessions import BrowserSession
from auth.values.database import Db, Row, from_row
from auth.values.http_messages import WireReply
from auth.values.identity_model import Millis
from auth.values.requester import Requester

PURPOSE: Final = "account consents"
SHOWN: Final = 200


class Consent(msgspec.Struct, frozen=True, kw_only=True):
    client_id: str
    redirect_host: str
    server: str
    client_name: str
    may: tuple[str, ...]
    created_at: Millis
    expires_at: Millis


class ConsentSection(msgspec.Struct, frozen=True, kw_only=True):
    rows: tuple[Consent, ...]
    several: bool  # servers
    form_token: str


async def look(visit: PageVisit, session: BrowserSession) -> ConsentSection | None:
    rows = await visit.read(listing, user_id=session.user.id, now=visit.now)
    known = visit.parts.site.scopes
    consents = tuple(from_row(Consent, row, may=people.in_words(known, row["scope"])) for row in rows)
    if not consents:
        return None
    return ConsentSection(
        rows=consents, several=len(visit.parts.site.servers) > 1, form_token=visit.token(PURPOSE)
    )


def listing(db: Db, *, user_id: str, now: Millis) -> list[Row]:
    return db.fetch_all(
        "SELECT s.*, c.name AS client_name FROM consents s JOIN clients c ON c.id = s.client_id"
        " WHERE s.user_id = ? AND s.expires_at > ? ORDER BY s.created_at DESC, s.client_id LIMIT ?",
        user_id,
        now,
        SHOWN,
    )


@signed_in(navigation.ACCESS, PURPOSE)
async def forget(visit: PageVisit, session: BrowserSession) -> WireReply:
    del session
    gone = await visit.write(
        forget_consent,
        cookie=visit.cookie,
        client_id=visit.form.get("client", ""),
        redirect_host=visit.form.get("redirect_host", ""),
        server=visit.form.get("server", ""),
        who=visit.who,
        now=visit.now,
    )
    return account_notices.back(
        visit, navigation.ACCESS, "gone" if gone is None else "consent-forgotten", gone or ""
    )


def forget_consent(
    db: Db,
    *,
    cookie: str,
    client_id: str,
    redirect_host: str,
    server: str,
    who: Requester,
    now: Millis,
) -> str | None:
    """Forget a consent, as a job; return the name of its program, None if there was nothing to forget."""
    session = browser_sessions.find(db, cookie, now)
    if session is None:
        return None
    db.takes_away()
    program = db.fetch_one("SELECT name FROM clients WHERE id = ?", client_id)
    gone = db.execute(
        "DELETE FROM consents WHERE user_id = ? AND client_id = ? AND redirect_host = ? AND server = ?",
        session.user.id,
        client_id,
        redirect_host,
        server,
    )
    if not gone:
        return None
    audit_trail.record(
        db,
        now,
        "consent.forgotten",
        actor=audit_trail.actor(session.user.id),
        who=who,
        reason=redirect_host,
        client_id=client_id,
    )
    return "" if program is None else program["name"]
