"""Agents that are out of order, as whoever runs the server is told of them: in the log when it begins and when it is over, at /readyz, in
the metrics. `ostiary status`, `doctor` and the Overview page ask server/console/overview/outages.py.

A bad agent takes nobody else down with it: the server is ready, and says which one is not.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec
import trio

from auth.values.identity_model import Millis
from server.agents.base.catalog import AgentTrouble
from server.calls.servers.endpoint import Endpoint
from server.console.overview.outage_effects import AgentHit, lasting
from server.console.overview.outages import hit_by, troubles
from server.lib.log.logger import Logger
from server.lib.log.metrics import Metrics
from server.settings.private_paths import program_notices
from server.settings.resolved_settings import Resolved
from server.store.jobs import Store, StoreError

# How often it is looked whether one fails; whoever reads the log is not told sooner.
LOOK_SECONDS: Final = 1.0
# One that works again and fails again within this time never worked.
SETTLED_SECONDS: Final = 5.0
# How often one that cannot be reached is tried after the start, so that its end is seen without anybody's call.
TRY_SECONDS: Final = 15.0


def words_of(endpoints: Mapping[str, Endpoint], now: Millis) -> list[str]:
    """Write a line for each: which agent, what it said last, and for how long."""
    return [
        f"{found.name}: {found.trouble.words} (for {lasting(now - found.trouble.since)})"
        for _, found in troubles(endpoints)
    ]


def count_troubles(metrics: Metrics, endpoints: Mapping[str, Endpoint]) -> None:
    metrics.gauges(
        "agent_out_of_order",
        "Agents that could not be reached or started when that was tried last",
        "agent",
        lambda: {found.name: 1 for _, found in troubles(endpoints)},
    )


class _Known(msgspec.Struct):
    """An agent that was said to fail."""

    server: str
    found: AgentTrouble
    well_since: float | None = None


async def nothing_recorded() -> None:
    """Do nothing: no call is written down."""


class OutageWatch:
    """The teller of agents that begin to fail, and that work again: in the log, with their words, and how many calls of whom it cost."""

    def __init__(
        self,
        endpoints: Mapping[str, Endpoint],
        store: Store,
        log: Logger,
        write_down: Callable[[], Awaitable[None]],
        *,
        now: Callable[[], Millis] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._endpoints = endpoints
        self._store = store
        self._log = log
        self._write_down = write_down
        self._now = now
        self._known: dict[str, _Known] = {}

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_trying)
            while True:
                await trio.sleep(LOOK_SECONDS)
                await self.look()

    async def look(self) -> None:
        failing = {
            found.name: (server, found)
            for server, found in troubles(self._endpoints)
            if found.trouble.kind == "fails"
        }
        for name, (server, found) in failing.items():
            known = self._known.get(name)
            if known is None:
                self._known[name] = _Known(server, found)
                await self._say("agent.out_of_order", self._known[name], reason=found.trouble.words)
            else:
                known.well_since = None
        now = trio.current_time()
        for name, known in list(self._known.items()):
            if name in failing:
                continue
            if known.well_since is None:
                known.well_since = now
            elif now - known.well_since >= SETTLED_SECONDS:
                del self._known[name]
                lasted = max(0, self._now() - known.found.trouble.since)
                await self._say("agent.in_order_again", known, seconds=round(lasted / 1000))

    async def _say(self, event: str, known: _Known, **facts: Any) -> None:
        hit = await self._hit(known)
        if hit.calls:
            whose = [*hit.people, *([f"{hit.others} others"] if hit.others else [])]
            facts |= {"failed_calls": hit.calls, "people": whose}
        self._log.warning(event, agent=known.found.name, **facts)

    async def _hit(self, known: _Known) -> AgentHit:
        try:
            await self._write_down()
            return await hit_by(self._store, known.server, known.found, self._now())
        except StoreError:  # which is told of elsewhere
            return AgentHit()

    async def _keep_trying(self) -> None:
        """Try all of them at the start: one that died before, or while nobody watched, is known before somebody's call fails."""
        async with trio.open_nursery() as nursery:
            for endpoint in self._endpoints.values():
                nursery.start_soon(endpoint.catalog.reach_all)
        while True:
            await trio.sleep(TRY_SECONDS)
            for server in {known.server for known in self._known.values()}:
                endpoint = self._endpoints.get(server)
                if endpoint is not None:
                    await endpoint.catalog.reach_all(failing=True)


def tell_of_programs(resolved: Resolved, log: Logger, *, alone: bool = False) -> None:
    """Write down what cannot be kept from programs that are started, and what is in their way. `alone`: there is one caller."""
    for notice in program_notices(resolved, alone=alone):
        tell = log.warning if notice.grave else log.info
        tell("program.confinement", reason=notice.words, hint=notice.hint)
