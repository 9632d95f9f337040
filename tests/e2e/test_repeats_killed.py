"""Calls with keys at the running program: over every wire, and of a process that is killed while one runs."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp_calls import call_tool, request_of
from programs import SOURCE, WAIT_SECONDS, House, Program, Server, until

pytestmark = pytest.mark.slow

AGENT = """
import asyncio
import pathlib
from ostiary import tool

def note(what: str) -> None:
    with open("tmp/runs", "a") as runs:
        runs.write(what + "\\n")

async def work(what: str) -> str:
    note(what)
    while what.startswith("waits") and not pathlib.Path("go").exists():
        await asyncio.sleep(0.01)
    return f"did {what}"

@tool
async def send(what: str) -> str:
    return await work(what)

@tool(annotations={"idempotentHint": True})
async def put(what: str) -> str:
    return await work(what)
"""
SETTINGS = """
auth = "none"
[[server]]
name = "main"
[[server.agent]]
kind = "python"
file = "agent.py"
"""
KEY = "x402/idempotency-key"


def with_agent(home: Path) -> Program:
    (home / "agent.py").write_text(AGENT, "utf-8")
    (home / "ostiary.toml").write_text(SETTINGS, "utf-8")
    return Program(command=SOURCE, home=home)


@pytest.fixture
def program(home: Path) -> Program:
    return with_agent(home)


@pytest.fixture(scope="module")
def house(shared_home: Path) -> Iterator[House]:
    program = with_agent(shared_home)
    with program.serving() as server:
        yield House(program=program, server=server)


def runs(home: Path) -> list[str]:
    file = home / "tmp" / "runs"
    return file.read_text("utf-8").split() if file.exists() else []


def called(server: Server, tool: str, what: str, key: str) -> tuple[str, str]:
    """What it says, and what it is: new, replayed, or why it was not made."""
    result = call_tool(server.endpoint, tool, {"what": what}, {KEY: key})
    meta = result.get("_meta", {})
    word = meta.get("io.ostiary/repeat", {}).get("reason")
    kind = word or ("replayed" if meta.get("io.ostiary/replayed") else "new")
    return result["content"][0]["text"], kind


def test_a_key_outlives_the_process_and_a_call_that_was_killed_is_told_as_such(
    home: Path, program: Program
) -> None:
    def left(server: Server, tool: str) -> None:
        with pytest.raises((httpx2.TransportError, AssertionError)):
            called(server, tool, f"waits-{tool}", "k-2")

    with program.serving() as server:
        assert called(server, "send", "a", "k-1") == ("did a", "new")
        callers = [threading.Thread(target=left, args=(server, tool)) for tool in ("send", "put")]
        for each in callers:
            each.start()
        until("both to run", lambda: len(runs(home)) == 3 or None)
        server.process.send_signal(signal.SIGKILL)
        server.process.wait(WAIT_SECONDS)
        for each in callers:
            each.join(WAIT_SECONDS)
    (home / "go").touch()
    with program.serving() as server:
        assert called(server, "send", "a", "k-1") == ("did a", "replayed")
        _, kind = called(server, "send", "waits-send", "k-2")
        assert kind == "interrupted"
        assert called(server, "put", "waits-put", "k-2") == ("did waits-put", "new")
        assert called(server, "put", "waits-put", "k-2") == ("did waits-put", "replayed")
    assert sorted(runs(home)) == ["a", "waits-put", "waits-put", "waits-send"]


def test_twenty_at_once_with_one_key_run_once(house: House) -> None:
    with ThreadPoolExecutor(20) as pool:
        found = list(pool.map(lambda _: called(house.server, "send", "at-once", "k"), range(20)))
    assert sorted(found) == [("did at-once", "new")] + [("did at-once", "replayed")] * 19
    assert runs(house.program.home).count("at-once") == 1


def test_over_plain_http_a_key_is_a_header_and_a_repeat_is_told_by_one(house: House) -> None:
    with httpx2.Client(trust_env=False, timeout=WAIT_SECONDS) as web:

        def post(what: str, key: str) -> httpx2.Response:
            url, headers = f"{house.server.url}/main/call/send", {"Idempotency-Key": key}
            return web.post(url, json={"what": what}, headers=headers)

        first, again = post("a", "k-1"), post("a", "k-1")
        assert [each.status_code for each in (first, again)] == [200, 200]
        assert "x-x402-idempotent" not in first.headers
        assert again.headers["x-x402-idempotent"] == "replay"
        assert again.json()["content"] == first.json()["content"]
        other, none = post("b", "k-1"), post("b", "two words")
        assert (other.status_code, other.json()["error"]) == (409, "idempotency_conflict")
        assert (none.status_code, none.json()["error"]) == (400, "invalid_idempotency_key")
    ran = runs(house.program.home)
    assert (ran.count("a"), ran.count("b")) == (1, 0)


def test_a_call_whose_connection_broke_is_joined_by_the_same_call_made_again(
    home: Path, program: Program
) -> None:
    (home / "token").write_text("t" * 30, "ascii")
    (home / "token").chmod(0o600)
    login = f'tokens = [{{ name = "ci", token = "file:{home}/token", scope = "mcp" }}]'
    settings = SETTINGS.replace('auth = "none"\n', "").replace('name = "main"', f'name = "main"\n{login}')
    (home / "ostiary.toml").write_text(settings, "utf-8")
    bearer = {"Authorization": f"Bearer {'t' * 30}"}
    headers, body = request_of("send", {"what": "waits"}, {}, modern=False)
    with program.serving() as server:
        port = int(server.url.rpartition(":")[2])
        head = "".join(f"{name}: {value}\r\n" for name, value in (headers | bearer).items())
        line = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: {len(body)}\r\n{head}\r\n"
        with socket.create_connection(("127.0.0.1", port)) as broken:
            broken.sendall(line.encode() + body)
            until("it to run", lambda: len(runs(home)) == 1 or None)
        server.await_words("tool.adrift")
        with ThreadPoolExecutor(1) as pool:
            again = pool.submit(
                call_tool, server.endpoint, "send", {"what": "waits"}, modern=False, more=bearer
            )
            (home / "go").touch()
            result = again.result(WAIT_SECONDS)
        assert result["content"][0]["text"] == "did waits"
        assert result["_meta"]["io.ostiary/replayed"] is True
        once_more = call_tool(server.endpoint, "send", {"what": "waits"}, modern=False, more=bearer)
        assert "io.ostiary/replayed" not in once_more.get("_meta", {})
    assert runs(home) == ["waits", "waits"]


def test_on_stdio_a_key_does_the_same(home: Path, program: Program) -> None:
    message: dict[str, Any] = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {
            "name": "send",
            "arguments": {"what": "a"},
            "_meta": {
                KEY: "k",
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            },
        },
    }
    with subprocess.Popen(
        (*SOURCE, "serve", "--stdio"),
        cwd=home,
        env=program.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        told: list[bool] = []
        for _ in range(2):
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()
            result = json.loads(process.stdout.readline())["result"]
            assert result["content"][0]["text"] == "did a"
            told.append(result.get("_meta", {}).get("io.ostiary/replayed", False))
        process.stdin.close()
    assert told == [False, True]
    assert runs(home) == ["a"]
