from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
from fake_server import FakeServer, serving

from server.client.tokens import TokenFile
from server.client.wire import open_client


@pytest.fixture
async def fake() -> AsyncIterator[FakeServer]:
    async with serving(FakeServer()) as server:
        yield server


@pytest.fixture
async def client(fake: FakeServer) -> AsyncIterator[httpx2.AsyncClient]:
    async with open_client(fake.url) as opened:
        yield opened


@pytest.fixture
def file(tmp_path: Path) -> TokenFile:
    return TokenFile(tmp_path / "ostiary")
