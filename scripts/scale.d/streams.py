"""Idle streams: ten thousand clients of one process that listen for what changes, and nothing does."""

from __future__ import annotations

import json
import random
import re
import select
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from statistics import median
from typing import Any, Final

from memory import allow_many_sockets
from pair import Ground
from targets import Broken, Running
from wire import call_request, exchange, open_connection, request

MANY: Final = 10_000
FEW: Final = 1_000
# Beside the streams a process has its own files, and who measures some calls.
MORE: Final = 200
SETTLE_SECONDS: Final = 2.0
LEGACY: Final = "2025-11-25"
ACK: Final = b"notifications/subscriptions/acknowledged"
CALLS: Final = 51
AT_ONCE: Final = 16  # that are being opened
SETTINGS: Final = '[[server]]\nauth = "none"\n[[server.agent]]\nkind = "demo"\n'


def measure(ground: Ground) -> None:
    sheet, count = ground.sheet, ground.many(MANY)
    few = min(FEW, count // 2)
    sheet.begin(f"idle streams: {few:,} → {count:,}")
    allow_many_sockets(count + MORE)
    house = ground.house("streams", f"max_connections = {count + MORE}\n" + SETTINGS)
    for what, opened in (("subscriptions", subscription), ("streams of sessions", session_stream)):
        with house.serving(core=ground.cores.server) as server, ExitStack() as held:
            call_ms(server)
            empty = server.resident_kib()
            sockets = open_all(held, server, opened, few)
            time.sleep(SETTLE_SECONDS)
            little, quick = server.resident_kib(), call_ms(server)
            begun = time.perf_counter()
            sockets += open_all(held, server, opened, count - few)
            took = time.perf_counter() - begun
            time.sleep(SETTLE_SECONDS)
            much, slow = server.resident_kib(), call_ms(server)
            spent = server.cpu_seconds()
            time.sleep(10)
            spent = server.cpu_seconds() - spent
            alive = living(sockets)
            if alive != count:
                raise Broken(f"of {count} streams {alive} are open")
        sheet.add(f"{what}: each", (little - empty) / few, (much - empty) / count, "KiB")
        sheet.add("resident, with all of them", little / 1024, much / 1024, "MiB")
        sheet.add("a call beside them", quick, slow)
        sheet.add("opened", None, (count - few) / took, "/s")
        sheet.add("CPU while nothing happens", None, spent * 100, "ms/s")


def open_all(
    held: ExitStack, server: Running, opened: Callable[[Running], socket.socket], count: int
) -> list[socket.socket]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return [held.enter_context(each) for each in pool.map(opened, [server] * count)]


def subscription(server: Running) -> socket.socket:
    wanted = {"notifications": {"toolsListChanged": True}}
    connection = open_connection(server.host, server.port)
    connection.sendall(call_request(server.host, server.port, "subscriptions/listen", wanted))
    _read_until(connection, ACK)
    return connection


def session_stream(server: Running) -> socket.socket:
    """The GET of a session of the handshake era."""
    connection = open_connection(server.host, server.port)
    hello = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "scale", "version": "1"}}
    # As from elsewhere each: one caller has few sessions.
    named = {"X-Forwarded-For": ".".join(["10", *(str(random.randrange(256)) for _ in range(3))])}
    connection.sendall(
        _post(server, {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}, named)
    )
    seen = _read_until(connection, b'"serverInfo"')
    found = re.search(rb"\r\nmcp-session-id: (\S+)", seen, re.IGNORECASE)
    if found is None:
        raise Broken(f"no session was begun: {seen[:300]!r}")
    named |= {"Mcp-Session-Id": found[1].decode(), "MCP-Protocol-Version": LEGACY}
    exchange(connection, _post(server, {"jsonrpc": "2.0", "method": "notifications/initialized"}, named))
    connection.sendall(
        request(server.host, server.port, "GET", "/mcp", {"Accept": "text/event-stream", **named})
    )
    _read_until(connection, b"event-stream")
    return connection


def _post(server: Running, message: dict[str, Any], named: dict[str, str]) -> bytes:
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **named}
    return request(server.host, server.port, "POST", "/mcp", headers, json.dumps(message).encode())


def _read_until(connection: socket.socket, wanted: bytes) -> bytes:
    data = b""
    while wanted not in data:
        more = connection.recv(65536)
        if not more or len(data) > 65536:
            raise Broken(f"no stream was opened: {data[:300]!r}")
        data += more
    return data


def call_ms(server: Running) -> float:
    """The median, on a connection of its own."""
    times: list[float] = []
    asked = call_request(
        server.host, server.port, "tools/call", {"name": "echo", "arguments": {"text": "hello"}}, name="echo"
    )
    with open_connection(server.host, server.port) as connection:
        for _ in range(CALLS):
            begun = time.perf_counter()
            status, body, _ = exchange(connection, asked)
            times.append((time.perf_counter() - begun) * 1e3)
            if status != 200:
                raise Broken(f"a call was answered {status}: {body[:300]!r}")
    return median(times)


def living(sockets: list[socket.socket]) -> int:
    """Those that were not closed; what came meanwhile is read off."""
    poll, by_number = select.poll(), {each.fileno(): each for each in sockets}
    for number in by_number:
        poll.register(number, select.POLLIN)
    closed = 0
    for number, _ in poll.poll(0):
        closed += not by_number[number].recv(65536)
    return len(sockets) - closed
