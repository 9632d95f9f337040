"""A place for as long as a block (agents/base/agent_turns.py); whose turn it is, is tests/lib/rates/test_fair_turns.py's."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from server.agents.base.agent_turns import SharedPlaces
from server.lib.rates.fair_turns import TURN_SECONDS
from server.mcp.call_failures import Busy


async def test_it_is_free_again_after_the_block_whatever_happened_in_it() -> None:
    places = SharedPlaces(1)
    for _ in range(3):
        with pytest.raises(KeyError):
            async with places.taken("a", unhurried=False):
                raise KeyError


async def test_whoever_waits_too_long_is_told_and_a_task_is_not(
    autojump_clock: trio.testing.MockClock,
) -> None:
    places, came = SharedPlaces(1), list[float]()

    async def task() -> None:
        async with places.taken("b", unhurried=True):
            came.append(trio.current_time() - begun)

    begun = trio.current_time()
    async with trio.open_nursery() as nursery, places.taken("a", unhurried=False):
        nursery.start_soon(task)
        with pytest.raises(Busy, match="as many calls"):
            async with places.taken("c", unhurried=False):
                raise AssertionError
        assert trio.current_time() - begun == TURN_SECONDS
        await trio.sleep(100)
    assert came == [TURN_SECONDS + 100]


async def test_a_place_that_is_given_up_for_a_while_is_another_calls() -> None:
    places, order = SharedPlaces(1), list[str]()

    async def other() -> None:
        async with places.taken("a", unhurried=False):
            order.append("the other")

    async with trio.open_nursery() as nursery, places.taken("a", unhurried=False) as place:
        nursery.start_soon(other)
        await trio.testing.wait_all_tasks_blocked()
        assert not order
        place.leave()
        place.leave()
        await trio.testing.wait_all_tasks_blocked()
        assert order == ["the other"]
        await place.take()
        await place.take()
        order.append("the first")
    assert order == ["the other", "the first"]
