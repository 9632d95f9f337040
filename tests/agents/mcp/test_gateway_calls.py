"""One request of ours at an upstream: what is told and asked about it waits for whoever follows it, and how much of that."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
import trio.testing
from msgspec import Raw

from server.agents.base.backend import AgentRequest
from server.client.mcp_session.handshake_questions import key_of
from server.client.mcp_session.sent_requests import (
    NEWS_BYTES,
    NEWS_WAITING,
    QUESTIONS_OPEN,
    HandshakeQuestion,
    SentRequest,
)
from server.client.mcp_session.session_messages import ServerRefusal
from server.mcp.call_failures import CannotAsk
from server.mcp.call_outlet import LogMessage, Progress
from server.mcp.call_questions import Question
from server.mcp.carried_extensions import QUESTION_KEYS

CALLER = AgentRequest(subject="alice", sharer="laptop", call_id="1")
QUESTION = Question(method="roots/list", params={})
RESULT = Raw(b"{}")


def call() -> SentRequest:
    return SentRequest(1, CALLER)


def step(done: float) -> Progress:
    return Progress(progress=done)


def told(running: SentRequest) -> list[float]:
    return [event.progress for event in running.taken() if isinstance(event, Progress)]


def test_it_knows_whose_it_is() -> None:
    assert (call().subject, call().asker) == ("alice", "alice laptop")
    ours = SentRequest(1, None)
    assert (ours.subject, ours.asker) == (None, None)


def test_news_that_nobody_takes_are_the_newest_so_many() -> None:
    running = call()
    for number in range(NEWS_WAITING + 2):
        running.tell(step(number), 1)
    assert told(running) == [*range(2, NEWS_WAITING + 2)]
    assert told(running) == []


def test_news_that_nobody_takes_weigh_no_more_than_may_wait() -> None:
    running = call()
    running.tell(step(1), NEWS_BYTES + 1)
    assert told(running) == []
    running.tell(step(2), NEWS_BYTES)
    assert told(running) == [2]
    for number in (3, 4, 5):
        running.tell(step(number), NEWS_BYTES // 2)
    assert told(running) == [4, 5]
    for number, size in ((6, NEWS_BYTES // 2), (7, NEWS_BYTES // 2), (8, NEWS_BYTES)):
        running.tell(step(number), size)
    assert told(running) == [8]


def test_a_question_has_the_key_that_its_server_told_where_no_other_has_it() -> None:
    running = call()
    for number, key in enumerate(("user_name", "", "user_name", "confirm")):
        assert running.ask(number, QUESTION, key)
    assert [each.key for each in running.questions()] == ["user_name", "upstream-2", "upstream-3", "confirm"]


@pytest.mark.parametrize("key", ["upstream-1", "x" * 101, 7, None])
def test_what_cannot_be_the_key_of_a_question_is_none(key: Any) -> None:
    assert key_of(Raw(json.dumps({"_meta": {QUESTION_KEYS: key}}).encode())) == ""
    assert key_of(Raw(b"{}")) == ""
    assert key_of(Raw(json.dumps({"_meta": {QUESTION_KEYS: "a key"}}).encode())) == "a key"


async def test_what_was_followed_weighs_nothing_any_more() -> None:
    running = call()
    running.tell(step(1), NEWS_BYTES)
    assert await running.next() == step(1)
    running.tell(step(2), 1)
    running.tell(step(3), NEWS_BYTES - 1)
    assert told(running) == [2, 3]


async def test_what_is_dropped_is_the_oldest_that_is_told_and_never_a_question() -> None:
    running = call()
    assert running.ask("q", QUESTION)
    running.tell(step(1), NEWS_BYTES - 1)
    running.tell(LogMessage(level="info", data=2), 2)
    asked = await running.next()
    assert isinstance(asked, HandshakeQuestion)
    assert await running.next() == LogMessage(level="info", data=2)


def test_questions_alone_drop_nothing() -> None:
    running = call()
    running.tell(step(1), NEWS_BYTES)
    running.put_again()
    for number in range(QUESTIONS_OPEN):
        assert running.ask(number, QUESTION)
    assert told(running) == [1]
    assert len(running.questions()) == QUESTIONS_OPEN


def test_what_was_told_is_taken_and_what_is_asked_stays() -> None:
    running = call()
    running.tell(step(1), NEWS_BYTES)
    assert running.ask("q", QUESTION)
    assert told(running) == [1]
    running.tell(step(2), NEWS_BYTES)
    assert told(running) == [2]
    assert [each.id for each in running.questions()] == ["q"]


def test_so_many_questions_are_open_and_each_once() -> None:
    running = call()
    assert [running.ask(number, QUESTION) for number in range(QUESTIONS_OPEN + 1)] == [
        *[True] * QUESTIONS_OPEN,
        False,
    ]
    running.withdrawn(0)
    running.withdrawn("never asked")
    assert not running.ask(1, QUESTION)
    assert running.ask("one more", QUESTION)


def test_each_question_has_a_name_of_its_own() -> None:
    running = call()
    running.ask("a", QUESTION)
    running.withdrawn("a")
    running.ask("a", QUESTION)
    running.ask("b", QUESTION)
    assert [each.key for each in running.questions()] == ["upstream-1", "upstream-2", "upstream-3"]


def test_questions_are_given_once_and_put_again_to_whoever_comes_back() -> None:
    running = call()
    running.ask("a", QUESTION)
    running.tell(step(1), 1)
    running.ask("b", QUESTION)
    assert [each.id for each in running.questions()] == ["a", "b"]
    assert running.questions() == []
    running.withdrawn("a")
    running.put_again()
    running.put_again()
    assert [each.id for each in running.questions()] == ["b"]
    assert told(running) == [1]


async def test_it_ends_once_and_nothing_is_heard_after() -> None:
    running = call()
    running.end(RESULT)
    running.end(ServerRefusal(1, "late"))
    running.tell(step(1), 1)
    assert not running.ask("q", QUESTION)
    assert told(running) == []
    ended = await running.next()
    assert running.outcome == RESULT
    assert running.result(ended) == RESULT  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("refused", [None, CannotAsk("no", {})])
async def test_an_error_after_nobody_could_be_asked_is_that(refused: CannotAsk | None) -> None:
    running = call()
    running.refused = refused
    failure = ServerRefusal(1, "no")
    running.end(failure)
    ended = await running.next()
    with pytest.raises(CannotAsk if refused else ServerRefusal):
        running.result(ended)  # pyright: ignore[reportArgumentType]


async def test_whoever_follows_is_woken_once_and_may_leave() -> None:
    running = call()
    heard: list[object] = []

    async def follow() -> None:
        heard.append(await running.next())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    running.tell(step(1), 1)
    assert heard == []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow)
        await trio.testing.wait_all_tasks_blocked()
    assert heard == [step(1)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow)
        await trio.testing.wait_all_tasks_blocked()
        running.tell(step(2), 1)
        running.tell(step(3), 1)
    assert heard == [step(1), step(2)]
    assert told(running) == [3]
