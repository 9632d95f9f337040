"""Places of an agent: who gets the next one, and that none is lost."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from server.backends import turns as limits
from server.backends.base import BackendError
from server.backends.turns import TURN_SECONDS, Turns


async def test_callers_take_turns_however_many_calls_each_brings() -> None:
    turns, order = Turns(1), list[str]()

    async def call(subject: str) -> None:
        async with turns.taken(subject, unhurried=False):
            order.append(subject)
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery, turns.taken("first", unhurried=False):
        for subject in "aaaaabbc":
            nursery.start_soon(call, subject)
            await trio.testing.wait_all_tasks_blocked()
    assert "".join(order) == "abcabaaa"


async def test_no_more_run_at_once_than_there_are_places() -> None:
    turns, running, most = Turns(3), 0, 0

    async def call(subject: str) -> None:
        nonlocal running, most
        async with turns.taken(subject, unhurried=True):
            running += 1
            most = max(most, running)
            await trio.testing.wait_all_tasks_blocked()
            running -= 1

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(call, str(number % 4))
    assert (most, running) == (3, 0)


async def test_whoever_waits_too_long_is_told_and_unhurried_ones_wait_on(
    autojump_clock: trio.testing.MockClock,
) -> None:
    turns, came = Turns(1), list[float]()

    async def wait() -> None:
        async with turns.taken("patient", unhurried=True):
            came.append(trio.current_time())

    async with trio.open_nursery() as nursery:
        begun = trio.current_time()
        async with turns.taken("first", unhurried=False):
            nursery.start_soon(wait)
            with pytest.raises(BackendError, match="busy"):
                async with turns.taken("hasty", unhurried=False):
                    pass
            assert trio.current_time() - begun == pytest.approx(TURN_SECONDS)
            await trio.sleep(1000)
    assert came[0] - begun == pytest.approx(TURN_SECONDS + 1000)


async def test_one_that_is_cancelled_while_it_waits_or_as_its_turn_comes_takes_no_place() -> None:
    turns = Turns(1)

    async def wait() -> None:
        async with turns.taken("waits", unhurried=True):
            await trio.sleep_forever()

    for as_it_comes in (True, False):
        async with trio.open_nursery() as nursery:
            async with turns.taken("first", unhurried=False):
                nursery.start_soon(wait)
                await trio.testing.wait_all_tasks_blocked()
                if not as_it_comes:
                    nursery.cancel_scope.cancel()
            nursery.cancel_scope.cancel()  # its turn has come, and it does not know yet
        with trio.fail_after(1):
            async with turns.taken("next", unhurried=False):
                pass


async def test_a_place_is_given_up_and_taken_again() -> None:
    turns = Turns(1)
    async with turns.taken("a", unhurried=False) as turn:
        turn.leave()
        turn.leave()
        async with turns.taken("b", unhurried=False):
            pass
        await turn.take()
        await turn.take()
        with trio.move_on_after(0.01) as waiting:
            async with turns.taken("b", unhurried=True):
                pass
        assert waiting.cancelled_caught
    async with turns.taken("c", unhurried=False):
        pass


async def test_no_more_wait_than_can_be_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_WAITING", 1)
    turns = Turns(1)
    async with trio.open_nursery() as nursery, turns.taken("a", unhurried=True):
        nursery.start_soon(turns.acquire, "b", 10)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(BackendError, match="busy"):
            await turns.acquire("c", 10)
