"""Requests in a session: what is said before their answer, what is asked meanwhile, and what becomes of those whose client
leaves, comes back or changes its mind."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from server.agents.base.backend import ToolCall
from server.mcp.call_failures import CannotAsk, NotAnswered
from server.mcp.call_outlet import LogMessage, Outlet, Progress
from server.mcp.messages import Notification, decode_one
from server.mcp.result_encoding import ToolResult
from server.mcp.terms import CallTerms
from tests.interaction.agents import USER, agent, says
from tests.interaction.session_house import PROGRESS, Steps, asks, living
from tests.pair import frames, messages, modern, next_frame, next_message, talk

VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
ELICITS = {"elicitation": {}}
JSON_ALONE: Any = {"accept": "application/json"}
CURIOUS = {"name": "curious", "arguments": {}}


# ── one answer, or a stream ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_call_that_says_nothing_before_its_answer_is_answered_in_json(version: str) -> None:
    async def slow(call: ToolCall, outlet: Outlet) -> ToolResult:
        await trio.lowlevel.checkpoint()
        return says("done")

    async with living(agent(slow=slow)) as made:
        one = await talk(made.pair, version=version)
        answer = await one.ask("tools/call", {"name": "slow", **PROGRESS}, request_id="s")
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
        assert answer.headers["mcp-protocol-version"] == version
        assert answer.json["id"] == "s" and answer.json["result"]["content"][0]["text"] == "done"
        assert made.session(one).log.find("1-0") is None, "nobody can come back for it, so it is not kept"


@pytest.mark.requirement("resume.ids")
@pytest.mark.requirement("resume.primed")
@pytest.mark.requirement("resume.not-older", era="2025-03-26")
@pytest.mark.requirement("resume.not-older", era="2025-06-18")
@pytest.mark.parametrize("version", VERSIONS)
async def test_a_stream_has_ids_and_begins_with_one_where_that_is_understood(version: str) -> None:
    async def chatty(call: ToolCall, outlet: Outlet) -> ToolResult:
        await outlet.emit(Progress(progress=1, total=2))
        await outlet.emit(LogMessage(level="warning", data={"a": 1}, logger="l"))
        await outlet.emit(Progress(progress=2, total=2))
        return says("done")

    async with living(agent(chatty=chatty)) as made:
        one = await talk(made.pair, version=version)
        answer = await one.ask("tools/call", {"name": "chatty", **PROGRESS})
        assert answer.headers["content-type"] == "text/event-stream"
        found = frames(answer.body)
        if version == "2025-11-25":
            first = found.pop(0)
            assert first.id and first.data == ""
        assert all(frame.data for frame in found)
        assert [frame.json.get("method") for frame in found] == [
            "notifications/progress",
            "notifications/message",
            "notifications/progress",
            None,
        ]
        assert found[-1].json["result"]["content"][0]["text"] == "done"
        assert len({frame.id for frame in frames(answer.body)}) == len(frames(answer.body))
        second = await one.ask("tools/call", {"name": "chatty", **PROGRESS})
        assert not {frame.id for frame in frames(answer.body)} & {frame.id for frame in frames(second.body)}


async def test_log_messages_come_from_the_level_on_that_was_set() -> None:
    async def talks(call: ToolCall, outlet: Outlet) -> ToolResult:
        for level in ("debug", "info", "error"):
            await outlet.emit(LogMessage(level=level, data=level))  # type: ignore[arg-type]
        return says("done")

    async with living(agent(talks=talks)) as made:
        one = await talk(made.pair)
        made.session(one).log_level = "error"
        answer = await one.ask("tools/call", {"name": "talks"})
        assert [message["params"]["data"] for message in messages(answer.body)[:-1]] == ["error"]


async def test_a_long_silence_shows_signs_of_life_and_an_id_to_come_back_by(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def silent(call: ToolCall, outlet: Outlet) -> ToolResult:
        await trio.sleep(80)
        return says("at last")

    async with living(agent(silent=silent)) as made:
        for version, primed in (("2025-06-18", 0), ("2025-11-25", 1)):
            one = await talk(made.pair, version=version)
            answer = await one.ask("tools/call", {"name": "silent"}, seconds=100)
            assert answer.body.count(b": keep-alive\n\n") == 3
            found = frames(answer.body)
            assert len(found) == primed + 1 and found[-1].json["result"]["isError"] is False


@pytest.mark.requirement("http.accept", era="legacy")
@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
async def test_a_client_that_takes_one_form_gets_that(accept: str) -> None:
    async def chatty(call: ToolCall, outlet: Outlet) -> ToolResult:
        await outlet.emit(Progress(progress=1, total=1))
        return says("done")

    async def quiet(call: ToolCall, outlet: Outlet) -> ToolResult:
        return says("done")

    async with living(agent(chatty=chatty, quiet=quiet)) as made:
        one = await talk(made.pair)
        for name in ("chatty", "quiet"):
            answer = await one.ask("tools/call", {"name": name, **PROGRESS}, accept=accept)
            assert (answer.status, answer.headers["content-type"]) == (200, accept)
            last = answer.json if accept == "application/json" else messages(answer.body)[-1]
            assert last["result"]["content"][0]["text"] == "done"


async def test_a_client_that_takes_only_json_gets_it_however_long_it_takes(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def silent(call: ToolCall, outlet: Outlet) -> ToolResult:
        await trio.sleep(80)
        return says("at last")

    async with living(agent(silent=silent)) as made:
        one = await talk(made.pair)
        answer = await one.ask("tools/call", {"name": "silent"}, accept="application/json", seconds=100)
        assert answer.json["result"]["content"][0]["text"] == "at last"
        assert made.session(one).log.find("1-0") is None


async def test_a_client_that_takes_only_json_is_asked_on_its_other_stream() -> None:
    async with living(agent(asks=asks)) as made:
        one = await talk(made.pair, capabilities=ELICITS)
        with trio.fail_after(60):
            async with one.listens() as aside:
                await aside.started.wait()
                async with one.opens("tools/call", {"name": "asks"}, accept="application/json") as call:
                    await one.reply(await next_message(aside), result={"action": "decline"})
                    assert "decline" in str((await call.answer()).json)


async def test_a_tool_says_no_more_than_its_client_reads() -> None:
    said = 0

    async def chatty(call: ToolCall, outlet: Outlet) -> ToolResult:
        nonlocal said
        for step in range(1, 50):
            said = step
            await outlet.emit(LogMessage(level="info", data=step))
        return says("done")

    async with living(agent(chatty=chatty)) as made:
        one = await talk(made.pair)
        inner, reads = made.pair.app, trio.Semaphore(0)

        async def slowly_read(scope: Any, receive: Any, send: Any) -> None:
            async def slow_send(message: Any) -> None:
                if message["type"] == "http.response.body":
                    await reads.acquire()
                await send(message)

            await inner(scope, receive, slow_send)

        made.pair.app = slowly_read
        with trio.fail_after(60):
            async with one.opens("tools/call", {"name": "chatty"}) as call:
                await trio.testing.wait_all_tasks_blocked()
                assert said == 1
                reads.release()
                await trio.testing.wait_all_tasks_blocked()
                assert said == 2
                for _ in range(100):
                    reads.release()
                assert len(messages((await call.answer()).body)) == 50


async def test_a_modern_call_that_names_a_session_is_not_part_of_it() -> None:
    steps = Steps()
    async with living(agent(work=steps)) as made:
        one = await talk(made.pair)
        body, headers = modern("tools/call", {"name": "work", **PROGRESS})
        with trio.fail_after(60):
            async with made.pair.open(body=body, headers=headers | {"mcp-session-id": one.id}) as call:
                steps.report()
                assert (await next_frame(call)).id is None
                assert not made.session(one).busy
                call.hang_up()
                await steps.ended.wait()
        assert steps.how == "cancelled"


@pytest.mark.requirement("http.error-in-stream", era="legacy")
async def test_refusals_have_their_status_as_long_as_nothing_was_said() -> None:
    async def deploy(call: ToolCall, outlet: Outlet) -> ToolResult:
        return says("deployed")

    terms = CallTerms(scopes=frozenset({"mcp:deploy"}))
    async with living(agent(terms=terms, deploy=deploy), tokens={"t": USER}) as made:
        one = await talk(made.pair, authorization="Bearer t")
        answer = await one.ask("tools/call", {"name": "deploy"})
        assert answer.status == 403 and "mcp:deploy" in answer.headers["www-authenticate"]
        assert (await one.ask("tools/call", {"name": "nothing"})).json["error"]["code"] == -32602


# ── leaving and coming back ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("resume.replay")
@pytest.mark.requirement("http.disconnect-continues")
async def test_a_client_that_leaves_can_have_the_rest_by_the_last_id_it_got() -> None:
    steps = Steps()
    async with living(agent(work=steps)) as made:
        one = await talk(made.pair)
        with trio.fail_after(60):
            async with one.opens("tools/call", {"name": "work", **PROGRESS}, request_id="w") as call:
                steps.report()
                assert (await next_frame(call)).data == ""
                got = await next_frame(call)
                call.hang_up()
                await call.ended.wait()
            steps.report()
            await trio.testing.wait_all_tasks_blocked()
            assert steps.how == "", "the work goes on"
            async with one.listens(got.id) as rest:
                second = await next_frame(rest)
                assert second.json["params"]["progress"] == 2
                steps.report()
                assert (await next_frame(rest)).json["params"]["progress"] == 3
                steps.finish()
                answer = await next_frame(rest)
                assert (answer.json["id"], answer.json["result"]["content"][0]["text"]) == ("w", "3 steps")
                assert await rest.read() == b"", "the stream ends with its answer"
                await rest.ended.wait()
            async with one.listens(second.id) as again:
                assert [message.get("id") for message in messages((await again.answer()).body)] == [None, "w"]
        assert steps.how == "finished"
        assert made.house.measured == [("work", "ok")]


async def test_who_came_back_for_an_answer_stays_for_it_while_the_server_waits_for_calls() -> None:
    steps = Steps()
    async with living(agent(work=steps)) as made:
        one = await talk(made.pair)
        with trio.fail_after(60):
            async with one.opens("tools/call", {"name": "work", **PROGRESS}, request_id="w") as call:
                steps.report()
                await next_frame(call)
                got = await next_frame(call)
                call.hang_up()
                await call.ended.wait()
            async with one.listens(got.id) as rest:
                await rest.started.wait()
                made.pair.draining.set()
                await trio.testing.wait_all_tasks_blocked()
                made.sessions.cut_off()
                (last,) = messages((await rest.answer()).body)
                assert (last["id"], last["error"]["code"]) == ("w", -32603)


async def test_work_goes_on_when_its_connection_is_torn_down() -> None:
    steps = Steps()
    async with living(agent(work=steps)) as made:
        one = await talk(made.pair)
        with trio.fail_after(60):
            async with one.opens("tools/call", {"name": "work", **PROGRESS}) as call:
                steps.report()
                got = await next_frame(call)  # leaving the block cancels the task of the connection
            steps.finish()
            await steps.ended.wait()
            assert steps.how == "finished"
            async with one.listens(got.id) as rest:
                assert messages((await rest.answer()).body)[-1]["result"]["isError"] is False


async def test_an_answer_that_nobody_can_come_back_for_is_forgotten() -> None:
    steps = Steps()
    async with living(agent(work=steps)) as made:
        one = await talk(made.pair)
        with trio.fail_after(60):
            async with one.opens("tools/call", {"name": "work", **PROGRESS}) as call:
                await steps.begun.wait()
                call.hang_up()
                await call.ended.wait()
            steps.report()
            steps.finish()
            await steps.ended.wait()
            await trio.testing.wait_all_tasks_blocked()
            async with one.listens("1-0") as rest:
                assert (await rest.answer()).status == 400
        assert steps.how == "finished"


@pytest.mark.requirement("resume.replay")
@pytest.mark.parametrize("last_id", ["99-1", "junk", "1-99", "0-5"])
async def test_an_id_that_was_never_given_or_is_kept_no_longer_is_refused(last_id: str) -> None:
    async with living() as made:
        one = await talk(made.pair)
        async with one.listens(last_id) as rest:
            answer = await rest.answer()
        assert answer.status == 400 and "send the request again" in answer.json["error"]["message"]
        assert (await one.ask("ping")).status == 200


@pytest.mark.requirement("resume.retry")
async def test_a_stream_that_is_let_go_of_says_when_to_come_back() -> None:
    steps = Steps()
    async with living(agent(work=steps)) as made:
        one = await talk(made.pair)
        with trio.fail_after(60):
            async with one.opens("tools/call", {"name": "work", **PROGRESS}, request_id="w") as call:
                steps.close_stream()
                closed = await call.answer()
            first, *rest_of_it, last = frames(closed.body)
            assert first.id and first.data == ""
            assert rest_of_it == [] and last.retry == "1000" and last.data is None
            async with one.listens(first.id) as rest:
                steps.report()
                got = await next_frame(rest)
                assert got.json["params"]["progress"] == 1
                steps.close_stream()
                again = frames((await rest.answer()).body)
                assert again[-1].retry == "1000"
            steps.report()
            steps.finish()
            await steps.ended.wait()
            async with one.listens(got.id) as rest:
                *told, answer = messages((await rest.answer()).body)
            assert [message["params"]["progress"] for message in told] == [2]
            assert answer["id"] == "w"


@pytest.mark.requirement("resume.not-older", era="2025-03-26")
@pytest.mark.requirement("resume.not-older", era="2025-06-18")
@pytest.mark.parametrize("version", VERSIONS[:-1])
async def test_older_clients_keep_their_stream(version: str) -> None:
    steps = Steps()
    async with living(agent(work=steps)) as made:
        one = await talk(made.pair, version=version)
        with trio.fail_after(60):
            async with one.opens("tools/call", {"name": "work", **PROGRESS}) as call:
                steps.close_stream()
                steps.report()
                steps.finish()
                closed = await call.answer()
        assert not any(frame.retry for frame in frames(closed.body))
        assert messages(closed.body)[-1]["result"]["content"][0]["text"] == "1 steps"


async def test_a_client_that_comes_back_while_its_old_connection_lingers_gets_the_rest_on_the_new_one() -> (
    None
):
    steps = Steps()
    async with living(agent(work=steps)) as made:
        one = await talk(made.pair)
        with trio.fail_after(60):
            async with one.opens("tools/call", {"name": "work", **PROGRESS}) as call:
                steps.report()
                first = await next_frame(call)
                await next_frame(call)
                async with one.listens(first.id) as rest:
                    assert (await next_frame(rest)).json["params"]["progress"] == 1
                    await call.ended.wait()
                    steps.finish()
                    assert (await next_message(rest))["result"]["isError"] is False
                assert not any(frame.data for frame in frames((await call.answer()).body)), "each once"


# ── changing one's mind ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("cancel.session")
@pytest.mark.parametrize("streaming", [True, False])
async def test_a_cancelled_request_stops_and_is_not_answered(streaming: bool) -> None:
    steps = Steps()
    async with living(agent(work=steps)) as made:
        one = await talk(made.pair)
        with trio.fail_after(60):
            async with one.opens("tools/call", {"name": "work", **PROGRESS}, request_id=9) as call:
                await steps.begun.wait()
                if streaming:
                    steps.report()
                    await next_message(call)
                told = await one.note("notifications/cancelled", {"requestId": 9, "reason": "bored"})
                assert (told.status, told.body) == (202, b"")
                answer = await call.answer()
        assert steps.how == "cancelled"
        assert messages(answer.body) == []
        assert answer.status == (200 if streaming else 202)
        assert made.house.measured == [("work", "cancelled")]


async def test_an_answer_that_was_ready_when_it_was_cancelled_is_not_sent() -> None:
    begun, go_on = trio.Event(), trio.Event()

    async def work(call: ToolCall, outlet: Outlet) -> ToolResult:
        begun.set()
        await go_on.wait()
        return says("done")

    async with living(agent(work=work)) as made:
        one = await talk(made.pair)
        with trio.fail_after(60):
            async with one.opens("tools/call", {"name": "work"}, request_id=9) as call:
                await begun.wait()
                go_on.set()
                note = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}}'
                message = decode_one(note)
                assert isinstance(message, Notification)
                made.session(one).note(message)
                assert (await call.answer()).body == b""


async def test_another_sessions_request_cannot_be_cancelled() -> None:
    steps = Steps()
    async with living(agent(work=steps)) as made:
        one, other = await talk(made.pair), await talk(made.pair)
        with trio.fail_after(60):
            async with one.opens("tools/call", {"name": "work"}, request_id=9) as call:
                await steps.begun.wait()
                await other.note("notifications/cancelled", {"requestId": 9})
                steps.finish()
                assert (await call.answer()).json["result"]["isError"] is False


async def test_the_end_of_the_session_ends_what_runs_in_it() -> None:
    steps = Steps()
    async with living(agent(work=steps)) as made:
        one = await talk(made.pair)
        with trio.fail_after(60):
            async with one.opens("tools/call", {"name": "work", **PROGRESS}) as call:
                steps.report()
                await next_message(call)
                assert (await one.end()).status == 204
                assert messages((await call.answer()).body) == []
            await steps.ended.wait()
        assert steps.how == "cancelled"


@pytest.mark.requirement("rpc.id-in-use-session")
async def test_an_id_that_is_in_use_is_not_given_to_a_second_request() -> None:
    steps = Steps()
    async with living(agent(work=steps)) as made:
        one = await talk(made.pair)
        with trio.fail_after(60):
            async with one.opens("tools/call", {"name": "work"}, request_id=9) as call:
                await steps.begun.wait()
                refused = await one.ask("tools/call", {"name": "work"}, request_id=9)
                assert (refused.status, refused.json["error"]["code"]) == (400, -32600)
                steps.finish()
                assert (await call.answer()).json["result"]["isError"] is False


# ── being asked ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("legacy.listen")
@pytest.mark.requirement("legacy.one-stream")
@pytest.mark.requirement("ask.own-stream", era="legacy", transport="http")
@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
async def test_a_tool_asks_on_the_stream_of_its_call_and_is_answered_by_a_post(version: str) -> None:
    async with living(agent(asks=asks)) as made:
        one = await talk(made.pair, version=version, capabilities=ELICITS)
        with trio.fail_after(60):
            async with one.listens() as aside, one.opens("tools/call", {"name": "asks"}) as call:
                await aside.started.wait()
                question = await next_message(call)
                assert question["method"] == "elicitation/create"
                assert question["params"]["message"] == "who?"
                told = await one.reply(question, result={"action": "accept", "content": {"name": "Ann"}})
                assert (told.status, told.body) == (202, b"")
                answer = await next_message(call)
                assert answer["result"]["content"][0]["text"] == "accept: {'name': 'Ann'}"
                assert messages(aside.raw) == [], "each message is on one stream"


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_person_may_say_no(action: str) -> None:
    async with living(agent(asks=asks)) as made:
        one = await talk(made.pair, capabilities=ELICITS)
        with trio.fail_after(60):
            async with one.opens("tools/call", {"name": "asks"}) as call:
                await one.reply(await next_message(call), result={"action": action})
                assert (await next_message(call))["result"]["content"][0]["text"] == f"{action}: None"


async def test_a_client_that_refuses_to_be_asked_fails_the_call_with_its_words() -> None:
    async with living(agent(asks=asks)) as made:
        one = await talk(made.pair, capabilities=ELICITS)
        with trio.fail_after(60):
            async with one.opens("tools/call", {"name": "asks"}) as call:
                await one.reply(await next_message(call), error={"code": -32603, "message": "no window"})
                answer = await next_message(call)
        assert "no window" in str(answer)


@pytest.mark.parametrize(
    "nonsense", [{"error": {"code": -1, "message": "no"}}, {"result": {"action": "perhaps"}}]
)
async def test_a_tool_whose_question_was_refused_or_answered_with_nonsense_may_go_on_without(
    nonsense: Any,
) -> None:
    async def copes(call: ToolCall, outlet: Outlet) -> ToolResult:
        with pytest.raises(NotAnswered):
            await asks(call, outlet)
        return says("did without")

    async with living(agent(copes=copes)) as made:
        one = await talk(made.pair, capabilities=ELICITS)
        with trio.fail_after(60):
            async with one.opens("tools/call", {"name": "copes"}) as call:
                while "method" in (message := await next_message(call)):
                    await one.reply(message, **nonsense)
        assert message["result"]["content"][0]["text"] == "did without"


async def test_a_client_that_cannot_be_asked_is_not() -> None:
    async def curious(call: ToolCall, outlet: Outlet) -> ToolResult:
        with pytest.raises(CannotAsk):
            await asks(call, outlet)
        return says("did without")

    async with living(agent(curious=curious)) as made:
        one = await talk(made.pair)
        answer = await one.ask("tools/call", {"name": "curious"})
        assert answer.json["result"]["content"][0]["text"] == "did without"


async def test_a_client_that_takes_no_stream_and_has_none_open_is_not_waited_for() -> None:
    async with living(agent(curious=asks)) as made:
        one = await talk(made.pair, capabilities=ELICITS)
        answer = await one.ask("tools/call", CURIOUS, **JSON_ALONE)
        assert "cannot be asked" in str(answer.json)


async def test_a_client_that_takes_no_stream_is_asked_on_the_one_that_it_has_open() -> None:
    async with living(agent(curious=asks)) as made:
        one = await talk(made.pair, capabilities=ELICITS)
        with trio.fail_after(60):
            async with one.listens() as stream:
                await trio.testing.wait_all_tasks_blocked()
                async with one.opens("tools/call", CURIOUS, **JSON_ALONE) as call:
                    question = await next_message(stream)
                    await one.reply(question, result={"action": "decline"})
                    assert (await call.answer()).json["result"]["content"][0]["text"] == "decline: None"


async def test_a_question_can_be_answered_after_coming_back() -> None:
    async with living(agent(asks=asks)) as made:
        one = await talk(made.pair, capabilities=ELICITS)
        with trio.fail_after(60):
            async with one.opens("tools/call", {"name": "asks"}) as call:
                primed = await next_frame(call)
                call.hang_up()
                await call.ended.wait()
            async with one.listens(primed.id) as rest:
                question = await next_message(rest)
                await one.reply(question, result={"action": "accept", "content": {"name": "Ann"}})
                assert "Ann" in str(await next_message(rest))


async def test_a_client_of_another_session_cannot_answer() -> None:
    async with living(agent(asks=asks)) as made:
        one, other = await talk(made.pair, capabilities=ELICITS), await talk(made.pair, capabilities=ELICITS)
        with trio.fail_after(60):
            async with one.opens("tools/call", {"name": "asks"}) as call:
                question = await next_message(call)
                told = await other.reply(question, result={"action": "accept", "content": {"name": "Eve"}})
                assert told.status == 202
                await one.reply(question, result={"action": "accept", "content": {"name": "Ann"}})
                assert "Ann" in str(await next_message(call))


async def test_a_cancelled_call_takes_its_question_back() -> None:
    async with living(agent(asks=asks)) as made:
        one = await talk(made.pair, capabilities=ELICITS)
        with trio.fail_after(60):
            async with one.opens("tools/call", {"name": "asks"}, request_id=9) as call:
                question = await next_message(call)
                await one.note("notifications/cancelled", {"requestId": 9})
                withdrawn = await next_message(call)
                assert withdrawn["method"] == "notifications/cancelled"
                assert withdrawn["params"]["requestId"] == question["id"]
                assert messages((await call.answer()).body) == []


async def test_either_side_may_ping_the_other() -> None:
    async with living() as made:
        one = await talk(made.pair)
        session = made.session(one)
        assert (await one.ask("ping")).json["result"] == {}
        answered: list[Any] = []

        async def ping() -> None:
            answered.append(await session.ask_plain(session.send, "ping", {}))

        with trio.fail_after(60):
            async with one.listens() as aside, trio.open_nursery() as nursery:
                await aside.started.wait()
                nursery.start_soon(ping)
                sent = await next_message(aside)
                assert sent["method"] == "ping"
                assert (await one.reply(sent, result={})).status == 202
        assert answered == [{}]


# ── arrays ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def batched(request_id: Any, name: str) -> dict[str, Any]:
    params = {"name": name, **PROGRESS}
    return {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}


async def test_a_batch_in_a_session_is_answered_on_one_stream_with_what_its_calls_say() -> None:
    async def chatty(call: ToolCall, outlet: Outlet) -> ToolResult:
        await outlet.emit(Progress(progress=1, total=1))
        return says("done")

    async with living(agent(chatty=chatty, asks=asks)) as made:
        one = await talk(made.pair, version="2025-03-26", capabilities={"roots": {}})
        items = [
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            batched("a", "chatty"),
            {"jsonrpc": "2.0", "id": "server-77", "result": {}},
            batched("b", "chatty"),
            {"jsonrpc": "2.0", "id": "c", "method": "nonsense"},
        ]
        answer = await one.say(items)
        *told, last = messages(answer.body)
        assert [message["method"] for message in told] == ["notifications/progress"] * 2
        assert [(item["id"], "result" in item) for item in last] == [("a", True), ("b", True), ("c", False)]


async def test_a_batch_that_says_nothing_meanwhile_is_one_array() -> None:
    async with living() as made:
        one = await talk(made.pair, version="2025-03-26")
        answer = await one.say([{"jsonrpc": "2.0", "id": n, "method": "ping"} for n in (1, 2)])
        assert answer.headers["content-type"] == "application/json"
        assert [item["id"] for item in answer.json] == [1, 2]
        told = await one.say([{"jsonrpc": "2.0", "method": "notifications/initialized"}])
        assert (told.status, told.body) == (202, b"")


async def test_one_request_of_a_batch_can_be_cancelled() -> None:
    steps, other = Steps(), Steps()
    async with living(agent(work=steps, other=other)) as made:
        one = await talk(made.pair, version="2025-03-26")
        answers: list[Any] = []

        async def send() -> None:
            answers.append(await one.say([batched("a", "work"), batched("b", "other")]))

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(send)
                await steps.begun.wait()
                await other.begun.wait()
                await one.note("notifications/cancelled", {"requestId": "a"})
                await steps.ended.wait()
                other.finish()
        assert steps.how == "cancelled"
        assert [item["id"] for item in answers[0].json] == ["b"]


async def test_other_revisions_have_no_batches() -> None:
    async with living() as made:
        one = await talk(made.pair, version="2025-06-18")
        answer = await one.say([{"jsonrpc": "2.0", "id": 1, "method": "ping"}])
        assert (answer.status, answer.json["error"]["code"]) == (400, -32600)
