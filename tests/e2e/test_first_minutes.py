"""Somebody who has an MCP server, a terminal and five minutes: each of the one-line ways to begin, typed in a terminal of its own, and everything
that is to be typed after it taken from what stands on the screen."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Generator
from contextlib import contextmanager
from shlex import join, quote
from textwrap import dedent

import pytest
from programs import NODE_BIN, ROOT, SOURCE, USER_CODE, Program, needed
from walk import Terminal, terminal

from tests.free_ports import free_port

pytestmark = pytest.mark.slow

FILESYSTEM = ROOT / "tests/peers/node_modules/@modelcontextprotocol/server-filesystem/dist/index.js"


@pytest.fixture
def program(program: Program) -> Program:
    """`ostiary` is on the PATH, as where it is installed."""
    folder = program.home / "bin"
    folder.mkdir()
    script = folder / "ostiary"
    script.write_text(f'#!/bin/sh\nexec env OSTIARY_PROGRAM=ostiary {join(SOURCE)} "$@"\n', "utf-8")
    script.chmod(0o755)
    program.alone = True
    return program


def typed(program: Program, line: str) -> str:
    """In the person's own directory."""
    return f"export PATH={quote(str(program.home / 'bin'))}:$PATH; cd {quote(str(program.home))} && {line}"


@contextmanager
def types(program: Program, line: str, port: int) -> Generator[Terminal]:
    with terminal(typed(program, line), program, port, columns=100) as screen:
        yield screen


def next_lines(screen: Terminal) -> list[str]:
    """What it says to try next, all of it."""
    screen.await_words(r"ostiary tools http://\S+\n(.*\n)*\n")
    said = screen.seen().partition("try next, in another terminal:")[2]
    return [line.strip() for line in said.splitlines() if line.strip().startswith("ostiary ")]


def follow(program: Program, lines: list[str], port: int) -> str:
    """Log in, approve and look, with the lines that the screen of the server shows. What came of all of them."""
    login, approve, *rest = lines
    seen = ""
    with types(program, login, port) as waiting:
        code = waiting.await_words(USER_CODE)[0]
        with types(program, approve.replace("CODE", code), port) as owner:
            owner.await_words(re.escape("let it in [y/N]:"))
            owner.type("y\n")
            assert owner.wait() == 0, owner.seen()
        assert waiting.wait() == 0, waiting.seen()
        assert "logged in" in waiting.seen()
    for line in rest:
        with types(program, line, port) as screen:
            assert screen.wait() == 0, f"{line}\n{screen.seen()}"
        seen += screen.seen()
    return seen


def check_clean(screen: Terminal) -> None:
    """Nothing on the screen frightens: no warnings, no traceback, no line that is broken by the terminal's edge."""
    said = screen.seen()
    assert "Traceback" not in said and "warning" not in said.lower() and "error" not in said.lower(), said


def test_the_readme_begins_with_these_ways() -> None:
    shown = (ROOT / "README.md").read_text("utf-8").partition("```sh\n")[2].partition("```")[0]
    ways = [" ".join(line.split()[:3]) for line in shown.splitlines()]
    assert ways == [
        "ostiary serve --",
        "ostiary serve --upstream",
        "ostiary serve agent.py",
        "ostiary serve agent.3md",
    ]


@pytest.mark.peers
def test_a_server_from_npm_is_behind_a_login_and_called(program: Program) -> None:
    notes = program.home / "notes"
    notes.mkdir()
    (notes / "milk.txt").write_text("two bottles", "utf-8")
    script = needed(FILESYSTEM, "scripts/peers node")
    command = join([str(NODE_BIN / "node"), str(script), str(notes)])
    port = free_port()
    with types(program, f"ostiary serve -- {command}", port) as server:
        lines = next_lines(server)
        assert re.search(r"behind it\s+1\d tools\n", server.seen()), server.seen()
        seen = follow(program, lines, port)
        assert "read_text_file" in seen
        # The last line that was shown is a call that works as it stands.
        assert lines[-1].startswith("ostiary call ")
        assert str(notes) in seen
        url = lines[0].split()[-1]
        with types(program, f"ostiary call {url} read_text_file path={notes / 'milk.txt'}", port) as call:
            assert call.wait() == 0
        assert "two bottles" in call.seen()
        check_clean(server)
        server.type("\x03")
        assert server.wait() == 0, server.seen()


def test_a_server_at_an_address_is_behind_a_login_and_called(program: Program) -> None:
    (program.home / "there.json").write_text(
        json.dumps(
            {
                "name": "there",
                "tools": [
                    {"name": "ask", "annotations": {"readOnlyHint": True}, "scenarios": [{"respond": "yes"}]}
                ],
            }
        ),
        "utf-8",
    )
    there, port = free_port(), free_port()
    with types(
        program, f"ostiary serve there.json --auth none --data-dir {program.home / 'there'}", there
    ) as behind:
        behind.await_words(r"Listening on ")
        line = f"ostiary serve --upstream http://127.0.0.1:{there}/mcp"
        with types(program, line, port) as server:
            lines = next_lines(server)
            assert lines[-1] == f"ostiary call http://127.0.0.1:{port}/mcp ask"
            assert follow(program, lines, port).endswith("yes\n")
            check_clean(server)


def test_a_python_file_is_behind_a_login_and_called(program: Program) -> None:
    (program.home / "weather.py").write_text(
        dedent(
            '''
            from ostiary import tool

            @tool(annotations={"read_only": True})
            def cities() -> str:
                """The cities that are known."""
                return "Rome, Oslo"
            '''
        ),
        "utf-8",
    )
    (program.home / ".venv" / "bin").mkdir(parents=True)
    (program.home / ".venv" / "bin" / "python").symlink_to(sys.executable)
    port = free_port()
    with types(program, "ostiary serve weather.py", port) as server:
        seen = follow(program, next_lines(server), port)
        assert "The cities that are known" in seen
        assert seen.endswith("Rome, Oslo\n")
        check_clean(server)


def test_a_document_of_skills_is_behind_a_login_and_called(program: Program) -> None:
    port = free_port()
    with types(program, 'ostiary skills new "My agent" && ostiary serve my-agent.3md', port) as server:
        seen = follow(program, next_lines(server), port)
        assert "route_skill" in seen and '"name": "find"' in seen
        check_clean(server)


def test_an_address_at_which_nobody_answers_is_named_at_once_and_the_door_stands(program: Program) -> None:
    nobody, port = free_port(), free_port()
    with types(program, f"ostiary serve --upstream http://127.0.0.1:{nobody}/mcp", port) as server:
        server.await_words(r"behind it\s+0 tools; out of order:\n\s+\S.*cannot be reached")
        assert len(next_lines(server)) == 3
