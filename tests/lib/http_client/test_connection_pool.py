"""Which connection a call gets, in which order, and that none ever carries somebody else's answer."""

from __future__ import annotations

import random
from typing import Any, cast

import pytest
import trio
import trio.testing

from server.lib.http_client.client_connection import UpstreamConnection
from server.lib.http_client.failures import DeadlinePassed, NotConnected, TooManyConnections
from server.lib.http_client.pool import KEEPALIVE_SECONDS, ConnectionPool
from tests.lib.http_client.raw_upstream import Visitor, answer, ask, calling, raw_upstream


class FakeConnection:
    def __init__(self, number: int) -> None:
        self.number = number
        self.reusable = True
        self.quiet = True
        self.closed = False
        self.expires_at = 0.0

    def is_quiet(self) -> bool:
        return self.quiet

    def close(self) -> None:
        self.closed = True


class FakeUpstream:
    """Dials, and is the clock."""

    def __init__(self) -> None:
        self.dialled: list[FakeConnection] = []
        self.now = 0.0
        self.refuses = False

    async def dial(self) -> UpstreamConnection:
        await trio.lowlevel.checkpoint()
        if self.refuses:
            raise NotConnected("cannot be reached")
        self.dialled.append(FakeConnection(len(self.dialled)))
        return cast("UpstreamConnection", self.dialled[-1])

    def pool(self, connections: int = 2, **options: Any) -> ConnectionPool:
        return ConnectionPool(self.dial, connections=connections, clock=lambda: self.now, **options)


async def test_the_connection_used_last_is_used_again() -> None:
    upstream = FakeUpstream()
    pool = upstream.pool()
    first, second = await pool.take(), await pool.take()
    pool.give_back(first)
    pool.give_back(second)
    assert await pool.take() is second
    assert await pool.take() is first
    assert len(upstream.dialled) == 2


async def test_one_that_has_been_idle_for_too_long_is_closed_even_where_another_is_used() -> None:
    upstream = FakeUpstream()
    pool = upstream.pool()
    first, second = await pool.take(), await pool.take()
    pool.give_back(first)
    upstream.now = KEEPALIVE_SECONDS / 2
    pool.give_back(second)
    upstream.now = KEEPALIVE_SECONDS
    assert await pool.take() is second
    assert (upstream.dialled[0].closed, len(pool)) == (True, 0)
    pool.give_back(second)
    upstream.now = 2 * KEEPALIVE_SECONDS
    assert await pool.take() is upstream.dialled[2]


async def test_one_from_which_something_came_meanwhile_is_closed_and_the_next_one_used() -> None:
    upstream = FakeUpstream()
    pool = upstream.pool()
    first, second = await pool.take(), await pool.take()
    pool.give_back(first)
    pool.give_back(second)
    upstream.dialled[1].quiet = False
    assert await pool.take() is first
    assert [each.closed for each in upstream.dialled] == [False, True]


async def test_one_that_cannot_be_used_again_is_closed_and_leaves_its_place() -> None:
    upstream = FakeUpstream()
    pool = upstream.pool(connections=1)
    for number in range(3):
        await pool.take()
        upstream.dialled[number].reusable = False
        pool.give_back(cast("UpstreamConnection", upstream.dialled[number]))
        assert (upstream.dialled[number].closed, len(pool)) == (True, 0)


async def test_a_connection_that_could_not_be_made_leaves_its_place() -> None:
    upstream = FakeUpstream()
    pool = upstream.pool(connections=1)
    upstream.refuses = True
    for _ in range(3):
        with pytest.raises(NotConnected):
            await pool.take()
    upstream.refuses = False
    await pool.take()


async def test_whoever_waits_is_served_in_turn_and_nobody_pushes_in() -> None:
    upstream = FakeUpstream()
    pool = upstream.pool(connections=1)
    order: list[str] = []
    held = await pool.take()

    async def wait(name: str) -> None:
        connection = await pool.take()
        order.append(name)
        await trio.lowlevel.checkpoint()
        pool.give_back(connection)

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for name in "abc":
                nursery.start_soon(wait, name)
                await trio.testing.wait_all_tasks_blocked()
            pool.give_back(held)
            nursery.start_soon(wait, "late")  # the place is a's already, though a has not run yet
    assert order == ["a", "b", "c", "late"]
    assert len(upstream.dialled) == 1


