from __future__ import annotations

import re
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from server.agents.chat.chat_agent import ChatConfig, problems
from server.mcp.call_failures import BackendError
from tests.agents.chat.chat_pair import against, ask, backend, text
from tests.agents.python.fake_agent import STRANGERS, Ear, says, tool_call

# ── sessions ──


async def test_a_call_without_a_session_gets_one_that_the_next_call_can_continue() -> None:
    async with against(says({"text": "ok"})) as (agent, under_test):
        first = await ask(under_test)
        other = await ask(under_test)
        await ask(under_test, session_id=first.structured["session_id"])

        told = [request.json["session_id"] for request in agent.requests]
        assert told[0] == told[2] != told[1]
        assert first.structured["session_id"] != other.structured["session_id"]


async def test_two_callers_who_name_the_same_session_are_kept_apart_and_each_name_is_stable() -> None:
    async with against(says({"text": "ok"})) as (agent, under_test):
        for subject in ("user-1", "user-2", "user-1"):
            result = await ask(under_test, subject=subject, session_id=" notes ")
            assert result.structured["session_id"] == "notes"

        told = [request.json["session_id"] for request in agent.requests]
        assert told[0] == told[2] != told[1]
        assert all(re.fullmatch(r"[0-9a-f]{24}\.notes", name) for name in told)
        assert not any("user" in name for name in told)


async def test_two_agents_cannot_find_out_that_they_have_a_caller_in_common() -> None:
    async with against(says({"text": "ok"})) as (one, first), against(says({"text": "ok"})) as (two, second):
        await ask(first, session_id="notes")
        await ask(second, session_id="notes")
        assert one.requests[0].json["session_id"] != two.requests[0].json["session_id"]


async def test_knowing_what_the_agent_is_told_does_not_let_anybody_into_the_session() -> None:
    async with against(says({"text": "ok"})) as (agent, under_test):
        await ask(under_test, subject="user-1", session_id="notes")
        name = agent.requests[0].json["session_id"]
        await ask(under_test, subject="user-2", session_id=name)
        assert agent.requests[1].json["session_id"] != name


@pytest.mark.parametrize("stranger", STRANGERS)
async def test_callers_without_a_login_can_only_use_sessions_that_were_made_for_them(stranger: str) -> None:
    async with against(says({"text": "ok"})) as (agent, under_test):
        refused = await ask(under_test, subject=stranger, session_id="1")
        assert refused.is_error is True
        assert "session_id: is not one" in text(refused)
        assert agent.requests == []

        given = (await ask(under_test, subject=stranger)).structured["session_id"]
        again = await ask(under_test, subject=stranger, session_id=given)
        assert again.structured["session_id"] == given

        forged = given[:-1] + ("A" if given[-1] != "A" else "B")
        assert (await ask(under_test, subject=stranger, session_id=forged)).is_error is True
        of_a_user = (await ask(under_test, subject="user-1")).structured["session_id"]
        assert (await ask(under_test, subject=stranger, session_id=of_a_user)).is_error is True


async def test_shared_sessions_are_passed_on_as_they_are() -> None:
    async with against(says({"text": "ok"}), sessions="shared") as (agent, under_test):
        await ask(under_test, subject="anonymous", session_id="room")
        made = await ask(under_test)
        told = [request.json["session_id"] for request in agent.requests]
        assert told == ["room", made.structured["session_id"]]


# ── arguments and the tool itself ──


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"message": ""}, "message: must be a text of 1 to 8000 characters"),
        ({"message": " \n "}, "message: must be a text of 1 to 8000 characters"),
        ({"message": "x" * 8001}, "message: must be a text of 1 to 8000 characters"),
        ({"message": 7}, "message: must be a text"),
        ({"message": None}, "message: must be a text"),
        ({"agent_id": " "}, "agent_id: must be a text of 1 to 200 characters"),
        ({"agent_id": None, "message": None}, "agent_id: must be a text"),
        ({"session_id": "x" * 201}, "session_id: must be a text of 1 to 200 characters"),
        ({"session_id": "a\x00b"}, "session_id: must be printable"),
        ({"session_id": 5}, "session_id: must be a text"),
    ],
)
async def test_wrong_arguments_are_named_one_by_one_and_the_agent_is_not_asked(
    arguments: dict[str, Any], said: str
) -> None:
    async with against(says({"text": "ok"})) as (agent, under_test):
        result = await ask(under_test, **arguments)
        assert result.is_error is True
        assert text(result).startswith("invalid arguments: ")
        assert said in text(result)
        assert agent.requests == []


async def test_a_message_of_8000_characters_is_counted_after_trimming() -> None:
    async with against(says({"text": "ok"})) as (agent, under_test):
        await ask(under_test, message=" " + "é" * 8000 + "\n")
        assert agent.requests[0].json["messages"][0]["content"] == "é" * 8000


