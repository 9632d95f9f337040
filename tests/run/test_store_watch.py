"""What is told of the store at /readyz (server/run/store_watch.py)."""

from __future__ import annotations

import trio
import trio.testing
from structlog.testing import CapturingLogger

from server.run.store_watch import SLOW_LOOK_SECONDS, keep_telling_of_slowness, why_not_ready
from server.store.jobs import StoreUnreachable
from server.store.store_health import StoreHealth, StoreReport


class CutOff:
    """A store on a database that says nothing. What others changed was confirmed when its clock began."""

    def __init__(self) -> None:
        self.health = StoreHealth()

    def report(self) -> StoreReport:
        ago = trio.current_time()
        return self.health.report(waiting=0, oldest_asked_at=None, confirmed_seconds_ago=ago)

    async def look(self) -> StoreReport:
        return self.report()

    async def read(self) -> None:
        await trio.sleep(6)
        raise StoreUnreachable("the database does not answer")


async def test_one_that_is_known_to_be_cut_off_is_said_to_be_without_a_wait(
    autojump_clock: trio.testing.MockClock,
) -> None:
    await trio.sleep(5)
    asked_at = trio.current_time()
    said = await why_not_ready(CutOff())  # type: ignore[arg-type]
    assert said == "what other processes changed has not been heard of for 5 s"
    assert trio.current_time() == asked_at


async def test_before_that_is_known_it_is_asked_and_what_it_says_is_told(
    autojump_clock: trio.testing.MockClock,
) -> None:
    assert await why_not_ready(CutOff()) == "the database does not answer"  # type: ignore[arg-type]
    assert trio.current_time() == 6


async def test_a_slow_disk_is_told_of_when_it_begins_and_when_it_is_over(
    autojump_clock: trio.testing.MockClock,
) -> None:
    log, store = CapturingLogger(), CutOff()

    async def pass_by(confirmed: float) -> list[str]:
        for _ in range(500):
            store.health.note_commit(1.0, confirmed=confirmed)
        await trio.sleep(2 * SLOW_LOOK_SECONDS)
        return [call.args[0] for call in log.calls]

    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_telling_of_slowness, store, log)  # type: ignore[arg-type]
        assert await pass_by(0.01) == []
        assert await pass_by(0.2) == ["store.slow"]
        assert "200 ms" in log.calls[0].kwargs["reason"]
        assert await pass_by(0.01) == ["store.slow", "store.quick_again"]
        nursery.cancel_scope.cancel()
