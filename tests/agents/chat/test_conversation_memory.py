from __future__ import annotations

import pytest
import trio
import trio.testing

from server.agents.chat.conversation_memory import CALLS_AT_ONCE, Memory, MemoryLimits
from server.lib.http_client.failures import DeadlinePassed
from server.mcp.call_failures import BackendError

LIMITS = MemoryLimits(
    sessions=3, sessions_per_subject=2, turns=10, conversation_bytes=100, idle_seconds=60, total_bytes=150
)
NEVER = float("inf")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def say(memory: Memory, subject: str, session: str, words: str = "hi") -> int:
    """How many exchanges the conversation had before this one."""
    async with memory.turn(subject, session, deadline=NEVER) as conversation:
        known = len(conversation.exchanges)
        memory.add(conversation, words, "")
    return known


async def test_a_conversation_is_found_again_by_subject_and_session() -> None:
    memory = Memory(LIMITS)
    assert await say(memory, "a", "1") == 0
    assert await say(memory, "a", "1") == 1
    assert await say(memory, "b", "1") == 0


async def test_the_oldest_conversation_of_all_makes_room_for_a_new_one() -> None:
    memory = Memory(LIMITS)
    for subject in ("a", "b", "c"):
        await say(memory, subject, "1")
    await say(memory, "a", "1")
    await say(memory, "d", "1")
    assert len(memory) == 3
    assert await say(memory, "a", "1") == 2
    assert await say(memory, "b", "1") == 0


async def test_a_caller_with_many_conversations_pushes_out_only_its_own() -> None:
    memory = Memory(LIMITS)
    await say(memory, "quiet", "1")
    for number in range(10):
        await say(memory, "busy", str(number))
    assert len(memory) == 3
    assert await say(memory, "busy", "8") == 1
    assert await say(memory, "quiet", "1") == 1


async def test_an_idle_conversation_is_forgotten() -> None:
    clock = Clock()
    memory = Memory(LIMITS, clock=clock)
    await say(memory, "a", "1")
    clock.now = 60
    assert await say(memory, "a", "1") == 1
    clock.now = 121
    assert await say(memory, "a", "1") == 0


async def test_what_is_remembered_stays_within_its_bytes() -> None:
    memory = Memory(LIMITS)
    await say(memory, "a", "1", "é" * 30)
    await say(memory, "a", "1", "x" * 60)
    assert await say(memory, "a", "1", "y" * 101) == 1  # the first had to go for the second
    assert memory.size == 0
    assert (
        await say(memory, "a", "1", "z") == 0
    )  # what is too large alone is not kept, nor what came before it


async def test_all_conversations_together_stay_within_their_bytes() -> None:
    memory = Memory(LIMITS)
    await say(memory, "a", "1", "x" * 80)
    await say(memory, "b", "1", "x" * 80)
    assert memory.size == 80
    assert await say(memory, "b", "1") == 1
    assert await say(memory, "a", "1") == 0


async def test_a_call_that_came_to_nothing_leaves_nothing_behind() -> None:
    memory = Memory(LIMITS)
    with pytest.raises(RuntimeError):
        async with memory.turn("a", "1", deadline=NEVER):
            raise RuntimeError
    assert len(memory) == 0


async def test_a_conversation_in_use_is_never_dropped() -> None:
    memory = Memory(LIMITS)
    async with (
        memory.turn("a", "1", deadline=NEVER),
        memory.turn("b", "1", deadline=NEVER),
        memory.turn("c", "1", deadline=NEVER),
    ):
        with pytest.raises(BackendError, match="too many conversations"):
            await say(memory, "d", "1")
    await say(memory, "d", "1")


async def test_a_caller_with_all_its_conversations_in_use_is_told_its_limit() -> None:
    memory = Memory(LIMITS)
    async with memory.turn("a", "1", deadline=NEVER), memory.turn("a", "2", deadline=NEVER):
        with pytest.raises(BackendError, match="you have 2 conversations"):
            await say(memory, "a", "3")


async def test_only_so_many_calls_may_wait_for_one_conversation() -> None:
    memory = Memory(LIMITS)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery, memory.turn("a", "1", deadline=NEVER):
            for _ in range(CALLS_AT_ONCE - 1):
                nursery.start_soon(say, memory, "a", "1")
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(BackendError, match="this session_id is busy: 8 calls"):
                await say(memory, "a", "1")
    assert await say(memory, "a", "1") == CALLS_AT_ONCE - 1


async def test_a_turn_that_does_not_come_in_time_is_given_up() -> None:
    memory = Memory(LIMITS)
    waiting = trio.Event()

    async def too_late() -> None:
        waiting.set()
        with pytest.raises(DeadlinePassed):
            async with memory.turn("a", "1", deadline=trio.current_time()):
                raise AssertionError("the turn came")

    with trio.fail_after(60):
        async with memory.turn("a", "1", deadline=NEVER) as conversation:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(too_late)
                await waiting.wait()
            memory.add(conversation, "still", "mine")
    assert await say(memory, "a", "1") == 1


async def test_a_cancelled_call_that_waited_gives_up_its_place() -> None:
    memory = Memory(LIMITS)
    with trio.fail_after(60):
        async with memory.turn("a", "1", deadline=NEVER), trio.open_nursery() as nursery:
            nursery.start_soon(say, memory, "a", "1")
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        assert len(memory) == 0
