"""mcp-remote from npm, the bridge in front of many clients: by device code (the only MCP client that can) and with a browser."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from person import Person
from programs import NODE_BIN, ROOT, SOURCE, USER_CODE, Background, Program, Server, needed, until

pytestmark = [pytest.mark.peers, pytest.mark.slow]

SCRIPT = ROOT / "tests" / "peers" / "node_modules" / "mcp-remote" / "dist" / "proxy.js"


def test_mcp_remote_logs_in_by_device_code_and_calls_a_tool_over_stdio(home: Path) -> None:
    program = Program(command=SOURCE, home=home)
    with program.serving() as server:
        client = program.at_machine("clients", "add", "mcp-remote")
        given = ("--device-code", "--static-oauth-client-info", json.dumps({"client_id": client["id"]}))
        with bridge(program, server, *given) as (process, background):
            code = background.await_words(USER_CODE)[0]
            program.at_machine("approve", code, "--yes")
            background.await_words("Authorized")
            use(process, background)
        (session,) = program.at_machine("sessions")
        assert session["client_id"] == client["id"]


def test_mcp_remote_registers_itself_for_a_device_login(home: Path) -> None:
    program = Program(command=SOURCE, home=home)
    with program.serving() as server, bridge(program, server, "--device-code") as (process, background):
        code = background.await_words(USER_CODE)[0]
        program.at_machine("approve", code, "--yes")
        background.await_words("Authorized")
        use(process, background)


def test_mcp_remote_registers_itself_and_logs_in_with_a_browser(home: Path) -> None:
    program, owner = Program(command=SOURCE, home=home), Person()
    opener = home / "xdg-open"
    opener.write_text("#!/bin/sh\n")
    opener.chmod(0o755)
    with program.serving() as server, closing(owner):
        owner.claim(program, server)
        with bridge(program, server) as (process, background):
            owner.allow(background.await_words(r"https?://\S+/authorize\?\S+")[0])
            use(process, background)
        (session,) = program.at_machine("sessions")
        assert session["registered_name"] == "MCP CLI Proxy"


def use(process: subprocess.Popen[bytes], background: Background) -> None:
    opened = ask(process, background, 1, "initialize", {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"},
    })  # fmt: skip
    assert opened["result"]["protocolVersion"] == "2025-11-25"
    tell(process, "notifications/initialized")
    listed = ask(process, background, 2, "tools/list", {})
    assert "echo" in [tool["name"] for tool in listed["result"]["tools"]]
    answer = ask(process, background, 3, "tools/call", {"name": "echo", "arguments": {"text": "through"}})
    assert answer["result"]["content"][0]["text"] == "through"


@contextmanager
def bridge(
    program: Program, server: Server, *options: str
) -> Generator[tuple[subprocess.Popen[bytes], Background]]:
    """mcp-remote between our pipes and the server; what it says, and its answers, are in one file each."""
    node = needed(NODE_BIN / "node", "scripts/peers")
    command = (
        str(node), str(needed(SCRIPT, "scripts/peers")), server.endpoint, *options,
    )  # fmt: skip
    talk = program.home / "mcp-remote.talk"
    answers = program.home / "mcp-remote.answers"
    with talk.open("wb") as stderr, answers.open("wb") as stdout:
        process = subprocess.Popen(
            command,
            env=program.environment(
                MCP_REMOTE_CONFIG_DIR=str(program.home / "mcp-remote"),
                PATH=f"{program.home}:{os.environ['PATH']}",
            ),
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=stderr,
        )
    background = Background(process=process, log=talk)
    try:
        yield process, background
    finally:
        assert process.stdin is not None
        process.stdin.close()
        background.end()


def tell(process: subprocess.Popen[bytes], method: str) -> None:
    send(process, {"jsonrpc": "2.0", "method": method})


def ask(
    process: subprocess.Popen[bytes], background: Background, number: int, method: str, params: dict[str, Any]
) -> dict[str, Any]:
    send(process, {"jsonrpc": "2.0", "id": number, "method": method, "params": params})
    answers = background.log.with_suffix(".answers")

    def look() -> dict[str, Any] | None:
        for line in answers.read_text("utf-8").splitlines(keepends=True):
            if (
                line.endswith("\n")
                and (message := json.loads(line)).get("id") == number
                and "method" not in message
            ):
                return message
        assert process.poll() is None, background.said()
        return None

    return until(f"the answer to {method}", look)


def send(process: subprocess.Popen[bytes], message: dict[str, Any]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(message).encode() + b"\n")
    process.stdin.flush()
