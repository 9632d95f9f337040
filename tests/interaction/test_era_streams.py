"""What is said before an answer, and beside it: progress, log messages, cancelling, subscriptions. On every wire."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from server.agents.base.backend import ToolCall
from server.calls.sessions.subscriptions import MAX_PER_CALLER, resource_topic
from server.mcp.call_failures import BackendError
from server.mcp.call_outlet import Outlet, Progress
from server.mcp.result_encoding import ToolResult
from server.mcp.terms import CallTerms
from tests.interaction.agents import agent, says
from tests.interaction.everything import STEPS, everything
from tests.interaction.pipe_client import PipeClient
from tests.interaction.session_house import Steps, asks
from tests.interaction.web_client import WebClient
from tests.interaction.wires import client
from tests.pair import patience
from tests.requirements import Cell

ID = "io.modelcontextprotocol/subscriptionId"
LEVEL = "io.modelcontextprotocol/logLevel"
TOOLS = {"notifications": {"toolsListChanged": True}}


def progress(token: Any) -> dict[str, Any]:
    return {"_meta": {"progressToken": token}}


# ── progress ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("progress.wanted")
@pytest.mark.requirement("progress.rises")
@pytest.mark.requirement("progress.own-stream")
@pytest.mark.requirement("progress.stops")
@pytest.mark.requirement("http.stream-content")
@pytest.mark.parametrize("token", [0, 7, "", "p-1"])
async def test_progress_rises_under_its_token_and_ends_with_the_answer(token: Any, cell: Cell) -> None:
    async with client(cell) as one:
        async with one.begins("tools/call", {"name": "steps", **progress(token)}) as asked:
            reply = await asked.reply()
            assert await asked.rest() == []
        assert [event["method"] for event in reply.before] == ["notifications/progress"] * STEPS
        tokens = [event["params"]["progressToken"] for event in reply.before]
        assert tokens == [token] * STEPS and {type(each) for each in tokens} == {type(token)}
        assert [event["params"]["progress"] for event in reply.before] == list(range(1, STEPS + 1))
        assert (await one.call("steps")).before == []


@pytest.mark.requirement("progress.newest")
async def test_the_newest_progress_is_told_although_nothing_follows(cell: Cell) -> None:
    go_on = trio.Event()

    async def stops(call: ToolCall, outlet: Outlet) -> ToolResult:
        for step in (1, 2, 3):
            await outlet.emit(Progress(progress=step))
        await go_on.wait()
        return says("done")

    async with client(cell, agent(stops=stops)) as one, one.begins("tools/call", {"name": "stops", **progress(1)}) as asked:  # fmt: skip
        with trio.fail_after(patience()):
            told = [await asked.next()]
            while told[-1]["params"]["progress"] != 3:
                told.append(await asked.next())
            go_on.set()
            assert (await asked.reply()).text == "done"


@pytest.mark.requirement("progress.newest")
async def test_the_newest_progress_comes_before_the_answer(cell: Cell) -> None:
    async def hurries(call: ToolCall, outlet: Outlet) -> ToolResult:
        for step in range(60):
            await outlet.emit(Progress(progress=step))
        if call.arguments:
            raise BackendError("no luck")
        return says("done")

    async with client(cell, agent(hurries=hurries)) as one:
        for arguments in ({}, {"fail": True}):
            reply = await one.call("hurries", arguments, **progress(1))
            values = [event["params"]["progress"] for event in reply.before]
            assert values == sorted(set(values)) and values[-1] == 59


@pytest.mark.requirement("progress.newest")
async def test_progress_is_told_before_a_question_and_not_again_when_it_is_answered(cell: Cell) -> None:
    async def brews(call: ToolCall, outlet: Outlet) -> ToolResult:
        await outlet.emit(Progress(progress=1, message="looking"))
        await outlet.emit(Progress(progress=2, message="asking"))
        await asks(call, outlet)
        await outlet.emit(Progress(progress=3, message="brewing"))
        await outlet.emit(Progress(progress=4, total=4, message="pouring"))
        return says("done")

    brew = {"name": "brews", **progress(1)}
    async with client(cell, agent(brews=brews), capabilities={"elicitation": {}}) as one:
        if cell.modern:
            paused = await one.ask("tools/call", brew)
            before = paused.before
            answers = {"who": {"action": "accept", "content": {"name": "Ann"}}}
            more = {"requestState": paused.result["requestState"], "inputResponses": answers}
            after = (await one.ask("tools/call", {**brew, **more})).before
            assert messages(after) == ["brewing", "pouring"]
        else:
            async with one.begins("tools/call", brew) as asked:
                before = []
                while (message := await asked.next())["method"] == "notifications/progress":
                    before.append(message)
                await one.answer(message, result={"action": "accept", "content": {"name": "Ann"}})
                after = (await asked.reply()).before
        assert messages(before) == ["looking", "asking"]
        assert messages(after)[-1] == "pouring"


@pytest.mark.requirement("progress.newest")
async def test_pieces_of_a_text_are_joined_and_none_is_left_out(cell: Cell) -> None:
    async def tells(call: ToolCall, outlet: Outlet) -> ToolResult:
        for step in range(1, 61):
            await outlet.emit(Progress(progress=step, message=f"{step},", joins=True))
            if step in (20, 40):
                await outlet.emit(Progress(progress=step + 0.5))
        return says("done")

    async with client(cell, agent(tells=tells)) as one:
        reply = await one.call("tells", **progress(1))
        values = [event["params"]["progress"] for event in reply.before]
        assert values == sorted(set(values)) and len(values) < 60
        if cell.version != "2024-11-05":
            assert "".join(messages(reply.before)) == "".join(f"{step}," for step in range(1, 61))


def messages(told: list[Any]) -> list[str]:
    return [event["params"]["message"] for event in told if "message" in event["params"]]


# ── log messages ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("log.wanted")
@pytest.mark.parametrize(
    ("level", "heard"),
    [
        (None, []),
        ("debug", ["debug", "info", "warning", "error"]),
        ("notice", ["warning", "error"]),
        ("alert", []),
    ],
)
async def test_log_messages_come_from_the_level_on_that_the_request_names(
    level: str | None, heard: list[str], cell: Cell
) -> None:
    async with client(cell) as one:
        reply = await one.call("logs", **({} if level is None else {"_meta": {LEVEL: level}}))
        assert [event["params"]["level"] for event in reply.before] == heard
        assert {event["method"] for event in reply.before} <= {"notifications/message"}


@pytest.mark.requirement("log.unknown-level")
@pytest.mark.parametrize("method", ["tools/call", "tools/list", "server/discover"])
@pytest.mark.parametrize("level", ["loud", "", 7, None, ["info"]])
async def test_a_level_that_does_not_exist_is_refused(method: str, level: Any, cell: Cell) -> None:
    for quick in (False, True):
        async with client(cell, everything(terms=CallTerms(quick=quick))) as one:
            assert (await one.ask(method, {"name": "plain", "_meta": {LEVEL: level}})).code == -32602


@pytest.mark.requirement("log.set-level")
async def test_a_level_holds_for_the_session_in_which_it_was_set(cell: Cell) -> None:
    async with client(cell) as one:
        assert (await one.ask("logging/setLevel", {"level": "warning"})).result == {}
        assert [event["params"]["level"] for event in (await one.call("logs")).before] == ["warning", "error"]
        assert (await one.ask("logging/setLevel", {"level": "loud"})).code == -32602
        assert len((await one.call("logs")).before) == 2
    async with client(cell) as other:
        assert len((await other.call("logs")).before) == 3


# ── cancelling ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("cancel.pipe")
@pytest.mark.requirement("cancel.session")
@pytest.mark.requirement("http.disconnect-cancels")
@pytest.mark.requirement("cancel.not-ours")
@pytest.mark.parametrize("streaming", [True, False])
async def test_a_cancelled_call_stops_and_nothing_more_is_said_for_it(streaming: bool, cell: Cell) -> None:
    work = Steps()
    async with client(cell, agent(work=work)) as one:
        params = {"name": "work", **(progress(1) if streaming else {})}
        async with one.begins("tools/call", params) as asked:
            await work.begun.wait()
            if streaming:
                work.report()
                assert (await asked.next())["method"] == "notifications/progress"
            await asked.cancel()
            with trio.fail_after(60):
                await work.ended.wait()
            assert work.how == "cancelled"
            if one.modern and isinstance(one, WebClient):
                return  # who has hung up is not there to be told
            assert await asked.rest() == []
        assert (await one.ask("tools/list")).result


@pytest.mark.requirement("cancel.nothing")
@pytest.mark.parametrize(
    "params", [{"requestId": 4711}, {"requestId": None}, {"requestId": [1]}, {}, {"x": 1}]
)
async def test_cancelling_what_does_not_run_changes_nothing(params: Any, cell: Cell) -> None:
    work = Steps()
    async with client(cell, agent(work=work)) as one, one.begins("tools/call", {"name": "work"}) as asked:
        await work.begun.wait()
        await one.note("notifications/cancelled", params)
        await trio.testing.wait_all_tasks_blocked()
        work.finish()
        assert (await asked.reply()).text == "0 steps"


@pytest.mark.requirement("cancel.initialize")
async def test_the_handshake_cannot_be_cancelled(cell: Cell) -> None:
    async with client(cell) as one:
        handshake = 1 if isinstance(one, WebClient) else 101
        await one.note("notifications/cancelled", {"requestId": handshake})
        assert (await one.ask("ping")).result == {}


# ── subscriptions ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("listen.acknowledged")
@pytest.mark.requirement("listen.id")
@pytest.mark.requirement("listen.only-asked")
@pytest.mark.requirement("listen.nothing-lost")
@pytest.mark.parametrize("request_id", [0, 7, "", "a"])
async def test_a_subscription_is_acknowledged_and_then_told_what_it_asked_for(
    request_id: Any, cell: Cell
) -> None:
    async with (
        client(cell) as one,
        one.begins("subscriptions/listen", TOOLS, request_id=request_id) as stream,
    ):
        assert await stream.next() == {
            "jsonrpc": "2.0",
            "method": "notifications/subscriptions/acknowledged",
            "params": {"notifications": {"toolsListChanged": True}, "_meta": {ID: request_id}},
        }
        one.made.subscriptions.publish("prompts")
        one.made.subscriptions.publish("tools")
        assert await stream.next() == {
            "jsonrpc": "2.0",
            "method": "notifications/tools/list_changed",
            "params": {"_meta": {ID: request_id}},
        }


@pytest.mark.requirement("listen.honoured")
@pytest.mark.requirement("listen.only-readable")
async def test_what_there_is_not_or_may_not_be_read_is_left_out(cell: Cell) -> None:
    uris = ["test://one", "test://nothing", "test://empty", "test://one"]
    wanted = {"promptsListChanged": True, "unheardOf": True, "resourceSubscriptions": uris}

    def policy(_principal: Any, entry: Any) -> bool:
        return getattr(entry, "resource", None) is None or entry.resource.uri != "test://empty"

    params = {"notifications": wanted}
    async with client(cell, policy=policy) as one, one.begins("subscriptions/listen", params) as stream:
        honoured = (await stream.next())["params"]["notifications"]
        assert honoured == {"promptsListChanged": True, "resourceSubscriptions": ["test://one"]}
    bare = agent(work=Steps())
    async with client(cell, bare) as one, one.begins("subscriptions/listen", params) as stream:
        assert (await stream.next())["params"]["notifications"] == {}


@pytest.mark.requirement("listen.updated")
async def test_a_watched_resource_is_told_of_when_it_changes(cell: Cell) -> None:
    wanted = {"notifications": {"resourceSubscriptions": ["test://one", "test://numbers/7"]}}
    async with client(cell) as one, one.begins("subscriptions/listen", wanted) as stream:
        await stream.next()
        for uri in ("test://empty", "test://numbers/7"):
            one.made.subscriptions.publish(resource_topic(uri))
        told = await stream.next()
        assert told["method"] == "notifications/resources/updated"
        assert told["params"] == {"uri": "test://numbers/7", "_meta": {ID: stream.id}}


@pytest.mark.requirement("listen.several")
async def test_each_subscription_gets_its_own_copy(cell: Cell) -> None:
    async with (
        client(cell) as one,
        one.begins("subscriptions/listen", TOOLS) as first,
        one.begins("subscriptions/listen", TOOLS) as second,
    ):
        await first.next()
        await second.next()
        one.made.subscriptions.publish("tools")
        for stream in (second, first):
            assert (await stream.next())["params"]["_meta"] == {ID: stream.id}


@pytest.mark.requirement("listen.not-of-calls")
async def test_what_calls_say_is_not_said_on_a_subscription(cell: Cell) -> None:
    async with client(cell) as one, one.begins("subscriptions/listen", TOOLS) as stream:
        await stream.next()
        if isinstance(one, WebClient):
            assert (await one.call("steps", **progress(1))).before
            assert (await one.call("logs", _meta={LEVEL: "debug"})).before
            one.made.subscriptions.publish("tools")
            assert (await stream.next())["method"] == "notifications/tools/list_changed"
            return
        assert isinstance(one, PipeClient)
        assert (await one.call("steps", **progress(1))).before
        assert (await one.call("logs", _meta={LEVEL: "debug"})).before
        said = b"\n".join(one.lines)
        assert said.count(ID.encode()) == 1, "the acknowledgement alone is of the subscription"


@pytest.mark.requirement("listen.filter")
@pytest.mark.parametrize("params", [{}, {"notifications": None}, {"notifications": {"toolsListChanged": 1}}])
async def test_a_subscription_to_nothing_in_particular_is_refused(params: Any, cell: Cell) -> None:
    async with client(cell) as one:
        assert (await one.ask("subscriptions/listen", params)).code == -32602


@pytest.mark.requirement("listen.server-ends")
@pytest.mark.requirement("listen.server-ends-pipe")
async def test_a_subscription_that_the_server_ends_has_its_result(cell: Cell) -> None:
    async with client(cell) as one, one.begins("subscriptions/listen", TOOLS) as stream:
        await stream.next()
        if isinstance(one, PipeClient):
            one.stopping.set()
        else:
            one.made.pair.draining.set()
        last = await stream.next()
        assert last["id"] == stream.id
        assert last["result"]["resultType"] == "complete" and last["result"]["_meta"][ID] == stream.id
        rest = await stream.rest()
        if isinstance(one, PipeClient):
            assert [each["method"] for each in rest] == ["notifications/cancelled"]
            assert rest[0]["params"] == {"requestId": stream.id}
        else:
            assert rest == []


@pytest.mark.requirement("listen.client-ends")
async def test_a_subscription_that_the_client_ends_is_gone_without_a_word(cell: Cell) -> None:
    async with client(cell) as one, one.begins("subscriptions/listen", TOOLS) as stream:
        await stream.next()
        assert one.made.subscriptions.count() == 1
        await stream.cancel()
        assert one.made.subscriptions.count() == 0
        if isinstance(one, PipeClient):
            assert await stream.rest() == []


@pytest.mark.requirement("listen.bounds")
async def test_a_caller_has_only_so_many_subscriptions(cell: Cell) -> None:
    async with client(cell) as one, trio.open_nursery() as nursery:

        async def listen(*, task_status: trio.TaskStatus[None]) -> None:
            async with one.begins("subscriptions/listen", TOOLS) as stream:
                await stream.next()
                task_status.started()
                await trio.sleep_forever()

        for _ in range(MAX_PER_CALLER):
            await nursery.start(listen)
        assert (await one.ask("subscriptions/listen", TOOLS)).code == 1429
        many = {"notifications": {"resourceSubscriptions": [f"test://numbers/{n}" for n in range(1100)]}}
        assert (await one.ask("subscriptions/listen", many)).code == 1429
        nursery.cancel_scope.cancel()


# ── the handshake era ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("legacy.before-ready")
async def test_a_client_that_is_not_ready_is_not_asked_and_not_told_of_changes(
    cell: Cell, autojump_clock: trio.testing.MockClock
) -> None:
    able = {"elicitation": {}}
    async with client(cell, everything(terms=CallTerms(deadline_seconds=60)), capabilities=able, initialized=False) as one:  # fmt: skip
        one.made.endpoint.sessions.publish("tools")  # type: ignore[union-attr]
        with trio.fail_after(30):
            async with one.begins("tools/call", {"name": "asks"}) as asked:
                reply = await asked.reply()
        assert reply.before == []


@pytest.mark.requirement("legacy.ping")
async def test_a_client_may_ping_at_any_time(cell: Cell) -> None:
    async with client(cell, initialized=False) as one:
        assert (await one.ask("ping")).result == {}
        await one.note("notifications/initialized")
        assert (await one.ask("ping")).result == {}


@pytest.mark.requirement("legacy.ping", transport="stdio")
async def test_a_client_may_ping_before_its_handshake(cell: Cell) -> None:
    async with client(cell, handshake=False) as one:
        assert (await one.ask("ping")).result == {}
