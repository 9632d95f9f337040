"""What one request may cost others: time on the only thread, and memory that stays when it was answered."""

from __future__ import annotations

import gc
import json
import weakref
from typing import Any

import pytest

from auth.model import ANONYMOUS
from server.feeds import check_bounds
from server.mcp.errors import TooManySessions, TooManySubscriptions
from server.mcp.forms import problem_in_form
from server.mcp.inbound import Route, classify
from server.mcp.messages import MAX_NAME, Request, Tool, decode
from server.mcp.params import InitializeParams, ListenFilter
from server.mcp.schema import MAX_EXPLAINED, ToolSchema
from server.mcp.versions import REVISIONS
from server.sessions import MAX_WATCHED_CHARACTERS, Session, Sessions
from server.subscriptions import MAX_TOPIC_CHARACTERS, MAX_TOPICS
from tests.interaction.agents import house
from tests.pair import modern

LISTED: dict[str, Any] = {
    "type": "object",
    "properties": {
        "items": {"type": "array", "items": {"type": "string"}},
        "either": {
            "anyOf": [
                {"type": "array", "items": {"type": "string"}},
                {"type": "array", "items": {"type": "null"}},
            ]
        },
    },
}


def compiled() -> ToolSchema:
    return ToolSchema(Tool(name="tool", input_schema=LISTED))


def test_faults_beyond_what_anybody_reads_are_not_looked_for() -> None:
    # Looking for all of them takes a minute here, and nobody else is answered meanwhile.
    many = [1] * (300 * MAX_EXPLAINED)
    for arguments in ({"items": many}, {"either": many}, {"items": [many, many]}):
        (problem,) = compiled().problems(arguments)
        assert "too many" in problem.reason
    (problem,) = compiled().problems({"either": [1] * (MAX_EXPLAINED - 1)})
    assert problem.field == "either"
    assert compiled().problems({"items": ["x"] * (2 * MAX_EXPLAINED)}) == ()


def test_arguments_that_are_nested_deeper_than_a_schema_can_look_are_refused_by_that_name() -> None:
    deep: list[Any] = []
    for _ in range(400):
        deep = [deep]
    (problem,) = compiled().problems({"items": deep})
    assert problem.reason == "are nested too deeply"


def test_one_fault_in_a_form_is_enough() -> None:
    choices = {"type": "array", "items": {"type": "string", "enum": ["x", "y"]}}
    form = {"type": "object", "properties": {"a": choices}}
    told = problem_in_form(form, {"a": ["q"] * 200_000})
    assert told is not None
    assert told.startswith("a.0: ")


async def test_deep_arguments_are_a_result_to_learn_from_and_no_crash() -> None:
    made = house()
    deep = json.loads("[" * 400 + "]" * 400)
    answer = await made.pair.modern("tools/call", {"name": "echo", "arguments": {"text": deep}})
    assert answer.json["result"]["isError"] is True
    assert not [line for line in made.lines if line["level"] == "error"]


@pytest.mark.requirement("listen.bounds")
@pytest.mark.parametrize(
    "asked",
    [
        ListenFilter(resource_subscriptions=["test://a"] * (MAX_TOPICS + 1)),
        ListenFilter(task_ids=["t"] * (MAX_TOPICS + 1)),
        ListenFilter(resource_subscriptions=["a"] * MAX_TOPICS, task_ids=["t"]),
        ListenFilter(resource_subscriptions=["a" * MAX_TOPIC_CHARACTERS], task_ids=["t"]),
    ],
)
def test_a_filter_is_measured_before_any_of_it_is_looked_up(asked: ListenFilter) -> None:
    with pytest.raises(TooManySubscriptions):
        check_bounds(asked)


def test_a_filter_within_its_bounds_is_taken() -> None:
    check_bounds(ListenFilter())
    check_bounds(ListenFilter(resource_subscriptions=["a"] * MAX_TOPICS))


async def test_resources_of_which_none_can_be_read_are_counted_all_the_same() -> None:
    uris = [f"test://{number}" for number in range(MAX_TOPICS + 1)]
    answer = await house().pair.modern(
        "subscriptions/listen", {"notifications": {"resourceSubscriptions": uris}}
    )
    assert answer.status == 429


