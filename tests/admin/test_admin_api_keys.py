"""`ostiary api-keys` behind the admin socket (server/admin/api_key_commands.py): what is made, and what is refused in which words."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from auth.identity import Identity
from auth.people import user_accounts
from auth.tokens.presented_credentials import present
from auth.values.identity_model import Principal
from server.admin.api_key_commands import ApiKeyAdmin
from server.admin.control import CommandRefused, Handler
from server.settings.tool_selection import SelectableNames
from tests.auth.identity_fakes import DAY, ORIGIN, START, open_identity
from tests.sealing import by_hand

SERVERS = {
    "agent": SelectableNames(groups=("search",), tools=("find", "delete")),
    "other": SelectableNames(groups=(), tools=("echo",)),
}


@asynccontextmanager
async def table() -> AsyncGenerator[tuple[Identity, Mapping[str, Handler]]]:
    async with open_identity() as identity:
        admin = ApiKeyAdmin(
            store=identity.parts.store,
            clock=identity.parts.clock,
            scopes=identity.parts.site.scopes,
            servers=lambda: SERVERS,
        )
        yield identity, admin.commands()


async def test_a_key_that_was_made_comes_in_and_is_listed_without_itself() -> None:
    async with table() as (identity, commands):
        made = await commands["api_keys.make"](
            {
                "name": "ci",
                "server": "agent",
                "scope": "mcp:tools",
                "tools": "search,-delete",
                "lasts_ms": 7 * DAY,
            },
            "local:7",
        )
        who = await identity.check(present(None, server="agent", origin=ORIGIN, api_key=made["key"]))
        assert isinstance(who, Principal)
        assert (who.subject, who.scopes, who.tools) == (made["id"], {"mcp:tools"}, "search,-delete")
        (listed,) = (await commands["api_keys"]({}, "local:0")).rows
        assert {**listed, "key": made["key"]} == made
        assert (listed["created_by"], listed["expires_at"], listed["state"]) == (
            "local:7",
            START + 7 * DAY,
            "usable",
        )
        assert made["key"] not in str(listed)
        await commands["api_keys.revoke"]({"id": made["id"]}, "local:0")
        assert (await commands["api_keys"]({}, "local:0")).rows == []
        assert not isinstance(
            await identity.check(present(None, server="agent", origin=ORIGIN, api_key=made["key"])), Principal
        )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "name is missing"),
        ({"name": " "}, "name is missing"),
        ({"name": "a\nb"}, "not printable"),
        ({"name": "x" * 101}, "too long"),
        ({"name": "a", "server": "nowhere"}, "there is no server nowhere"),
        ({"name": "a", "scope": "mcp root"}, "root is no scope"),
        ({"name": "a", "scope": "*"}, r"\* is no scope"),
        ({"name": "a", "scope": "offline_access"}, "at least one scope"),
        ({"name": "a", "user": "nobody", "never": True}, "there is no user nobody"),
        ({"name": "a", "tools": "a b"}, "separated by commas"),
        ({"name": "a", "tools": "find,serch"}, "there is no tool or group serch"),
        ({"name": "a", "server": "other", "tools": "find"}, "there is no tool or group find"),
        ({"name": "a"}, "up to 3650 days"),
        ({"name": "a", "days": 9}, "up to 3650 days"),
        ({"name": "a", "never": "yes"}, "up to 3650 days"),
        ({"name": "a", "never": True, "lasts_ms": 9}, "up to 3650 days"),
        ({"name": "a", "lasts_ms": 0}, "up to 3650 days"),
        ({"name": "a", "lasts_ms": 3650 * DAY + 1}, "up to 3650 days"),
        ({"name": "a", "lasts_ms": True}, "up to 3650 days"),
        ({"name": "a", "lasts_ms": "9"}, "up to 3650 days"),
    ],
)
async def test_what_cannot_be_made_is_refused_in_words_and_changes_nothing(
    arguments: dict[str, Any], words: str
) -> None:
    async with table() as (_, commands):
        with pytest.raises(CommandRefused, match=words):
            await commands["api_keys.make"](arguments, "local:0")
        assert (await commands["api_keys"]({}, "local:0")).rows == []


async def test_a_selection_for_all_servers_may_name_what_one_of_them_has() -> None:
    async with table() as (_, commands):
        made = await commands["api_keys.make"]({"name": "a", "tools": "find,echo", "never": True}, "local:0")
        assert (made["tools"], made["server"], made["expires_at"], made["scope"]) == (
            "find,echo",
            None,
            None,
            "mcp",
        )


async def test_a_key_cannot_do_more_than_its_user_and_a_name_is_for_one() -> None:
    async with table() as (identity, commands):

        def lower(db: Any) -> None:
            by_hand("UPDATE users SET scope = 'mcp:tools'")(db)

        await identity.parts.store.write(lower)
        with pytest.raises(CommandRefused, match="more than its user") as caught:
            await commands["api_keys.make"]({"name": "a", "scope": "mcp", "never": True}, "local:0")
        assert "at most: mcp:tools" in caught.value.hint
        await commands["api_keys.make"]({"name": "a", "scope": "mcp:tools:read", "never": True}, "local:0")
        with pytest.raises(CommandRefused, match="there is a key called a"):
            await commands["api_keys.make"]({"name": "a", "scope": "mcp:tools", "never": True}, "local:0")


@pytest.mark.parametrize("arguments", [{}, {"id": "key_nobody"}, {"id": 7}])
async def test_what_is_no_key_cannot_be_revoked(arguments: dict[str, Any]) -> None:
    async with table() as (_, commands):
        with pytest.raises(CommandRefused):
            await commands["api_keys.revoke"](arguments, "local:0")


async def test_a_name_that_looks_like_an_id_is_taken_for_nobody_elses() -> None:
    async with table() as (identity, commands):
        owner = await identity.parts.store.read(user_accounts.owner)
        assert owner is not None

        def look_alike(db: Any) -> None:
            by_hand(
                "INSERT INTO users (id, name, role, state, scope, created_at)"
                " VALUES ('usr_other', ?, 'user', 'enabled', 'mcp', 0)",
                owner.id,
            )(db)

        await identity.parts.store.write(look_alike)
        order = {"name": "ci", "never": True, "scope": "mcp"}
        with pytest.raises(CommandRefused, match="the id of another"):
            await commands["api_keys.make"]({**order, "user": owner.id}, "local:0")
        made = await commands["api_keys.make"]({**order, "user": "usr_other"}, "local:0")
        assert made["user"] == owner.id, "that is the other's name"
        made = await commands["api_keys.make"]({**order, "name": "own", "user_id": owner.id}, "local:0")
        assert made["user"] == owner.name
