"""What sessions and streams leave behind that were opened and dropped without a word: tasks, sockets, memory.

Every kind is done twice. The first round fills what is there to be filled (caches, the sessions that one caller may have, the
allocator's arenas); what the second one adds to it is a leak. Then, on a server of its own for each kind, what one
caller can do to memory (memory_kinds.py). Figures are printed, and exit is 1 beyond the bounds below, and there.
"""

from __future__ import annotations

import argparse
import json
import re
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import memory_kinds
from memory import allow_many_sockets
from targets import Broken, Running, Target, free_port, ostiary_source, running, sockets_of
from wire import call_request, exchange, open_connection, request

# A task, a session or a descriptor that stays is a leak, however small. Memory is counted in pages that the allocator may
# keep: as much as a few hundred bytes for each of 10 000 would be.
MAX_TASKS = 0
MAX_SOCKETS = 0
MAX_MIB = 4.0
SETTLE_SECONDS = 30.0
STEPS = 20  # of the call that is dropped in the middle, 50 ms each
LEGACY = "2025-11-25"


class State(NamedTuple):
    tasks: int
    sockets: int
    mib: float
    sessions: int


def main(arguments: list[str]) -> int:
    options = argparse.ArgumentParser(prog="scripts/leaks", description=__doc__)
    options.add_argument("--sessions", type=int, default=10_000)
    options.add_argument("--streams", type=int, default=1000)
    options.add_argument("--calls", type=int, default=300, help="of each kind, with large arguments")
    options.add_argument("--readers", type=int, default=200, help="that stall on large answers")
    options.add_argument(
        "--memory-only", action="store_true", help="what one caller can do to memory, and no more"
    )
    chosen = options.parse_args(arguments)
    allow_many_sockets(4096)
    left = not chosen.memory_only and _leaves_something(chosen.sessions, chosen.streams)
    grown = not memory_kinds.look(chosen.calls, chosen.readers)
    return 1 if left or grown else 0


def _leaves_something(sessions: int, streams: int) -> bool:
    rounds: dict[str, Callable[[Running], None]] = {
        f"{sessions} sessions, never ended": lambda server: drop_sessions(server, sessions),
        f"{streams} streams of 2026-07-28, closed in the middle": lambda server: drop_modern(server, streams),
        f"{streams} streams in sessions, closed in the middle": lambda server: drop_legacy(server, streams),
        f"{streams} subscriptions, closed without a word": lambda server: drop_listening(server, streams),
    }
    beyond = False
    with tempfile.TemporaryDirectory(prefix="ostiary-leaks-") as folder:
        admin = free_port()
        command = (
            *ostiary_source(), "serve", "--port", "0", "--admin-port", str(admin), "--data-dir", folder,
            "--auth", "none", "--log-level", "warning",
        )  # fmt: skip
        with running(Target(name="Ostiary", command=command), core=0) as server:
            print(f"{'':55} {'tasks':>7} {'sockets':>8} {'MiB':>8} {'sessions':>9}")
            show("at the start", settled(server, admin, None))
            for name, drop in rounds.items():
                drop(server)
                before = settled(server, admin, None)
                drop(server)
                after = settled(server, admin, before)
                show(name, after)
                left = State(
                    tasks=after.tasks - before.tasks,
                    sockets=after.sockets - before.sockets,
                    mib=after.mib - before.mib,
                    sessions=after.sessions - before.sessions,
                )
                bad = left.tasks > MAX_TASKS or left.sockets > MAX_SOCKETS or left.mib > MAX_MIB
                beyond = beyond or bad
                print(
                    f"{'  left behind by the second time':55} {left.tasks:+7d} {left.sockets:+8d} {left.mib:+8.2f}"
                    f" {left.sessions:+9d}{'  BEYOND THE BOUNDS' if bad else ''}"
                )
    print(
        f"bounds: {MAX_TASKS} tasks, {MAX_SOCKETS} sockets, {MAX_MIB:g} MiB: {'FAILED' if beyond else 'kept'}"
    )
    return beyond


def show(name: str, state: State) -> None:
    print(f"{name:55} {state.tasks:7d} {state.sockets:8d} {state.mib:8.2f} {state.sessions:9d}", flush=True)


def settled(server: Running, admin: int, before: State | None) -> State:
    """How it stands when what was dropped has had the time to end: calls of the handshake era run on."""
    deadline = time.monotonic() + SETTLE_SECONDS
    last, same = state_of(server, admin), 0
    while time.monotonic() < deadline and same < 3:
        time.sleep(0.5)
        now = state_of(server, admin)
        level = before is None or (now.tasks <= before.tasks and now.sockets <= before.sockets)
        same = same + 1 if now.tasks == last.tasks and now.sockets == last.sockets and level else 0
        last = now
    return last


