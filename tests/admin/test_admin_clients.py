"""The commands for client programs (server/admin/client_commands.py): what becomes of their arguments, and what is answered."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from joserfc.jwk import ECKey

from auth.identity import Identity
from server.admin.client_commands import ClientAdmin
from server.admin.control import CommandRefused, Handler
from tests.auth.identity_fakes import open_identity

KEY = ECKey.generate_key("P-256", {"kid": "one"})
DEVICE = "urn:ietf:params:oauth:grant-type:device_code"


@asynccontextmanager
async def table() -> AsyncGenerator[tuple[Identity, Mapping[str, Handler]]]:
    async with open_identity() as identity:
        admin = ClientAdmin(
            store=identity.parts.store,
            clock=identity.parts.clock,
            scopes=identity.parts.site.scopes,
            servers=lambda: identity.parts.site.servers,
        )
        yield identity, admin.commands()


@pytest.mark.parametrize(
    ("arguments", "answered"),
    [
        ({}, {"auth_method": "none", "grant_types": (DEVICE, "refresh_token"), "client_secret": None}),
        (
            {"redirect_uris": ["https://app.example.org/cb"]},
            {"grant_types": ("authorization_code", DEVICE, "refresh_token")},
        ),
        (
            {"public_key": KEY.as_pem(private=False).decode(), "grant_types": ["client_credentials"]},
            {"auth_method": "private_key_jwt", "grant_types": ("client_credentials",), "client_secret": None},
        ),
        (
            {"public_key": json.dumps(KEY.as_dict(private=False))},
            {"auth_method": "private_key_jwt", "jwks_uri": None},
        ),
        (
            {"jwks_uri": "https://job.example/jwks"},
            {"auth_method": "private_key_jwt", "jwks_uri": "https://job.example/jwks"},
        ),
        (
            {"auth_method": "client_secret_post", "introspects": True},
            {"introspects": True, "grant_types": ()},
        ),
        ({"server": "agent"}, {"server": "agent"}),
    ],
)
async def test_what_is_not_said_follows_from_what_is(
    arguments: dict[str, Any], answered: dict[str, Any]
) -> None:
    async with table() as (_, commands):
        added = await commands["clients.add"]({"name": "Tool", **arguments}, "local:0")
        assert {name: added[name] for name in answered} == answered
        (listed,) = [
            one for one in (await commands["clients"]({}, "local:0")).rows if one["id"] == added["id"]
        ]
        assert listed == {name: added[name] for name in listed}
        assert set(added) - set(listed) == {"client_secret"}


async def test_a_private_key_that_gets_here_after_all_is_refused_and_kept_nowhere() -> None:
    async with table() as (identity, commands):
        for text in (KEY.as_pem(private=True).decode(), json.dumps(KEY.as_dict(private=True))):
            with pytest.raises(CommandRefused, match="private key"):
                await commands["clients.add"]({"name": "Tool", "public_key": text}, "local:0")
        found = await identity.parts.store.read(lambda db: db.fetch_all("SELECT id FROM clients"))
        assert [row["id"] for row in found] == ["ostiary-cli"]


async def test_every_change_is_in_the_audit_trail_with_who_made_it() -> None:
    async with table() as (identity, commands):
        made = await commands["clients.add"](
            {"name": "Tool", "id": "tool", "auth_method": "client_secret_basic"}, "local:7"
        )
        fresh = await commands["clients.rotate_secret"]({"id": "tool"}, "local:7")
        assert fresh["client_secret"] not in (None, made["client_secret"])
        for verb in ("disable", "enable", "remove"):
            assert await commands[f"clients.{verb}"]({"id": "tool"}, "local:7") == {"id": "tool"}
        with pytest.raises(CommandRefused, match="no client tool"):
            await commands["clients.remove"]({"id": "tool"}, "local:7")
        rows = await identity.parts.store.read(
            lambda db: db.fetch_all(
                "SELECT event, outcome FROM audit WHERE client_id = 'tool' AND actor = 'local:7' ORDER BY seq"
            )
        )
        assert [f"{row['event']} {row['outcome']}" for row in rows] == [
            "client.added ok",
            "client.secret_rotated ok",
            "client.disabled ok",
            "client.enabled ok",
            "client.removed ok",
            "client.removed refused",
        ]


async def test_a_client_cannot_be_for_a_server_that_is_not_there() -> None:
    async with table() as (_, commands):
        with pytest.raises(CommandRefused, match="there is no server cellar"):
            await commands["clients.add"]({"name": "Tool", "server": "cellar"}, "local:0")
