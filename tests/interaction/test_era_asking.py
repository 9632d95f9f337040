"""A call that has to ask its caller: with the request sent again in the modern era, on its stream in the other."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from server.agents.base.backend import ToolCall
from server.mcp.call_outlet import Outlet
from server.mcp.call_questions import Question
from server.mcp.result_encoding import ToolResult
from server.mcp.terms import CallTerms
from tests.interaction.agents import USER, agent, says
from tests.interaction.clients import Client, Reply
from tests.interaction.everything import everything
from tests.interaction.pipe_client import PipeClient
from tests.interaction.session_house import ASKED
from tests.interaction.web_client import WebClient
from tests.interaction.wires import client
from tests.pair import talk
from tests.requirements import Cell

ABLE: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "roots": {}, "sampling": {}}
ANN = {"action": "accept", "content": {"name": "Ann"}}
PAUSING = [
    ("tools/call", {"name": "asks"}),
    ("resources/read", {"uri": "test://asks"}),
    ("prompts/get", {"name": "asks"}),
]


async def round_trip(one: Client, method: str, params: Any, answer: Any) -> Reply:
    """Ask for something that asks one question, and answer it: the reply to the whole, or to the retry."""
    if not one.modern:
        async with one.begins(method, params) as asked:
            question = await asked.next()
            assert question["method"] == "elicitation/create"
            await one.answer(question, result=answer)
            return await asked.reply()
    paused = (await one.ask(method, params)).result
    return await retry(one, method, params, paused, {"who": answer})


async def retry(one: Client, method: str, params: Any, paused: Any, answers: Any) -> Reply:
    more = {"requestState": paused["requestState"], "inputResponses": answers}
    return await one.ask(method, {**params, **more})


# ── input_required ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("ask.methods")
@pytest.mark.requirement("ask.shape")
@pytest.mark.requirement("ask.no-caching")
@pytest.mark.requirement("rpc.no-server-requests")
@pytest.mark.parametrize(("method", "params"), PAUSING)
async def test_what_has_to_ask_is_answered_with_its_questions(method: str, params: Any, cell: Cell) -> None:
    async with client(cell, capabilities=ABLE) as one:
        reply = await one.ask(method, params)
        assert reply.before == []
        assert reply.result.keys() == {"resultType", "inputRequests", "requestState", "_meta"}
        assert reply.result["resultType"] == "input_required"
        assert reply.result["inputRequests"] == {
            "who": {"method": "elicitation/create", "params": {"message": "who?", "requestedSchema": ASKED}}
        }
        assert isinstance(reply.result["requestState"], str)


@pytest.mark.requirement("ask.methods")
async def test_other_methods_take_no_state_and_ask_nothing(cell: Cell) -> None:
    async with client(cell, capabilities=ABLE) as one:
        paused = (await one.call("asks")).result
        state = {"requestState": paused["requestState"], "inputResponses": {"who": ANN}}
        ref = {"type": "ref/prompt", "name": "asks"}
        for method, params in (
            ("tools/list", state),
            ("resources/list", state),
            ("server/discover", state),
        ):
            assert (await one.ask(method, params)).result["resultType"] == "complete"
        assert (
            await one.ask("completion/complete", {"ref": ref, "argument": {"name": "x", "value": ""}})
        ).code


@pytest.mark.requirement("ask.retry")
@pytest.mark.requirement("ask.no-caching")
@pytest.mark.parametrize(("method", "params"), PAUSING)
async def test_the_request_goes_on_when_it_comes_again_with_the_answers(
    method: str, params: Any, cell: Cell
) -> None:
    async with client(cell, capabilities=ABLE) as one:
        result = (await round_trip(one, method, params, ANN)).result
        assert result["resultType"] == "complete"
        assert method != "resources/read" or (result["ttlMs"], result["cacheScope"]) == (0, "private")


@pytest.mark.requirement("ask.any-instance")
async def test_another_instance_goes_on_with_it(cell: Cell) -> None:
    async with client(cell, capabilities=ABLE) as one:
        paused = (await one.call("asks")).result
    async with client(cell, capabilities=ABLE) as other:
        reply = await retry(other, "tools/call", {"name": "asks", "arguments": {}}, paused, {"who": ANN})
        assert "Ann" in reply.text


@pytest.mark.requirement("ask.integrity")
@pytest.mark.requirement("ask.binding")
async def test_a_state_is_good_for_its_own_request_as_it_was_given_out(cell: Cell) -> None:
    params: dict[str, Any] = {"name": "asks", "arguments": {}}
    async with client(cell, capabilities=ABLE) as one:
        paused = (await one.ask("tools/call", params)).result
        state: str = paused["requestState"]
        last = "A" if state[-1] != "A" else "B"
        for wrong in (state[:-1] + last, state[1:], "", "made up"):
            changed = paused | {"requestState": wrong}
            assert (await retry(one, "tools/call", params, changed, {"who": ANN})).code == -32602
        for method, other in (
            ("tools/call", params | {"arguments": {"x": 1}}),
            ("tools/call", params | {"name": "steps"}),
            ("prompts/get", {"name": "asks"}),
        ):
            assert (await retry(one, method, other, paused, {"who": ANN})).code == -32602
        assert "Ann" in (await retry(one, "tools/call", params, paused, {"who": ANN})).text


@pytest.mark.requirement("ask.integrity")
async def test_a_forged_state_is_refused_by_what_never_asks_too(cell: Cell) -> None:
    for quick in (False, True):
        async with client(cell, everything(terms=CallTerms(quick=quick)), capabilities=ABLE) as one:
            reply = await one.call("plain", requestState="made up")
            assert reply.code == -32602
            assert (await one.call("plain", inputResponses={"who": ANN})).text == "done"


@pytest.mark.requirement("ask.missing-answer")
@pytest.mark.requirement("ask.unknown-keys")
@pytest.mark.requirement("ask.malformed-answer")
@pytest.mark.requirement("ask.content", era="modern")
@pytest.mark.parametrize(
    "answers",
    [
        {},
        None,
        [1],
        {"other": ANN},
        {"who": None},
        {"who": "Ann"},
        {"who": {}},
        {"who": {"action": "maybe"}},
        {"who": {"action": "accept"}},
        {"who": {"action": "accept", "content": {"name": 7}}},
    ],
)
async def test_what_is_no_answer_is_asked_for_again(answers: Any, cell: Cell) -> None:
    async with client(cell, capabilities=ABLE) as one:
        params: dict[str, Any] = {"name": "asks", "arguments": {}}
        paused = (await one.ask("tools/call", params)).result
        again = (await retry(one, "tools/call", params, paused, answers)).result
        assert again["resultType"] == "input_required" and again["inputRequests"].keys() == {"who"}
        done = await retry(one, "tools/call", params, again, {"who": ANN, "other": 1})
        assert "Ann" in done.text


@pytest.mark.requirement("ask.identity", era="modern", transport="http")
@pytest.mark.requirement("ask.binding", transport="http")
async def test_a_state_is_of_no_use_to_another_caller(cell: Cell) -> None:
    other = USER.__class__(
        kind=USER.kind, subject="user-2", client_id="client-1", grant_id="g2", scopes=USER.scopes
    )
    async with client(cell, capabilities=ABLE, tokens={"t": USER, "o": other}) as one:
        paused = (await one.call("asks")).result
        one.made.pair.headers = {"authorization": "Bearer o"}
        reply = await retry(one, "tools/call", {"name": "asks", "arguments": {}}, paused, {"who": ANN})
        assert reply.code == -32602


# ── in both eras ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("ask.declined")
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_the_tool_learns_that_a_person_said_no(action: str, cell: Cell) -> None:
    async with client(cell, capabilities=ABLE) as one:
        reply = await round_trip(one, "tools/call", {"name": "asks", "arguments": {}}, {"action": action})
        assert reply.text == f"{action}: None"


@pytest.mark.requirement("ask.content", era="legacy")
async def test_an_answer_that_does_not_fit_is_asked_for_once_more(cell: Cell) -> None:
    async with client(cell, capabilities=ABLE) as one, one.begins("tools/call", {"name": "asks"}) as asked:
        await one.answer(await asked.next(), result={"action": "accept", "content": {"name": 7}})
        again = await asked.next()
        assert again["method"] == "elicitation/create"
        await one.answer(again, result=ANN)
        assert "Ann" in (await asked.reply()).text


async def sends_to_a_page(call: ToolCall, outlet: Outlet) -> ToolResult:
    params = {"mode": "url", "message": "sign in", "url": "https://example.com/sign-in"}
    answers = await outlet.ask({"page": Question(method="elicitation/create", params=params)})
    return says(answers["page"]["action"])


@pytest.mark.requirement("ask.words")
async def test_a_page_is_asked_for_in_the_words_of_the_revision(cell: Cell) -> None:
    async with client(cell, agent(page=sends_to_a_page), capabilities=ABLE) as one:
        if one.modern:
            params = (await one.call("page")).result["inputRequests"]["page"]["params"]
            assert params.keys() == {"mode", "message", "url"}
            return
        async with one.begins("tools/call", {"name": "page"}) as asked:
            question = await asked.next()
            assert question["params"].keys() == {"mode", "message", "url", "elicitationId"}
            await one.answer(question, result={"action": "accept"})
            assert (await asked.reply()).text == "accept"


@pytest.mark.requirement("meta.plain-elicitation")
async def test_who_says_nothing_more_of_elicitation_takes_forms_only(cell: Cell) -> None:
    async with client(cell, everything(page=sends_to_a_page), capabilities={"elicitation": {}}) as one:
        reply = await one.call("page")
        if one.modern:
            assert reply.error["data"]["requiredCapabilities"] == {"elicitation": {"url": {}}}
        else:
            assert reply.result["isError"] is True
        done = await round_trip(one, "tools/call", {"name": "asks", "arguments": {}}, ANN)
        assert "Ann" in done.text


# ── in the handshake era ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("ask.own-stream")
@pytest.mark.requirement("rpc.own-ids")
async def test_two_calls_are_asked_apart(cell: Cell) -> None:
    async with (
        client(cell, capabilities=ABLE) as one,
        one.begins("tools/call", {"name": "asks"}) as first,
    ):
        of_first = await first.next()
        async with one.begins("tools/call", {"name": "asks"}) as second:
            of_second = await second.next()
            assert of_first["id"] != of_second["id"]
            await one.answer(of_second, result={"action": "decline"})
            assert (await second.reply()).text == "decline: None"
        await one.answer(of_first, result=ANN)
        assert "Ann" in (await first.reply()).text


@pytest.mark.requirement("ask.withdrawn")
async def test_the_question_of_a_cancelled_call_is_taken_back(cell: Cell) -> None:
    async with client(cell, capabilities=ABLE) as one, one.begins("tools/call", {"name": "asks"}) as asked:
        question = await asked.next()
        await asked.cancel()
        (withdrawn,) = await asked.rest()
        assert withdrawn["method"] == "notifications/cancelled"
        assert withdrawn["params"]["requestId"] == question["id"]
        await one.answer(question, result=ANN)
        assert (await one.ask("ping")).result == {}


@pytest.mark.requirement("ask.identity", era="legacy")
async def test_an_answer_to_what_was_not_asked_changes_nothing(cell: Cell) -> None:
    async with client(cell, capabilities=ABLE) as one, one.begins("tools/call", {"name": "asks"}) as asked:
        question = await asked.next()
        for wrong in ("server-4711", 1, None):
            body = {"jsonrpc": "2.0", "id": wrong, "result": ANN}
            if isinstance(one, PipeClient):
                await one.send(body)
        if isinstance(one, WebClient):
            stranger = await talk(one.made.pair, capabilities=ABLE)
            assert (await stranger.reply(question, result=ANN)).status == 202
        await trio.testing.wait_all_tasks_blocked()
        await one.answer(question, result={"action": "decline"})
        assert (await asked.reply()).text == "decline: None"


@pytest.mark.requirement("legacy.ping")
async def test_the_server_may_ping_its_client(cell: Cell) -> None:
    async with client(cell) as one, one.aside() as next_aside, trio.open_nursery() as nursery:
        sessions: Any = one.made.endpoint.sessions
        (session,) = sessions._all.values()
        nursery.start_soon(session.ask_plain, session.send, "ping", {})
        ping = await next_aside()
        assert ping["method"] == "ping"
        await one.answer(ping, result={})
