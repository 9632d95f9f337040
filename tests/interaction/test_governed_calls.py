"""Calls of tools that rules stand in front of: on every wire, in either era, and as tasks."""

from __future__ import annotations

from typing import Any

import pytest
import trio.testing

from server.agents.base.backend import ToolCall
from server.agents.base.catalog import Source
from server.mcp.call_outlet import Outlet
from server.mcp.call_questions import Question
from server.mcp.messages import Tool
from server.mcp.result_encoding import ToolResult
from server.mcp.terms import CallTerms
from server.store.jobs import StoreUnavailable
from tests.calls.policy.governing import governing
from tests.interaction.agents import agent, says
from tests.interaction.clients import Client, Reply
from tests.interaction.everything import task_tool
from tests.interaction.session_house import ASKED
from tests.interaction.wires import client
from tests.requirements import Cell

WHERE = [Cell(era, wire) for era in ("modern", "legacy") for wire in ("http", "stdio")]
everywhere = pytest.mark.parametrize("where", WHERE, ids=lambda cell: f"{cell.era}-{cell.transport}")
POLICY = "io.ostiary/policy"
EXTENSION = "io.modelcontextprotocol/tasks"
ABLE: dict[str, Any] = {"elicitation": {}, "extensions": {EXTENSION: {}}}
YES = {"action": "accept", "content": {"agree": True}}
WANTS_A_NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}}


class Shop:
    """An agent that says what it was called with."""

    def __init__(self, *, quick: bool = False) -> None:
        self.calls: list[Any] = []
        self.quick = quick

    def source(self) -> Source:
        listed = {
            "remove": Tool(name="remove", input_schema=WANTS_A_NUMBER),
            **task_tool("removes", "optional"),
        }
        terms = CallTerms(quick=True) if self.quick else None
        return agent(terms=terms, listed=listed, remove=self.work, removes=self.work, asks=self.asks)

    async def work(self, call: ToolCall, outlet: Outlet) -> ToolResult:
        self.calls.append(dict(call.arguments))
        return says("done")

    async def asks(self, call: ToolCall, outlet: Outlet) -> ToolResult:
        params = {"message": "who?", "requestedSchema": ASKED}
        answers = await outlet.ask({"who": Question(method="elicitation/create", params=params)})
        self.calls.append(dict(call.arguments))
        return says(str(answers["who"]["action"]))


