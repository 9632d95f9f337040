"""Everything from one store into another, and back (server/cluster/moving)."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager, ExitStack, closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import trio
from msgspec.structs import replace

from server.cluster.moving.opened_stores import OpenedEnds, StorePlace, opened
from server.cluster.moving.row_copy import Copied, CopyKeys, CopyRefused, CopyStep, StoreCopy
from server.cluster.postgres.postgres_connection import PostgresAccess, PostgresConnection
from server.store import move_marks
from server.store.chains import Break
from server.store.data_directory import HomeLocked, open_home
from server.store.inline_store import InlineStore, open_inline_store
from server.store.jobs import CannotOpen, ForeignDatabase, NewerSchema, StoreDb
from server.store.migrate import packaged_migrations
from server.store.move_marks import StoreMoved
from tests.cluster.moving.filled import FINGERPRINT, LEDGER_KEY, NOW, TABLES, TRAIL_KEY, fill
from tests.inline_postgres import open_inline_postgres_store
from tests.postgres_server import PostgresServer

MIGRATIONS: Final = packaged_migrations()
FILE: Final = StorePlace(called="data-dir")
KEYS: Final = CopyKeys(fingerprint=FINGERPRINT, trail=TRAIL_KEY, ledger=LEDGER_KEY)
LATER: Final = NOW + 1_000


class Cut(Exception):
    """What a kill is in these tests: nothing more of it runs."""


class House:
    """A data directory, and databases beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def ends(self, source: StorePlace, target: StorePlace) -> Generator[OpenedEnds]:
        with (
            open_home(self.folder) as home,
            opened(home, source, target, migrations=MIGRATIONS, now=LATER) as ends,
        ):
            yield ends

    def copy(
        self,
        source: StorePlace,
        target: StorePlace,
        *,
        told: Callable[[CopyStep], None] = lambda step: None,
        copy_id: str = "cpy_1",
        piece_rows: int = 2,
    ) -> Copied:
        with self.ends(source, target) as ends:
            return StoreCopy(
                ends.source,
                ends.target,
                tables=TABLES,
                schema=len(MIGRATIONS),
                keys=KEYS,
                copy_id=copy_id,
                by="local:7",
                now=LATER,
                told=told,
                piece_rows=piece_rows,
            ).run()

    def store(self, place: StorePlace) -> AbstractAsyncContextManager[InlineStore]:
        if place.parameters is None:
            return open_inline_store(self.folder / "ostiary.db", clock=lambda: NOW, backups=self.folder)
        return open_inline_postgres_store(place.parameters, clock=lambda: NOW)

    def fill(self, place: StorePlace) -> None:
        async def go() -> None:
            async with self.store(place) as store:
                await fill(store)

        trio.run(go)

    def write(self, place: StorePlace, job: Callable[[StoreDb], Any]) -> Any:
        """By nobody who starts a server."""

        async def go() -> Any:
            async with self.store(place) as store:
                return await store.write(job)

        return trio.run(go)

    def serve(self, place: StorePlace, job: Callable[[StoreDb], Any] = lambda db: None) -> Any:
        """What a start does first, and then this."""

        async def go() -> Any:
            async with self.store(place) as store:
                store.chain_audit(TRAIL_KEY)
                await store.write(move_marks.begin_serving)
                return await store.write(job)

        return trio.run(go)


@pytest.fixture
def house(tmp_path: Path) -> House:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    return House(folder)


@pytest.fixture
def databases(postgres_server: PostgresServer) -> Generator[Callable[[], StorePlace]]:
    with ExitStack() as kept:
        numbers = count(1)

        def another() -> StorePlace:
            number = next(numbers)
            parameters = kept.enter_context(postgres_server.database())
            return StorePlace(called=f"file:/database-{number}", parameters=dict(parameters))

        yield another


@pytest.fixture(params=["file to database", "database to file", "database to database"])
def places(
    request: pytest.FixtureRequest, databases: Callable[[], StorePlace]
) -> tuple[StorePlace, StorePlace]:
    source, _, target = request.param.partition(" to ")
    return (
        FILE if source == "file" else databases(),
        FILE if target == "file" else databases(),
    )


