"""`ostiary sessions --browsers`: a browser as people know it. What logins look like is tests/e2e's."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import pytest
import trio
from shell import Terminal

from server.admin import control_socket
from server.lib.log.structured_log import make_logger

FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (FIREFOX, "Firefox on Linux"),
        ("", "a browser"),
        ("a \x1b[2Jsteering one", "a �[2Jsteering one"),
    ],
)
async def test_a_browser_is_named_as_on_its_owners_page(
    shell: Terminal, nursery: trio.Nursery, said: str, shown: str
) -> None:
    now = time.time_ns() // 1_000_000
    browser = {
        "id": "b1", "user": "vera", "ip": "127.0.0.1", "user_agent": said, "last_used_at": now, "created_at": now,
        "expires_at": now + 3_600_000,
    }  # fmt: skip

    async def browsers(arguments: Mapping[str, Any], actor: str) -> list[dict[str, Any]]:
        return [browser]

    data = shell.home / "data"
    data.mkdir(mode=0o700)
    log = make_logger(level="error", style="json")
    await nursery.start(control_socket.serve, data, lambda: {"browsers": browsers}, log)
    done = await shell.run("sessions", "--browsers", "--data-dir", str(data))
    assert done.stdout.splitlines()[0] == "b1  vera, from 127.0.0.1"
    assert done.stdout.splitlines()[1].startswith(f"    {shown}")
    found = json.loads((await shell.run("sessions", "--browsers", "--data-dir", str(data), "--json")).stdout)
    assert found == [browser]
