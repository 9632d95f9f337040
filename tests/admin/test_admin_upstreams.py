"""`ostiary upstream` behind the admin socket (server/admin/upstream_commands.py): what is shown is what is accepted, and nothing secret comes out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from server.admin.control import CommandRefused, Handler
from server.admin.upstream_commands import DIFF_PAGE, UpstreamAdmin
from server.agents.mcp.trust.definitions import MAX_KEPT, seal_of
from server.agents.mcp.trust.login_rows import handed_over
from server.agents.mcp.trust.upstream_registry import KnownUpstream, UpstreamRegistry
from tests.agents.mcp.trust.test_owner_login import login, owner
from tests.agents.mcp.trust.trust_fakes import (
    FakeAuthorizationServer,
    House,
    a_tool,
    lists,
    names,
    open_house,
    tokens,
)


async def table(house: House) -> tuple[UpstreamRegistry, KnownUpstream, Mapping[str, Handler]]:
    desk, known = await house.desk()
    known.login = owner(house, desk, FakeAuthorizationServer(tokens("never")))
    return desk, known, UpstreamAdmin(store=house.store, find_desk=lambda: desk).commands()


async def test_what_waits_is_listed_shown_accepted_and_then_waits_no_more() -> None:
    async with open_house() as house:
        _, known, commands = await table(house)
        known.guard.allowed(lists(a_tool(), a_tool("write")))
        listed = (await commands["upstreams"]({}, "local:0"))[0]
        assert (listed["upstream"], listed["tools"], listed["waiting_count"], listed["accepted"]) == (
            "main/files",
            2,
            2,
            0,
        )
        assert listed["waiting"][0] == {
            "kind": "tool",
            "name": "read",
            "since": house.clock(),
            "changed": False,
        }
        page = await commands["upstreams.diff"]({"upstream": "files", "tools": ["write"]}, "local:0")
        assert [(row["name"], row["old"]) for row in page.rows] == [("write", "")]
        assert "Reads a file" in page.rows[0]["new"]
        done = await commands["upstreams.accept"](
            {"upstream": "files", "tools": ["write"], "seal": page.rows[0]["seal"]}, "local:7"
        )
        assert done == {
            "upstream": "main/files",
            "accepted": [{"kind": "tool", "name": "write"}],
            "waiting": 1,
        }
        known.guard.allowed(lists(a_tool("write", "Another")))
        page = await commands["upstreams.diff"]({"upstream": "files"}, "local:0")
        row = page.rows[0]
        assert (row["accepted_by"], row["accepted_at"]) == ("local:7", house.clock())
        assert "Reads a file" in row["old"]
        assert "Another" in row["new"]


async def test_many_definitions_come_in_pages_that_say_what_the_whole_comes_to() -> None:
    async with open_house() as house:
        _, known, commands = await table(house)
        known.guard.allowed(lists(*(a_tool(f"t{n:02}") for n in range(DIFF_PAGE + 3))))
        first = await commands["upstreams.diff"]({"upstream": "files"}, "local:0")
        rest = await commands["upstreams.diff"]({"upstream": "files", "at": first.go_on}, "local:0")
        assert (len(first.rows), len(rest.rows), rest.go_on) == (DIFF_PAGE, 3, None)
        seals = {row["seal"] for row in (*first.rows, *rest.rows)}
        assert len(seals) == 1
        done = await commands["upstreams.accept"]({"upstream": "files", "seal": seals.pop()}, "local:7")
        assert len(done["accepted"]) == DIFF_PAGE + 3


async def test_what_changed_since_it_was_shown_is_not_accepted() -> None:
    async with open_house() as house:
        _, known, commands = await table(house)
        known.guard.allowed(lists(a_tool()))
        page = await commands["upstreams.diff"]({"upstream": "files"}, "local:0")
        known.guard.allowed(lists(a_tool(description="And sends.")))
        with pytest.raises(CommandRefused, match="offers something else by now"):
            await commands["upstreams.accept"]({"upstream": "files", "seal": page.rows[0]["seal"]}, "local:7")
        assert names(known.guard.allowed(lists(a_tool()))) == []


async def test_what_is_forgotten_has_to_be_accepted_again() -> None:
    async with open_house() as house:
        _, known, commands = await table(house)
        known.guard.allowed(lists(a_tool(), prompts=["greet"]))
        page = await commands["upstreams.diff"]({"upstream": "files"}, "local:0")
        await commands["upstreams.accept"]({"upstream": "files", "seal": page.rows[0]["seal"]}, "local:7")
        gone = await commands["upstreams.forget"]({"upstream": "files", "tools": ["prompt:greet"]}, "local:7")
        assert gone["forgotten"] == [{"kind": "prompt", "name": "greet"}]
        with pytest.raises(CommandRefused, match="nothing of main/files was accepted"):
            await commands["upstreams.forget"]({"upstream": "files", "tools": ["prompt:greet"]}, "local:7")


async def test_a_login_is_taken_listed_without_its_tokens_and_ended() -> None:
    async with open_house() as house:
        _, _, commands = await table(house)
        place = await commands["upstreams.place"]({"upstream": "main/files"}, "local:7")
        assert place == {"upstream": "main/files", "url": "https://files.example/mcp"}
        await commands["upstreams.login"]({"upstream": "files", "login": handed_over(login())}, "local:7")
        listed = await commands["upstreams"]({}, "local:0")
        assert listed[0]["login"] == {"since": house.clock(), "by": "local:7"}
        assert b"access-1" not in msgspec.json.encode(listed)
        await commands["upstreams.logout"]({"upstream": "files"}, "local:7")
        with pytest.raises(CommandRefused, match="there is no login"):
            await commands["upstreams.logout"]({"upstream": "files"}, "local:7")


@pytest.mark.parametrize(
    ("command", "arguments", "words"),
    [
        ("upstreams.diff", {"upstream": "nothing"}, "there is no upstream nothing"),
        ("upstreams.diff", {}, "upstream is missing"),
        ("upstreams.diff", {"upstream": "files", "tools": "read"}, "name at most"),
        ("upstreams.diff", {"upstream": "files", "tools": [3]}, "named by its name"),
        ("upstreams.diff", {"upstream": "files", "tools": ["nothing"]}, "nothing of this name"),
        ("upstreams.accept", {"upstream": "files"}, "seal is missing"),
        ("upstreams.login", {"upstream": "files", "login": {"access_token": "secret"}}, "that is no login"),
    ],
)
async def test_what_cannot_be_done_is_said_in_words(
    command: str, arguments: dict[str, Any], words: str
) -> None:
    async with open_house() as house:
        _, known, commands = await table(house)
        known.guard.allowed(lists(a_tool()))
        with pytest.raises(CommandRefused, match=words):
            await commands[command](arguments, "local:7")


async def test_a_server_without_upstreams_says_so() -> None:
    async with open_house() as house:
        commands = UpstreamAdmin(store=house.store, find_desk=lambda: None).commands()
        assert await commands["upstreams"]({}, "local:0") == []
        with pytest.raises(CommandRefused, match="has no upstream"):
            await commands["upstreams.diff"]({"upstream": "files"}, "local:0")


async def test_an_upstream_that_is_called_as_its_settings_say_has_no_login_of_the_owners() -> None:
    async with open_house() as house:
        _, known, commands = await table(house)
        known.login, known.identity = None, "token"
        with pytest.raises(CommandRefused, match="called as its settings say"):
            await commands["upstreams.place"]({"upstream": "files"}, "local:7")


async def test_a_definition_that_nobody_can_be_shown_whole_is_accepted_by_no_command() -> None:
    async with open_house() as house:
        desk, known, commands = await table(house)
        known.guard.allowed(lists(a_tool("long", "x" * MAX_KEPT), a_tool()))
        page = await commands["upstreams.diff"]({"upstream": "files"}, "local:0")
        assert {row["name"]: row["whole"] for row in page.rows} == {"long": False, "read": True}
        with pytest.raises(CommandRefused, match="larger than 64 KiB"):
            await commands["upstreams.accept"](
                {"upstream": "files", "tools": ["long"], "seal": page.rows[0]["seal"]}, "local:7"
            )
        forged = seal_of(desk.withheld(known, None))
        with pytest.raises(CommandRefused, match="something else"):
            await commands["upstreams.accept"]({"upstream": "files", "seal": forged}, "local:7")
        done = await commands["upstreams.accept"](
            {"upstream": "files", "seal": page.rows[0]["seal"]}, "local:7"
        )
        assert (done["accepted"], done["waiting"]) == ([{"kind": "tool", "name": "read"}], 1)
