"""Calls that hooks look at, that are shown before they are made, and answers that are looked through: in either era, and on every wire."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest
import trio
from msgspec.structs import replace

from auth.values.identity_model import Principal, PrincipalKind
from server.agents.base.backend import ToolCall
from server.agents.base.catalog import CatalogError, Source
from server.calls.policy.hooks import HookFailed
from server.mcp.call_failures import BackendError
from server.mcp.call_outlet import LogMessage, Outlet, Progress
from server.mcp.messages import TextContent, Tool
from server.mcp.result_encoding import ToolResult
from server.store.jobs import StoreUnavailable
from server.store.limits.daily_quotas import Quotas
from server.store.limits.tool_limits import BoundRules
from tests.calls.policy.governing import PROCEED, HookRunnerFake, governing, hooked
from tests.interaction.agents import USER, agent, house, says
from tests.interaction.everything import everything, plain
from tests.interaction.test_governed_calls import (
    ABLE,
    POLICY,
    WHERE,
    YES,
    Shop,
    answered,
    ask,
    everywhere,
    server,
)
from tests.interaction.test_limited_calls import limits_of
from tests.interaction.wires import client
from tests.requirements import Cell

PREVIEW = "io.ostiary/preview"
NUMBERED = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
OTHER = replace(USER, subject="user-2")


# ── before ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@everywhere
async def test_a_hook_lets_changes_denies_or_answers_in_the_place_of_the_tool(where: Cell) -> None:
    def look(given: Mapping[str, Any]) -> bytes:
        n = given["arguments"].get("n")
        if n == 2:
            return b'{"decision": "proceed", "arguments": {"n": 20}}'
        if n == 3:
            return b'{"decision": "deny", "reason": "three are unlucky"}'
        if n == 4:
            return b'{"decision": "substitute", "result": {"content": [{"type": "text", "text": "four"}]}}'
        return PROCEED

    shop, runner = Shop(), HookRunnerFake(look)
    async with (
        governing(hooked("before", tools=["remove"]), runners=[cast("Any", runner)]) as made,
        client(where, shop.source(), governing=made.policy) as one,
    ):
        assert [(await one.call("remove", {"n": n})).text for n in (1, 2, 3, 4)] == [
            "done", "done", "This call was not made: three are unlucky", "four",
        ]  # fmt: skip
        assert shop.calls == [{"n": 1}, {"n": 20}]
        assert made.desk.counts == {"hook_changed": 1, "hook_denied": 1, "hook_substituted": 1}
        assert [event for event, *_ in await made.trail()] == ["policy.hook_denied"]
        given = runner.asked[0]
        assert given.keys() == {"hook", "server", "tool", "arguments", "caller", "call"}
        assert (given["hook"], given["server"], given["tool"]) == ("before", "main", "remove")
        assert given["caller"]["kind"] == ("user" if where.transport == "http" else "local")
        await one.call("removes", {"n": 9})  # of which it does not speak
        assert len(runner.asked) == 4


async def test_rules_hold_for_what_a_hook_has_made_of_a_call() -> None:
    rules = (
        {"tools": ["remove"], "decision": "deny", "when": {"n": {"above": 9}}, "reason": "too many"},
        {"tools": ["remove"], "decision": "deny", "when": {"n": 5}, "reason": "not five"},
    )
    runner = HookRunnerFake(
        lambda given: b'{"decision": "proceed", "arguments": {"n": %d}}' % (given["arguments"]["n"] * 5)
    )
    shop = Shop()
    async with (
        governing(hooked("before", *rules), runners=[cast("Any", runner)]) as made,
        client(WHERE[0], shop.source(), governing=made.policy) as one,
    ):
        assert "not five" in (await one.call("remove", {"n": 1})).text
        assert "too many" in (await one.call("remove", {"n": 2})).text
        assert "too many" in (await one.call("remove", {"n": 10})).text
        assert len(runner.asked) == 2 and shop.calls == []  # of what is denied anyway it is not asked


async def test_the_person_is_asked_about_the_call_that_will_be_made() -> None:
    turn = [1]

    def look(_: Mapping[str, Any]) -> bytes:
        return b'{"decision": "proceed", "arguments": {"n": %d}}' % turn[0]

    shop, runner = Shop(), HookRunnerFake(look)
    async with (
        governing(hooked("before", ask()), runners=[cast("Any", runner)]) as made,
        client(WHERE[0], shop.source(), governing=made.policy, capabilities=ABLE) as one,
    ):
        _, (question,) = await answered(one, "remove", {"n": 0}, YES)
        assert '"n": 1' in question["message"] and shop.calls == [{"n": 1}]
        paused = (await one.call("remove", {"n": 0})).result
        ((key, _),) = paused["inputRequests"].items()
        turn[0] = 2  # the hook makes something else of it now: the yes was for another call
        more = {"requestState": paused["requestState"], "inputResponses": {key: YES}}
        assert (await one.call("remove", {"n": 0}, **more)).result["resultType"] == "input_required"
        assert shop.calls == [{"n": 1}]


NONSENSE: list[Any] = [
    b"", b"null", b"[]", b"{}", b'"proceed"', b"\xff", b'{"decision": "allow"}', b'{"decision": "proceed", "argument": {}}',
    b'{"decision": "proceed", "arguments": []}', b'{"decision": "proceed", "arguments": {"n": "x"}}',
    b'{"decision": "deny", "arguments": {"n": 1}}', b'{"decision": "substitute"}', b'{"decision": "deny", "result": {"content": []}}',
    b'{"decision": "substitute", "result": {}}', b'{"decision": "substitute", "result": {"content": [{"type": "tune"}]}}',
    b"[" * 100_000, BackendError("the agent's process has ended"), HookFailed("its program failed"),
]  # fmt: skip


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("said", NONSENSE, ids=lambda said: repr(said)[:40])
async def test_a_hook_that_fails_or_says_nonsense_lets_nothing_through(said: Any, place: str) -> None:
    shop, runner = Shop(), HookRunnerFake(lambda _: said)
    async with (
        governing(hooked(place), runners=[cast("Any", runner)]) as made,
        client(WHERE[0], shop.source(), governing=made.policy) as one,
    ):
        refused = (await one.call("remove", {"n": 1})).result
        assert refused["isError"] is True and refused["_meta"][POLICY] == {"reason": "out_of_order"}
        text = refused["content"][0]["text"]
        assert "is out of order" in text and "process" not in text and "done" not in text
        assert text.startswith("This call was not made") == (place == "before")
        assert len(shop.calls) == (place == "after")
        assert runner.watch.found is not None and f"the hook {place}" in runner.watch.found.words
        (line,) = [line for line in made.lines if line["event"] == "policy.hook_failed"]
        assert line["reason"] and one.made.measured[0] == ("remove", "refused")
        assert [event for event, *_ in await made.trail()] == ["policy.hook_failed"]
        runner.answers = lambda _: PROCEED
        assert (await one.call("remove", {"n": 1})).text == "done"
        assert runner.watch.found is None


async def test_a_hook_has_only_so_long(autojump_clock: Any) -> None:
    shop, runner = Shop(), HookRunnerFake(lambda _: None)
    async with governing(hooked("before", deadline_seconds=2), runners=[cast("Any", runner)]) as made:
        home = house(shop.source(), governing=made.policy, tokens={"t": USER})
        home.pair.headers = {"authorization": "Bearer t"}
        answer = await home.pair.modern("tools/call", {"name": "remove", "arguments": {"n": 1}})
        assert "out of order" in answer.json["result"]["content"][0]["text"]
        assert runner.watch.found is not None and "longer than 2 seconds" in runner.watch.found.words
        assert shop.calls == []


# ── after ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@everywhere
async def test_a_hook_sees_the_answer_and_may_change_or_withhold_it(where: Cell) -> None:
    def look(given: Mapping[str, Any]) -> bytes:
        assert given["result"]["content"][0].text == "done" and given["result"]["isError"] is False
        if given["arguments"]["n"] == 1:
            return b'{"decision": "substitute", "result": {"content": [{"type": "text", "text": "changed"}]}}'
        if given["arguments"]["n"] == 2:
            return b'{"decision": "deny", "reason": "nobody has to know"}'
        return PROCEED

    shop, runner = Shop(), HookRunnerFake(look)
    async with (
        governing(hooked("after"), runners=[cast("Any", runner)]) as made,
        client(where, shop.source(), governing=made.policy) as one,
    ):
        assert (await one.call("remove", {"n": 1})).text == "changed"
        withheld = (await one.call("remove", {"n": 2})).result
        assert withheld["isError"] is True and withheld["_meta"][POLICY] == {"reason": "withheld"}
        assert "nobody has to know" in withheld["content"][0]["text"]
        assert (await one.call("remove", {"n": 3})).text == "done"
        assert len(shop.calls) == 3
        assert made.desk.counts == {"hook_substituted": 1, "hook_denied": 1}
        assert [event for event, *_ in await made.trail()] == ["policy.hook_denied"]


async def test_what_a_hook_puts_in_place_of_an_answer_is_what_the_tool_promises() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    listed = {"count": Tool(name="count", input_schema={"type": "object"}, output_schema=schema)}

    async def count(call: ToolCall, outlet: Outlet) -> ToolResult:
        return ToolResult(content=(), structured={"n": 1})

    said = [b'{"decision": "substitute", "result": {"content": [], "structuredContent": {"n": "x"}}}']
    for place in ("before", "after"):
        runner = HookRunnerFake(lambda _: said[0])
        async with (
            governing(hooked(place), runners=[cast("Any", runner)]) as made,
            client(WHERE[0], agent(listed=listed, count=count), governing=made.policy) as one,
        ):
            said[0] = said[0].replace(b"2", b'"x"')
            assert (await one.call("count")).result["_meta"][POLICY]["reason"] == "out_of_order"
            said[0] = said[0].replace(b'"x"', b"2")
            result = (await one.call("count")).result
            assert result["structuredContent"] == {"n": 2} and result["content"][0]["text"] == '{"n":2}'


# ── what is looked through ───────────────────────────────────────────────────────────────────────────────────────────


@everywhere
async def test_nothing_that_a_tool_says_gets_past_redaction(where: Cell) -> None:
    async def tells(call: ToolCall, outlet: Outlet) -> ToolResult:
        await outlet.emit(Progress(progress=1, message="mail to ann@example.org"))
        await outlet.emit(LogMessage(level="error", data="mail to ann@example.org"))
        return ToolResult(
            content=(TextContent(text="ann@example.org"),),
            structured={"to": ["ann@example.org"]},
            meta={"x": "a@b.org"},
        )

    async def fails(call: ToolCall, outlet: Outlet) -> ToolResult:
        raise BackendError("no mail box ann@example.org")

    async with (
        governing(server(redact={"sets": ["emails"]})) as made,
        client(where, agent(tells=tells, fails=fails, plain=plain), governing=made.policy) as one,
    ):
        assert (await one.call("plain")).text == "done" and made.desk.counts == {}
        meta = {"progressToken": "p", "io.modelcontextprotocol/logLevel": "debug"}
        if not one.modern:
            await one.ask("logging/setLevel", {"level": "debug"})
        told = await one.ask("tools/call", {"name": "tells", "arguments": {}, "_meta": meta})
        failed = await one.call("fails")
        said = str([told.message, told.before, failed.message, one.made.lines])
        assert "ann@" not in said and "a@b" not in said
        assert said.count("[email redacted]") >= 6
        assert told.result["structuredContent"] == {"to": ["[email redacted]"]}
        assert failed.error["message"] == "no mail box [email redacted]"
        assert made.desk.counts == {"redacted": 1}
        assert {line["reason"] for line in one.made.lines if "reason" in line} == {
            "no mail box [email redacted]"
        }


@everywhere
async def test_resources_prompts_and_completions_are_looked_through_as_well(where: Cell) -> None:
    source = everything()
    async with (
        governing(server(redact={"patterns": ["[a-zA-Z]{2,9}+"]})) as made,
        client(where, source, governing=made.policy, capabilities=ABLE) as one,
    ):
        library: Any = source.backend
        uri = library.resources()[0].uri
        contents = (await one.ask("resources/read", {"uri": uri})).result["contents"]
        assert contents[0]["uri"] == uri and set(contents[0]["text"].split()) <= {"[redacted]"}, contents


async def test_an_answer_that_cannot_be_shown_without_breaking_its_promise_is_withheld() -> None:
    schema = {"type": "object", "properties": {"mail": {"type": "string", "pattern": "@"}}}
    listed = {"find": Tool(name="find", input_schema={"type": "object"}, output_schema=schema)}

    async def find(call: ToolCall, outlet: Outlet) -> ToolResult:
        return ToolResult(content=(), structured={"mail": "ann@example.org"})

    async with (
        governing(server(redact={"sets": ["emails"]})) as made,
        client(WHERE[0], agent(listed=listed, find=find), governing=made.policy) as one,
    ):
        withheld = (await one.call("find")).result
        assert withheld["_meta"][POLICY] == {"reason": "withheld"} and "ann@" not in str(withheld)


# ── what is shown first ──────────────────────────────────────────────────────────────────────────────────────────────


class Bank:
    def __init__(self) -> None:
        self.paid: list[Any] = []
        self.fails: Exception | ToolResult | None = None

    def source(self, **more: Any) -> Source:
        own = {**NUMBERED, "additionalProperties": False, **more}
        listed = {name: Tool(name=name, input_schema=own) for name in ("pay", "quote")}
        return agent(listed=listed, pay=self.pay, quote=self.quote)

    async def pay(self, call: ToolCall, outlet: Outlet) -> ToolResult:
        assert call.arguments.keys() <= {"n", "confirm", "preview_id"}
        if isinstance(self.fails, Exception):
            raise self.fails
        if self.fails is not None:
            return self.fails
        self.paid.append(dict(call.arguments))
        return says("paid")

    async def quote(self, call: ToolCall, outlet: Outlet) -> ToolResult:
        return says(f"{call.arguments['n']} and a fee")


def confirming(**how: Any) -> dict[str, Any]:
    return server(tools={"pay": {"confirm": how}})


def reason(reply: Any) -> str:
    assert reply.result["isError"] is True
    return reply.result["_meta"][POLICY]["reason"]


@everywhere
async def test_a_call_is_shown_and_then_made_once_as_it_was_shown(where: Cell) -> None:
    bank = Bank()
    async with (
        governing(confirming()) as made,
        client(where, bank.source(), governing=made.policy) as one,
    ):
        listed = {tool["name"]: tool for tool in (await one.ask("tools/list")).result["tools"]}
        assert set(listed["pay"]["inputSchema"]["properties"]) == {"n", "confirm", "preview_id"}
        assert set(listed["quote"]["inputSchema"]["properties"]) == {"n"}
        shown = await one.call("pay", {"n": 5})
        assert reason(shown) == "confirmation_required" and '"n": 5' in shown.text
        issued = shown.result["_meta"][POLICY]["previewId"]
        assert issued in shown.text
        again = {"n": 5, "preview_id": issued}
        assert reason(await one.call("pay", again)) == "confirmation_required"
        assert reason(await one.call("pay", {**again, "n": 6, "confirm": True})) == "preview_mismatch"
        assert bank.paid == []
        assert (await one.call("pay", {**again, "confirm": True})).text == "paid"
        assert reason(await one.call("pay", {**again, "confirm": True})) == "preview_stale"
        assert bank.paid == [{"n": 5}]
        assert ("policy.confirmed", "ok", "main: pay") in await made.trail()


async def test_of_many_that_confirm_the_same_at_once_one_is_made() -> None:
    bank = Bank()
    async with (
        governing(confirming()) as made,
        client(WHERE[0], bank.source(), governing=made.policy) as one,
    ):
        issued = (await one.call("pay", {"n": 5})).result["_meta"][POLICY]["previewId"]
        texts: list[str] = []

        async def pay() -> None:
            texts.append((await one.call("pay", {"n": 5, "confirm": True, "preview_id": issued})).text)

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(pay)
        assert texts.count("paid") == 1 and bank.paid == [{"n": 5}]


async def test_each_thing_that_is_missing_has_its_reason_and_says_how_to_go_on() -> None:
    bank = Bank()
    async with (
        governing(confirming(preview="quote")) as made,
        client(WHERE[0], bank.source(), governing=made.policy, tokens={"t": USER, "o": OTHER}) as one,
    ):
        yes = {"n": 5, "confirm": True}
        for arguments in ({"n": 5}, yes):
            missing = await one.call("pay", arguments)
            assert reason(missing) == "preview_required"
            assert "call quote with exactly the same arguments" in missing.text
        quoted = (await one.call("quote", {"n": 5})).result
        assert quoted["content"][0]["text"] == "5 and a fee"
        facts = quoted["_meta"][PREVIEW]
        assert (facts["tool"], facts["expiresInSeconds"]) == ("pay", 600)
        issued = facts["previewId"]
        assert issued in quoted["content"][1]["text"]
        assert reason(await one.call("pay", {"n": 5, "preview_id": issued})) == "confirmation_required"
        wrong = [issued[:-1], "x", "", "A" * 62, issued[::-1], "ü" * 62, "=" * 62, issued + issued]
        for text in wrong:
            found = reason(await one.call("pay", {**yes, "preview_id": text}))
            assert found == ("preview_required" if text == "" else "preview_unknown")
        flipped = issued[:-6] + ("A" if issued[-6] != "A" else "B") + issued[-5:]
        assert reason(await one.call("pay", {**yes, "preview_id": flipped})) == "preview_mismatch"
        assert one.made.tokens is not None
        one.made.tokens["t"] = OTHER
        assert reason(await one.call("pay", {**yes, "preview_id": issued})) == "preview_unknown"
        one.made.tokens["t"] = USER
        made.now[0] += 600_000
        assert reason(await one.call("pay", {**yes, "preview_id": issued})) == "preview_stale"
        made.now[0] -= 1
        assert (await one.call("pay", {**yes, "preview_id": issued})).text == "paid"


@pytest.mark.parametrize("kind", [PrincipalKind.API_KEY, PrincipalKind.CLIENT])
async def test_keys_and_machines_can_be_kept_from_confirming(kind: PrincipalKind) -> None:
    bank = Bank()
    machine = Principal(kind=kind, subject="k", grant_id="g", scopes=frozenset({"mcp"}))
    async with (
        governing(confirming(keys=False)) as made,
        client(WHERE[0], bank.source(), governing=made.policy, tokens={"t": machine}) as one,
    ):
        assert reason(await one.call("pay", {"n": 5})) == "tool_disabled"
        assert one.made.tokens is not None
        one.made.tokens["t"] = USER
        issued = (await one.call("pay", {"n": 5})).result["_meta"][POLICY]["previewId"]
        one.made.tokens["t"] = machine
        assert (
            reason(await one.call("pay", {"n": 5, "confirm": True, "preview_id": issued})) == "tool_disabled"
        )


async def test_what_failed_by_its_own_word_may_be_tried_again_and_what_ended_otherwise_not() -> None:
    bank = Bank()
    async with (
        governing(confirming()) as made,
        client(WHERE[0], bank.source(), governing=made.policy) as one,
    ):

        async def issued() -> dict[str, Any]:
            found = (await one.call("pay", {"n": 5})).result["_meta"][POLICY]["previewId"]
            return {"n": 5, "confirm": True, "preview_id": found}

        first = await issued()
        bank.fails = ToolResult(content=(TextContent(text="no cover"),), is_error=True)
        assert (await one.call("pay", first)).text == "no cover"
        bank.fails = BackendError("the line broke")
        assert (await one.call("pay", first)).error["message"] == "the line broke"
        bank.fails = None
        assert reason(await one.call("pay", first)) == "preview_stale"  # nobody knows whether it was paid
        assert (await one.call("pay", await issued())).text == "paid"


async def test_what_cannot_be_burned_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    bank = Bank()

    async def fails(*_: Any) -> Any:
        raise StoreUnavailable("the disk is full")

    async with (
        governing(confirming()) as made,
        client(WHERE[0], bank.source(), governing=made.policy) as one,
    ):
        issued = (await one.call("pay", {"n": 5})).result["_meta"][POLICY]["previewId"]
        monkeypatch.setattr(made.store, "write", fails)
        refused = (await one.call("pay", {"n": 5, "confirm": True, "preview_id": issued})).result
        assert refused["_meta"][POLICY] == {"reason": "not_counted", "retryAfter": 5}
        assert bank.paid == []


async def test_a_person_is_asked_for_a_confirmed_call_before_it_is_burned() -> None:
    bank = Bank()
    settings = {**confirming(), "policy": [ask(tools=["pay"], when={"n": {"above": 3}})]}
    async with (
        governing(settings) as made,
        client(WHERE[0], bank.source(), governing=made.policy, capabilities=ABLE) as one,
    ):
        reply, _ = await answered(one, "pay", {"n": 5}, YES)
        yes = {"n": 5, "confirm": True, "preview_id": reply.result["_meta"][POLICY]["previewId"]}
        declined, (question,) = await answered(one, "pay", yes, {"action": "decline"})
        assert reason(declined) == "declined" and "preview_id" not in question["message"]
        assert (await answered(one, "pay", yes, YES))[0].text == "paid"


async def test_names_that_the_tool_has_itself_stay_its_own() -> None:
    bank = Bank()
    own = {"properties": {"n": {"type": "integer"}, "confirm": {"type": "string"}}}
    async with (
        governing(confirming()) as made,
        client(WHERE[0], bank.source(**own), governing=made.policy) as one,
    ):
        (pay,) = [tool for tool in (await one.ask("tools/list")).result["tools"] if tool["name"] == "pay"]
        assert set(pay["inputSchema"]["properties"]) == {"n", "confirm", "ostiary_confirm", "preview_id"}
        arguments = {"n": 5, "confirm": "please"}
        issued = (await one.call("pay", arguments)).result["_meta"][POLICY]["previewId"]
        yes = {**arguments, "ostiary_confirm": True, "preview_id": issued}
        assert (await one.call("pay", yes)).text == "paid" and bank.paid == [arguments]
    taken = {name: {"type": "string"} for name in ("confirm", "ostiary_confirm")}
    async with governing(confirming()) as made:
        with pytest.raises(CatalogError, match="cannot be confirmed"):
            house(bank.source(properties=taken, required=[]), governing=made.policy)


async def test_what_is_not_made_takes_nothing_of_a_quota() -> None:
    bank = Bank()
    settings = {**confirming(), "policy": [{"tools": ["pay"], "decision": "deny", "when": {"n": 9}}]}
    async with governing(settings) as made:
        limits = limits_of(
            {"pay": BoundRules(quota="1/day")}, quotas=Quotas(made.store, clock=lambda: made.now[0])
        )
        async with client(WHERE[0], bank.source(), governing=made.policy, limits=limits) as one:
            assert reason(await one.call("pay", {"n": 9})) == "denied"
            issued = (await one.call("pay", {"n": 5})).result["_meta"][POLICY]["previewId"]
            yes = {"n": 5, "confirm": True, "preview_id": issued}
            assert (await one.call("pay", yes)).text == "paid"
            assert "1 call a day of pay is used up" in (await one.call("pay", {"n": 5})).text
