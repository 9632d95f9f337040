"""The server under a supervisor that wants to be told, as systemd does with Type=notify, and with no more rights than its unit gives."""

from __future__ import annotations

import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from confined import NUMBERS
from programs import BINARY, SOURCE, WAIT_SECONDS, Program, needed

from server.run.service.unit import ServiceUnit, unit_text

CONFINED = Path(__file__).with_name("confined.py")
# Memory that is never both written and run is a promise of kernels since 6.3.
KERNEL = tuple(int(part) for part in re.findall(r"\d+", platform.release())[:2])
confinable = pytest.mark.skipif(
    not (KERNEL >= (6, 3) and NUMBERS.exists() and shutil.which("systemd-analyze")),
    reason="wants a newer kernel, its headers, or systemd's lists of calls",
)


def confined(home: Path, command: Sequence[str], *, starts_programs: bool = False) -> Program:
    unit = ServiceUnit(
        name="ostiary", system=True, command=("/x",), user="ostiary", starts_programs=starts_programs
    )
    file = home / "ostiary.service"
    file.write_text(unit_text(unit), "utf-8")
    return Program(command=(sys.executable, "-P", str(CONFINED), str(file), *command), home=home)


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


TRIES = """
import mmap, os, socket
def tried(what):
    try:
        what()
    except OSError:
        return False
    return True
print(*[tried(each) for each in (
    lambda: mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC),
    lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW),
    lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW),
    lambda: os.chroot("/"),
    lambda: socket.socket(socket.AF_INET),
)])
"""


@confinable
@pytest.mark.parametrize(
    ("starts_programs", "may"),
    [(False, "False False False False True"), (True, "True True False False True")],
)
def test_a_program_in_the_units_place_may_do_what_the_unit_leaves_it(
    starts_programs: bool, may: str, home: Path
) -> None:
    """That what follows is held by the same bounds as under systemd."""
    program = confined(home, (sys.executable,), starts_programs=starts_programs)
    done = subprocess.run((*program.command, "-c", TRIES), capture_output=True, text=True, check=True)
    assert done.stdout == f"{may}\n"


@confinable
@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [SOURCE, pytest.param(BINARY, marks=pytest.mark.binary)], ids=["source", "binary"]
)
def test_everything_works_with_what_the_unit_leaves_it(command: Sequence[str], home: Path) -> None:
    if command is BINARY:
        needed(Path(BINARY[0]), "scripts/build")
    confined(home, command).run("--smoke-test")


@confinable
def test_agents_that_are_programs_work_with_what_their_unit_leaves_them(home: Path) -> None:
    (home / "agent.py").write_text("def add(a: int, b: int) -> int:\n    return a + b\n", "utf-8")
    ostiary = confined(home, SOURCE, starts_programs=True)
    with ostiary.serving("--auth", "none", str(home / "agent.py")) as server:
        caller = Program(command=SOURCE, home=home)
        assert caller.run("call", server.endpoint, "add", "a=2", "b=3").stdout == "5\n"
        assert server.end(signal.SIGTERM) == 0
