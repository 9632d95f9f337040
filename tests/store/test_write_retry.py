"""Jobs that the store could not do when they were due: each is done, in order, whoever asks, and none twice because two asked."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from io import StringIO
from typing import Any

import pytest
import structlog
import trio
import trio.testing

from server.store.jobs import JobTooSlow, StatementFailed, StoreUnavailable
from server.store.write_retry import AGAIN_SECONDS, MOST_SLOW, WriteRetry


class Slow:
    """A store that takes a second for each job. `refuses` says what it raises instead."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.tried = 0
        self.refuses: Callable[[str], Exception | None] = lambda _: None

    async def write(self, job: Any) -> Any:
        self.tried += 1
        await trio.sleep(1)
        (name,) = job.args
        if error := self.refuses(name):
            raise error
        self.done.append(name)
        return f"{name} was done"


class Place:
    def __init__(self) -> None:
        self.store, self.log = Slow(), StringIO()
        store: Any = self.store
        self.arrears = WriteRetry(store, structlog.wrap_logger(structlog.PrintLogger(self.log)), "x.dropped")

    def owe(self, *names: str) -> None:
        for name in names:
            self.arrears.owe(partial(lambda name, db: None, name))


async def test_two_who_ask_at_once_do_each_job_once(autojump_clock: trio.testing.MockClock) -> None:
    place = Place()
    place.owe("first", "second", "third")
    async with trio.open_nursery() as both:
        for _ in range(2):
            both.start_soon(place.arrears.settle)
    assert place.store.done == ["first", "second", "third"]
    assert not place.arrears


async def test_whoever_comes_while_the_store_cannot_is_told_with_the_one_who_asked(
    autojump_clock: trio.testing.MockClock,
) -> None:
    place, told = Place(), list[float]()
    place.owe("first", "second")
    place.store.refuses = lambda _: StoreUnavailable("away")

    async def ask() -> None:
        with pytest.raises(StoreUnavailable, match="away"):
            await place.arrears.settle()
        told.append(trio.current_time())

    begun = trio.current_time()
    async with trio.open_nursery() as all_of_them:
        for _ in range(20):
            all_of_them.start_soon(ask)
    assert place.store.tried == 1
    assert told == [begun + 1] * 20
    place.store.refuses = lambda _: None
    await place.arrears.settle()
    assert place.store.done == ["first", "second"]


async def test_what_is_owed_is_done_without_anybody_asking(autojump_clock: trio.testing.MockClock) -> None:
    place = Place()
    place.store.refuses = lambda _: StoreUnavailable("away") if place.store.tried < 5 else None
    async with trio.open_nursery() as background:
        background.start_soon(place.arrears.run)
        await trio.testing.wait_all_tasks_blocked()
        place.owe("first")
        begun = trio.current_time()
        while place.arrears:
            await trio.sleep(0.01)
        assert trio.current_time() - begun < 5 + 5 * AGAIN_SECONDS
        place.owe("second")
        await trio.sleep(1.01)
        background.cancel_scope.cancel()
    assert place.store.done == ["first", "second"]


async def test_what_is_owed_at_the_end_is_tried_once_more(autojump_clock: trio.testing.MockClock) -> None:
    place = Place()
    async with trio.open_nursery() as background:
        background.start_soon(place.arrears.run)
        await trio.testing.wait_all_tasks_blocked()
        place.owe("last")
        background.cancel_scope.cancel()
    assert place.store.done == ["last"]


async def test_a_job_that_can_never_be_done_does_not_hold_up_the_others(
    autojump_clock: trio.testing.MockClock,
) -> None:
    place = Place()
    place.owe("broken", "wrong", "whole")
    wrongs: dict[str, Exception] = {"broken": StatementFailed("no"), "wrong": KeyError("no")}
    place.store.refuses = lambda name: wrongs.get(name)
    await place.arrears.settle()
    assert place.store.done == ["whole"]
    assert place.log.getvalue().count("x.dropped") == 2


async def test_a_job_that_took_too_long_is_tried_again_and_not_for_ever(
    autojump_clock: trio.testing.MockClock,
) -> None:
    place = Place()
    place.owe("slow", "whole")
    place.store.refuses = lambda name: JobTooSlow("slow") if name == "slow" else None
    for _ in range(MOST_SLOW - 1):
        with pytest.raises(StoreUnavailable):
            await place.arrears.settle()
    assert not place.log.getvalue()
    place.store.refuses = lambda _: None
    await place.arrears.settle()
    assert place.store.done == ["slow", "whole"]
    place.owe("slow", "whole")
    place.store.refuses = lambda name: JobTooSlow("slow") if name == "slow" else None
    for _ in range(MOST_SLOW - 1):
        with pytest.raises(StoreUnavailable):
            await place.arrears.settle()
    await place.arrears.settle()
    assert place.store.done[2:] == ["whole"]
    assert "x.dropped" in place.log.getvalue()


async def test_whoever_owed_it_is_told_what_came_of_it_once_it_is_done(
    autojump_clock: trio.testing.MockClock,
) -> None:
    place, told = Place(), list[object]()
    place.arrears.owe(partial(lambda name, db: None, "first"), told.append)
    place.store.refuses = lambda _: StoreUnavailable("away")
    with pytest.raises(StoreUnavailable):
        await place.arrears.settle()
    assert told == []
    place.store.refuses = lambda _: None
    await place.arrears.settle()
    await place.arrears.settle()
    assert told == ["first was done"]
