"""Clients of tasks over real HTTP: one face each, and what all of them can be asked to do."""

from __future__ import annotations

import itertools
import json
import shutil
import socket
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
from programs import SOURCE, WAIT_SECONDS, Program, Server, until

from tests.free_ports import free_port

MODERN = "2026-07-28"
CORE = "2025-11-25"
EXTENSION = "io.modelcontextprotocol/tasks"
META = "io.modelcontextprotocol"
ABLE: dict[str, Any] = {"elicitation": {}, "extensions": {EXTENSION: {}}}
DEVICE_CODE = "urn:ietf:params:oauth:grant-type:device_code"
SETTINGS = """
    [[server]]
    name = "main"
    [[server.agent]]
    kind = "python"
    file = "agent.py"
    calls_at_once = 200
    [[server]]
    name = "wasm"
    compat = { tasks = "wasmagent", sync_timeout_seconds = 5 }
    [[server.agent]]
    kind = "python"
    file = "agent.py"
"""

Answer = Callable[[dict[str, Any]], dict[str, Any]]
# Those that the other faces have other words for.
WASMAGENT_STATES = {"running": "working", "awaiting-input": "input_required", "complete": "completed"}
OVER = frozenset({"completed", "failed", "cancelled"})


class Heard(NamedTuple):
    """An answer, and what came before it on the same stream."""

    status: int
    message: dict[str, Any]
    before: list[dict[str, Any]]

    @property
    def result(self) -> dict[str, Any]:
        assert "result" in self.message, self.message
        return self.message["result"]

    @property
    def code(self) -> int:
        assert "error" in self.message, self.message
        return self.message["error"]["code"]

    @property
    def progress(self) -> list[str]:
        return [
            each["params"]["message"] for each in self.before if each["method"] == "notifications/progress"
        ]


class Stood(NamedTuple):
    """How a task stands, in one vocabulary for all faces."""

    state: str
    message: str | None
    questions: frozenset[str] = frozenset()


class Ended(NamedTuple):
    state: str
    text: str
    code: int | None = None  # of the error that it ended in


