"""The official clients, doing all they can with the server of fixtures: both eras, over HTTP and as parents of a server on
stdio. What they print is what came of it; what must have come of it is here, once for all of them.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from programs import NODE_BIN, ROOT, SOURCE, WAIT_SECONDS, Program, Server, needed

from tests.conformance.fixture_server import serving, write_settings

pytestmark = [pytest.mark.peers, pytest.mark.slow]

PEERS = ROOT / "tests" / "peers"
INSPECTOR = PEERS / "node_modules" / "@modelcontextprotocol" / "inspector" / "clients" / "launcher" / "build"
WIRES = ("http", "stdio")
LEGACY, MODERN = "2025-11-25", "2026-07-28"


@pytest.fixture(scope="module")
def server(shared_home: Path) -> Iterator[Server]:
    """One for all clients that come over HTTP."""
    with serving(shared_home) as running:
        yield running


@pytest.fixture
def target(request: pytest.FixtureRequest, home: Path) -> list[str]:
    """Where the client finds the server, in the words of its command line. Parametrized with the wire."""
    if request.param == "http":
        server: Server = request.getfixturevalue("server")
        return [server.endpoint]
    options = (
        "--config",
        str(write_settings(home)),
        "--data-dir",
        str(home / "data"),
        "--log-level",
        "warning",
    )
    return ["--", *SOURCE, "serve", "--stdio", *options]


@pytest.mark.parametrize("target", WIRES, indirect=True)
def test_the_python_sdk_does_everything_in_the_stateless_era(target: list[str], home: Path) -> None:
    found = python_sdk(home, "auto", target)
    check_both_eras(found, MODERN)
    assert found["heard"] == ["ResourceUpdated", "ToolsListChanged"]
    check_honored(found)
    assert found["task_text"] == "Computed 'task' in 0.3 s."
    assert found["task_states"][-1] == "completed"


@pytest.mark.parametrize("target", WIRES, indirect=True)
def test_the_python_sdk_does_everything_after_a_handshake(target: list[str], home: Path) -> None:
    found = python_sdk(home, "legacy", target)
    check_both_eras(found, LEGACY)
    check_legacy(found)


@pytest.mark.parametrize("target", WIRES, indirect=True)
def test_the_first_typescript_sdk_does_everything_and_runs_tasks(target: list[str], home: Path) -> None:
    found = node(home, PEERS / "ts_v1_features.mjs", *target)
    check_both_eras(found, LEGACY)
    check_legacy(found)
    assert found["task"] == {
        "steps": ["working", "completed", "result"],
        "outcome": "Computed 'ts' in 0.2 s.",
    }
    assert found["asking_task"]["outcome"] == "notes.txt would be deleted."
    assert "input_required" in found["asking_task"]["steps"]
    assert found["task_listed"] is (
        target[0] == "--"
    )  # over HTTP these callers are anonymous, and see no list
    assert found["task_cancelled"] == "cancelled"


@pytest.mark.parametrize("target", WIRES, indirect=True)
def test_the_second_typescript_sdk_does_everything_in_the_stateless_era(
    target: list[str], home: Path
) -> None:
    found = node(home, PEERS / "ts_v2_features.mjs", "auto", *target)
    check_both_eras(found, MODERN)
    assert found["heard"] is True
    check_honored(found)
    assert found["closed"] == "local"


@pytest.mark.parametrize("target", WIRES, indirect=True)
def test_the_second_typescript_sdk_does_everything_after_a_handshake(target: list[str], home: Path) -> None:
    found = node(home, PEERS / "ts_v2_features.mjs", "legacy", *target)
    # It reads the -32002 of this era as what later became of it.
    assert found["unknown_resource"] == -32602
    check_both_eras(found | {"unknown_resource": -32002}, LEGACY)
    check_legacy(found)


@pytest.mark.parametrize("target", WIRES, indirect=True)
@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_the_inspector_lists_calls_and_reads_in_both_eras(target: list[str], era: str, home: Path) -> None:
    def ask(*words: str) -> Any:
        return inspector(home, target, "--protocol-era", era, "--method", *words)

    tools = ask("tools/list")["tools"]
    assert tools[0]["name"] == "test_simple_text"
    called = ask("tools/call", "--tool-name", "weather", "--tool-arg", "town=Ghent")
    assert called["structuredContent"] == {"town": "Ghent", "degrees": 21.5}
    if target[0] == "--":
        return
    read = ask("resources/read", "--uri", "test://template/7/data")
    assert json.loads(read["contents"][0]["text"])["id"] == "7"
    assert (
        ask("resources/templates/list")["resourceTemplates"][0]["uriTemplate"] == "test://template/{id}/data"
    )
    given = ("--prompt-args", "arg1=one", "arg2=two")
    prompt = ask("prompts/get", "--prompt-name", "test_prompt_with_arguments", *given)
    assert prompt["messages"][0]["content"]["text"] == "Prompt with arguments: arg1='one', arg2='two'"
    slow = ask("tools/call", "--tool-name", "slow_compute", "--tool-arg", "seconds=0.1", "label=inspector")
    assert slow["content"][0]["text"] == "Computed 'inspector' in 0.1 s."
    if era == "legacy":
        assert ask("initialize")["protocolVersion"] == LEGACY
        assert ask("logging/setLevel", "--log-level", "debug") == {}


def check_both_eras(found: dict[str, Any], revision: str) -> None:
    assert found["revision"] == revision
    assert found["server"] == "Conformance fixtures"
    assert found["tools"][0] == "test_simple_text"
    assert {"greet", "slow_compute", "weather"} <= set(found["tools"])
    assert found["text"] == "This is a simple text response for testing."
    assert found["kinds"] == ["text", "image", "resource"]
    assert found["structured"] == {"town": "Ghent", "degrees": 21.5}
    assert found["failed"] == [True, "This tool intentionally returns an error for testing"]
    assert found["wrong_arguments"] is True  # for the model to see, not the program
    assert found["unknown_tool"] == -32602
    assert found["progress"] == [[done, 100, f"Completed step {done} of 100"] for done in (0, 50, 100)]
    assert found["logged"] == ["Tool execution started", "Tool processing data", "Tool execution completed"]
    assert found["elicitation"] == (
        'User response: action=accept, content={"username": "my username", "email": "my email"}'
    )
    assert found["sampling"] == "LLM response: a sample"
    assert found["roots"] == "Roots: file:///srv/project"
    assert found["rounds"] == "my name likes my color."
    assert found["three_at_once"] == "my name in 1 roots: a sample"
    # Each was asked once, although a stateless call runs again with every answer.
    assert found["asked"][:5] == [
        "Who are you?", "Say something", "roots", "Step 1: What is your name?", "Step 2: What is your favorite color?",
    ]  # fmt: skip
    assert sorted(found["asked"][5:8]) == ["Generate a greeting", "What is your name?", "roots"]
    assert found["asked"][8] == "What context should the prompt use?"
    assert found["resources"] == ["test://static-text", "test://static-binary", "test://watched-resource"]
    assert found["templates"] == ["test://template/{id}/data", "test://rooms/{number}"]
    assert found["read"] == "This is the content of the static text resource."
    assert found["read_bytes"] == 70
    assert found["read_template"] == {"id": "42", "templateTest": True, "data": "Data for ID: 42"}
    assert found["unknown_resource"] == (-32602 if revision == MODERN else -32002)
    assert "test_simple_prompt" in found["prompts"]
    assert found["prompt"] == "Prompt with arguments: arg1='one', arg2='two'"
    assert found["asking_prompt"] == "Use the following context: my context"
    assert found["unknown_prompt"] == -32602
    assert found["completion"] == ["paris", "park", "party"]
    assert found["no_completion"] == []
    assert found["stopped"] is True


def check_legacy(found: dict[str, Any]) -> None:
    assert found["resource_updated"] is True
    assert found["tools_changed"] is True


def check_honored(found: dict[str, Any]) -> None:
    assert found["honored"] == {
        "toolsListChanged": True,
        "resourceSubscriptions": ["test://watched-resource"],
    }


def python_sdk(home: Path, mode: str, target: Sequence[str]) -> Any:
    python = needed(ROOT / ".venvs" / "peers" / "bin" / "python", "scripts/peers")
    return talk(home, str(python), "-W", "ignore", str(PEERS / "python_sdk_features.py"), mode, *target)


def node(home: Path, *arguments: Path | str) -> Any:
    return talk(home, str(needed(NODE_BIN / "node", "scripts/peers")), *map(str, arguments))


def inspector(home: Path, target: Sequence[str], *words: str) -> Any:
    """A stdio target stands before the options of its own, after `--`, and after the inspector's."""
    start = ("--cli", *words, *target) if target[0] == "--" else ("--cli", *target, *words)
    return node(home, INSPECTOR / "index.js", *start)


def talk(home: Path, *command: str) -> Any:
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=Program(command=SOURCE, home=home).environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return json.loads(done.stdout)
