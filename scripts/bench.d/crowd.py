"""A crowd before an agent that has few places, and before an MCP upstream that has: who has which part of them, how long calls wait, and what
that takes.

Callers are told apart by the address that they call from, all of this machine. The first has half of all calls, and they are in line before
the others come. Exit is 1 if a caller had less than four fifths of an even part while all waited, if an answer was wrong, or if
anything of a call is left when its caller has gone.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import trio
from memory import allow_many_sockets
from targets import Running, Target, mcp_upstream, ostiary_source, running
from wire import call_request

AGENT = """
import asyncio

from ostiary import tool


@tool
async def slow(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "done"
"""
DONE = ("done", "hello")  # as the agent says it, and the upstream
ENOUGH = 0.8  # of an even part
LONG_SECONDS = 3600.0
MIB = 1024


class Called(NamedTuple):
    caller: str
    answered_at: float
    waited: float
    text: str


class Line:
    """All calls of a run, as they are answered."""

    def __init__(self, server: Running) -> None:
        self.server = server
        self.answered: list[Called] = []

    async def call(self, caller: str, seconds: float) -> None:
        request = call_request(
            self.server.host, self.server.port, "tools/call", {"name": "slow", "arguments": {"seconds": seconds}}, name="slow"
        )  # fmt: skip
        begun = trio.current_time()
        stream = await connect(self.server, caller)
        async with stream:
            await stream.send_all(request)
            text = told(await answer(stream))
        now = trio.current_time()
        self.answered.append(Called(caller, now, now - begun, text))


async def connect(server: Running, caller: str) -> trio.SocketStream:
    sock = trio.socket.socket()
    await sock.bind((caller, 0))
    await sock.connect((server.host, server.port))
    return trio.SocketStream(sock)


async def answer(stream: trio.SocketStream) -> bytes:
    """A call that lasts may be answered with a stream of signs of life, and its answer as the last event."""
    data = b""
    while piece := await stream.receive_some(65536):
        data += piece
        head, found, body = data.partition(b"\r\n\r\n")
        if found and b"text/event-stream" in head.lower():
            if b'"jsonrpc"' in body and body.endswith(b"0\r\n\r\n"):
                return next(line[6:] for line in body.splitlines() if line.startswith(b"data: {"))
        elif found:
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            if len(body) >= length:
                return body
    raise ConnectionError("the server closed the connection without an answer")


def told(body: bytes) -> str:
    found = json.loads(body)
    return found["error"]["message"] if "error" in found else found["result"]["content"][0]["text"]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="scripts/crowd", description=__doc__)
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--callers", type=int, default=4)
    parser.add_argument("--places", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=0.2, help="that one call takes")
    parser.add_argument("--only", choices=("agent", "gateway"), help="not before both")
    chosen = parser.parse_args(arguments)
    allow_many_sockets(2 * chosen.calls + 200)
    failed = 0
    if chosen.only != "gateway":
        print("a Python agent")
        with tempfile.TemporaryDirectory(prefix="ostiary-crowd-") as folder:
            file = Path(folder) / "agent.py"
            file.write_text(AGENT, "utf-8")
            failed += before(f'kind = "python"\nfile = "{file}"\npython = "{ostiary_source()[0]}"\n', chosen)
    if chosen.only != "agent":
        print("an MCP upstream")
        with running(mcp_upstream(), core=1) as upstream:
            where = f'url = "http://{upstream.host}:{upstream.port}/mcp"\nmax_connections = {chosen.places}\n'
            failed += before(f'kind = "mcp"\ntrust = "always"\n{where}', chosen)
    return 1 if failed else 0


def before(agent: str, chosen: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="ostiary-crowd-") as folder:
        home = Path(folder)
        settings = home / "ostiary.toml"
        settings.write_text(
            f"[[server]]\n[[server.agent]]\n{agent}calls_at_once = {chosen.places}\n", "utf-8"
        )
        options = (
            "--port",
            "0",
            "--data-dir",
            str(home / "data"),
            "--auth",
            "none",
            "--log-level",
            "warning",
        )
        command = (*ostiary_source(), "serve", *options, "--config", str(settings))
        with running(Target(name="Ostiary", command=command, tool="slow"), core=0) as server:
            return trio.run(crowd, server, chosen.calls, chosen.callers, chosen.places, chosen.seconds)


async def crowd(server: Running, calls: int, callers: int, places: int, seconds: float) -> int:
    idle = server.resident_kib()
    line = Line(server)
    each = calls // 2 // (callers - 1)
    numbers = {
        "127.0.1.1": calls - each * (callers - 1),
        **{f"127.0.1.{n}": each for n in range(2, callers + 1)},
    }
    begun = trio.current_time()
    async with trio.open_nursery() as nursery:
        for caller, number in numbers.items():
            for _ in range(number):
                nursery.start_soon(line.call, caller, seconds)
            await trio.sleep(seconds / 2)
    took = trio.current_time() - begun
    good = [called for called in line.answered if called.text in DONE]
    refused = Counter(called.text for called in line.answered if called.text not in DONE)
    print(
        f"{calls} calls of {seconds:g} s, {places} at once: {took:.1f} s, at best {calls * seconds / places:.1f} s"
    )
    fair = show_parts(good, numbers)
    waits = sorted(called.waited for called in good)
    print(f"waited: median {waits[len(waits) // 2]:.2f} s, longest {waits[-1]:.2f} s")
    for text, number in refused.items():
        print(f"refused: {number} × {text}")
    print(f"memory: {idle / MIB:.1f} MiB idle, {server.peak_kib() / MIB:.1f} MiB at its peak")
    gone = await leave(server, calls, numbers)
    print(f"memory: {server.resident_kib() / MIB:.1f} MiB when all have gone")
    return 0 if fair and gone and len(good) + sum(refused.values()) == calls else 1


def show_parts(good: list[Called], numbers: dict[str, int]) -> bool:
    """Each caller's part of the places while everybody waited: from when the last has come to when the first has had all."""
    last = {
        caller: max(called.answered_at for called in good if called.caller == caller) for caller in numbers
    }
    first = {
        caller: min(called.answered_at for called in good if called.caller == caller) for caller in numbers
    }
    since, until = max(first.values()), min(last.values())
    counted = Counter(called.caller for called in good if since <= called.answered_at <= until)
    total, fair = sum(counted.values()), True
    for caller, number in numbers.items():
        part = counted[caller] / total
        fair = fair and part >= ENOUGH / len(numbers)
        print(f"  {caller}: {number} calls, {100 * part:.0f} % of the places while all waited")
    return fair


async def leave(server: Running, calls: int, numbers: dict[str, int]) -> bool:
    """As many calls that would never end, whose callers go away: how long until somebody else is served."""
    line = Line(server)
    async with trio.open_nursery() as nursery:
        for caller in numbers:
            for _ in range(calls // len(numbers)):
                nursery.start_soon(line.call, caller, LONG_SECONDS)
        with trio.move_on_after(2):
            await trio.sleep_forever()
        nursery.cancel_scope.cancel()
    begun = trio.current_time()
    with trio.move_on_after(20):
        await line.call("127.0.2.1", 0)
        print(
            f"{calls} calls left by their callers: somebody else was answered after {trio.current_time() - begun:.2f} s"
        )
        return line.answered[-1].text in DONE
    print(f"{calls} calls left by their callers: nobody else is answered")
    return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
