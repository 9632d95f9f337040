"""What every engine promises alike (server/store/jobs.py)."""

from __future__ import annotations

import gc
from contextlib import suppress
from functools import partial

import pytest
import trio
from store_engines import NOW, AnyStore, Open, keys, put

from auth.values import database as auth_db
from server.store import jobs
from server.store.inline_store import InlineStore
from server.store.job_connection import MAX_ROWS, Facade
from server.store.jobs import (
    Change,
    ConstraintFailed,
    JobTooSlow,
    StatementFailed,
    StatementRefused,
    StoreClosed,
    StoreDb,
)
from server.store.threaded_store import ThreadedStore


async def test_a_write_returns_what_its_job_returned_and_later_reads_see_it(store: AnyStore) -> None:
    assert await store.write(partial(put, key="a")) == "a"
    assert await store.read(keys) == ["a"]


async def test_rows_are_dicts_and_no_row_is_none(store: AnyStore) -> None:
    await store.write(partial(put, key="a", value="1"))
    assert await store.read(lambda db: db.fetch_one("SELECT key, value FROM meta")) == {
        "key": "a",
        "value": "1",
    }
    assert await store.read(lambda db: db.fetch_one("SELECT key FROM meta WHERE key = ?", "b")) is None


async def test_execute_tells_how_many_rows_it_touched(store: AnyStore) -> None:
    def job(db: StoreDb) -> tuple[int, int]:
        put(db, "a")
        put(db, "b")
        touched = db.execute("UPDATE meta SET value = 'y'")
        return touched, db.execute("DELETE FROM meta WHERE key = 'c'")

    assert await store.write(job) == (2, 0)


async def test_a_job_that_raises_leaves_nothing_and_its_own_error_reaches_its_caller(store: AnyStore) -> None:
    def job(db: StoreDb) -> None:
        put(db, "a")
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        await store.write(job)
    assert await store.read(keys) == []


async def test_a_refusal_that_is_returned_is_kept(store: AnyStore) -> None:
    def job(db: StoreDb) -> str:
        put(db, "attempt")
        return "refused"

    assert await store.write(job) == "refused"
    assert await store.read(keys) == ["attempt"]


@pytest.mark.parametrize(
    "sql",
    [
        "COMMIT",
        "rollback",
        "  /* */ -- x\n END",
        "BEGIN",
        "SAVEPOINT a",
        "RELEASE job",
        "ROLLBACK TO job",
        "PRAGMA foreign_keys = OFF",
        "ATTACH DATABASE ':memory:' AS other",
        "DETACH DATABASE main",
        "VACUUM",
        "DROP TABLE meta",
        "CREATE TABLE t (a)",
        "EXPLAIN SELECT 1",
        "REPLACE INTO meta VALUES ('a', 'b')",
        "INSERT OR ROLLBACK INTO meta VALUES ('a', 'b')",
        "",
        ";",
        "-- nothing",
    ],
)
async def test_a_statement_that_could_hurt_neighbours_is_refused_and_undoes_only_its_own_job(
    store: AnyStore, sql: str
) -> None:
    def job(db: StoreDb) -> None:
        put(db, "bad")
        db.execute(sql)

    outcome: list[BaseException] = []

    async def write_bad() -> None:
        try:
            await store.write(job)
        except StatementRefused as error:
            outcome.append(error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.write, partial(put, key="before"))
        nursery.start_soon(write_bad)
        nursery.start_soon(store.write, partial(put, key="after"))
    assert len(outcome) == 1
    assert await store.read(keys) == ["after", "before"]


@pytest.mark.parametrize("sql", ["SELECT 1", "INSERT INTO meta VALUES ('a', 'b') RETURNING key"])
async def test_execute_refuses_what_returns_rows_because_their_count_would_be_wrong(
    store: AnyStore, sql: str
) -> None:
    with pytest.raises(StatementRefused, match="fetched"):
        await store.write(lambda db: db.execute(sql))
    assert await store.read(keys) == []


async def test_several_statements_in_one_are_refused(store: AnyStore) -> None:
    with pytest.raises(StatementFailed):
        await store.write(lambda db: db.execute("DELETE FROM meta; COMMIT"))
    with pytest.raises(StatementFailed):
        await store.read(lambda db: db.fetch_all("SELECT 1; SELECT 2"))


