"""Resident memory of one server: idle, with many idle connections, with many idle event streams."""

from __future__ import annotations

import resource
import socket
import time
from contextlib import ExitStack

from targets import Broken, Running
from wire import call_request, exchange, open_connection

SETTLE_SECONDS = 1.0
ACK = b"notifications/subscriptions/acknowledged"


def allow_many_sockets(count: int) -> None:
    """Raise the soft limit for this process and the servers that it starts."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        raise Broken(f"{count} open files are needed, and this machine allows {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(count, 4096), hard))


def idle_mib(server: Running) -> float:
    time.sleep(SETTLE_SECONDS)
    return server.resident_kib() / 1024


def idle_connections_kib(server: Running, count: int) -> float:
    """KiB for each connection that has been answered once and then says nothing."""
    before = server.resident_kib()
    with ExitStack() as held:
        for _ in range(count):
            connection = held.enter_context(open_connection(server.host, server.port))
            status, body, _ = exchange(
                connection, call_request(server.host, server.port, "server/discover", {})
            )
            if status != 200:
                raise Broken(f"server/discover answered {status}: {body[:200]!r}")
        time.sleep(SETTLE_SECONDS)
        return (server.resident_kib() - before) / count


def idle_streams_kib(server: Running, count: int) -> float:
    """KiB for each `subscriptions/listen` stream on which nothing happens."""
    wanted = {"notifications": {"toolsListChanged": True}}
    before = server.resident_kib()
    with ExitStack() as held:
        for _ in range(count):
            connection = held.enter_context(open_connection(server.host, server.port))
            connection.sendall(call_request(server.host, server.port, "subscriptions/listen", wanted))
            _read_until(connection, ACK)
        time.sleep(SETTLE_SECONDS)
        return (server.resident_kib() - before) / count


def _read_until(connection: socket.socket, wanted: bytes) -> None:
    data = b""
    while wanted not in data:
        more = connection.recv(65536)
        if not more or len(data) > 65536:
            raise Broken(f"no stream was opened: {data[:300]!r}")
        data += more
