"""The programs that a run of the tests starts: they end with it, whatever ended it.

A run goes on in a child of the process that was started. That one waits for it, passes signals and the outcome on, and ends what the run left:
on Linux every orphan below it becomes its child, also one with a session of its own. SIGTERM ends a run as Ctrl-C does, so that tests and
fixtures clean up. Only who kills both at once, by SIGKILL to their group, leaves programs running; PostgreSQL ends then, too.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from types import FrameType

import pytest

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # <sys/prctl.h>
_WAITED_FOR = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGCHLD)
# For a program that was asked to end. PostgreSQL gives back what it shares, if it is let.
_GRACE_SECONDS = 2.0


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    if sys.platform == "linux":
        _go_on_in_a_child()
    # A shell starts what it runs beside itself with SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    run = EndableRun()
    early_config.pluginmanager.register(run)
    signal.signal(signal.SIGTERM, run.end)


class EndableRun:
    """A run that SIGTERM ends."""

    def __init__(self) -> None:
        self._is_ended = False

    def end(self, _number: int, _frame: FrameType | None) -> None:
        if self._is_ended:  # who ends a group tells us, and our parent, who tells us again
            return
        self._is_ended = True
        signal.raise_signal(signal.SIGINT)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """A test on Trio only fails when it is interrupted, and the next would begin."""
        try:
            return (yield)
        finally:
            if self._is_ended:
                item.session.shouldstop = "ended by SIGTERM"


def _go_on_in_a_child() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED_FOR)
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    guard = os.getpid()
    run = os.fork()
    if run:
        code = _outcome_of(run)
        _end_orphans()
        os._exit(code)
    # It is sent when the thread ends that forked: the guard has no other.
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != guard:
        os._exit(1)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _outcome_of(run: int) -> int:
    """Wait for the end of the run, passing signals on; return its exit code, as a shell has it."""
    while True:
        told = signal.sigwaitinfo(_WAITED_FOR)
        if told.si_signo != signal.SIGCHLD:
            if told.si_code <= 0:  # by a process: a terminal tells all of a group by itself
                os.kill(run, told.si_signo)
            continue
        while True:
            ended, status = os.waitpid(-1, os.WNOHANG)
            if ended == 0:
                break
            if ended == run:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code


def _end_orphans() -> None:
    """Whoever is ended leaves its children to us, so there are more until there are none."""
    until = time.monotonic() + _GRACE_SECONDS
    asked: set[int] = set()
    with suppress(ChildProcessError):
        while True:
            late = time.monotonic() > until
            for orphan in _children():
                if late or orphan not in asked:
                    asked.add(orphan)
                    with suppress(ProcessLookupError, PermissionError):
                        os.kill(orphan, signal.SIGKILL if late else signal.SIGTERM)
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                if time.monotonic() > until + _GRACE_SECONDS:
                    return  # another user's, perhaps
                time.sleep(0.02)


def _children() -> list[int]:
    own = str(os.getpid())
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                if (entry / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[1] == own:
                    found.append(int(entry.name))
    return found
