"""Two people behind a server of somebody else's: what one leaves in it is met by that one alone. With the official reference server and a
FastMCP server that keeps a state."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp_calls import MODERN, call_tool
from programs import NODE_BIN, ROOT, SOURCE, WAIT_SECONDS, Program, needed, until

from tests.free_ports import free_port

pytestmark = [pytest.mark.peers, pytest.mark.slow]

PEERS = ROOT / "tests" / "peers"
EVERYTHING = PEERS / "node_modules" / "@modelcontextprotocol" / "server-everything" / "dist" / "index.js"
PEOPLE = ("alice", "bob")
# As whom the upstream is called; what needs an authorization server of its own is in tests/agents/mcp/test_gateway_sessions.py.
IDENTITIES = {
    "nobody": "",
    "one for all": 'token = "file:shared"',
    "each by themselves": 'identity = "token"',
}


@pytest.fixture
def ostiary(home: Path) -> Program:
    for name in ("shared", *PEOPLE):
        (home / name).write_text(f"{name}-{'x' * 40}")
        (home / name).chmod(0o600)
    return Program(command=SOURCE, home=home)


def settings(program: Program, *upstream: str) -> None:
    tokens = "".join(f'[[server.tokens]]\nname = "{each}"\ntoken = "file:{each}"\n' for each in PEOPLE)
    agent = "\n".join(['[[server.agent]]\nkind = "mcp"\ntrust = "always"', *upstream])
    (program.home / "ostiary.toml").write_text(f"[[server]]\n{tokens}{agent}\n", "utf-8")


def of(program: Program, person: str) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {(program.home / person).read_text()}"}


def asked(program: Program, endpoint: str, person: str, method: str, **params: Any) -> dict[str, Any]:
    headers = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": MODERN,
        "Mcp-Method": method,
        **({"Mcp-Name": params["uri"]} if "uri" in params else {}),
    }
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    answer = httpx2.post(
        endpoint,
        json=message,
        headers={**headers, **of(program, person)},
        timeout=WAIT_SECONDS,
        trust_env=False,
    )
    return json.loads(
        answer.text.rpartition("data:")[2] if answer.text.startswith(("event", "id", "data")) else answer.text
    )


def said(result: Mapping[str, Any]) -> str:
    return result["content"][0]["text"]


@contextmanager
def everything(program: Program) -> Generator[str]:
    port = free_port()
    script = needed(EVERYTHING, "scripts/peers node")
    command = ["/usr/bin/env", f"PORT={port}", str(NODE_BIN / "node"), str(script), "streamableHttp"]
    with program.starting(command=command) as background:
        background.await_words(r"listening on port")
        yield f"http://127.0.0.1:{port}/mcp"


@contextmanager
def memory(program: Program) -> Generator[str]:
    python = needed(ROOT / ".venvs" / "fastmcp" / "bin" / "python", "scripts/peers python")
    with program.starting(str(PEERS / "fastmcp_state.py"), command=[str(python)]) as background:
        yield background.await_words(r"Listening on (\S+)")[1] + "/mcp"


@pytest.mark.parametrize("identity", IDENTITIES)
def test_a_file_that_one_makes_in_the_reference_server_is_theirs_alone(
    ostiary: Program, identity: str
) -> None:
    with everything(ostiary) as url:
        settings(ostiary, f'url = "{url}"', IDENTITIES[identity])
        with ostiary.serving() as server:
            for person in PEOPLE:
                made = {
                    "name": f"{person}.gz",
                    "data": f"data:text/plain,of-{person}",
                    "outputType": "resourceLink",
                }
                result = call_tool(server.endpoint, "gzip-file-as-resource", made, more=of(ostiary, person))
                assert not result.get("isError"), result
            for person, other in (PEOPLE, PEOPLE[::-1]):
                mine, theirs = (f"demo://resource/session/{each}.gz" for each in (person, other))
                listed = asked(ostiary, server.endpoint, person, "resources/list")["result"]["resources"]
                assert [each["uri"] for each in listed if "session" in each["uri"]] == [mine]
                assert "result" in asked(ostiary, server.endpoint, person, "resources/read", uri=mine)
                assert "error" in asked(ostiary, server.endpoint, person, "resources/read", uri=theirs)


@pytest.mark.parametrize("identity", IDENTITIES)
def test_what_one_keeps_in_a_session_of_fastmcp_is_theirs_alone(ostiary: Program, identity: str) -> None:
    with memory(ostiary) as url:
        settings(ostiary, f'url = "{url}"', 'era = "handshake"', IDENTITIES[identity])
        with ostiary.serving() as server:
            call_tool(server.endpoint, "keep", {"word": "of alice"}, more=of(ostiary, "alice"))
            shown = [said(call_tool(server.endpoint, "show", {}, more=of(ostiary, each))) for each in PEOPLE]
            assert shown == ["of alice", "nothing"]


def test_each_caller_has_a_child_where_the_settings_say_so_and_else_it_is_said_that_they_share_one(
    ostiary: Program,
) -> None:
    command = json.dumps([str(NODE_BIN / "node"), str(needed(EVERYTHING, "scripts/peers node")), "stdio"])
    made = {"name": "mine.gz", "data": "data:text/plain,x", "outputType": "resourceLink"}
    for share, seen in (("all", [1, 1]), ("caller", [1, 0])):
        settings(ostiary, f"command = {command}", f'share = "{share}"')
        with ostiary.serving() as server:
            if share == "all":
                server.await_words("all who call share what")
            call_tool(server.endpoint, "gzip-file-as-resource", made, more=of(ostiary, "alice"))

            def listed(person: str) -> int:
                found = asked(ostiary, server.endpoint, person, "resources/list")["result"]["resources"]
                return sum("session" in each["uri"] for each in found)

            until("the file of alice", lambda: listed("alice") or None)
            call_tool(server.endpoint, "echo", {"message": "x"}, more=of(ostiary, "bob"))
            assert [listed(each) for each in PEOPLE] == seen
            assert ("all who call share what" in server.said()) == (share == "all")


# A server that keeps one word for as long as it runs.
KEEPER = """
import json, sys
word = "nothing"
for line in sys.stdin:
    asked = json.loads(line)
    params = asked.get("params") or {}
    if asked.get("method") == "initialize":
        can = {"tools": {}, "tasks": {"requests": {"tools": {"call": {}}}}}
        result = {"protocolVersion": "2025-11-25", "capabilities": can, "serverInfo": {"name": "k", "version": "1"}}
    elif asked.get("method") == "tools/list":
        shape = {"inputSchema": {"type": "object"}, "execution": {"taskSupport": "optional"}}
        result = {"tools": [{"name": name, **shape} for name in ("keep", "show")]}
    elif asked.get("method") == "tools/call":
        word = params["arguments"].get("word", word)
        result = {"content": [{"type": "text", "text": word}]}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


