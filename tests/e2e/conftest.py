from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from local_chain import LocalChain, TestDollar
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


# What the tests of payments share: one chain and one facilitator for all of them, started with the first. Each test takes accounts of its own.
@pytest.fixture(scope="session")
def _chain_and_dollar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalChain, TestDollar]]:
    from local_chain import local_chain

    with local_chain(tmp_path_factory.mktemp("chain")) as both:
        yield both


@pytest.fixture(scope="session")
def chain(_chain_and_dollar: tuple[LocalChain, TestDollar]) -> LocalChain:
    return _chain_and_dollar[0]


@pytest.fixture(scope="session")
def dollar(_chain_and_dollar: tuple[LocalChain, TestDollar]) -> TestDollar:
    return _chain_and_dollar[1]


@pytest.fixture(scope="session")
def reference_facilitator(chain: LocalChain, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address."""
    from payers import reference_facilitator

    with reference_facilitator(chain, tmp_path_factory.mktemp("facilitator")) as url:
        yield url
