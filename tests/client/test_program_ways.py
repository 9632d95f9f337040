"""How programs are told of a server by people who have no `ostiary` (server/client/programs/manual_steps.py)."""

from __future__ import annotations

import base64
import json
import shlex
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from server.client.programs.manual_steps import ORDER, ProgramWay, ways
from server.client.programs.program_table import PROGRAMS

URL = "https://agent.example.org/mcp"
HERE = "http://127.0.0.1:8420/mcp"


def way(program: str, url: str = URL, name: str = "", ostiary: str = "ostiary") -> ProgramWay:
    return next(each for each in ways(url, name, ostiary) if each.program == program)


def test_a_link_holds_what_install_would_write() -> None:
    cursor = urlsplit(way("Cursor").link)
    assert (cursor.scheme, cursor.netloc, cursor.path) == (
        "cursor", "anysphere.cursor-deeplink", "/mcp/install",
    )  # fmt: skip
    fields = parse_qs(cursor.query, strict_parsing=True)
    direct = PROGRAMS["cursor"].direct
    assert direct is not None
    assert fields["name"] == ["agent-example-org"]
    assert json.loads(base64.b64decode(fields["config"][0])) == direct(URL)

    scheme, _, query = way("VS Code").link.partition("?")
    direct = PROGRAMS["vscode"].direct
    assert direct is not None
    assert scheme == "vscode:mcp/install"
    assert json.loads(unquote(query)) == {"name": "agent-example-org", **direct(URL)}


@pytest.mark.parametrize("program", ["Claude Code", "Codex", "Gemini CLI"])
def test_a_line_can_be_pasted_into_a_shell_whatever_the_address_is(program: str) -> None:
    odd = "https://agent.example.org/a'b $(id)/mcp"
    words = shlex.split(way(program, odd, name="my desk").text)
    assert odd in words and "my desk" in words
    assert words[1:3] == ["mcp", "add"]


def test_what_comes_from_the_internet_is_told_of_public_addresses_alone() -> None:
    assert way("claude.ai and Claude Desktop").text == URL
    assert way("ChatGPT").text == URL
    started = "~/ostiary/scripts/ostiary"
    assert way("Claude Desktop", HERE, ostiary=started).text == f"{started} install claude-desktop {HERE}"
    assert (way("ChatGPT", HERE).text, way("ChatGPT", HERE).link) == ("", "")
    assert "public https address" in way("ChatGPT", "http://agent.example.org/mcp").how


def test_every_program_has_its_place_once() -> None:
    for url in (URL, HERE):
        found = [each.program for each in ways(url)]
        assert len(found) == len(set(found)) == len(ORDER)