@pytest.fixture
def filled(house: House, places: tuple[StorePlace, StorePlace]) -> tuple[StorePlace, StorePlace]:
    house.fill(places[0])
    return places


def rows_of(db: StoreDb) -> dict[str, set[tuple[tuple[str, object], ...]]]:
    """Of every table, with the kind of each value; without what is said of the copy itself."""
    return {
        table.name: {
            tuple((type(value).__name__, value) for value in row.values())
            for row in db.fetch_all(f"SELECT {', '.join(table.columns)} FROM {table.name}")
            if row.get("key") not in move_marks.MARKS
        }
        for table in TABLES
    }


def of_both(house: House, source: StorePlace, target: StorePlace) -> list[dict[str, Any]]:
    return [house.write(place, rows_of) for place in (source, target)]


def test_every_table_is_in_the_fixture_and_arrives_as_it_was(
    house: House, filled: tuple[StorePlace, StorePlace]
) -> None:
    source, target = filled
    done = house.copy(source, target)
    before, after = of_both(house, source, target)
    assert all(len(rows) >= 3 for rows in before.values()), before
    written = after["audit"] - before["audit"]
    assert [("str", "store.copied") in row for row in written] == [True]
    after["audit"] -= written
    assert {name for name in before if before[name] != after[name]} == {"meta"}, "where the trail ends"
    assert done.rows == {name: len(rows) for name, rows in before.items()}
    assert done.chains.is_sound
    assert (done.chains.movements, done.chains.balances) == (3, 6)


def test_cut_off_at_every_step_it_goes_on_where_it_was(
    house: House, filled: tuple[StorePlace, StorePlace]
) -> None:
    source, target = filled
    seen: list[CopyStep] = []

    told = [0]
    # Each is a start of its own: in one direction at every step, in the others at every fifth of the many.
    every = 1 if source.parameters is None else 5

    def cut(step: CopyStep) -> None:
        assert step.doing != "again"
        if step in seen or (
            step.doing in ("comparing", "walking") and step.doing in {each.doing for each in seen}
        ):
            return
        told[0] += 1
        if step.doing != "copying" or told[0] % every == 0:
            seen.append(step)
            raise Cut

    runs = 0
    while True:
        runs += 1
        try:
            done = house.copy(source, target, told=cut, copy_id=f"cpy_{runs}")
        except Cut:
            if runs % 10 == 1 or seen[-1].doing != "copying":
                with pytest.raises(StoreMoved):
                    house.serve(target)
        else:
            break
    steps = [step.doing for step in seen]
    assert runs == len(seen) + 1
    assert steps.count("copying") >= 2 * len(TABLES) // every - 1, "each table is more than a piece"
    assert steps[-4:] == ["comparing", "walking", "closing", "closed"]
    copied = [step.done for step in seen if step.doing == "copying"]
    assert copied == sorted(set(copied)), "no row is copied twice"
    before, after = of_both(house, source, target)
    assert {name for name in before if before[name] != after[name]} == {"audit", "meta"}
    assert len(after["audit"]) == len(before["audit"]) + 1, "however often it was cut off"
    assert sum(done.rows.values()) >= copied[-1]
    house.serve(target)


def test_what_was_copied_is_closed_and_comes_back_with_what_was_added_since(
    house: House, databases: Callable[[], StorePlace]
) -> None:
    database = databases()
    house.fill(FILE)
    house.copy(FILE, database)
    with pytest.raises(StoreMoved, match=r"moved to file:/database-1 on 2027"):
        house.serve(FILE)
    with pytest.raises(StoreMoved, match="moved to"):
        house.copy(FILE, databases())

    def number(db: StoreDb) -> int:
        db.changed("user", "usr_9")
        row = db.fetch_one("SELECT max(seq) AS seq FROM changes")
        assert row is not None
        return row["seq"]

    assert house.serve(database, number) == 5, "the fourth was given, and is gone"
    with house.ends(database, FILE) as ends:
        assert ends.aside is not None
        assert ends.aside.exists()
    done = house.copy(database, FILE)
    assert done.chains.is_sound
    assert done.rows["changes"] == 4
    assert house.serve(FILE, number) == 6
    with pytest.raises(StoreMoved):
        house.serve(database)


