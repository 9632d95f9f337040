"""A fresh store for each test: one suite runs on every engine."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import closing
from pathlib import Path

import pytest
from store_engines import ENGINES, NOW, AnyStore, Open, opener

from server.store.backup import back_up
from server.store.migrate import migrate, packaged_migrations
from server.store.sqlite_connect import connect_writer


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "backups").mkdir(mode=0o700)
    return tmp_path


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def open_any(request: pytest.FixtureRequest, engine: str, directory: Path) -> Open:
    return opener(engine, directory, lambda: request.getfixturevalue("postgres_database"))


@pytest.fixture
async def store(open_any: Open) -> AsyncGenerator[AnyStore]:
    async with open_any() as opened:
        yield opened


@pytest.fixture
def database(directory: Path) -> Path:
    """Brought to this version's schema, with nothing in it."""
    path = directory / "ostiary.db"
    with closing(connect_writer(path)) as connection:
        migrate(connection, packaged_migrations(), now=NOW, backups=directory / "backups")
    return path


@pytest.fixture
def copy(database: Path, directory: Path) -> Path:
    """A back-up of the database."""
    target = directory / "copy.db"
    back_up(database, target)
    return target
