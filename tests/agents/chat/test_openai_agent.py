from __future__ import annotations

from typing import Any

import jsonschema_rs
import msgspec
import pytest
import trio
import trio.testing

from server.agents.chat.openai_agent import OpenAIConfig, completions_url, problems
from server.lib.secret import Secret
from server.mcp.call_failures import BackendError
from server.mcp.result_encoding import ToolResult
from tests.agents.chat.openai_pair import against, ask, completion, contents, parrot, texts
from tests.agents.python.fake_agent import STRANGERS, Exchange, Silent, pass_when, says


async def test_one_message_is_asked_of_the_model_and_its_answer_comes_back() -> None:
    async with against(
        says(completion(" hello \n")), api_key=Secret("sk-12345"), system_prompt="Be kind."
    ) as (agent, under_test):
        result = await ask(under_test, "  hi ")

        assert texts(result) == ["hello"]
        assert result.structured["reply"] == "hello"
        assert result.structured["finish_reason"] == "stop"
        assert result.structured["remembered_turns"] == 0
        (request,) = agent.requests
        assert (request.method, request.target) == ("POST", "/v1/chat/completions")
        assert request.headers["authorization"] == "Bearer sk-12345"
        assert request.json == {
            "model": "small-1",
            "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi"}],
            "stream": False,
        }
        (tool,) = under_test.tools()
        assert isinstance(tool.output_schema, dict)
        jsonschema_rs.validate(tool.output_schema, result.structured, offline=True)


async def test_without_a_key_no_authorization_is_sent() -> None:
    async with against(says(completion())) as (agent, under_test):
        await ask(under_test)
        assert "authorization" not in agent.requests[0].headers


async def test_configured_parameters_go_into_the_request() -> None:
    settings: dict[str, Any] = {
        "temperature": 0.5,
        "max_tokens": 100,
        "parameters": {"top_p": 0.9, "seed": 7},
    }
    async with against(says(completion()), **settings) as (agent, under_test):
        await ask(under_test)
        sent = agent.requests[0].json
        assert {key: sent[key] for key in ("temperature", "max_tokens", "top_p", "seed")} == {
            "temperature": 0.5,
            "max_tokens": 100,
            "top_p": 0.9,
            "seed": 7,
        }


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        ("http://h", "http://h/v1/chat/completions"),
        ("http://h/", "http://h/v1/chat/completions"),
        ("http://h/v1", "http://h/v1/chat/completions"),
        ("http://h/v1/", "http://h/v1/chat/completions"),
        ("http://h/api", "http://h/api/v1/chat/completions"),
        ("http://h/openai/v1beta", "http://h/openai/v1beta/chat/completions"),
        ("http://h/x/chat/completions?version=2", "http://h/x/chat/completions?version=2"),
    ],
)
def test_the_address_is_found_with_or_without_the_version(base_url: str, url: str) -> None:
    assert completions_url(base_url) == url


# ── conversations ──


async def test_a_session_remembers_what_was_said_in_it() -> None:
    async with against(parrot) as (agent, under_test):
        session = (await ask(under_test, "one")).structured["session_id"]
        second = await ask(under_test, "two", session_id=session)
        assert second.structured["remembered_turns"] == 1
        assert second.structured["session_id"] == session
        assert contents(agent.requests[1]) == ["one", "you said one", "two"]
        assert [message["role"] for message in agent.requests[1].json["messages"]] == [
            "user",
            "assistant",
            "user",
        ]


async def test_a_call_without_a_session_and_another_caller_with_the_same_name_know_nothing_of_it() -> None:
    async with against(parrot) as (agent, under_test):
        await ask(under_test, "secret", session_id="notes")
        await ask(under_test, "two")
        await ask(under_test, "three", subject="user-2", session_id="notes")
        assert [contents(request) for request in agent.requests] == [["secret"], ["two"], ["three"]]


@pytest.mark.parametrize("stranger", STRANGERS)
async def test_callers_without_a_login_do_not_meet_under_a_name_they_both_thought_of(stranger: str) -> None:
    async with against(parrot) as (agent, under_test):
        refused = await ask(under_test, subject=stranger, session_id="1")
        assert refused.is_error is True
        assert agent.requests == []
        given = (await ask(under_test, "one", subject=stranger)).structured["session_id"]
        assert (await ask(under_test, "two", subject=stranger, session_id=given)).structured[
            "remembered_turns"
        ] == 1


