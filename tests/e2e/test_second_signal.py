"""The second signal ends a server at once, whatever its sessions still have done for them."""

from __future__ import annotations

import signal
import socket
import sys
from pathlib import Path

from programs import SOURCE, Program, until

from tests.pair import ACCEPT_BOTH, encode

SLEEPER = """
import pathlib, time

def sleep(marker: str) -> str:
    "Sleeps for long."
    pathlib.Path(marker).touch()
    time.sleep(3600)
    return "awake"
"""


def test_the_second_signal_does_not_wait_for_the_calls_of_sessions(tmp_path: Path) -> None:
    agent, settings, begun = tmp_path / "agent.py", tmp_path / "ostiary.toml", tmp_path / "marks" / "begun"
    begun.parent.mkdir()
    agent.write_text(SLEEPER, "utf-8")
    settings.write_text(
        'auth = "none"\nhost = "127.0.0.1"\ndrain_seconds = 600\n\n[[server]]\nname = "main"\n\n'
        f"[[server.agent]]\nkind = \"python\"\nfile = '{agent}'\npython = '{sys.executable}'\n",
        "utf-8",
    )
    with Program(command=SOURCE, home=tmp_path, alone=True).serving("--config", str(settings)) as server:
        host, _, port = server.url.removeprefix("http://").rpartition(":")
        with socket.create_connection((host, int(port)), timeout=60) as client:
            welcome = post(client, "initialize", {
                "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"},
            })  # fmt: skip
            named = next(line for line in welcome.splitlines() if line.startswith("mcp-session-id"))
            arguments = {"name": "sleep", "arguments": {"marker": str(begun)}}
            send(client, "tools/call", arguments, named)
            until("the call to begin", lambda: begun.exists() or None)

        def ended() -> int | None:
            # Again and again: one that follows the first too closely is taken for its echo.
            server.process.send_signal(signal.SIGTERM)
            return server.process.poll()

        # One that comes when it no longer listens for them ends it in its own way.
        assert until("the server to end", ended, seconds=60) in (0, -signal.SIGTERM)


def send(client: socket.socket, method: str, params: object, *headers: str) -> None:
    body = encode({"jsonrpc": "2.0", "id": method, "method": method, "params": params})
    lines = (
        "POST /mcp HTTP/1.1",
        "Host: 127.0.0.1",
        f"Accept: {ACCEPT_BOTH}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *headers,
    )
    client.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)


def post(client: socket.socket, method: str, params: object) -> str:
    """The head of the answer, and what of its body came with it."""
    send(client, method, params)
    return client.recv(64 * 1024).decode()
