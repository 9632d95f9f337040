"""Refreshes many logins' tokens as fast as they are answered, or at a steady rate; its own process, on its own core.

A refresh needs the token that the one before it brought, so each connection carries logins of its own and takes them in turn.
The job comes on stdin and the result leaves on stdout, both JSON: tokens are in neither arguments nor files.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time
from collections import deque
from typing import Any

from targets import Broken
from wire import Incoming, form_request, open_connection

ENDING_SECONDS = 5.0  # for the answers still under way when time is up


class Carrier:
    """A connection, and the newest token of each of its logins, the next one first."""

    def __init__(self, connection: socket.socket, tokens: list[str]) -> None:
        self.connection = connection
        self.tokens = deque(tokens)
        self.incoming = Incoming()
        self.sent_at = 0.0


def drive(job: dict[str, Any]) -> dict[str, Any]:
    host, port, rate = job["host"], job["port"], job["rate"]
    selector = selectors.DefaultSelector()
    idle: deque[Carrier] = deque()
    connections = job["connections"]
    for number in range(connections):
        carrier = Carrier(open_connection(host, port), job["tokens"][number::connections])
        selector.register(carrier.connection, selectors.EVENT_READ, carrier)
        idle.append(carrier)
    everyone = list(idle)
    latencies: list[float] = []
    begun = time.perf_counter()
    end = begun + job["seconds"]
    due = begun
    while True:
        now = time.perf_counter()
        if now >= end and (len(idle) == len(everyone) or now >= end + ENDING_SECONDS):
            break
        while idle and now < end and (rate is None or due <= now):
            carrier = idle.popleft()
            form = {
                "grant_type": "refresh_token",
                "refresh_token": carrier.tokens[0],
                "client_id": job["client_id"],
            }
            carrier.sent_at = time.perf_counter()
            carrier.connection.sendall(form_request(host, port, job["path"], form))
            due += 1 / rate if rate else 0
        wait = min(max(due - now, 0), 0.05) if rate and idle and now < end else 0.05
        for key, _ in selector.select(wait):
            carrier = key.data
            carrier.incoming.data += carrier.connection.recv(65536)
            answer = carrier.incoming.whole()
            if answer is None:
                continue
            status, body, _ = answer
            if status != 200:
                raise Broken(f"a refresh was answered {status}: {body[:200]!r}")
            latencies.append(time.perf_counter() - carrier.sent_at)
            before, after = carrier.tokens.popleft(), json.loads(body)["refresh_token"]
            if after == before:
                raise Broken("a refresh token was not rotated")
            carrier.tokens.append(after)
            idle.append(carrier)
    if len(idle) != len(everyone):
        raise Broken("refreshes were not answered")
    latencies.sort()
    return {
        "refreshes": len(latencies),
        "per_second": len(latencies) / (time.perf_counter() - begun),
        "p50_ms": latencies[len(latencies) // 2] * 1e3,
        "p99_ms": latencies[int(len(latencies) * 0.99)] * 1e3,
        "tokens": [token for carrier in everyone for token in carrier.tokens],
    }


if __name__ == "__main__":
    try:
        json.dump(drive(json.load(sys.stdin)), sys.stdout)
    except Broken as broken:
        sys.exit(f"error: {broken}")
