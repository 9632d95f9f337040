"""A server for the one client that started it."""

from __future__ import annotations

from server.agents.mcp.mcp_settings import McpConfig
from server.run.single_server import shared_by_all
from server.settings.setting_shapes import ServerConfig
from server.settings.settings_reader import agent_shape


def test_one_caller_needs_one_process_of_each_upstream() -> None:
    demo = agent_shape("demo")()
    server = ServerConfig(name="main", agents=(McpConfig(command=("x",)), demo))
    assert shared_by_all(server).agents == (McpConfig(command=("x",), share="all"), demo)
