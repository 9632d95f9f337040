"""`ostiary serve -- COMMAND` and `--upstream URL`: what is refused before anything is started."""

from __future__ import annotations

import pytest
from shell import Terminal


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
        (("theirs.py",), "theirs.py is an MCP server already", "ostiary serve -- python3 theirs.py"),
    ],
)
async def test_whoever_left_out_a_word_is_told_which(
    shell: Terminal, arguments: tuple[str, ...], told: str, hint: str
) -> None:
    (shell.home / "theirs.py").write_text("import os\nfrom fastmcp import FastMCP\n", "utf-8")
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
