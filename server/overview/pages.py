"""The Overview, what stands behind its rows, and the one thing that is done there: values first, then a page.

An owner sees everything, everybody else what they called themselves, in the same layout. Reading goes in pieces, each a job of the store's
readers, so that neither a call nor another page waits for it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from markupsafe import Markup

from auth.account import notices
from auth.account import page as account_page
from auth.device import request as device
from auth.device.code_entry import sign_in_then
from auth.device.request import DeviceDenied
from auth.pages import redirect
from auth.parts import Parts
from auth.people import sessions
from auth.values.db import Db
from auth.values.model import Millis
from auth.values.wire import WireReply
from auth.visit import PageVisit
from server.overview import call_list, calls_page, drawing
from server.overview.calls_page import WantedCalls
from server.overview.look import RunningParts, look

PATH: Final = "/account"
CALLS: Final = "/account/calls"
DENY: Final = "/account/waiting/deny"
PURPOSE: Final = "overview"


class OverviewPages:
    """Each method makes the page of one path."""

    def __init__(self, parts: Parts, around: RunningParts) -> None:
        self.parts: Final = parts
        self._around = around

    async def overview(self, visit: PageVisit) -> WireReply:
        session = await visit.session()
        if session is None:  # the way in, or why there is none
            return await account_page.show(visit)
        visit = visit.of(session)
        found = await look(visit, session, self._around)
        above = drawing.overview(found, deny_token=visit.token(PURPOSE))
        return await account_page.show(visit, above=above)

    async def calls(self, visit: PageVisit) -> WireReply:
        """Calls that are like what the address says."""
        session = await visit.session()
        if session is None:
            return redirect(sign_in_then(PATH))
        visit = visit.of(session)
        owner = session.user.role == "owner"
        wanted = WantedCalls.of(dict(visit.request.query))
        await self._around.write_down()
        found = await calls_page.find(
            self.parts.store, wanted.filter(None if owner else session.user.id), at=wanted.at
        )
        body = call_list.calls(
            wanted, found, owner=owner, now=visit.now, several=len(self.parts.site.servers) > 1
        )
        return _page(visit, "Calls", body)

    async def deny(self, visit: PageVisit) -> WireReply:
        """A login that waits, and that its owner does not know. Saying yes takes its code, which only whoever asked has."""
        session = await visit.session()
        if session is None:
            return redirect(sign_in_then(PATH))
        visit = visit.of(session)
        if not visit.shows(PURPOSE) or session.user.role != "owner":
            return visit.stale_form()
        denied = await self.parts.store.write(
            partial(deny_login, cookie=visit.cookie, request_id=visit.form.get("request", ""), now=visit.now)
        )
        return notices.back("login-denied" if denied else "gone")


def deny_login(db: Db, *, cookie: str, request_id: str, now: Millis) -> bool:
    """A job: everything once more, then the no."""
    session = sessions.find(db, cookie, now)
    if session is None or session.user.role != "owner":
        return False
    return isinstance(device.deny(db, request_id, by=session.user.id, now=now), DeviceDenied)


def _page(visit: PageVisit, title: str, body: Markup) -> WireReply:
    visit = replace(visit, frame=replace(visit.frame, wide=True))
    return visit.page("shell.html", title=title, body=body)
