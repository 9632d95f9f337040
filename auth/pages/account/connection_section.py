"""Accounts elsewhere that somebody has connected, on You: and ending one. Connecting is auth/pages/connecting_accounts.py's."""

from __future__ import annotations

from functools import partial
from typing import Final

import msgspec

from auth.pages import account_notices, navigation
from auth.pages.html_shell import day, redirect
from auth.pages.page_visit import PageVisit
from auth.pages.user_code_entry import sign_in_then
from auth.people.browser_sessions import BrowserSession
from auth.values.http_messages import WireReply

PURPOSE: Final = "account connections"


class ConnectionRow(msgspec.Struct, frozen=True, kw_only=True):
    server: str
    agent: str
    label: str
    since: str


class ConnectionSection(msgspec.Struct, frozen=True, kw_only=True):
    rows: tuple[ConnectionRow, ...]
    form_token: str


async def look(visit: PageVisit, session: BrowserSession) -> ConnectionSection | None:
    connections = visit.parts.connections
    if connections is None:
        return None
    found = await visit.parts.store.read(partial(connections.listing, user_id=session.user.id))
    rows = tuple(
        ConnectionRow(server=each.server, agent=each.agent, label=each.label, since=day(each.since))
        for each in found
    )
    return ConnectionSection(rows=rows, form_token=visit.token(PURPOSE)) if rows else None


async def end(visit: PageVisit) -> WireReply:
    session = await visit.session()
    if session is None:
        return redirect(sign_in_then(navigation.YOU))
    visit = visit.of(session)
    if not visit.shows(PURPOSE):
        return visit.stale_form()
    connections = visit.parts.connections
    server, agent = visit.form.get("server", ""), visit.form.get("agent", "")
    place = None if connections is None else connections.place(server, agent)
    gone = connections is not None and await connections.end(server, agent, user_id=session.user.id)
    if not gone:
        return account_notices.back(visit, navigation.YOU, "gone")
    what = "" if place is None else f"Your connection to {place.label}"
    return account_notices.back(visit, navigation.YOU, "connection-ended", what)
