"""Back-ups that the server makes by itself (server/run/timed_backups.py)."""

from __future__ import annotations

import io
from contextlib import closing
from pathlib import Path

import pytest
import trio

from server.lib.log.structured_log import make_logger
from server.run.timed_backups import LOOK_SECONDS, RETRY_SECONDS, BackupOutcome, BackupPlan, keep_backing_up
from server.store.migrate import migrate, packaged_migrations
from server.store.rotation import copies
from server.store.sqlite_connect import connect_writer

NOW = 1_800_000_000_000
HOUR = 3_600_000


@pytest.fixture
def plan(tmp_path: Path) -> BackupPlan:
    database = tmp_path / "ostiary.db"
    with closing(connect_writer(database)) as connection:
        migrate(connection, packaged_migrations(), now=NOW, backups=tmp_path)
    return BackupPlan(database=database, directory=tmp_path / "copies", every_hours=24, keep=3)


class Passing:
    """A clock that goes on only while somebody sleeps; it ends them after so many hours."""

    def __init__(self, hours: float) -> None:
        self.now = NOW
        self.end = NOW + round(hours * HOUR)
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += round(seconds * 1000)
        if self.now >= self.end:
            raise trio.EndOfChannel
        await trio.lowlevel.checkpoint()


async def run(plan: BackupPlan, hours: float, outcome: BackupOutcome | None = None) -> tuple[Passing, str]:
    passing, log = Passing(hours), io.StringIO()
    logger = make_logger(level="info", style="json", stream=log)
    with pytest.raises(trio.EndOfChannel):
        await keep_backing_up(
            plan,
            clock=lambda: passing.now,
            log=logger,
            outcome=outcome or BackupOutcome(),
            sleep=passing.sleep,
        )
    return passing, log.getvalue()


async def test_one_is_made_at_once_then_one_each_day_and_so_many_stay(plan: BackupPlan) -> None:
    passing, log = await run(plan, 24 * 5 - 1)
    assert log.count('"backup.made"') == 5
    assert len(copies(plan.directory, now=passing.now)) == 3
    assert max(passing.slept) <= LOOK_SECONDS


async def test_a_restart_makes_none_before_its_time(plan: BackupPlan) -> None:
    await run(plan, 1)
    _, log = await run(plan, 1)
    assert "backup.made" not in log


async def test_one_that_fails_is_an_error_and_is_tried_again_soon(plan: BackupPlan) -> None:
    plan.directory.touch()
    passing, log = await run(plan, 0.5)
    assert log.count('"backup.failed"') == 3
    assert passing.slept == [RETRY_SECONDS] * 3


async def test_how_the_last_one_went_is_there_for_whoever_asks(plan: BackupPlan) -> None:
    outcome = BackupOutcome()
    await run(plan, 1, outcome)
    assert outcome == BackupOutcome(every_hours=24, made_at=NOW)
    for copy in copies(plan.directory, now=NOW):
        copy.unlink()
    plan.directory.rmdir()
    plan.directory.touch()
    await run(plan, 0.2, outcome)
    assert (outcome.made_at, outcome.failed_at) == (None, NOW + 600_000)
    assert str(plan.directory) in outcome.reason
    plan.directory.unlink()
    await run(plan, 1, outcome)  # it knows how to forget a failure
    assert (outcome.made_at, outcome.failed_at, outcome.reason) == (NOW, None, "")
