"""The waits and deadlines of trio that every call goes through, in a quarter of the function calls.

They take the steps that trio takes where nothing unusual happens. Where anything does (an error, a cancellation, a version of trio that was
not looked at), trio does it itself.
"""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import socket
import sys
from collections.abc import Awaitable
from math import inf
from types import TracebackType
from typing import Final

import trio
from trio._core._run import GLOBAL_RUN_CONTEXT, CancelStatus

# The version whose steps these are.
KNOWN: Final = trio.__version__.startswith("0.35.")
# `wait_readable` without its two wrappers, where the kernel is asked by epoll.
_EPOLL: Final = KNOWN and sys.platform == "linux"


class DeadlineScope:
    """A block that is cancelled after `seconds`; in it stands the `trio.CancelScope`. For one block each."""

    __slots__ = ("_scope", "_seconds")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __enter__(self) -> trio.CancelScope:
        runner, task = GLOBAL_RUN_CONTEXT.runner, GLOBAL_RUN_CONTEXT.task
        at = runner.clock.current_time() + self._seconds
        scope = self._scope = trio.CancelScope(deadline=at)
        around = task._cancel_status
        if not KNOWN or self._seconds <= 0 or around.effectively_cancelled or runner.is_guest:
            return scope.__enter__()
        status = CancelStatus(scope)
        status._parent = around
        around._children.add(status)
        around._tasks.remove(task)
        status._tasks.add(task)
        task._cancel_status = status
        scope._has_been_entered = True
        scope._cancel_status = status
        scope._registered_deadline = at
        runner.deadlines.add(at, scope)
        return scope

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        scope = self._scope
        task, status = GLOBAL_RUN_CONTEXT.task, scope._cancel_status
        if (
            not KNOWN
            or error is not None
            or status is None
            or status.effectively_cancelled
            or task._cancel_status is not status
            or status._children
            or len(status._tasks) > 1
            or scope._cancel_called
            or (around := status._parent) is None
        ):
            return scope.__exit__(kind, error, trace)
        around._children.remove(status)
        around._tasks.add(task)
        status._tasks.remove(task)
        status._parent = scope._cancel_status = None
        task._cancel_status = around
        if scope._registered_deadline != inf:
            GLOBAL_RUN_CONTEXT.runner.deadlines._active -= 1
            scope._registered_deadline = inf
        return None


def wait_readable(sock: socket.socket) -> Awaitable[None]:
    """Wait until the socket can be read from, as `trio.lowlevel.wait_readable`."""
    if _EPOLL:
        return GLOBAL_RUN_CONTEXT.runner.io_manager._epoll_wait(sock, "read_task")
    return trio.lowlevel.wait_readable(sock)  # noqa: ASYNC105


def is_cancelled() -> bool:
    """Return whether the next checkpoint of this task would raise `trio.Cancelled`: `if is_cancelled(): await trio.lowlevel.checkpoint()`."""
    return GLOBAL_RUN_CONTEXT.task._cancel_status.effectively_cancelled
