"""Mocks: which scenario is played, what happens in it, and what cannot be a mock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from msgspec import UNSET

from server.agents.base.backend import (
    BadArguments,
    LibraryBackend,
    NoSuchResource,
    PromptGet,
    ProtocolFailure,
    ResourceRead,
    ToolCall,
)
from server.agents.base.catalog import Catalog, Source
from server.agents.base.demo_agent import Demo
from server.agents.mock.mock_agent import MockBackend, MockConfig, open_mock
from server.agents.mock.mock_document import BadMock, parse_mock, read_mock, write_mock
from server.agents.mock.scenario_conditions import Condition
from server.mcp.call_failures import BackendError, CannotAsk
from server.mcp.call_outlet import LogMessage, Progress
from server.mcp.call_questions import Question
from server.mcp.messages import Implementation, TextContent
from server.mcp.result_encoding import ToolResult
from server.settings.settings_reader import load
from tests.agents.python.python_pair import text_of

WHO: dict[str, Any] = {"subject": "user-1", "call_id": "call-7"}


@dataclass
class Caller:
    """An outlet that keeps what it is told, and answers with this."""

    answer: Any = None
    events: list[Progress | LogMessage] = field(default_factory=list)
    asked: list[Mapping[str, Question]] = field(default_factory=list)

    async def emit(self, event: Progress | LogMessage) -> None:
        await trio.lowlevel.checkpoint()
        self.events.append(event)

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Mapping[str, Any]]:
        self.asked.append(questions)
        if isinstance(self.answer, Exception):
            raise self.answer
        answer: Mapping[str, Any] = self.answer or {}
        return {key: answer for key in questions}  # noqa: C420 - typed as it is

    async def checkpoint(self, data: Any) -> None:
        raise AssertionError("nothing was to be kept")

    async def become_task(self) -> bool:
        return False

    async def close_stream(self) -> None:
        """There is none."""


def mock(*scenarios: dict[str, Any], **more: Any) -> MockBackend:
    document = {
        "tools": [{"name": "t", "inputSchema": {"type": "object"}, "scenarios": list(scenarios)}],
        **more,
    }
    return MockBackend(parse_mock(msgspec.json.encode(document)))


async def call(backend: MockBackend, outlet: Caller | None = None, **arguments: Any) -> ToolResult:
    asked = ToolCall(tool="t", arguments=arguments, wants_progress=True, log_level="info", **WHO)
    return await backend.call(asked, outlet or Caller())


@pytest.mark.parametrize(
    ("when", "fits", "does_not"),
    [
        ({}, {}, None),
        ({"a": 1}, {"a": 1, "b": 2}, {"a": 2}),
        ({"a": 1}, {"a": 1.0}, {}),
        ({"a": {"x": 1}}, {"a": {"x": 1}}, {"a": {"x": 1, "y": 2}}),
        ({"a": {}}, {"a": {}}, {"a": {"x": 1}}),
        ({"a": {"in": [1, 2]}}, {"a": 2}, {"a": 3}),
        ({"a": {"not": 1}}, {"a": 2}, {"a": 1}),
        ({"a": {"matches": "^New "}}, {"a": "New York"}, {"a": "York"}),
        ({"a": {"contains": "o.r"}}, {"a": "go.ry"}, {"a": "oxr"}),
        ({"a": {"contains": 3}}, {"a": [1, 3]}, {"a": [1]}),
        ({"a": {"above": 3}}, {"a": 3.1}, {"a": 3}),
        ({"a": {"atLeast": 3, "below": 5}}, {"a": 3}, {"a": 5}),
        ({"a": {"atMost": 3}}, {"a": 3}, {"a": "3"}),
        ({"a": {"exists": True}}, {"a": None}, {}),
        ({"a.b": {"exists": False}}, {"a": {}}, {"a": {"b": 1}}),
        ({"a.b.c": "x"}, {"a": {"b": {"c": "x"}}}, {"a": {"b": "x"}}),
        ([{"a": 1}, {"b": 1}], {"b": 1}, {"a": 2}),
        ({"$schema": {"required": ["a"]}}, {"a": 0}, {}),
    ],
)
def test_a_condition_is_asked_of_the_arguments(
    when: Any, fits: dict[str, Any], does_not: dict[str, Any] | None
) -> None:
    assert Condition(when).holds(fits)
    if does_not is not None:
        assert not Condition(when).holds(does_not)


def test_a_pattern_that_never_ends_on_a_text_costs_no_time() -> None:
    assert not Condition({"a": {"matches": "^(a+)+$"}}).holds({"a": "a" * 5000 + "!"})


async def test_the_first_scenario_that_fits_is_played() -> None:
    backend = mock({"when": {"a": 1}, "respond": "one"}, {"respond": {"n": 2}}, {"respond": "never"})
    assert text_of(await call(backend, a=1)) == "one"
    answer = await call(backend, a=2)
    assert (text_of(answer), answer.structured) == ('{"n":2}', {"n": 2})


async def test_where_none_fits_that_is_the_answer() -> None:
    assert (
        text_of(await call(mock({"when": {"a": 1}, "respond": "one"})))
        == '{"message":"No matching scenario"}'
    )


@pytest.mark.parametrize(
    ("answer", "text", "structured", "is_error"),
    [
        ({"respond": [1]}, "[1]", UNSET, False),
        ({"error": "no"}, "no", UNSET, True),
        ({"result": {"content": [{"type": "text", "text": "x"}], "structuredContent": 5}}, "x", 5, False),
    ],
)
async def test_an_answer_is_said_in_several_ways(
    answer: Any, text: str, structured: Any, is_error: bool
) -> None:
    given = await call(mock(answer))
    assert (text_of(given), given.structured, given.is_error) == (text, structured, is_error)


async def test_an_answer_may_be_empty_an_error_of_the_protocol_or_no_result_at_all() -> None:
    assert (await call(mock({}))).content == ()
    with pytest.raises(ProtocolFailure, match="gone") as raised:
        await call(mock({"protocolError": {"code": 1404, "message": "gone", "data": {"at": 1}}}))
    assert (raised.value.code, raised.value.data) == (1404, {"at": 1})
    with pytest.raises(BackendError, match="none"):
        await call(mock({"result": {"content": "x"}}))


async def test_steps_take_their_time_and_are_told(autojump_clock: trio.testing.MockClock) -> None:
    steps = [
        {"progress": 1, "total": 2, "message": "half"},
        {"waitSeconds": 30, "log": {"n": 1}},
        {"log": "hidden", "level": "debug"},
    ]
    caller, begun = Caller(), trio.current_time()
    assert text_of(await call(mock({"delaySeconds": 10, "steps": steps, "respond": "x"}), caller)) == "x"
    assert trio.current_time() - begun == pytest.approx(40)
    assert caller.events == [
        Progress(progress=1, total=2, message="half"),
        LogMessage(level="info", data={"n": 1}),
    ]


ASKS = {
    "steps": [{"ask": {"id": "unit", "prompt": "Which?", "schema": {"unit": ["C", "F"]}}}],
    "then": [
        {"when": {"answers.unit.action": {"not": "accept"}}, "error": "then not"},
        {"when": {"answers.unit.content.unit": "F", "city": "Rome"}, "respond": "68"},
    ],
    "respond": "20",
}


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"action": "accept", "content": {"unit": "F"}}, "68"),
        ({"action": "accept", "content": {"unit": "C"}}, "20"),
        ({"action": "decline"}, "then not"),
    ],
)
async def test_what_is_answered_decides_what_comes_then(answer: Any, text: str) -> None:
    caller = Caller(answer)
    assert text_of(await call(mock(ASKS), caller, city="Rome")) == text
    (asked,) = caller.asked
    assert asked["unit"].params["requestedSchema"]["properties"] == {
        "unit": {"type": "string", "enum": ["C", "F"]}
    }


async def test_a_question_that_cannot_be_asked_fails_the_call() -> None:
    with pytest.raises(CannotAsk):
        await call(mock(ASKS), Caller(CannotAsk("nobody there")))


LIBRARY: dict[str, Any] = {
    "resources": [
        {"uri": "w://a", "name": "a", "text": "made up {{x}}"},
        {"uri": "w://b", "name": "b", "mimeType": "image/png", "blob": "eA=="},
    ],
    "resourceTemplates": [
        {"uriTemplate": "w://c/{id}", "name": "c", "json": {"id": "{{id}}", "n": [1, "{{ id }}"]}}
    ],
    "prompts": [
        {
            "name": "p",
            "arguments": [{"name": "city", "required": True}, {"name": "tone", "default": "dry"}],
            "text": "{{tone}} {{city}} {{other}}",
        }
    ],
}


async def test_resources_are_read_and_templates_filled() -> None:
    backend, nobody = mock(**LIBRARY), Caller()
    assert isinstance(backend, LibraryBackend)
    assert [each.uri for each in backend.resources()] == ["w://a", "w://b"]
    (text,) = await backend.read(ResourceRead(uri="w://a", **WHO), nobody)
    (blob,) = await backend.read(ResourceRead(uri="w://b", **WHO), nobody)
    assert (text.text, text.mime_type, blob.blob, blob.mime_type) == (
        "made up {{x}}",
        "text/plain",
        "eA==",
        "image/png",
    )
    read = ResourceRead(uri="w://c/7", template="w://c/{id}", arguments={"id": "7"}, **WHO)
    (filled,) = await backend.read(read, nobody)
    assert (filled.uri, filled.text, filled.mime_type) == (
        "w://c/7",
        '{"id":"7","n":[1,"7"]}',
        "application/json",
    )
    with pytest.raises(NoSuchResource):
        await backend.read(ResourceRead(uri="w://none", **WHO), nobody)


async def test_a_prompt_wants_what_it_requires_and_has_defaults() -> None:
    backend = mock(**LIBRARY)
    (prompt,) = backend.prompts()
    assert "default" not in str(msgspec.to_builtins(prompt))
    result = await backend.get_prompt(PromptGet(prompt="p", arguments={"city": "Rome"}, **WHO), Caller())
    assert [message.content for message in result.messages] == [TextContent(text="dry Rome {{other}}")]
    with pytest.raises(BadArguments, match="city: is required"):
        await backend.get_prompt(PromptGet(prompt="p", arguments={}, **WHO), Caller())


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ("{", "malformed|truncated"),
        ('{"tolls": []}', "unknown field `tolls`"),
        ('{"tools": [{"name": "a b"}]}', "the tool a b: .*is no tool name"),
        ('{"tools": [{"name": "a", "input": {"x": "y"}}]}', "the tool a: x: is none of"),
        ('{"tools": [{"name": "a"}, {"name": "a"}]}', "the tool a twice"),
        ('{"tools": [{"name": "a", "annotations": {"readOnly": true}}]}', 'tool a: "readOnly" is no annotation; did you mean readOnlyHint'),
        ('{"tools": [{"name": "a", "annotations": {"read_only": true}}]}', "did you mean readOnlyHint"),
        ('{"tools": [{"name": "a", "annotations": {"destructiv": true}}]}', "did you mean destructiveHint"),
        ('{"tools": [{"name": "a", "annotations": {"zzz": true}}]}', "is no annotation; there are title, readOnlyHint"),
        ('{"tools": [{"name": "a", "annotations": {"readOnlyHint": "yes"}}]}', "Expected `bool"),
        ('{"protocolVersion": "2020-01-01"}', "protocolVersion is none"),
        ('{"tools": [{"name": "a", "scenarios": [{"when": {"x": {"matches": "("}}}]}]}', "scenario 1: `when` cannot be"),
        ('{"tools": [{"name": "a", "scenarios": [{"when": {"x": {"in": 3}}}]}]}', "scenario 1: `when` cannot be"),
        ('{"tools": [{"name": "a", "scenarios": [{"name": "s", "when": {"x..y": 1}}]}]}', "scenario s: .*no path"),
        ('{"tools": [{"name": "a", "scenarios": [{"respond": 1, "error": "x"}]}]}', "more than one of"),
        ('{"tools": [{"name": "a", "scenarios": [{"delaySeconds": -1}]}]}', ">= 0"),
        ('{"tools": [{"name": "a", "scenarios": [{"steps": [{"ask": {"id": "q", "prompt": "?", "schema": {"x": "y"}}}]}]}]}', "question q"),
        ('{"resourceTemplates": [{"uriTemplate": "w://{a", "name": "x"}]}', "the resource template"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_mock_is_said(document: str, why: str) -> None:
    with pytest.raises(BadMock, match=why):
        parse_mock(document.encode())


def test_a_file_is_named_with_what_is_wrong_with_it(tmp_path: Path) -> None:
    with pytest.raises(BadMock, match=r"none\.json: no such file"):
        open_mock(str(tmp_path / "none.json"))
    (tmp_path / "bad.json").write_text("[1]")
    with pytest.raises(BadMock, match=r"bad\.json: Expected `object`"):
        open_mock(str(tmp_path / "bad.json"))
    (tmp_path / "empty.json").write_text("{}")
    with pytest.raises(BadMock, match='no "tools"'):
        open_mock(str(tmp_path / "empty.json"))
    deep = '{"tools": [{"name": "a", "scenarios": [' + '{"then": [' * 9 + "{}" + "]}" * 9 + "]}]}"
    (tmp_path / "deep.json").write_text(deep)
    with pytest.raises(BadMock, match="more than 8 deep"):
        open_mock(str(tmp_path / "deep.json"))


def test_a_mock_that_is_written_reads_as_the_same(tmp_path: Path) -> None:
    document = parse_mock(
        msgspec.json.encode({"name": "m", "tools": [{"name": "t", "scenarios": [ASKS]}], **LIBRARY})
    )
    (tmp_path / "m.json").write_bytes(write_mock(document))
    assert read_mock(tmp_path / "m.json") == document


async def test_a_mock_may_be_toml(tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_text('[[tools]]\nname = "t"\n[[tools.scenarios]]\nrespond = "x"\n')
    assert text_of(await call(open_mock(str(tmp_path / "m.toml")))) == "x"


def test_a_tool_that_is_switched_off_is_not_offered() -> None:
    document = parse_mock(b'{"tools": [{"name": "a", "enabled": false}, {"name": "b"}]}')
    assert [tool.name for tool in MockBackend(document).tools()] == ["b"]


async def test_a_stand_in_answers_for_a_tool_that_is_offered_as_its_agent_has_it() -> None:
    stand_in = MockBackend(parse_mock(b'{"tools": [{"name": "clock", "scenarios": [{"respond": "never"}]}]}'))
    catalog = Catalog([Source(name="demo", backend=Demo())], stand_ins={"clock": stand_in})
    entry = catalog.tools["clock"]
    assert "zone" in entry.tool.input_schema["properties"]
    answer = await entry.backend.call(ToolCall(tool="clock", arguments={}, **WHO), Caller())
    assert text_of(answer) == "never"
    catalog.refresh()
    assert catalog.tools["clock"].backend is stand_in
    assert catalog.tools["echo"].backend is not stand_in


async def test_the_example_of_its_page_works(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "agents" / "mock.md").read_text("utf-8")
    (tmp_path / "weather.json").write_text(page.partition("```json\n")[2].partition("```")[0], "utf-8")
    (tmp_path / "ostiary.toml").write_text(page.partition("```toml\n")[2].partition("```")[0], "utf-8")
    (agent,) = load(tmp_path / "ostiary.toml", {}).servers[0].agents
    assert isinstance(agent, MockConfig)
    backend = open_mock(str(tmp_path / agent.file))

    async def weather(caller: Caller | None = None, **arguments: Any) -> str:
        asked = ToolCall(tool="get_weather", arguments=arguments, wants_progress=True, **WHO)
        return text_of(await backend.call(asked, caller or Caller()))

    assert await weather(city="Berlin") == '{"city":"Berlin","degrees":7}'
    assert await weather(city="Rome", days=20) == "nobody knows that far ahead"
    assert await weather(city="Rome") == '{"message":"No matching scenario"}'
    assert (
        await weather(Caller({"action": "accept", "content": {"unit": "F"}}), city="New York")
        == '{"degrees":68}'
    )


def test_what_a_document_does_not_have_need_not_be_declared() -> None:
    def features(**document: Any) -> frozenset[str]:
        return Catalog([Source(name="mock", backend=mock(**document))]).features

    template = {"uriTemplate": "a://{b}", "name": "t"}
    logs = {"name": "t", "scenarios": [{"then": [{"steps": [{"log": "hello"}]}]}]}
    assert features() == frozenset()
    assert features(prompts=[{"name": "p"}]) == {"prompts"}
    assert features(resourceTemplates=[template], prompts=[{"name": "p"}]) == {"prompts", "resources"}
    assert features(tools=[logs]) == {"logging"}


def test_a_mock_introduces_itself_by_what_its_document_says() -> None:
    assert mock(name="weather", version="2").introduction() == Implementation(name="weather", version="2")
    assert mock().introduction() == Implementation(name="", version="")
