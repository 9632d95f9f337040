"""Callers who hold all the room for large requests that they can get, over real connections: what they are told, and that it comes back."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from programs import SOURCE, WAIT_SECONDS, Program, Server, until

from server.mcp.loads import BODIES_OF_CALLER

AGENT = """
import asyncio
from ostiary import tool

@tool
async def sleeps(text: str) -> None:
    await asyncio.sleep(3600)

@tool
async def fine(text: str) -> str:
    return "fine"
"""
SETTINGS = """
max_body_kib = 64
[[server]]
name = "main"
accepts = ["api-key"]
tokens = [
  { name = "one", token = "file:one", scope = "mcp:tools" },
  { name = "two", token = "file:two", scope = "mcp:tools" },
]
[[server.agent]]
kind = "python"
file = "agent.py"
"""
LARGEST = 64 * 1024
TEXT = "x" * (LARGEST - 1024)


class Served:
    def __init__(self, server: Server, admin: str) -> None:
        self.port = int(server.url.rpartition(":")[2])
        self._admin = admin

    def figure(self, name: str) -> int:
        metrics = httpx2.get(f"{self._admin}/metrics", trust_env=False, timeout=WAIT_SECONDS).text
        found = re.search(rf"^ostiary_{name} (\S+)$", metrics, re.MULTILINE)
        assert found is not None, metrics
        return int(float(found[1]))

    def weight(self) -> int:
        return self.figure("large_requests_bytes")

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def head(self, who: str, tool: str, *more: str) -> bytes:
        lines = (
            "POST /mcp HTTP/1.1", f"Host: 127.0.0.1:{self.port}", "Content-Type: application/json",
            "Accept: application/json, text/event-stream", f"Authorization: Bearer {who * 12}",
            "MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", f"Mcp-Name: {tool}", *more,
        )  # fmt: skip
        return "\r\n".join(lines).encode() + b"\r\n\r\n"

    def whole(self, who: str, tool: str, text: str = TEXT) -> bytes:
        body = message(tool, text)
        return self.head(who, tool, f"Content-Length: {len(body)}") + body


def message(tool: str, text: str = TEXT) -> bytes:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": tool, "arguments": {"text": text}, "_meta": meta}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()


def answer(connection: socket.socket) -> tuple[int, bytes, dict[str, Any]]:
    data = b""
    while (end := data.find(b"\r\n\r\n")) < 0:
        data += some(connection)
    head = data[:end].lower()
    length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
    while len(data) < end + 4 + length:
        data += some(connection)
    return int(data[9:12]), head, json.loads(data[end + 4 :])


def some(connection: socket.socket) -> bytes:
    data = connection.recv(65536)
    assert data, "the server closed the connection without an answer"
    return data


@contextmanager
def serving(home: Path) -> Generator[Served]:
    (home / "agent.py").write_text(AGENT, "utf-8")
    (home / "ostiary.toml").write_text(SETTINGS.replace("file:", f"file:{home}/"), "utf-8")
    for name in ("one", "two"):
        (home / name).write_text(name * 12, "ascii")
        (home / name).chmod(0o600)
    program = Program(command=SOURCE, home=home)
    with program.serving("--config", str(home / "ostiary.toml"), "--admin-port", "0") as server:
        admin = server.await_words(r'"admin": ?"(http://[^"]+)"')[1]
        yield Served(server, admin)


@pytest.fixture(scope="module")
def _served_to_all(shared_home: Path) -> Generator[Served]:
    with serving(shared_home) as served:
        yield served


@pytest.fixture
def served(_served_to_all: Served) -> Served:
    """A server that holds nothing, or nothing any more, of anybody's requests."""
    until("nothing to be held", lambda: _served_to_all.weight() == 0 or None)
    return _served_to_all


@pytest.mark.parametrize("announced", [True, False], ids=["announced", "in chunks"])
def test_who_has_its_share_waits_and_another_is_served(served: Served, announced: bool) -> None:
    before = served.figure("large_requests_refused_total")
    with ExitStack() as held:
        for number in range(BODIES_OF_CALLER):
            held.enter_context(served.connect()).sendall(served.whole("one", "sleeps"))
            until("its weight", lambda n=number: served.weight() > (n + 1) * len(TEXT) or None)
        with served.connect() as further:
            if announced:  # and no byte of it is sent
                more = (f"Content-Length: {len(message('fine'))}", "Expect: 100-continue")
                further.sendall(served.head("one", "fine", *more))
            else:
                further.sendall(served.head("one", "fine", "Transfer-Encoding: chunked"))
                further.sendall(b"%x\r\n%s\r\n" % (len(TEXT) // 2, b"x" * (len(TEXT) // 2)))
            status, head, said = answer(further)
        assert (status, b"\r\nretry-after: 5" in head) == (429, True)
        assert said["error"]["code"] == 1432 and "of yours" in said["error"]["message"]
        assert served.figure("large_requests_refused_total") == before + 1
        with served.connect() as other:
            other.sendall(served.whole("two", "fine"))
            assert answer(other)[0] == 200
        with served.connect() as small:
            small.sendall(served.whole("one", "fine", "small"))
            assert answer(small)[0] == 200
    until("what was left to be given back", lambda: served.weight() == 0 or None)
    with served.connect() as again:
        again.sendall(served.whole("one", "fine"))
        assert answer(again)[0] == 200


def test_a_body_counts_as_it_comes_and_no_more_when_its_sender_has_left(served: Served) -> None:
    with served.connect() as slow:
        slow.sendall(served.head("one", "fine", "Transfer-Encoding: chunked"))
        for count in (1, 2, 3):
            slow.sendall(b"2000\r\n%s\r\n" % (b"x" * 0x2000))
            until("the part that came", lambda n=count: served.weight() == n * 0x2000 or None)
    until("what was left to be given back", lambda: served.weight() == 0 or None)


def test_a_stranger_who_announces_much_takes_nothing(served: Served) -> None:
    before = served.figure("large_requests_refused_total")
    with served.connect() as stranger:
        stranger.sendall(served.head("three", "fine", f"Content-Length: {LARGEST}"))
        assert stranger.recv(12) == b"HTTP/1.1 401"
        assert (served.weight(), served.figure("large_requests_refused_total")) == (0, before)
