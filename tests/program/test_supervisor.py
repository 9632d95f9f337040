from __future__ import annotations

import socket
from pathlib import Path

import pytest

from server.program.supervisor import VARIABLE, supervisor_of


@pytest.mark.parametrize("abstract", [False, True])
def test_a_supervisor_is_told_that_the_server_is_ready_and_how_long_it_takes_to_stop(
    abstract: bool, tmp_path: Path
) -> None:
    address = f"@ostiary-{tmp_path.name}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(address.replace("@", "\0", 1) if abstract else address)
        listener.settimeout(60)
        supervisor = supervisor_of({VARIABLE: address})
        supervisor.ready("serving http://127.0.0.1:8420")
        assert listener.recv(4096) == b"READY=1\nSTATUS=serving http://127.0.0.1:8420"
        supervisor.stopping(10)
        assert listener.recv(4096) == b"STOPPING=1\nSTATUS=finishing calls\nEXTEND_TIMEOUT_USEC=40000000"


def test_what_the_server_starts_is_not_shown_the_way_to_its_supervisor() -> None:
    environ = {VARIABLE: "/run/systemd/notify", "HOME": "/"}
    supervisor_of(environ)
    assert environ == {"HOME": "/"}


@pytest.mark.parametrize("address", ["", "relative/path", "vsock:2:1234", "/nobody/listens/here"])
def test_a_supervisor_that_is_not_there_keeps_the_server_from_nothing(address: str) -> None:
    supervisor = supervisor_of({VARIABLE: address} if address else {})
    supervisor.ready("serving")
    supervisor.stopping(1)