async def test_a_job_whose_statement_failed_is_undone_even_if_it_looks_away(store: AnyStore) -> None:
    await store.write(partial(put, key="a"))

    def job(db: StoreDb) -> str:
        put(db, "b")
        try:
            put(db, "a")
        except ConstraintFailed:
            return "never mind"
        return "fine"

    with pytest.raises(ConstraintFailed, match=r"UNIQUE constraint failed: meta\."):
        await store.write(job)
    assert await store.read(keys) == ["a"]


async def test_after_a_failed_statement_the_job_can_run_no_other(store: AnyStore) -> None:
    seen: list[BaseException] = []

    def job(db: StoreDb) -> None:
        for sql in ("SELECT nonsense", "SELECT 1"):
            try:
                db.fetch_one(sql)
            except jobs.JobError as error:
                seen.append(error)

    with pytest.raises(StatementFailed, match="nonsense"):
        await store.write(job)
    assert [type(error) for error in seen[-2:]] == [StatementFailed, StatementRefused]


async def test_a_wrong_parameter_is_an_error_that_does_not_show_the_value(store: AnyStore) -> None:
    with pytest.raises(StatementFailed) as caught:
        await store.write(lambda db: db.execute("DELETE FROM meta WHERE key = ?", ["hunter2"]))
    assert "hunter2" not in str(caught.value)


async def test_foreign_keys_are_enforced(store: AnyStore) -> None:
    sql = "INSERT INTO browser_sessions VALUES ('h', 'nobody', 0, 0, 0, 0, '', '', '')"
    with pytest.raises(ConstraintFailed):
        await store.write(lambda db: db.execute(sql))


async def test_a_read_cannot_write(store: AnyStore) -> None:
    with pytest.raises(StatementRefused):
        await store.read(partial(put, key="a"))
    with pytest.raises(jobs.StoreError):
        await store.read(
            lambda db: db.fetch_all("WITH t AS (SELECT 1) INSERT INTO meta SELECT 'a', 'b' RETURNING key")
        )
    with pytest.raises(StatementRefused):
        await store.read(lambda db: db.changed("grant", "g"))
    assert await store.read(keys) == []
    assert await store.write(partial(put, key="still works")) == "still works"


async def test_a_kept_handle_is_dead_after_its_job(store: AnyStore) -> None:
    kept = await store.write(lambda db: db)
    with pytest.raises(StatementRefused):
        kept.execute("DELETE FROM meta")


async def test_a_result_has_a_largest_size(store: AnyStore) -> None:
    counting = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) SELECT i FROM n"
    assert len(await store.read(lambda db: db.fetch_all(counting, MAX_ROWS))) == MAX_ROWS
    with pytest.raises(StatementRefused):
        await store.read(lambda db: db.fetch_all(counting, MAX_ROWS + 1))


async def test_changes_are_numbered_stamped_and_told_in_order(store: AnyStore) -> None:
    told: list[Change] = []
    store.on_changes(told.extend)

    def job(db: StoreDb) -> None:
        db.changed("grant", "g1")
        db.changed("user", "u1")

    await store.write(job)
    await store.write(lambda db: db.changed("key", "k1"))
    assert [(change.kind, change.entity_id) for change in told] == [
        ("grant", "g1"),
        ("user", "u1"),
        ("key", "k1"),
    ]
    assert [change.seq for change in told] == sorted({change.seq for change in told})
    rows = await store.read(
        lambda db: db.fetch_all("SELECT seq, at, kind, entity_id FROM changes ORDER BY seq")
    )
    assert [(row["seq"], row["kind"], row["entity_id"]) for row in rows] == [
        (change.seq, change.kind, change.entity_id) for change in told
    ]
    assert {row["at"] for row in rows} == {NOW}


async def test_changes_are_told_before_their_writer_is_answered_and_to_every_listener(
    store: AnyStore,
) -> None:
    order: list[str] = []
    store.on_changes(lambda _: order.append("first listener"))
    store.on_changes(lambda _: order.append("second listener"))
    await store.write(lambda db: db.changed("grant", "g"))
    order.append("writer")
    assert order == ["first listener", "second listener", "writer"]


