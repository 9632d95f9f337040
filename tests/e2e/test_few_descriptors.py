"""A process that may have few files open: callers beyond what it can serve are refused, and nobody else starves."""

from __future__ import annotations

import json
import socket
from contextlib import ExitStack
from pathlib import Path

import httpx2
from programs import SOURCE, WAIT_SECONDS, Program

from server.admin import control
from tests.free_ports import free_port

ALLOWED = 128
SERVED = ALLOWED - ALLOWED // 4
LIMITED = ("sh", "-c", f'ulimit -n {ALLOWED}; exec "$0" "$@"', *SOURCE)


def test_its_operator_and_its_health_are_served_while_callers_hold_all_connections(home: Path) -> None:
    program = Program(command=LIMITED, home=home)
    admin = free_port()
    options = ("--auth", "none", "--admin-port", str(admin))
    with program.serving(*options) as server, ExitStack() as stack:
        (warning,) = [
            json.loads(line) for line in server.said().splitlines() if "http.few_descriptors" in line
        ]
        assert (warning["allowed"], warning["connections"]) == (ALLOWED, SERVED)
        host, _, port = server.url.removeprefix("http://").rpartition(":")
        refused = 0
        for _ in range(2 * ALLOWED):
            connected = stack.enter_context(socket.create_connection((host, int(port)), timeout=60))
            connected.sendall(b"GET /nothing HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            answer = connected.recv(4096)
            refused += answer.startswith(b"HTTP/1.1 503")
        assert refused == 2 * ALLOWED - SERVED
        for path in ("healthz", "readyz"):  # a probe at the public port would else end what is well
            asked = httpx2.get(f"{server.url}/{path}", trust_env=False, timeout=WAIT_SECONDS)
            assert asked.status_code == 200, asked.text
        for _ in range(3):
            assert (
                httpx2.get(f"http://127.0.0.1:{admin}/readyz", trust_env=False, timeout=WAIT_SECONDS).text
                == "ready\n"
            )
            assert control.ask(program.data_dir, "status").ok
        metrics = httpx2.get(f"http://127.0.0.1:{admin}/metrics", trust_env=False, timeout=WAIT_SECONDS).text
        assert f"ostiary_connections_over_cap_total {refused}.0" in metrics
        assert "ostiary_connections_accept_errors_total 0.0" in metrics
        assert "ostiary_control_accept_errors_total 0.0" in metrics
