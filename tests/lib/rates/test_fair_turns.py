"""Whose turn it is: equal parts for those who wait, tasks behind calls, a line that is bounded, and cancelling at any moment."""

from __future__ import annotations

from collections import Counter, deque
from functools import partial

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from server.lib.rates.fair_turns import NoTurn, Turns

CALLS_BEFORE_A_TASK = 4

wait_until_blocked = trio.testing.wait_all_tasks_blocked


class Crowd:
    """Calls that have had their turn, in order, and end when the test says so."""

    def __init__(self, nursery: trio.Nursery, turns: Turns) -> None:
        self.turns = turns
        self.running: deque[tuple[str, trio.Event]] = deque()
        self.begun: list[str] = []
        self.refused: list[str] = []
        self._nursery = nursery

    def call(self, caller: str, *, unhurried: bool = False, seconds: float = 3600) -> trio.CancelScope:
        scope = trio.CancelScope()
        self._nursery.start_soon(partial(self._call, caller, scope, unhurried=unhurried, seconds=seconds))
        return scope

    async def _call(self, caller: str, scope: trio.CancelScope, *, unhurried: bool, seconds: float) -> None:
        with scope:
            try:
                await self.turns.take(caller, seconds=seconds, unhurried=unhurried)
            except NoTurn:
                self.refused.append(caller)
                return
            try:
                ended = trio.Event()
                self.running.append((caller, ended))
                self.begun.append(caller)
                await ended.wait()
            finally:
                self.turns.give_back(caller)

    async def end(self, number: int = 1) -> None:
        """Those that run for longest."""
        for _ in range(number):
            self.running.popleft()[1].set()
            await wait_until_blocked()


async def test_a_place_that_is_free_is_taken_at_once() -> None:
    turns = Turns(2)
    assert turns.take_nowait("a") and turns.take_nowait("b") and not turns.take_nowait("c")
    turns.give_back("a")
    await turns.take("c")
    assert (turns.free, turns.held_by("c"), turns.held_by("a")) == (0, 1, 0)


async def test_whoever_comes_later_with_few_calls_does_not_wait_for_who_came_with_many() -> None:
    async with trio.open_nursery() as nursery:
        crowd = Crowd(nursery, Turns(10))
        for _ in range(200):
            crowd.call("many")
        await wait_until_blocked()
        for _ in range(30):
            crowd.call("few")
        await wait_until_blocked()
        await crowd.end(5)
        assert crowd.begun[10:] == ["few"] * 5
        # From here on each has half of the places, as long as both wait.
        await crowd.end(40)
        assert Counter(crowd.begun[15:]) == {"many": 20, "few": 20}
        held = Counter(caller for caller, _ in crowd.running)
        assert held == {"many": 5, "few": 5}
        nursery.cancel_scope.cancel()


async def test_who_has_long_calls_holds_no_more_places_for_that() -> None:
    """With turns alone, calls that take ten times as long would hold ten times as many places."""
    async with trio.open_nursery() as nursery:
        crowd = Crowd(nursery, Turns(10))
        for _ in range(100):
            for caller in ("long", "short"):
                crowd.call(caller)
                await wait_until_blocked()  # by turns: who holds the first places is no matter of luck
        for _ in range(150):
            short = next((each for each in crowd.running if each[0] == "short"), None)
            if short is None:
                break
            crowd.running.remove(short)
            short[1].set()
            await wait_until_blocked()
            held = Counter(caller for caller, _ in crowd.running)
            assert held["long"] <= 6 or crowd.begun.count("short") == 100
        nursery.cancel_scope.cancel()


async def test_every_caller_of_many_has_their_turn() -> None:
    async with trio.open_nursery() as nursery:
        crowd = Crowd(nursery, Turns(4))
        for _ in range(4):
            crowd.call("first")
        await wait_until_blocked()
        for number in range(20):
            for _ in range(10):
                crowd.call(f"caller {number}")
        await wait_until_blocked()
        await crowd.end(40)
        assert Counter(crowd.begun[4:]) == {f"caller {number}": 2 for number in range(20)}
        nursery.cancel_scope.cancel()


