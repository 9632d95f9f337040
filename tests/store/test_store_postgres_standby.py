"""A primary and its standby, both real: whoever takes writes is used, also after a promotion (server/cluster/postgres/postgres_wire.py)."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing, suppress
from functools import partial

import psycopg
import pytest
import trio
from psycopg.conninfo import make_conninfo
from store_engines import NOW, keys, put

from server.cluster.postgres import postgres_wire
from server.cluster.postgres.postgres import open_postgres_store
from server.cluster.postgres.postgres_connection import PostgresAccess, PostgresConnection
from server.cluster.postgres.postgres_errors import PostgresRefused
from server.cluster.postgres.postgres_transaction import BEGIN_WRITE
from server.store import node_rows
from server.store.change_feed import CONFIRMED_SECONDS
from server.store.jobs import CannotOpen, StoreReadOnly, StoreUnavailable, StoreUnreachable
from server.store.node_rows import MemberNode
from server.store.remote_changes import MAY_BE_REPLACED
from server.store.threaded_store import ThreadedStore
from tests.postgres_server import TEMPLATE, PostgresServer, primary_and_standby

PATIENCE_SECONDS = 60


class Pair:
    def __init__(self, primary: PostgresServer, standby: PostgresServer) -> None:
        self.primary, self.standby = primary, standby

    def parameters(self, *servers: PostgresServer) -> dict[str, str]:
        """Of these, in this order."""
        one = servers[0].parameters(TEMPLATE)
        return {**one, "host": ",".join(str(server.folder) for server in servers)}

    def commits_wait(self, wait: bool) -> None:
        """For the standby."""
        how = "SET synchronous_standby_names = '*'" if wait else "RESET synchronous_standby_names"
        self.primary.said(f"ALTER SYSTEM {how}")
        self.primary.said("SELECT pg_reload_conf()")

    def wait_until_followed(self) -> None:
        """Until the standby has all that the primary has."""
        with closing(
            psycopg.connect(make_conninfo("", **self.parameters(self.primary)), autocommit=True)
        ) as asking:
            row = asking.execute("SELECT pg_current_wal_lsn()::text").fetchone()
            assert row is not None
            behind = "SELECT 1 FROM pg_stat_replication WHERE replay_lsn >= %s::pg_lsn"
            while asking.execute(behind, row).fetchone() is None:
                pass


@pytest.fixture
def pair() -> Generator[Pair]:
    with primary_and_standby() as servers:
        yield Pair(*servers)


async def put_at_last(store: ThreadedStore, key: str) -> None:
    """The pause between two tries is by the real clock."""
    with trio.fail_after(PATIENCE_SECONDS):
        while True:
            try:
                await store.write(partial(put, key=key))
            except StoreUnavailable:
                await trio.sleep(0.05)
            else:
                return


async def test_the_host_that_takes_writes_is_used_wherever_it_stands_and_its_heir_after_a_promotion(
    pair: Pair,
) -> None:
    parameters = pair.parameters(pair.standby, pair.primary)
    # Whatever else the address asks for.
    async with open_postgres_store(
        {**parameters, "target_session_attrs": "prefer-standby"}, clock=lambda: NOW
    ) as store:
        await store.write(partial(put, key="before"))
        assert await store.read(keys) == ["before"]
        assert await store.read(lambda db: db.fetch_one("SELECT pg_is_in_recovery() AS standby")) == {
            "standby": False
        }
        pair.wait_until_followed()
        pair.primary.stop(how="immediate")
        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                await store.write(partial(put, key="between"))
            with pytest.raises(StoreUnavailable):
                await store.read(keys)
        assert set(store.report().refused) <= {"unreachable", "read_only"}
        pair.standby.promote()
        await put_at_last(store, "after")
        assert await store.read(keys) == ["after", "before"]


async def test_a_standby_alone_is_refused_with_words(pair: Pair) -> None:
    with pytest.raises(CannotOpen, match="read-only"):
        async with open_postgres_store(pair.parameters(pair.standby), clock=lambda: NOW):
            pass


def test_a_connection_to_what_has_become_a_standby_is_left(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = PostgresAccess(parameters=pair.parameters(pair.standby, pair.primary), job_seconds=10)
    with monkeypatch.context() as anyhow:
        anyhow.setattr(postgres_wire, "_ALWAYS", {})
        connection = PostgresConnection(access, writes=True)
        with closing(connection):
            connection.execute(BEGIN_WRITE)
            with pytest.raises(PostgresRefused) as caught:
                connection.execute("SELECT 1")
            assert caught.value.kind is StoreReadOnly
            assert "standby" in str(caught.value)
            anyhow.undo()
            connection.execute(BEGIN_WRITE)
            connection.execute("INSERT INTO meta (key, value) VALUES ('k', 'x')")
            connection.execute("COMMIT")


NODE = MemberNode(boot_id="b1", name="one:1", home="h1", address="", version="1", started_at=NOW)


async def keep_saying_that_it_lives(store: ThreadedStore) -> None:
    while True:
        with suppress(StoreUnavailable):
            await store.write(partial(node_rows.beat, node=NODE))
        await trio.sleep(0.1)


async def test_a_primary_whose_standby_has_taken_its_place_is_believed_for_five_seconds(pair: Pair) -> None:
    """It answers, and takes writes that nothing comes of: what was ended at its heir it does not know."""
    pair.commits_wait(True)
    said: list[bool] = []
    async with (
        open_postgres_store(pair.parameters(pair.primary), clock=lambda: NOW) as store,
        trio.open_nursery() as nursery,
    ):
        store.on_trust(said.append)
        nursery.start_soon(keep_saying_that_it_lives, store)
        await store.write(partial(put, key="before"))
        started = trio.current_time()
        while trio.current_time() < started + 2 * CONFIRMED_SECONDS:  # as long as somebody commits
            assert await store.read(keys) == ["before"]
            await trio.sleep(0.1)
        assert (said, store.report().problem) == ([], "")
        pair.standby.promote()
        with trio.fail_after(PATIENCE_SECONDS):
            while not said:
                assert await store.read(keys) == ["before"]
                await trio.sleep(0.05)
        assert said == [False]
        assert (store.report().problem, store.report().is_unconfirmed) == (MAY_BE_REPLACED, True)
        for _ in range(10):
            with pytest.raises(StoreUnreachable, match=MAY_BE_REPLACED):
                await store.read(keys)
        # Whoever runs it says that it goes on without one.
        pair.commits_wait(False)
        with trio.fail_after(PATIENCE_SECONDS):
            while len(said) < 2:
                await trio.sleep(0.05)
        assert said == [False, True]
        assert await store.read(keys) == ["before"]
        nursery.cancel_scope.cancel()


def all_keys(server: PostgresServer) -> list[str]:
    with closing(psycopg.connect(make_conninfo("", **server.parameters(TEMPLATE)))) as asking:
        return [key for (key,) in asking.execute("SELECT key FROM meta ORDER BY key").fetchall()]


def end(asking: psycopg.Connection[tuple[object, ...]], role: str) -> None:
    """The connections of that kind, as if they were lost."""
    asking.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE %s", (role,)
    )


async def test_what_one_connection_finds_at_the_heir_all_of_them_ask_there_and_none_goes_back(
    pair: Pair,
) -> None:
    """Nobody has stopped the old primary, and the address names it first."""
    door = pair.primary.folder / ".s.PGSQL.5432"
    async with open_postgres_store(pair.parameters(pair.primary, pair.standby), clock=lambda: NOW) as store:
        await store.write(partial(put, key="before"))
        assert await store.read(keys) == ["before"]
        pair.wait_until_followed()
        pair.standby.promote()
        with closing(
            psycopg.connect(make_conninfo("", **pair.parameters(pair.primary)), autocommit=True)
        ) as asking:
            door.rename(door.with_suffix(".away"))
            # Which finds the heir, while the others could go on where they are.
            end(asking, "ostiary listener")
        with trio.fail_after(PATIENCE_SECONDS):
            while not await at_heir(store):
                await trio.sleep(0.05)
        await put_at_last(store, "after")
        assert [all_keys(pair.standby), await store.read(keys)] == [["after", "before"]] * 2
        # The old one lets in again, and everything is lost at the new one.
        door.with_suffix(".away").rename(door)
        with closing(
            psycopg.connect(make_conninfo("", **pair.parameters(pair.standby)), autocommit=True)
        ) as asking:
            end(asking, "ostiary %")
        await put_at_last(store, "again")
        with trio.fail_after(PATIENCE_SECONDS):
            while not await at_heir(store):
                await trio.sleep(0.05)
        assert await store.read(keys) == all_keys(pair.standby) == ["after", "again", "before"]
        assert all_keys(pair.primary) == ["before"]
        # And where there is only the old one, nobody is asked.
        pair.standby.stop(how="immediate")
        with trio.fail_after(PATIENCE_SECONDS):
            while "old primary" not in await why_not_read(store):
                await trio.sleep(0.05)


async def why_not_read(store: ThreadedStore) -> str:
    with pytest.raises(StoreUnavailable) as caught:
        await store.read(keys)
    return str(caught.value)


async def at_heir(store: ThreadedStore) -> bool:
    try:
        found = await store.read(
            lambda db: db.fetch_one("SELECT substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) AS line")
        )
    except StoreUnavailable:
        return False
    return found == {"line": "00000002"}