async def test_a_job_that_fails_tells_no_change(store: AnyStore) -> None:
    told: list[Change] = []
    store.on_changes(told.extend)

    def job(db: StoreDb) -> None:
        db.changed("grant", "g")
        raise LookupError

    with pytest.raises(LookupError):
        await store.write(job)
    assert told == []
    assert await store.read(lambda db: db.fetch_all("SELECT * FROM changes")) == []


@pytest.mark.parametrize(("kind", "entity_id"), [("grnat", "g"), ("grant", ""), ("grant", "g" * 257)])
async def test_a_change_that_nobody_would_hear_is_refused(store: AnyStore, kind: str, entity_id: str) -> None:
    with pytest.raises(StatementRefused):
        await store.write(lambda db: db.changed(kind, entity_id))


async def test_a_job_that_runs_too_long_is_stopped_and_others_are_served(open_any: Open) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"

    def job(db: StoreDb) -> None:
        put(db, "slow")
        db.fetch_one(endless)

    async with open_any(job_seconds=0.5) as store:
        with pytest.raises(JobTooSlow):
            await store.read(lambda db: db.fetch_one(endless))
        with pytest.raises(JobTooSlow):
            await store.write(job)
        for _ in range(100):  # a machine that pauses may stop a short one too
            with suppress(JobTooSlow):
                await store.write(partial(put, key="next"))
                break
        assert await store.read(keys) == ["next"]


async def test_a_cancelled_caller_submits_nothing(store: AnyStore) -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        await store.write(partial(put, key="a"))
    assert scope.cancelled_caught
    with trio.CancelScope() as scope:
        scope.cancel()
        await store.read(keys)
    assert scope.cancelled_caught
    assert await store.read(keys) == []


async def test_a_closed_store_refuses(open_any: Open) -> None:
    async with open_any() as store:
        pass
    with pytest.raises(StoreClosed):
        await store.write(partial(put, key="a"))
    with pytest.raises(StoreClosed):
        await store.read(keys)


async def test_a_failing_listener_stops_the_store_but_the_write_stands_and_the_others_are_told(
    open_any: Open, engine: str
) -> None:
    def fail(_: object) -> None:
        raise LookupError("cache")

    def is_the_fault(error: BaseException) -> bool:
        return isinstance(error, jobs.StoreBroken) and isinstance(error.__cause__, LookupError)

    told: list[Change] = []
    reached = False
    with pytest.raises(jobs.StoreBroken) as caught:  # noqa: PT012
        async with open_any() as store:
            store.on_changes(fail)
            store.on_changes(told.extend)
            await store.write(lambda db: db.changed("grant", "g"))
            await trio.lowlevel.checkpoint()  # the first moment at which anything could leave the process
            reached = True
    assert is_the_fault(caught.value)
    assert not reached
    assert [change.entity_id for change in told] == ["g"]
    if engine != "inline-memory":
        async with open_any() as store:
            assert await store.read(lambda db: db.fetch_one("SELECT entity_id FROM changes")) == {
                "entity_id": "g"
            }


async def test_what_was_written_is_there_when_it_is_opened_again(open_any: Open, engine: str) -> None:
    async with open_any() as store:
        await store.write(partial(put, key="a"))
    if engine == "inline-memory":  # gone with the store, by design
        return
    async with open_any() as store:
        assert await store.read(keys) == ["a"]


async def test_identity_can_use_every_engine_through_its_own_view(store: AnyStore) -> None:
    # The annotations are the point: pyright proves that both engines and the facade fit what auth asks for.
    lent: auth_db.JobStore = store

    def job(db: auth_db.Db) -> str:
        db.execute("INSERT INTO meta (key, value) VALUES (?, ?)", "a", "1")
        return "done"

    assert await lent.write(job) == "done"
    assert await lent.read(lambda db: db.fetch_one("SELECT value FROM meta")) == {"value": "1"}


def facade_as_auth_sees_it(facade: Facade) -> auth_db.Db:
    return facade


def stores_as_the_server_sees_them(
    threads: ThreadedStore, inline: InlineStore
) -> tuple[jobs.Store, jobs.Store]:
    return threads, inline


async def test_no_connection_is_left_to_the_garbage_collector(open_any: Open) -> None:
    async with open_any() as store:
        await store.write(partial(put, key="a"))
    del store
    gc.collect()  # an unclosed connection would warn here, and warnings are errors
