"""The commands about people behind the admin socket (server/admin/people_commands.py): what they make of arguments of every kind."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from auth.grants import login_records as grants
from auth.identity import Identity
from auth.people import one_time_links, user_accounts
from auth.people.user_accounts import User
from server.admin.control import CommandRefused, Handler
from server.admin.people_commands import IDS, PeopleAdmin
from server.settings.tool_selection import SelectableNames
from tests.auth.identity_fakes import DAY, ORIGIN, START, Clock, logged_in, open_identity
from tests.sealing import by_hand

BY = "local:1000"


@asynccontextmanager
async def table(clock: Clock | None = None) -> AsyncGenerator[tuple[Identity, dict[str, Handler]]]:
    async with open_identity(clock=clock or Clock()) as identity:
        admin = PeopleAdmin(
            store=identity.parts.store,
            clock=identity.parts.clock,
            origin=lambda: ORIGIN,
            scopes=identity.parts.site.scopes,
            servers=lambda: {"agent": SelectableNames(groups=(), tools=("delete",))},
        )
        yield identity, admin.commands()


async def everything(identity: Identity) -> list[dict[str, Any]]:
    def job(db: Any) -> list[dict[str, Any]]:
        tables = ("users", "one_time_links", "grants", "browser_sessions", "audit")
        return [dict(row) for name in tables for row in db.fetch_all(f"SELECT * FROM {name}")]

    return await identity.parts.store.read(job)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("invite", {}),
        ("invite", {"name": ""}),
        ("invite", {"name": 7}),
        ("invite", {"name": "<b>"}),
        ("invite", {"name": "x" * 10_000}),
        ("invite", {"name": "bob", "scope": ["mcp"]}),
        ("invite", {"name": "bob", "scope": "root"}),
        ("invite", {"name": "bob", "scope": ""}),
        ("invite", {"name": "bob", "tools": 7}),
        ("invite", {"name": "bob", "tools": "x" * 3_000}),
        ("invite", {"name": "bob", "tools": "two words"}),
        ("invite", {"name": "bob", "tools": "no-such-tool"}),
        ("users.set", {"name": "owner", "tools": "readonly,-no-such-tool"}),
        ("invite", {"name": "bob", "account_ms": 0}),
        ("invite", {"name": "bob", "account_ms": -1}),
        ("invite", {"name": "bob", "account_ms": True}),
        ("invite", {"name": "bob", "account_ms": "30d"}),
        ("invite", {"name": "bob", "account_ms": 1.5}),
        ("invite", {"name": "bob", "account_ms": 10**18}),
        ("invite", {"name": "bob", "link_ms": 31 * DAY}),
        ("users", {"name": "ghost"}),
        ("users", {"name": 7}),
        ("users.set", {"name": "owner"}),
        ("users.set", {"name": "ghost", "scope": "mcp"}),
        ("users.set", {"name": "owner", "scope": 7}),
        ("users.disable", {}),
        ("users.lock", {"name": "a b"}),
        ("users.remove", {"name": None}),
        ("users.reset", {"name": "\u202e"}),
        ("sessions", {"user": "ghost"}),
        ("sessions", {"user": 7}),
        ("sessions", {"client": ""}),
        ("browsers", {"user": ""}),
        ("revoke", {}),
        ("revoke", {"all": "yes"}),
        ("revoke", {"all": 1}),
        ("revoke", {"ids": []}),
        ("revoke", {"ids": "grt_1"}),
        ("revoke", {"ids": [7]}),
        ("revoke", {"ids": ["x" * 101]}),
        ("revoke", {"ids": ["x"] * (IDS + 1)}),
        ("revoke", {"ids": ["brw_", "brw_%", "grt_x"]}),
        ("revoke", {"user": "ghost"}),
        ("revoke", {"user": ""}),
    ],
)
async def test_what_cannot_be_done_is_refused_in_words_and_changes_nothing(
    name: str, arguments: dict[str, Any]
) -> None:
    async with table() as (identity, commands):
        await logged_in(identity)
        before = await everything(identity)
        with pytest.raises(CommandRefused) as refused:
            await commands[name](arguments, BY)
        assert str(refused.value)
        assert await everything(identity) == before


async def test_an_invitation_has_its_link_its_terms_and_who_made_it() -> None:
    async with table() as (identity, commands):
        made = await commands["invite"](
            {"name": "Żółw", "tools": "readonly,-delete", "account_ms": DAY, "link_ms": 2 * DAY}, BY
        )
        assert made["url"].startswith(f"{ORIGIN}/invite/")
        assert (made["name"], made["invited_by"], made["expires_at"]) == ("żółw", BY, START + DAY)
        assert (made["tools"], made["link_expires_at"]) == ("readonly,-delete", START + 2 * DAY)
        assert made["scope"] == identity.parts.site.scopes.usual
        token = made["url"].rpartition("/")[2]
        assert len(token) == 32
        link = await identity.parts.store.read(
            lambda db: one_time_links.find(
                db, kind=one_time_links.INVITE, token=token, now=START + 2 * DAY - 1
            )
        )
        assert link is not None and link.user_id == made["id"]
        assert token not in str(await everything(identity))


async def test_the_usual_invitation_waits_three_days() -> None:
    async with table() as (_, commands):
        made = await commands["invite"]({"name": "bob"}, BY)
        assert made["link_expires_at"] == START + 3 * DAY
        assert (made["expires_at"], made["tools"]) == (None, "")


async def test_no_answer_about_people_holds_a_passphrase() -> None:
    async with table() as (identity, commands):
        await identity.parts.store.write(
            by_hand("UPDATE users SET passphrase_hash = '$argon2id$secret', state = 'enabled'")
        )
        await commands["invite"]({"name": "bob"}, BY)
        assert "argon2" not in str((await commands["users"]({}, BY)).rows)
        assert "argon2" not in str(await commands["users.set"]({"name": "owner", "tools": "all"}, BY))


async def test_resetting_somebody_who_has_not_come_yet_is_another_invitation() -> None:
    async with table() as (_, commands):
        await commands["invite"]({"name": "bob"}, BY)
        again = await commands["users.reset"]({"name": "bob"}, BY)
        assert (again["link"], "/invite/" in again["url"]) == ("invite", True)
        assert again["link_expires_at"] == START + one_time_links.INVITED_FOR


@pytest.mark.parametrize(
    ("state", "hint"),
    [("locked", "users unlock"), ("disabled", "users enable"), ("unclaimed", "ostiary claim")],
)
async def test_resetting_an_account_that_is_shut_says_what_opens_it(state: str, hint: str) -> None:
    async with table() as (identity, commands):
        await identity.parts.store.write(by_hand("UPDATE users SET state = ?", state))
        with pytest.raises(
            CommandRefused, match=r"^owner is (locked|disabled|not claimed yet) and cannot be reset$"
        ) as refused:
            await commands["users.reset"]({"name": "owner"}, BY)
        assert hint in refused.value.hint


async def test_logins_named_together_end_together_and_a_missing_one_is_named() -> None:
    async with table() as (identity, commands):
        await logged_in(identity)
        await logged_in(identity)
        first, second = [login["id"] for login in (await commands["sessions"]({}, BY)).rows]
        with pytest.raises(CommandRefused, match=f"no login grt_x to revoke; ended: {first}"):
            await commands["revoke"]({"ids": [first, "grt_x"]}, BY)
        (left,) = (await commands["sessions"]({}, BY)).rows
        assert left["id"] == second
        assert await commands["revoke"]({"all": True}, BY) == {"ended": 1, "more": False}
        assert await commands["revoke"]({"all": True}, BY) == {"ended": 0, "more": False}


async def test_an_account_that_is_over_is_listed_so_and_more_time_opens_it() -> None:
    clock = Clock()
    async with table(clock) as (identity, commands):
        await commands["invite"]({"name": "bob", "account_ms": DAY}, BY)
        await identity.parts.store.write(by_hand("UPDATE users SET state = 'enabled' WHERE name = 'bob'"))
        clock.now += DAY
        (bob,) = (await commands["users"]({"name": "bob"}, BY)).rows
        assert bob["over"]
        await commands["users.set"]({"name": "bob", "account_ms": DAY}, BY)
        (bob,) = (await commands["users"]({"name": "bob"}, BY)).rows
        assert (bob["over"], bob["expires_at"]) == (False, START + 2 * DAY)
        await commands["users.set"]({"name": "bob", "never": True}, BY)
        user = await identity.parts.store.read(lambda db: user_accounts.named(db, "bob"))
        assert isinstance(user, User) and user.expires_at is None


async def test_more_logins_than_one_write_ends_are_all_ended() -> None:
    async with table() as (identity, commands):
        await logged_in(identity)
        many = 2 * grants.PIECE + 1

        def copy(db: Any) -> None:
            (row,) = db.fetch_all("SELECT * FROM grants")
            for place in range(many - 1):
                each = {**row, "id": f"grt_{place:020}"}
                marks = ", ".join("?" * len(each))
                db.execute(f"INSERT INTO grants ({', '.join(each)}) VALUES ({marks})", *each.values())

        await identity.parts.store.write(copy)
        assert await commands["revoke"]({"user": "OWNER"}, BY) == {"ended": many, "more": False}
        assert (await commands["sessions"]({}, BY)).rows == []
