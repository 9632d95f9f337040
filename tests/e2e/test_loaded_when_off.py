"""What is not in the settings is not in the memory of a server that runs, either."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from handmade import Handmade
from programs import SOURCE, Program

pytestmark = pytest.mark.slow

# Telemetry and the spans of requests, a database, other nodes, money, a certificate of an authority's.
OFF = (
    "psycopg",
    "server.certificates",
    "server.store.node_messages.node_messages",
    "server.run.node_message_loop",
    "server.run.sellers",
    "server.calls.request_spans",
    "server.cluster.postgres.postgres",
    "server.cluster.postgres.postgres_wire",
    "server.telemetry",
    "server.cluster.workers",
)


def test_a_server_that_was_logged_in_at_and_called_has_loaded_nothing_that_is_off(home: Path) -> None:
    # Each module that is imported is said on stderr.
    program = Program(command=SOURCE, home=home, alone=True, settings={"PYTHONPROFILEIMPORTTIME": "1"})
    with program.serving() as server:
        program.settings.clear()
        client = Handmade(server.url)
        try:
            asked = client.ask_for_device()
            program.at_machine("approve", asked["user_code"], "--yes")
            token = client.poll(asked["device_code"]).json()["access_token"]
            called = client.mcp("tools/call", {"name": "echo", "arguments": {"text": "x"}}, token=token)
            assert called.status_code == 200, called.text
        finally:
            client.close()
        loaded = set(re.findall(r"^import time: .*\| +(\S+)$", server.said(), re.MULTILINE))
    assert {"server.run.app", "server.store.sqlite", "auth.identity"} <= loaded, "what is needed is said"
    assert sorted(loaded & set(OFF)) == []
