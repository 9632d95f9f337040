"""A fresh store for each test: one suite runs on every engine."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from store_engines import ENGINES, AnyStore, Open, opener


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
