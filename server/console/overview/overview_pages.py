"""The Overview, and what stands behind its rows: values first, then a page.

An owner sees everything, everybody else what they called themselves, in the same layout. Reading goes in pieces, each a job of the store's
readers, so that neither a call nor another page waits for it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from msgspec.structs import asdict

from auth.context.identity_parts import Parts
from auth.pages import account_notices, navigation
from auth.pages.account import account_page, waiting_device_section
from auth.pages.html_shell import redirect
from auth.pages.page_visit import PageVisit, sign_in_then
from auth.values.http_messages import WireReply
from auth.values.identity_model import Millis
from auth.values.limits_and_lifetimes import SECOND
from server.console.overview import calls_page, overview_words
from server.console.overview.calls_page import CallPlaces, WantedCalls
from server.console.overview.overview_values import RunningParts, look

PATH: Final = navigation.OVERVIEW
CALLS: Final = "/account/calls"


class _Recent:
    """Calls of the last second, written down before somebody looks. For an owner always; for all others together once a second, for a
    write is what their looks would otherwise cost everybody."""

    def __init__(self, around: RunningParts) -> None:
        self._around = around
        self._at: Millis = 0

    async def write_down(self, now: Millis, *, owner: bool) -> None:
        if owner or not 0 <= now - self._at < SECOND:
            self._at = now
            await self._around.write_down()


class OverviewPages:
    """Each method makes the page of one path."""

    def __init__(self, parts: Parts, around: RunningParts) -> None:
        self.parts: Final = parts
        self._around = around
        self._recent = _Recent(around)

    async def overview(self, visit: PageVisit) -> WireReply:
        session = await visit.session()
        if session is None:
            return await account_page.not_signed_in(visit, PATH)
        visit = visit.of(session)
        await self._recent.write_down(visit.now, owner=session.user.role == "owner")
        found = await look(visit, session, self._around)
        return visit.page(
            "overview.html",
            title="Overview",
            notice=account_notices.of(visit),
            it=found.earnings,
            found=found,
            owner=found.owner,
            now=visit.now,
            several=found.several,
            bars=overview_words.chart_bars(found.day.hours),
            turned_away="" if found.door is None else overview_words.turned_away(found.door),
            deny_token=visit.token(waiting_device_section.PURPOSE),
            **overview_words.WORDS,
        )

    async def calls(self, visit: PageVisit) -> WireReply:
        """Show the calls that are like what the address says."""
        session = await visit.session()
        if session is None:
            return redirect(sign_in_then(PATH))
        visit = visit.of(session)
        owner = session.user.role == "owner"
        wanted = WantedCalls.of(dict(visit.request.query))
        await self._recent.write_down(visit.now, owner=owner)
        places = CallPlaces(self.parts, session.user.id)
        found = await calls_page.find(
            self.parts.store,
            wanted.filter(None if owner else session.user.id),
            at=places.read(wanted.at),
        )
        at = "" if found.go_on is None else places.write(found.go_on)
        return replace(visit, frame=replace(visit.frame, wide=True)).page(
            "calls.html",
            title="Calls",
            wanted=asdict(wanted),
            found=found.rows,
            older=overview_words.calls_path(**asdict(wanted) | {"at": at}) if at else "",
            owner=owner,
            now=visit.now,
            several=len(self.parts.site.servers) > 1,
            **overview_words.WORDS,
        )
