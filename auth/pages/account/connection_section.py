"""Accounts elsewhere that somebody has connected, on You, and ending one. Connecting is auth/pages/connecting_accounts.py's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from auth.pages import account_notices, navigation
from auth.pages.page_visit import PageVisit, signed_in
from auth.people.browser_sessions import BrowserSession
from auth.values.connected_accounts import ConnectedAccount
from auth.values.http_messages import WireReply

PURPOSE: Final = "account connections"


class ConnectionSection(msgspec.Struct, frozen=True, kw_only=True):
    rows: Sequence[ConnectedAccount]
    form_token: str


async def look(visit: PageVisit, session: BrowserSession) -> ConnectionSection | None:
    connections = visit.parts.connections
    if connections is None:
        return None
    rows = await visit.read(connections.listing, user_id=session.user.id)
    return ConnectionSection(rows=rows, form_token=visit.token(PURPOSE)) if rows else None


@signed_in(navigation.YOU, PURPOSE)
async def end(visit: PageVisit, session: BrowserSession) -> WireReply:
    connections = visit.parts.connections
    server, agent = visit.form.get("server", ""), visit.form.get("agent", "")
    place = None if connections is None else connections.place(server, agent)
    gone = connections is not None and await connections.end(server, agent, user_id=session.user.id)
    if not gone:
        return account_notices.back(visit, navigation.YOU, "gone")
    what = "" if place is None else f"Your {'key for' if place.by_key else 'connection to'} {place.label}"
    return account_notices.back(visit, navigation.YOU, "connection-ended", what)
