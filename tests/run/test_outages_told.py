"""The log says once when an agent begins to fail, and once when it works again (server/run/agent_outages.py)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

import pytest
import trio
import trio.testing

from server.agents.base.backend import Trouble
from server.lib.log.logger import Logger
from server.run.agent_outages import LOOK_SECONDS, SETTLED_SECONDS, TRY_SECONDS, OutageWatch, nothing_recorded
from server.store.inline_store import open_inline_store
from server.store.jobs import Store
from tests.console.overview.overview_fakes import FailingCatalog, broken, endpoints_of, keep
from tests.store.call_records.records_fakes import ADA, NOW, call

REFUSED = Trouble("it cannot be reached: connection refused", NOW)


class Lines:
    """The log, as it is written to: only warnings are expected."""

    def __init__(self) -> None:
        self.said: list[dict[str, object]] = []

    def warning(self, event: str, **facts: object) -> None:
        self.said.append({"event": event, **facts})


def as_log(lines: Lines) -> Logger:
    return cast("Logger", lines)


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with open_inline_store(clock=lambda: NOW) as store:
        yield store


async def test_it_is_said_once_when_it_begins_and_once_when_it_is_over_with_what_it_cost(
    store: Store, autojump_clock: trio.testing.MockClock
) -> None:
    catalog, log = FailingCatalog(), Lines()
    waiting = [call(who=ADA, at=NOW + 1, outcome="failed")]

    async def write_down() -> None:
        while waiting:
            await keep(store, waiting.pop())

    watch = OutageWatch(
        endpoints_of(main=catalog),
        store,
        as_log(log),
        write_down,
        now=lambda: NOW + 90_000,
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.run)
        await trio.sleep(3 * LOOK_SECONDS)
        assert log.said == []
        catalog.found = [broken(REFUSED, "echo")]
        await trio.sleep(TRY_SECONDS + LOOK_SECONDS)
        assert log.said == [
            {
                "event": "agent.out_of_order",
                "agent": "main[1] (chat)",
                "reason": REFUSED.words,
                "failed_calls": 1,
                "people": ["Ada"],
            }
        ]
        assert catalog.tried >= 1  # so that its end is seen without anybody's call
        waiting.append(call(who=ADA, at=NOW + 2, outcome="failed"))
        # One that works for a moment only has not worked.
        catalog.found = []
        await trio.sleep(SETTLED_SECONDS / 2)
        catalog.found = [broken(Trouble("it answers with status 500", NOW + 9), "echo")]
        await trio.sleep(2 * SETTLED_SECONDS)
        assert len(log.said) == 1
        catalog.found = []
        await trio.sleep(SETTLED_SECONDS + 2 * LOOK_SECONDS)
        assert log.said[1:] == [
            {
                "event": "agent.in_order_again",
                "agent": "main[1] (chat)",
                "seconds": 90,
                "failed_calls": 2,
                "people": ["Ada"],
            }
        ]
        nursery.cancel_scope.cancel()


async def test_what_only_waits_for_its_owner_or_has_not_begun_is_no_failure(store: Store) -> None:
    log = Lines()

    async def write_down() -> None:
        raise AssertionError("nothing is asked of the records")

    catalog = FailingCatalog(
        broken(Trouble("a tool waits to be looked at", NOW, kind="waits"), "echo"),
        broken(Trouble("is not connected yet", NOW, kind="begins"), "echo"),
    )
    watch = OutageWatch(endpoints_of(main=catalog), store, as_log(log), write_down)
    await watch.look()
    assert log.said == []


async def test_an_agent_that_is_dead_at_the_start_is_known_before_anybody_calls(
    store: Store, autojump_clock: trio.testing.MockClock
) -> None:
    first, second, log = FailingCatalog(), FailingCatalog(), Lines()
    first.behind = [broken(REFUSED, "echo")]
    watch = OutageWatch(
        endpoints_of(main=first, other=second), store, as_log(log), nothing_recorded, now=lambda: NOW
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.run)
        await trio.sleep(LOOK_SECONDS + 0.1)
        assert [(line["event"], line["reason"]) for line in log.said] == [
            ("agent.out_of_order", REFUSED.words)
        ]
        nursery.cancel_scope.cancel()