async def test_only_the_last_turns_are_kept() -> None:
    async with against(parrot, max_turns=2) as (agent, under_test):
        for word in ("a", "b", "c", "d"):
            await ask(under_test, word, session_id="s")
        assert contents(agent.requests[3]) == ["b", "you said b", "c", "you said c", "d"]


async def test_a_turn_that_failed_is_not_part_of_the_conversation() -> None:
    async def sometimes(exchange: Exchange) -> None:
        if contents(exchange.request)[-1] == "fail":
            await exchange.reply(b"no", status=500)
        else:
            await parrot(exchange)

    async with against(sometimes) as (agent, under_test):
        await ask(under_test, "one", session_id="s")
        with pytest.raises(BackendError):
            await ask(under_test, "fail", session_id="s")
        await ask(under_test, "two", session_id="s")
        assert contents(agent.requests[2]) == ["one", "you said one", "two"]


async def test_calls_of_one_session_run_one_after_the_other_while_others_pass_them() -> None:
    release = trio.Event()
    first_came = trio.Event()

    async def hold_the_first(exchange: Exchange) -> None:
        if contents(exchange.request) == ["one"]:
            first_came.set()
            await release.wait()
        await parrot(exchange)

    async with against(hold_the_first) as (agent, under_test):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: ask(under_test, "one", session_id="s"))
            await first_came.wait()
            nursery.start_soon(lambda: ask(under_test, "two", session_id="s"))
            await ask(under_test, "elsewhere", session_id="t")
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert [contents(request) for request in agent.requests] == [["one"], ["elsewhere"]]
            release.set()
        assert contents(agent.requests[2]) == ["one", "you said one", "two"]


async def test_waiting_for_ones_turn_counts_towards_the_deadline(mock_clock: trio.testing.MockClock) -> None:
    silent = Silent()
    async with against(silent, deadline_seconds=1) as (agent, under_test):
        results: list[ToolResult] = []

        async def one() -> None:
            results.append(await ask(under_test, session_id="s"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(one)
            await silent.came.wait()
            nursery.start_soon(one)
            await pass_when(mock_clock, 1, silent.came)
        assert [texts(result) for result in results] == [["agent did not answer within 1 s"]] * 2
        assert all(result.is_error for result in results)
        assert len(agent.requests) in (1, 2)  # the second may have had the last moment of its deadline


async def test_cancelling_a_call_closes_its_connection_and_lets_the_next_of_its_session_go() -> None:
    silent = Silent()
    calls = 0

    async def silent_once(exchange: Exchange) -> None:
        nonlocal calls
        calls += 1
        await (silent(exchange) if calls == 1 else parrot(exchange))

    async with against(silent_once) as (agent, under_test):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: ask(under_test, "never answered", session_id="s"))
            await silent.came.wait()
            nursery.cancel_scope.cancel()
        await silent.gone.wait()
        await ask(under_test, "two", session_id="s")
        assert contents(agent.requests[1]) == ["two"]


# ── settings ──


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"base_url": "h/v1"}, "base_url"),
        ({"api_key": "sk-hunter2"}, "api_key"),
        ({"api_key": "env:K", "headers": {"Authorization": "env:K"}}, "api_key"),
        ({"parameters": {"messages": []}}, "parameters.messages"),
        ({"parameters": {"stream": True}}, "parameters.stream"),
    ],
)
def test_a_setting_that_cannot_work_is_named(settings: dict[str, Any], key: str) -> None:
    config = msgspec.convert({"base_url": "http://h", "model": "m", **settings}, OpenAIConfig)
    found = problems(config)
    assert [name for name, _ in found] == [key]
    assert "hunter2" not in str(found) + repr(config)


@pytest.mark.parametrize(
    "settings", [{"model": ""}, {"temperature": 3}, {"max_tokens": 0}, {"max_turns": -1}, {"api-key": "x"}]
)
def test_a_setting_out_of_bounds_or_unknown_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"base_url": "http://h", "model": "m", **settings}, OpenAIConfig)
