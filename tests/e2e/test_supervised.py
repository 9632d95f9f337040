"""The server under a supervisor that wants to be told, as systemd does with Type=notify."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

from programs import SOURCE, WAIT_SECONDS, Program


def test_it_says_ready_once_it_answers_and_stopping_when_it_drains(home: Path) -> None:
    address = home / "notify"
    supervised = Program(command=("env", f"NOTIFY_SOCKET={address}", *SOURCE), home=home)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(str(address))
        supervisor.settimeout(WAIT_SECONDS)
        with supervised.serving("--drain-seconds", "4") as server:
            assert supervisor.recv(4096).decode().splitlines() == ["READY=1", f"STATUS=serving {server.url}"]
            assert server.end(signal.SIGTERM) == 0
            told = supervisor.recv(4096).decode().splitlines()
            assert told[0] == "STOPPING=1"
            assert told[-1] == "EXTEND_TIMEOUT_USEC=34000000"
