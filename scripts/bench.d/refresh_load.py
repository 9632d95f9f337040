"""Refreshes many logins' tokens as fast as they are answered, or at a steady rate; its own process, on its own core.

A refresh needs the token that the one before it brought, so each connection carries one login and takes it in turn.
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


class Login:
    def __init__(self, connection: socket.socket, token: str) -> None:
        self.connection = connection
        self.token = token
        self.incoming = Incoming()
        self.sent_at = 0.0


def drive(job: dict[str, Any]) -> dict[str, Any]:
    host, port, rate = job["host"], job["port"], job["rate"]
    selector = selectors.DefaultSelector()
    idle: deque[Login] = deque()
    for token in job["tokens"]:
        login = Login(open_connection(host, port), token)
        selector.register(login.connection, selectors.EVENT_READ, login)
        idle.append(login)
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
            login = idle.popleft()
            form = {
                "grant_type": "refresh_token",
                "refresh_token": login.token,
                "client_id": job["client_id"],
            }
            login.sent_at = time.perf_counter()
            login.connection.sendall(form_request(host, port, job["path"], form))
            due += 1 / rate if rate else 0
        wait = min(max(due - now, 0), 0.05) if rate and idle and now < end else 0.05
        for key, _ in selector.select(wait):
            login = key.data
            login.incoming.data += login.connection.recv(65536)
            answer = login.incoming.whole()
            if answer is None:
                continue
            status, body, _ = answer
            if status != 200:
                raise Broken(f"a refresh was answered {status}: {body[:200]!r}")
            latencies.append(time.perf_counter() - login.sent_at)
            before, login.token = login.token, json.loads(body)["refresh_token"]
            if login.token == before:
                raise Broken("a refresh token was not rotated")
            idle.append(login)
    if len(idle) != len(everyone):
        raise Broken("refreshes were not answered")
    latencies.sort()
    return {
        "refreshes": len(latencies),
        "per_second": len(latencies) / (time.perf_counter() - begun),
        "p50_ms": latencies[len(latencies) // 2] * 1e3,
        "p99_ms": latencies[int(len(latencies) * 0.99)] * 1e3,
        "tokens": [login.token for login in everyone],
    }


if __name__ == "__main__":
    try:
        json.dump(drive(json.load(sys.stdin)), sys.stdout)
    except Broken as broken:
        sys.exit(f"error: {broken}")
