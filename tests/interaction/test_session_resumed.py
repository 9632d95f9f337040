"""A client that goes on with its session although the server does not know it any more: after a restart, or a long silence."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from auth.values.identity_model import Principal, PrincipalKind
from server.calls.sessions.ended_sessions import EndedSessions
from server.calls.sessions.session_ids import SessionIds
from server.calls.sessions.sessions import Sessions
from server.store.inline_store import InlineStore, open_inline_store
from tests.interaction.agents import USER, agent
from tests.interaction.session_house import PROGRESS, Living, Steps, asks, living
from tests.pair import ACCEPT_BOTH, NodeConversation, messages, next_frame, next_message, talk

OTHER = Principal(kind=PrincipalKind.USER, subject="user-2", client_id="client-1")
TOKENS = {"a": USER, "b": OTHER}
CAPABILITIES: dict[str, Any] = {"elicitation": {}}
NOW = 1_800_000_000_000


class Restarts:
    """Processes of one server, one after the other: the key file and the store are all that they have in common."""

    def __init__(self, store: InlineStore) -> None:
        self.store = store
        self.key = secrets.token_bytes(32)
        self.now = NOW

    @asynccontextmanager
    async def start(self, *sources: Any, server: str = "main", **how: Any) -> AsyncGenerator[Living]:
        ended = EndedSessions(self.store)
        await ended.load()
        ids = SessionIds(self.key, server, clock=lambda: self.now, entropy=secrets.token_bytes)
        bounds = {name: how.pop(name) for name in ("per_caller", "idle_seconds") if name in how}
        async with living(*sources, sessions=Sessions(ids, ended, **bounds), **how) as made:
            yield made


@asynccontextmanager
async def restarts() -> AsyncGenerator[Restarts]:
    async with open_inline_store(clock=lambda: NOW) as store:
        yield Restarts(store)


def moved(one: NodeConversation, to: Living) -> NodeConversation:
    return NodeConversation(pair=to.pair, headers=one.headers, welcome=one.welcome, _asked=one._asked)


@pytest.mark.requirement("session.resumed")
@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"])
async def test_a_restart_is_not_felt(version: str) -> None:
    async with restarts() as processes:
        async with processes.start() as made:
            one = await talk(made.pair, version=version)
        async with processes.start() as made:
            one = moved(one, made)
            answer = await one.ask("tools/call", {"name": "echo", "arguments": {"text": "hi"}})
            assert answer.json["result"]["content"][0]["text"] == "hi"
            assert answer.headers["mcp-protocol-version"] == version
            assert "mcp-session-id" not in answer.headers
            assert made.session(one).revision.version == version
            assert (await one.note("notifications/cancelled", {"requestId": 99})).status == 202
            assert made.sessions.count() == 1
            (line,) = [line for line in made.house.lines if line["event"] == "session.resumed"]
            assert line["version"] == version and one.id not in str(line)


@pytest.mark.requirement("session.resumed")
async def test_half_an_hour_of_silence_is_not_felt(autojump_clock: trio.testing.MockClock) -> None:
    async with restarts() as processes, processes.start() as made, trio.open_nursery() as nursery:
        nursery.start_soon(made.sessions.run)
        one = await talk(made.pair)
        await trio.sleep(32 * 60)
        assert made.sessions.count() == 0
        assert (await one.ask("tools/list")).status == 200
        nursery.cancel_scope.cancel()


async def test_whatever_comes_first_takes_a_session_up_again() -> None:
    first: list[Callable[[NodeConversation], Any]] = [
        lambda one: one.ask("tools/list"),
        lambda one: one.note("notifications/initialized"),
        lambda one: one.say({"jsonrpc": "2.0", "id": "server-1", "result": {}}),
        lambda one: one.say([{"jsonrpc": "2.0", "id": 1, "method": "ping"}]),
        lambda one: one.pair.request("HEAD", headers=one.headers | {"accept": "text/event-stream"}),
    ]
    async with restarts() as processes:
        async with processes.start() as made:
            one = await talk(made.pair, version="2025-03-26")
        for say in first:
            async with processes.start() as made:
                assert (await say(moved(one, made))).status in (200, 202)
                assert made.sessions.count() == 1


@pytest.mark.requirement("session.bound")
async def test_a_session_is_taken_up_for_the_same_caller_at_the_same_server_alone() -> None:
    async with restarts() as processes:
        async with processes.start(tokens=TOKENS) as made:
            one = await talk(made.pair, authorization="Bearer a")
        async with processes.start(tokens=TOKENS) as made:
            theirs = moved(one, made)
            theirs.headers = one.headers | {"authorization": "Bearer b"}
            stream = theirs.headers | {"accept": "text/event-stream"}
            assert (await theirs.ask("tools/list")).status == 404
            assert (await made.pair.request("GET", headers=stream)).status == 404
            assert (await theirs.end()).status == 404
            theirs.headers = one.headers | {"authorization": "Bearer c"}
            assert (await theirs.ask("tools/list")).status == 401
            assert made.sessions.count() == 0
        async with processes.start(server="other", tokens=TOKENS) as made:
            assert (await moved(one, made).ask("tools/list")).status == 404
        async with processes.start(tokens=TOKENS) as made:
            assert (await moved(one, made).ask("tools/list")).status == 200


@pytest.mark.requirement("session.delete")
@pytest.mark.parametrize("restarted", [False, True], ids=["where it was begun", "in the next process"])
async def test_a_session_that_its_client_ended_stays_ended(restarted: bool) -> None:
    async with restarts() as processes:
        async with AsyncExitStack() as stack:
            made = await stack.enter_async_context(processes.start())
            one = await talk(made.pair)
            if restarted:
                await stack.aclose()
                made = await stack.enter_async_context(processes.start())
            one = moved(one, made)
            assert (await one.end()).status == 204
            assert (await one.end()).status == 404
            assert (await one.ask("tools/list")).status == 404
            assert made.sessions.count() == 0
        async with processes.start() as made:
            one = moved(one, made)
            assert (await one.ask("tools/list")).status == 404
            assert (await one.end()).status == 404


async def test_an_end_that_cannot_be_written_down_is_not_confirmed() -> None:
    async with AsyncExitStack() as stack, AsyncExitStack() as disk:
        processes = await disk.enter_async_context(restarts())
        made = await stack.enter_async_context(processes.start())
        one = await talk(made.pair)
        await disk.aclose()
        refused = await one.end()
        assert (refused.status, refused.headers["retry-after"]) == (503, "5")
        assert "try again" in refused.json["error"]["message"]
        assert (await one.ask("tools/list")).status == 200


async def test_an_id_that_is_too_old_begins_anew() -> None:
    async with restarts() as processes:
        async with processes.start() as made:
            one = await talk(made.pair)
        processes.now += 31 * 86_400_000
        async with processes.start() as made:
            assert (await moved(one, made).ask("tools/list")).status == 404


@pytest.mark.requirement("session.bounds")
async def test_a_caller_whose_sessions_are_all_in_use_takes_none_up() -> None:
    async with restarts() as processes:
        async with processes.start() as made:
            one = await talk(made.pair)
        async with processes.start(per_caller=1) as made:
            busy, one = await talk(made.pair), moved(one, made)
            with trio.fail_after(60):
                async with busy.listens() as stream:
                    await stream.started.wait()
                    for refused in (
                        await one.ask("tools/list"),
                        await made.pair.request("GET", headers=one.headers | {"accept": "text/event-stream"}),
                    ):
                        assert (refused.status, refused.json["error"]["code"]) == (429, 1430)
                    assert made.sessions.count() == 1
            assert (await one.ask("tools/list")).status == 200


async def test_a_client_whose_session_was_taken_up_is_told_to_look_what_there_is_now() -> None:
    async with restarts() as processes:
        async with processes.start() as made:
            one = await talk(made.pair)
        async with processes.start() as made:
            one = moved(one, made)
            assert (await one.ask("ping")).status == 200
            with trio.fail_after(60):
                async with one.listens() as stream:
                    await stream.started.wait()
                    await trio.testing.wait_all_tasks_blocked()
                    # Of prompts and resources, which this server has not, it was never told either.
                    told = [message["method"] for message in messages(stream.raw)]
                    assert told == ["notifications/tools/list_changed"]


@pytest.mark.requirement("resume.replay")
async def test_a_client_goes_on_listening_with_the_last_event_that_it_had() -> None:
    async with restarts() as processes:
        async with processes.start() as made:
            one = await talk(made.pair)
            with trio.fail_after(60):
                async with one.listens() as stream:
                    await stream.started.wait()
                    await trio.testing.wait_all_tasks_blocked()
                    for kind in ("tools", "prompts", "tools"):
                        made.sessions.publish(kind)
                    last = [await next_frame(stream) for _ in range(3)][-1]
        async with processes.start() as made:
            one = moved(one, made)
            with trio.fail_after(60):
                async with one.listens(last.id) as stream:
                    assert (await next_message(stream))["method"] == "notifications/tools/list_changed"
                    made.sessions.publish("prompts")
                    assert (await next_message(stream))["method"] == "notifications/prompts/list_changed"


@pytest.mark.requirement("resume.replay")
async def test_the_rest_of_a_call_that_ended_with_its_process_is_not_to_be_had() -> None:
    """And never is it the answer of another call that took its place."""
    steps = Steps()
    async with restarts() as processes:
        async with processes.start(agent(work=steps)) as made:
            one = await talk(made.pair)
            with trio.fail_after(60):
                async with one.opens("tools/call", {"name": "work", **PROGRESS}) as call:
                    steps.report()
                    got = await next_frame(call)
                    call.hang_up()
                    await call.ended.wait()
        async with processes.start() as made:
            one = moved(one, made)
            assert (
                await one.ask("tools/call", {"name": "echo", "arguments": {"text": "other"}})
            ).status == 200
            with trio.fail_after(60):
                async with one.listens(got.id) as stream:
                    answer = await stream.answer()
            assert answer.status == 400
            assert "send the request again" in answer.json["error"]["message"]


async def test_an_answer_to_a_question_of_the_process_before_is_nobodys() -> None:
    async with restarts() as processes:
        async with processes.start(agent(work=asks)) as made:
            one = await talk(made.pair, capabilities=CAPABILITIES)
            with trio.fail_after(60):
                async with one.opens("tools/call", {"name": "work"}) as call:
                    asked = await next_message(call)
                    call.hang_up()
                    await call.ended.wait()
        async with processes.start(agent(work=asks)) as made:
            one = moved(one, made)
            late = await one.reply(asked, result={"action": "accept", "content": {"name": "late"}})
            assert late.status == 202
            with trio.fail_after(60):
                async with one.opens("tools/call", {"name": "work"}) as call:
                    question = await next_message(call)
                    assert question["method"] == "elicitation/create", "what it can be asked is known"
                    await one.reply(question, result={"action": "accept", "content": {"name": "Ann"}})
                    answer = await next_message(call)
            assert "Ann" in str(answer["result"])


async def test_a_session_that_was_never_begun_is_still_unknown() -> None:
    async with restarts() as processes, processes.start() as made:
        one = await talk(made.pair)
        for named in ("x", one.id[:-1], one.id + "A", "A" * len(one.id), one.id.swapcase()):
            headers = {"mcp-session-id": named, "accept": ACCEPT_BOTH}
            assert (await made.pair.legacy("tools/list", mcp_session_id=named)).status == 404
            assert (await made.pair.request("GET", headers=headers)).status == 404
        assert made.sessions.count() == 1