async def test_an_empty_session_id_starts_a_conversation() -> None:
    async with against(says({"text": "ok"})) as (_, under_test):
        assert len((await ask(under_test, session_id=" ")).structured["session_id"]) == 32


async def test_another_tool_is_unknown() -> None:
    under_test = backend("http://127.0.0.1:1/")
    with pytest.raises(BackendError, match=r"^unknown tool: other$"):
        await under_test.call(tool_call("other"), Ear())


async def test_a_fixed_agent_need_not_be_named_and_no_other_may_be() -> None:
    async with against(says({"text": "ok"}), agent="kaya") as (agent, under_test):
        (tool,) = under_test.tools()
        assert tool.input_schema["required"] == ["message"]
        await under_test.call(tool_call(message="hi"), Ear())
        refused = await ask(under_test, agent_id="admin")
        assert "agent_id: must be one of kaya" in text(refused)
        assert [request.json["agent"] for request in agent.requests] == ["kaya"]


async def test_of_several_agents_the_caller_picks_one() -> None:
    async with against(says({"text": "ok"}), agents=["kaya", "boris"]) as (agent, under_test):
        (tool,) = under_test.tools()
        assert tool.input_schema["required"] == ["agent_id", "message"]
        assert tool.input_schema["properties"]["agent_id"]["enum"] == ["kaya", "boris"]
        await ask(under_test, agent_id="boris")
        assert (await ask(under_test, agent_id="admin")).is_error is True
        assert [request.json["agent"] for request in agent.requests] == ["boris"]


def test_the_tool_has_the_founding_names_bounds_and_dialect() -> None:
    (tool,) = backend("http://127.0.0.1:1/").tools()
    assert tool.name == "chat_with_agent"
    schema = tool.input_schema
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["required"] == ["agent_id", "message"]
    assert set(schema["properties"]) == {"agent_id", "message", "session_id"}
    assert schema["properties"]["message"]["minLength"] == 1
    assert schema["properties"]["message"]["maxLength"] == 8000
    assert schema["additionalProperties"] is False
    valid = jsonschema_rs.validator_for(dict(schema), offline=True).is_valid
    assert valid({"agent_id": "kaya", "message": "hi", "session_id": "s"})
    assert not valid({"agent_id": "kaya"})
    assert not valid({"agent_id": "kaya", "message": ""})
    assert not valid({"agent_id": "kaya", "message": "hi", "extra": 1})


async def test_the_structured_result_is_what_the_output_schema_says() -> None:
    async with against(says({"text": "ok"})) as (_, under_test):
        (tool,) = under_test.tools()
        assert isinstance(tool.output_schema, dict)
        jsonschema_rs.validate(tool.output_schema, (await ask(under_test)).structured, offline=True)


def test_the_tool_is_named_and_described_as_configured() -> None:
    (tool,) = backend(
        "http://h/", tool_name="kaya", tool_title="Kaya", tool_description="Knows wines."
    ).tools()
    assert (tool.name, tool.title, tool.description) == ("kaya", "Kaya", "Knows wines.")


# ── settings ──


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"url": "ftp://h/"}, "url"),
        ({"url": "http://"}, "url"),
        ({"url": "http://h:99999/"}, "url"),
        ({"url": "http://user:hunter2@h/"}, "url"),
        ({"url": "http://h/ a"}, "url"),
        ({"url": "http://bücher.example/"}, "url"),
        ({"url": "http://h/#part"}, "url"),
        ({"agent": "a", "agents": ["b"]}, "agents"),
        ({"agents": ["b", "b"]}, "agents"),
        ({"agent": " a"}, "agent"),
        ({"headers": {"bad name": "x"}}, "headers"),
        ({"headers": {"Content-Length": "1"}}, "headers.Content-Length"),
        ({"headers": {"X-A": "hunter2\r\nX-B: 1"}}, "headers.X-A"),
        ({"headers": {"X-A": ""}}, "headers.X-A"),
        ({"headers": {"X-A": "1", "x-a": "2"}}, "headers.x-a"),
    ],
)
def test_a_setting_that_cannot_work_is_named_without_showing_what_may_be_secret(
    settings: dict[str, Any], key: str
) -> None:
    config = msgspec.convert({"url": "http://h/", **settings}, ChatConfig)
    found = problems(config)
    assert [name for name, _ in found] == [key]
    assert "hunter2" not in str(found)


@pytest.mark.parametrize(
    "settings",
    [
        {"deadline_seconds": 0},
        {"deadline_seconds": 4000},
        {"max_connections": 0},
        {"tool_name": "a b"},
        {"urls": "x"},
        {"sessions": "all"},
    ],
)
def test_a_setting_out_of_bounds_or_unknown_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"url": "http://h/", **settings}, ChatConfig)


def test_the_settings_do_not_show_header_values() -> None:
    assert "hunter2" not in repr(ChatConfig(url="http://h/", headers={"authorization": "hunter2"}))
