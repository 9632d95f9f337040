"""MCP servers of others behind ours: those that people have, by the commands that they know, and called by an official client through
our login."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from programs import NODE_BIN, ROOT, SOURCE, WAIT_SECONDS, Background, House, Program, Server, needed, until

pytestmark = [pytest.mark.peers, pytest.mark.slow]

PEERS = ROOT / "tests" / "peers"
NODE_MODULES = PEERS / "node_modules" / "@modelcontextprotocol"
CLIENT = PEERS / "python_sdk_gateway.py"
FASTMCP = PEERS / "fastmcp_server.py"
FASTMCP_CALLS = PEERS / "fastmcp_calls.py"
SDK_BEHIND_OAUTH = PEERS / "python_sdk_oauth_server.py"
LEGACY, MODERN = "2025-11-25", "2026-07-28"


def node_server(name: str, *arguments: str) -> list[str]:
    script = needed(NODE_MODULES / f"server-{name}" / "dist" / "index.js", "scripts/peers node")
    return [str(NODE_BIN / "node"), str(script), *arguments]


def with_notes(home: Path) -> Program:
    notes = home / "notes"
    notes.mkdir()
    (notes / "milk.txt").write_text("two bottles", "utf-8")
    return Program(command=SOURCE, home=home)


@pytest.fixture
def ostiary(home: Path) -> Program:
    return with_notes(home)


@pytest.fixture(scope="module")
def federation(shared_home: Path) -> Program:
    """The program whose server has five of others behind it."""
    return with_notes(shared_home)


@pytest.fixture(scope="module")
def fastmcp(federation: Program) -> Iterator[str]:
    python = needed(ROOT / ".venvs" / "fastmcp" / "bin" / "python", "scripts/peers python")
    with federation.starting(str(FASTMCP), command=[str(python)]) as background:
        yield background.await_words(r"Listening on (\S+)")[1] + "/mcp"


@pytest.fixture(scope="module")
def sdk_behind_oauth(federation: Program) -> Iterator[str]:
    python = needed(ROOT / ".venvs" / "peers" / "bin" / "python", "scripts/peers python")
    with federation.starting(str(SDK_BEHIND_OAUTH), command=[str(python)]) as background:
        yield background.await_words(r"Listening on (\S+)")[1] + "/mcp"


def called_by_the_sdk(program: Program, server: Server, mode: str, *calls: tuple[str, Any]) -> Any:
    python = needed(ROOT / ".venvs" / "peers" / "bin" / "python", "scripts/peers python")
    done = subprocess.run(
        [str(python), str(CLIENT), server.endpoint, mode, json.dumps(calls)],
        env=program.environment(MCP_TOKEN=program.tokens()["access_token"]),
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr + server.said()[-4000:]
    return json.loads(done.stdout)


def test_a_command_is_all_that_a_server_of_others_needs(ostiary: Program) -> None:
    command = node_server("filesystem", str(ostiary.home / "notes"))
    with ostiary.serving("--", *command) as server:
        ostiary.log_in(server)
        found = ostiary.ask(
            "call", server.endpoint, "read_text_file", f"path={ostiary.home / 'notes' / 'milk.txt'}"
        )
        assert found["content"][0]["text"] == "two bottles"
        outside = ostiary.run("call", server.endpoint, "read_text_file", "path=/etc/hostname", code=1)
        assert "denied" in outside.stdout + outside.stderr


def test_the_file_of_another_program_is_all_that_servers_of_others_need(
    ostiary: Program, fastmcp: str
) -> None:
    command, *arguments = node_server("filesystem", "${HOME}/notes")
    servers = {
        "My Notes": {"type": "stdio", "command": command, "args": arguments, "env": {"NOTES": "1"}},
        "fast": {"type": "http", "url": fastmcp, "headers": {"x-key": "${KEY:-none}"}},
        "off": {"command": "no-such-program", "disabled": True},
    }
    written = "// as hosts write it\n" + json.dumps({"mcpServers": servers})
    (ostiary.home / ".mcp.json").write_text(written, "utf-8")
    milk = ostiary.home / "notes" / "milk.txt"
    with ostiary.serving(".mcp.json") as server:
        ostiary.log_in(server)
        found = ostiary.ask("call", server.endpoint, "my-notes__read_text_file", f"path={milk}")
        assert found["content"][0]["text"] == "two bottles"
        assert "hello" in ostiary.run("call", server.endpoint, "fast__echo", "text=hello").stdout
        assert "switched off there: off" in server.said()


@pytest.mark.parametrize(
    ("environment", "written", "starts"),
    [
        ("fastmcp", "from fastmcp import FastMCP as Server", "mcp.run(transport='http')"),
        ("fastmcp", "from fastmcp import FastMCP as Server", "mcp.run()"),
        ("peers", "from mcp.server import MCPServer as Server", "mcp.run()"),
        ("sdk1", "from mcp.server.fastmcp import FastMCP as Server", "mcp.run()"),
    ],
)
def test_a_python_file_that_is_a_server_is_served_as_it_is(
    ostiary: Program, environment: str, written: str, starts: str
) -> None:
    python = needed(ROOT / ".venvs" / environment / "bin" / "python", "scripts/peers python")
    (ostiary.home / ".venv").symlink_to(python.parents[1])
    tool = "@mcp.tool()\ndef add(a: int, b: int) -> int:\n    'Adds.'\n    return a + b\n"
    text = f"{written}\nmcp = Server('sums')\n{tool}if __name__ == '__main__':\n    {starts}\n"
    (ostiary.home / "server.py").write_text(text, "utf-8")
    with ostiary.serving("server.py") as server:
        ostiary.log_in(server)
        assert "5" in ostiary.run("call", server.endpoint, "add", "a=2", "b=3").stdout
        assert "server.py: a server of its own, started as" in server.said()


def test_an_address_is_all_that_a_server_of_others_needs(ostiary: Program, fastmcp: str) -> None:
    with ostiary.serving("--upstream", fastmcp) as server:
        ostiary.log_in(server)
        assert "hello" in ostiary.run("call", server.endpoint, "echo", "text=hello").stdout


def test_a_server_over_pipes_has_another_behind_it(ostiary: Program) -> None:
    asked = [
        {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "read_graph", "_meta": META}},
    ]
    done = subprocess.run(
        (*SOURCE, "serve", "--stdio", "--env", "MEMORY_FILE_PATH", "--", *node_server("memory")),
        cwd=ostiary.home,
        env=ostiary.environment(MEMORY_FILE_PATH=str(ostiary.home / "tmp" / "memory.json")),
        input="".join(json.dumps(each) + "\n" for each in asked),
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=True,
    )
    answers = {each["id"]: each["result"] for each in map(json.loads, done.stdout.splitlines())}
    assert "create_entities" in [each["name"] for each in answers[1]["tools"]]
    assert answers[2]["structuredContent"] == {"entities": [], "relations": []}


META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
}


@pytest.fixture(scope="module")
def five(federation: Program, fastmcp: str, sdk_behind_oauth: str) -> Iterator[Server]:
    """A server of ours that is logged in to the one of the five that wants a login.

    They are from npm and PyPI: filesystem, everything, memory, a FastMCP server, and one of the Python SDK with its own OAuth.
    """
    federated(federation, fastmcp, sdk_behind_oauth)
    with federation.serving() as server:
        federation.log_in(server)
        trouble = trouble_of(federation, "main/sdk")
        assert trouble is not None and "ostiary upstream login main/sdk" in trouble
        log_in_upstream(federation, "sdk")
        until("its tools", lambda: trouble_of(federation, "main/sdk") is None or None)
        yield server
        assert server.end(signal.SIGTERM) == 0


def federated(program: Program, url: str, guarded: str) -> None:
    """Five servers of others behind one address."""

    def words(command: list[str]) -> str:
        return json.dumps(command)

    (program.home / "ostiary.toml").write_text(
        f"""
