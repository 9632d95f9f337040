"""The audit trail while the server runs (server/run/audit_trail.py): its head is written down outside the database."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from auth.audit import audit_trail
from auth.values.database import AuditEntry, Db
from auth.values.limits_and_lifetimes import REFUSALS_PER_MINUTE
from server.calls.servers.server_opening import now_millis
from server.lib.log.structured_log import make_logger
from server.run import audit_trail as trail
from server.run.audit_trail import (
    HEAD_ROWS,
    HEAD_SECONDS,
    LOGGED_EVERY_SECONDS,
    SETTLED_EVERY_SECONDS,
    TrailHead,
)
from server.store import meta_rows
from server.store.data_directory import DataDirectory, open_home
from server.store.inline_store import InlineStore, open_inline_store
from server.store.keyfile import MasterKey
from server.store.sealed_rows import RightsNotSealed

ROW = AuditEntry(1, "test.done", "user:u", None, None, None, None, "ok", "")


class Kept:
    def __init__(self, home: DataDirectory, store: InlineStore, head: TrailHead, log: io.StringIO) -> None:
        self.home = home
        self.store = store
        self.head = head
        self.log = log

    def events(self, name: str) -> list[dict[str, Any]]:
        said = [json.loads(line) for line in self.log.getvalue().splitlines()]
        return [line for line in said if line["event"] == name]

    async def write(self, count: int) -> None:
        await self.store.write(lambda db: [db.audit(ROW) for _ in range(count)])

    async def run(self, seconds: float) -> None:
        """As long as that, by a clock of our own."""
        left = seconds

        async def sleep(length: float) -> None:
            nonlocal left
            await trio.lowlevel.checkpoint()
            left -= length
            if left < 0:
                scope.cancel()
                await trio.lowlevel.checkpoint()

        with trio.fail_after(60), trio.CancelScope() as scope:
            await self.head.run(sleep=sleep)

    def written(self) -> list[int]:
        return [head.seq for head in self.head.audit.file.read()]


@asynccontextmanager
async def kept(directory: Path) -> AsyncGenerator[Kept]:
    text = io.StringIO()
    log = make_logger(level="debug", style="json", stream=text)
    with open_home(directory) as home:
        async with (
            open_inline_store(home.database, clock=now_millis, backups=home.backups) as store,
            trail.kept(home, store, MasterKey("000102030405", bytes(32)), log) as head,
        ):
            yield Kept(home, store, head, text)


async def test_the_head_is_written_after_so_many_seconds_or_rows_and_at_the_end(tmp_path: Path) -> None:
    async with kept(tmp_path / "data") as running:
        assert running.written() == [0]
        await running.write(3)
        await running.run(HEAD_SECONDS - 1)
        assert running.written() == [0]
        await running.run(HEAD_SECONDS)
        assert running.written() == [3]
        await running.write(HEAD_ROWS)
        await running.run(1)
        assert running.written() == [3 + HEAD_ROWS]
        await running.write(2)
    assert running.written() == [5 + HEAD_ROWS]
    async with kept(tmp_path / "data") as running:
        assert running.events("identity.audit.altered") == []
        assert running.events("identity.audit.head_lost") == []


async def test_the_head_is_told_to_the_log_now_and_then_and_at_the_end_where_it_changed(
    tmp_path: Path,
) -> None:
    async with kept(tmp_path / "data") as running:
        await running.write(3)
        await running.run(LOGGED_EVERY_SECONDS)
        await running.run(LOGGED_EVERY_SECONDS)
        (told,) = running.events("audit.head")
        head = running.store.audit_head()
        assert head is not None
        assert told["head"] == f"3:{head.mac[:16]}"
        await running.write(1)
        await running.run(0)
        assert [line["head"].partition(":")[0] for line in running.events("audit.head")] == ["3", "4"]


async def test_a_file_that_cannot_be_written_is_a_warning_once_and_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with kept(tmp_path / "data") as running:
        with monkeypatch.context() as broken:

            def full(*heads: object) -> None:
                raise OSError(28, "No space left on device")

            broken.setattr(running.head.audit.file, "write", full)
            await running.write(3)
            await running.run(5 * HEAD_SECONDS)
            assert [line["reason"] for line in running.events("audit.head_not_written")] == [
                "No space left on device"
            ]
        await running.run(HEAD_SECONDS)
        assert running.written() == [3]


async def test_a_file_that_is_gone_is_a_row_and_a_warning_and_is_there_again(tmp_path: Path) -> None:
    async with kept(tmp_path / "data") as running:
        await running.write(1)
    running.head.audit.file.path.unlink()
    async with kept(tmp_path / "data") as running:
        (told,) = running.events("identity.audit.head_lost")
        assert told["level"] == "warning"
        assert running.written() == [2]
    async with kept(tmp_path / "data") as running:
        assert running.events("identity.audit.head_lost") == []


async def test_a_new_database_beside_the_head_of_another_one_is_found_out(tmp_path: Path) -> None:
    async with kept(tmp_path / "data") as running:
        await running.write(3)
    running.home.database.unlink()
    async with kept(tmp_path / "data") as running:
        (told,) = running.events("identity.audit.altered")
        assert told["level"] == "error"
        assert told["reason"] == "row 3 was written once, and is not in this trail"


async def test_a_row_that_was_altered_is_told_of_once_and_its_row_in_the_trail_says_which(
    tmp_path: Path,
) -> None:
    async with kept(tmp_path / "data") as running:
        for _ in "12":
            await running.store.read(lambda db: db.altered("users", "usr_1"))
            await running.run(2)
        (told,) = running.events("identity.rights.altered")
        assert told["level"] == "error"
        assert "users usr_1" in told["reason"]


async def test_a_database_that_was_not_sealed_is_refused_until_it_is(tmp_path: Path) -> None:
    async with kept(tmp_path / "data") as running:
        await running.write(1)
        await running.store.write(lambda db: db.execute("DELETE FROM meta WHERE key = ?", meta_rows.SEALS))
    with pytest.RaisesGroup(RightsNotSealed, allow_unwrapped=True, flatten_subgroups=True):
        async with kept(tmp_path / "data"):
            raise AssertionError("it was served")


async def test_refusals_that_were_only_counted_are_told_of_when_their_minute_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(db: Db) -> None:
        for _ in range(REFUSALS_PER_MINUTE + 7):
            audit_trail.record(db, at=now, event="client.refused", outcome="refused")

    async with kept(tmp_path / "data") as running:
        now = now_millis()
        monkeypatch.setattr(trail, "now_millis", lambda: now)
        await running.store.write(refuse)
        await running.run(SETTLED_EVERY_SECONDS)
        assert running.events("identity.audit.refusals") == []
        monkeypatch.setattr(trail, "now_millis", lambda: now + 60_000)
        await running.run(3 * SETTLED_EVERY_SECONDS)
        (told,) = running.events("identity.audit.refusals")
        assert told["reason"].startswith("and 7 more")


async def test_the_ledger_has_a_head_of_its_own(tmp_path: Path) -> None:
    row = (
        1, "grant", "granted", "wallet:user:u", 5, "USD", "local:0", None, None, None, None, None, None, None, None,
        None, "",
    )  # fmt: skip

    def written(running: Kept) -> list[int]:
        return [head.seq for head in running.head.ledger.file.read()]

    async with kept(tmp_path / "data") as running:
        assert written(running) == [0]
        await running.store.write(lambda db: db.post(row))
        await running.run(HEAD_SECONDS)
        assert (written(running), running.written()) == ([1], [0])
        await running.store.write(lambda db: [db.post(row) for _ in range(HEAD_ROWS)])
        await running.run(1)
        assert written(running) == [1 + HEAD_ROWS]
        assert [line["head"].partition(":")[0] for line in running.events("ledger.head")] == [
            "1",
            str(1 + HEAD_ROWS),
        ]
    running.head.ledger.file.path.unlink()
    async with kept(tmp_path / "data") as running:
        (told,) = running.events("identity.ledger.head_lost")
        assert told["level"] == "warning"
        assert running.events("identity.ledger.altered") == []
        assert written(running) == [1 + HEAD_ROWS]
        await running.store.write(lambda db: db.execute("DELETE FROM movements"))
        await running.store.write(lambda db: db.execute("DELETE FROM meta WHERE key = 'ledger_chain'"))
    running.head.ledger.file.path.unlink()
    async with kept(tmp_path / "data") as running:
        (told,) = running.events("identity.ledger.altered")
        assert told["level"] == "error"
