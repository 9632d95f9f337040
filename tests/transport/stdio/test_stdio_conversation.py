"""MCP over a pair of pipes: both eras in one conversation, side by side, cancelled, drained. In memory, on a clock that jumps;
the program with real pipes is in e2e/test_serve_stdio.py."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from server.agents.base.backend import ToolCall
from server.calls.servers.endpoint import Endpoint
from server.calls.tasks.task_engine import Tasks
from server.mcp.call_outlet import Outlet
from server.mcp.messages import Tool, ToolExecution
from server.mcp.result_encoding import ToolResult
from server.transport.stdio.stdio_conversation import MAX_HELD, MAX_RUNNING, ROOM_SECONDS
from tests.interaction.agents import ANYTHING, says
from tests.interaction.task_engine import engine
from tests.stdio_talk import (
    DRAIN_SECONDS,
    ELICITS,
    LINE_BYTES,
    Client,
    Everything,
    call,
    legacy,
    modern,
    note,
    shelf,
    talking,
    texts,
)

NOW = 1_800_000_000_000
TASKS = "io.modelcontextprotocol/tasks"
LISTEN = {"notifications": {"toolsListChanged": True}}
ID = "io.modelcontextprotocol/subscriptionId"

Form = Callable[..., dict[str, Any]]
ERAS = pytest.mark.parametrize("form", [modern, legacy])


@asynccontextmanager
async def begun(form: Form, agent: Everything | None = None, **how: Any) -> AsyncGenerator[Client]:
    """A conversation in which requests of this form are in order."""
    async with talking(shelf(agent or Everything({})), **how) as client:
        if form is legacy:
            await client.shake_hands(capabilities=ELICITS)
        yield client


# ── both eras ────────────────────────────────────────────────────────────────────────────────────────────────────────


@ERAS
async def test_tools_are_listed_and_called(form: Form) -> None:
    async with begun(form) as client:
        listed = await client.result(form("tools/list"))
        assert {tool["name"] for tool in listed["tools"]} >= {"echo", "hangs"}
        answer = await client.answers(form("tools/call", call("echo", text="häl\nlo"), id="x"))
        assert answer["id"] == "x" and texts([answer["result"]]) == ["häl\nlo"]
        assert ("resultType" in answer["result"]) is (form is modern)


@ERAS
async def test_progress_comes_before_the_answer_if_it_is_wanted(
    form: Form, autojump_clock: MockClock
) -> None:
    async with begun(form) as client:
        params = call("reports")
        silent = form("tools/call", params, id=1)
        loud = form("tools/call", params, id=2)
        loud["params"] = {**loud["params"], "_meta": {**loud["params"].get("_meta", {}), "progressToken": 7}}
        await client.say(silent, loud)
        heard = await client.hear_until(2)
        told = [one["params"] for one in heard if one.get("method") == "notifications/progress"]
        assert [(one["progressToken"], one["progress"]) for one in told] == [(7, 1), (7, 2)]


async def test_log_messages_come_from_the_level_on_that_a_modern_request_names() -> None:
    async with begun(modern) as client:
        level = {"io.modelcontextprotocol/logLevel": "warning"}
        await client.say(
            modern("tools/call", call("logs"), id=1), modern("tools/call", call("logs"), id=2, **level)
        )
        heard = await client.hear_until(1) + await client.hear_until(2)
        assert [one["params"]["data"] for one in heard if "method" in one] == ["warning"]


async def test_log_messages_come_from_the_level_on_that_a_session_has_set() -> None:
    async with begun(legacy) as client:
        await client.result(legacy("logging/setLevel", {"level": "debug"}))
        await client.say(legacy("tools/call", call("logs")))
        assert [one["params"]["data"] for one in await client.hear_until(1) if "method" in one] == [
            "debug",
            "warning",
        ]


@ERAS
async def test_resources_prompts_and_completions_are_served(form: Form) -> None:
    async with begun(form) as client:
        read = await client.result(form("resources/read", {"uri": "test://one"}))
        assert read["contents"][0]["text"] == "read test://one"
        templates = await client.result(form("resources/templates/list"))
        assert templates["resourceTemplates"][0]["uriTemplate"] == "test://at/{place}"
        got = await client.result(form("prompts/get", {"name": "greet", "arguments": {"whom": "Ann"}}))
        assert got["messages"][0]["content"]["text"] == "hello Ann"
        asked = {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "whom", "value": "B"}}
        completed = await client.result(form("completion/complete", asked))
        assert completed["completion"]["values"] == ["Bella"]


async def test_a_modern_call_that_needs_an_answer_is_sent_again_with_it() -> None:
    async with begun(modern) as client:
        first = await client.result(modern("tools/call", call("asks"), can=ELICITS))
        assert first["resultType"] == "input_required"
        assert first["inputRequests"]["who"]["method"] == "elicitation/create"
        answered = {
            **call("asks"),
            "inputResponses": {"who": {"action": "accept", "content": {"name": "Ann"}}},
            "requestState": first["requestState"],
        }
        second = await client.result(modern("tools/call", answered, id=2, can=ELICITS))
        assert texts([second]) == ["accept: {'name': 'Ann'}"]


async def test_a_call_in_the_session_asks_the_client_and_waits_for_its_answer() -> None:
    async with begun(legacy) as client:
        await client.say(legacy("tools/call", call("asks")))
        question = await client.hear()
        assert question["method"] == "elicitation/create" and question["params"]["message"] == "who?"
        await client.say(
            {"jsonrpc": "2.0", "id": "never-asked", "result": {}},
            {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}},
        )
        assert texts([(await client.hear())["result"]]) == ["decline: None"]


async def test_modern_requests_go_on_in_a_process_that_has_a_session() -> None:
    async with begun(legacy) as client:
        assert (await client.result(modern("tools/list")))["resultType"] == "complete"
        assert "resultType" not in await client.result(legacy("tools/list"))
        # What the session can be asked for says nothing of a request that stands alone.
        answer = await client.answers(modern("tools/call", call("asks")))
        assert answer["error"]["code"] == -32021


# ── the handshake ────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_discovery_and_ping_work_before_any_handshake() -> None:
    async with talking() as client:
        assert (await client.result(modern("server/discover")))["supportedVersions"] == ["2026-07-28"]
        assert await client.result(legacy("ping", id=0)) == {}


@pytest.mark.parametrize("method", ["tools/list", "no/such", "server/discover", "tools/call"])
async def test_what_comes_before_the_handshake_and_is_not_modern_is_refused_at_once(method: str) -> None:
    async with talking() as client:
        answer = await client.answers(legacy(method, id="early"))
        assert answer["error"]["code"] == -32602


async def test_unknown_methods_and_versions_are_refused_in_their_own_words() -> None:
    async with begun(legacy) as client:
        assert (await client.answers(legacy("no/such")))["error"]["code"] == -32601
        assert (await client.answers(modern("no/such")))["error"]["code"] == -32601
        unknown = modern("tools/list", **{"io.modelcontextprotocol/protocolVersion": "2099-01-01"})
        assert (await client.answers(unknown))["error"]["code"] == -32022


async def test_a_second_handshake_is_refused_and_the_first_one_holds() -> None:
    async with talking() as client:
        assert (await client.shake_hands("2025-06-18"))["protocolVersion"] == "2025-06-18"
        answer = await client.answers(legacy("initialize", {"protocolVersion": "2025-11-25"}))
        assert answer["error"]["code"] == -32600
        assert client.sessions.count() == 1
        assert "tools" in await client.result(legacy("tools/list"))


@pytest.mark.parametrize("wanted", ["2026-07-28", "1999-01-01"])
async def test_a_version_without_a_handshake_is_answered_with_the_latest_that_has_one(wanted: str) -> None:
    async with talking() as client:
        assert (await client.shake_hands(wanted))["protocolVersion"] == "2025-11-25"


async def test_a_session_hears_of_changes_unasked_from_when_it_is_ready(autojump_clock: MockClock) -> None:
    async with talking() as client:
        await client.result(legacy("initialize", {"protocolVersion": "2025-11-25"}))
        client.sessions.publish("tools")
        await client.say(note("initialized"))
        await client.result(legacy("resources/subscribe", {"uri": "test://one"}))
        client.sessions.publish("prompts")
        client.sessions.updated("test://one")
        client.sessions.updated("test://other")
        assert (await client.hear())["method"] == "notifications/prompts/list_changed"
        assert (await client.hear())["params"] == {"uri": "test://one"}
        await client.hang_up()
        assert await client.rest() == []


# ── lines ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{", -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', -32700),
        (b"42", -32600),
        (b'{"jsonrpc":"1.0","method":"ping"}', -32600),
        (b"x" * (LINE_BYTES + 1), -32600),
        (b"[]", -32600),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600),
    ],
)
async def test_a_line_that_is_no_message_is_refused_without_an_id_and_the_next_is_read(
    line: bytes, code: int
) -> None:
    async with talking() as client:
        await client.put(line + b"\n" + json.dumps(legacy("ping", id=2)).encode() + b"\n")
        refusal = await client.hear()
        assert refusal["error"]["code"] == code and refusal.get("id") is None
        assert (await client.hear())["id"] == 2


async def test_what_can_be_read_of_a_bad_message_names_the_refusal() -> None:
    async with talking() as client:
        await client.say({"jsonrpc": "2.0", "id": 5, "method": 3})
        answer = await client.hear()
        assert answer["id"] == 5 and answer["error"]["code"] == -32600


async def test_a_line_of_any_length_is_skipped_and_answered_once() -> None:
    async with talking() as client:
        for _ in range(30):
            await client.put(b"[" * 50_000)
        await client.put(b"\n")
        assert (await client.hear())["error"]["code"] == -32600
        assert await client.result(legacy("ping")) == {}


async def test_lines_may_come_in_any_pieces_with_any_ends_and_blank_ones_between() -> None:
    async with talking() as client:
        line = json.dumps(legacy("ping", id="p")).encode()
        for piece in (b"\n \r\n", line[:10], line[10:], b"\r\n\n"):
            await client.put(piece)
        assert await client.hear() == {"jsonrpc": "2.0", "id": "p", "result": {}}


async def test_a_last_line_that_nobody_ended_is_answered(autojump_clock: MockClock) -> None:
    async with talking() as client:
        await client.put(json.dumps(legacy("ping")).encode())
        await client.hang_up()
        assert [answer["id"] for answer in await client.rest()] == [1]


async def test_notifications_and_answers_are_never_answered(autojump_clock: MockClock) -> None:
    async with talking() as client:
        await client.say(
            note("initialized"), note("no/such"), {"jsonrpc": "2.0", "id": 3, "result": {}}, note("cancelled")
        )
        await client.hang_up()
        assert await client.rest() == []


# ── batches ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("version", "widened"), [("2025-03-26", False), ("2025-11-25", True)])
async def test_a_batch_is_answered_in_one_line_in_its_order(
    version: str, widened: bool, autojump_clock: MockClock
) -> None:
    async with talking(widened=widened) as client:
        await client.shake_hands(version)
        await client.say(
            [
                legacy("tools/call", call("reports"), id=1),
                note("no/such"),
                legacy("ping", id=2),
                legacy("initialize", id=3),
                legacy("tools/call", call("echo", text="hi"), id=4),
            ]
        )
        answers = await client.hear()
        assert [answer["id"] for answer in answers] == [1, 2, 3, 4]
        assert answers[2]["error"]["code"] == -32600
        assert texts([answers[0]["result"], answers[3]["result"]]) == ["done", "hi"]


async def test_a_batch_of_nothing_to_answer_is_not_answered_and_its_answers_are_taken(
    autojump_clock: MockClock,
) -> None:
    async with talking() as client:
        await client.shake_hands("2025-03-26")
        (session,) = client.sessions._all.values()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(session.ask_plain, session.send, "ping", {})
            question = await client.hear()
            await client.say([note("no/such"), {"jsonrpc": "2.0", "id": question["id"], "result": {}}])
        await client.hang_up()
        assert await client.rest() == []


async def test_an_id_that_is_in_use_is_refused_within_a_batch(autojump_clock: MockClock) -> None:
    agent = Everything({})
    async with talking(shelf(agent)) as client:
        await client.shake_hands("2025-03-26")
        await client.say(legacy("tools/call", call("hangs"), id=1))
        await wait_all_tasks_blocked()
        calls = [
            legacy("tools/call", call("echo", text=text), id=number)
            for text, number in (("a", 1), ("b", 2), ("c", 2))
        ]
        await client.say(calls)
        answers = await client.hear()
        assert [answer["id"] for answer in answers] == [1, 2, 2]
        assert ["error" in answer for answer in answers] == [True, False, True]
        agent.go_on.set()
        assert texts([(await client.hear())["result"]]) == ["gone on"]


async def test_a_batch_for_which_there_is_no_room_is_refused_and_its_ids_are_free(
    autojump_clock: MockClock,
) -> None:
    agent = Everything({})
    async with talking(shelf(agent)) as client:
        await client.shake_hands("2025-03-26")
        await client.say(*[legacy("tools/call", call("hangs"), id=number) for number in range(MAX_HELD)])
        await client.say([legacy("tools/call", call("echo"), id="x"), {"jsonrpc": "1.0", "id": 3}])
        assert (await client.hear())["error"]["code"] == 1430
        agent.go_on.set()
        assert {(await client.hear())["id"] for _ in range(MAX_HELD)} == set(range(MAX_HELD))
        assert "result" in await client.answers(legacy("tools/call", call("echo"), id="x"))


async def test_what_a_client_cancels_of_a_batch_is_left_out_of_its_answers(autojump_clock: MockClock) -> None:
    agent = Everything({})
    async with talking(shelf(agent)) as client:
        await client.shake_hands("2025-03-26")
        await client.say(
            [legacy("tools/call", call("hangs"), id=1), legacy("tools/call", call("reports"), id=2)],
            note("cancelled", {"requestId": 1}),
        )
        assert [answer["id"] for answer in await client.hear()] == [2]
        assert agent.stopped == 1


# ── cancelling ───────────────────────────────────────────────────────────────────────────────────────────────────────


@ERAS
async def test_a_cancelled_call_stops_and_is_not_answered(form: Form, autojump_clock: MockClock) -> None:
    agent = Everything({})
    async with begun(form, agent) as client:
        await client.say(form("tools/call", call("hangs"), id="h"), form("tools/call", call("hangs"), id=2))
        await wait_all_tasks_blocked()
        await client.say(
            note("cancelled", {"requestId": "h", "reason": "too slow"}), note("cancelled", {"requestId": 99})
        )
        await wait_all_tasks_blocked()
        assert (agent.begun, agent.stopped) == (2, 1)
        # Its id is free again, and the other call runs on.
        assert texts([await client.result(form("tools/call", call("echo", text="next"), id="h"))]) == ["next"]
        agent.go_on.set()
        assert (await client.hear())["id"] == 2
        await client.hang_up()
        assert await client.rest() == []


@ERAS
async def test_a_cancelled_call_that_ends_with_an_answer_all_the_same_is_not_answered(
    form: Form, autojump_clock: MockClock
) -> None:
    ended = trio.Event()

    async def stubborn(_call: ToolCall, _outlet: Outlet) -> ToolResult:
        with trio.CancelScope(shield=True):
            await trio.sleep(1)
        ended.set()
        return says("done anyway")

    async with begun(form, Everything({"stubborn": stubborn})) as client:
        await client.say(form("tools/call", call("stubborn"), id=1))
        await wait_all_tasks_blocked()
        await client.say(note("cancelled", {"requestId": 1}))
        with trio.fail_after(5):
            await ended.wait()
        await client.hang_up()
        assert await client.rest() == []


async def test_a_call_that_is_cancelled_while_it_asks_withdraws_its_question(
    autojump_clock: MockClock,
) -> None:
    async with begun(legacy) as client:
        await client.say(legacy("tools/call", call("asks")))
        question = await client.hear()
        await client.say(note("cancelled", {"requestId": 1}))
        withdrawn = await client.hear()
        assert withdrawn["method"] == "notifications/cancelled"
        assert withdrawn["params"]["requestId"] == question["id"]
        await client.hang_up()
        assert await client.rest() == []


@ERAS
async def test_an_id_that_is_in_use_is_refused_and_the_request_that_has_it_runs_on(form: Form) -> None:
    agent = Everything({})
    async with begun(form, agent) as client:
        await client.say(form("tools/call", call("hangs"), id=1))
        await wait_all_tasks_blocked()
        assert (await client.answers(form("tools/list", id=1)))["error"]["code"] == -32600
        assert "result" in await client.answers(form("tools/list", id="1"))
        agent.go_on.set()
        assert texts([(await client.hear())["result"]]) == ["gone on"]


# ── many at once ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_requests_beyond_the_cap_wait_and_all_of_them_are_answered(autojump_clock: MockClock) -> None:
    async with begun(modern) as client, trio.open_nursery() as nursery:
        count = 3 * MAX_HELD
        requests = [modern("tools/call", call("reports"), id=number) for number in range(count)]
        nursery.start_soon(client.say, *requests)
        assert {(await client.hear())["id"] for _ in range(count)} == set(range(count))


async def test_no_more_than_the_cap_run_at_once_and_a_cancelled_one_gives_its_place_to_the_next() -> None:
    agent = Everything({})
    async with begun(modern, agent) as client:
        await client.say(*[modern("tools/call", call("hangs"), id=n) for n in range(MAX_RUNNING + 2)])
        await wait_all_tasks_blocked()
        assert agent.begun == MAX_RUNNING
        await client.say(
            note("cancelled", {"requestId": 0}), note("cancelled", {"requestId": MAX_RUNNING + 1})
        )
        await wait_all_tasks_blocked()
        assert (agent.begun, agent.stopped) == (MAX_RUNNING + 1, 1)
        # What returns at once needs no place.
        assert "result" in await client.answers(modern("tools/list", id="list"))


async def test_answers_and_cancellations_are_read_when_everything_waits_for_them(
    autojump_clock: MockClock,
) -> None:
    agent = Everything({})
    async with begun(legacy, agent) as client:
        await client.say(legacy("tools/call", call("asks"), id="asks"))
        question = await client.hear()
        filling = [legacy("tools/call", call("hangs"), id=n) for n in range(MAX_HELD + 3)]
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.say, *filling)
            refused = [await client.hear() for _ in range(4)]
        # Once it is clear that nothing ends, nothing more is waited for.
        assert trio.current_time() - began == pytest.approx(ROOM_SECONDS)
        assert [one["id"] for one in refused] == [MAX_HELD - 1, MAX_HELD, MAX_HELD + 1, MAX_HELD + 2]
        assert all(one["error"]["code"] == 1430 for one in refused)
        await client.say({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "cancel"}})
        assert (await client.hear())["id"] == "asks"
        await client.say(*[note("cancelled", {"requestId": n}) for n in range(MAX_HELD)])
        assert "result" in await client.answers(legacy("tools/call", call("echo"), id="after"))


async def test_a_client_that_does_not_read_gets_no_more_than_it_reads_and_loses_nothing() -> None:
    async with begun(modern) as client:
        count = 2 * MAX_HELD
        sent = 0
        async with trio.open_nursery() as nursery:

            async def keep_asking() -> None:
                nonlocal sent
                for number in range(count):
                    await client.say(modern("tools/list", id=number))
                    sent += 1

            nursery.start_soon(keep_asking)
            await wait_all_tasks_blocked()
            assert sent < 10
            assert [(await client.hear())["id"] for _ in range(count)] == list(range(count))


# ── subscriptions ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("by_signal", [True, False])
async def test_a_subscription_is_acknowledged_told_of_changes_and_ended_with_a_result(
    by_signal: bool, autojump_clock: MockClock
) -> None:
    async with talking() as client:
        await client.say(modern("subscriptions/listen", LISTEN, id="sub"))
        acknowledged = await client.hear()
        assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
        client.house.subscriptions.publish("tools")
        client.house.subscriptions.publish("prompts")
        assert await client.hear() == note("tools/list_changed", {"_meta": {ID: "sub"}})
        if by_signal:
            client.stopping.set()
        else:
            await client.hang_up()
        result, cancelled = await client.rest()
        assert result["id"] == "sub" and result["result"]["_meta"][ID] == "sub"
        assert cancelled == note("cancelled", {"requestId": "sub"})


async def test_a_subscription_that_the_client_cancels_ends_in_silence(autojump_clock: MockClock) -> None:
    async with talking() as client:
        await client.say(modern("subscriptions/listen", LISTEN, id=4))
        await client.hear()
        await client.say(note("cancelled", {"requestId": 4}))
        await wait_all_tasks_blocked()
        assert client.house.subscriptions.count() == 0
        await client.hang_up()
        assert await client.rest() == []


async def test_a_subscription_as_the_last_line_of_a_file_does_not_hold_up_the_end(
    autojump_clock: MockClock,
) -> None:
    async with talking() as client:
        await client.put(json.dumps(modern("subscriptions/listen", LISTEN)).encode())
        began = trio.current_time()
        await client.hang_up()
        assert [message.get("method", "result") for message in await client.rest()][-2:] == [
            "result",
            "notifications/cancelled",
        ]
        assert trio.current_time() - began < 1


async def test_subscriptions_take_no_place_from_calls(autojump_clock: MockClock) -> None:
    async with talking() as client:
        for number in range(MAX_RUNNING):
            await client.say(modern("subscriptions/listen", LISTEN, id=f"s{number}"))
            await client.hear()
        answer = await client.answers(modern("subscriptions/listen", LISTEN, id="one too many"))
        assert answer["error"]["code"] == 1429
        assert "result" in await client.answers(modern("tools/call", call("echo"), id="call"))


# ── tasks ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def with_tasks() -> AsyncGenerator[Client]:
    engines: list[Tasks] = []
    listed = {
        "reports": Tool(
            name="reports", input_schema=ANYTHING, execution=ToolExecution(task_support="optional")
        )
    }
    endpoints: dict[str, Endpoint] = {}
    async with (
        engine(engines, [], endpoints, wasmagent=False) as tasks,
        talking(shelf(Everything({}, listed)), tasks=tasks) as client,
        trio.open_nursery() as nursery,
    ):
        endpoints["main"] = client.house.endpoint
        await nursery.start(engines[0].run)
        yield client
        nursery.cancel_scope.cancel()


async def test_a_call_becomes_a_task_for_a_modern_client_that_knows_them(autojump_clock: MockClock) -> None:
    async with with_tasks() as client:
        can = {"extensions": {TASKS: {}}}
        made = await client.result(modern("tools/call", call("reports"), can=can))
        assert made["resultType"] == "task"
        while (task := await client.result(modern("tasks/get", {"taskId": made["taskId"]}, can=can)))[
            "status"
        ] == "working":
            await trio.sleep(0.5)
        assert task["status"] == "completed" and texts([task["result"]]) == ["done"]


async def test_a_session_asks_for_a_task_and_waits_for_its_result(autojump_clock: MockClock) -> None:
    async with with_tasks() as client:
        result = await client.shake_hands()
        assert "tasks" in result["capabilities"]
        made = await client.result(legacy("tools/call", {**call("reports"), "task": {"ttl": 50_000}}))
        task_id = made["task"]["taskId"]
        assert texts([await client.result(legacy("tasks/result", {"taskId": task_id}))]) == ["done"]
        listed = await client.result(legacy("tasks/list"))
        assert [task["taskId"] for task in listed["tasks"]] == [task_id]


# ── the end ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("by_signal", [True, False])
async def test_what_runs_at_the_end_is_answered_if_it_ends_in_time(
    by_signal: bool, autojump_clock: MockClock
) -> None:
    async with begun(modern) as client:
        await client.say(modern("tools/call", call("reports")))
        await wait_all_tasks_blocked()
        if by_signal:
            client.stopping.set()
        else:
            await client.hang_up()
        assert [answer["id"] for answer in await client.rest()] == [1]
        await client.over.wait()
        assert client.stopping.is_set()


async def test_what_does_not_end_in_time_is_cancelled_and_told_so(autojump_clock: MockClock) -> None:
    agent = Everything({})
    async with begun(modern, agent) as client:
        await client.say(modern("tools/call", call("hangs")))
        await wait_all_tasks_blocked()
        began = trio.current_time()
        await client.hang_up()
        (answer,) = await client.rest()
        assert (answer["id"], answer["error"]["code"]) == (1, -32603)
        await client.over.wait()
        assert trio.current_time() - began == pytest.approx(DRAIN_SECONDS)
        assert agent.stopped == 1


async def test_a_call_that_waits_for_an_answer_at_the_end_is_told_that_none_comes(
    autojump_clock: MockClock,
) -> None:
    async with begun(legacy) as client:
        await client.say(legacy("tools/call", call("asks")))
        await client.hear()
        began = trio.current_time()
        await client.hang_up()
        (answer,) = await client.rest()
        assert "the session has ended" in answer["error"]["message"]
        assert trio.current_time() - began < 1
        assert client.sessions.count() == 0


async def test_a_client_that_takes_nothing_any_more_ends_the_conversation_quietly() -> None:
    agent = Everything({})
    async with talking(shelf(agent), reads=False) as client:
        await client.say(modern("tools/call", call("hangs")), modern("tools/list", id=2))
        with trio.fail_after(60):
            await client.over.wait()
        assert agent.stopped == agent.begun


async def test_a_client_that_stays_but_does_not_read_does_not_keep_us(autojump_clock: MockClock) -> None:
    async with begun(modern) as client:
        await client.say(*[modern("tools/call", call("echo"), id=number) for number in range(5)])
        client.stopping.set()
        with trio.fail_after(DRAIN_SECONDS + 5):
            await client.over.wait()
