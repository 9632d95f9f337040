"""The ends of chains that several processes write (server/run/audit_trail.py): what one of them saw, nobody who can write to the database takes back
unnoticed, though each may have been quiet for long and ends in an orderly way."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
import structlog
from psycopg.conninfo import make_conninfo

from auth.values.database import AuditEntry
from server.cluster.postgres.postgres import open_postgres_store
from server.run.audit_trail import TrailHead, WrittenHead
from server.store import keyfile
from server.store.audit_chain import AuditChain
from server.store.audit_head import HeadFile
from server.store.jobs import Position, StoreDb
from server.store.ledger_chain import LedgerChain
from server.store.threaded_store import ThreadedStore

NOW = 1_800_000_000_000
KEY, LEDGER_KEY = b"of the trail", b"of the ledger"
LOST = {
    "audit": "row 9 was written once, and is not in this trail",
    "movements": "row 9 was written once, and is not in this ledger",
}


def both(db: StoreDb, name: str) -> None:
    """A row in each chain."""
    db.audit(AuditEntry(NOW, "test.done", f"user:{name}", None, None, None, None, "ok", ""))
    db.post(
        (NOW, "grant", "issued:", "wallet:user:u", 1, "USD", "user:u:", None, None, "s", "t", None, None, None, "v1", None, name)
    )  # fmt: skip


class Process:
    """One of those on a database. With a folder it writes down where the chains end."""

    def __init__(self, store: ThreadedStore, folder: Path | None) -> None:
        self.store = store
        log: Any = structlog.get_logger()
        place = folder or Path("nowhere")
        self.files = [HeadFile(place / "audit", KEY), HeadFile(place / "ledger", LEDGER_KEY)]
        self.head = TrailHead(
            store,
            WrittenHead("audit", self.files[0], store.audit_head, log),
            WrittenHead("ledger", self.files[1], store.ledger_head, log),
            log,
            keeps=folder is not None,
            chains=(AuditChain(KEY), LedgerChain(LEDGER_KEY)),
        )

    async def write(self, name: str, count: int) -> None:
        for _ in range(count):
            await self.store.write(partial(both, name=name))

    async def alarms(self) -> Sequence[str]:
        sql = "SELECT reason FROM audit WHERE event IN ('audit.altered', 'ledger.altered') ORDER BY seq"
        return [row["reason"] for row in await self.store.read(lambda db: db.fetch_all(sql))]


@asynccontextmanager
async def process(parameters: Mapping[str, str], folder: Path | None = None) -> AsyncGenerator[Process]:
    async with open_postgres_store(parameters, clock=lambda: NOW) as store:
        store.chain_audit(KEY)
        store.chain_ledger(LEDGER_KEY)
        await store.write(partial(keyfile.bind_key, fingerprint="of the key"))
        made = Process(store, folder)
        await made.head.write()
        yield made


def records(connection: psycopg.Connection[Any]) -> list[tuple[str, str]]:
    return connection.execute(
        "SELECT key, value FROM meta WHERE key IN ('audit_chain', 'ledger_chain')"
    ).fetchall()


def put_back(connection: psycopg.Connection[Any], table: str, older: Sequence[tuple[str, str]]) -> None:
    """What a thief does who has the database and no key: rows are gone, and the record of before is there again."""
    connection.execute(f"DELETE FROM {table} WHERE seq > 5".encode())
    for key, value in older:
        if key == ("audit_chain" if table == "audit" else "ledger_chain"):
            connection.execute("UPDATE meta SET value = %s WHERE key = %s", (value, key))


@pytest.mark.parametrize("table", LOST)
@pytest.mark.parametrize("who", ["the file", "what was seen", "the quiet one"])
async def test_rows_that_are_taken_back_are_noticed_by_whoever_knew_them(
    postgres_database: dict[str, str], tmp_path: Path, who: str, table: str
) -> None:
    async with process(postgres_database, tmp_path if who == "the file" else None) as one:
        await one.write("ann", 5)
        async with process(postgres_database) as quiet:
            with closing(psycopg.connect(make_conninfo("", **postgres_database), autocommit=True)) as thief:
                older = records(thief)
                await quiet.write("mallory", 4)
                if who != "the quiet one":
                    await one.head.write()
                put_back(thief, table, older)
            await one.write("ann", 6)  # beyond what was there
            assert await one.alarms() == []
            await (quiet if who == "the quiet one" else one).head.write()
            assert LOST[table] in await one.alarms()
            chain = AuditChain(KEY) if table == "audit" else LedgerChain(LEDGER_KEY)
            assert (await one.store.read(chain.noticed)) is not None
            # Once is enough: from here on the trail goes on.
            told = await one.alarms()
            await one.head.write()
            await one.write("ann", 1)
            await one.head.write()
            assert [row for row in await one.alarms() if row not in told] == []


async def test_where_nobody_had_a_hand_in_it_many_processes_write_down_where_it_ends(
    postgres_database: dict[str, str], tmp_path: Path
) -> None:
    async with process(postgres_database, tmp_path) as one, process(postgres_database) as other:
        for _ in range(5):
            await one.write("ann", 2)
            await other.head.write()
            await other.write("bob", 2)
            await one.head.write()
        assert await one.alarms() == []
        ends = [one.files[0].read(), one.files[1].read()]
        sql = "SELECT max(seq) AS last FROM audit"
        (last,) = await one.store.read(lambda db: db.fetch_all(sql))
        assert [[position.seq for position in each] for each in ends] == [[last["last"]], [20]]
        assert isinstance(ends[0][0], Position)


async def test_what_cannot_be_compared_is_not_written_over(
    postgres_database: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from server.store.jobs import StoreUnreachable

    async with process(postgres_database, tmp_path) as one:
        before = one.files[0].read()
        await one.write("ann", 2)

        async def gone(job: Any) -> Any:
            raise StoreUnreachable("the database is away")

        with monkeypatch.context() as away:
            away.setattr(one.store, "read", gone)
            await one.head.write()
        assert one.files[0].read() == before
        await one.head.write()
        assert one.files[0].read() != before