def test_a_server_that_ran_since_it_was_cut_off_makes_it_begin_again(
    house: House, filled: tuple[StorePlace, StorePlace]
) -> None:
    source, target = filled
    told: list[str] = []

    def cut(step: CopyStep) -> None:
        if step.done > 20:
            raise Cut

    with pytest.raises(Cut):
        house.copy(source, target, told=cut)
    house.serve(source, lambda db: db.execute("DELETE FROM users WHERE id = 'nobody'"))
    house.serve(source, lambda db: db.execute("INSERT INTO meta (key, value) VALUES ('since', '')"))
    done = house.copy(source, target, told=lambda step: told.append(step.doing), copy_id="cpy_2")
    assert told[0] == "again"
    before, after = of_both(house, source, target)
    assert done.rows == {name: len(rows) for name, rows in before.items()}
    assert ("str", "since") in {pair for row in after["meta"] for pair in row}


def test_a_target_with_anything_of_another_in_it_stays_as_it_is(
    house: House, databases: Callable[[], StorePlace], postgres_server: PostgresServer
) -> None:
    house.fill(FILE)
    database = databases()
    assert database.parameters is not None
    name = database.parameters["dbname"]
    postgres_server.said_in(name, "INSERT INTO tool_uses (server, tool, called_at) VALUES ('a', 'b', 1)")
    with pytest.raises(CopyRefused, match=r"has rows already \(in tool_uses\)"):
        house.copy(FILE, database)
    with postgres_server.bare_database() as bare:
        postgres_server.said_in(bare["dbname"], "CREATE TABLE things (a int)")
        with pytest.raises(ForeignDatabase):
            house.copy(FILE, StorePlace(called="file:x", parameters=dict(bare)))
        postgres_server.said_in(bare["dbname"], "INSERT INTO things VALUES (1)")
        with pytest.raises(CopyRefused, match="in things"):
            house.copy(FILE, StorePlace(called="file:x", parameters=dict(bare)))
    other = databases()
    house.fill(other)
    with pytest.raises(CopyRefused, match="has rows already"):
        house.copy(other, FILE)
    with pytest.raises(CopyRefused, match="is where the rows are"):
        house.copy(other, other)
    house.serve(FILE)


def test_where_an_older_version_began_it_begins_anew(
    house: House, databases: Callable[[], StorePlace], postgres_server: PostgresServer
) -> None:
    house.fill(FILE)
    with postgres_server.bare_database() as bare:
        place = StorePlace(called="file:x", parameters=dict(bare))

        def cut(step: CopyStep) -> None:
            if step.done > 20:
                raise Cut

        with pytest.raises(Cut):
            house.copy(FILE, place, told=cut)
        with house.ends(FILE, place) as ends:
            found = ends.target.reading(move_marks.here)
            assert found is not None
            ends.target.writing(lambda db: move_marks.put(db, replace(found, schema=len(MIGRATIONS) + 1)))
        with pytest.raises(NewerSchema):
            house.copy(FILE, place)
        postgres_server.said_in(
            bare["dbname"], "DROP TABLE tool_uses; DELETE FROM schema_version WHERE version = 12"
        )
        older = move_marks.CopiedHere(copy="old", source="x", key=FINGERPRINT, schema=11, begun=0)
        text = msgspec.json.encode(older).decode()
        postgres_server.said_in(
            bare["dbname"], f"UPDATE meta SET value = '{text}' WHERE key = '{move_marks.HERE}'"
        )
        told: list[str] = []
        done = house.copy(FILE, place, told=lambda step: told.append(step.doing))
        assert "again" not in told, "it is told of as a new one"
        assert done.rows["tool_uses"] == 3
        house.serve(place)


