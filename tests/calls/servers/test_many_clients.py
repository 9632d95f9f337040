"""As many as may be connected may listen: the settings say how many that is (server/calls/servers/server_opening.py)."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import structlog
import trio

from server.agents.base.demo_agent import DemoConfig
from server.calls.servers import server_opening
from server.calls.servers.endpoint import Endpoint
from server.calls.servers.server_opening import now_millis, open_servers
from server.mcp.errors import TooManySubscriptions
from server.settings.setting_shapes import ServerConfig
from server.store.inline_store import open_inline_store
from server.store.keyfile import MasterKey


async def never(*_: Any, **__: Any) -> Any:
    raise AssertionError("nothing is ordered here")


@pytest.mark.parametrize(("clients", "listening"), [(0, 2), (1, 2), (3, 3)])
async def test_as_many_may_listen_as_may_be_connected(
    clients: int, listening: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_opening, "MOST_SUBSCRIPTIONS", 2)
    server = ServerConfig(name="agent", agents=(DemoConfig(),))
    async with open_inline_store(clock=now_millis) as store, trio.open_nursery() as background:
        opened = await open_servers(
            (server,), store, server_opening.subkeys(MasterKey("key", bytes(32))), carry_out=never, let_go_of=never, log=structlog.get_logger(),
            measure=lambda _: lambda *_, **__: None, background=background, data_dir=tmp_path, clients=clients,
        )  # fmt: skip
        endpoint: Endpoint = opened.endpoints["agent"]
        with ExitStack() as held:
            for _ in range(listening):
                held.enter_context(endpoint.subscriptions.open(None, frozenset()))
            with pytest.raises(TooManySubscriptions), endpoint.subscriptions.open(None, frozenset()):
                pass
        background.cancel_scope.cancel()