def begun(endpoint: str) -> Callable[..., dict[str, Any]]:
    """Begin a session of the handshake era, and return what asks in it."""
    headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}

    def ask(method: str, **params: Any) -> dict[str, Any]:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = httpx2.post(endpoint, json=message, headers=headers, timeout=WAIT_SECONDS, trust_env=False)
        headers.setdefault("Mcp-Session-Id", answer.headers.get("mcp-session-id", ""))
        return json.loads(answer.text.rpartition("data: ")[2])["result"]

    client = {"name": "client", "version": "1"}
    ask("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=client)
    return ask


def test_a_task_runs_in_the_child_of_the_session_that_ordered_it(ostiary: Program) -> None:
    (ostiary.home / "keeper.py").write_text(KEEPER, "utf-8")
    command = json.dumps([sys.executable, str(ostiary.home / "keeper.py")])
    upstream = f'kind = "mcp"\ntrust = "always"\ncommand = {command}\nshare = "caller"\nera = "handshake"'
    (ostiary.home / "ostiary.toml").write_text(
        f'auth = "none"\n[[server]]\n[[server.agent]]\n{upstream}\n', "utf-8"
    )
    with ostiary.serving() as server:
        for word in ("one", "two"):
            ask = begun(server.endpoint)
            assert said(ask("tools/call", name="keep", arguments={"word": word})) == word
            task = ask("tools/call", name="show", arguments={}, task={"ttl": 60_000})["task"]
            assert said(ask("tasks/result", taskId=task["taskId"])) == word