async def test_tasks_wait_behind_calls_and_do_not_starve() -> None:
    async with trio.open_nursery() as nursery:
        crowd = Crowd(nursery, Turns(1))
        crowd.call("first")
        await wait_until_blocked()
        for _ in range(5):
            crowd.call("task", unhurried=True)
        await wait_until_blocked()
        for _ in range(50):
            crowd.call("call")
        await wait_until_blocked()
        await crowd.end(25)
        part = CALLS_BEFORE_A_TASK + 1
        assert crowd.begun[1:] == (["call"] * CALLS_BEFORE_A_TASK + ["task"]) * (25 // part)
        nursery.cancel_scope.cancel()


async def test_tasks_alone_have_all_places() -> None:
    async with trio.open_nursery() as nursery:
        crowd = Crowd(nursery, Turns(3))
        for _ in range(9):
            crowd.call("task", unhurried=True)
        await wait_until_blocked()
        await crowd.end(6)
        assert len(crowd.begun) == 9
        nursery.cancel_scope.cancel()


async def test_who_is_cancelled_while_waiting_leaves_the_line_and_takes_no_place() -> None:
    turns = Turns(1)
    async with trio.open_nursery() as nursery:
        crowd = Crowd(nursery, turns)
        crowd.call("a")
        await wait_until_blocked()
        scopes = [crowd.call(caller) for caller in ("b", "c", "b")]
        await wait_until_blocked()
        for scope in scopes[:2]:
            scope.cancel()
        await wait_until_blocked()
        assert turns.waiting == 1
        await crowd.end()
        assert crowd.begun == ["a", "b"]
        await crowd.end()
        assert (turns.free, turns.waiting) == (1, 0)


async def test_a_place_given_just_before_the_cancellation_is_given_back() -> None:
    turns = Turns(1)
    async with trio.open_nursery() as nursery:
        crowd = Crowd(nursery, turns)
        assert turns.take_nowait("a")
        scope = crowd.call("b")
        await wait_until_blocked()
        turns.give_back("a")  # wakes b, which has not run yet
        scope.cancel()
        await wait_until_blocked()
        assert (turns.free, turns.waiting, turns.held_by("b")) == (1, 0, 0)


async def test_a_call_waits_for_its_turn_only_so_long_and_a_task_as_long_as_it_takes(
    autojump_clock: trio.testing.MockClock,
) -> None:
    turns = Turns(1)
    assert turns.take_nowait("a")
    begun = trio.current_time()
    with pytest.raises(NoTurn, match="at once"):
        await turns.take("b")
    assert trio.current_time() - begun == 10
    with trio.move_on_after(100_000) as waiting:
        await turns.take("b", unhurried=True)
    assert waiting.cancelled_caught
    assert turns.waiting == 0


async def test_a_full_line_sends_away_the_last_of_whoever_has_most_in_it() -> None:
    turns = Turns(1, longest_line=10)
    async with trio.open_nursery() as nursery:
        crowd = Crowd(nursery, turns)
        for _ in range(20):
            crowd.call("many")
        await wait_until_blocked()
        assert (turns.waiting, crowd.refused) == (10, ["many"] * 9)
        for _ in range(8):
            crowd.call("few")
        await wait_until_blocked()
        # Until both have as many: then it is the newcomer who is refused.
        assert turns.waiting == 10
        assert Counter(crowd.refused) == {"many": 14, "few": 3}
        for number in range(5):
            crowd.call(f"one {number}")
        await wait_until_blocked()
        assert turns.waiting == 10
        assert not any(caller.startswith("one") for caller in crowd.refused)
        nursery.cancel_scope.cancel()
    assert (turns.free, turns.waiting) == (1, 0)


async def test_who_goes_on_after_a_question_comes_before_their_own_others_and_is_never_sent_away() -> None:
    turns = Turns(1, longest_line=2)
    order: list[str] = []

    async def go_on() -> None:
        await turns.take("a", again=True)
        order.append("again")
        turns.give_back("a")

    async with trio.open_nursery() as nursery:
        crowd = Crowd(nursery, turns)
        assert turns.take_nowait("b")
        for _ in range(2):
            crowd.call("a")
        await wait_until_blocked()
        nursery.start_soon(go_on)
        await wait_until_blocked()
        assert turns.waiting == 3
        crowd.call("c")  # sends away a call of a's, which has most in line
        await wait_until_blocked()
        assert crowd.refused == ["a"]
        turns.give_back("b")
        await wait_until_blocked()
        assert order == ["again"]
        nursery.cancel_scope.cancel()


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 5),
    st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["call", "task", "end", "cancel"]))),
)
def test_whatever_happens_no_place_is_lost_and_none_is_free_while_somebody_waits(
    places: int, steps: list[tuple[str, str]]
) -> None:
    async def play() -> None:
        turns = Turns(places, longest_line=6)
        async with trio.open_nursery() as nursery:
            crowd = Crowd(nursery, turns)
            scopes: dict[str, list[trio.CancelScope]] = {caller: [] for caller in "abcd"}
            for caller, step in steps:
                if step in ("call", "task"):
                    scopes[caller].append(crowd.call(caller, unhurried=step == "task"))
                elif step == "end" and crowd.running:
                    crowd.running.popleft()[1].set()
                elif step == "cancel" and scopes[caller]:
                    scopes[caller].pop().cancel()
                await wait_until_blocked()
                assert turns.free >= 0
                assert turns.free == 0 or turns.waiting == 0
                assert turns.free + sum(turns.held_by(each) for each in "abcd") == places
            nursery.cancel_scope.cancel()
        assert (turns.free, turns.waiting) == (places, 0)

    trio.run(play)
