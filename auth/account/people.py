"""Everybody who may come in, on the owner's account page: their state, and a button that makes it pause or go on.

What takes more thought (inviting, ceilings, locking, removing) is done in the terminal: `ostiary users`. The jobs are in people/guests.py.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import msgspec

from auth.account import notices
from auth.device.code_entry import sign_in_then
from auth.pages import ago, day, redirect
from auth.people import guests as people
from auth.people import proving, sessions
from auth.people.guests import GuestUnchanged, ListedPerson
from auth.people.sessions import BrowserSession
from auth.people.users import User
from auth.values.db import Db
from auth.values.model import Millis
from auth.values.wire import WireReply
from auth.visit import PageVisit

PURPOSE: Final = "account people"
DONE: Final = {"disable": "person-disabled", "enable": "person-enabled"}


class PersonRow(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    state: str
    seen: str
    logins: int
    until: str
    link_until: str
    may: tuple[str, ...]
    some_tools: bool
    verb: str  # what the button does; empty: there is none


class PeopleSection(msgspec.Struct, frozen=True, kw_only=True):
    rows: tuple[PersonRow, ...]
    form_token: str


async def look(visit: PageVisit, session: BrowserSession) -> PeopleSection | None:
    if session.user.role != "owner":
        return None
    found = await visit.parts.store.read(partial(people.listing, now=visit.now))
    rows = tuple(_row(visit, each) for each in found if each.user.id != session.user.id)
    return PeopleSection(rows=rows, form_token=visit.token(PURPOSE))


def _row(visit: PageVisit, person: ListedPerson) -> PersonRow:
    user = person.user
    over = user.over(visit.now)
    return PersonRow(
        name=user.name,
        state="over" if over and user.state in ("enabled", "invited") else user.state,
        seen="never signed in" if user.last_seen_at is None else f"seen {ago(user.last_seen_at, visit.now)}",
        logins=person.logins,
        until="" if user.expires_at is None else day(user.expires_at),
        link_until="" if person.link_expires_at is None else day(person.link_expires_at),
        may=people.in_words(visit.parts.site.scopes, user.scope),
        some_tools=user.tools != "",
        verb={"enabled": "disable", "disabled": "enable"}.get(user.state, ""),
    )


async def switch(visit: PageVisit) -> WireReply:
    session = await visit.session()
    if session is None:
        return redirect(sign_in_then("/account"))
    visit = visit.of(session)
    verb = visit.form.get("verb", "")
    if not visit.shows(PURPOSE) or session.user.role != "owner" or verb not in DONE:
        return visit.stale_form()
    asked = await proving.ask(visit, session, f"to {verb} an account")
    if asked is not None:
        return asked
    changed = await visit.parts.store.write(
        partial(
            switch_person, cookie=visit.cookie, verb=verb, name=visit.form.get("person", ""), now=visit.now
        )
    )
    return notices.back(DONE[verb] if changed else "gone")


def switch_person(db: Db, *, cookie: str, verb: str, name: str, now: Millis) -> bool:
    """A job: everything once more, then the switch."""
    session = sessions.find(db, cookie, now)
    if session is None or session.user.role != "owner" or not proving.lately(session, now):
        return False
    outcome: User | GuestUnchanged = people.switch(db, verb, name=name, by=session.user.id, now=now)
    return isinstance(outcome, User)
