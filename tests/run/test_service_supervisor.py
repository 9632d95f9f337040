from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
import trio
import trio.testing

from server.run.service_supervisor import VARIABLE, WATCHDOG, WATCHDOG_OF, supervisor_of


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
    environ = {VARIABLE: "/run/systemd/notify", WATCHDOG: "60000000", WATCHDOG_OF: "1", "HOME": "/"}
    supervisor_of(environ)
    assert environ == {"HOME": "/"}


@pytest.mark.parametrize("address", ["", "relative/path", "vsock:2:1234", "/nobody/listens/here"])
def test_a_supervisor_that_is_not_there_keeps_the_server_from_nothing(address: str) -> None:
    supervisor = supervisor_of({VARIABLE: address} if address else {})
    supervisor.ready("serving")
    supervisor.stopping(1)


@pytest.mark.parametrize("whose", ["", str(os.getpid()), str(os.getppid())])
async def test_a_supervisor_that_watches_hears_twice_in_its_time_that_all_is_well_and_only_while_it_is(
    whose: str, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    address = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(address))
        listener.setblocking(False)
        supervisor = supervisor_of({VARIABLE: str(address), WATCHDOG: "60000000", WATCHDOG_OF: whose})

        def heard() -> int:
            count = 0
            while True:
                try:
                    assert listener.recv(4096) == b"WATCHDOG=1"
                except BlockingIOError:
                    return count
                count += 1

        well = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(supervisor.keep_saying_well, lambda: well)
            await trio.sleep(301)
            assert heard() == 0, "nobody watches who is not ready"
            supervisor.ready("serving")
            assert listener.recv(4096).startswith(b"READY=1")
            await trio.sleep(30)
            for _ in range(5):
                assert heard() == 1
                await trio.sleep(30)
            well = False
            heard()
            await trio.sleep(300)
            assert heard() == 0
            well = True
            await trio.sleep(30)
            assert heard() == 1
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    "watched", [{}, {WATCHDOG: "soon"}, {WATCHDOG: "60000000", WATCHDOG_OF: "2147483647"}]
)
async def test_where_nobody_watches_this_process_nothing_is_said(
    watched: dict[str, str], autojump_clock: trio.testing.MockClock
) -> None:
    with trio.fail_after(1):
        await supervisor_of(dict(watched)).keep_saying_well()
