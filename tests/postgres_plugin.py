"""PostgreSQL for the tests that ask for it, and, with `--store postgres`, in place of every database that a test opens."""

from __future__ import annotations

import sqlite3
import traceback
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from server.cluster.postgres.postgres_connection import POSTGRES
from server.store import inline_store, sqlite
from server.store.inline_store import InlineStore
from server.store.migrate import Migration
from server.store.threaded_store import StoreLimits
from server.store.transactions import JOB_SECONDS
from tests.engine_under_test import UNDER_TEST, migrate_by_copy
from tests.inline_postgres import open_inline_postgres_store
from tests.postgres_server import TEMPLATE, Loans, PostgresServer, programs

_KEPT = pytest.StashKey[PostgresServer]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--store",
        choices=("sqlite", "postgres"),
        default="sqlite",
        help="what the tests run on that do not say it themselves",
    )


def running(config: pytest.Config) -> PostgresServer:
    """Started for whoever asks first, for all of a run."""
    if _KEPT not in config.stash:
        found = programs()
        if found is None:
            pytest.fail("PostgreSQL is not installed: scripts/peers system", pytrace=False)
        server = PostgresServer(found)
        config.add_cleanup(server.remove)
        try:
            server.make()
        except RuntimeError as error:  # for each test that needs it, one after the other
            pytest.exit(f"PostgreSQL cannot start in {server.folder}: {_last_line(error)}", returncode=1)
        config.stash[_KEPT] = server
    return config.stash[_KEPT]


def _last_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it does not say why"


@pytest.fixture(scope="session")
def postgres_server(pytestconfig: pytest.Config) -> PostgresServer:
    return running(pytestconfig)


@pytest.fixture
def postgres_database(postgres_server: PostgresServer) -> Generator[dict[str, str]]:
    """Brought to this version's schema, with nothing in it: what libpq needs for it."""
    with postgres_server.database() as parameters:
        yield dict(parameters)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start PostgreSQL before the first test, where one is to run on it: from within one on Trio no run is ended."""
    config = session.config
    if config.option.collectonly or programs() is None:
        return
    if any(config.option.store == "postgres" or _needs_postgres(item) for item in session.items):
        running(config)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Before anybody has taken hold of what is replaced here."""
    if early_config.known_args_namespace.store != "postgres":
        # A process of the product opens one store, and a run of the tests thousands.
        inline_store.migrate = sqlite.migrate = migrate_by_copy
        return
    run = RunOnPostgres(early_config)
    early_config.pluginmanager.register(run)
    UNDER_TEST.loans = run.loans
    inline_store.open_inline_store = _opened_on(run.loans)
    sqlite3.connect = run.noticing(sqlite3.connect)


class RunOnPostgres:
    """What is different with `--store postgres`."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._loans: Loans | None = None
        self._opened_sqlite = ""  # where

    def loans(self) -> Loans:
        if self._loans is None:
            self._loans = Loans(running(self._config))
        return self._loans

    def noticing(self, connect: Callable[..., sqlite3.Connection]) -> Callable[..., sqlite3.Connection]:
        def noticed(*args: Any, **more: Any) -> sqlite3.Connection:
            self._opened_sqlite = "".join(traceback.format_stack(limit=8)[:-1])
            return connect(*args, **more)

        return noticed

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """What says itself on which engines it runs has run on PostgreSQL without being asked."""
        apart = {item for item in items if _names_its_engine(item) or _is_sqlite_only(item)}
        config.hook.pytest_deselected(items=[item for item in items if item in apart])
        items[:] = [item for item in items if item not in apart]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None]:
        """Whatever came of the test: of an engine that it did not run on it says nothing."""
        yield
        self._refuse_sqlite()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self) -> Generator[None]:
        try:
            yield
        finally:
            if self._loans is not None:
                self._loans.end()
            self._refuse_sqlite()

    def _refuse_sqlite(self) -> None:
        where, self._opened_sqlite = self._opened_sqlite, ""
        if where:
            pytest.fail(
                f"SQLite was opened, in a run on PostgreSQL (marker: sqlite_only):\n{where}", pytrace=False
            )


def _is_sqlite_only(item: pytest.Item) -> bool:
    marker = item.get_closest_marker("sqlite_only")
    if marker is not None and not (len(marker.args) == 1 and marker.args[0]):
        raise pytest.UsageError(f"{item.nodeid}: sqlite_only takes its reason")
    return marker is not None


def _names_its_engine(item: pytest.Item) -> bool:
    from tests.store.store_engines import ENGINES

    return not set(ENGINES).isdisjoint(_words_given_to(item))


def _needs_postgres(item: pytest.Item) -> bool:
    from tests.store.store_engines import POSTGRES_ENGINES

    return "postgres_server" in getattr(item, "fixturenames", ()) or not set(POSTGRES_ENGINES).isdisjoint(
        _words_given_to(item)
    )


def _words_given_to(item: pytest.Item) -> list[str]:
    spec = getattr(item, "callspec", None)
    return [] if spec is None else [value for value in spec.params.values() if isinstance(value, str)]


def _opened_on(loans: Callable[[], Loans]) -> Callable[..., AbstractAsyncContextManager[InlineStore]]:
    """`open_inline_store`, on a database of PostgreSQL; where it is one of nobody else's and of no other version, on a connection that is there."""

    @asynccontextmanager
    async def open_inline_store(
        path: Path | None = None,
        *,
        clock: Callable[[], int],
        backups: Path | None = None,
        migrations: Sequence[Migration] | None = None,
        job_seconds: float = JOB_SECONDS,
    ) -> AsyncGenerator[InlineStore]:
        del backups  # a database server has its own
        if path is None and migrations is None and job_seconds == JOB_SECONDS:
            writer = loans().writer(TEMPLATE)
            store = InlineStore(writer, clock=clock, job_seconds=job_seconds, engine=POSTGRES)
            try:
                yield store
            finally:
                store.close()
                loans().give_back(writer)
            return
        parameters = loans().database() if path is None else loans().in_place_of(path)
        limits = StoreLimits(job_seconds=job_seconds)
        async with open_inline_postgres_store(
            parameters, clock=clock, migrations=migrations, limits=limits
        ) as store:
            yield store

    return open_inline_store
