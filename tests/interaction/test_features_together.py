"""Where keys, hooks, previews, rules and tasks meet in one call."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
import trio
from session_house import living
from task_engine import engine
from test_repeated_calls import BEARER, TOKENS, Sender, ask, keeping, lost, params, told

from server.agents.base.backend import ToolCall
from server.agents.base.catalog import Source
from server.calls.servers.endpoint import Endpoint
from server.calls.tasks.task_engine import Tasks
from server.calls.tasks.task_order import TaskOrder, Who
from server.calls.tools_call import carry_out
from server.mcp.call_outlet import NullOutlet, Outlet
from server.mcp.messages import TextContent, Tool, ToolExecution
from server.mcp.result_encoding import ToolResult
from server.mcp.task_faces import TaskCompleted
from server.mcp.terms import CallTerms
from server.store.jobs import StoreBroken, StoreUnavailable
from tests.calls.policy.governing import HookRunnerFake, governing, hooked
from tests.interaction.agents import agent, house, says
from tests.pair import talk

PREVIEW = "io.ostiary/preview"
POLICY = "io.ostiary/policy"
WHAT: dict[str, Any] = {"type": "object", "properties": {"what": {"type": "string"}}}
TASKS: dict[str, Any] = {
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}
}


@pytest.mark.parametrize("what", ["fails", "breaks"])
async def test_a_call_that_may_become_a_task_and_fails_is_not_run_again_for_its_key(what: str) -> None:
    sender, engines = Sender(), list[Tasks]()
    by_hand = ToolExecution(task_support="optional", by_hand=True)
    listed = {"send": Tool(name="send", input_schema={"type": "object"}, execution=by_hand)}
    endpoints: dict[str, Any] = {}
    async with (
        keeping() as keeper,
        engine(engines, [], endpoints, wasmagent=False) as tasks,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(engines[0].run)
        made = house(agent(listed=listed, send=sender), tokens=TOKENS, keeper=keeper, tasks=tasks)
        endpoints["main"] = made.endpoint
        asked = params(what)
        asked["_meta"] |= TASKS
        first, again = [await ask(made, "modern", asked) for _ in range(2)]
        assert sender.runs == 1
        if what == "fails":
            assert told(first) == ("failed 1", True, False)
            assert told(again) == ("failed 1", True, True)
        else:
            assert again["error"]["message"] == first["error"]["message"] == "broken 1"
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("in_doubt", [False, True])
async def test_a_task_that_cannot_be_made_is_a_plain_call_unless_there_may_be_one(
    monkeypatch: pytest.MonkeyPatch, in_doubt: bool
) -> None:
    sender, engines = Sender(), list[Tasks]()
    at_once = ToolExecution(task_support="optional")
    listed = {"send": Tool(name="send", input_schema={"type": "object"}, execution=at_once)}
    async with keeping() as keeper, engine(engines, [], {}, wasmagent=False) as tasks:
        made = house(agent(listed=listed, send=sender), tokens=TOKENS, keeper=keeper, tasks=tasks)

        async def fails(*_: Any, **__: Any) -> Any:
            raise StoreBroken("lost during a commit") if in_doubt else StoreUnavailable("the disk is full")

        monkeypatch.setattr(engines[0], "start", fails)
        asked = params("a")
        asked["_meta"] |= TASKS
        answer = await ask(made, "modern", asked)
        if in_doubt:
            assert "tasks are not available" in answer["error"]["message"]
        else:
            assert not answer["result"].get("isError")
        assert sender.runs == int(not in_doubt)


async def test_a_call_that_may_become_a_task_and_was_not_made_leaves_its_key_free() -> None:
    sender, engines = Sender(), list[Tasks]()
    by_hand = ToolExecution(task_support="optional", by_hand=True)
    listed = {"send": Tool(name="send", input_schema=WHAT, execution=by_hand)}
    endpoints: dict[str, Any] = {}
    runner: Any = HookRunnerFake(lambda _: b'{"decision": "deny"}')
    async with (
        keeping() as keeper,
        governing(hooked("before"), runners=[runner]) as ruled,
        engine(engines, [], endpoints, wasmagent=False) as tasks,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(engines[0].run)
        source = agent(listed=listed, send=sender)
        made = house(source, tokens=TOKENS, keeper=keeper, tasks=tasks, governing=ruled.policy)
        endpoints["main"] = made.endpoint
        asked = params("a")
        asked["_meta"] |= TASKS
        assert (await ask(made, "modern", asked))["result"]["_meta"][POLICY]["reason"] == "denied"
        runner.answers = lambda _: b'{"decision": "proceed"}'
        assert told(await ask(made, "modern", asked)) == ("sent 1", False, False)
        nursery.cancel_scope.cancel()


async def test_a_call_whose_answer_was_lost_is_known_by_what_came_and_not_by_what_a_hook_made_of_it() -> None:
    sender = Sender()
    sender.hold()
    said = json.dumps({"decision": "proceed", "arguments": {"what": "other"}}).encode()
    runner: Any = HookRunnerFake(lambda _: said)
    listed = {"send": Tool(name="send", input_schema=WHAT)}
    async with governing(hooked("before"), runners=[runner]) as ruled:
        made = house(agent(listed=listed, send=sender), tokens=TOKENS, governing=ruled.policy)
        await lost(made, sender, **BEARER)
        assert told(await ask(made, "legacy", params("other", key=None))) == ("sent 2", False, False)
        assert told(await ask(made, "legacy", params(key=None))) == ("sent 1", False, True)


def shop(sender: Sender, dedupe: int = 60) -> Source:
    listed = {name: Tool(name=name, input_schema=WHAT) for name in ("send", "quote")}
    return agent(terms=CallTerms(dedupe_seconds=dedupe), listed=listed, send=sender, quote=Sender())


async def test_a_preview_that_is_shown_again_has_an_id_that_is_good() -> None:
    sender = Sender()
    settings: dict[str, Any] = {"name": "main", "tools": {"send": {"confirm": {"preview": "quote"}}}}
    async with keeping() as keeper, governing(settings) as ruled:
        made = house(shop(sender), tokens=TOKENS, keeper=keeper, governing=ruled.policy)
        for number in (1, 2):
            shown = await ask(made, "modern", params("a", key=None, tool="quote"))
            issued = shown["result"]["_meta"][PREVIEW]["previewId"]
            asked = params("a", key=None)
            asked["arguments"] |= {"confirm": True, "preview_id": issued}
            assert told(await ask(made, "modern", asked)) == (f"sent {number}", False, False)


async def test_what_was_kept_is_given_by_the_rules_of_now() -> None:
    sender = Sender()
    async with keeping() as keeper, governing({"name": "main"}) as before:
        made = house(shop(sender), tokens=TOKENS, keeper=keeper, governing=before.policy)
        assert told(await ask(made, "modern", params("a"))) == ("sent 1", False, False)
        async with governing({"name": "main", "redact": {"patterns": ["sent"]}}) as ruled:
            made = house(shop(sender), tokens=TOKENS, keeper=keeper, governing=ruled.policy)
            assert told(await ask(made, "modern", params("a"))) == ("[redacted] 1", False, True)
        async with governing({"name": "main", "policy": [{"tools": ["send"], "decision": "deny"}]}) as ruled:
            made = house(shop(sender), tokens=TOKENS, keeper=keeper, governing=ruled.policy)
            refused = await ask(made, "modern", params("a"))
            assert refused["result"]["_meta"][POLICY]["reason"] == "denied"
        assert sender.runs == 1


async def test_a_confirmed_task_that_is_run_again_after_a_stop_is_still_confirmed() -> None:
    stops, runs = [True], list[str]()

    async def send(call: ToolCall, outlet: Outlet) -> ToolResult:
        runs.append(call.call_id)
        if stops:
            stops.pop()
            raise KeyboardInterrupt
        return says("sent")

    listed = {"send": Tool(name="send", input_schema=WHAT)}
    async with governing({"name": "main", "tools": {"send": {"confirm": {}}}}) as ruled:
        made = house(agent(listed=listed, send=send), tokens=TOKENS, governing=ruled.policy)
        shown = await ask(made, "modern", params("a", key=None))
        preview_id = shown["result"]["_meta"][POLICY]["previewId"]
        order = TaskOrder(
            server="main",
            tool="send",
            arguments={"what": "a", "confirm": True, "preview_id": preview_id},
            principal=Who.of(TOKENS["sesame"]),
            call_id="call_1",
        )

        async def run(order: TaskOrder) -> ToolResult:
            ended = await carry_out({"main": made.endpoint}, order, NullOutlet("nobody"))
            assert isinstance(ended, TaskCompleted)
            return ended.result

        with pytest.raises(KeyboardInterrupt):
            await run(order)
        assert (await run(order)).content == (TextContent(text="sent"),)
        other = await run(msgspec.structs.replace(order, call_id="call_2"))
        assert (other.meta or {})[POLICY]["reason"] == "preview_stale"
        assert runs == ["call_1", "call_1"]


async def test_a_preview_is_used_up_where_a_hook_makes_a_failure_of_what_the_tool_has_done() -> None:
    sender = Sender()
    said = b'{"decision": "substitute", "result": {"content": [{"type": "text", "text": "no"}], "isError": true}}'
    runner: Any = HookRunnerFake(lambda _: said)
    settings = {**hooked("after"), "tools": {"send": {"confirm": {}}}}
    async with governing(settings, runners=[runner]) as ruled:
        made = house(shop(sender, 0), tokens=TOKENS, governing=ruled.policy)
        shown = await ask(made, "modern", params("a", key=None))
        asked = params("a", key=None)
        asked["arguments"] |= {"confirm": True, "preview_id": shown["result"]["_meta"][POLICY]["previewId"]}
        assert told(await ask(made, "modern", asked))[:2] == ("no", True)
        again = await ask(made, "modern", asked)
        assert again["result"]["_meta"][POLICY]["reason"] == "preview_stale"
        assert sender.runs == 1


async def test_a_task_is_told_from_others_like_the_calls_of_the_session_that_ordered_it() -> None:
    async def whose(call: ToolCall, outlet: Outlet) -> ToolResult:
        return says(call.apart)

    listed = {
        "whose": Tool(name="whose", input_schema=WHAT, execution=ToolExecution(task_support="optional"))
    }
    engines, endpoints = list[Tasks](), dict[str, Endpoint]()
    found: list[tuple[str, str]] = []
    async with (
        engine(engines, [], endpoints, wasmagent=False) as tasks,
        living(agent(listed=listed, whose=whose), tasks=tasks) as made,
        trio.open_nursery() as nursery,
    ):
        endpoints["main"] = made.house.endpoint
        await nursery.start(engines[0].run)
        for _ in range(2):
            one = await talk(made.pair)
            asked = params(key=None, tool="whose")
            plain = (await one.ask("tools/call", asked)).json["result"]
            task = (await one.ask("tools/call", {**asked, "task": {"ttl": 60_000}})).json["result"]["task"]
            waited = await one.ask("tasks/result", {"taskId": task["taskId"]})
            ended = (waited.events[-1] if b"data:" in waited.body else waited.json)["result"]
            found.append((plain["content"][0]["text"], ended["content"][0]["text"]))
            assert one.id not in found[-1][0]
        nursery.cancel_scope.cancel()
    assert [call == task for call, task in found] == [True, True]
    assert len(set(found)) == 2
