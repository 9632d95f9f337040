from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from shell import Terminal

from tests.client.fake_server import FakeServer, serving


@pytest.fixture
def shell(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path)


@pytest.fixture
async def fake() -> AsyncIterator[FakeServer]:
    async with serving(FakeServer()) as server:
        yield server


@pytest.fixture
async def logged_in(shell: Terminal, fake: FakeServer) -> Terminal:
    """A shell from which somebody logged in a moment ago."""
    done = await shell.run("login", fake.url)
    assert done.code == 0, done.stderr
    fake.seen.clear()
    return shell