async def test_waiting_for_a_place_ends_and_takes_none_along() -> None:
    upstream = FakeUpstream()
    pool = upstream.pool(connections=1, slot_seconds=0.01)
    held = await pool.take()
    with pytest.raises(TooManyConnections, match=r"^is busy: 1 call is running$"):
        await pool.take()
    with trio.move_on_after(0.001):
        await pool.take()
    pool.give_back(held)
    assert await pool.take() is held


async def test_a_closed_pool_gives_nothing_to_those_who_waited_either() -> None:
    upstream = FakeUpstream()
    pool = upstream.pool(connections=1)
    held = await pool.take()
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:

            async def wait() -> None:
                with pytest.raises(NotConnected, match=r"is stopping$"):
                    await pool.take()

            nursery.start_soon(wait)
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            pool.close()
            pool.give_back(held)
    assert upstream.dialled[0].closed
    with pytest.raises(NotConnected, match=r"is stopping$"):
        await pool.take()


@pytest.mark.parametrize("seed", range(4))
async def test_every_call_gets_its_own_answer_whoever_else_is_cancelled_when(seed: int) -> None:
    """An upstream that repeats what it was sent, in two pieces; half of the callers leave between the two."""
    chance = random.Random(seed)
    leaving: dict[bytes, trio.CancelScope] = {}
    right = 0

    async def play(visitor: Visitor) -> None:
        while (body := await visitor.request()) is not None:
            raw = answer(body) if chance.random() < 0.5 else chunked(body)
            cut = chance.randrange(len(raw))
            await visitor.send(raw[:cut])
            for _ in range(chance.randrange(4)):
                await trio.lowlevel.checkpoint()
            if scope := leaving.get(body):
                scope.cancel()
                await trio.testing.wait_all_tasks_blocked()
            await visitor.send(raw[cut:])

    def chunked(body: bytes) -> bytes:
        return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (
            len(body),
            body,
        )

    async with raw_upstream(play) as upstream, calling(upstream, connections=3) as fetcher:

        async def call(number: int) -> None:
            nonlocal right
            body = b"<%d>" % number * 10
            with trio.CancelScope() as scope:
                if number % 2:
                    leaving[body] = scope
                assert await ask(fetcher, body) == (200, body)
                right += 1

        async with trio.open_nursery() as nursery:
            for number in range(100):
                nursery.start_soon(call, number)
        assert right == 50
        assert upstream.connections >= 50  # none that somebody left was used again
        assert await ask(fetcher, b"last") == (200, b"last")


async def test_there_are_never_more_connections_than_allowed() -> None:
    async def play(visitor: Visitor) -> None:
        while await visitor.request() is not None:
            await trio.sleep(0.002)
            await visitor.send(answer(b"ok"))

    async with raw_upstream(play) as upstream, calling(upstream, connections=4) as fetcher:
        async with trio.open_nursery() as nursery:
            for _ in range(40):
                nursery.start_soon(ask, fetcher)
        assert upstream.most_open <= 4


async def test_a_call_that_is_over_before_it_begins_sends_nothing() -> None:
    requests = 0

    async def play(visitor: Visitor) -> None:
        nonlocal requests
        while await visitor.request() is not None:
            requests += 1
            await visitor.send(answer(b"ok"))

    async with raw_upstream(play) as upstream, calling(upstream) as fetcher:
        await ask(fetcher)
        with pytest.raises(DeadlinePassed):
            await ask(fetcher, seconds=-1)
        with trio.CancelScope() as scope:
            scope.cancel()
            await ask(fetcher)
        assert await ask(fetcher) == (200, b"ok")
        assert (requests, upstream.connections) == (2, 1)
