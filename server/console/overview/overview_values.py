"""Everything that the Overview shows, read: an owner's of everybody, anybody else's of what they called themselves. In pieces, each a job of the
store's readers, so that neither a call nor another page waits for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

import msgspec

from auth.pages.account import money_section as account_money
from auth.pages.account.money_section import EarningsSection
from auth.pages.page_visit import PageVisit
from auth.people.browser_sessions import BrowserSession
from auth.values.database import Row
from auth.values.identity_model import Millis
from server.console.overview import call_figures, calls_page, owner_needs
from server.console.overview.call_figures import CallerFigures, DayFigures, DoorFigures, ToolFigures
from server.console.overview.nodes_seen import NodeStanding
from server.console.overview.outages import AgentOutage
from server.console.overview.owner_needs import Needs
from server.store.call_records.call_rows import CallFilter

FAILURES: Final = 20


async def _nothing_waits() -> None:
    """Where nothing is recorded."""


async def _no_nodes() -> Sequence[NodeStanding]:
    return ()


async def _no_outages(_: Millis) -> list[AgentOutage]:
    return []


class RunningParts(msgspec.Struct, frozen=True, kw_only=True):
    """What the running server knows besides its store."""

    outages: Callable[[Millis], Awaitable[list[AgentOutage]]] = _no_outages
    offered: Callable[[], Sequence[tuple[str, str]]] = tuple  # tools, each with its server
    # Upstreams, and what waits of them in words; servers, and what is wrong with their offers.
    to_accept: Callable[[], Sequence[tuple[str, str]]] = tuple
    certificate: Callable[[], str] = str  # what is wrong with it, or soon will be
    write_down: Callable[[], Awaitable[None]] = _nothing_waits  # what waits to be recorded
    nodes: Callable[[], Awaitable[Sequence[NodeStanding]]] = _no_nodes  # nobody where there can be one only


class OverviewFigures(msgspec.Struct, frozen=True, kw_only=True):
    """All that the page shows."""

    owner: bool
    now: Millis
    several: bool  # servers, so that a tool is told with its own
    outages: Sequence[AgentOutage] = ()
    needs: Needs = Needs()
    to_accept: Sequence[tuple[str, str]] = ()
    certificate: str = ""
    payments: str = ""  # what is wrong with them
    earnings: EarningsSection | None = None
    balance: str = ""
    day: DayFigures
    callers: Sequence[CallerFigures]
    failures: Sequence[Row]
    tools: Sequence[ToolFigures]
    nodes: Sequence[NodeStanding] = ()
    door: DoorFigures | None = None


async def look(visit: PageVisit, session: BrowserSession, around: RunningParts) -> OverviewFigures:
    """What waits to be recorded was written down. Raises what the store raises."""
    store, now = visit.parts.store, visit.now
    owner = session.user.role == "owner"
    whose = None if owner else session.user.id
    used = await store.read(partial(call_figures.tools, now=now, whose=whose))
    day = await store.read(partial(call_figures.day, now=now, whose=whose, used=used))
    # When a tool was used last by anybody is for the owner alone.
    tools = (
        await store.read(partial(call_figures.with_unused, used=used, offered=around.offered()))
        if owner
        else used
    )
    callers = await store.read(partial(call_figures.callers, now=now, whose=whose))
    wanted = CallFilter(failed=True, whose=whose)
    failures = await calls_page.find(store, wanted, at_most=FAILURES)
    held = await account_money.look(visit, session)
    found = OverviewFigures(
        owner=owner,
        now=now,
        several=len(visit.parts.site.servers) > 1,
        day=day,
        callers=callers,
        failures=failures.rows,
        tools=tools,
        balance="" if held is None else held.held.balance,
    )
    if not owner:
        keys = await store.read(partial(owner_needs.ending_keys, now=now, whose=whose))
        return msgspec.structs.replace(found, needs=Needs(keys=keys))
    earnings = await account_money.look_at_earnings(visit, session)
    return msgspec.structs.replace(
        found,
        outages=[each for each in await around.outages(now) if each.kind != "waits"],
        needs=await store.read(partial(owner_needs.look, now=now)),
        to_accept=around.to_accept(),
        certificate=around.certificate(),
        payments="" if earnings is None else earnings.taken.trouble,
        earnings=earnings,
        nodes=await around.nodes(),
        door=await store.read(partial(call_figures.at_the_door, now=now)),
    )
