"""When a call becomes a task, and what a task looks like on each of its faces (server/mcp/task_faces.py)."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from server.mcp import task_faces
from server.mcp.call_questions import Question
from server.mcp.errors import AgentError, BadCursor, McpError, MethodNotFound, MissingCapability
from server.mcp.messages import TextContent, Tool, ToolExecution
from server.mcp.result_encoding import RawResult, ToolResult
from server.mcp.task_faces import (
    AtOnce,
    ByHand,
    Face,
    Manner,
    Snapshot,
    Sync,
    TaskCompleted,
    TaskFailed,
    TaskRefusal,
    created,
    manner,
)

FORBIDDEN = ToolExecution()
OPTIONAL = ToolExecution(task_support="optional")
REQUIRED = ToolExecution(task_support="required")
BY_HAND = ToolExecution(task_support="optional", by_hand=True)
BY_HAND_REQUIRED = ToolExecution(task_support="required", by_hand=True)

E, C, W = Face.EXTENSION, Face.CORE, Face.WASMAGENT
LATER = ByHand(25.0)


# fmt: off
MANNERS: list[tuple[Face | None, Any, bool, bool, Manner | type[McpError]]] = [
    (None, REQUIRED,         True,  True,  Sync()),
    (E,    UNSET,            True,  True,  Sync()),
    (E,    FORBIDDEN,        True,  True,  Sync()),
    (E,    OPTIONAL,         True,  False, AtOnce(or_waits=True)),
    (E,    OPTIONAL,         False, True,  Sync()),
    (E,    REQUIRED,         True,  False, AtOnce()),
    (E,    REQUIRED,         False, True,  MissingCapability),
    (E,    BY_HAND,          True,  False, ByHand()),
    (E,    BY_HAND,          False, False, Sync()),
    (E,    BY_HAND_REQUIRED, True,  False, ByHand()),
    (E,    BY_HAND_REQUIRED, False, False, MissingCapability),
    (C,    UNSET,            False, False, Sync()),
    (C,    UNSET,            False, True,  MethodNotFound),
    (C,    FORBIDDEN,        True,  True,  MethodNotFound),
    (C,    FORBIDDEN,        True,  False, Sync()),
    (C,    OPTIONAL,         False, True,  AtOnce()),
    (C,    OPTIONAL,         True,  False, Sync()),
    (C,    REQUIRED,         False, True,  AtOnce()),
    (C,    REQUIRED,         True,  False, MethodNotFound),
    (C,    BY_HAND,          False, True,  AtOnce()),
    (C,    BY_HAND,          False, False, Sync()),
    (W,    UNSET,            False, False, LATER),
    (W,    FORBIDDEN,        False, True,  LATER),
    (W,    OPTIONAL,         False, False, LATER),
    (W,    BY_HAND,          False, False, LATER),
    (W,    REQUIRED,         False, False, AtOnce()),
]
# fmt: on


@pytest.mark.parametrize(("face", "execution", "declared", "asked", "expected"), MANNERS)
def test_how_a_call_is_carried_out(
    face: Face | None, execution: Any, declared: bool, asked: bool, expected: Manner | type[McpError]
) -> None:
    decided = manner(face, execution, declared=declared, asked=asked)
    if isinstance(expected, type):
        assert isinstance(decided, TaskRefusal)
        assert type(decided.error) is expected
    else:
        assert decided == expected


def test_a_missing_extension_is_named_as_the_client_would_declare_it() -> None:
    decided = manner(E, REQUIRED)
    assert isinstance(decided, TaskRefusal)
    assert json.loads(msgspec.json.encode(decided.error.data)) == {
        "requiredCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    }


def test_a_server_that_waits_for_nothing_makes_every_call_a_task() -> None:
    assert manner(W, FORBIDDEN, sync_timeout_seconds=0) == AtOnce(or_waits=True)
    assert manner(W, REQUIRED, sync_timeout_seconds=0) == AtOnce()
    assert manner(W, FORBIDDEN, sync_timeout_seconds=3) == ByHand(3)


def test_the_third_face_lists_what_takes_long_in_its_own_word() -> None:
    def listed(execution: Any, **more: Any) -> Tool:
        return task_faces.wasmagent_tool(
            Tool(name="t", input_schema={"type": "object"}, execution=execution, **more)
        )

    assert (listed(UNSET).execution, listed(UNSET).meta) == (UNSET, UNSET)
    assert (listed(OPTIONAL).execution, listed(OPTIONAL).meta) == (UNSET, UNSET)
    assert listed(REQUIRED, meta={"a": 1}).meta == {"a": 1, "longRunning": True}
    assert listed(REQUIRED).execution is UNSET


def test_what_the_client_could_not_be_asked_is_no_error_in_the_handshake_era() -> None:
    ended = snapshot(
        state="failed", ending=TaskFailed(-32021, "lacks elicitation", {"requiredCapabilities": {}})
    )
    told = task_faces.core_result(ended)
    assert (told.is_error, told.content) == (True, (TextContent(text="lacks elicitation"),))
    assert told.meta == task_faces.related(ended.id)


FORM = Question(
    method="elicitation/create",
    params={
        "message": "sure?",
        "requestedSchema": {"type": "object", "properties": {"yes": {"type": "boolean"}}},
    },
)


def snapshot(**changed: Any) -> Snapshot:
    values: dict[str, Any] = {
        "id": "task_1",
        "server": "main",
        "tool": "slow",
        "state": "working",
        "message": None,
        "created_at": 1_800_000_000_007,
        "updated_at": 1_800_000_001_000,
        "ttl_ms": 60_000,
        "poll_ms": 1000,
        "version": 3,
    }
    return Snapshot(**values | changed)


def result(said: str = "hi", **more: Any) -> ToolResult:
    return ToolResult(content=[TextContent(text=said)], **more)


def shown(fields: Any) -> Any:
    return json.loads(msgspec.json.encode(fields))


ENDED = snapshot(state="completed", ending=TaskCompleted(result(structured={"n": 1})))
TOOL_FAILED = snapshot(state="completed", tool_failed=True, ending=TaskCompleted(result("no", is_error=True)))
BROKEN = snapshot(state="failed", message="bad", ending=TaskFailed(-32602, "bad", {"why": "x"}))
ASKING = snapshot(state="input_required", questions={"q": FORM})
CANCELLED = snapshot(state="cancelled", message="cancelled by host")

FLAT = {
    "taskId": "task_1",
    "status": "working",
    "createdAt": "2027-01-15T08:00:00.007Z",
    "lastUpdatedAt": "2027-01-15T08:00:01.000Z",
    "ttlMs": 60_000,
    "pollIntervalMs": 1000,
}
NESTED = {
    "taskId": "task_1",
    "status": "working",
    "createdAt": "2027-01-15T08:00:00.007Z",
    "lastUpdatedAt": "2027-01-15T08:00:01.000Z",
    "ttl": 60_000,
    "pollInterval": 1000,
}


# ── the extension ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("tasks.created")
@pytest.mark.parametrize("task", [snapshot(), ASKING, ENDED, BROKEN])
def test_an_extension_task_is_made_flat_and_never_with_what_it_asks_or_answers(task: Snapshot) -> None:
    made = created(E, task)
    assert isinstance(made, RawResult)
    assert made.result_type == "task"
    said = {} if task.message is None else {"statusMessage": task.message}
    assert shown(made.fields) == FLAT | {"status": task.state} | said


@pytest.mark.requirement("tasks.get")
def test_an_extension_task_tells_by_its_state_what_it_asks_or_how_it_ended() -> None:
    assert shown(task_faces.extension(snapshot(message="half"))) == FLAT | {"statusMessage": "half"}
    asks = {"q": {"method": "elicitation/create", "params": FORM.params}}
    assert shown(task_faces.extension(ASKING)) == FLAT | {"status": "input_required", "inputRequests": asks}
    answer = {"content": [{"type": "text", "text": "hi"}], "structuredContent": {"n": 1}, "isError": False}
    assert shown(task_faces.extension(ENDED)) == FLAT | {
        "status": "completed",
        "result": answer | {"resultType": "complete"},
    }
    error = {"code": -32602, "message": "bad", "data": {"why": "x"}}
    assert shown(task_faces.extension(BROKEN)) == FLAT | {
        "status": "failed",
        "statusMessage": "bad",
        "error": error,
    }


def test_a_result_that_says_the_tool_failed_is_completed_there_and_failed_on_the_other_faces() -> None:
    there = task_faces.extension(TOOL_FAILED)
    assert (there["status"], there["result"]["isError"]) == ("completed", True)
    assert task_faces.core(TOOL_FAILED)["status"] == "failed"
    assert task_faces.wasmagent(TOOL_FAILED)["state"] == "failed"
    assert task_faces.wasmagent(TOOL_FAILED)["error"] == "no"


# ── 2025-11-25 ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_core_task_is_made_nested_and_shown_flat() -> None:
    made = created(C, snapshot(immediate="wait a little"))
    assert isinstance(made, RawResult)
    meta = {"io.modelcontextprotocol/model-immediate-response": "wait a little"}
    assert shown(made.fields) == {"task": NESTED, "_meta": meta}
    assert "_meta" not in shown(created(C, snapshot()))["fields"]
    assert shown(task_faces.core(ENDED)) == NESTED | {"status": "completed"}


def test_a_core_result_is_the_calls_own_with_the_task_it_belongs_to() -> None:
    found = task_faces.core_result(snapshot(state="completed", ending=TaskCompleted(result(meta={"own": 1}))))
    assert found.meta == {"own": 1, "io.modelcontextprotocol/related-task": {"taskId": "task_1"}}
    assert found.content == result().content


@pytest.mark.requirement("core-tasks.result")
def test_a_core_result_of_a_failure_is_the_calls_own_error_to_the_number() -> None:
    with pytest.raises(AgentError, match="bad") as caught:
        task_faces.core_result(BROKEN)
    assert (caught.value.code, caught.value.data) == (-32602, {"why": "x"})
    with pytest.raises(AgentError, match="cancelled by host"):
        task_faces.core_result(CANCELLED)


def test_notifications_carry_the_whole_task_where_the_face_has_any() -> None:
    assert task_faces.notification(E, ENDED) == ("notifications/tasks", task_faces.extension(ENDED))
    assert task_faces.notification(C, ENDED) == ("notifications/tasks/status", task_faces.core(ENDED))
    assert task_faces.notification(W, ENDED) is None


# ── the dialect ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_call_that_went_on_by_itself_is_answered_with_an_ordinary_result() -> None:
    made = created(W, snapshot())
    assert isinstance(made, ToolResult)
    assert (made.is_error, made.meta) == (False, {"taskId": "task_1"})
    assert isinstance(made.content[0], TextContent)
    assert "continue via tasks/get" in made.content[0].text
    assert "task_1" in made.content[0].text


def test_a_wasmagent_record_has_its_own_words_for_everything() -> None:
    record = {"id": "task_1", "toolName": "slow", "events": [], "version": 3}
    assert shown(task_faces.wasmagent(snapshot())) == record | {"state": "running"}
    assert shown(task_faces.wasmagent(ENDED)) == record | {"state": "complete", "result": {"n": 1}}
    plain = snapshot(state="completed", ending=TaskCompleted(result()))
    assert shown(task_faces.wasmagent(plain)) == record | {"state": "complete", "result": "hi"}
    assert shown(task_faces.wasmagent(BROKEN)) == record | {"state": "failed", "error": "bad"}
    assert shown(task_faces.wasmagent(CANCELLED)) == record | {
        "state": "failed",
        "error": "cancelled by host",
    }
    elicitation = {"promptId": "q", "prompt": "sure?", "requestedSchema": FORM.params["requestedSchema"]}
    assert shown(task_faces.wasmagent(ASKING)) == record | {
        "state": "awaiting-input",
        "elicitation": elicitation,
    }


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("true", {"action": "accept", "content": {"yes": True}}),
        ("maybe", {"action": "accept", "content": {"yes": "maybe"}}),
        ({"yes": False}, {"action": "accept", "content": {"yes": False}}),
        ({"action": "decline"}, {"action": "decline"}),
    ],
)
def test_one_word_answers_a_form_of_one_field(response: Any, answer: Any) -> None:
    assert task_faces.wasmagent_answer(FORM, response) == answer


def test_a_word_for_a_text_field_stays_a_word() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "string"}}}
    question = Question(method="elicitation/create", params={"message": "?", "requestedSchema": schema})
    assert task_faces.wasmagent_answer(question, "12") == {"action": "accept", "content": {"n": "12"}}


# ── pages ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(st.integers(0, 10**15), st.text())
def test_a_cursor_leads_back_to_where_a_page_ended(created_at: int, task_id: str) -> None:
    place = task_faces.place_of(snapshot(id=task_id, created_at=created_at))
    assert task_faces.read_cursor(task_faces.write_cursor(place)) == place


@given(st.text())
def test_any_other_text_is_no_cursor(text: str) -> None:
    with pytest.raises(BadCursor):
        task_faces.read_cursor(text)
