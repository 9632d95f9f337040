from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.payments.seller.books_fakes import ENGINES, AnyStore, open_books


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """A file that needs no more than one engine overrides it."""
    return request.param


@pytest.fixture
async def store(request: pytest.FixtureRequest, engine: str, tmp_path: Path) -> AsyncGenerator[AnyStore]:
    """Open a store with the keys of its books, and with what `furnish` of the test's file books."""
    async with open_books(engine, tmp_path, lambda: request.getfixturevalue("postgres_database")) as opened:
        if (furnish := getattr(request.module, "furnish", None)) is not None:
            await opened.write(furnish)
        yield opened
