"""What one process hears of what another has changed (server/store/change_feed.py, remote_changes.py), and when it believes what it remembers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import psycopg
import pytest
import trio
from psycopg.conninfo import make_conninfo
from store_engines import NOW

from server.cluster.postgres import postgres_connection, postgres_listening
from server.cluster.postgres.postgres import open_postgres_store
from server.cluster.postgres.postgres_connection import PostgresConnection
from server.cluster.postgres.postgres_transaction import COMMIT_TELLING
from server.cluster.postgres.postgres_trips import PostgresTrips
from server.cluster.postgres.postgres_wire import WireConnection
from server.store import change_feed, meta_rows
from server.store.change_feed import CONFIRMED_SECONDS, Confirmation, News, look
from server.store.inline_store import open_inline_store
from server.store.jobs import Change, StoreBroken, StoreDb
from server.store.remote_changes import RemoteChanges
from server.store.store_engine import CommitInDoubt
from server.store.threaded_store import ThreadedStore

END_LISTENERS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE datname = current_database() AND application_name = 'ostiary listener'"
)


# A word takes milliseconds and the next look half a second, on a machine that is busy with other things a few more.
PROMPT_SECONDS = 10
NEVER_SECONDS = 600


class Heard:
    """What a store tells its listeners, in order."""

    def __init__(self, store: ThreadedStore) -> None:
        self.all: list[str] = []
        self._came = trio.Event()
        store.on_changes(self._changes)
        store.on_trust(self._trust)

    def _changes(self, changes: Sequence[Change]) -> None:
        self._add(change.entity_id for change in changes)

    def _trust(self, trusted: bool) -> None:
        self._add(["trusted" if trusted else "not trusted"])

    def _add(self, more: Any) -> None:
        self.all += more
        came, self._came = self._came, trio.Event()
        came.set()

    async def until(self, last: str, *, times: int = 1) -> list[str]:
        with trio.fail_after(60):
            while self.all.count(last) < times:
                await self._came.wait()
        return self.all


def change(db: StoreDb, name: str) -> None:
    db.changed("grant", name)


def say(parameters: dict[str, str], sql: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(make_conninfo("", **parameters), autocommit=True) as connection:
        cursor = connection.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []


async def two(stack: AsyncExitStack, parameters: dict[str, str]) -> tuple[ThreadedStore, ThreadedStore]:
    a, b = [
        await stack.enter_async_context(open_postgres_store(parameters, clock=lambda: NOW)) for _ in range(2)
    ]
    return a, b


async def test_a_change_is_heard_by_both_once_and_in_order(postgres_database: dict[str, str]) -> None:
    async with AsyncExitStack() as stack:
        a, b = await two(stack, postgres_database)
        at_a, at_b = Heard(a), Heard(b)
        for number in range(200):
            await a.write(partial(change, name=f"a{number}"))
            assert at_a.all[-1] == f"a{number}"  # before its writer goes on
        await b.write(partial(change, name="b"))
        await a.write(partial(change, name="last"))
        theirs = [name for name in await at_b.until("last") if name != "b"]
        assert theirs == [*(f"a{number}" for number in range(200)), "last"]
        assert sorted(await at_a.until("b")) == sorted(at_b.all)
        assert len(set(at_a.all)) == len(at_a.all)


async def test_a_job_that_is_undone_is_heard_of_by_nobody(postgres_database: dict[str, str]) -> None:
    def fail(db: StoreDb) -> None:
        change(db, "undone")
        raise LookupError

    async with AsyncExitStack() as stack:
        a, b = await two(stack, postgres_database)
        at_b = Heard(b)
        with pytest.raises(LookupError):
            await a.write(fail)
        await a.write(partial(change, name="last"))
        assert await at_b.until("last") == ["last"]


async def hears_what_comes_next(a: ThreadedStore, b: ThreadedStore) -> None:
    """The first may be found by the look that each begins with; what is written after it was heard is found by none but the next."""
    at_b = Heard(b)
    with trio.fail_after(PROMPT_SECONDS):
        for name in ("first", "second", "third"):
            await a.write(partial(change, name=name))
            await at_b.until(name)
    assert [name for name in at_b.all if "trusted" not in name] == ["first", "second", "third"]


async def test_a_change_is_heard_by_word_alone_where_nobody_looks(
    postgres_database: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_feed, "LOOK_SECONDS", NEVER_SECONDS)
    async with AsyncExitStack() as stack:
        await hears_what_comes_next(*await two(stack, postgres_database))


async def test_a_change_is_heard_by_looking_alone_where_no_word_comes(
    postgres_database: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert change_feed.LOOK_SECONDS < 1  # docs/scale.md: within a second
    monkeypatch.setattr(postgres_listening, "LISTEN", b"UNLISTEN *")
    async with AsyncExitStack() as stack:
        await hears_what_comes_next(*await two(stack, postgres_database))


async def test_what_was_missed_for_good_and_a_connection_that_was_lost_make_all_that_is_cached_doubtful(
    postgres_database: dict[str, str],
) -> None:
    async with AsyncExitStack() as stack:
        a, b = await two(stack, postgres_database)
        at_b = Heard(b)
        await a.write(partial(change, name="first"))
        await at_b.until("first")
        say(postgres_database, END_LISTENERS)  # what is committed meanwhile is there when they are back
        await a.write(partial(change, name="meanwhile"))
        heard = await at_b.until("trusted")
        assert heard.index("not trusted") < heard.index("trusted")
        await at_b.until("meanwhile")
        await a.write(partial(change, name="after"))
        await at_b.until("after")

        # More was swept away than it had read: as after a long sleep.
        def sweep(db: StoreDb) -> None:
            change(db, "swept")
            row = db.fetch_one("SELECT max(seq) AS seq FROM changes")
            assert row is not None
            db.execute("DELETE FROM changes")
            meta_rows.put(db, meta_rows.CHANGES_DROPPED, str(row["seq"]))

        at_b.all.clear()
        await a.write(sweep)
        await a.write(partial(change, name="after that"))
        heard = await at_b.until("after that")
        assert (heard[:2], "swept" in heard) == (["not trusted", "trusted"], False) or heard[
            0
        ] == "not trusted"


async def test_a_database_that_took_over_and_was_behind_leaves_nothing_to_be_believed(
    postgres_database: dict[str, str],
) -> None:
    async with open_postgres_store(postgres_database, clock=lambda: NOW) as store:
        for name in ("a", "b", "c"):
            await store.write(partial(change, name=name))
        found = await store.read(partial(look, after=3))
        assert (found.up_to, found.complete) == (3, True)
        found = await store.read(partial(look, after=7))
        assert (found.changes, found.up_to, found.complete) == ((), 3, False)


async def test_a_listener_that_cannot_forget_stops_the_store(postgres_database: dict[str, str]) -> None:
    def fail(trusted: bool) -> None:
        raise RuntimeError("cannot forget")

    async def serve() -> None:
        async with open_postgres_store(postgres_database, clock=lambda: NOW) as store:
            store.on_trust(fail)
            say(postgres_database, END_LISTENERS)
            await trio.sleep_forever()

    with pytest.raises(StoreBroken), trio.fail_after(60):
        await serve()


async def test_a_commit_that_counts_after_it_was_given_up_is_heard_of_when_it_does(
    postgres_database: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it changes is asked for again in between, and is as it was."""
    monkeypatch.setattr(postgres_connection, "_SILENT_WRITER_MILLIS", 60_000)
    nobody = WireConnection.connect(make_conninfo("", **postgres_database))
    nobody.close()
    underway: list[WireConnection] = []

    def give_up(self: PostgresConnection, how: str) -> None:
        del how
        underway.append(self._connection)
        self._connection, self._trips = nobody, PostgresTrips(nobody)
        raise CommitInDoubt

    async with AsyncExitStack() as stack:
        a, b = await two(stack, postgres_database)
        at_a, at_b = Heard(a), Heard(b)
        with monkeypatch.context() as cut:
            cut.setattr(PostgresConnection, "_commit", give_up)
            with pytest.raises(StoreBroken, match="may or may not"):
                await a.write(partial(change, name="revoked"))
        assert (at_a.all.count("revoked"), at_b.all) == (1, [])
        (late,) = underway
        late.pgconn.exec_(COMMIT_TELLING.encode())
        late.close()
        await at_b.until("revoked")
        await at_a.until("revoked", times=2)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_what_is_cached_is_believed_for_five_seconds_after_it_was_confirmed() -> None:
    clock, said = Clock(), list[bool]()
    confirmation = Confirmation(said.append, clock=clock)
    confirmation.after_io_wait(0)
    assert (said, confirmation.is_missing, confirmation.seconds_ago) == ([], False, None)
    confirmation.confirm(clock.now)
    clock.now += CONFIRMED_SECONDS - 0.1
    confirmation.after_io_wait(0)
    assert said == []
    confirmation.confirm(clock.now - 1)  # asked a second ago: so long it holds less
    clock.now += CONFIRMED_SECONDS - 1
    for _ in range(3):
        confirmation.after_io_wait(0)
    assert (said, confirmation.is_missing) == ([False], True)
    confirmation.confirm(clock.now - CONFIRMED_SECONDS)  # as old as what was forgotten
    assert said == [False]
    confirmation.confirm(clock.now - 1)
    assert (said, confirmation.is_missing, confirmation.seconds_ago) == ([False, True], False, 1)


