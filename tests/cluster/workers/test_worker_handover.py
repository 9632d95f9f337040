"""What a worker is handed, and the command by which it is started."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from server.cli import form
from server.cluster.workers.worker_handover import VARIABLE, HandedOver, NotHanded, hand_over, take_over


def test_what_is_handed_over_arrives_and_is_passed_on_to_nothing_that_the_worker_starts() -> None:
    ours, theirs = socket.socketpair()
    listening = socket.socket()
    with ours, listening:
        handed = HandedOver(number=2, public=(os.dup(listening.fileno()),), speaks=True)
        hand_over(ours, handed)
        ours.sendall(b"what comes next")
        environ = {VARIABLE: str(theirs.detach()), "PATH": "/bin"}
        taken, sock = take_over(environ)
        with sock:
            assert taken == handed
            assert environ == {"PATH": "/bin"}
            assert sock.recv(100) == b"what comes next"
            for descriptor in (sock.fileno(), *taken.descriptors):
                assert not os.get_inheritable(descriptor)
        os.close(handed.public[0])


@pytest.mark.parametrize("written", ["", "x", "-1", "99999"])
def test_a_variable_with_nothing_behind_it_makes_no_worker(written: str) -> None:
    environ = {VARIABLE: written}
    with pytest.raises(NotHanded, match=VARIABLE):
        take_over(environ)
    assert VARIABLE not in environ


def test_a_socket_that_brings_something_else_makes_no_worker() -> None:
    for sent in (b"hello\n", b"{}\n", b""):
        ours, theirs = socket.socketpair()
        with ours:
            ours.sendall(sent)
            ours.shutdown(socket.SHUT_WR)
            with pytest.raises(NotHanded):
                take_over({VARIABLE: str(theirs.detach())})


@pytest.mark.parametrize(
    ("frozen", "command"),
    [
        # The executable knows by its environment that it was unpacked already, and is no second launcher: one process, whose number is
        # the worker's.
        (True, ["/opt/ostiary"]),
        (False, ["/opt/ostiary", "-P", "-m", "server"]),
    ],
)
def test_a_worker_is_this_program_in_whatever_form_it_is(
    frozen: bool, command: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "frozen", frozen, raising=False)
    monkeypatch.setattr(sys, "executable", "/opt/ostiary")
    assert form.this_again() == command


def test_in_the_executable_a_worker_leaves_alone_what_is_its_parents() -> None:
    """Its launcher's folder, and the end of whoever has started it."""
    entry = (Path(__file__).parent.parent.parent.parent / "build/entry.py").read_text("utf-8")
    assert f'WORKER = "{VARIABLE}"' in entry
