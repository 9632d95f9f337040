"""Whose turn it is when an agent has as many calls as it may have at once: one scheduler for all back-ends.

A place that becomes free goes to whoever holds the fewest, so that callers who wait have equal parts of an agent, however many calls
each of them has in line, and however long these take. Who holds equally many takes turns. Tasks wait behind calls for whose answer
somebody sits there, but one of them has every fifth place that is given while they wait. The line is bounded: when it is full, whoever has
the longest part of it is sent away.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from functools import partial
from typing import Final

import trio

TURN_SECONDS: Final = 10.0  # a call for whose answer somebody waits
# 20 KiB each, with all that hangs on a call that waits.
LONGEST_LINE: Final = 1024
# Of the places that are given while both kinds wait, so many go to calls, and then one to a task.
CALLS_BEFORE_A_TASK: Final = 4
_FULL: Final = "as many calls as may wait for it are waiting"


class NoTurn(Exception):
    """It was not this call's turn: it has waited for as long as it may, or the line is full of others."""


class _Waiter:
    __slots__ = ("bounded", "caller", "sent_away", "task", "unhurried")

    def __init__(self, caller: str, task: trio.lowlevel.Task, *, unhurried: bool, bounded: bool) -> None:
        self.caller: Final = caller
        self.task: Final = task
        self.unhurried: Final = unhurried
        self.bounded: Final = bounded
        self.sent_away = False


class _Queue:
    """Those of one kind who wait: of each caller in order, and callers by how many places they hold."""

    def __init__(self) -> None:
        self.waiters: dict[str, OrderedDict[_Waiter, None]] = {}
        self._callers: dict[int, OrderedDict[str, None]] = {}  # by places held, in order of their turn

    def add(self, waiter: _Waiter, held: int, *, first: bool) -> None:
        waiters = self.waiters.get(waiter.caller)
        if waiters is None:
            waiters = self.waiters[waiter.caller] = OrderedDict()
            self._enter(waiter.caller, held)
        waiters[waiter] = None
        if first:
            waiters.move_to_end(waiter, last=False)

    def remove(self, waiter: _Waiter, held: int) -> None:
        waiters = self.waiters[waiter.caller]
        del waiters[waiter]
        if not waiters:
            del self.waiters[waiter.caller]
            self._leave(waiter.caller, held)

    def moved(self, caller: str, before: int, held: int) -> None:
        """The caller holds more or fewer places now."""
        if caller in self.waiters:
            self._leave(caller, before)
            self._enter(caller, held)

    def next(self) -> _Waiter:
        """Whoever's turn it is."""
        # There are few different numbers of places held, since their sum is bounded.
        caller = next(iter(self._callers[min(self._callers)]))
        return next(iter(self.waiters[caller]))

    def _enter(self, caller: str, held: int) -> None:
        self._callers.setdefault(held, OrderedDict())[caller] = None

    def _leave(self, caller: str, held: int) -> None:
        callers = self._callers[held]
        del callers[caller]
        if not callers:
            del self._callers[held]


class Turns:
    """The places of one agent. Whoever takes one gives it back, under the same name."""

    def __init__(self, places: int, *, longest_line: int = LONGEST_LINE) -> None:
        self.free = places  # more than 0 only where nobody waits
        self.waiting = 0
        self._longest_line = longest_line
        self._in_line = 0  # of those who wait, the ones that the line is bounded for
        self._held: dict[str, int] = {}
        self._calls = _Queue()
        self._tasks = _Queue()
        self._calls_in_a_row = 0  # while tasks waited

    def take_nowait(self, caller: str) -> bool:
        """Whether there was a place."""
        if self.free <= 0:
            return False
        self.free -= 1
        self._held[caller] = self._held.get(caller, 0) + 1
        return True

    async def take(
        self, caller: str, *, seconds: float = TURN_SECONDS, unhurried: bool = False, again: bool = False
    ) -> None:
        """Wait for a place. `unhurried`: for as long as it takes, behind those who are in a hurry. `again`: the same for a call that had
        one and gave it up for a while; it comes before its caller's others. Raises `NoTurn`."""
        if self.take_nowait(caller):
            return
        # Tasks are bounded where they are made, calls that go on by the places.
        bounded = not (unhurried or again)
        if bounded and self._in_line >= self._longest_line:
            self._make_room(caller)
        waiter = _Waiter(caller, trio.lowlevel.current_task(), unhurried=unhurried, bounded=bounded)
        queue = self._tasks if unhurried else self._calls
        queue.add(waiter, self._held.get(caller, 0), first=again)
        self.waiting += 1
        self._in_line += bounded
        with trio.move_on_after(seconds if bounded else math.inf):
            await trio.lowlevel.wait_task_rescheduled(partial(self._abandon, waiter))
            if waiter.sent_away:
                raise NoTurn(_FULL)
            return
        raise NoTurn("as many calls as it may run at once are running")

    def give_back(self, caller: str) -> None:
        held = self._held[caller] - 1
        if held:
            self._held[caller] = held
        else:
            del self._held[caller]
        self.free += 1
        if self.waiting:
            self._calls.moved(caller, held + 1, held)
            self._tasks.moved(caller, held + 1, held)
            self._give_next()

    def held_by(self, caller: str) -> int:
        return self._held.get(caller, 0)

    def _give_next(self) -> None:
        """The free place to whoever's turn it is."""
        calls, tasks = bool(self._calls.waiters), bool(self._tasks.waiters)
        if tasks and (not calls or self._calls_in_a_row >= CALLS_BEFORE_A_TASK):
            waiter = self._tasks.next()
            self._calls_in_a_row = 0
        else:
            waiter = self._calls.next()
            self._calls_in_a_row += tasks
        self._remove(waiter)
        caller = waiter.caller
        held = self._held.get(caller, 0)
        self.free -= 1
        self._held[caller] = held + 1
        self._calls.moved(caller, held, held + 1)
        self._tasks.moved(caller, held, held + 1)
        trio.lowlevel.reschedule(waiter.task)

    def _make_room(self, caller: str) -> None:
        """Send the last one away of whoever has the longest part of the line. Raises `NoTurn` where that is this caller."""
        waiters = self._calls.waiters
        own = len(waiters.get(caller, ()))
        longest = max(waiters, key=lambda each: len(waiters[each]), default=caller)
        if longest == caller or len(waiters[longest]) <= own + 1:
            raise NoTurn(_FULL)
        last = next(reversed(waiters[longest]))
        if not last.bounded:  # only calls that go on are left of it
            raise NoTurn(_FULL)
        last.sent_away = True
        self._remove(last)
        trio.lowlevel.reschedule(last.task)

    def _abandon(self, waiter: _Waiter, _: object) -> trio.lowlevel.Abort:
        """It is cancelled, or has waited for too long."""
        self._remove(waiter)
        return trio.lowlevel.Abort.SUCCEEDED

    def _remove(self, waiter: _Waiter) -> None:
        queue = self._tasks if waiter.unhurried else self._calls
        queue.remove(waiter, self._held.get(waiter.caller, 0))
        self.waiting -= 1
        self._in_line -= waiter.bounded
