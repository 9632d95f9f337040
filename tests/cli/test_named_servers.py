"""`ostiary mcp`: names of one's own for servers, wherever a URL is taken."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from shell import Terminal

from server.client.client_errors import BadAddress, TokenFileError
from server.client.named_servers import Places, PlacesError, check_name
from tests.client.fake_server import FakeServer


async def test_a_name_stands_for_its_server_everywhere(logged_in: Terminal, fake: FakeServer) -> None:
    added = await logged_in.run("mcp", "add", "door", fake.url)
    assert (added.code, added.stdout) == (0, "")
    assert added.stderr == f"door stands for {fake.url}\nhint: ostiary tools door\n"
    other = await logged_in.run("mcp", "add", "other", "https://a.example/mcp")
    assert other.stderr == "other stands for https://a.example/mcp\nhint: ostiary login other\n"
    assert (await logged_in.run("mcp", "remove", "other")).code == 0
    assert (await logged_in.run("call", "door", "echo", "text=hello")).stdout == "hello\n"
    assert json.loads((await logged_in.run("tools", "door", "--json")).stdout)["url"] == fake.url
    assert json.loads((await logged_in.run("whoami", "door", "--json")).stdout)["url"] == fake.url
    listed = await logged_in.run("mcp", "list")
    assert listed.stdout == f"name  server{' ' * (len(fake.url) - 6)}  logged in\ndoor  {fake.url}  yes\n"
    removed = await logged_in.run("mcp", "remove", "door")
    assert (
        removed.stderr
        == f"door is forgotten\nhint: you are still logged in there: ostiary logout {fake.url}\n"
    )
    assert (await logged_in.run("mcp", "remove", "door")).code == 1
    assert "hint: ostiary mcp add" in (await logged_in.run("mcp", "list")).stderr


async def test_a_name_does_not_change_its_server_unasked(shell: Terminal) -> None:
    await shell.run("mcp", "add", "door", "https://a.example/mcp")
    assert (await shell.run("mcp", "add", "door", "https://a.example/mcp")).code == 0
    refused = await shell.run("mcp", "add", "door", "https://b.example")
    assert refused.code == 1
    assert "stands for https://a.example/mcp already" in refused.stderr
    replaced = await shell.run("mcp", "add", "door", "b.example", "--replace", "--json")
    assert json.loads(replaced.stdout) == {"name": "door", "url": "https://b.example/mcp"}
    kept = shell.config / "servers.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert json.loads(kept.read_text()) == {"version": 1, "servers": {"door": "https://b.example/mcp"}}


@pytest.mark.parametrize(
    "name", ["", "8420", "localhost", "a.example", "Door", "a:1", "-a", "a/b", "a b", "x" * 49, "é"]
)
def test_what_could_be_an_address_is_no_name(name: str) -> None:
    with pytest.raises(PlacesError):
        check_name(name)


def test_a_file_that_was_edited_by_hand_leads_nowhere_that_could_not_be_typed(tmp_path: Path) -> None:
    places = Places(tmp_path / "ostiary")
    places.put("door", "https://a.example/mcp")
    places.path.write_text('{"version": 1, "servers": {"door": "http://a.example/mcp"}}')
    with pytest.raises(BadAddress, match="in the clear"):
        places.get("door")
    places.path.write_text('{"version": 1, "servers": {"a.example": "https://evil.example/mcp"}}')
    assert places.all() == {}


@pytest.mark.parametrize("damaged", ["", "{", "[]", '{"version": 1, "servers": {"a": 5}}'])
def test_a_damaged_list_is_told_and_kept(tmp_path: Path, damaged: str) -> None:
    places = Places(tmp_path / "ostiary")
    places.put("door", "https://a.example/mcp")
    places.path.write_text(damaged)
    with pytest.raises(PlacesError, match="damaged"):
        places.put("other", "https://b.example/mcp")
    assert places.path.read_text() == damaged


def test_a_list_of_a_newer_version_or_open_to_others_is_left_alone(tmp_path: Path) -> None:
    places = Places(tmp_path / "ostiary")
    places.put("door", "https://a.example/mcp")
    places.path.write_text('{"version": 2, "servers": {}}')
    with pytest.raises(PlacesError, match="newer"):
        places.all()
    places.path.chmod(0o644)
    with pytest.raises(TokenFileError, match="by others"):
        places.all()


def test_a_word_that_is_no_name_does_not_even_look_into_a_broken_list(tmp_path: Path) -> None:
    places = Places(tmp_path / "ostiary")
    places.put("door", "https://a.example/mcp")
    places.path.write_text("{")
    assert places.get("https://a.example/mcp") is None
