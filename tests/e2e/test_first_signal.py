"""The first signal waits for what can still end, and for nothing else: who waits for what cannot is told to ask again."""

from __future__ import annotations

import json
import signal
import socket
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from programs import SOURCE, Program, until

from tests.pair import ACCEPT_BOTH, encode

AGENT = """
import asyncio, pathlib
from ostiary import Context, tool

@tool(task="optional")
async def sleep(marker: str) -> str:
    pathlib.Path(marker).touch()
    await asyncio.sleep(3600)
    return "awake"

@tool
async def colour(marker: str, ctx: Context) -> str:
    pathlib.Path(marker).touch()
    return str(await ctx.elicit("which colour?", {"type": "object", "properties": {"colour": {"type": "string"}}}))

@tool
def long() -> str:
    return "x" * 5_000_000
"""
AGAIN = "ask again"
DRAIN_SECONDS = 600
CAN = {"elicitation": {}}
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


class SessionTalk:
    """One connection of a session."""

    def __init__(self, host: str, port: int, named: str = "", path: str = "/mcp") -> None:
        self.socket = socket.create_connection((host, port), timeout=60)
        self.named = named
        self.path = path

    def send(self, method: str, params: object, request_id: int | None = 1) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        self.post(encode(message if request_id is None else {**message, "id": request_id}))

    def post(self, body: bytes) -> None:
        lines = (
            f"POST {self.path} HTTP/1.1",
            "Host: 127.0.0.1",
            f"Accept: {ACCEPT_BOTH}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            *([self.named] if self.named else []),
        )
        self.socket.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    def more(self) -> str:
        return self.socket.recv(64 * 1024).decode()

    def read_to(self, words: str) -> None:
        heard = ""
        while words not in heard:
            more = self.more()
            assert more, heard
            heard += more

    def rest(self) -> str:
        data = b""
        while piece := self.socket.recv(64 * 1024):
            data += piece
        return data.decode()


def test_it_ends_soon_whatever_cannot_end_and_tells_those_who_wait(tmp_path: Path) -> None:
    agent, settings = tmp_path / "agent.py", tmp_path / "ostiary.toml"
    agent.write_text(AGENT, "utf-8")
    settings.write_text(
        f'auth = "none"\nhost = "127.0.0.1"\ndrain_seconds = {DRAIN_SECONDS}\n\n[[server]]\nname = "main"\n\n'
        f"[[server.agent]]\nkind = \"python\"\nfile = '{agent}'\npython = '{sys.executable}'\n",
        "utf-8",
    )
    folder = tmp_path / "marks"  # a program may make nothing beside the settings
    folder.mkdir()
    marks = folder / "task", folder / "question"
    with (
        Program(command=SOURCE, home=tmp_path, alone=True).serving("--config", str(settings)) as server,
        ExitStack() as stack,
    ):
        host, _, port = server.url.removeprefix("http://").rpartition(":")
        named = ""

        def talk() -> SessionTalk:
            opened = SessionTalk(host, int(port), named)
            stack.callback(opened.socket.close)
            return opened

        first = talk()
        first.send("initialize", {"protocolVersion": "2025-11-25", "capabilities": CAN, "clientInfo": {}})
        named = next(line for line in first.more().splitlines() if line.startswith("mcp-session-id"))
        first.named = named
        first.send("notifications/initialized", {}, None)
        assert "202" in first.more()
        task = {"name": "sleep", "arguments": {"marker": str(marks[0])}, "task": {}}
        first.send("tools/call", task, 2)
        task_id = body_of(first.more())["result"]["task"]["taskId"]

        waits, asks, reads_on, stalled, slow = (talk() for _ in range(5))
        waits.send("tasks/result", {"taskId": task_id}, 3)
        asks.send("tools/call", {"name": "colour", "arguments": {"marker": str(marks[1])}}, 4)
        listening = f"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n{named}\r\n\r\n"
        reads_on.socket.sendall(listening.encode())
        stalled.send("tools/call", {"name": "long", "arguments": {}}, 5)
        slow.socket.sendall(b"POST /mcp HTTP/1.1\r\nHo")
        until("both to begin", lambda: all(mark.exists() for mark in marks) or None)
        assert "200" in reads_on.more()
        asks.read_to("elicitation/create")
        assert stalled.more().startswith("HTTP/1.1 200")

        server.process.send_signal(signal.SIGTERM)
        assert AGAIN in waits.rest()
        assert AGAIN in asks.rest()
        assert "retry:" in reads_on.rest()
        assert slow.rest().startswith("HTTP/1.1 408")
        assert server.process.wait(60) == 0


def test_each_call_that_is_cut_off_at_the_end_is_told_so(tmp_path: Path) -> None:
    """Of both eras on `/mcp`, with a session and without, and by plain HTTP."""
    agent, settings = tmp_path / "agent.py", tmp_path / "ostiary.toml"
    agent.write_text(AGENT, "utf-8")
    settings.write_text(
        'auth = "none"\nhost = "127.0.0.1"\ndrain_seconds = 0\n\n[[server]]\nname = "main"\n\n'
        f"[[server.agent]]\nkind = \"python\"\nfile = '{agent}'\npython = '{sys.executable}'\n",
        "utf-8",
    )
    folder = tmp_path / "marks"
    folder.mkdir()
    marks = [folder / name for name in ("modern", "session", "alone", "plain")]
    with (
        Program(command=SOURCE, home=tmp_path, alone=True).serving("--config", str(settings)) as server,
        ExitStack() as stack,
    ):
        host, _, port = server.url.removeprefix("http://").rpartition(":")

        def talk(*named: str, path: str = "/mcp") -> SessionTalk:
            opened = SessionTalk(host, int(port), "\r\n".join(named), path)
            stack.callback(opened.socket.close)
            return opened

        first = talk()
        first.send("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}})
        session = next(line for line in first.more().splitlines() if line.startswith("mcp-session-id"))
        arguments = [{"marker": str(mark)} for mark in marks]
        modern = talk("MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: sleep")
        in_session, alone, plain = talk(session), talk(), talk(path="/main/call/sleep")
        modern.send("tools/call", {"name": "sleep", "arguments": arguments[0], "_meta": META})
        in_session.send("tools/call", {"name": "sleep", "arguments": arguments[1]})
        alone.send("tools/call", {"name": "sleep", "arguments": arguments[2]})
        plain.post(encode(arguments[3]))
        until("all to begin", lambda: all(mark.exists() for mark in marks) or None)
        server.process.send_signal(signal.SIGTERM)
        for each in (modern, in_session, alone, plain):
            heard = each.rest()
            assert "stopping" in heard, heard
            assert heard.startswith("HTTP/1.1 503" if each is plain else "HTTP/1.1 200")
        assert server.process.wait(60) == 0


def body_of(answer: str) -> dict[str, Any]:
    return json.loads(answer.partition("\r\n\r\n")[2])
