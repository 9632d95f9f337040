"""Orphans of programs that this process started. They become its children, so that it knows what descends from it; whoever has children must
take their exit status.

Children of its own are left to whoever waits for them: those are in other threads (backends/starting.py), or named by `own`.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

import trio

_PR_SET_CHILD_SUBREAPER: Final = 36  # <sys/prctl.h>


def _none() -> Collection[int]:
    return ()


def adopt_orphans() -> None:
    """Become the parent of orphans, before the first program is started. Does nothing but on Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


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
