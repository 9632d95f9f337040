"""Two servers on one database, and clients whose requests go to either: what came to one of them reaches what waits at the other."""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx2
import pytest
from mcp_calls import MODERN
from nodes import Nodes, ServedNode
from programs import WAIT_SECONDS, until
from test_two_nodes import logged_in

pytestmark = pytest.mark.slow

AGENT = """
import asyncio
from pathlib import Path
from ostiary import Context, add_tool, resource, tool, updated

SAID = Path(__file__).parent / "notes" / "said"
FORM = {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}


async def ask(ctx: Context) -> str:
    answer = await ctx.elicit("Which colour?", FORM, key="colour")
    return answer.content["colour"] if answer.content else answer.action


@tool
async def asks(ctx: Context) -> str:
    return await ask(ctx)


@tool(task="optional")
async def curious(ctx: Context) -> str:
    return await ask(ctx)


@tool(task="optional")
async def lasts(ctx: Context) -> str:
    await ctx.progress(1, 2, "begun")
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        SAID.write_text("cancelled")
        raise
    return "never"


@resource("house://door")
def door() -> str:
    return "open"


@tool
def toggle() -> str:
    updated("house://door")
    return "toggled"


@tool
def grow() -> str:
    def grown() -> str:
        return "grown"

    add_tool(grown)
    return "grew"
"""
SETTINGS = """
[[server]]
name = "main"
anonymous_tools = ["chat_with_agent"]

[[server.agent]]
kind = "python"
file = "agent.py"
[[server.agent]]
kind = "openai"
base_url = "{model}"
model = "small-1"
"""
RED = {"action": "accept", "content": {"colour": "red"}}
CAN = {"elicitation": {}}


@dataclass
class Stream:
    """The messages of one answer, as they come."""

    lines: Iterator[str]
    last_id: str = ""

    def next(self) -> Any:
        """Signs of life come however long nothing else does, so it is looked at the clock with each."""
        given_up = time.monotonic() + WAIT_SECONDS
        for line in self.lines:
            assert time.monotonic() < given_up, "nothing came"
            if line.startswith("id: "):
                self.last_id = line[4:]
            if line.startswith("data: ") and len(line) > 6:
                return json.loads(line[6:])
        raise AssertionError("the stream has ended")

    def until(self, **wanted: Any) -> Any:
        """The next message with these members."""
        while any((found := self.next()).get(name) != value for name, value in wanted.items()):
            pass
        return found