def test_what_is_cached_before_the_first_confirmation_is_believed_for_as_long() -> None:
    clock, said = Clock(), list[bool]()
    confirmation = Confirmation(said.append, clock=clock)
    confirmation.begin()
    clock.now += CONFIRMED_SECONDS
    confirmation.after_io_wait(0)
    assert (said, confirmation.is_missing, confirmation.seconds_ago) == ([False], True, CONFIRMED_SECONDS)
    confirmation.confirm(clock.now)
    assert said == [False, True]


class Silent:
    """A feed that says only what a test says."""

    after = 10

    def __init__(self) -> None:
        self.tell: Callable[[News], None] = lambda _: None

    def start(self, tell: Callable[[News], None]) -> None:
        self.tell = tell

    async def end(self) -> None:
        pass


class Listening:
    def __init__(self) -> None:
        self.told: list[int] = []

    def tell(self, changes: Sequence[Change]) -> None:
        self.told += [change.seq for change in changes]

    def give_in(self, error: BaseException) -> None:
        raise error


def changes(*numbers: int) -> list[Change]:
    return [Change(seq=number, kind="grant", entity_id=str(number)) for number in numbers]


async def test_what_was_committed_here_is_told_once_whichever_way_comes_first() -> None:
    feed, store = Silent(), Listening()
    others = RemoteChanges(feed)  # pyright: ignore[reportArgumentType]
    others.start(store, lambda function, *arguments: function(*arguments))

    def hear(*numbers: int) -> None:
        feed.tell(News(changes=changes(*numbers), up_to=numbers[-1], known_at=0.0, gap=False))

    def commit(*numbers: int) -> None:
        store.tell(others.not_told(changes(*numbers)))

    commit(12)
    hear(11, 12, 13)
    assert store.told == [12, 11, 13]
    commit(13)  # it was read before its writer was answered
    commit(14, 15)
    hear(14)
    hear(15, 16)
    assert store.told == [12, 11, 13, 14, 15, 16]
    commit(9)  # the database that took over had not come so far
    assert store.told[-1] == 9
    await others.end()


async def test_a_store_without_threads_has_nobody_to_hear_of() -> None:
    async with open_inline_store(clock=lambda: NOW) as store:
        store.on_trust(lambda _: pytest.fail("nothing is in doubt"))
        await store.write(partial(change, name="a"))
