"""Async generators that say what they do in events: what a client hears, and what the generator gets back."""

from __future__ import annotations

from typing import Any

import pytest
from shim_child import Serve

AGENT = """
from __future__ import annotations
from collections.abc import AsyncGenerator
from typing import Any
from ostiary import *

@tool
async def paint(what: str) -> AsyncGenerator[Any, Any]:
    yield {"event": "progress", "total": 2, "message": "mixing"}
    yield {"event": "message", "data": {"n": 1}, "level": "warning"}
    yield {"event": "unheard_of"}
    answer = yield {"event": "ask", "id": "colour", "prompt": "Which?", "schema": {"type": "object", "properties": {"c": {"type": "string"}}}}
    yield {"event": "checkpoint", "data": answer.content}
    task = yield {"event": "become_task"}
    yield {"event": "progress"}
    yield {"event": "final", "result": {"what": what, "colour": answer.content["c"], "task": task}}
    raise AssertionError("it is over")

@tool
async def theirs():
    yield {"channel": "text", "event": "run_start", "data": {"task": "x"}}
    yield {"channel": "thinking", "event": "thinking_delta", "data": {"delta": "hm", "step": 1}}
    answer = yield {"channel": "status", "event": "await_human_input", "data": {"promptId": "p1", "prompt": "Where?", "step": 1}}
    yield {"channel": "text", "event": "final_answer", "data": {"answer": "to " + answer.content}}

@tool
async def fails():
    yield {"event": "error", "message": "no fuel"}

@tool
async def mixed():
    yield "a "
    yield {"event": "progress", "progress": 5}
    yield "b"

@tool
async def nothing():
    yield {"event": "final"}
"""


def without_id(event: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in event.items() if key != "id"}


def test_events_are_told_and_what_comes_of_them_comes_back(serve: Serve) -> None:
    child = serve(AGENT)
    number = child.start("paint", {"what": "door"}, progress=True, level="info", can=["elicitation"])
    assert without_id(child.hear()) == {"event": "progress", "progress": 1.0, "total": 2, "message": "mixing"}
    assert without_id(child.hear()) == {"event": "message", "level": "warning", "data": {"n": 1}}
    asked = child.hear()
    assert asked["questions"]["colour"]["params"]["message"] == "Which?"
    answers = {"colour": {"action": "accept", "content": {"c": "blue"}}}
    child.tell({"do": "answer", "id": number, "ask": asked["ask"], "answers": answers})
    kept = child.hear()
    assert (kept["event"], kept["data"]) == ("checkpoint", {"c": "blue"})
    child.tell({"do": "done", "id": number, "ask": kept["ask"]})
    becomes = child.hear()
    assert becomes["event"] == "become_task"
    child.tell({"do": "became", "id": number, "ask": becomes["ask"], "task": True})
    assert child.hear()["progress"] == 2.0
    final = child.hear()
    assert final["result"]["structuredContent"] == {"what": "door", "colour": "blue", "task": True}


def test_events_of_wasmagents_are_understood(serve: Serve) -> None:
    child = serve(AGENT)
    number = child.start("theirs", progress=True, can=["elicitation"])
    assert child.hear()["message"] == "hm"
    asked = child.hear()
    ((key, question),) = asked["questions"].items()
    (field,) = question["params"]["requestedSchema"]["properties"]
    assert (key, question["params"]["message"]) == ("p1", "Where?")
    answers = {"p1": {"action": "accept", "content": {field: "Rome"}}}
    child.tell({"do": "answer", "id": number, "ask": asked["ask"], "answers": answers})
    assert child.hear()["result"]["content"] == [{"type": "text", "text": "to Rome"}]


@pytest.mark.parametrize(
    ("tool", "result"),
    [
        ("fails", {"content": [{"type": "text", "text": "no fuel"}], "isError": True}),
        ("mixed", {"content": [{"type": "text", "text": "a b"}]}),
        ("nothing", {"content": []}),
    ],
)
def test_a_call_ends_with_its_final_word_or_with_what_it_yielded(
    serve: Serve, tool: str, result: Any
) -> None:
    child = serve(AGENT)
    child.start(tool)
    assert child.hear()["result"] == result