def server(*rules: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": "main", "policy": list(rules), **more}


def deny(**more: Any) -> dict[str, Any]:
    return {"tools": ["remove*"], "decision": "deny", "when": {"n": {"above": 9}}, **more}


def ask(**more: Any) -> dict[str, Any]:
    return {"tools": ["*"], "decision": "ask", "reason": "pages are lost", **more}


async def answered(one: Client, tool: str, arguments: Any, *answers: Any) -> tuple[Reply, list[Any]]:
    """The last reply, and the questions that were asked on the way, each answered with the next answer."""
    questions: list[Any] = []
    params: dict[str, Any] = {"name": tool, "arguments": arguments}
    if not one.modern:
        async with one.begins("tools/call", params) as asked:
            for answer in answers:
                question = await asked.next()
                questions.append(question["params"])
                await one.answer(question, result=answer)
            return await asked.reply(), questions
    reply = await one.ask("tools/call", params)
    for answer in answers:
        ((key, question),) = reply.result["inputRequests"].items()
        questions.append(question["params"])
        more = {"requestState": reply.result["requestState"], "inputResponses": {key: answer}}
        reply = await one.ask("tools/call", {**params, **more})
    return reply, questions


# ── allow and deny ───────────────────────────────────────────────────────────────────────────────────────────────────


@everywhere
@pytest.mark.parametrize("quick", [False, True])
async def test_a_call_that_a_rule_denies_is_not_made_and_says_why(where: Cell, quick: bool) -> None:
    shop = Shop(quick=quick)
    async with (
        governing(server(deny(name="too many", reason="ten at once are too many"))) as made,
        client(where, shop.source(), governing=made.policy) as one,
    ):
        assert (await one.call("remove", {"n": 9})).text == "done"
        refused = (await one.call("remove", {"n": 10})).result
        assert refused["isError"] is True
        assert "ten at once are too many" in refused["content"][0]["text"]
        assert refused["_meta"][POLICY] == {"reason": "denied", "rule": "too many"}
        assert "Invalid arguments" in (await one.call("remove", {"n": "x"})).text  # told first
        assert shop.calls == [{"n": 9}]
        assert await made.trail() == [("policy.denied", "refused", "main: remove (too many)")]
        assert made.desk.counts == {"denied": 1}
        assert one.made.measured[:2] == [("remove", "ok"), ("remove", "denied")]


@pytest.mark.parametrize("mode", ["audit", "dry_run"])
async def test_what_would_be_refused_is_let_through_and_told_to_the_owner(mode: str) -> None:
    shop = Shop()
    rules = (
        deny(),
        ask(when={"n": {"below": 0}}),
        {"tools": ["remove"], "decision": "allow", "max_calls": 1},
    )
    async with (
        governing(server(*rules, policy_mode=mode)) as made,
        client(WHERE[0], shop.source(), governing=made.policy) as one,
    ):
        for n in (10, -1, 1, 2):
            assert (await one.call("remove", {"n": n})).text == "done"
        said = [line["event"] for line in made.lines]
        kept = [event for event, _, _ in await made.trail()]
        meters = await made.store.read(lambda db: db.fetch_all("SELECT amount FROM meters"))
        if mode == "audit":
            assert said == kept == ["policy.would_deny", "policy.would_ask", "policy.would_exceed"]
            assert [row["amount"] for row in meters] == [1]
        else:  # nothing is written
            assert said == ["policy.would_deny", "policy.would_ask"]
            assert (kept, meters) == ([], [])


async def test_a_tool_of_which_no_rule_speaks_takes_the_short_way() -> None:
    shop = Shop()
    async with (
        governing(server(deny())) as made,
        client(WHERE[0], shop.source(), governing=made.policy) as one,
    ):
        entries = {entry.tool.name: entry.policy for entry in one.made.catalog.entries()}
        assert entries["asks"] is None and entries["remove"] is not None


# ── ask ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


@everywhere
async def test_the_person_is_asked_and_a_yes_is_for_this_call_alone(where: Cell) -> None:
    shop = Shop()
    async with (
        governing(server(ask())) as made,
        client(where, shop.source(), governing=made.policy, capabilities=ABLE) as one,
    ):
        reply, (question,) = await answered(one, "remove", {"n": 7}, YES)
        assert reply.text == "done" and shop.calls == [{"n": 7}]
        assert 'May "remove" be called?' in question["message"] and '"n": 7' in question["message"]
        assert "You are asked because pages are lost." in question["message"]
        for no in (
            {"action": "decline"},
            {"action": "accept", "content": {"agree": False}},
        ):
            refused, (other,) = await answered(one, "remove", {"n": 8}, no)
            assert refused.result["isError"] is True
            assert refused.result["_meta"][POLICY] == {"reason": "declined", "rule": "rule 1"}
            assert other["message"] != question["message"]
        assert shop.calls == [{"n": 7}]
        assert [row[:2] for row in await made.trail()] == [
            ("policy.accepted", "ok"),
            *[("policy.declined", "refused")] * 2,
        ]


@everywhere
@pytest.mark.parametrize("closed", [{"action": "cancel"}, {"action": "cancel", "content": {"agree": True}}])
async def test_a_question_that_was_closed_is_nobodys_no_and_is_asked_again(
    where: Cell, closed: dict[str, Any]
) -> None:
    shop = Shop()
    async with (
        governing(server(ask())) as made,
        client(where, shop.source(), governing=made.policy, capabilities=ABLE) as one,
    ):
        reply, _ = await answered(one, "remove", {"n": 8}, closed)
        assert reply.result["isError"] is True and shop.calls == []
        assert reply.result["_meta"][POLICY] == {"reason": "not_asked", "rule": "rule 1"}
        assert "without an answer" in reply.text and "Do not" not in reply.text
        done, _ = await answered(one, "remove", {"n": 8}, YES)
        assert done.text == "done" and shop.calls == [{"n": 8}]
        assert [row[:2] for row in await made.trail()] == [
            ("policy.not_asked", "refused"),
            ("policy.accepted", "ok"),
        ]


@everywhere
async def test_a_yes_without_its_form_is_no_answer_and_the_question_comes_once_more(where: Cell) -> None:
    shop = Shop()
    async with (
        governing(server(ask())) as made,
        client(where, shop.source(), governing=made.policy, capabilities=ABLE) as one,
    ):
        empty = {"action": "accept"}
        reply, questions = await answered(one, "remove", {"n": 8}, empty, empty)
        assert len(questions) == 2 and shop.calls == []
        if where.era == "legacy":  # whoever has a line to the server is not asked for ever
            assert reply.result["_meta"][POLICY]["reason"] == "not_asked"
        else:
            assert reply.result["resultType"] == "input_required"
        assert "policy.declined" not in [row[0] for row in await made.trail()]


async def test_a_yes_that_was_sealed_is_no_yes_for_other_arguments() -> None:
    shop = Shop()
    async with (
        governing(server(ask())) as made,
        client(WHERE[0], shop.source(), governing=made.policy, capabilities=ABLE) as one,
    ):
        paused = (await one.call("remove", {"n": 1})).result
        ((key, _),) = paused["inputRequests"].items()
        answer = {"inputResponses": {key: YES}}
        stolen = await one.call("remove", {"n": 2}, requestState=paused["requestState"], **answer)
        assert stolen.code == -32602
        # A yes that nobody was asked for, under the key of another call: asked again.
        assert (await one.call("remove", {"n": 2}, **answer)).result["resultType"] == "input_required"
        assert shop.calls == []
        done = await one.call("remove", {"n": 1}, requestState=paused["requestState"], **answer)
        assert done.text == "done"


@everywhere
async def test_who_cannot_be_asked_is_refused_in_words(where: Cell) -> None:
    shop = Shop()
    async with (
        governing(server(ask())) as made,
        client(where, shop.source(), governing=made.policy, capabilities={}) as one,
    ):
        refused = (await one.call("remove", {"n": 1})).result
        assert refused["isError"] is True and refused["_meta"][POLICY]["reason"] == "not_asked"
        assert "nobody can be asked" in refused["content"][0]["text"]
        assert shop.calls == []


@everywhere
async def test_a_tool_that_asks_by_itself_asks_after_the_rules_did(where: Cell) -> None:
    shop = Shop()
    ann = {"action": "accept", "content": {"name": "Ann"}}
    async with (
        governing(server(ask())) as made,
        client(where, shop.source(), governing=made.policy, capabilities=ABLE) as one,
    ):
        reply, questions = await answered(one, "asks", {}, YES, ann)
        assert reply.text == "accept" and len(shop.calls) == 1
        assert questions[0]["message"].startswith('May "asks"') and questions[1]["message"] == "who?"


async def test_what_is_shown_to_the_person_is_bounded_and_steers_nothing() -> None:
    shop = Shop()
    arguments = {"text": "x" * 100_000, "list": list(range(1000)), "evil": "\u202egnp.exe\x1b[2J", "n": 1}
    async with (
        governing(server(ask())) as made,
        client(WHERE[0], shop.source(), governing=made.policy, capabilities=ABLE) as one,
    ):
        _, (question,) = await answered(one, "remove", arguments, YES)
        message = question["message"]
        assert len(message) < 5000 and "(100000 characters)" in message
        assert "\u202e" not in message and "\x1b" not in message
        assert shop.calls == [arguments]


async def test_a_question_of_a_task_that_was_closed_is_nobodys_no() -> None:
    shop = Shop()
    async with (
        governing(server(ask())) as made,
        client(WHERE[0], shop.source(), governing=made.policy, capabilities=ABLE, tasks=True) as one,
    ):
        task = (await one.call("removes", {"n": 1})).result
        await trio.testing.wait_all_tasks_blocked()
        waiting = (await one.ask("tasks/get", {"taskId": task["taskId"]})).result
        ((key, _),) = waiting["inputRequests"].items()
        closed = {"taskId": task["taskId"], "inputResponses": {key: {"action": "cancel"}}}
        await one.ask("tasks/update", closed)
        await trio.testing.wait_all_tasks_blocked()
        ended = (await one.ask("tasks/get", {"taskId": task["taskId"]})).result
        assert ended["result"]["_meta"][POLICY]["reason"] == "not_asked" and shop.calls == []
        assert [row[0] for row in await made.trail()] == ["policy.not_asked"]


async def test_a_task_asks_and_goes_on_when_it_is_answered() -> None:
    shop = Shop()
    async with (
        governing(server(ask())) as made,
        client(WHERE[0], shop.source(), governing=made.policy, capabilities=ABLE, tasks=True) as one,
    ):
        task = (await one.call("removes", {"n": 1})).result
        assert task["resultType"] == "task"
        await trio.testing.wait_all_tasks_blocked()
        waiting = (await one.ask("tasks/get", {"taskId": task["taskId"]})).result
        assert waiting["status"] == "input_required" and shop.calls == []
        ((key, _),) = waiting["inputRequests"].items()
        await one.ask("tasks/update", {"taskId": task["taskId"], "inputResponses": {key: YES}})
        await trio.testing.wait_all_tasks_blocked()
        done = (await one.ask("tasks/get", {"taskId": task["taskId"]})).result
        assert done["status"] == "completed" and shop.calls == [{"n": 1}]
        assert done["result"]["content"][0]["text"] == "done"


# ── budgets ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_budget_is_used_up_exactly_and_opens_again() -> None:
    shop = Shop()
    rule = {"tools": ["remove"], "decision": "allow", "max_calls": 2, "reason": "Use `archive` instead."}
    async with (
        governing(server(rule)) as made,
        client(WHERE[0], shop.source(), governing=made.policy) as one,
    ):
        assert "Invalid arguments" in (await one.call("remove", {"n": "x"})).text  # takes nothing
        replies: list[Any] = []

        async def call() -> None:
            replies.append((await one.call("remove", {"n": 1})).result)

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(call)
        assert len(shop.calls) == 2
        refused = next(reply for reply in replies if reply["isError"])
        assert refused["_meta"][POLICY] == {
            "reason": "over_budget",
            "rule": "rule 1",
            "retryAfter": 12 * 3600,
        }
        assert "in 12 hours" in refused["content"][0]["text"]
        assert refused["content"][0]["text"].endswith("Use `archive` instead.")
        made.now[0] += 12 * 3_600_000
        assert (await one.call("remove", {"n": 1})).text == "done"


async def test_what_was_declined_takes_nothing_of_a_budget() -> None:
    shop = Shop()
    async with (
        governing(server(ask(max_calls=1))) as made,
        client(WHERE[0], shop.source(), governing=made.policy, capabilities=ABLE) as one,
    ):
        await answered(one, "remove", {"n": 1}, {"action": "decline"})
        reply, _ = await answered(one, "remove", {"n": 1}, YES)
        assert reply.text == "done"
        again = (await one.call("remove", {"n": 1})).result
        assert again["_meta"][POLICY]["reason"] == "over_budget"  # and nobody is asked in vain


async def test_who_leaves_while_they_are_asked_has_used_up_nothing() -> None:
    shop = Shop()
    async with (
        governing(server(ask(max_calls=1))) as made,
        client(WHERE[2], shop.source(), governing=made.policy, capabilities=ABLE) as one,
    ):
        async with one.begins("tools/call", {"name": "remove", "arguments": {"n": 1}}) as asked:
            await asked.next()
            await asked.cancel()
        await trio.testing.wait_all_tasks_blocked()
        reply, _ = await answered(one, "remove", {"n": 1}, YES)
        assert reply.text == "done"


async def test_each_session_has_a_budget_of_its_own() -> None:
    shop = Shop()
    rule = {"tools": ["remove"], "decision": "allow", "max_calls": 1, "per": "session"}
    async with governing(server(rule)) as made:
        for _ in range(2):
            async with client(WHERE[2], shop.source(), governing=made.policy) as one:
                assert (await one.call("remove", {"n": 1})).text == "done"
                refused = (await one.call("remove", {"n": 1})).result
                assert "of this session" in refused["content"][0]["text"]


async def test_what_cannot_be_counted_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop()

    async def fails(*_: Any) -> Any:
        raise StoreUnavailable("the disk is full")

    rule = {"tools": ["remove"], "decision": "allow", "max_calls": 9}
    async with (
        governing(server(rule)) as made,
        client(WHERE[0], shop.source(), governing=made.policy) as one,
    ):
        monkeypatch.setattr(made.store, "write", fails)
        refused = (await one.call("remove", {"n": 1})).result
        assert refused["_meta"][POLICY]["reason"] == "not_counted" and shop.calls == []


# ── the trail ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_caller_who_is_refused_again_and_again_does_not_fill_the_trail() -> None:
    shop = Shop()
    async with (
        governing(server(deny())) as made,
        client(WHERE[0], shop.source(), governing=made.policy) as one,
    ):
        for _ in range(50):
            await one.call("remove", {"n": 10})
        assert len(await made.trail()) == 20
        made.now[0] += 60_000
        await one.call("remove", {"n": 10})
        assert [row[2] for row in await made.trail()][20:] == [
            "and 30 more that found no room within their minute",
            "main: remove (rule 1)",
        ]
        assert made.desk.counts["denied"] == 51


async def test_a_trail_that_cannot_be_written_lets_nobody_through(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop()

    async def fails(*_: Any) -> Any:
        raise StoreUnavailable("the disk is full")

    async with (
        governing(server(deny())) as made,
        client(WHERE[0], shop.source(), governing=made.policy) as one,
    ):
        monkeypatch.setattr(made.store, "write", fails)
        assert (await one.call("remove", {"n": 10})).result["isError"] is True
        assert [line["event"] for line in made.lines] == ["policy.denied", "policy.not_written_down"]
