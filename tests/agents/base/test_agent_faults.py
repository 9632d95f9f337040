"""Agents that are out of order say so to their owner: since when, with the last words, until something succeeds."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing

from server.agents.base.agent_faults import TroubleWatch
from server.agents.base.backend import Trouble, Watched
from server.mcp.call_failures import BackendError
from tests.agents.chat.chat_pair import against, ask, backend
from tests.agents.python.fake_agent import Exchange, Silent, pass_when
from tests.agents.python.python_pair import at_work, soon
from tests.agents.python.test_python_keeper import MORTAL


def test_the_words_are_the_last_ones_and_the_time_is_of_the_first() -> None:
    times = iter((100, 200, 300))
    watch = TroubleWatch(lambda: next(times))
    watch.begins("it is not there")
    watch.begins("it says nonsense " * 100)
    assert watch.found is not None
    assert (watch.found.since, watch.found.words[:16]) == (100, "it says nonsense")
    assert len(watch.found.words) == 500
    watch.is_over()
    assert watch.found is None
    watch.begins("again")
    assert watch.found == Trouble("again", 200)


@pytest.mark.parametrize(
    ("status", "is_one"), [(503, True), (401, True), (404, True), (400, False), (422, False)]
)
async def test_a_status_that_is_no_callers_doing_is_trouble_and_an_answer_ends_it(
    status: int, is_one: bool
) -> None:
    answers = [status, 200]

    async def answer(exchange: Exchange) -> None:
        await exchange.reply({"text": "overloaded"}, status=answers.pop(0))

    async with against(answer) as (_, agent):
        assert isinstance(agent, Watched)
        assert agent.trouble() is None
        with pytest.raises(BackendError):
            await ask(agent)
        found = agent.trouble()
        assert (found is not None) == is_one
        if found is not None:
            assert found.words.startswith(f"it answers with status {status}: ")
            assert "overloaded" in found.words
        await ask(agent)
        assert agent.trouble() is None


async def test_an_agent_that_is_not_there_or_says_nothing_is_in_trouble() -> None:
    gone = backend("http://127.0.0.1:9/", deadline_seconds=1)
    try:
        with pytest.raises(BackendError, match="agent endpoint "):
            await ask(gone)
        found = gone.trouble()
        assert found is not None
        assert found.words.startswith("it ")
        assert "127.0.0.1" not in found.words
    finally:
        await gone.aclose()


async def test_an_agent_that_does_not_answer_in_time_is_in_trouble(
    mock_clock: trio.testing.MockClock,
) -> None:
    silent = Silent()
    async with against(silent, deadline_seconds=1) as (_, agent):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pass_when, mock_clock, 1, silent.came)
            assert (await ask(agent)).is_error
        found = agent.trouble()
        assert found is not None
        assert found.words == "it did not answer within 1 s"


async def test_a_process_that_ended_is_trouble_until_the_next_one_works(tmp_path: Path) -> None:
    async with at_work(tmp_path, MORTAL) as work:
        assert work.backend.trouble() is None
        with pytest.raises(BackendError):
            await work.call(word="end")
        await soon(lambda: work.backend.trouble() or work.log.of("agent.started_again"))
        await work.say()
        assert work.backend.trouble() is None


async def test_a_process_that_cannot_be_started_again_says_why(tmp_path: Path) -> None:
    async with at_work(tmp_path, MORTAL, reload=False) as work:
        work.write("raise SystemExit(4)")
        with pytest.raises(BackendError):
            await work.call(word="end")
        await soon(lambda: work.log.of("agent.not_started"))
        found = work.backend.trouble()
        assert found is not None
        assert found.words.startswith("it cannot be started again: ")
