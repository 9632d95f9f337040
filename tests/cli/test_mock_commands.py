"""`ostiary import` and `ostiary mock` with a server of programs and mocks, which is talked to as any other is."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from shell import Terminal
from test_serve_command import Serving, serving

SETTINGS = """
[[server]]
auth = "none"

[[server.agent]]
kind = "command"
[[server.agent.tool]]
name = "count"
description = "Counts words."
input = {{ text = "string" }}
run = ["{python}", "-c", "import sys; print(len(sys.argv[-1].split()))", "--", "{{text}}"]
read_only = true

[[server.agent]]
kind = "agent"
run = ["{python}", "agent.py"]

[[server.agent]]
kind = "mock"
file = "weather.json"

[[server.agent]]
kind = "demo"

[server.tools.echo]
mock = "weather.json"
"""
AGENT = """
import json, sys
call = json.loads(sys.stdin.readline())
print(json.dumps({"event": "ask", "id": "q", "prompt": "Where to?"}), flush=True)
print(json.dumps({"event": "final", "result": call["arguments"]["task"] + " to " + json.loads(sys.stdin.readline())["response"]}), flush=True)
"""
WEATHER = {
    "name": "weather",
    "tools": [
        {"name": "get_weather", "input": {"city": "string"}, "scenarios": [{"when": {"city": "Rome"}, "respond": {"degrees": 20}}]},
        {"name": "echo", "enabled": True, "scenarios": [{"respond": "made up"}]},
    ],
    "resources": [{"uri": "weather://about", "name": "about", "text": "Made up."}],
    "resourceTemplates": [{"uriTemplate": "weather://cities/{id}", "name": "city", "text": "city {{id}}"}],
    "prompts": [{"name": "report", "arguments": [{"name": "city", "required": True}], "text": "On {{city}}."}],
}  # fmt: skip


def write(shell: Terminal) -> Path:
    (shell.home / "agent.py").write_text(AGENT)
    # `echo` is there for its stand-in alone: the demo has a tool of that name.
    (shell.home / "weather.json").write_text(json.dumps(WEATHER | {"tools": WEATHER["tools"][:1]}))
    (shell.home / "echo.json").write_text(json.dumps({"tools": WEATHER["tools"][1:]}))
    settings = shell.home / "ostiary.toml"
    settings.write_text(
        SETTINGS.format(python=sys.executable).replace('mock = "weather.json"', 'mock = "echo.json"')
    )
    return settings


async def test_programs_and_mocks_are_called_like_any_other_tool(shell: Terminal) -> None:
    async with serving(shell, "--config", str(write(shell))) as server:
        url = f"{server.origin}/mcp"
        assert (await shell.run("call", url, "count", "text=three small words")).stdout == "3\n"
        refused = await shell.run("call", url, "count")
        assert (refused.code, "needs text" in refused.stderr) == (2, True)
        asked = await shell.run("call", url, "run_agent", "task=fly", "--answer", "answer=Rome")
        assert (asked.stdout, asked.stderr) == ("fly to Rome\n", "")
        assert json.loads((await shell.run("call", url, "get_weather", "city=Rome")).stdout) == {
            "degrees": 20
        }
        assert (await shell.run("call", url, "echo", "text=real")).stdout == "made up\n"
        await server.logged("tool.mocked")


async def test_a_server_is_imported_compared_recorded_and_copied(shell: Terminal) -> None:
    async with serving(shell, "--config", str(write(shell))) as server:
        await check(shell, server, shell.home / "copy.json")


async def check(shell: Terminal, server: Serving, file: Path) -> None:
    url = f"{server.origin}/mcp"
    made = await shell.run("import", url, "--out", str(file))
    assert (made.code, made.stdout) == (0, f"{file}: 6 tools, 1 resources, 1 prompts\n")
    document = json.loads(file.read_text())
    assert {tool["name"] for tool in document["tools"]} >= {"count", "run_agent", "get_weather", "echo"}
    assert [resource["text"] for resource in document["resources"]] == ["Made up."]
    assert document["protocolVersion"] == "2026-07-28"
    assert (await shell.run("mock", "diff", str(file), url)).code == 0

    called = await shell.run("import", url, "--out", str(file), "--call", "count", "text=a b")
    assert (called.code, called.stderr) == (0, "count has one more scenario\n")
    (count,) = [tool for tool in json.loads(file.read_text())["tools"] if tool["name"] == "count"]
    assert count["scenarios"] == [
        {"when": {"text": "a b"}, "result": {"content": [{"type": "text", "text": "2"}], "isError": False}}
    ]
    assert (await shell.run("import", url, "--out", str(file), "--json")).code == 0
    assert '"a b"' in file.read_text()

    copy = shell.home / "other.json"
    assert (
        await shell.run("mock", "duplicate", str(file), str(copy), "--name", "other")
    ).stdout == f"{copy}\n"
    assert json.loads(copy.read_text())["name"] == "other"
    again = await shell.run("mock", "duplicate", str(file), str(copy))
    assert (again.code, "is there already" in again.stderr) == (1, True)
    copy.write_text(copy.read_text().replace("Counts words.", "Counts."))
    different = await shell.run("mock", "diff", str(copy), url)
    assert (different.code, different.stdout) == (1, "~ tool count: description\n")
    listed = await shell.run("mock", "diff", str(file), str(copy), "--json")
    assert json.loads(listed.stdout) == {
        "differences": [{"kind": "tool", "name": "count", "change": "changed", "keys": ["description"]}]
    }


async def test_tools_are_switched_to_a_mock_for_one_run(shell: Terminal) -> None:
    mock = shell.home / "mock.json"
    mock.write_text(
        json.dumps(
            {
                "tools": [
                    {"name": "echo", "scenarios": [{"respond": "made up"}]},
                    {"name": "clock", "enabled": False},
                ]
            }
        )
    )
    async with serving(shell, "--mock", str(mock)) as server:
        url = f"{server.origin}/mcp"
        assert (await shell.run("call", url, "echo", "text=real")).stdout == "made up\n"
        assert "utc_offset_minutes" in (await shell.run("call", url, "clock", "--json")).stdout
        await server.logged("tool.mocked")
    mock.write_text(json.dumps({"tools": [{"name": "nothing_like_it"}]}))
    refused = await shell.run("serve", "--port", "0", "--data-dir", "data", "--mock", str(mock))
    assert (refused.code, "nothing_like_it, which no agent offers" in refused.stderr) == (1, True)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"openapi": "3.1.0"}', 'hint: an OpenAPI document is served by kind = "openapi" in ostiary.toml'),
        ("{", "hint: ostiary import URL --out FILE makes a mock of a server that runs"),
    ],
)
async def test_a_document_that_is_no_mock_is_not_served_as_one(shell: Terminal, text: str, told: str) -> None:
    (shell.home / "api.json").write_text(text)
    refused = await shell.run("serve", "api.json", "--port", "0")
    assert (refused.code, refused.stderr.splitlines()[-1]) == (1, told)


async def test_an_import_without_a_file_is_printed(shell: Terminal) -> None:
    async with serving(shell, "--config", str(write(shell))) as server:
        printed = await shell.run("import", f"{server.origin}/mcp")
        assert len(json.loads(printed.stdout)["tools"]) == 6


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("import", "http://127.0.0.1:1/mcp", "a=b"), "are those of a call"),
        (("import", "http://127.0.0.1:1/mcp", "--out", "a.toml"), "written as JSON"),
    ],
)
async def test_what_makes_no_sense_is_a_misuse(shell: Terminal, words: tuple[str, ...], why: str) -> None:
    refused = await shell.run(*words)
    assert (refused.code, why in refused.stderr) == (2, True)


async def test_a_mock_that_cannot_be_read_stays_as_it_is(shell: Terminal) -> None:
    file = shell.home / "bad.json"
    file.write_text("{")
    for words in (
        ("import", "http://127.0.0.1:1/mcp", "--out", str(file)),
        ("mock", "diff", str(file), str(file)),
    ):
        refused = await shell.run(*words)
        assert (refused.code, f"error: {file}: " in refused.stderr) == (1, True)
    assert file.read_text() == "{"


async def test_a_server_can_pretend_to_be_older_than_it_is(shell: Terminal) -> None:
    settings = write(shell)
    settings.write_text(settings.read_text() + '[server.compat]\nprotocol_version = "2025-03-26"\n')
    async with serving(shell, "--config", str(settings)) as server:
        url = f"{server.origin}/mcp"
        imported = json.loads((await shell.run("import", url)).stdout)
        assert imported["protocolVersion"] == "2025-03-26"
        assert len(imported["tools"]) == 6
        called = await shell.run("call", url, "get_weather", "city=Rome", "--json")
        assert "structuredContent" not in json.loads(called.stdout)
