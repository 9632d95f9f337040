"""`ostiary serve -- COMMAND` and `--upstream URL`: what is refused before anything is started."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from shell import Terminal

from server.cli.this_program.mcp_servers_file import named_servers


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--", "no-such-program-anywhere"), "error: there is no program no-such-program-anywhere"),
        (
            ("--upstream", "ftp://a.example"),
            "error: --upstream must begin with http:// or https:// and name a host",
        ),
        (
            ("--upstream", "https://ada:swordfish@a.example"),
            "error: --upstream must not hold credentials; send them in a header, as env:NAME or file:/path",
        ),
        (("--upstream", "https://a.example", "--", "sh"), "error: --upstream and a command are two servers"),
        (("--env", "not a name", "--", "sh"), "error: --env 'not a name' is not the name of a variable"),
        (("--env", "KEY"), "error: --env goes with a command"),
        (("--era", "handshake"), "error: --era goes with a command or --upstream"),
        (("--prefix", "never"), "error: --prefix goes with a file of mcpServers"),
        (("--share", "all", "--upstream", "http://127.0.0.1:1/mcp"), "error: --share goes with a command"),
    ],
)
async def test_what_cannot_be_meant_is_a_misuse(
    shell: Terminal, arguments: tuple[str, ...], told: str
) -> None:
    refused = await shell.run("serve", "--port", "0", *arguments)
    assert refused.code == 2
    assert refused.stderr.splitlines()[0].startswith(told)
    assert "swordfish" not in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "told", "hint"),
    [
        (("sh", "-c", "true"), "sh is a program, and comes after --", "ostiary serve -- sh -c true"),
        (("sh", "server"), "sh is a program, and comes after --", "ostiary serve -- sh server"),
        (("sh",), "sh is nothing that can be served by itself", "ostiary serve -- sh …"),
        (
            ("https://a.example/mcp",),
            "https://a.example/mcp is nothing that can be served by itself",
            "ostiary serve --upstream https://a.example/mcp",
        ),
        (
            ("dist/index.js",),
            "dist/index.js is nothing that can be served by itself",
            "ostiary serve -- node dist/index.js",
        ),
        (
            ("theirs.py",),
            "theirs.py is an MCP server that is not started",
            'end it with `if __name__ == "__main__":` and a call of its run()',
        ),
    ],
)
async def test_whoever_left_out_a_word_is_told_which(
    shell: Terminal, arguments: tuple[str, ...], told: str, hint: str
) -> None:
    (shell.home / "theirs.py").write_text("import os\nfrom mcp.server import MCPServer\n", "utf-8")
    refused = await shell.run("serve", *arguments)
    assert (refused.code, refused.stderr) == (2, f"error: {told}\nhint: {hint}\n")


async def test_a_python_file_that_uses_another_server_as_a_client_is_served(shell: Terminal) -> None:
    text = "from mcp import Client\nfrom ostiary import tool\n"
    (shell.home / "ours.py").write_text(text, "utf-8")
    refused = await shell.run("serve", "ours.py", "--port", "0", "--host", "0.0.0.0")
    assert "issuer: is needed" in refused.stderr


async def test_settings_that_lie_in_the_directory_are_not_those_of_a_command(shell: Terminal) -> None:
    (shell.home / "ostiary.toml").write_text("this is no TOML", "utf-8")
    refused = await shell.run("serve", "--port", "0", "--host", "0.0.0.0", "--", "sh")
    assert "TOML" not in refused.stderr
    assert "issuer: is needed" in refused.stderr


@pytest.mark.parametrize(
    ("servers", "told"),
    [
        ({"a": {"command": "${NOWHERE}"}}, "a: command names the variable NOWHERE, which is not set"),
        ({"a": {"command": "sh", "args": ["${input:key}"]}}, "a: args holds ${input:key}"),
        ({"a": {"command": "sh", "args": "x"}}, "a: args is no list"),
        ({"a": {"command": "sh", "env": {"K": 1}}}, "a: env.K is no text"),
        ({"a": {"command": "sh", "env": {"K": "file:/etc/key"}}}, "a: env.K begins like a reference"),
        ({"a": {"type": "http"}}, "a: url is missing"),
        ({"a": {"url": "ftp://a.example"}}, "a: url must begin with http"),
        ({"a": []}, "a is no table"),
        ({"a": {"command": "sh", "disabled": True}}, "names no server that is switched on"),
        ({}, "names no server that is switched on"),
    ],
)
async def test_what_a_file_of_servers_cannot_mean_is_named(
    shell: Terminal, servers: dict[str, object], told: str
) -> None:
    (shell.home / "mcp.json").write_text(json.dumps({"servers": servers}), "utf-8")
    refused = await shell.run("serve", "mcp.json", "--port", "0")
    assert refused.code == 1
    assert f"error: mcp.json{':' if servers and told[0] == 'a' else ''} {told}" in refused.stderr
    assert "/etc/key" not in refused.stderr


async def test_names_in_a_file_of_servers_become_ids_of_their_own(tmp_path: Path) -> None:
    entry = {"command": "sh", "args": ["-c", "${SCRIPT}"], "env": {"A": "${env:SCRIPT}"}}
    names = ["My Notes", "my_notes", "my  notes", "日本", "n" * 40, "n" * 41]
    found = named_servers(tmp_path / "mcp.json", dict.fromkeys(names, entry), {"SCRIPT": "true"})
    identifiers = ["my-notes", "my_notes", "my-notes-2", "server", "n" * 32, "n" * 30 + "-2"]
    assert [agent.id for agent in found.agents] == identifiers
    assert found.agents[0].command == ("sh", "-c", "true")
    assert found.agents[0].env == {"A": "true"}


async def test_a_file_of_servers_is_told_when_its_names_are_in_front(tmp_path: Path) -> None:
    table = {name: {"url": f"https://{name}.example"} for name in ("a", "b")}
    found = named_servers(tmp_path / "mcp.json", table, {}, "on collision")
    assert [(agent.id, agent.prefix) for agent in found.agents] == [
        ("a", "on collision"),
        ("b", "on collision"),
    ]
    (alone,) = named_servers(tmp_path / "mcp.json", {"a": table["a"]}, {}, "on collision").agents
    assert (alone.id, alone.prefix) == ("", "always")


async def test_a_server_alone_in_a_file_keeps_the_names_of_its_tools(tmp_path: Path) -> None:
    table = {"shop": {"url": "https://a.example", "headers": {"x-key": "k"}}, "off": {"enabled": False}}
    found = named_servers(tmp_path / "mcp.json", table, {})
    assert [(agent.id, agent.url, agent.headers) for agent in found.agents] == [
        ("", "https://a.example", {"x-key": "k"})
    ]
    assert found.left_out == ("off",)
