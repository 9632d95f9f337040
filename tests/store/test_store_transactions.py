"""Batches: whatever some jobs of a batch do, each job ends as if it had been alone."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.store.jobs import (
    Change,
    ConstraintFailed,
    DiskFull,
    StatementFailed,
    StoreBroken,
    StoreBusy,
    StoreDb,
)
from server.store.migrate import migrate, packaged_migrations
from server.store.sqlite_connect import connect_writer
from server.store.transactions import PendingJob, Transactions
from tests.engine_under_test import writer_in_memory

# What jobs must never have is given to the test's database, because a batch that breaks is otherwise hard to come by: a
# trigger that rolls the whole transaction back, and a constraint that fails only at COMMIT.
SABOTAGE = """
CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);
CREATE TABLE late (parent INTEGER REFERENCES notes (id) DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE bombs (a);
CREATE TRIGGER explode BEFORE INSERT ON bombs BEGIN SELECT RAISE(ROLLBACK, 'boom'); END;
"""


class Bench:
    """One database in memory, and what was said to it."""

    def __init__(self) -> None:
        self.connection = writer_in_memory()
        self.connection.executescript(SABOTAGE)
        self.transactions = Transactions(self.connection, job_seconds=10)
        self.statements: list[str] = []
        self.connection.set_trace_callback(self.statements.append)

    def batch(self, jobs: Iterable[Callable[[StoreDb], Any]]) -> tuple[list[PendingJob[Any]], list[Change]]:
        works = [PendingJob(job) for job in jobs]
        effects = self.transactions.run_batch(works, at=7)
        return works, [effect for effect in effects if isinstance(effect, Change)]

    def content(self) -> list[list[Any]]:
        tables = ("notes", "late", "bombs", "changes")
        return [self.connection.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall() for table in tables]

    @property
    def commits(self) -> int:
        return self.statements.count("COMMIT")


@pytest.fixture
def bench() -> Generator[Bench]:
    bench = Bench()
    with closing(bench.connection):
        yield bench


def note(text: str) -> Callable[[StoreDb], str]:
    def job(db: StoreDb) -> str:
        db.execute("INSERT INTO notes (text) VALUES (?)", text)
        db.changed("grant", text[:20])
        return text

    return job


def explode(db: StoreDb) -> None:
    db.execute("INSERT INTO notes (text) VALUES ('bomb')")
    db.changed("grant", "bomb")
    db.execute("INSERT INTO bombs VALUES (1)")


def break_commit(db: StoreDb) -> str:
    db.execute("INSERT INTO late VALUES (-1)")
    db.changed("grant", "late")
    return "promised"


def raise_after_writing(db: StoreDb) -> None:
    note("halfway")(db)
    raise LookupError("mine")


def end_the_transaction(db: StoreDb) -> None:
    note("ended")(db)
    db.execute("COMMIT")


def look_away(db: StoreDb) -> str:
    try:
        db.execute("INSERT INTO bombs VALUES (1)")
    except StatementFailed:
        return "did not see it"
    return "no bomb"


def count(db: StoreDb) -> int:
    row = db.fetch_one("SELECT count(*) AS n FROM notes")
    assert row is not None
    return row["n"]


def test_a_batch_is_one_commit(bench: Bench) -> None:
    works, changes = bench.batch([note("a"), note("b"), note("c")])
    assert [work.result() for work in works] == ["a", "b", "c"]
    assert [change.entity_id for change in changes] == ["a", "b", "c"]
    assert bench.commits == 1


def test_a_job_that_raises_undoes_only_itself_within_the_same_commit(bench: Bench) -> None:
    works, changes = bench.batch([note("a"), raise_after_writing, end_the_transaction, note("b")])
    assert [type(work.error).__name__ for work in works] == [
        "NoneType",
        "LookupError",
        "StatementRefused",
        "NoneType",
    ]
    assert [change.entity_id for change in changes] == ["a", "b"]
    assert bench.commits == 1


def test_a_lone_job_needs_no_savepoint_of_its_own(bench: Bench) -> None:
    bench.batch([note("a")])
    assert [said.split()[0] for said in bench.statements] == ["BEGIN", "INSERT", "INSERT", "COMMIT"]


@pytest.mark.parametrize("failing", [raise_after_writing, end_the_transaction, explode, look_away])
def test_the_first_of_a_batch_can_fail_alone_too(bench: Bench, failing: Callable[[StoreDb], object]) -> None:
    works, changes = bench.batch([failing, failing, note("a"), failing, note("b")])
    assert [work.error is None for work in works] == [False, False, True, False, True]
    assert [row[1] for row in bench.content()[0]] == ["a", "b"]
    assert [change.entity_id for change in changes] == ["a", "b"]


@pytest.mark.parametrize("saboteur", [explode, look_away, break_commit])
def test_a_job_that_takes_the_transaction_down_fails_alone_and_its_neighbours_run_again(
    bench: Bench, saboteur: Callable[[StoreDb], object]
) -> None:
    works, changes = bench.batch([note("a"), saboteur, note("b")])
    assert works[0].result() == "a"
    assert isinstance(works[1].error, ConstraintFailed)
    assert works[2].result() == "b"
    assert [row[1] for row in bench.content()[0]] == ["a", "b"]
    assert [change.entity_id for change in changes] == ["a", "b"]


def test_a_job_that_was_never_run_has_no_result() -> None:
    with pytest.raises(StoreBroken):
        PendingJob(note("a")).result()


def test_no_transaction_stays_open_whatever_happened(bench: Bench) -> None:
    for jobs in (
        [explode],
        [break_commit],
        [raise_after_writing],
        [end_the_transaction],
        [note("a"), explode],
    ):
        bench.batch(jobs)
        assert not bench.connection.in_transaction


def test_an_error_in_the_queue_itself_is_not_hidden_and_commits_nothing(bench: Bench) -> None:
    def works() -> Generator[PendingJob[Any]]:
        yield PendingJob(note("a"))
        raise LookupError("queue")

    with pytest.raises(LookupError):
        bench.transactions.run_batch(works(), at=7)
    assert not bench.connection.in_transaction
    assert bench.content()[0] == []


def test_when_another_process_holds_the_lock_every_job_of_the_batch_is_told_and_none_ran(
    tmp_path: Any,
) -> None:
    path = tmp_path / "a.db"
    with (
        closing(connect_writer(path)) as ours,
        closing(sqlite3.connect(path, isolation_level=None)) as theirs,
    ):
        migrate(ours, packaged_migrations(), now=0, backups=tmp_path)
        ours.execute("PRAGMA busy_timeout = 0")
        theirs.execute("BEGIN IMMEDIATE")
        ran: list[int] = []
        works = [PendingJob(lambda _: ran.append(1)), PendingJob(lambda _: ran.append(2))]
        assert Transactions(ours, job_seconds=10).run_batch(works, at=7) == []
        assert all(isinstance(work.error, StoreBusy) for work in works)
        assert works[0].error is not works[1].error  # exceptions collect tracebacks: each caller gets its own
        assert ran == []
        theirs.execute("ROLLBACK")


def test_a_full_database_fails_those_that_do_not_fit_and_serves_the_rest(bench: Bench) -> None:
    pages = bench.connection.execute("PRAGMA page_count").fetchone()[0]
    bench.connection.execute(f"PRAGMA max_page_count = {pages + 2}")

    works, _ = bench.batch([note("a"), note("x" * 100_000), note("b")])
    assert works[0].result() == "a"
    assert isinstance(works[1].error, DiskFull)
    assert works[2].result() == "b"

    reading = PendingJob(count)
    bench.transactions.run_read(reading)
    assert reading.result() == 2

    bench.connection.execute("PRAGMA max_page_count = 1000000")
    works, _ = bench.batch([note("x" * 100_000)])
    assert works[0].error is None


@dataclass(frozen=True)
class Step:
    name: str
    job: Callable[[StoreDb], object]

    def __repr__(self) -> str:
        return self.name


STEPS = st.one_of(
    st.sampled_from("abc").map(lambda text: Step(f"note {text}", note(text))),
    st.sampled_from(
        [
            Step(job.__name__, job)
            for job in (explode, break_commit, raise_after_writing, end_the_transaction, look_away, count)
        ]
    ),
)


@settings(deadline=None)  # the machine's speed is not the property
@given(st.lists(STEPS, max_size=12))
def test_a_batch_of_good_and_bad_jobs_ends_as_if_each_had_run_alone(steps: list[Step]) -> None:
    together, apart = Bench(), Bench()
    with closing(together.connection), closing(apart.connection):
        works, changes = together.batch([step.job for step in steps])
        alone = [PendingJob(step.job) for step in steps]
        changes_apart = [change for work in alone for change in apart.transactions.run_alone(work, at=7)]

        assert [_outcome(work) for work in works] == [_outcome(work) for work in alone]
        assert together.content() == apart.content()
        assert changes == changes_apart


def _outcome(work: PendingJob[Any]) -> object:
    return (type(work.error), str(work.error)) if work.error is not None else work.result()