def test_a_copy_of_another_store_is_left_alone(house: House, databases: Callable[[], StorePlace]) -> None:
    house.fill(FILE)
    database = databases()
    other = move_marks.CopiedHere(
        copy="x", source="file:/elsewhere", key="another:key", schema=len(MIGRATIONS), begun=0
    )

    def put(db: StoreDb) -> None:
        move_marks.put(db, other)

    house.write(database, put)
    with pytest.raises(CopyRefused, match="copy of another store"):
        house.copy(FILE, database)


def test_what_was_out_of_order_before_is_copied_as_it_is_and_told(
    house: House, databases: Callable[[], StorePlace]
) -> None:
    house.fill(FILE)
    house.write(FILE, lambda db: db.execute("UPDATE audit SET reason = 'nothing' WHERE seq = 2"))
    house.write(FILE, lambda db: db.execute("UPDATE wallets SET balance = balance + 5 WHERE id = 'user:1'"))
    done = house.copy(FILE, databases())
    assert not done.chains.is_sound
    assert done.chains.broken == Break(seq=2, what="altered")
    assert len(done.chains.findings) == 2


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        ("UPDATE api_keys SET name = name || 'x'", "rows of api_keys are not the same"),
        ("DELETE FROM calls WHERE seq = 1", "calls has 3 rows in the source and 2 in the target"),
        ("INSERT INTO tool_uses (server, tool, called_at) VALUES ('a', 'b', 1)", "tool_uses has 3 rows"),
    ],
)
def test_what_somebody_writes_into_the_target_meanwhile_is_noticed(
    house: House, databases: Callable[[], StorePlace], postgres_server: PostgresServer, harm: str, told: str
) -> None:
    house.fill(FILE)
    database = databases()
    assert database.parameters is not None
    name, done = database.parameters["dbname"], [False]

    def meddle(step: CopyStep) -> None:
        if step.doing == "comparing" and not done[0]:
            done[0] = True
            postgres_server.said_in(name, harm)

    with pytest.raises(CopyRefused, match=told):
        house.copy(FILE, database, told=meddle)
    with pytest.raises(CopyRefused, match=told):
        house.copy(FILE, database)
    with pytest.raises(StoreMoved):
        house.serve(database)
    house.serve(FILE)


@pytest.mark.parametrize(
    ("value", "told"),
    [("'a' || char(0) || 'b'", r"U\+0000"), ("x'00ff'", "is no text"), ("17", None)],
)
def test_a_value_that_the_other_database_cannot_have_is_named_by_its_row(
    house: House, databases: Callable[[], StorePlace], value: str, told: str | None
) -> None:
    house.fill(FILE)
    with closing(sqlite3.connect(house.folder / "ostiary.db")) as file, file:
        file.execute(f"UPDATE upstreams SET source = {value} WHERE rowid = 2")
    if told is None:  # SQLite makes a text of it
        house.copy(FILE, databases())
        return
    with pytest.raises(CopyRefused, match=rf"upstreams\.source of server 'server 1.*{told}"):
        house.copy(FILE, databases())
    house.serve(FILE)


def test_no_server_may_run_on_either(house: House, databases: Callable[[], StorePlace]) -> None:
    house.fill(FILE)
    database = databases()
    assert database.parameters is not None
    with open_home(house.folder), pytest.raises(HomeLocked):
        house.copy(FILE, database)
    access = PostgresAccess(parameters=database.parameters, job_seconds=10)
    with closing(PostgresConnection(access, writes=True)), pytest.raises(CannotOpen, match="in use"):
        house.copy(FILE, database)
    house.serve(FILE)


def test_a_store_that_nothing_was_kept_in_is_not_copied(
    house: House, databases: Callable[[], StorePlace]
) -> None:
    with pytest.raises(CopyRefused, match="no database at"):
        house.copy(FILE, databases())
    with pytest.raises(CopyRefused, match="no server has run"):
        house.copy(databases(), FILE)
    assert not (house.folder / "ostiary.db").exists()
