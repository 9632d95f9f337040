"""`ostiary check` and `ostiary snippets`, as a person or a test run types them: what the settings say, a server that runs, what was kept."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import trio
from shell import Done, Terminal
from test_serve_command import serving

DOCUMENT = Path(__file__).parents[2] / "docs" / "check.md"
TOOLS = {
    "name": "shop",
    "tools": [
        {
            "name": "look",
            "description": "Looks something up. Use it first.",
            "inputSchema": {
                "type": "object",
                "properties": {"what": {"type": "string"}},
                "examples": [{"what": "tea"}],
            },
            "outputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
            "annotations": {"readOnlyHint": True},
            "scenarios": [{"respond": {"n": 3}}],
        },
        {
            "name": "delete",
            "description": "Deletes.",
            "inputSchema": {"type": "object", "properties": {"id": {"type": "integer"}}},
            "scenarios": [{"when": {"id": 1}, "respond": "gone"}, {"error": "there is no such thing"}],
        },
    ],
}
SETTINGS = """
[[server]]
name = "shop"
[server.tools.delete]
example = { id = 1 }
[[server.agent]]
kind = "mock"
file = "shop.json"
"""


def write(shell: Terminal, tools: dict[str, Any] = TOOLS, settings: str = SETTINGS) -> None:
    (shell.home / "shop.json").write_text(json.dumps(tools))
    (shell.home / "ostiary.toml").write_text(settings)


def changed(name: str, **members: Any) -> dict[str, Any]:
    tools = [{**tool, **members} if tool["name"] == name else tool for tool in TOOLS["tools"]]  # type: ignore[list-item]
    return {**TOOLS, "tools": tools}


def rows(done: Done) -> list[str]:
    return [re.sub(r"\b\d+ ms$", "… ms", line) for line in done.stdout.splitlines()]


async def test_what_the_document_shows_is_what_the_terminal_shows(shell: Terminal) -> None:
    text = DOCUMENT.read_text("utf-8")
    settings = re.search(r"```toml\n(.*?)```", text, re.DOTALL)
    assert settings is not None
    (shell.home / "ostiary.toml").write_text(settings[1])
    blocks = re.findall(r"```console\n\$ ostiary (.*?)\n(.*?)```", text, re.DOTALL)
    shown = [(typed.split(), said.splitlines()) for typed, said in blocks if said.startswith("main\n")]
    assert len(shown) == 2
    for words, said in shown:
        done = await shell.run(*words)
        assert (done.code, done.stderr) == (0, "")
        assert rows(done) == [re.sub(r"\b\d+ ms$", "… ms", line) for line in said]


async def test_examples_are_called_and_what_may_do_harm_is_not(shell: Terminal) -> None:
    write(shell)
    done = await shell.run("check")
    assert (done.code, done.stderr) == (0, "")
    assert rows(done) == [
        "shop",
        "✓  look    … ms",
        "–  delete  not called: it may change something (--all or example_safe = true calls it)",
        "2 tools: 1 ok, 0 failed, 1 not called",
    ]
    done = await shell.run("check", "--all", "--json")
    found = json.loads(done.stdout)
    assert [(each["tool"], each["state"]) for each in found["servers"][0]["examples"]] == [
        ("look", "ok"),
        ("delete", "ok"),
    ]
    assert found["ok"] is True
    write(shell, settings=SETTINGS.replace("{ id = 1 }", "{ id = 1 }\nexample_safe = true"))
    assert "2 ok" in (await shell.run("check")).stdout


@pytest.mark.parametrize(
    ("tools", "settings", "said"),
    [
        (changed("look", scenarios=[{"respond": {"n": "many"}}]), SETTINGS, "✗  look"),
        (changed("look", scenarios=[{"error": "closed today"}]), SETTINGS, "it failed: closed today"),
        (TOOLS, SETTINGS.replace("{ id = 1 }", '{ id = "one" }'), "not what its inputSchema takes: id: "),
        (
            TOOLS,
            SETTINGS.replace("{ id = 1 }", "{ id = 2 }\nexample_safe = true"),
            "it failed: there is no such thing",
        ),
    ],
)
async def test_an_example_that_does_not_hold_fails(
    shell: Terminal, tools: dict[str, Any], settings: str, said: str
) -> None:
    write(shell, tools, settings)
    done = await shell.run("check")
    assert done.code == 1
    assert said in done.stdout
    assert ", 1 failed, " in done.stdout


async def test_a_change_is_shown_and_fails_and_the_same_does_not(shell: Terminal) -> None:
    write(shell)
    assert (await shell.run("check", "--write", "tools.json")).code == 0
    kept = (shell.home / "tools.json").read_bytes()
    assert (await shell.run("check", "--write", "tools.json")).code == 0
    assert (shell.home / "tools.json").read_bytes() == kept
    assert (await shell.run("check", "--against", "tools.json")).code == 0
    more = {**TOOLS["tools"][1], "name": "delete_all"}  # type: ignore[dict-item]
    tools = changed("look", description="Looks.\x1b[2J")
    write(
        shell,
        {**tools, "tools": [tools["tools"][0], more]},
        SETTINGS.replace("[server.tools.delete]\nexample = { id = 1 }\n", ""),
    )
    done = await shell.run("check", "--against", "tools.json")
    assert done.code == 1
    assert "- delete is gone" in done.stdout
    assert "+ delete_all is new" in done.stdout
    assert "~ look is another" in done.stdout
    assert "  - description: Looks something up. Use it first.\n" in done.stdout
    assert "  + description: Looks.\\u001b[2J\n" in done.stdout
    assert "3 tools are not as kept" in done.stdout
    found = json.loads((await shell.run("check", "--against", "tools.json", "--json")).stdout)
    assert [(each["tool"], each["change"]) for each in found["drift"]] == [
        ("delete", "removed"),
        ("delete_all", "added"),
        ("look", "changed"),
    ]


async def test_a_running_server_is_checked_by_its_address_with_the_examples_of_the_settings(
    shell: Terminal,
) -> None:
    write(shell)
    await shell.run("check", "--write", "tools.json")
    async with serving(shell) as server:
        url = f"{server.origin}/mcp"
        done = await shell.run("check", url, "--against", "tools.json", "--all", "--config", "ostiary.toml")
        assert (done.code, done.stderr) == (0, "")
        assert "2 ok" in done.stdout
        assert "no example" in (await shell.run("check", url, "--all")).stdout
        done = await shell.run("check", url, "--score", "--at-least", "100")
        assert done.code == 1
    assert (await shell.run("check", url)).code == 1


async def test_the_score_is_told_and_holds_a_test_run_back(shell: Terminal) -> None:
    write(shell)
    done = await shell.run("check", "--score")
    assert done.code == 0
    percent = re.search(r"^(\d+) % for shop$", done.stdout, re.MULTILINE)
    assert percent is not None
    assert "its description has 8 characters, which is hardly a sentence" in done.stdout
    assert (await shell.run("check", "--score", "--at-least", percent[1])).code == 0
    done = await shell.run("check", "--score", "--at-least", str(int(percent[1]) + 1), "--json")
    found = json.loads(done.stdout)
    assert (done.code, found["ok"]) == (1, False)
    assert found["servers"][0]["score"]["percent"] == int(percent[1])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--write", "a", "--against", "b"], "two things"),
        (["--at-least", "3"], "--at-least is for --score"),
        (["--score", "--all"], "--score calls nothing"),
        (["--against", "missing.json"], "there is no file missing.json"),
        (["--against", "ostiary.toml"], "ostiary check --write"),
        (["--server", "another"], "there is no server another"),
        (["--config", "missing.toml"], "there is no file missing.toml"),
    ],
)
async def test_what_cannot_be_meant_is_a_misuse(shell: Terminal, words: list[str], said: str) -> None:
    write(shell)
    done = await shell.run("check", *words)
    assert (done.code, done.stdout) == (2, "")
    assert said in done.stderr


async def test_a_server_that_cannot_start_says_why(shell: Terminal) -> None:
    write(shell)
    (shell.home / "shop.json").unlink()
    done = await shell.run("check")
    assert done.code == 1
    assert "shop.json" in done.stderr
    assert "could not be started" in done.stderr


async def test_a_tool_that_never_answers_is_given_up(shell: Terminal) -> None:
    slow = changed("look", scenarios=[{"steps": [{"waitSeconds": 30}], "respond": {"n": 1}}])
    write(shell, slow)
    done = await shell.run("check", "--timeout", "0.2")
    assert done.code == 1
    assert "gave no result within 0.2 seconds" in done.stdout


async def test_a_snippet_of_curl_runs_and_calls_the_tool(shell: Terminal) -> None:
    write(shell)
    async with serving(shell) as server:
        for words in (("look", "--server", f"{server.origin}/mcp"), ()):
            done = await shell.run("snippets", "curl", *words, "--data-dir", str(shell.home / "data"))
            assert (done.code, done.stderr) == (0, "")
            ran = await trio.run_process(
                ["sh", "-eu"],
                stdin=done.stdout.encode(),
                capture_stdout=True,
                env=shell.environment(),
                cwd=shell.home,
            )
            assert json.loads(ran.stdout)["result"]["structuredContent"] == {"n": 3}
        for language in ("python", "ts"):
            done = await shell.run("snippets", language, "look", "--server", f"{server.origin}/mcp")
            assert done.code == 0
            assert '"tea"' in done.stdout or "'tea'" in done.stdout
        done = await shell.run("snippets", "curl", "lok", "--server", f"{server.origin}/mcp")
        assert (done.code, done.stdout) == (1, "")
        assert "did you mean look?" in done.stderr
    assert subprocess.run(["sh", "-n"], input=done.stdout, text=True, check=True).returncode == 0
