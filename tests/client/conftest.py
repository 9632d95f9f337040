from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
from bridge_pair import Host, StreamingServer, bridged, streaming
from connecting import Connect
from fake_server import FakeServer, serving
from test_access_token import NOW, stored

from server.client.access_token import Access
from server.client.http_exchange import open_client
from server.client.opened_clients import client_over_http
from server.client.token_file import TokenFile
from server.lib.http_client.http_client import HttpClient


@pytest.fixture
async def fake() -> AsyncIterator[FakeServer]:
    async with serving(FakeServer()) as server:
        yield server


@pytest.fixture
async def client(fake: FakeServer) -> AsyncIterator[HttpClient]:
    async with open_client() as opened:
        yield opened


@pytest.fixture
def file(tmp_path: Path) -> TokenFile:
    return TokenFile(tmp_path / "ostiary")


@pytest.fixture
async def in_time() -> AsyncIterator[None]:
    """Fail a test that waits for something that never comes."""
    with trio.fail_after(60):
        yield


@pytest.fixture
def foreign(fake: FakeServer) -> FakeServer:
    fake.browser_only()
    return fake


@pytest.fixture
async def server() -> AsyncIterator[StreamingServer]:
    async with streaming(StreamingServer()) as opened:
        yield opened


@pytest.fixture
async def host(server: StreamingServer, file: TokenFile) -> AsyncIterator[Host]:
    async with bridged(server.url, file) as opened:
        yield opened


@pytest.fixture
async def connect(fake: FakeServer, file: TokenFile, client: HttpClient, nursery: trio.Nursery) -> Connect:
    stored(fake, file, expired=False)
    access = Access(file, fake.url, client=client, now=lambda: NOW)
    return Connect(lambda modes: client_over_http(client, fake.url, access, modes=modes), nursery)
