"""How a database finds what is asked of very many rows: by an index, on either engine, and never through the whole table."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from store_engines import NOW

from auth.administration import login_listing
from auth.grants import login_records
from auth.grants.token_request import REFRESH_EPOCH
from server.admin.store_status import counted
from server.cluster.postgres.postgres_transaction import numbered
from server.store.migrate import migrate, packaged_migrations
from server.store.sqlite_connect import connect_writer

ROWS = 20_000
CLIENT = "INSERT INTO clients (id, kind, name, auth_method, grant_types, redirect_uris, scope, state, created_at) VALUES ('cli', 'builtin', '', 'none', '', '', '*', 'enabled', 0)"
NUMBERS = f"WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS})"
# Half of them have ended, and all of those are one person's; the ids say nothing of their age.
LOGINS = f"""
INSERT INTO grants (id, principal_kind, subject, client_id, client_name, hostname, server, origin, scope, ip, user_agent, approved_by,
  auth_time, created_at, counter, epoch, rotated_at, last_used_at, idle_until, expires_at, revoked_at)
{NUMBERS}
SELECT 'grt_' || ((i * 7919) % {ROWS}), 'user', CASE WHEN i % 2 = 0 THEN 'usr_1' ELSE 'usr_' || (i % 500) END, 'cli', '', '', 'agent',
  '', '*', '', '', '', 0, {NOW} - i * 1000, 1, 'epo_1', 0, {NOW} - (i * 31) % {ROWS}, {NOW} + i, {NOW} + i,
  CASE WHEN i % 2 = 0 THEN {NOW} - i ELSE NULL END FROM n
"""


class Asking:
    """A job's `Db` that has each statement explained before it is run."""

    def __init__(self, fetch: Callable[..., list[dict[str, Any]]], explain: Callable[..., list[str]]) -> None:
        self._fetch, self._explain = fetch, explain
        self.steps: list[str] = []

    def fetch_one(self, sql: str, *params: object) -> Mapping[str, Any] | None:
        return next(iter(self.fetch_all(sql, *params)), None)

    def fetch_all(self, sql: str, *params: object) -> list[dict[str, Any]]:
        self.steps += self._explain(sql, *params)
        return self._fetch(sql, *params)

    def execute(self, sql: str, *params: object) -> int:
        raise AssertionError("these only read")


def of_sqlite(connection: sqlite3.Connection) -> Asking:
    def fetch(sql: str, *params: Any) -> list[dict[str, Any]]:
        cursor = connection.execute(sql, params)
        return [dict(zip((each[0] for each in cursor.description), row, strict=True)) for row in cursor]

    return Asking(
        fetch,
        lambda sql, *params: [row[-1] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", params)],
    )


def of_postgres(connection: psycopg.Connection[Any]) -> Asking:
    def fetch(sql: str, *params: Any) -> list[dict[str, Any]]:
        cursor = connection.cursor().execute(numbered(sql), params)
        names = [each[0] for each in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor]

    return Asking(fetch, lambda sql, *params: [row["QUERY PLAN"] for row in fetch(f"EXPLAIN {sql}", *params)])


JOBS: Mapping[str, Callable[[Any], object]] = {
    "everybody's logins": partial(login_listing.page, now=NOW, limit=30),
    "the next page of them": partial(
        login_listing.page, now=NOW, limit=30, before=(NOW - 9_000_000, "grt_5")
    ),
    "a search among them": partial(login_listing.page, now=NOW, limit=30, like="nobody"),
    "how many there are": partial(login_listing.count, now=NOW, at_most=2_000),
    "what `ostiary status` counts": partial(counted, now=NOW),
    "how many one person has": partial(login_records.count, now=NOW, subject="usr_3"),
    "how many one has who has ended very many": partial(login_records.count, now=NOW, subject="usr_1"),
    "one person's logins": partial(login_records.sessions, now=NOW, subject="usr_3", limit=30),
    "room for another login of who has ended very many": partial(
        login_records.make_room, subject="usr_1", most=20_000, now=NOW
    ),
}


@pytest.mark.parametrize("what", JOBS)
def test_on_sqlite_no_login_is_looked_for_through_the_table(tmp_path: Path, what: str) -> None:
    with closing(connect_writer(tmp_path / "a.db")) as connection:
        migrate(connection, packaged_migrations(), now=0, backups=tmp_path)
        for sql in (CLIENT, LOGINS, f"INSERT INTO meta VALUES ('{REFRESH_EPOCH}', 'epo_1')"):
            connection.execute(sql)
        asking = of_sqlite(connection)
        JOBS[what](asking)
    of_logins = [step for step in asking.steps if " grants" in f" {step}" or " g " in f"{step} "]
    assert of_logins
    for step in of_logins:
        assert "USING" in step and "grants_by_expiry" not in step and "autoindex" not in step, (what, step)
        assert not step.startswith("SCAN") or "grants_living" in step, (what, step)


@pytest.mark.parametrize("what", JOBS)
def test_on_postgresql_no_login_is_looked_for_through_the_table(
    postgres_database: dict[str, str], what: str
) -> None:
    with psycopg.connect(
        make_conninfo("", **postgres_database), autocommit=True, cursor_factory=psycopg.RawCursor
    ) as connection:
        for sql in (
            CLIENT,
            LOGINS,
            f"INSERT INTO meta VALUES ('{REFRESH_EPOCH}', 'epo_1')",
            "VACUUM ANALYZE",
        ):
            connection.execute(sql.encode())
        asking = of_postgres(connection)
        JOBS[what](asking)
    assert any("grants" in step for step in asking.steps)
    for step in asking.steps:
        assert "Seq Scan on grants" not in step, (what, step)
