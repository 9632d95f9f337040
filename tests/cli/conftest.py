from __future__ import annotations

import json
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from made_up import MadeUpMachine
from shell import Terminal

from server.admin import control_socket
from server.admin.process_descent import SocketPeer
from server.client.token_file import StoredLogin, TokenFile
from server.lib.secret import Secret
from tests.client.fake_server import FakeServer, serving


@pytest.fixture
def shell(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path)


@pytest.fixture
def made_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> MadeUpMachine:
    return MadeUpMachine(tmp_path, monkeypatch, capsys)


@pytest.fixture(autouse=True)
def not_started_by_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers of these tests run in this process, which starts the commands as well: to such a server they would be programs of its own."""
    monkeypatch.setattr(control_socket, "peer_of", lambda _: SocketPeer(uid=os.getuid()))


@pytest.fixture
async def fake() -> AsyncIterator[FakeServer]:
    async with serving(FakeServer()) as server:
        yield server


@pytest.fixture
async def logged_in(shell: Terminal, fake: FakeServer) -> Terminal:
    """A shell from which somebody logged in a moment ago: what `ostiary login` leaves behind, without the wait."""
    tokens = json.loads(fake.issue().body)
    now = time.time_ns() // 1_000_000
    TokenFile(shell.config).put(
        StoredLogin(
            url=fake.url,
            resource=fake.url,
            issuer=fake.origin,
            token_endpoint=f"{fake.origin}/token",
            revocation_endpoint=f"{fake.origin}/revoke",
            client_id="ostiary-cli",
            access_token=Secret(tokens["access_token"]),
            refresh_token=Secret(tokens["refresh_token"]),
            scope="mcp",
            obtained_at=now,
            expires_at=now + 3_600_000,
        )
    )
    return shell
