"""Sweeping (server/store/maintenance.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from functools import cache, partial
from typing import Any, TypeVar

import pytest
import trio
from store_engines import NOW, AnyStore

from auth.pages import user_code_entry
from auth.people import browser_sessions, user_accounts
from auth.values.limits_and_lifetimes import TokenPolicy
from server.store import maintenance, task_leases
from server.store.change_rows import newest_change, read_changes
from server.store.clock_doubt import ClockDoubt
from server.store.jobs import DiskFull, OnAudit, OnChanges, OnTrust, StoreDb, StoreError
from server.store.maintenance import CHORE, LEASE_MILLIS, keep_sweeping, sweep
from server.store.migrate import migrate, packaged_migrations
from server.store.retention import PIECE, Retention
from server.store.sqlite_connect import connect_writer
from server.store.task_leases import LeasedTable

T = TypeVar("T")

KEEP = Retention(
    device_codes=10,
    attempts=20,
    browser_sessions=0,
    browser_sessions_unused=30,
    one_time_links=40,
    grants=50,
    changes=60,
    authorization_codes=12,
    client_assertions=14,
    client_documents=16,
    signing_keys=18,
    refresh_keys=18,
    vouchers=22,
    audit=70,
)
FAR = NOW + 1_000_000


@cache
def required(table: str) -> Mapping[str, str]:
    """Columns that must not be empty, and their types, as SQLite has them."""
    with closing(connect_writer(None)) as connection:
        migrate(connection, packaged_migrations(), now=0, backups=None)
        sql = 'SELECT name, type FROM pragma_table_info(?) WHERE "notnull" = 1 OR pk > 0'
        return dict(connection.execute(sql, (table,)).fetchall())


def insert(db: StoreDb, table: str, **given: object) -> None:
    """A row with what matters given and something harmless in every other column that must not be empty."""
    columns: dict[str, object] = {
        name: (0 if kind in {"BIGINT", "INTEGER", "REAL"} else b"x" if kind == "BLOB" else f"x-{name}")
        for name, kind in required(table).items()
    }
    columns.update(given)
    marks = ", ".join("?" * len(columns))
    db.execute(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", *columns.values())


def furnish(db: StoreDb) -> None:
    insert(db, "users", id="u")
    insert(db, "clients", id="c")


def ids(db: StoreDb, table: str, column: str) -> list[Any]:
    return [row[column] for row in db.fetch_all(f"SELECT {column} FROM {table} ORDER BY 1")]


def sweep_now(store: Any, *, owner: str = "boot-1", now: int = NOW):  # noqa: ANN201
    return sweep(store, owner=owner, clock=lambda: now, retention=KEEP)


@pytest.fixture
async def furnished(store: AnyStore) -> AnyStore:
    await store.write(furnish)
    return store


CASES: list[tuple[str, str, dict[str, object], dict[str, object]]] = [
    # table, key column, a row that is over, a row that is not yet
    (
        "device_codes",
        "id",
        {"client_id": "c", "expires_at": NOW - 10},
        {"client_id": "c", "expires_at": NOW - 9},
    ),
    ("attempts", "bucket", {"at": NOW - 20}, {"at": NOW - 19}),
    (
        "browser_sessions",
        "id_hash",
        {"user_id": "u", "expires_at": NOW, "last_used_at": NOW},
        {"user_id": "u", "expires_at": NOW + 1, "last_used_at": NOW - 29},
    ),
    (
        "browser_sessions",
        "id_hash",
        {"user_id": "u", "expires_at": FAR, "last_used_at": NOW - 30},
        {"user_id": "u", "expires_at": FAR, "last_used_at": NOW - 29},
    ),
    (
        "one_time_links",
        "token_hash",
        {"user_id": "u", "expires_at": NOW - 40},
        {"user_id": "u", "expires_at": NOW - 39},
    ),
    (
        "grants",
        "id",
        {"client_id": "c", "expires_at": NOW - 50, "idle_until": FAR},
        {"client_id": "c", "expires_at": NOW - 49, "idle_until": FAR},
    ),
    (
        "grants",
        "id",
        {"client_id": "c", "expires_at": FAR, "idle_until": NOW - 50},
        {"client_id": "c", "expires_at": FAR, "idle_until": NOW - 49},
    ),
    (
        "grants",
        "id",
        {"client_id": "c", "expires_at": FAR, "idle_until": FAR, "revoked_at": NOW - 50},
        {"client_id": "c", "expires_at": FAR, "idle_until": FAR, "revoked_at": NOW - 49},
    ),
    ("tasks", "id_hash", {"expires_at": NOW}, {"expires_at": NOW + 1}),
    (
        "authorization_codes",
        "id",
        {"client_id": "c", "expires_at": NOW - 12},
        {"client_id": "c", "expires_at": NOW - 11},
    ),
    (
        "pushed_requests",
        "uri_hash",
        {"client_id": "c", "expires_at": NOW},
        {"client_id": "c", "expires_at": NOW + 1},
    ),
    ("passkey_challenges", "challenge_hash", {"expires_at": NOW}, {"expires_at": NOW + 1}),
    ("upstream_logins", "state_hash", {"expires_at": NOW}, {"expires_at": NOW + 1}),
    ("client_assertions", "jti_hash", {"expires_at": NOW - 14}, {"expires_at": NOW - 13}),
    (
        "consents",
        "server",
        {"user_id": "u", "client_id": "c", "expires_at": NOW},
        {"user_id": "u", "client_id": "c", "expires_at": NOW + 1},
    ),
    ("client_documents", "url", {"stale_until": NOW - 16}, {"stale_until": NOW - 15}),
    ("signing_keys", "kid", {"retires_at": NOW - 18}, {"retires_at": NOW - 17}),
    ("refresh_keys", "version", {"accepted_until": NOW - 18}, {"accepted_until": NOW - 17}),
    ("charges", "id", {"state": "done", "expires_at": NOW}, {"state": "done", "expires_at": NOW + 1}),
    ("charges", "id", {"state": "failed", "expires_at": NOW}, {"state": "running", "expires_at": NOW}),
    ("charges", "id", {"state": "released", "expires_at": NOW}, {"state": "settling", "expires_at": NOW}),
    ("charges", "id", {"state": "done", "expires_at": NOW}, {"owner": "boot-1", "expires_at": NOW}),
    ("payments", "id", {"state": "refused", "expires_at": NOW}, {"state": "refused", "expires_at": NOW + 1}),
    # As they were settled by versions that kept them for a day.
    ("payments", "id", {"state": "verified", "expires_at": NOW}, {"state": "settled", "expires_at": NOW}),
    ("payments", "id", {"state": "verified", "expires_at": NOW}, {"state": "settling", "expires_at": NOW}),
    ("payments", "id", {"state": "refused", "expires_at": NOW}, {"state": "unknown", "expires_at": NOW}),
    ("payments", "id", {"state": "reserved", "expires_at": NOW}, {"owner": "boot-1", "expires_at": NOW}),
    ("meters", "subject", {"expires_at": NOW}, {"expires_at": NOW + 1}),
    ("vouchers", "code_hash", {"expires_at": NOW - 22}, {"expires_at": NOW - 21}),
]


@pytest.mark.parametrize(("table", "key", "over", "current"), CASES)
async def test_what_is_over_goes_and_what_is_not_stays(
    furnished: AnyStore, table: str, key: str, over: dict[str, object], current: dict[str, object]
) -> None:
    gone, kept = (1, 2) if key == "version" else ("over", "stays")

    def fill(db: StoreDb) -> None:
        for name, row in ((gone, over), (kept, current)):
            extra: dict[str, object] = {key: name}
            if table == "authorization_codes":
                extra |= {"code_hash": name}
            if table == "device_codes":
                extra |= {"device_code_hash": name, "user_code_mac": name}
            if table == "payments":
                extra |= {"nonce": name}
            insert(db, table, **extra, **row)

    await furnished.write(fill)
    swept = await sweep_now(furnished)
    assert swept is not None
    assert swept[table] == 1
    assert sum(swept.values()) == 1
    assert await furnished.read(partial(ids, table=table, column=key)) == [kept]


async def test_a_task_goes_with_all_that_was_kept_of_it(furnished: AnyStore) -> None:
    def fill(db: StoreDb) -> None:
        for number in range(25):
            insert(db, "tasks", id_hash=f"t{number}", expires_at=NOW)
            insert(db, "task_parts", id_hash=f"t{number}", name="ending")
            insert(db, "task_questions", id_hash=f"t{number}", name="q")

    await furnished.write(fill)
    swept = await sweep_now(furnished)
    assert swept is not None
    assert swept["tasks"] == 25
    for table in ("tasks", "task_parts", "task_questions"):
        assert await furnished.read(partial(ids, table=table, column="id_hash")) == []


def test_nothing_is_swept_that_a_decision_still_looks_at() -> None:
    keep = Retention()
    limits = (
        *(user_accounts.PER_ACCOUNT, user_accounts.PER_NETWORK, user_accounts.ALL_PER_NETWORK),
        *(user_code_entry.PER_SESSION, user_code_entry.PER_ACCOUNT, user_code_entry.SERVER_WIDE),
    )
    assert keep.attempts >= max(limit.window + limit.lock for limit in limits)
    assert keep.browser_sessions_unused >= browser_sessions.IDLE
    assert keep.device_codes > 0, "a code that was used must still be known when it is replayed"
    assert keep.grants > TokenPolicy().access_ms, "an access token outlives the end of its login's use"


@pytest.mark.parametrize(
    ("table", "rows", "key"),
    [
        ("attempts", PIECE, "sequence"),
        ("tasks", 10, "id_hash"),
        ("charges", 20, "id"),
        ("kept_calls", 20, "id call_key"),
        ("conversations", 20, "id_hash"),
    ],
)
async def test_more_than_one_piece_is_swept_in_small_writes(
    furnished: AnyStore, table: str, rows: int, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(db: StoreDb) -> None:
        for number in range(2 * rows + 1):
            insert(db, table, **dict.fromkeys(key.split(), number if table == "attempts" else f"{number}"))

    await furnished.write(fill)
    pieces: list[int] = []
    original = maintenance._delete

    def counting(db: StoreDb, **arguments: Any) -> int:
        deleted = original(db, **arguments)
        pieces.append(deleted)
        return deleted

    monkeypatch.setattr(maintenance, "_delete", counting)
    swept = await sweep_now(furnished)
    assert swept is not None
    assert swept[table] == 2 * rows + 1
    assert pieces == [rows, rows, 1]


async def test_more_than_is_found_at_once_is_swept_in_one_run(
    furnished: AnyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(db: StoreDb) -> None:
        for number in range(11):
            db.execute("INSERT INTO attempts (bucket, at, sequence) VALUES ('b', 0, ?)", number)

    await furnished.write(fill)
    monkeypatch.setattr(maintenance, "FOUND", 5)
    swept = await sweep_now(furnished)
    assert swept is not None
    assert swept["attempts"] == 11


async def test_swept_changes_are_remembered_as_dropped(furnished: AnyStore) -> None:
    await furnished.write(lambda db: [db.changed("grant", name) for name in "abc"])
    newest = await furnished.read(newest_change)
    swept = await sweep_now(furnished, now=NOW + 60)
    assert swept is not None
    assert swept["changes"] == 3
    assert await furnished.read(newest_change) == newest
    assert not (await furnished.read(partial(read_changes, after_seq=newest - 1))).complete
    assert (await furnished.read(partial(read_changes, after_seq=newest))).complete
    await furnished.write(lambda db: db.changed("grant", "d"))
    assert await furnished.read(newest_change) > newest  # numbers are never used again


async def test_one_node_sweeps_and_another_leaves_it_to_it(furnished: AnyStore) -> None:
    lease = await furnished.write(
        lambda db: (
            db.execute("INSERT INTO chores (name, lease_until, fence) VALUES (?, 0, 0)", CHORE),
            task_leases.take(db, LeasedTable.CHORES, CHORE, owner="other", now=NOW, millis=LEASE_MILLIS),
        )[1]
    )
    assert lease is not None
    assert await sweep_now(furnished, now=NOW + LEASE_MILLIS - 1) is None
    assert await sweep_now(furnished, now=NOW + LEASE_MILLIS) is not None


async def test_the_lease_is_given_back_and_the_run_noted(furnished: AnyStore) -> None:
    assert await sweep_now(furnished) is not None
    row = await furnished.read(lambda db: db.fetch_one("SELECT owner, fence, last_run_at FROM chores"))
    assert row == {"owner": None, "fence": 1, "last_run_at": NOW}
    assert await sweep_now(furnished, owner="boot-2") is not None


async def test_a_node_whose_lease_was_taken_deletes_nothing_more(furnished: AnyStore) -> None:
    await furnished.write(
        lambda db: db.execute("INSERT INTO attempts (bucket, at, sequence) VALUES ('b', 0, 0)")
    )

    class Overtaken:
        """The store, but another node takes the expired lease just before the first deletion."""

        async def write(self, job: Callable[[StoreDb], T]) -> T:
            return await furnished.write(job)

        async def read(self, job: Callable[[StoreDb], T]) -> T:
            found = await furnished.read(job)
            await furnished.write(
                lambda db: task_leases.take(
                    db, LeasedTable.CHORES, CHORE, owner="other", now=NOW + LEASE_MILLIS, millis=LEASE_MILLIS
                )
            )
            return found

        def on_changes(self, listener: OnChanges) -> None:
            furnished.on_changes(listener)

        def on_audit(self, listener: OnAudit) -> None:
            furnished.on_audit(listener)

        def chain_audit(self, key: bytes) -> None:
            furnished.chain_audit(key)

    assert await sweep_now(Overtaken()) is None
    assert await furnished.read(partial(ids, table="attempts", column="bucket")) == ["b"]
    row = await furnished.read(lambda db: db.fetch_one("SELECT owner, last_run_at FROM chores"))
    assert row == {"owner": "other", "last_run_at": None}


async def test_sweeping_goes_on_after_the_store_refused_once(furnished: AnyStore) -> None:
    reports: list[dict[str, int] | ClockDoubt | StoreError] = []
    rounds = 0

    class FullAtFirst:
        async def write(self, job: Callable[[StoreDb], T]) -> T:
            if rounds == 0:
                raise DiskFull("the disk is full")
            return await furnished.write(job)

        async def read(self, job: Callable[[StoreDb], T]) -> T:
            return await furnished.read(job)

        def on_changes(self, listener: OnChanges) -> None:
            furnished.on_changes(listener)

        def on_audit(self, listener: OnAudit) -> None:
            furnished.on_audit(listener)

        def on_trust(self, listener: OnTrust) -> None:
            furnished.on_trust(listener)

        def on_letters(self, listener: Callable[[], None]) -> None:
            furnished.on_letters(listener)

        def chain_audit(self, key: bytes) -> None:
            furnished.chain_audit(key)

    async def sleep(seconds: float) -> None:
        nonlocal rounds
        assert seconds == KEEP.interval_seconds
        rounds += 1
        if rounds == 2:
            scope.cancel()
        await trio.lowlevel.checkpoint()

    with trio.fail_after(60), trio.CancelScope() as scope:
        await keep_sweeping(
            FullAtFirst(), owner="b", clock=lambda: NOW, retention=KEEP, report=reports.append, sleep=sleep
        )
    assert [type(report) for report in reports] == [DiskFull, dict]
