"""PostgreSQL for the tests that ask for it, and, with `--store postgres`, in place of every database in memory."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from server.store import inline
from server.store.inline import InlineStore
from tests.postgres_server import PostgresServer, programs

_KEPT = pytest.StashKey[PostgresServer]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--store",
        choices=("sqlite", "postgres"),
        default="sqlite",
        help="what stands in for a database in memory",
    )


def running(config: pytest.Config) -> PostgresServer:
    """Started for whoever asks first, for all of a run."""
    if _KEPT not in config.stash:
        found = programs()
        if found is None:
            pytest.fail("PostgreSQL is not installed: scripts/peers system")
        server = PostgresServer(found)
        config.add_cleanup(server.remove)
        server.make()
        config.stash[_KEPT] = server
    return config.stash[_KEPT]


@pytest.fixture(scope="session")
def postgres_server(pytestconfig: pytest.Config) -> PostgresServer:
    return running(pytestconfig)


@pytest.fixture
def postgres_database(postgres_server: PostgresServer) -> Generator[dict[str, str]]:
    """Brought to this version's schema, with nothing in it: what libpq needs for it."""
    with postgres_server.database() as parameters:
        yield dict(parameters)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What says itself on which engines it runs has run on PostgreSQL without being asked."""
    if config.getoption("--store") != "postgres":
        return
    from tests.store.store_engines import ENGINES

    def names_its_engine(item: pytest.Item) -> bool:
        spec = getattr(item, "callspec", None)
        return spec is not None and any(
            value in ENGINES for value in spec.params.values() if isinstance(value, str)
        )

    config.hook.pytest_deselected(items=[item for item in items if names_its_engine(item)])
    items[:] = [item for item in items if not names_its_engine(item)]


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--store") != "postgres":
        return
    from server.store.postgres import open_inline_postgres_store

    in_file = inline.open_inline_store

    @asynccontextmanager
    async def open_inline_store(
        path: Path | None = None, *, clock: Callable[[], int], **other: Any
    ) -> AsyncGenerator[InlineStore]:
        if path is not None or other:
            async with in_file(path, clock=clock, **other) as store:
                yield store
        else:
            with running(config).database() as parameters:
                async with open_inline_postgres_store(parameters, clock=clock) as store:
                    yield store

    inline.open_inline_store = open_inline_store
