"""Orphans of programs that this process started. They become its children, so that it knows what descends from it; whoever has children must
take their exit status, and end those that are left when it stops: what outlives a server is nobody's descendant.

Children of its own are left to whoever waits for them: those are in other threads (agents/base/program_start.py), or named by `own`.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import trio

_PR_SET_CHILD_SUBREAPER: Final = 36  # <sys/prctl.h>
# Programs that the server knows were asked, and waited for, before: these are the others.
GRACE_SECONDS: Final = 0.5
# The kernel takes a moment, and each generation becomes ours as the one before it ends.
KILLED_SECONDS: Final = 2.0
_LOOK_AGAIN_SECONDS: Final = 0.02


def _none() -> Collection[int]:
    return ()


async def take_orphans(
    own: Callable[[], Collection[int]] = _none, *, task_status: trio.TaskStatus[None]
) -> None:
    """Take the exit status of orphans, until cancelled. Runs in the main thread."""
    with trio.open_signal_receiver(signal.SIGCHLD) as signals:
        task_status.started()
        take_ended(own())
        async for _ in signals:
            take_ended(own())


def take_ended(own: Collection[int]) -> None:
    """Take the exit status of children of the main thread that have ended, but for `own`."""
    try:
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text("ascii").split()
    except OSError:
        return
    for child in map(int, children):
        if child not in own:
            with suppress(ChildProcessError):
                os.waitpid(child, os.WNOHANG)


@contextmanager
def programs_ended() -> Generator[None]:
    """Become the parent of orphans meanwhile, and end what descends from this process then, but for children that it had before. Does nothing but on Linux."""
    if sys.platform != "linux":
        yield
        return
    before = _children()
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        end_children(before)


def end_children(spared: Collection[int] = (), grace: float = GRACE_SECONDS) -> None:
    """End all children, and those that become ours meanwhile. Blocks for `grace` and `KILLED_SECONDS` at most."""
    for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, KILLED_SECONDS)):
        told: set[int] = set()
        until = time.monotonic() + seconds
        while left := _children() - set(spared):
            if time.monotonic() >= until:
                break
            for child in left - told:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(child, number)  # not reaped yet, so its number is nobody else's
            told |= left
            time.sleep(_LOOK_AGAIN_SECONDS)
            for child in left:
                with suppress(ChildProcessError):
                    os.waitpid(child, os.WNOHANG)


def _children() -> set[int]:
    """Those of all threads: one that starts a program is its parent."""
    found: set[int] = set()
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            found.update(map(int, (thread / "children").read_text("ascii").split()))
    return found