@dataclass
class Roamer:
    """One client; every request says to which node it goes."""

    token: str  # none: it shows nothing
    web: httpx2.Client = field(default_factory=lambda: httpx2.Client(trust_env=False, timeout=WAIT_SECONDS))
    session: dict[str, str] = field(default_factory=dict[str, str])
    number: int = 0

    def headers(self) -> dict[str, str]:
        return {
            **({"Authorization": f"Bearer {self.token}"} if self.token else {}),
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
            **self.session,
        }

    def post(self, node: ServedNode, message: Mapping[str, Any]) -> httpx2.Response:
        body = {"jsonrpc": "2.0", **message}
        return self.web.post(f"{node.url}/mcp", json=body, headers=self.headers())

    def begin(self, node: ServedNode) -> None:
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": CAN,
            "clientInfo": {"name": "r", "version": "1"},
        }
        answer = self.post(node, {"id": 0, "method": "initialize", "params": params})
        assert answer.status_code == 200, answer.text
        self.session = {
            "Mcp-Session-Id": answer.headers["mcp-session-id"],
            "MCP-Protocol-Version": "2025-11-25",
        }

    def note(self, node: ServedNode, method: str, **params: Any) -> None:
        assert self.post(node, {"method": method, "params": params}).status_code == 202

    def ask(self, node: ServedNode, method: str, **params: Any) -> Any:
        """Its whole answer."""
        self.number += 1
        answer = self.post(node, {"id": self.number, "method": method, "params": params})
        assert answer.status_code == 200, answer.text
        if answer.headers["content-type"].startswith("text/event-stream"):
            return Stream(iter(answer.text.splitlines())).until(id=self.number)
        return answer.json()

    @contextmanager
    def opens(self, node: ServedNode, method: str, **params: Any) -> Generator[Stream]:
        self.number += 1
        body = {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}
        url, headers = f"{node.url}/mcp", self.headers()
        with self.web.stream("POST", url, json=body, headers=headers) as answer:
            yield Stream(answer.iter_lines())

    @contextmanager
    def listens(self, node: ServedNode, last_id: str = "") -> Generator[Stream]:
        headers = self.headers() | ({"Last-Event-ID": last_id} if last_id else {})
        with self.web.stream("GET", f"{node.url}/mcp", headers=headers) as answer:
            lines = answer.iter_lines()
            assert answer.status_code == 200
            assert next(lines).startswith(":")
            yield Stream(lines)

    def reply(self, node: ServedNode, question: Any, result: Any) -> None:
        assert self.post(node, {"id": question["id"], "result": result}).status_code == 202

    def modern(
        self, node: ServedNode, method: str, named: str = "", **params: Any
    ) -> tuple[dict[str, str], dict[str, Any]]:
        """A request of the stateless era: its headers and body."""
        headers = self.headers() | {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
        if named:
            headers["Mcp-Name"] = named
        meta = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": {
                **CAN,
                "extensions": {"io.modelcontextprotocol/tasks": {}},
            },
        }
        del node
        return headers, {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}

    def tells(self, node: ServedNode, method: str, named: str = "", **params: Any) -> Any:
        headers, body = self.modern(node, method, named, **params)
        answer = self.web.post(f"{node.url}/mcp", json=body, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json()["result"]


class Model(BaseHTTPRequestHandler):
    """It remembers nothing, and repeats what it is told of the people's part of the conversation."""

    def do_POST(self) -> None:
        told = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["messages"]
        heard = ", ".join(each["content"] for each in told if each["role"] == "user")
        choice = {"index": 0, "message": {"role": "assistant", "content": heard}, "finish_reason": "stop"}
        body = json.dumps({"choices": [choice]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nobody reads it."""


@contextmanager
def serving_model() -> Generator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Model) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def two(
    tmp_path_factory: pytest.TempPathFactory, postgres_server: Any
) -> Iterator[tuple[ServedNode, ServedNode]]:
    with postgres_server.database() as database, serving_model() as model:
        settings = SETTINGS.format(model=model)
        nodes = Nodes(
            home=tmp_path_factory.mktemp("n"), database=database, settings=settings, files={"agent.py": AGENT}
        )
        with nodes.serving("a") as a, nodes.serving("b") as b:
            # Each says so of the other as soon as it has heard of it.
            a.server.await_words(rf'"boot":"{b.boot}"')
            yield a, b


@pytest.fixture
def client(two: tuple[ServedNode, ServedNode]) -> Iterator[Roamer]:
    one = Roamer(logged_in(two[0])["access_token"])
    yield one
    one.web.close()


Two = tuple[ServedNode, ServedNode]


def said(node: ServedNode) -> Path:
    return node.program.home / "notes" / "said"


def test_a_question_of_a_call_is_answered_through_the_other_node(two: Two, client: Roamer) -> None:
    a, b = two
    client.begin(a)
    client.note(b, "notifications/initialized")
    for one, other in ((a, b), (b, a)):
        with client.opens(one, "tools/call", name="asks", arguments={}) as stream:
            question = stream.until(method="elicitation/create")
            client.reply(other, question, RED)
            assert stream.until(id=client.number)["result"]["content"][0]["text"] == "red"


def test_a_call_is_cancelled_through_the_other_node(two: Two, client: Roamer) -> None:
    a, b = two
    client.begin(a)
    client.note(a, "notifications/initialized")
    with client.opens(a, "tools/call", name="lasts", arguments={}, _meta={"progressToken": "p"}) as stream:
        stream.until(method="notifications/progress")
        client.note(b, "notifications/cancelled", requestId=client.number)
        until("it to be cancelled", lambda: said(a).exists() or None)
    said(a).unlink()


def test_a_session_ended_at_one_is_ended_at_the_other_and_what_runs_in_it(two: Two, client: Roamer) -> None:
    a, b = two
    client.begin(a)
    client.note(a, "notifications/initialized")
    with client.opens(a, "tools/call", name="lasts", arguments={}, _meta={"progressToken": "p"}) as stream:
        stream.until(method="notifications/progress")
        assert client.web.delete(f"{b.url}/mcp", headers=client.headers()).status_code == 204
        until("it to be cancelled", lambda: said(a).exists() or None)
    said(a).unlink()
    for node in two:
        assert client.post(node, {"id": 1, "method": "tools/list"}).status_code == 404


def test_a_task_is_answered_and_another_cancelled_through_the_other_node(two: Two, client: Roamer) -> None:
    a, b = two
    task = client.tells(a, "tools/call", "curious", name="curious", arguments={})["taskId"]

    def asked() -> Any:
        return client.tells(b, "tasks/get", task, taskId=task).get("inputRequests")

    (name,) = until("the question", asked)
    client.tells(b, "tasks/update", task, taskId=task, inputResponses={name: RED})

    def ended() -> Any:
        found = client.tells(b, "tasks/get", task, taskId=task)
        return found if found["status"] == "completed" else None

    assert "red" in str(until("its end", ended))
    task = client.tells(a, "tools/call", "lasts", name="lasts", arguments={})["taskId"]
    until("its begin", lambda: client.tells(a, "tasks/get", task, taskId=task).get("statusMessage"))
    client.tells(b, "tasks/cancel", task, taskId=task)
    until("it to be cancelled", lambda: said(a).exists() or None)
    said(a).unlink()


def test_who_waits_for_a_task_at_one_node_is_asked_there_and_answers_at_the_other(
    two: Two, client: Roamer
) -> None:
    a, b = two
    client.begin(a)
    client.note(a, "notifications/initialized")
    made = client.ask(a, "tools/call", name="curious", arguments={}, task={"ttl": 600_000})
    task = made["result"]["task"]["taskId"]
    with client.opens(b, "tasks/result", taskId=task) as stream:
        waits = client.number
        question = stream.until(method="elicitation/create")
        client.reply(a, question, RED)
        assert "red" in str(stream.until(id=waits)["result"])


def test_changes_at_one_node_are_heard_at_the_other_in_both_eras(two: Two, client: Roamer) -> None:
    a, b = two
    client.begin(a)
    client.note(a, "notifications/initialized")
    assert "result" in client.ask(a, "resources/subscribe", uri="house://door")
    headers, body = client.modern(
        b,
        "subscriptions/listen",
        notifications={"toolsListChanged": True, "resourceSubscriptions": ["house://door"]},
    )
    headers = {name: value for name, value in headers.items() if name != "Mcp-Session-Id"}
    with (
        client.listens(b) as stream,
        client.web.stream("POST", f"{b.url}/mcp", json=body, headers=headers) as answer,
    ):
        feed = Stream(answer.iter_lines())
        feed.until(method="notifications/subscriptions/acknowledged")
        for node in two:
            client.ask(node, "tools/call", name="toggle", arguments={})
            for heard in (stream, feed):
                told = heard.until(method="notifications/resources/updated")
                assert told["params"]["uri"] == "house://door"
        client.ask(a, "tools/call", name="grow", arguments={})
        for heard in (stream, feed):
            heard.until(method="notifications/tools/list_changed")


def test_the_rest_of_a_stream_is_had_at_the_other_node(two: Two, client: Roamer) -> None:
    a, b = two
    client.begin(a)
    client.note(a, "notifications/initialized")
    with client.opens(a, "tools/call", name="asks", arguments={}) as stream:
        called = client.number
        question = stream.until(method="elicitation/create")
        last_id = stream.last_id
    with client.listens(b, last_id) as rest:
        client.reply(b, question, RED)
        assert "red" in str(rest.until(id=called)["result"])


def test_a_conversation_with_a_model_goes_on_at_either_node(two: Two, client: Roamer) -> None:
    a, b = two
    arguments, found = dict[str, Any](), dict[str, Any]()
    for number, (node, message) in enumerate(((a, "one"), (b, "two"), (b, "three"), (a, "four"))):
        arguments["message"] = message
        call = {"name": "chat_with_agent", "arguments": arguments}
        found = client.tells(node, "tools/call", "chat_with_agent", **call)["structuredContent"]
        assert found["remembered_turns"] == number
        arguments["session_id"] = found["session_id"]
    assert found["reply"] == "one, two, three, four"


def test_strangers_are_in_no_conversation_of_each_others_whatever_they_call_it(two: Two) -> None:
    one, other = Roamer(""), Roamer("")
    for stranger, node in zip((one, other), two, strict=True):
        said = {"message": "my PIN is 4711"}
        call = {"name": "chat_with_agent", "arguments": {**said, "session_id": "1"}}
        refused = stranger.tells(node, "tools/call", "chat_with_agent", **call)
        assert refused["isError"] and "not one returned" in refused["content"][0]["text"]
        call["arguments"] = said
        begun = stranger.tells(node, "tools/call", "chat_with_agent", **call)["structuredContent"]
        assert begun["remembered_turns"] == 0
        stranger.web.close()
