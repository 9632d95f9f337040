"""The stream that a client opens by GET: what belongs to no request is told there."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from auth.values.identity_model import Principal
from server.agents.base.backend import ToolCall
from server.calls.caller_outlet import KEEP_ALIVE_SECONDS
from server.mcp.call_outlet import LaterNews, LogMessage, Outlet
from server.mcp.result_encoding import ToolResult
from tests.calls.policy.governing import governing
from tests.interaction.agents import USER, agent, says
from tests.interaction.session_house import PROGRESS, Steps, living
from tests.pair import frames, messages, next_frame, next_message, talk

LIST_CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": {}}


@pytest.mark.requirement("legacy.listen")
async def test_the_stream_is_open_at_once_and_tells_what_changes() -> None:
    async with living() as made:
        one = await talk(made.pair)
        with trio.fail_after(60):
            async with one.listens() as stream:
                assert await stream.read() == b": keep-alive\n\n"
                assert (stream.status, stream.headers["content-type"]) == (200, "text/event-stream")
                assert stream.headers["mcp-protocol-version"] == "2025-11-25"
                made.sessions.publish("tools")
                assert (await next_frame(stream)).json == LIST_CHANGED
                made.session(one).watch("test://a")
                made.sessions.updated("test://a")
                made.sessions.updated("test://b")
                made.sessions.publish("prompts")
                assert (await next_message(stream))["params"] == {"uri": "test://a"}
                assert (await next_message(stream))["method"] == "notifications/prompts/list_changed"


async def test_what_changed_while_nobody_listened_is_told_once() -> None:
    async with living() as made:
        one = await talk(made.pair)
        for _ in range(5):
            made.sessions.publish("tools")
        with trio.fail_after(60):
            async with one.listens() as stream:
                assert await next_message(stream) == LIST_CHANGED
                stream.hang_up()
                await stream.ended.wait()
            made.sessions.publish("resources")
            async with one.listens() as stream:
                found = await next_message(stream)
                assert found["method"] == "notifications/resources/list_changed", "and not told again"


@pytest.mark.requirement("resume.replay")
async def test_a_client_that_lost_its_stream_comes_back_to_where_it_was() -> None:
    async with living() as made:
        one = await talk(made.pair)
        with trio.fail_after(60):
            async with one.listens() as stream:
                await stream.started.wait()
                await trio.testing.wait_all_tasks_blocked()
                for kind in ("tools", "prompts", "resources"):
                    made.sessions.publish(kind)
                first, *_ = [await next_frame(stream) for _ in range(3)]
                stream.hang_up()
                await stream.ended.wait()
            async with one.listens(first.id) as stream:
                assert [(await next_message(stream))["method"].split("/")[1] for _ in range(2)] == [
                    "prompts",
                    "resources",
                ]
                made.sessions.publish("tools")
                assert await next_message(stream) == LIST_CHANGED


async def test_a_second_stream_replaces_the_first() -> None:
    async with living() as made:
        one = await talk(made.pair)
        with trio.fail_after(60):
            async with one.listens() as first:
                await first.started.wait()
                async with one.listens() as second:
                    await first.ended.wait()
                    made.sessions.publish("tools")
                    assert await next_message(second) == LIST_CHANGED
                    assert messages(first.raw) == []


async def test_only_streams_of_requests_that_ran_in_it_can_be_resumed() -> None:
    steps = Steps()
    async with living(agent(work=steps)) as made:
        one, other = await talk(made.pair), await talk(made.pair)
        with trio.fail_after(60):
            async with one.opens("tools/call", {"name": "work", **PROGRESS}) as call:
                steps.report()
                got = await next_frame(call)
            async with other.listens(got.id) as stream:
                assert (await stream.answer()).status == 400
            steps.finish()


@pytest.mark.requirement("http.keep-alive", era="legacy")
async def test_a_silent_stream_shows_signs_of_life(autojump_clock: trio.testing.MockClock) -> None:
    async with living() as made:
        one = await talk(made.pair)
        async with one.listens() as stream:
            await trio.sleep(130)
            assert stream.raw.count(b": keep-alive\n\n") == 6
            assert messages(stream.raw) == []


async def test_a_caller_who_is_no_longer_let_in_is_not_told_any_more(
    autojump_clock: trio.testing.MockClock,
) -> None:
    tokens: dict[str, Principal] = {"t": USER}
    async with living(tokens=tokens) as made:
        one = await talk(made.pair, authorization="Bearer t")
        with trio.fail_after(60):
            async with one.listens() as stream:
                await trio.sleep(30)
                assert not stream.ended.is_set()
                tokens.clear()
                await stream.ended.wait()
        assert trio.current_time() <= 51


async def test_a_stream_that_always_has_more_to_read_ends_when_its_caller_is_not_let_in_any_more(
    mock_clock: trio.testing.MockClock,
) -> None:
    tokens: dict[str, Principal] = {"t": USER}
    async with living(tokens=tokens) as made:
        one = await talk(made.pair, authorization="Bearer t")
        with trio.fail_after(3600):
            async with one.listens() as stream:
                await trio.testing.wait_all_tasks_blocked()
                session = made.session(one)
                tokens.clear()
                mock_clock.jump(KEEP_ALIVE_SECONDS - 1)
                for _ in range(3):
                    session.changed("kind", b"{}")
                    mock_clock.jump(1)
                await stream.ended.wait()
                assert stream.raw.count(b"{}") < 3


async def test_streams_end_when_the_server_goes_away() -> None:
    async with living() as made:
        one = await talk(made.pair)
        with trio.fail_after(60):
            async with one.listens() as stream:
                await stream.started.wait()
                made.pair.draining.set()
                answer = await stream.answer()
        assert frames(answer.body)[-1].retry == "1000"


async def test_the_stream_ends_with_its_session() -> None:
    async with living() as made:
        one = await talk(made.pair)
        with trio.fail_after(60):
            async with one.listens() as stream:
                await stream.started.wait()
                assert (await one.end()).status == 204
                assert not any(frame.retry for frame in frames((await stream.answer()).body))


async def test_a_session_with_an_open_stream_is_in_use() -> None:
    async with living() as made:
        one = await talk(made.pair)
        session = made.session(one)
        assert not session.busy
        with trio.fail_after(60):
            async with one.listens() as stream:
                await stream.started.wait()
                assert session.busy
                stream.hang_up()
                await stream.ended.wait()
        assert not session.busy


async def test_the_stream_is_an_event_stream_or_nothing() -> None:
    async with living() as made:
        one = await talk(made.pair)
        async with one.listens(accept="application/json") as stream:
            assert (await stream.answer()).status == 406
        head = await made.pair.request("HEAD", headers=one.headers)
        assert (head.status, head.body, head.headers["content-type"]) == (200, b"", "text/event-stream")


@pytest.mark.parametrize("verb", ["PUT", "PATCH"])
async def test_other_verbs_are_not_served(verb: str) -> None:
    async with living() as made:
        one = await talk(made.pair)
        assert (await made.pair.request(verb, headers=one.headers)).status == 405
        assert (await one.ask("ping")).status == 200


@pytest.mark.parametrize("hidden", [False, True])
async def test_what_an_agent_logs_after_a_call_is_told_there_from_the_level_that_is_wanted(
    hidden: bool,
) -> None:
    kept: list[LaterNews | None] = []

    async def work(call: ToolCall, outlet: Outlet) -> ToolResult:
        kept.append(call.later())
        return says("done")

    settings = {"name": "main", "tools": {"other": {"redact": {"sets": ["emails"]}}} if hidden else {}}
    async with governing(settings) as ruled, living(agent(work=work), governing=ruled.policy) as made:
        one = await talk(made.pair)
        await one.ask("tools/call", {"name": "work", "arguments": {}})
        (later,) = kept
        assert (later is None) is hidden
        if later is None:
            return
        await later.tell(LogMessage(level="error", data="nobody reads"))
        with trio.fail_after(60):
            async with one.listens() as stream:
                assert await stream.read() == b": keep-alive\n\n"
                await later.tell(LogMessage(level="debug", data="below what is wanted"))
                await later.tell(LogMessage(level="error", data="fire"))
                told = await next_message(stream)
                assert (told["method"], told["params"]["data"]) == ("notifications/message", "fire")
                made.session(one).close()
                await later.over()
