from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import httpcore2
import pytest
from programs import SOURCE, House, Program

if TYPE_CHECKING:
    from collections.abc import Callable

    from counter import Counter, Houses
    from local_chain import LocalChain, TestDollar
    from playwright.sync_api import Browser


@pytest.fixture(scope="session", autouse=True)
def _certificates_read_once() -> Iterator[None]:
    """Those that a test's own client trusts, which it reads whenever it is made: that takes longer than most requests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpcore2, "default_ssl_context", functools.cache(httpcore2.default_ssl_context))
        yield


@pytest.fixture
def home() -> Iterator[Path]:
    """A short path: names of Unix sockets are limited, and pytest's own directories are deep."""
    with tempfile.TemporaryDirectory(prefix="ostiary-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def shared_home() -> Iterator[Path]:
    """A short path for what the tests of a file share."""
    with tempfile.TemporaryDirectory(prefix="ostiary-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture
def program(home: Path) -> Program:
    """The source, in the test's own home. A file that puts something there first takes this in a fixture of the same name."""
    return Program(command=SOURCE, home=home)


@pytest.fixture(scope="module")
def house(shared_home: Path) -> Iterator[House]:
    """The demo agent, served to all tests of a file: each takes names, keys and accounts of its own."""
    program = Program(command=SOURCE, home=shared_home)
    with program.serving() as server:
        yield House(program=program, server=server)


@pytest.fixture(scope="module")
def _launch() -> Iterator[Callable[[str], Browser]]:
    from tests.e2e.chromium import launching  # most tests here do without, and some machines have none

    with launching() as launch:
        yield launch


@pytest.fixture(scope="module")
def chromium(_launch: Callable[[str], Browser]) -> Browser:
    from tests.e2e.chromium import CHROMIUM

    return _launch(CHROMIUM)


@pytest.fixture(scope="module")
def chromium_shell(_launch: Callable[[str], Browser]) -> Browser:
    from tests.e2e.chromium import SHELL

    return _launch(SHELL)


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


@pytest.fixture(scope="session")
def _shared_counter(chain: LocalChain, reference_facilitator: str) -> Iterator[Counter]:
    from counter import open_counter
    from paid_house import paid_house

    with (
        tempfile.TemporaryDirectory(prefix="ostiary-", ignore_cleanup_errors=True) as folder,
        paid_house(Path(folder), chain, reference_facilitator) as house,
        open_counter(house) as counter,
    ):
        yield counter


@pytest.fixture
def counter(_shared_counter: Counter) -> Iterator[Counter]:
    """One for all tests that leave it running; nothing of one test's faults is left for the next."""
    yield _shared_counter
    _shared_counter.buying.heal()
    _shared_counter.house.settling.heal()


@pytest.fixture
def houses(chain: LocalChain, reference_facilitator: str, home: Path) -> Iterator[Houses]:
    """Makes a house of the test's own, which it opens, and may kill."""
    from paid_house import paid_house

    with ExitStack() as stack:
        yield lambda **settings: stack.enter_context(
            paid_house(home, chain, reference_facilitator, **settings)
        )
