"""Deadlines and waits in fewer steps do what trio's own do: each case runs with both, and leaves nothing behind."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from math import inf

import pytest
import trio
from trio._core._run import GLOBAL_RUN_CONTEXT
from trio.testing import MockClock

from server.lib import short_waits
from server.lib.short_waits import DeadlineScope, is_cancelled, wait_readable

Made = Callable[[float], AbstractContextManager[trio.CancelScope]]
Case = Callable[[Made, list[object]], Awaitable[None]]


def trios(seconds: float) -> trio.CancelScope:
    return trio.CancelScope(deadline=trio.current_time() + seconds)


async def nothing(made: Made, seen: list[object]) -> None:
    with made(5) as scope:
        seen.append(scope.deadline - trio.current_time())
    seen.append((scope.cancelled_caught, scope.cancel_called))


async def in_time(made: Made, seen: list[object]) -> None:
    with made(5) as scope:
        await trio.sleep(4)
    seen.append((scope.cancelled_caught, trio.current_time()))


async def too_late(made: Made, seen: list[object]) -> None:
    with made(5) as scope:
        await trio.sleep(50)
        seen.append("not reached")
    seen.append((scope.cancelled_caught, trio.current_time()))


async def at_once(made: Made, seen: list[object]) -> None:
    with made(0) as scope:
        await trio.lowlevel.checkpoint()
        seen.append("not reached")
    seen.append(scope.cancelled_caught)


async def past_without_a_checkpoint(made: Made, seen: list[object]) -> None:
    with made(5) as scope:
        scope.deadline = trio.current_time() - 1
    await trio.lowlevel.checkpoint()
    seen.append((scope.cancelled_caught, scope.cancel_called))


async def moved(made: Made, seen: list[object]) -> None:
    with made(5) as scope:
        scope.deadline = inf
        await trio.sleep(100)
        scope.deadline = trio.current_time() + 3
        await trio.sleep(10)
    seen.append((scope.cancelled_caught, trio.current_time()))


async def cancelled_by_hand(made: Made, seen: list[object]) -> None:
    with made(5) as scope:
        scope.cancel()
        seen.append(trio.lowlevel.current_task().parent_nursery is not None)
        await trio.lowlevel.checkpoint()
    seen.append(scope.cancelled_caught)


async def error(made: Made, seen: list[object]) -> None:
    try:
        with made(5):
            raise KeyError("mine")
    except KeyError as problem:
        seen.append((str(problem), problem.__context__))


async def error_when_late(made: Made, seen: list[object]) -> None:
    try:
        with made(1):
            try:
                await trio.sleep(5)
            finally:
                raise KeyError("mine")
    except KeyError as problem:
        seen.append((str(problem), type(problem.__context__)))


async def from_outside(made: Made, seen: list[object]) -> None:
    inner = list[trio.CancelScope]()
    with trio.CancelScope() as outer:
        with made(50) as scope:
            inner.append(scope)
            outer.cancel()
            seen.append(is_cancelled())
            await trio.sleep(5)
        seen.append("not reached")
    seen.append((outer.cancelled_caught, inner[0].cancelled_caught))


async def from_outside_before(made: Made, seen: list[object]) -> None:
    inner = list[trio.CancelScope]()
    with trio.CancelScope() as outer:
        outer.cancel()
        with made(50) as scope:
            inner.append(scope)
            seen.append(is_cancelled())
            await trio.lowlevel.checkpoint()
        seen.append("not reached")
    seen.append((outer.cancelled_caught, inner[0].cancelled_caught))


async def shielded(made: Made, seen: list[object]) -> None:
    inner = list[trio.CancelScope]()
    with trio.CancelScope() as outer:
        with made(7) as scope:
            inner.append(scope)
            scope.shield = True
            outer.cancel()
            await trio.sleep(3)
            seen.append(trio.current_time())
            scope.shield = False
        seen.append("left")
        await trio.lowlevel.checkpoint()
    seen.append((outer.cancelled_caught, inner[0].cancelled_caught))


async def two(made: Made, seen: list[object]) -> None:
    with made(9) as outer:
        with made(3) as inner:
            await trio.sleep(50)
        seen.append((inner.cancelled_caught, trio.current_time()))
        await trio.sleep(50)
    seen.append((outer.cancelled_caught, trio.current_time()))


async def tasks_inside(made: Made, seen: list[object]) -> None:
    with made(3) as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 50)
            nursery.start_soon(trio.sleep, 1)
    seen.append((scope.cancelled_caught, trio.current_time()))


async def a_group(made: Made, seen: list[object]) -> None:
    async def fails() -> None:
        try:
            await trio.sleep(50)
        finally:
            raise KeyError("mine")

    try:
        with made(3):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep, 50)
                nursery.start_soon(fails)
    except BaseExceptionGroup as group:
        seen.append([str(each) for each in group.exceptions])


async def beside_others(made: Made, seen: list[object]) -> None:
    async def late(seconds: float) -> None:
        with made(seconds) as scope:
            await trio.sleep(10)
        seen.append((seconds, scope.cancelled_caught))

    async with trio.open_nursery() as nursery:
        for seconds in (3, 30, 4, 40, 5):
            nursery.start_soon(late, seconds)
    seen.sort(key=str)  # of two that end at once, trio may wake either first


CASES = (
    nothing, in_time, too_late, at_once, past_without_a_checkpoint, moved, cancelled_by_hand, error, error_when_late, from_outside,
    from_outside_before, shielded, two, tasks_inside, a_group, beside_others,
)  # fmt: skip


def came_to(made: Made, case: Case) -> list[object]:
    async def main() -> list[object]:
        task, seen = trio.lowlevel.current_task(), list[object]()
        around = task._cancel_status
        others, tasks = set(around._children), set(around._tasks)
        await case(made, seen)
        deadlines = GLOBAL_RUN_CONTEXT.runner.deadlines
        assert task._cancel_status is around
        assert around._tasks == tasks
        assert around._children == others
        assert deadlines._active == 0
        assert deadlines.next_deadline() == inf
        return seen

    return trio.run(main, clock=MockClock(autojump_threshold=0))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_deadline_is_trios(case: Case) -> None:
    found = came_to(DeadlineScope, case)
    assert found
    assert found == came_to(trios, case)


def test_the_version_of_trio_was_looked_at() -> None:
    assert short_waits.KNOWN


async def test_one_that_nobody_looked_at_is_left_to_trio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(short_waits, "KNOWN", False)
    monkeypatch.setattr(short_waits, "_EPOLL", False)
    ours, theirs = socket.socketpair()
    with ours, theirs, DeadlineScope(30) as scope:
        theirs.send(b"x")
        await wait_readable(ours)
    assert not scope.cancelled_caught


async def test_a_socket_is_waited_for_and_can_be_left() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_readable, ours)
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(trio.BusyResourceError):
                await wait_readable(ours)
            nursery.cancel_scope.cancel()
        theirs.send(b"x")
        await wait_readable(ours)
        async with trio.open_nursery() as nursery:
            theirs.close()
            ours.recv(1)
            nursery.start_soon(wait_readable, ours)