def test_a_stream_keeps_of_what_its_client_declared_only_what_it_may_need() -> None:
    declared = {
        "extensions": {"io.modelcontextprotocol/tasks": {"much": []}, "com.example/other": {}},
        "roots": {"much": [[]]},
    }
    params = {
        "notifications": {},
        "_meta": {"io.modelcontextprotocol/clientCapabilities": declared},
    }
    for method, kept in (
        ("subscriptions/listen", {"extensions": {"io.modelcontextprotocol/tasks": {}}}),
        ("tools/list", declared),
    ):
        body, headers = modern(method, params)
        message = decode(body)
        assert isinstance(message, Request)
        verdict = classify(message, {name.encode(): value.encode() for name, value in headers.items()})
        assert isinstance(verdict, Route)
        assert verdict.params.meta.client_capabilities == kept


@pytest.mark.parametrize("declared", [None, 5, {"io.modelcontextprotocol/tasks": {}}])
def test_a_stream_of_a_client_that_declares_nonsense_can_be_opened(declared: Any) -> None:
    params = {
        "notifications": {},
        "_meta": {"io.modelcontextprotocol/clientCapabilities": {"extensions": declared}},
    }
    body, headers = modern("subscriptions/listen", params)
    message = decode(body)
    assert isinstance(message, Request)
    verdict = classify(message, {name.encode(): value.encode() for name, value in headers.items()})
    assert isinstance(verdict, Route)
    assert ("extensions" in verdict.params.meta.client_capabilities) == isinstance(declared, dict)  # pyright: ignore[reportOperatorIssue]


class _Large(dict[str, Any]):
    """A dictionary that can be watched."""


async def test_a_session_does_not_keep_what_its_client_declared() -> None:
    declared = _Large(elicitation={}, much=[[]])
    watched = weakref.ref(declared)
    params = InitializeParams(capabilities=declared, client_info=None)
    sessions = Sessions()
    session = sessions.create(ANONYMOUS, "192.0.2.1", REVISIONS["2025-11-25"], params)
    del declared, params
    gc.collect()
    assert watched() is None
    assert session.can == {"elicitation"}


async def test_what_a_session_watches_is_bounded_in_its_length_too() -> None:
    session = _session()
    address = "test://" + "x" * (MAX_WATCHED_CHARACTERS // 2)
    session.watch(address)
    with pytest.raises(TooManySubscriptions):
        session.watch(address + "y")
    session.watch(address)  # which it does already
    assert session.watched == {address}


async def test_a_name_that_is_sent_back_with_every_message_has_a_bound() -> None:
    made = house()
    for request_id, status in (("x" * MAX_NAME, 200), ("x" * (MAX_NAME + 1), 400)):
        body, headers = modern("tools/list", request_id=request_id)
        answer = await made.pair.request(body=body, headers=headers)
        assert answer.status == status
        assert ("id" in answer.json) == (status == 200)
    params = {"name": "echo", "arguments": {}, "_meta": {"progressToken": "x" * (MAX_NAME + 1)}}
    answer = await made.pair.modern("tools/call", params)
    assert answer.json["error"]["code"] == -32602


@pytest.mark.requirement("headers.base64")
async def test_a_second_spelling_of_a_base64_header_is_refused() -> None:
    made = house()
    for spelt, status in (("ZWNobw==", 200), ("ZWNobx==", 400), ("ZWNobw", 400)):
        answer = await made.pair.modern(
            "tools/call", {"name": "echo", "arguments": {"text": "a"}}, mcp_name=f"=?base64?{spelt}?="
        )
        assert answer.status == status


async def test_what_runs_is_bounded_for_a_caller_not_only_for_each_of_its_sessions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("server.sessions.MAX_RUNNING_OF_CALLER", 3)
    sessions, params = Sessions(), InitializeParams(capabilities={}, client_info=None)

    def begin(address: str) -> Session:
        return sessions.create(ANONYMOUS, address, REVISIONS["2025-11-25"], params)

    one, other, stranger = begin("192.0.2.1"), begin("192.0.2.1"), begin("192.0.2.2")
    with one.running(1), one.running(2), other.running(1):
        for own in (one, other):
            with pytest.raises(TooManySessions), own.running(9):
                raise AssertionError
        with stranger.running(1):
            pass
        sessions.end(one)  # what ran in it was cancelled
        with other.running(2):
            pass


def _session() -> Session:
    params = InitializeParams(capabilities={}, client_info=None)
    return Sessions().create(ANONYMOUS, "192.0.2.1", REVISIONS["2025-11-25"], params)