[[server]]
[[server.agent]]
kind = "mcp"
trust = "first-use"
id = "files"
command = {words(node_server("filesystem", str(program.home / "notes")))}
tools = ["read_text_file", "list_*"]

[[server.agent]]
kind = "mcp"
trust = "first-use"
id = "all"
separator = "__"
command = {words(node_server("everything", "stdio"))}

[[server.agent]]
kind = "mcp"
trust = "first-use"
id = "memory"
command = {words(node_server("memory"))}
env = {{ MEMORY_FILE_PATH = "{program.home / "tmp" / "memory.json"}" }}

[[server.agent]]
kind = "mcp"
trust = "first-use"
id = "fast"
url = "{url}"
banner = true

[[server.agent]]
kind = "mcp"
trust = "first-use"
id = "sdk"
url = "{guarded}"
""",
        "utf-8",
    )


def of_four(federation: Program) -> tuple[tuple[str, dict[str, Any]], ...]:
    """Return a call of each server that asks for no login, the first of a file that it may read."""
    milk = str(federation.home / "notes" / "milk.txt")
    return (
        ("files__read_text_file", {"path": milk}),
        ("all__echo", {"message": "again"}),
        ("memory__read_graph", {}),
        ("fast__echo", {"text": "hello"}),
    )


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_four_servers_of_others_are_one_for_an_official_client(
    federation: Program, five: Server, mode: str
) -> None:
    entity = {"name": f"Ada, {mode}", "entityType": "person", "observations": ["counts"]}
    found = called_by_the_sdk(
        federation,
        five,
        mode,
        ("all__get-tiny-image", {}),
        ("all__get-structured-content", {"location": "Chicago"}),
        ("all__trigger-long-running-operation", {"duration": 1, "steps": 4}),
        ("memory__create_entities", {"entities": [entity]}),
        *of_four(federation),
        ("files__read_text_file", {"path": "/etc/hostname"}),
    )
    assert found["revision"] == (MODERN if mode == "auto" else LEGACY)
    assert {"files__list_directory", "all__echo", "memory__read_graph", "fast__echo"} <= set(found["tools"])
    assert "files__write_file" not in found["tools"]
    image, structured, long, _, read, echo, graph, fast, outside = found["results"]
    assert read["text"] == "two bottles"
    assert echo["text"] == "Echo: again"
    assert "image" in image["kinds"]
    assert structured["structured"]["conditions"]
    assert "completed" in long["text"]
    assert found["progress"] == sorted(found["progress"])
    assert found["progress"][-1:] == [4.0]
    assert entity["name"] in [each["name"] for each in graph["structured"]["entities"]]
    assert fast["text"] == "hello"
    assert outside["is_error"]
    assert "denied" in outside["text"]
    assert "all__simple-prompt" in found["prompts"]
    assert found["read"] == 1


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_one_of_five_wants_a_login_and_all_are_one_for_an_official_client(
    federation: Program, five: Server, mode: str
) -> None:
    found = called_by_the_sdk(
        federation,
        five,
        mode,
        *of_four(federation),
        ("sdk__remember", {"note": mode}),
    )
    assert [each["is_error"] for each in found["results"]] == [False] * 5
    read, echo, _, fast, remembered = found["results"]
    assert (read["text"], echo["text"], fast["text"]) == ("two bottles", "Echo: again", "hello")
    assert remembered["text"].startswith("remembered: ") and mode in remembered["text"]


def log_in_upstream(program: Program, name: str) -> None:
    """What the owner does, with a browser that agrees to everything."""
    words = ("upstream", "login", name, "--no-browser", "--data-dir", str(program.data_dir))
    with program.starting(*words) as login:
        link = login.await_words(r"http://\S+/authorize\?\S+")[0]
        assert (
            httpx2.get(link, follow_redirects=True, trust_env=False, timeout=WAIT_SECONDS).status_code == 200
        )
        assert login.wait() == 0, login.said()


def trouble_of(program: Program, name: str) -> str | None:
    found = {each["upstream"]: each["trouble"] for each in program.at_machine("upstream", "list")}
    return None if found[name] is None else found[name]["words"]


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """The one of npm that asks its clients."""
    program = Program(command=SOURCE, home=tmp_path_factory.mktemp("everything"))
    with program.serving("--", *node_server("everything", "stdio")) as server:
        program.log_in(server)
        yield House(program=program, server=server)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_what_a_server_of_others_asks_reaches_an_official_client(everything: House, mode: str) -> None:
    asked = ("trigger-elicitation-request", {})
    sampled = ("trigger-sampling-request", {"prompt": "say", "maxTokens": 10})
    found = called_by_the_sdk(everything.program, everything.server, mode, asked, sampled)
    elicited, sample = found["results"]
    assert "Ada" in elicited["text"]
    assert "a sample" in sample["text"]


@pytest.fixture(scope="module")
def fastmcp_calls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    python = needed(ROOT / ".venvs" / "fastmcp" / "bin" / "python", "scripts/peers python")
    program = Program(command=SOURCE, home=tmp_path_factory.mktemp("calls"))
    with program.serving("--", str(python), str(FASTMCP_CALLS)) as server:
        program.log_in(server)
        yield House(program=program, server=server)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_calls_of_a_fastmcp_server_fare_as_if_it_were_called_direct(fastmcp_calls: House, mode: str) -> None:
    program, server = fastmcp_calls.program, fastmcp_calls.server
    child = until("the process", lambda: child_called(server, "fastmcp_calls"))
    found = called_by_the_sdk(
        program,
        server,
        mode,
        ("add", {"a": "1", "b": 2}),
        ("add", {"a": "one", "b": 2}),
        ("count", {"to": 200}),
        ("talk", {"kib": 9 * 1024}),  # twice, as text and as what is structured
        ("add", {"a": 3, "b": 4}),
    )
    coerced, wrong, counted, large, after = found["results"]
    assert coerced["text"] == "3"
    assert wrong["is_error"] and "valid integer" in wrong["text"]
    assert counted["text"] == "counted"
    assert found["progress"] == [*range(1, 201)]
    assert large["is_error"] and "answered with more than 16384 KiB" in large["text"]
    assert after["text"] == "7"
    assert child_called(server, "fastmcp_calls") == child


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_call_whose_server_falls_is_told_to_the_model_as_one_that_may_have_been_made(
    fastmcp_calls: House, mode: str
) -> None:
    found = called_by_the_sdk(
        fastmcp_calls.program, fastmcp_calls.server, mode, ("fall", {}), ("add", {"a": 1, "b": 2})
    )
    fallen, after = found["results"]
    assert fallen["is_error"]
    assert fallen["text"].startswith("This call may have been made: the upstream has ended (exit status 3)")
    assert after["text"] == "3"


def test_one_that_is_killed_is_back_and_the_others_never_noticed(federation: Program, five: Server) -> None:
    victim = until("the process", lambda: child_called(five, "server-memory"))
    os.kill(victim, signal.SIGKILL)
    assert "hello" in federation.run("call", five.endpoint, "fast__echo", "text=hello").stdout
    until("another process", lambda: child_called(five, "server-memory", other_than=victim))
    assert federation.ask("call", five.endpoint, "memory__read_graph")["isError"] is False


def child_called(server: Background, name: str, other_than: int = 0) -> int | None:
    threads = Path(f"/proc/{server.process.pid}/task").iterdir()
    children = [each for thread in threads for each in (thread / "children").read_text("ascii").split()]
    for child in map(int, children):
        words = Path(f"/proc/{child}/cmdline").read_bytes()
        if name.encode() in words and child != other_than:
            return child
    return None
