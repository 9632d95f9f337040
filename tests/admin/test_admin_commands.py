"""The commands behind the admin socket (server/admin/command_table.py): what they make of bad arguments and of a store that cannot."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from auth.clients import client_registry as clients
from auth.identity import Identity
from auth.people import user_accounts
from server.admin.command_table import Admin
from server.admin.control import CommandRefused, Handler
from server.store.jobs import DiskFull, StoreDamaged
from tests.auth.identity_fakes import ORIGIN, open_identity, post
from tests.sealing import by_hand


@asynccontextmanager
async def table(**store: Any) -> AsyncGenerator[tuple[Identity, Mapping[str, Handler]]]:
    async with open_identity() as identity:
        admin = Admin(
            store=store.get("store") or identity.parts.store,  # type: ignore[arg-type]
            clock=identity.parts.clock,
            subkey=identity.parts.subkey,
            status=dict,
            look_at_store=look_at_store,
            origin=lambda: ORIGIN,
            scopes=identity.parts.site.scopes,
            login_ms=identity.parts.policy.tokens.device_login_ms,
        )
        yield identity, admin.commands()


async def look_at_store() -> dict[str, Any]:
    return {"problem": "", "hint": ""}


class Damaged:
    async def read(self, job: object) -> object:
        raise StoreDamaged("the database file is damaged")


class FullDisk:
    async def write(self, job: object) -> object:
        raise DiskFull("the disk is full")

    async def read(self, job: object) -> object:
        raise AssertionError("nothing is read")


async def test_a_full_disk_is_told_to_whoever_can_free_some_space() -> None:
    async with table(store=FullDisk()) as (_, commands):
        with pytest.raises(CommandRefused, match="the disk is full") as caught:
            await commands["deny"]({"id": "dev_x"}, "local:0")
        assert caught.value.hint == DiskFull.hint


async def test_damage_is_told_with_what_to_do_and_status_answers_all_the_same() -> None:
    async with table(store=Damaged()) as (_, commands):
        with pytest.raises(CommandRefused, match="the database file is damaged") as caught:
            await commands["pending"]({}, "local:0")
        assert caught.value.hint == StoreDamaged.hint
        told = await commands["status"]({}, "local:0")
    assert told == {"store": {"problem": "the database file is damaged", "hint": StoreDamaged.hint}}


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("approve", {"id": "dev_x", "scope": ["mcp"]}),
        ("approve", {"id": "dev_x", "scope": ""}),
        ("approve", {"id": 7}),
        ("clients.add", {"name": "a", "id": 7}),
        ("clients.add", {"name": "a", "scope": 7}),
        ("clients.add", {"name": "a", "auth_method": ["none"]}),
        ("clients.add", {"name": "a", "grant_types": "refresh_token"}),
        ("clients.add", {"name": "a", "redirect_uris": [7]}),
        ("clients.add", {"name": "a", "redirect_uris": ["http://127.0.0.1/x"] * 11}),
        ("clients.add", {"name": "a", "redirect_uris": ["http://127.0.0.1/" + "x" * 2_048]}),
        ("clients.add", {"name": "a", "public_key": 7}),
        ("clients.add", {"name": "a", "public_key": "x"}),
        ("clients.add", {"name": "a", "jwks_uri": ["https://a.example"]}),
        ("clients.add", {"name": "a", "introspects": True}),
        ("clients.add", {"name": "a", "grant_types": ["client_credentials"]}),
        ("clients.add", {"name": "a", "grant_types": ["authorization_code"]}),
        ("clients.remove", {"id": "ostiary-cli"}),
        ("clients.remove", {"id": "nobody"}),
        ("clients.rotate_secret", {"id": "ostiary-cli"}),
        ("clients.rotate_secret", {}),
        ("revoke", {}),
        ("find", {"code": "x" * 1_000}),
    ],
)
async def test_an_argument_of_another_kind_is_refused_in_words_and_changes_nothing(
    name: str, arguments: dict[str, Any]
) -> None:
    async with table() as (identity, commands):
        before = await identity.parts.store.read(clients.listing)
        with pytest.raises(CommandRefused):
            await commands[name](arguments, "local:0")
        assert await identity.parts.store.read(clients.listing) == before


async def test_less_than_was_asked_for_can_be_granted_at_the_machine() -> None:
    async with table() as (identity, commands):
        await identity.handle(post("/device_authorization", client_id=clients.CLI_CLIENT_ID))
        (waiting,) = await commands["pending"]({}, "local:0")
        approved = await commands["approve"]({"id": waiting["id"], "scope": "mcp:tools"}, "local:0")
        assert (waiting["scope"], approved["scope"]) == ("mcp mcp:tools mcp:resources", "mcp:tools")


@pytest.mark.parametrize(
    ("named", "granted"),
    [
        ({}, "mcp mcp:tools:read"),
        ({"scope": None}, "mcp mcp:tools:read"),
        ({"scope": "financial"}, "financial"),
        ({"scope": "mcp financial"}, "mcp financial"),
    ],
)
async def test_what_moves_money_is_granted_at_the_machine_only_by_its_name(
    named: dict[str, Any], granted: str
) -> None:
    async with table() as (identity, commands):
        scope = "mcp financial mcp:tools:read"
        await identity.handle(post("/device_authorization", client_id=clients.CLI_CLIENT_ID, scope=scope))
        (waiting,) = await commands["pending"]({}, "local:0")
        assert waiting["scope"] == scope
        approved = await commands["approve"]({"id": waiting["id"], **named}, "local:0")
        assert approved["scope"] == granted


@pytest.mark.parametrize(("decided", "said"), [("approve", "approved already"), ("deny", "denied already")])
async def test_a_code_that_was_decided_is_told_so(decided: str, said: str) -> None:
    async with table() as (identity, commands):
        reply = await identity.handle(
            post("/device_authorization", client_id=clients.CLI_CLIENT_ID, scope="mcp")
        )
        assert reply is not None
        code = json.loads(reply.body)["user_code"]
        (waiting,) = await commands["pending"]({}, "local:0")
        await commands[decided]({"id": waiting["id"]}, "local:0")
        with pytest.raises(CommandRefused, match=said):
            await commands["find"]({"code": code}, "local:0")


async def test_a_claim_link_is_made_until_the_server_has_its_owner() -> None:
    async with table() as (identity, commands):
        made = await commands["claim"]({}, "local:0")
        assert made["url"].startswith(ORIGIN + "/claim/")
        await identity.parts.store.write(by_hand("UPDATE users SET state = 'enabled'"))
        assert await identity.parts.store.read(user_accounts.claimed)
        with pytest.raises(CommandRefused, match="has its owner already"):
            await commands["claim"]({}, "local:0")
