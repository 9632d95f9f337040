"""Calls that become tasks: the extension of the modern era, and the tasks of 2025-11-25. On every wire."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any

import pytest
import trio
import trio.testing
from msgspec.structs import replace

from auth.values.identity_model import Principal, PrincipalKind
from server.agents.base.backend import ProtocolFailure, ToolCall
from server.agents.base.catalog import Source
from server.mcp.call_outlet import Outlet, Progress
from server.mcp.call_questions import Question
from server.mcp.messages import Tool, ToolExecution
from server.mcp.result_encoding import ToolResult
from server.mcp.terms import CallTerms
from tests.interaction.agents import USER, Agent, says
from tests.interaction.clients import Client
from tests.interaction.everything import NUMBER, everything, fails, plain, task_tool
from tests.interaction.session_house import ASKED, asks
from tests.interaction.wires import client
from tests.pair import talk
from tests.requirements import Cell

EXTENSION = "io.modelcontextprotocol/tasks"
LEVEL = "io.modelcontextprotocol/logLevel"
RELATED = "io.modelcontextprotocol/related-task"
ABLE: dict[str, Any] = {"elicitation": {}, "extensions": {EXTENSION: {}}}
ANN = {"action": "accept", "content": {"name": "Ann"}}
STRANGER = USER.__class__(
    kind=USER.kind, subject="user-2", client_id="client-2", grant_id="g2", scopes=USER.scopes
)
# Two logins of one person with one program, as two computers have them.
WIDE = Principal(
    kind=PrincipalKind.USER,
    subject="s",
    client_id="c",
    grant_id="g1",
    scopes=frozenset({"mcp", "financial"}),
    reach=frozenset({"*"}),
)
NARROW = replace(WIDE, grant_id="g2", scopes=frozenset({"mcp:tools:read"}))
BEYOND = replace(NARROW, reach=frozenset({"mcp"}))


async def forever(call: ToolCall, outlet: Outlet) -> ToolResult:
    await outlet.emit(Progress(progress=1, total=2, message="half"))
    await trio.sleep_forever()
    raise AssertionError


async def refuses(call: ToolCall, outlet: Outlet) -> ToolResult:
    raise ProtocolFailure("so there", 4711)


async def asks_twice(call: ToolCall, outlet: Outlet) -> ToolResult:
    question = Question(method="elicitation/create", params={"message": "who?", "requestedSchema": ASKED})
    found = await outlet.ask({"a": question, "b": question})
    return says(f"{found['a']['content']['name']} and {found['b']['content']['name']}")


async def gives_in(call: ToolCall, outlet: Outlet) -> ToolResult:
    assert await outlet.become_task()
    await trio.sleep_forever()
    raise AssertionError


async def asks_first(call: ToolCall, outlet: Outlet) -> ToolResult:
    question = Question(method="elicitation/create", params={"message": "who?", "requestedSchema": ASKED})
    found = await outlet.ask({"who": question})
    assert await outlet.become_task()
    return says(f"hello {found['who']['content']['name']}")


LISTED = {
    **task_tool("slow", "optional"),
    **task_tool("must", "required"),
    **task_tool("forever", "optional"),
    **task_tool("unlucky", "optional"),
    **task_tool("refuses", "optional"),
    **task_tool("curious", "optional"),
    **task_tool("gives_in", "optional", by_hand=True),
    **task_tool("asks_first", "optional", by_hand=True),
}


def server() -> Any:
    return everything(
        listed=LISTED,
        slow=plain,
        must=plain,
        forever=forever,
        unlucky=fails,
        refuses=refuses,
        curious=asks_twice,
        gives_in=gives_in,
        asks_first=asks_first,
    )


def shop() -> Any:
    listed = {**task_tool("pay", "optional"), **task_tool("look", "optional")}
    made = everything(listed=listed, pay=asks_twice, look=asks_twice)
    terms = {
        "pay": CallTerms(scopes=frozenset({"financial"}), tier="financial"),
        "look": CallTerms(scopes=frozenset({"mcp:tools:read"}), tier="read"),
    }
    return replace(made, tool_terms=terms)


def working(cell: Cell, *, capabilities: Any = ABLE, **how: Any) -> AbstractAsyncContextManager[Client]:
    return client(cell, server(), capabilities=capabilities, tasks=True, **how)


async def begin(one: Client, tool: str) -> Any:
    """The task as it was made."""
    if one.modern:
        return (await one.call(tool)).result
    return (await one.call(tool, task={"ttl": 60_000})).result["task"]


async def get(one: Client, task: Any) -> Any:
    return (await one.ask("tasks/get", {"taskId": task["taskId"]})).result


async def until(one: Client, task: Any, status: str) -> Any:
    with trio.fail_after(60):
        while (found := await get(one, task))["status"] != status:
            await trio.testing.wait_all_tasks_blocked()
    return found


# ── both ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("tasks.created")
@pytest.mark.requirement("core-tasks.created")
@pytest.mark.requirement("core-tasks.fields")
@pytest.mark.requirement("tasks.ids")
async def test_a_task_is_made_at_once_and_is_known_at_once(cell: Cell) -> None:
    async with working(cell) as one:
        task = await begin(one, "forever")
        assert task["status"] == "working"
        assert len(task["taskId"]) >= 22
        for time in ("createdAt", "lastUpdatedAt"):
            assert datetime.fromisoformat(task[time]).tzinfo is not None
        if one.modern:
            assert task["resultType"] == "task" and isinstance(task["ttlMs"], int)
            assert not task.keys() & {"result", "error", "inputRequests", "requestState", "task"}
        else:
            assert task["ttl"] == 60_000
        assert (await get(one, task))["status"] == "working"
        assert (await begin(one, "forever"))["taskId"] != task["taskId"]


@pytest.mark.requirement("core-tasks.arguments")
async def test_a_task_with_wrong_arguments_or_a_wish_that_is_none_is_an_error_that_says_which(
    cell: Cell,
) -> None:
    number = Tool(name="count", input_schema=NUMBER, execution=ToolExecution(task_support="optional"))
    counts = everything(listed={"count": number}, count=plain)
    async with client(cell, counts, tasks=True) as one:
        wrong = await one.call("count", {"n": "x"}, task={})
        assert wrong.code == -32602 and "n: " in wrong.error["message"]
        for wish in (5, [], "soon", {"ttl": -5}, {"ttl": "5"}, {"ttl": True}):
            assert (await one.call("count", {"n": 1}, task=wish)).code == -32602
        assert (await one.call("count", {"n": "x"})).result["isError"] is True
        for wish in ({}, {"ttl": 60_000}, {"ttl": None}, {"ttl": 1e5}):
            assert (await one.call("count", {"n": 1}, task=wish)).result["task"]["taskId"]


@pytest.mark.requirement("tasks.is-error")
@pytest.mark.requirement("core-tasks.failed")
async def test_a_tool_that_fails_makes_its_task_what_the_form_calls_that(cell: Cell) -> None:
    async with working(cell) as one:
        found = await until(one, await begin(one, "unlucky"), "completed" if one.modern else "failed")
        assert not one.modern or found["result"]["isError"] is True
        assert found["statusMessage"] == "no luck today"


@pytest.mark.requirement("tasks.unknown")
@pytest.mark.requirement("core-tasks.unknown")
async def test_a_task_that_is_not_there_is_the_callers_mistake(cell: Cell) -> None:
    async with working(cell) as one:
        unknown = {"taskId": "A" * 43}
        assert (await one.ask("tasks/get", unknown)).code == -32602
        assert (await one.ask("tasks/cancel", unknown)).code == -32602
        if one.modern:
            assert (await one.ask("tasks/update", unknown | {"inputResponses": {}})).code == -32602
        else:
            assert (await one.ask("tasks/result", unknown)).code == -32602
            assert (await one.ask("tasks/list", {"cursor": "made up"})).code == -32602


@pytest.mark.requirement("tasks.bound")
@pytest.mark.requirement("core-tasks.bound")
async def test_another_callers_task_is_unknown(cell: Cell) -> None:
    async with working(cell, tokens={"t": USER, "o": STRANGER}) as one:
        task = await begin(one, "forever")
        named = {"taskId": task["taskId"]}
        if one.modern:
            one.made.pair.headers = {"authorization": "Bearer o"}
            methods = ["tasks/get", "tasks/cancel", "tasks/update"]
            replies = [await one.ask(method, named | {"inputResponses": {}}) for method in methods]
        else:
            one.made.pair.headers = {"authorization": "Bearer o"}
            other = await talk(one.made.pair)
            replies = []
            for method in ("tasks/get", "tasks/cancel", "tasks/result"):
                answer = await other.ask(method, named)
                assert answer.json["error"]["code"] == -32602
            assert (await other.ask("tasks/list")).json["result"]["tasks"] == []
        assert [reply.code for reply in replies] == [-32602] * len(replies)


@pytest.mark.requirement("tasks.bound")
@pytest.mark.requirement("core-tasks.bound")
@pytest.mark.parametrize("who", [NARROW, BEYOND])
async def test_a_narrower_login_neither_sees_nor_answers_nor_ends_a_task_of_a_tool_it_may_not_call(
    who: Principal, cell: Cell
) -> None:
    async with client(cell, shop(), capabilities=ABLE, tasks=True, tokens={"t": WIDE, "n": who}) as one:
        paying, looking = await begin(one, "pay"), await begin(one, "look")
        one.made.pair.headers = {"authorization": "Bearer n"}
        pay, look = {"taskId": paying["taskId"]}, {"taskId": looking["taskId"]}
        if one.modern:
            for method in ("tasks/get", "tasks/cancel", "tasks/update"):
                assert (await one.ask(method, pay | {"inputResponses": {}})).code == -32602, method
            assert (await one.ask("tasks/get", look)).result["taskId"] == looking["taskId"]
        else:
            other = await talk(one.made.pair)
            for method in ("tasks/get", "tasks/cancel", "tasks/result"):
                assert (await other.ask(method, pay)).json["error"]["code"] == -32602, method
            assert "error" not in (await other.ask("tasks/get", look)).json
            (seen,) = (await other.ask("tasks/list")).json["result"]["tasks"]
            assert seen["taskId"] == looking["taskId"]
        one.made.pair.headers = {"authorization": "Bearer t"}
        assert (await get(one, paying))["status"] in ("working", "input_required")


# ── the extension ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("tasks.each-request")
@pytest.mark.requirement("tasks.needs-extension")
async def test_a_request_that_does_not_declare_tasks_gets_none(cell: Cell) -> None:
    async with working(cell, capabilities={}) as one:
        assert (await one.call("slow")).result["resultType"] == "complete"
        none = "A" * 43
        for method, params in (
            ("tools/call", {"name": "must"}),
            ("tasks/get", {"taskId": none}),
            ("tasks/update", {"taskId": none, "inputResponses": {}}),
            ("tasks/cancel", {"taskId": none}),
            ("subscriptions/listen", {"notifications": {"taskIds": [none]}}),
        ):
            reply = await one.ask(method, params)
            assert reply.code == -32021 and reply.status in (400, None)
            assert reply.error["data"]["requiredCapabilities"] == {"extensions": {EXTENSION: {}}}


@pytest.mark.requirement("tasks.param-ignored")
async def test_the_older_wish_for_a_task_means_nothing(cell: Cell) -> None:
    async with working(cell, capabilities={}) as one:
        assert (await one.call("plain", task={"ttl": 1})).result["resultType"] == "complete"
        assert (await one.call("slow", task={"ttl": 1})).result["resultType"] == "complete"


@pytest.mark.requirement("tasks.rounds-first")
async def test_what_is_asked_before_there_is_a_task_is_asked_of_the_request(cell: Cell) -> None:
    async with working(cell) as one:
        paused = (await one.call("asks_first")).result
        assert paused["resultType"] == "input_required"
        more = {"requestState": paused["requestState"], "inputResponses": {"who": ANN}}
        task = (await one.call("asks_first", **more)).result
        assert task["resultType"] == "task"
        done = await until(one, task, "completed")
        assert done["result"]["content"][0]["text"] == "hello Ann"


@pytest.mark.requirement("tasks.get")
async def test_a_task_shows_what_its_state_has(cell: Cell) -> None:
    async with working(cell) as one:
        waiting = await until(one, await begin(one, "curious"), "input_required")
        assert waiting["resultType"] == "complete" and waiting["inputRequests"].keys() == {"a", "b"}
        done = await until(one, await begin(one, "slow"), "completed")
        assert done["result"]["content"] == [{"type": "text", "text": "done"}]
        failed = await until(one, await begin(one, "refuses"), "failed")
        assert failed["error"]["code"] == 4711
        assert not failed.keys() & {"result", "inputRequests"}


@pytest.mark.requirement("tasks.update")
@pytest.mark.requirement("ask.malformed-answer")
async def test_answers_may_come_one_by_one_and_nonsense_among_them_is_ignored(cell: Cell) -> None:
    async with working(cell) as one:
        task = await begin(one, "curious")
        await until(one, task, "input_required")
        for answers, left in (
            ({"other": ANN}, {"a", "b"}),
            ({"a": {"action": "accept", "content": {"name": 7}}}, {"a", "b"}),
            ({"a": ANN}, {"b"}),
            ({"a": {"action": "decline"}}, {"b"}),
        ):
            update = {"taskId": task["taskId"], "inputResponses": answers}
            reply = await one.ask("tasks/update", update)
            assert reply.result.keys() == {"resultType", "_meta"}
            assert (await get(one, task))["inputRequests"].keys() == left
        await one.ask("tasks/update", {"taskId": task["taskId"], "inputResponses": {"b": ANN}})
        done = await until(one, task, "completed")
        assert done["result"]["content"][0]["text"] == "Ann and Ann"


@pytest.mark.requirement("tasks.cancel")
async def test_cancelling_a_task_is_acknowledged_even_when_it_has_ended(cell: Cell) -> None:
    async with working(cell) as one:
        for tool, status in (("forever", "cancelled"), ("slow", "completed")):
            task = await begin(one, tool)
            if tool == "slow":
                await until(one, task, status)
            for _ in range(2):
                reply = await one.ask("tasks/cancel", {"taskId": task["taskId"]})
                assert reply.result.keys() == {"resultType", "_meta"}
            assert (await get(one, task))["status"] == status


@pytest.mark.requirement("tasks.not-by-notification")
async def test_the_end_of_the_request_is_not_the_end_of_the_task(cell: Cell) -> None:
    async with working(cell) as one:
        async with one.begins("tools/call", {"name": "gives_in"}) as asked:
            task = (await asked.reply()).result
            assert task["resultType"] == "task"
        await one.note("notifications/cancelled", {"requestId": asked.id})
        await trio.testing.wait_all_tasks_blocked()
        assert (await get(one, task))["status"] == "working"


@pytest.mark.requirement("tasks.told")
@pytest.mark.requirement("tasks.silent")
async def test_who_listens_for_a_task_is_told_of_the_whole_of_it(cell: Cell) -> None:
    async with working(cell) as one:
        made = await one.call("forever", _meta={"progressToken": 1, LEVEL: "debug"})
        assert made.before == []
        task = made.result
        wanted = {"notifications": {"taskIds": [task["taskId"], "A" * 43]}}
        async with one.begins("subscriptions/listen", wanted) as stream:
            honoured = (await stream.next())["params"]["notifications"]
            assert honoured == {"taskIds": [task["taskId"]]}
            await one.ask("tasks/cancel", {"taskId": task["taskId"]})
            while (told := await stream.next())["params"]["status"] != "cancelled":
                assert told["method"] == "notifications/tasks"
            assert told["method"] == "notifications/tasks" and told["params"]["taskId"] == task["taskId"]


# ── 2025-11-25 ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("core-tasks.capability")
async def test_tasks_are_declared_to_the_revision_that_has_them(cell: Cell) -> None:
    async with working(cell) as one:
        assert one.welcome["capabilities"]["tasks"] == {
            "list": {},
            "cancel": {},
            "requests": {"tools": {"call": {}}},
        }
        tools = {tool["name"]: tool for tool in (await one.ask("tools/list")).result["tools"]}
        assert tools["must"]["execution"] == {"taskSupport": "required"}
        assert "execution" not in tools["plain"]


@pytest.mark.requirement("core-tasks.undeclared")
async def test_where_there_are_no_tasks_the_wish_for_one_means_nothing(cell: Cell) -> None:
    tasks = cell.version == "2025-06-18"  # which has none, whatever the server has
    async with client(cell, server() if tasks else everything(), tasks=tasks) as one:
        assert "tasks" not in one.welcome["capabilities"]
        assert (await one.call("slow" if tasks else "plain", task={"ttl": 1})).text == "done"


@pytest.mark.requirement("core-tasks.forbidden")
@pytest.mark.requirement("core-tasks.required")
async def test_a_tool_says_whether_it_may_or_must_be_a_task(cell: Cell) -> None:
    async with working(cell) as one:
        assert (await one.call("plain", task={})).code == -32601
        assert (await one.call("must")).code == -32601
        assert (await one.call("slow")).text == "done"


@pytest.mark.requirement("core-tasks.result")
async def test_the_result_of_a_task_is_what_its_call_would_have_said(cell: Cell) -> None:
    async with working(cell) as one:
        task = await begin(one, "slow")
        reply = await one.ask("tasks/result", {"taskId": task["taskId"]})
        assert reply.text == "done"
        assert reply.result["_meta"][RELATED] == {"taskId": task["taskId"]}
        refused = await begin(one, "refuses")
        assert (await one.ask("tasks/result", {"taskId": refused["taskId"]})).code == 4711


@pytest.mark.requirement("core-tasks.cancel")
@pytest.mark.requirement("core-tasks.terminal")
@pytest.mark.requirement("core-tasks.plain")
async def test_a_task_is_cancelled_once(cell: Cell) -> None:
    async with working(cell) as one:
        task = {"taskId": (await begin(one, "forever"))["taskId"]}
        cancelled = (await one.ask("tasks/cancel", task)).result
        assert cancelled["status"] == "cancelled" and "_meta" not in cancelled
        assert (await one.ask("tasks/cancel", task)).code == -32602
        assert "_meta" not in await get(one, task)
        assert "_meta" not in (await one.ask("tasks/list")).result
        assert (await get(one, task))["status"] == "cancelled"


@pytest.mark.requirement("core-tasks.list")
async def test_a_list_has_all_of_the_callers_tasks(cell: Cell) -> None:
    async with working(cell) as one:
        made = {(await begin(one, "forever"))["taskId"] for _ in range(52)}
        first = (await one.ask("tasks/list")).result
        second = (await one.ask("tasks/list", {"cursor": first["nextCursor"]})).result
        assert {task["taskId"] for task in first["tasks"] + second["tasks"]} == made
        assert "nextCursor" not in second


@pytest.mark.requirement("core-tasks.no-list")
async def test_callers_who_cannot_be_told_apart_have_no_list(cell: Cell) -> None:
    async with working(cell, tokens=None) as one:
        assert "list" not in one.welcome["capabilities"]["tasks"]
        assert (await one.ask("tasks/list")).code == -32601


@pytest.mark.requirement("core-tasks.asks")
async def test_who_waits_for_the_result_is_asked_the_tasks_questions(cell: Cell) -> None:
    async with working(cell) as one:
        task = {"taskId": (await begin(one, "curious"))["taskId"]}
        await until(one, task, "input_required")
        async with one.begins("tasks/result", task) as asked:
            for _ in range(2):
                question = await asked.next()
                assert question["method"] == "elicitation/create"
                assert question["params"]["_meta"][RELATED] == task
                await one.answer(question, result=ANN)
            assert (await asked.reply()).text == "Ann and Ann"


@pytest.mark.parametrize("transport", ["http", "stdio"])
@pytest.mark.parametrize(
    "answered", [{"error": {"code": -1, "message": "no"}}, {"result": 5}], ids=["refused", "no object"]
)
async def test_whoever_refuses_a_tasks_question_is_told_so_and_may_ask_for_the_result_again(
    answered: Any, transport: str
) -> None:
    agent = Agent({"curious": asks}, task_tool("curious", "optional"))
    source = Source(name="agent", backend=agent)
    cell = Cell("legacy", transport)
    async with client(cell, source, capabilities={"elicitation": {}}, tasks=True) as one:
        made = (await one.call("curious", task={"ttl": 60_000})).result["task"]
        task = {"taskId": made["taskId"]}
        async with one.begins("tasks/result", task) as waiting:
            await one.answer(await waiting.next(), **answered)
            reply = await waiting.reply()
            assert "internal error" not in reply.error["message"]
            assert "client" in reply.error["message"] or "user" in reply.error["message"]
        async with one.begins("tasks/result", task) as waiting:
            await one.answer(await waiting.next(), result=ANN)
            assert "Ann" in (await waiting.reply()).text
        assert not [line for line in one.made.lines if line["level"] == "error"]
