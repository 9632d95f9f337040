"""What a parent and a worker say to each other."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from server.cluster.workers.worker_channel import (
    BACKLOG,
    MESSAGE_BYTES,
    ChannelGone,
    WorkerChannel,
    last_news,
)
from server.cluster.workers.worker_messages import REFUSAL

PATIENCE = 60


def text_of(body: msgspec.Raw) -> Any:
    return json.loads(bytes(body))


def unexpected(question: str) -> None:
    pytest.fail(f"{question} was not answered")


@asynccontextmanager
async def both_ends(**ours: Any) -> AsyncGenerator[tuple[WorkerChannel, WorkerChannel]]:
    """One that asks, and one that answers as is said."""
    here, there = socket.socketpair()
    one = WorkerChannel(here, answering={}, hearing={}, failed=unexpected)
    options: dict[str, Any] = {"answering": {}, "hearing": {}, "failed": unexpected, **ours}
    other = WorkerChannel(there, **options)
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.run)
            nursery.start_soon(other.run)
            yield one, other
            nursery.cancel_scope.cancel()


async def test_questions_are_answered_side_by_side_each_with_its_own_answer() -> None:
    first_may_go = trio.Event()

    async def double(body: msgspec.Raw) -> Any:
        if text_of(body) == 1:
            await first_may_go.wait()
        return {"twice": text_of(body) * 2}

    async with both_ends(answering={"double": double}) as (one, _):
        found: dict[int, Any] = {}

        async def ask(number: int) -> None:
            found[number] = text_of(await one.ask("double", number))
            first_may_go.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, 1)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(ask, 2)
        assert found == {1: {"twice": 2}, 2: {"twice": 4}}


async def test_news_is_heard_in_the_order_in_which_it_was_told() -> None:
    heard: list[int] = []
    all_heard = trio.Event()

    def hear(body: msgspec.Raw) -> None:
        heard.append(text_of(body))
        if len(heard) == 100:
            all_heard.set()

    async with both_ends(hearing={"count": hear}) as (one, _):
        for number in range(100):
            assert one.tell("count", number)
            assert one.tell("what nobody listens for", number)
        await all_heard.wait()
    assert heard == list(range(100))


async def test_an_answer_of_megabytes_comes_whole() -> None:
    async def long(body: msgspec.Raw) -> Any:
        return "x" * 8 * 1024 * 1024

    async with both_ends(answering={"long": long}) as (one, _):
        assert len(text_of(await one.ask("long"))) == 8 * 1024 * 1024


async def test_what_breaks_while_it_answers_and_what_nobody_knows_is_no_answer_and_the_next_question_is_one() -> (
    None
):
    broken: list[str] = []

    async def breaks(body: msgspec.Raw) -> Any:
        raise ValueError("a secret")

    async def works(body: msgspec.Raw) -> Any:
        return 1

    async with both_ends(answering={"breaks": breaks, "works": works}, failed=broken.append) as (one, _):
        for name in ("breaks", "unheard-of"):
            with pytest.raises(ChannelGone):
                await one.ask(name)
        assert text_of(await one.ask("works")) == 1
    assert broken == ["breaks"]


async def test_whoever_waits_for_an_answer_learns_that_the_other_end_is_gone() -> None:
    here, there = socket.socketpair()
    one = WorkerChannel(here, answering={}, hearing={}, failed=unexpected)
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.run)
            await trio.testing.wait_all_tasks_blocked()

            async def wait() -> None:
                with pytest.raises(ChannelGone):
                    await one.ask("anything")

            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            there.close()
    with pytest.raises(ChannelGone):
        await one.ask("anything")
    assert not one.tell("anything")


async def test_one_that_takes_nothing_any_more_holds_nobody_up() -> None:
    here, there = socket.socketpair()
    one = WorkerChannel(here, answering={}, hearing={}, failed=unexpected)
    with there, trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.run)
            told = 0
            while one.tell("news", "x" * 1024) and told < 100 * BACKLOG:
                told += 1
            assert told <= BACKLOG
            nursery.cancel_scope.cancel()


async def test_words_that_are_no_message_end_the_channel_and_nothing_else() -> None:
    for sent in (b"\xff\xff\xff\xff", (MESSAGE_BYTES + 1).to_bytes(4), b"\0\0\0\x05hello", b"\0\0"):
        here, there = socket.socketpair()
        one = WorkerChannel(here, answering={}, hearing={}, failed=unexpected)
        with there, trio.fail_after(PATIENCE):
            there.sendall(sent)
            there.shutdown(socket.SHUT_WR)
            await one.run()


async def test_last_words_are_heard_though_no_channel_runs_there() -> None:
    heard: list[Any] = []
    here, there = socket.socketpair()
    hearing = {REFUSAL: lambda body: heard.append(text_of(body))}
    one = WorkerChannel(here, answering={}, hearing=hearing, failed=unexpected)
    there.sendall(last_news(REFUSAL, {"problem": "no"}))
    there.close()
    with trio.fail_after(PATIENCE):
        await one.run()
    assert heard == [{"problem": "no"}]


async def test_what_is_of_no_kind_that_is_known_is_passed_over_and_so_are_fields_that_are_not() -> None:
    heard: list[Any] = []
    here, there = socket.socketpair()
    hearing = {"word": lambda body: heard.append(text_of(body))}
    one = WorkerChannel(here, answering={}, hearing=hearing, failed=unexpected)
    messages = (
        {"kind": "of-tomorrow", "number": 1, "name": "word", "body": "unknown"},
        {"kind": "news", "name": "word", "body": "known", "of-tomorrow": [1]},
    )
    with there, trio.fail_after(PATIENCE):
        for message in messages:
            data = json.dumps(message).encode()
            there.sendall(len(data).to_bytes(4) + data)
        there.shutdown(socket.SHUT_WR)
        await one.run()
    assert heard == ["known"]