def state_of(server: Running, admin: int) -> State:
    with open_connection("127.0.0.1", admin) as connection:
        asked = request("127.0.0.1", admin, "GET", "/metrics", {"Connection": "close"})
        status, body, _ = exchange(connection, asked)
    if status != 200:
        raise Broken(f"/metrics answered {status}")
    text = body.decode()
    return State(
        tasks=int(gauge(text, "tasks_living")),
        sockets=sockets_of(server.pid),
        mib=server.resident_kib() / 1024,
        sessions=int(gauge(text, "sessions")),
    )


def gauge(text: str, name: str) -> float:
    found = re.search(rf"^ostiary_{name}(?:{{[^}}]*}})? ([\d.e+]+)$", text, re.MULTILINE)
    if not found:
        raise Broken(f"there is no metric {name}")
    return float(found[1])


def drop_sessions(server: Running, count: int) -> None:
    with open_connection(server.host, server.port) as connection:
        for _ in range(count):
            begin_session(server, connection)


def drop_modern(server: Running, count: int) -> None:
    asked = call_request(
        server.host, server.port, "tools/call",
        {"name": "countdown", "arguments": {"from": STEPS, "seconds": 0.05}, "_meta": {"progressToken": 1}},
        name="countdown",
    )  # fmt: skip
    for _ in range(count):
        drop_in_the_middle(server, with_progress(asked))


def drop_legacy(server: Running, count: int) -> None:
    with open_connection(server.host, server.port) as connection:
        session = begin_session(server, connection)
    for number in range(count):
        params = {
            "name": "countdown",
            "arguments": {"from": STEPS, "seconds": 0.05},
            "_meta": {"progressToken": number},
        }
        if number % 32 == 31:
            time.sleep(STEPS * 0.05)  # a session runs so many requests at once, and these run on
        drop_in_the_middle(
            server, legacy_request(server, "tools/call", params, session=session, number=number)
        )


def drop_listening(server: Running, count: int) -> None:
    wanted = {"notifications": {"toolsListChanged": True}}
    for _ in range(count):
        drop_in_the_middle(server, call_request(server.host, server.port, "subscriptions/listen", wanted))


def drop_in_the_middle(server: Running, asked: bytes) -> None:
    with open_connection(server.host, server.port) as connection:
        connection.sendall(asked)
        data = b""
        while b"\ndata: {" not in data:
            more = connection.recv(65536)
            if not more or len(data) > 65536:
                raise Broken(f"no event came: {data[:300]!r}")
            data += more
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")


def with_progress(asked: bytes) -> bytes:
    """`call_request` writes its own `_meta`: put the token of the parameters into it."""
    head, _, body = asked.partition(b"\r\n\r\n")
    message: dict[str, Any] = json.loads(body)
    message["params"]["_meta"]["progressToken"] = 1
    data = json.dumps(message, separators=(",", ":")).encode()
    return re.sub(rb"Content-Length: \d+", b"Content-Length: %d" % len(data), head) + b"\r\n\r\n" + data


def begin_session(server: Running, connection: socket.socket) -> str:
    params = {
        "protocolVersion": LEGACY,
        "capabilities": {},
        "clientInfo": {"name": "leaks", "version": "1"},
    }
    connection.sendall(legacy_request(server, "initialize", params, number=0))
    data = b""
    while b"\r\n\r\n" not in data or not data.rstrip().endswith(b"}"):
        more = connection.recv(65536)
        if not more:
            raise Broken(f"initialize was not answered: {data[:300]!r}")
        data += more
    found = re.search(rb"(?i)mcp-session-id: (\S+)", data)
    if not found:
        raise Broken(f"no session was begun: {data[:300]!r}")
    session = found[1].decode()
    connection.sendall(legacy_request(server, "notifications/initialized", {}, session=session))
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += connection.recv(65536)
    if b" 202 " not in answer.partition(b"\r\n")[0]:
        raise Broken(f"initialized was answered {answer[:100]!r}")
    return session


def legacy_request(
    server: Running, method: str, params: dict[str, Any], *, session: str = "", number: int | None = None
) -> bytes:
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
    if number is not None:
        message["id"] = number
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    if session:
        headers["Mcp-Session-Id"] = session
        headers["MCP-Protocol-Version"] = LEGACY
    return request(server.host, server.port, "POST", "/mcp", headers, json.dumps(message).encode())


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Broken as problem:
        sys.exit(f"leaks: {problem}")
