"""The page for those who come from wasmagent: its agent and its settings, and a client of that dialect with a question in the middle."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pages import DocumentPage
from programs import SOURCE, House, Program, until
from task_clients import CORE, MODERN, Wire, text_of

from tests.free_ports import free_port

PAGE = DocumentPage("from/wasmagent.md")

pytestmark = pytest.mark.slow


def written(home: Path) -> Program:
    (home / "agent.py").write_text(PAGE.of("python")[0], "utf-8")
    settings = PAGE.of("toml")[0].replace('"python3"', f'"{sys.executable}"')
    (home / "ostiary.toml").write_text(settings, "utf-8")
    return Program(command=SOURCE, home=home)


@pytest.fixture(scope="module")
def house(shared_home: Path) -> Iterator[House]:
    program = written(shared_home)
    with program.serving() as server:
        program.log_in(server)
        yield House(program=program, server=server)


def client(program: Program, url: str, version: str = CORE, **capabilities: Any) -> Wire:
    return Wire(url=url, token=program.tokens()["access_token"], version=version, capabilities=capabilities)


def state_of(wire: Wire, task_id: str) -> str:
    return wire.ask("tasks/get", id=task_id).result["state"]


def awaits(wire: Wire, task_id: str) -> None:
    until("the question", lambda: state_of(wire, task_id) == "awaiting-input" or None)


def test_a_question_in_the_middle_is_answered_as_the_page_shows_and_outlives_the_server(home: Path) -> None:
    program, port = written(home), str(free_port())
    with program.serving("--port", port) as server:
        program.log_in(server)
        wire = client(program, server.endpoint)
        hello: dict[str, Any] = {
            "protocolVersion": CORE,
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        }
        welcome = wire.ask("initialize", **hello).result
        assert welcome["protocolVersion"] == CORE
        assert welcome["capabilities"]["tasks"].keys() == {"create", "cancel", "respond", "list"}
        tools = {tool["name"]: tool for tool in wire.ask("tools/list").result["tools"]}
        assert tools["deep_research"]["_meta"]["longRunning"] is True
        assert "_meta" not in tools["run_agent"]
        assert tools["run_agent"]["inputSchema"]["required"] == ["task"]

        called = wire.ask("tools/call", name="run_agent", arguments={"task": "1.4"}).result
        assert called["isError"] is False and "continue via tasks/get" in text_of(called)
        task_id = called["_meta"]["taskId"]
        awaits(wire, task_id)
        task = wire.ask("tasks/get", id=task_id).result
        assert task["elicitation"]["prompt"] == "Which branch are the notes for?"
        assert task["elicitation"]["promptId"]
        assert ("planning", {"plan": "reading the history"}) in [
            (each["event"], each["data"]) for each in task["events"]
        ]
        wire.close()
        server.end(signal.SIGKILL)
    with program.serving("--port", port) as server:
        wire = client(program, server.endpoint)
        awaits(wire, task_id)
        assert wire.ask("tasks/respond", id=task_id, response="main").result["state"] == "running"
        until("the end", lambda: state_of(wire, task_id) == "complete" or None)
        assert wire.ask("tasks/get", id=task_id).result["result"] == "1.4: main"
        assert wire.ask("tasks/respond", id=task_id, response="main").code == -32012
        assert [each["id"] for each in wire.ask("tasks/list").result["tasks"]] == [task_id]
        wire.close()


def test_what_runs_long_is_a_task_and_cancelled_in_its_words(house: House) -> None:
    wire = client(house.program, house.server.endpoint)
    made = wire.ask("tasks/create", name="deep_research", arguments={"question": "why"}).result
    assert made["state"] == "pending"
    called = wire.ask("tools/call", name="deep_research", arguments={}).result
    for task_id in (made["id"], called["_meta"]["taskId"]):
        assert wire.ask("tasks/cancel", id=task_id).result == {"id": task_id, "state": "failed"}
        assert wire.ask("tasks/get", id=task_id).result["error"] == "cancelled by host"
    assert wire.ask("tasks/get", id="t-none").code == -32010
    assert wire.ask("tasks/create", name="other").code == -32011
    assert wire.ask("tools/call", name="other").code == -32602
    wire.close()


def test_a_client_of_another_family_is_asked_in_its_own_way(house: House) -> None:
    modern = client(house.program, house.server.endpoint, MODERN, elicitation={})
    asked = modern.ask("tools/call", name="run_agent", arguments={"task": "1.4"}).result
    assert asked["resultType"] == "input_required"
    ((key, question),) = asked["inputRequests"].items()
    assert question["params"]["message"] == "Which branch are the notes for?"
    (field,) = question["params"]["requestedSchema"]["properties"]
    answered = modern.ask(
        "tools/call",
        name="run_agent",
        arguments={"task": "1.4"},
        requestState=asked["requestState"],
        inputResponses={key: {"action": "accept", "content": {field: "next"}}},
    ).result
    assert text_of(answered) == "1.4: next"
    modern.close()
