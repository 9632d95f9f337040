"""A stream that breaks off at one node and is gone on with at another."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from server.calls.sessions.remote_streams import FIND_SECONDS
from server.store.node_messages.node_messages import MAX_BODY
from tests.interaction.agents import agent, says
from tests.interaction.session_house import PROGRESS, Steps, asks
from tests.pair import frames, next_frame, next_message, patience, talk
from tests.store.node_messages.neighbours import two

pytestmark = pytest.mark.usefixtures("autojump_clock")

CALL: dict[str, Any] = {"name": "steps", "arguments": {}, **PROGRESS}


async def broken_off(one: Any, steps: Steps) -> str:
    """A call whose connection broke after its first step: the id of the event that told of it."""
    async with one.opens("tools/call", CALL) as stream:
        with trio.fail_after(patience()):
            steps.report()
            while not (frame := await next_frame(stream)).data:
                pass
        stream.hang_up()
        await trio.testing.wait_all_tasks_blocked()
        assert frame.id is not None
        return frame.id


async def test_the_rest_of_a_stream_comes_through_another_node_as_it_happens() -> None:
    steps = Steps()
    async with two(agent(steps=steps)) as (_, a, b):
        one = await talk(a.pair)
        last = await broken_off(one, steps)
        steps.report()
        async with b.talk(one).listens(last) as stream:
            with trio.fail_after(patience()):
                frame = await next_frame(stream)
                assert frame.json["params"]["progress"] == 2 and frame.id is not None
                for step in (3, 4):
                    steps.report()
                    assert (await next_message(stream))["params"]["progress"] == step
                steps.finish()
                assert "4 steps" in str((await next_message(stream))["result"])
                await stream.ended.wait()
        assert steps.how == "finished"


async def test_a_stream_that_was_let_go_of_on_purpose_is_polled_at_another_node() -> None:
    steps = Steps()
    async with two(agent(steps=steps)) as (_, a, b):
        one = await talk(a.pair)
        async with one.opens("tools/call", CALL) as stream:
            with trio.fail_after(patience()):
                await steps.begun.wait()
                steps.close_stream()
                told = frames((await stream.answer()).body)
        last = [frame.id for frame in told if frame.id][-1]
        steps.finish()
        async with b.talk(one).listens(last) as stream:
            with trio.fail_after(patience()):
                assert "0 steps" in str((await next_message(stream))["result"])


async def test_a_client_that_comes_back_to_the_node_that_has_it_is_read_there_and_not_twice() -> None:
    steps = Steps()
    async with two(agent(steps=steps)) as (_, a, b):
        one = await talk(a.pair)
        last = await broken_off(one, steps)
        async with b.talk(one).listens(last) as far:
            await far.read()
            await trio.testing.wait_all_tasks_blocked()
            async with one.listens(last) as near:
                with trio.fail_after(patience()):
                    await far.ended.wait()
                    steps.finish()
                    assert "1 steps" in str((await next_message(near))["result"])


async def test_a_client_that_leaves_again_holds_up_nobody() -> None:
    steps = Steps()
    async with two(agent(steps=steps)) as (_, a, b):
        one = await talk(a.pair)
        last = await broken_off(one, steps)
        async with b.talk(one).listens(last) as far:
            await far.read()
            far.hang_up()
            await far.ended.wait()
        for _ in range(50):
            steps.report()
        steps.finish()
        with trio.fail_after(patience()):
            await steps.ended.wait()
        async with b.talk(one).listens(last) as far:
            with trio.fail_after(patience()):
                found = [await next_message(far) for _ in range(51)]
        assert "51 steps" in str(found[-1])


async def test_what_no_node_has_is_refused_as_it_is_by_one_alone() -> None:
    async with two(agent(asks=asks)) as (of, a, b):
        one = await talk(a.pair)
        for last in ("0badc0de-7-1", f"{a.living.session(one).log.life}-99-1", "junk"):
            with trio.fail_after(FIND_SECONDS / 2):  # it is known as soon as all have said so
                async with b.talk(one).listens(last) as stream:
                    answer = await stream.answer()
            assert answer.status == 400 and "not kept" in str(answer.json)
        a.die(of)
        async with b.talk(one).listens("0badc0de-7-1") as stream:
            assert (await stream.answer()).status == 400


async def test_while_a_node_says_nothing_its_stream_is_not_lost_and_the_client_comes_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps = Steps()
    async with two(agent(steps=steps)) as (_, a, b):
        one = await talk(a.pair)
        last = await broken_off(one, steps)
        steps.finish()
        with monkeypatch.context() as busy:
            busy.setattr(a.letters, "send", lambda *_, **__: False)
            async with b.talk(one).listens(last) as stream:
                answer = await stream.answer()
            assert answer.status == 503 and "retry-after" in answer.headers
        async with b.talk(one).listens(last) as stream:
            with trio.fail_after(patience()):
                assert "1 steps" in str((await next_message(stream))["result"])


async def test_a_node_that_dies_before_it_has_answered_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with two(agent(asks=asks)) as (of, a, b):
        one = await talk(a.pair)
        monkeypatch.setattr(a.letters, "send", lambda *_, **__: False)
        async with b.talk(one).listens("0badc0de-7-1") as stream:
            await trio.testing.wait_all_tasks_blocked()
            a.die(of)
            assert (await stream.answer()).status == 400


async def test_where_the_node_that_has_it_dies_the_connection_ends() -> None:
    steps = Steps()
    async with two(agent(steps=steps)) as (of, a, b):
        one = await talk(a.pair)
        last = await broken_off(one, steps)
        async with b.talk(one).listens(last) as far:
            await far.read()
            await trio.testing.wait_all_tasks_blocked()
            a.die(of)
            with trio.fail_after(patience()):
                await far.ended.wait()


async def test_an_answer_that_is_too_large_to_come_over_is_had_where_it_is() -> None:
    steps = Steps()

    async def first(call: Any, outlet: Any) -> Any:
        await steps(call, outlet)
        return says("x" * MAX_BODY)

    async with two(agent(steps=first)) as (_, a, b):
        one = await talk(a.pair)
        last = await broken_off(one, steps)
        steps.finish()
        async with b.talk(one).listens(last) as far:
            with trio.fail_after(patience()):
                assert [frame for frame in frames((await far.answer()).body) if frame.data] == []
        async with one.listens(last) as near:
            with trio.fail_after(patience()):
                assert len(str(await next_message(near))) > MAX_BODY
