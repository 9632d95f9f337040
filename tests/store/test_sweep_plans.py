"""How the statements of a sweep find their rows: by an index, however many there are, on both engines (server/store/maintenance.py)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import pytest
from store_engines import NOW

from server.store import reaping
from server.store.inline_store import InlineStore, open_inline_store
from server.store.jobs import StoreDb
from server.store.maintenance import AT_ONCE, sweep
from server.store.retention import SWEPT, Retention
from tests.cluster.moving.filled import fill
from tests.inline_postgres import open_inline_postgres_store

# Few rows, whatever happens: bounded by the settings, by hand, or by how often keys change.
SMALL: Final = frozenset(
    {
        "api_keys",
        "chores",
        "client_documents",
        "meta",
        "one_time_links",
        "refresh_keys",
        "schema_version",
        "signing_keys",
    }
)
LONG: Final = NOW + 1_000 * 24 * 3_600_000


def some_clients(db: StoreDb) -> None:
    for name, kind in (("one", "dynamic"), ("two", "document")):
        db.execute(
            "INSERT INTO clients (id, kind, name, auth_method, grant_types, redirect_uris, scope, state, created_at)"
            " VALUES (?, ?, '', 'none', '', '', '', 'enabled', 1)",
            name,
            kind,
        )


Said = list[tuple[str, Sequence[Any]]]


async def swept_aloud(store: InlineStore, now: int) -> tuple[dict[str, int], Said]:
    """How many rows of each table are gone, and every statement, with its parameters."""
    said: Said = []
    connection, transactions = store._connection, cast("Any", store._transactions)

    class Heard:
        def __getattr__(self, name: str) -> Any:
            return getattr(connection, name)

        def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Any:
            said.append((sql, parameters))
            return connection.execute(sql, parameters)

    transactions._connection = Heard()
    swept = await sweep(store, owner="boot", clock=lambda: now, retention=Retention())
    transactions._connection = connection
    assert swept is not None
    return swept, said


async def said_while_sweeping(store: InlineStore) -> dict[str, Sequence[Any]]:
    await fill(store)
    await store.write(some_clients)
    swept, said = await swept_aloud(store, LONG)
    assert all(
        swept[name] for name in ("grants", "calls", "changes", "audit", "clients", "document_clients")
    ), swept
    return {sql: values for sql, values in reversed(said) if re.match("SELECT|UPDATE|DELETE", sql)}


def open_sqlite(folder: Path) -> AbstractAsyncContextManager[InlineStore]:
    return open_inline_store(folder / "a.db", clock=lambda: NOW, backups=folder)


def whole(sql: str) -> bool:
    """It is asked for the first rows of a table, in an order that there is already."""
    return bool(re.fullmatch(r"SELECT .* FROM \w+ ORDER BY seq( DESC)? LIMIT (\?|1)", sql))


async def test_sqlite_goes_through_no_large_table(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as store:
        said = await said_while_sweeping(store)
        assert len(said) > 60
        for sql, values in said.items():
            for *_, step in store._connection.execute(f"EXPLAIN QUERY PLAN {sql}", values).fetchall():
                scanned = re.match(r"SCAN (\w+)", step)
                is_small = scanned is not None and scanned[1] in SMALL
                assert scanned is None or is_small or whole(sql), (sql, step)
                assert "TEMP B-TREE" not in step or any(name in sql for name in SMALL) or "LIMIT" in sql, sql


async def test_postgres_goes_through_no_large_table(postgres_database: Mapping[str, str]) -> None:
    async with open_inline_postgres_store(postgres_database, clock=lambda: NOW) as store:
        said = await said_while_sweeping(store)
        connection: Any = store._connection
        # With so few rows it would go through all of any table. What it still goes through then, it has no index for.
        connection.script("SET enable_seqscan = off")
        for sql, values in said.items():
            plan = "\n".join(row[0] for row in connection.execute(f"EXPLAIN {sql}", values).fetchall())
            scanned = set(re.findall(r"Seq Scan on (\w+)", plan))
            assert scanned <= SMALL, (sql, plan)


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_programs_that_are_used_cost_a_sweep_no_statement_each(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    def register(db: StoreDb, first: int, count: int) -> None:
        for number in range(first, first + count):
            db.execute(
                "INSERT INTO clients (id, kind, name, auth_method, grant_types, redirect_uris, scope, state, created_at,"
                " authorized_at, last_used_at) VALUES (?, 'dynamic', '', 'none', '', '', '', 'enabled', ?, ?, ?)",
                f"client-{number}",
                number,
                number,
                NOW,
            )

    opened = (
        open_sqlite(tmp_path)
        if engine == "sqlite"
        else open_inline_postgres_store(request.getfixturevalue("postgres_database"), clock=lambda: NOW)
    )
    async with opened as store:
        heard: list[int] = []
        for first, count in ((0, 5), (5, 2 * reaping.LOOKED_AT)):
            await store.write(partial(register, first=first, count=count))
            swept, said = await swept_aloud(store, NOW)
            assert swept["clients"] == 0
            heard.append(sum(" FROM clients " in sql and "'dynamic'" in sql for sql, _ in said))
        assert heard[0] == heard[1] == len(reaping.LOOKS)


SEVERAL = [each for each in SWEPT if len(each.key) == 1]


async def test_sqlite_deletes_many_at_once_by_their_key(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as store:
        for each in SEVERAL:
            values = [0] * (AT_ONCE + len(each.ends))
            sql = f"EXPLAIN QUERY PLAN {each.deleted(AT_ONCE)}"
            steps = [step for *_, step in store._connection.execute(sql, values).fetchall()]
            by_key = (
                rf"SEARCH {each.table} USING (INTEGER PRIMARY KEY|INDEX sqlite_autoindex_{each.table}_1) "
            )
            assert re.match(by_key, steps[0]), (each.table, steps)


async def test_postgres_deletes_many_at_once_by_their_key(postgres_database: Mapping[str, str]) -> None:
    async with open_inline_postgres_store(postgres_database, clock=lambda: NOW) as store:
        connection: Any = store._connection
        connection.script("SET enable_seqscan = off")
        for each in SEVERAL:
            key = 0 if each.key[0] in ("seq", "version") else "text"
            values = [*(key for _ in range(AT_ONCE)), *(0 for _ in each.ends)]
            sql = f"EXPLAIN {each.deleted(AT_ONCE)}"
            plan = "\n".join(row[0] for row in connection.execute(sql, values).fetchall())
            assert f"Index Cond: ({each.key[0]} = ANY" in plan, (each.table, plan)


@pytest.mark.parametrize("table", ["grants", "audit", "calls", "clients", "changes", "charges", "payments"])
async def test_postgres_looks_for_what_is_over_by_its_time(
    postgres_database: Mapping[str, str], table: str
) -> None:
    """Not by going through an index from its beginning to its end."""
    async with open_inline_postgres_store(postgres_database, clock=lambda: NOW) as store:
        said = await said_while_sweeping(store)
        connection: Any = store._connection
        connection.script("SET enable_seqscan = off; SET enable_bitmapscan = off")
        looks = [sql for sql in said if re.match(rf"SELECT .* FROM {table} .*LIMIT \?$", sql)]
        assert looks
        for sql in looks:
            plan = "\n".join(row[0] for row in connection.execute(f"EXPLAIN {sql}", said[sql]).fetchall())
            assert whole(sql) or "Index Cond" in plan, (sql, plan)
