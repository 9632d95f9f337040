"""What a connection to PostgreSQL is set to, which servers are not good for it, and a schema that takes long to bring up
(server/cluster/postgres/postgres_session.py, postgres_schema.py)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from contextlib import closing
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from store_engines import NOW, put

from server.cluster.postgres import postgres_connection, postgres_session
from server.cluster.postgres.postgres import open_postgres_store
from server.cluster.postgres.postgres_connection import PostgresAccess, PostgresConnection
from server.cluster.postgres.postgres_schema import bring_up
from server.cluster.postgres.postgres_wire import without
from server.store.jobs import CannotOpen, StoreDb
from server.store.migrate import Migration, packaged_migrations
from server.store.store_engine import CommitInDoubt
from server.store.threaded_store import StoreLimits
from tests.postgres_pooler import pooler
from tests.postgres_server import PostgresServer, server_of_its_own


def opened(parameters: Mapping[str, str], **other: Any):  # noqa: ANN201  the context manager's type is long and says nothing
    return open_postgres_store(dict(parameters), clock=lambda: NOW, **other)


def setting(db: StoreDb, name: str) -> str:
    row = db.fetch_one("SELECT current_setting(?) AS value", name)
    assert row is not None
    return row["value"]


async def test_a_setting_that_is_not_taken_is_no_connection(postgres_database: dict[str, str]) -> None:
    with pytest.raises(CannotOpen, match="statement_timeout"):
        async with opened(postgres_database, limits=StoreLimits(job_seconds=3e6)):
            pass


async def test_what_is_only_welcome_may_be_refused_and_the_rest_is_set(
    postgres_database: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wished = {"no_such_setting": "1", "client_connection_check_interval": "4000"}
    monkeypatch.setattr(postgres_session, "_WELCOME", wished)
    async with opened(postgres_database, limits=StoreLimits(job_seconds=7)) as store:
        for name, value in (
            ("client_connection_check_interval", "4s"),
            ("statement_timeout", "7s"),
            ("lock_timeout", "5s"),
            ("default_transaction_read_only", "on"),
            ("client_encoding", "UTF8"),
        ):
            assert await store.read(partial(setting, name=name)) == value
        assert await store.write(partial(setting, name="default_transaction_read_only")) == "off"


async def test_letters_are_those_of_the_database_whatever_the_address_asks_for(
    postgres_database: dict[str, str],
) -> None:
    key = "ключ ñ"
    async with opened({**postgres_database, "client_encoding": "LATIN1"}) as store:
        await store.write(partial(put, key=key))
    async with opened(postgres_database) as store:
        assert await store.read(lambda db: db.fetch_one("SELECT key FROM meta")) == {"key": key}


async def test_a_server_that_does_not_wait_for_its_disk_is_warned_of() -> None:
    for durable in (False, True):
        with server_of_its_own(durable=durable) as server:
            async with opened(server.parameters("ostiary_template")) as store:
                warning = store.report().warning
                assert warning == "" if durable else "fsync = off" in warning


async def test_who_shares_connections_out_among_clients_is_refused(
    tmp_path_factory: pytest.TempPathFactory,
    postgres_server: PostgresServer,
    postgres_database: dict[str, str],
) -> None:
    folder = tmp_path_factory.mktemp("p")
    with pooler(folder, postgres_server), pytest.raises(CannotOpen, match="shares its connections") as caught:
        async with opened({**postgres_database, "host": str(folder)}):
            pass
    assert "not a pooler" in str(caught.value.hint)


async def test_schemas_of_one_database_are_as_different_databases_whatever_their_names(
    postgres_server: PostgresServer,
) -> None:
    with postgres_server.bare_database() as parameters:
        for name in ("a", '"My-S"'):
            postgres_server.said_in(parameters["dbname"], f"CREATE SCHEMA {name}")
        a, b = ({**parameters, "options": f"-csearch_path={name}"} for name in ("a", '"My-S"'))
        access = PostgresAccess(parameters=a, job_seconds=10)
        with closing(PostgresConnection(access, writes=True)) as first:
            bring_up(first, packaged_migrations(), now=NOW)
            assert first.alone_with_schema(lambda: False)  # as while its schema is changed
            async with opened(b) as store:
                await store.write(partial(put, key="k"))
            first.together_with_schema()
        async with opened(a) as store:
            assert await store.read(lambda db: db.fetch_all("SELECT key FROM meta")) == []


def test_who_changes_the_schema_is_waited_for_and_is_not_taken_for_one_who_uses_the_old_one(
    postgres_database: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_connection, "_SCHEMA_SECONDS", 0)
    looks = itertools.count(1)
    access = PostgresAccess(parameters=postgres_database, job_seconds=10)
    with (
        closing(PostgresConnection(access, writes=True)) as first,
        closing(PostgresConnection(access, writes=True)) as second,
    ):
        second.script(postgres_connection.NOT_TOGETHER.decode())
        assert first.alone_with_schema(lambda: False)

        def is_done() -> bool:
            if next(looks) < 4:
                return False
            first.together_with_schema()
            return True

        assert not second.alone_with_schema(is_done)
        with pytest.raises(CannotOpen):
            second.alone_with_schema(lambda: False)


async def test_a_schema_that_is_not_there_is_to_be_made_first(postgres_database: dict[str, str]) -> None:
    with pytest.raises(CannotOpen, match="no schema") as caught:
        async with opened({**postgres_database, "options": "-csearch_path=missing"}):
            pass
    assert "CREATE SCHEMA" in str(caught.value.hint)


async def test_a_migration_takes_as_long_as_it_takes(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_connection, "GRACE_SECONDS", 0)
    known = packaged_migrations()
    long = "INSERT INTO meta (key, value) SELECT 'long', pg_sleep(3)::text;"
    migrations = (*known, Migration(version=len(known) + 1, name="long", sql=long))
    with postgres_server.bare_database() as parameters:
        async with opened(parameters, migrations=migrations, limits=StoreLimits(job_seconds=2)) as store:
            assert await store.read(partial(setting, name="statement_timeout")) == "2s"
            assert await store.write(partial(setting, name="statement_timeout")) == "2s"


def test_a_migration_of_which_nobody_was_told_how_it_ended_stops_the_start_and_the_next_one_goes_on(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def commit_unheard(self: PostgresConnection, *how: str) -> None:
        del how
        self._plain("COMMIT")
        self._connection.close()
        raise CommitInDoubt

    with postgres_server.bare_database() as parameters:
        access = PostgresAccess(parameters=parameters, job_seconds=10)
        with monkeypatch.context() as cut:
            cut.setattr(PostgresConnection, "_commit", commit_unheard)
            with (
                closing(PostgresConnection(access, writes=True)) as connection,
                pytest.raises(CannotOpen, match="migration 0001 was being committed"),
            ):
                bring_up(connection, packaged_migrations(), now=NOW)
        with closing(PostgresConnection(access, writes=True)) as connection:
            bring_up(connection, packaged_migrations(), now=NOW)


class Led:
    """A connection, as far as it says where it leads."""

    def __init__(self, host: str, hostaddr: str, port: str) -> None:
        self.pgconn = SimpleNamespace(host=host.encode(), hostaddr=hostaddr.encode(), port=port.encode())


@pytest.mark.parametrize(
    ("parameters", "led", "others"),
    [
        ({"host": "db"}, ("db", "10.0.0.1", "5432"), None),
        ({"host": "a,b", "port": "5432"}, ("a", "10.0.0.1", "5432"), {"host": "b", "port": "5432"}),
        ({"host": "a,b", "port": "1,2"}, ("b", "10.0.0.2", "2"), {"host": "a", "port": "1"}),
        ({"host": "a,a,b", "port": "1,,3"}, ("a", "10.0.0.1", "5432"), {"host": "a,b", "port": "1,3"}),
        ({"host": "/one,/two"}, ("/two", "", "5432"), {"host": "/one"}),
        (
            {"host": "db,db", "hostaddr": "10.0.0.1,10.0.0.2"},
            ("db", "10.0.0.1", "5432"),
            {"host": "db", "hostaddr": "10.0.0.2"},
        ),
        ({"host": "localhost,localhost", "port": "5,6"}, ("localhost", "::1", "5"), {"host": "localhost", "port": "6"}),
    ],
)  # fmt: skip
def test_the_other_hosts_of_an_address_are_all_but_the_one_that_was_reached(
    parameters: dict[str, str], led: tuple[str, str, str], others: dict[str, str] | None
) -> None:
    assert without(parameters, Led(*led)) == others  # type: ignore[arg-type]
