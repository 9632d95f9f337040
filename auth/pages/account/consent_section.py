"""What a person has agreed to and is not asked about again for a while, on Access: and forgetting it.

Forgetting ends no login; it makes the program ask before the next one. Remembering is the consent page's.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import msgspec

from auth.administration import guest_accounts as people
from auth.audit import audit_trail
from auth.pages import account_notices, navigation
from auth.pages.html_shell import day, redirect
from auth.pages.page_visit import PageVisit
from auth.pages.user_code_entry import sign_in_then
from auth.people import browser_sessions
from auth.people.browser_sessions import BrowserSession
from auth.values.database import Db, Row
from auth.values.http_messages import WireReply
from auth.values.identity_model import Millis
from auth.values.requester import Requester

PURPOSE: Final = "account consents"
SHOWN: Final = 200


class Consent(msgspec.Struct, frozen=True, kw_only=True):
    client_id: str
    redirect_host: str
    server: str
    name: str
    may: tuple[str, ...]
    since: str
    until: str


class ConsentSection(msgspec.Struct, frozen=True, kw_only=True):
    rows: tuple[Consent, ...]
    several: bool  # servers
    form_token: str


async def look(visit: PageVisit, session: BrowserSession) -> ConsentSection | None:
    rows = await visit.parts.store.read(partial(listing, user_id=session.user.id, now=visit.now))
    known = visit.parts.site.scopes
    consents = tuple(
        Consent(
            client_id=row["client_id"],
            redirect_host=row["redirect_host"],
            server=row["server"],
            name=row["client_name"],
            may=people.in_words(known, row["scope"]),
            since=day(row["created_at"]),
            until=day(row["expires_at"]),
        )
        for row in rows
    )
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


async def forget(visit: PageVisit) -> WireReply:
    session = await visit.session()
    if session is None:
        return redirect(sign_in_then(navigation.ACCESS))
    visit = visit.of(session)
    if not visit.shows(PURPOSE):
        return visit.stale_form()
    gone = await visit.parts.store.write(
        partial(
            forget_consent,
            cookie=visit.cookie,
            client_id=visit.form.get("client", ""),
            redirect_host=visit.form.get("redirect_host", ""),
            server=visit.form.get("server", ""),
            who=visit.who,
            now=visit.now,
        )
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
    """A job. The name of the program that was forgotten; None: there was nothing to forget."""
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
