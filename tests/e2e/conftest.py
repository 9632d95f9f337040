from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture
def home() -> Iterator[Path]:
    """A short path: names of Unix sockets are limited, and pytest's own directories are deep."""
    with tempfile.TemporaryDirectory(prefix="ostiary-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    from tests.e2e.chromium import launched  # most tests here do without, and some machines have none

    with launched() as browser:
        yield browser