@dataclass(kw_only=True)
class Wire:
    """Requests to one endpoint. `session` is used once there is one."""

    url: str
    token: str | None = None
    version: str = MODERN
    capabilities: Mapping[str, Any] = field(default_factory=lambda: ABLE)
    session: str | None = None
    pays: bool = False  # comes without a login where others need one, and says so by a payment that is empty

    def __post_init__(self) -> None:
        self._ids = itertools.count(1)
        self._http = httpx2.Client(trust_env=False, timeout=WAIT_SECONDS)

    def close(self) -> None:
        self._http.close()

    def drop(self) -> None:
        """Every connection is gone, whatever was under way."""
        self._http.close()
        self._http = httpx2.Client(trust_env=False, timeout=WAIT_SECONDS)

    def begin_session(self) -> None:
        params = {
            "protocolVersion": self.version,
            "capabilities": dict(self.capabilities),
            "clientInfo": {"name": "tests", "version": "1"},
        }
        with self.open("initialize", params) as response:
            response.read()
            self.session = response.headers["mcp-session-id"]
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def send(self, message: dict[str, Any]) -> None:
        headers = {**self._headers(), "Accept": "application/json, text/event-stream"}
        assert self._http.post(self.url, json=message, headers=headers).status_code == 202

    def _asking(self, method: str, params: dict[str, Any]) -> tuple[dict[str, str], dict[str, Any]]:
        """Headers and message of a request."""
        headers = {**self._headers(), "Accept": "application/json, text/event-stream"}
        if self.version == MODERN:
            headers["Mcp-Method"] = method
            if named := params.get("taskId", params.get("name", params.get("uri"))):
                headers["Mcp-Name"] = named
            meta = {
                f"{META}/protocolVersion": MODERN,
                f"{META}/clientInfo": {"name": "tests", "version": "1"},
                f"{META}/clientCapabilities": dict(self.capabilities),
            }
            params = {**params, "_meta": {**meta, **params.get("_meta", {})}}
        return headers, {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}

    @contextmanager
    def open(self, method: str, params: dict[str, Any]) -> Generator[httpx2.Response]:
        headers, message = self._asking(method, params)
        with self._http.stream("POST", self.url, json=message, headers=headers) as response:
            yield response

    def ask(self, method: str, answer: Answer | None = None, **params: Any) -> Heard:
        """`answer` is asked for what the server wants to know meanwhile."""
        before: list[dict[str, Any]] = []
        with self.open(method, params) as response:
            for message in messages(response):
                if "method" not in message:
                    return Heard(response.status_code, message, before)
                before.append(message)
                if "id" in message:
                    assert answer is not None, message
                    self.send({"jsonrpc": "2.0", "id": message["id"], "result": answer(message)})
        raise AssertionError(f"{method} was not answered, but: {before}")

    def leave(self, method: str, once: Callable[[], object] | None = None, **params: Any) -> None:
        """Ask, and go before there is an answer: when `once` returns, or else after a moment."""
        headers, message = self._asking(method, params)
        request = self._http.build_request("POST", self.url, json=message, headers=headers)
        lines = [f"POST {request.url.raw_path.decode()} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in request.headers.items()]
        with socket.create_connection((request.url.host, request.url.port or 80), WAIT_SECONDS) as left:
            left.sendall("\r\n".join([*lines, "", ""]).encode() + request.read())
            if once is None:
                left.settimeout(0.1)
                with suppress(TimeoutError):
                    left.recv(1)
            else:
                once()
        self.drop()

    def call(self, tool: str, name: str, answer: Answer | None = None, **more: Any) -> Heard:
        return self.ask("tools/call", answer, **{"name": tool, "arguments": {"name": name}, **more})

    def _headers(self) -> dict[str, str]:
        headers = {"MCP-Protocol-Version": self.version}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        if self.session is not None:
            headers["Mcp-Session-Id"] = self.session
        if self.pays:
            headers["PAYMENT-SIGNATURE"] = "e30="
        return headers


def messages(response: httpx2.Response) -> Iterator[dict[str, Any]]:
    if not response.headers["content-type"].startswith("text/event-stream"):
        yield json.loads(response.read())
        return
    for line in response.iter_lines():
        if line.startswith("data:") and line[5:].strip():
            yield json.loads(line[5:])


def text_of(result: Mapping[str, Any]) -> str:
    return "\n".join(block["text"] for block in result["content"])


def accepted(content: Mapping[str, Any]) -> dict[str, Any]:
    return {"action": "accept", "content": dict(content)}


class Extension:
    """`io.modelcontextprotocol/tasks` of 2026-07-28."""

    unknown = -32602

    def __init__(self, wire: Wire) -> None:
        self.wire = wire

    def begin(self, tool: str, name: str) -> str:
        made = self.wire.call(tool, name).result
        assert (made["resultType"], made["status"]) == ("task", "working")
        return made["taskId"]

    def get(self, task_id: str) -> Heard:
        return self.wire.ask("tasks/get", taskId=task_id)

    def cancel(self, task_id: str) -> Heard:
        return self.wire.ask("tasks/cancel", taskId=task_id)

    def look(self, task_id: str) -> Stood:
        task = self.get(task_id).result
        return Stood(task["status"], task.get("statusMessage"), frozenset(task.get("inputRequests", ())))

    def answer(self, task_id: str, answers: Mapping[str, Mapping[str, Any]]) -> None:
        given = {key: accepted(content) for key, content in answers.items()}
        self.wire.ask("tasks/update", taskId=task_id, inputResponses=given).result  # noqa: B018

    def end(self, task_id: str) -> Ended:
        task = until("the task to end", lambda: _over(self.get(task_id).result, "status"))
        if "error" in task:
            return Ended(task["status"], task["error"]["message"], task["error"]["code"])
        return Ended(task["status"], text_of(task["result"]) if "result" in task else "")


class Core:
    """The tasks of 2025-11-25."""

    unknown = -32602

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self._answers: dict[str, Mapping[str, Mapping[str, Any]]] = {}

    def begin(self, tool: str, name: str) -> str:
        made = self.wire.call(tool, name, task={}).result["task"]
        assert made["status"] == "working"
        return made["taskId"]

    def get(self, task_id: str) -> Heard:
        return self.wire.ask("tasks/get", taskId=task_id)

    def cancel(self, task_id: str) -> Heard:
        return self.wire.ask("tasks/cancel", taskId=task_id)

    def look(self, task_id: str) -> Stood:
        task = self.get(task_id).result
        return Stood(task["status"], task.get("statusMessage"))

    def answer(self, task_id: str, answers: Mapping[str, Mapping[str, Any]]) -> None:
        """Kept for `end`: the questions come on the stream of tasks/result."""
        self._answers[task_id] = answers

    def end(self, task_id: str) -> Ended:
        waiting = dict(self._answers.pop(task_id, {}))

        def answer(asked: dict[str, Any]) -> dict[str, Any]:
            assert asked["params"]["_meta"]["io.modelcontextprotocol/related-task"] == {"taskId": task_id}
            (key,) = asked["params"]["requestedSchema"]["properties"]
            return accepted(waiting.pop(key))

        heard = self.wire.ask("tasks/result", answer, taskId=task_id)
        state = self.look(task_id).state
        if "error" in heard.message:
            return Ended(state, heard.message["error"]["message"], heard.code)
        assert heard.result["_meta"]["io.modelcontextprotocol/related-task"] == {"taskId": task_id}
        assert not waiting
        return Ended(state, text_of(heard.result))


class Wasmagent:
    """The dialect of `compat.tasks = "wasmagent"`."""

    unknown = -32010

    def __init__(self, wire: Wire) -> None:
        self.wire = wire

    def begin(self, tool: str, name: str) -> str:
        """By tools/call: what is not over in time goes on as a task. What is too quick for that is made one."""
        if tool in ("quick", "unlucky", "refuses"):
            made = self.wire.ask("tasks/create", name=tool, arguments={"name": name}).result
            assert made["state"] == "pending"
            return made["id"]
        made = self.wire.call(tool, name).result
        assert not made["isError"]
        assert "continue via tasks/get" in text_of(made)
        return made["_meta"]["taskId"]

    def get(self, task_id: str) -> Heard:
        return self.wire.ask("tasks/get", id=task_id)

    def cancel(self, task_id: str) -> Heard:
        return self.wire.ask("tasks/cancel", id=task_id)

    def look(self, task_id: str) -> Stood:
        task = self.get(task_id).result
        told = [each["data"].get("message") for each in task["events"] if each["event"] == "progress"]
        asked = frozenset({task["elicitation"]["promptId"]} if "elicitation" in task else ())
        return Stood(self._state(task), told[-1] if told else None, asked)

    def answer(self, task_id: str, answers: Mapping[str, Mapping[str, Any]]) -> None:
        for _ in answers:
            asked = self.get(task_id).result["elicitation"]["promptId"]
            (word,) = answers[asked].values()
            self.wire.ask("tasks/respond", id=task_id, response=word).result  # noqa: B018

    def end(self, task_id: str) -> Ended:
        def over() -> Ended | None:
            task = self.get(task_id).result
            state = self._state(task)
            if state not in OVER:
                return None
            return Ended(state, task["result"] if "result" in task else task["error"])

        return until("the task to end", over)

    def _state(self, task: Mapping[str, Any]) -> str:
        if task.get("error") == "cancelled by host":
            assert task["state"] == "failed"
            return "cancelled"
        state: str = task["state"]
        return WASMAGENT_STATES.get(state, state)


def _over(task: dict[str, Any], state: str) -> dict[str, Any] | None:
    return task if task[state] in OVER else None


Face = Extension | Core | Wasmagent
FACES = ("extension", "core in a session", "core", "wasmagent in a session", "wasmagent")


@dataclass(kw_only=True)
class House:
    """A home with the agent in it, and who has logged in there. It can be left and come back to."""

    program: Program
    port: int
    tokens: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    wires: list[Wire] = field(default_factory=list[Wire])

    @property
    def notes(self) -> Path:
        return self.program.home / "notes"

    @contextmanager
    def open(self) -> Generator[Server]:
        with self.program.serving("--port", str(self.port)) as server:
            yield server

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def endpoint(self, server: str) -> str:
        return f"{self.url}/mcp" if server == "main" else f"{self.url}/{server}/mcp"

    def token(self, server: str, client: str) -> str:
        """Of a login of its own for each client program, made at first use."""
        if (server, client) not in self.tokens:
            known = {each["id"] for each in self.program.at_machine("clients", "list")}
            if client not in known:
                self.program.at_machine("clients", "add", client, "--id", client)
            asked = self._post(
                "/device_authorization", client_id=client, scope="mcp", resource=self.endpoint(server)
            )
            self.program.at_machine("approve", asked["user_code"], "--yes")
            answered = self._post(
                "/token", client_id=client, grant_type=DEVICE_CODE, device_code=asked["device_code"]
            )
            self.tokens[server, client] = answered["access_token"]
        return self.tokens[server, client]

    def _post(self, path: str, **form: str) -> dict[str, Any]:
        answered = httpx2.post(self.url + path, data=form, trust_env=False, timeout=WAIT_SECONDS)
        assert answered.status_code == 200, answered.text
        return answered.json()

    def wire(self, server: str = "main", *, client: str = "one", **how: Any) -> Wire:
        wire = Wire(url=self.endpoint(server), token=self.token(server, client), **how)
        self.wires.append(wire)
        return wire

    def hang_up(self) -> None:
        while self.wires:
            self.wires.pop().close()

    def face(self, name: str, *, client: str = "one") -> Face:
        kind, _, session = name.partition(" ")
        if kind == "extension":
            return Extension(self.wire(client=client))
        if kind == "wasmagent":  # its clients know no other way of being asked than that face's
            wire = self.wire("wasm", client=client, version=CORE, capabilities={})
        else:
            wire = self.wire(client=client, version=CORE, capabilities={"elicitation": {}})
        if session:
            wire.begin_session()
        return Wasmagent(wire) if kind == "wasmagent" else Core(wire)

    def said(self) -> list[str]:
        said = self.notes / "said"
        return said.read_text().splitlines() if said.exists() else []

    def await_note(self, text: str) -> None:
        until(f"the note {text!r}", lambda: text in self.said() or None)

    def let_go(self, name: str) -> None:
        (self.notes / f"{name}.go").touch()


def make_house(home: Path, auth: str = "oauth") -> House:
    (home / "notes").mkdir()
    shutil.copy(Path(__file__).with_name("task_agent.py"), home / "agent.py")
    settings = [f'auth = "{auth}"', *(line.strip() for line in SETTINGS.splitlines())]
    (home / "ostiary.toml").write_text("\n".join(settings), "utf-8")
    return House(program=Program(command=SOURCE, home=home), port=free_port())
