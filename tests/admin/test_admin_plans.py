"""`ostiary plans` behind the admin socket (server/admin/plan_commands.py): who can be put on what, and in which words somebody cannot."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from auth.identity import Identity
from auth.values.database import Db
from server.admin.control import CommandRefused, Handler
from server.admin.plan_commands import PlanAdmin
from server.payments.seller.plan_grants import active_plans
from server.payments.seller.plans import Plans
from server.settings.money_settings import PlanConfig
from tests.auth.identity_fakes import DAY, START, open_identity
from tests.sealing import by_hand

PLANS = Plans(
    [PlanConfig(name="pro", words="A lot", calls=9), PlanConfig(name="pass", unlimited=True, days=7)]
)


@asynccontextmanager
async def table() -> AsyncGenerator[tuple[Identity, Mapping[str, Handler]]]:
    async with open_identity() as identity:
        store: Any = identity.parts.store
        yield identity, PlanAdmin(store=store, clock=identity.parts.clock, plans=PLANS.rules).commands()


async def owner(identity: Identity) -> str:
    row = await identity.parts.store.read(
        lambda db: db.fetch_one("SELECT id FROM users WHERE name = 'owner'")
    )
    assert row is not None
    return row["id"]


async def trail(identity: Identity) -> list[tuple[str, str, str]]:
    rows = await identity.parts.store.read(
        lambda db: db.fetch_all(
            "SELECT event, actor, reason FROM audit WHERE event LIKE 'plan.%' ORDER BY seq"
        )
    )
    return [(row["event"], row["actor"], row["reason"]) for row in rows]


async def test_a_person_is_put_on_a_plan_and_taken_off_and_the_trail_says_by_whom() -> None:
    async with table() as (identity, commands):
        made = await commands["plans.grant"]({"who": "owner", "plan": "pro"}, "local:7")
        wallet = f"user:{await owner(identity)}"
        assert (made["wallet"], made["name"], made["plan"], made["words"]) == (
            wallet,
            "owner",
            "pro",
            "A lot",
        )
        assert (made["ends_at"], made["granted_by"], made["described"]) == (None, "local:7", True)
        store: Any = identity.parts.store
        assert await store.read(lambda db: active_plans(db, wallet, START)) == ["pro"]
        assert (await commands["plans"]({}, "local:0")).rows == [made]
        with pytest.raises(CommandRefused, match="is on the plan pro already"):
            await commands["plans.grant"]({"who": wallet, "plan": "pro"}, "local:7")
        ended = await commands["plans.end"]({"id": made["id"]}, "local:8")
        assert ended["ended_at"] == START
        assert (await commands["plans"]({}, "local:0")).rows == []
        assert await trail(identity) == [
            ("plan.granted", "local:7", f"pro to {wallet}"),
            ("plan.ended", "local:8", f"pro of {wallet}"),
        ]
        with pytest.raises(CommandRefused, match="to end"):
            await commands["plans.end"]({"id": made["id"]}, "local:8")


@pytest.mark.parametrize(
    ("arguments", "ends_at"),
    [
        ({"plan": "pass"}, START + 7 * DAY),
        ({"plan": "pass", "never": True}, None),
        ({"plan": "pass", "never": False, "lasts_ms": DAY}, START + DAY),
        ({"plan": "pro", "lasts_ms": DAY}, START + DAY),
    ],
)
async def test_a_plan_ends_as_it_says_unless_the_owner_says_otherwise(
    arguments: dict[str, Any], ends_at: int | None
) -> None:
    async with table() as (_, commands):
        made = await commands["plans.grant"]({"who": "owner", **arguments}, "local:0")
        assert made["ends_at"] == ends_at


@pytest.mark.parametrize(
    ("who", "wallet"),
    [
        (
            "payer:eip155:8453:0x52908400098527886E0F7030069857D2E4169EE7",
            "payer:eip155:8453:0x52908400098527886e0f7030069857d2e4169ee7",
        ),
        ("token:main/ci", "token:main/ci"),
        ("client:ostiary-cli", "client:ostiary-cli"),
    ],
)
async def test_a_wallet_of_nobody_with_a_name_is_named_as_it_is(who: str, wallet: str) -> None:
    async with table() as (_, commands):
        made = await commands["plans.grant"]({"who": who, "plan": "pro"}, "local:0")
        assert (made["wallet"], made["name"]) == (wallet, None)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "who is missing"),
        ({"who": 7, "plan": "pro"}, "who is missing"),
        ({"who": "owner"}, "plan is missing"),
        ({"who": "owner", "plan": "gold"}, "there is no plan gold"),
        ({"who": "ghost", "plan": "pro"}, "there is nobody called ghost"),
        ({"who": "user:ghost", "plan": "pro"}, "there is nobody called user:ghost"),
        ({"who": "client:ghost", "plan": "pro"}, "there is nobody called client:ghost"),
        ({"who": "wallet:x", "plan": "pro"}, "wallet:x is no wallet"),
        ({"who": "x" * 500, "plan": "pro"}, "too long"),
        ({"who": "owner", "plan": "pro", "lasts_ms": 0}, "a plan lasts up to 3660 days"),
        ({"who": "owner", "plan": "pro", "lasts_ms": True}, "a plan lasts"),
        ({"who": "owner", "plan": "pro", "lasts_ms": 4000 * DAY}, "a plan lasts"),
        ({"who": "owner", "plan": "pro", "lasts_ms": DAY, "never": True}, "a plan lasts"),
    ],
)
async def test_what_cannot_be_granted_is_refused_in_words_and_changes_nothing(
    arguments: dict[str, Any], words: str
) -> None:
    async with table() as (identity, commands):
        with pytest.raises(CommandRefused, match=words):
            await commands["plans.grant"](arguments, "local:0")
        assert (await commands["plans"]({}, "local:0")).rows == []
        assert await trail(identity) == []


async def test_a_plan_that_left_the_settings_is_listed_as_such() -> None:
    async with table() as (identity, commands):
        await commands["plans.grant"]({"who": "owner", "plan": "pro"}, "local:0")
        store: Any = identity.parts.store
        later = PlanAdmin(store=store, clock=identity.parts.clock, plans={})
        (listed,) = (await later.commands()["plans"]({}, "local:0")).rows
        assert (listed["described"], listed["words"]) == (False, "")
        with pytest.raises(CommandRefused, match="there is no plan pro") as refused:
            await later.commands()["plans.grant"]({"who": "owner", "plan": "pro"}, "local:0")
        assert "[[plan]]" in refused.value.hint


async def test_a_plan_for_a_key_is_its_owners_whose_wallet_pays_for_it() -> None:
    async with table() as (identity, commands):
        user_id = await owner(identity)

        def furnish(db: Db) -> None:
            by_hand(
                "INSERT INTO api_keys (id, name, user_id, key_hash, hint, scope, created_by, created_at)"
                " VALUES ('key_1', 'ci', ?, 'h', 'abcd', '', '', 0)",
                user_id,
            )(db)

        await identity.parts.store.write(furnish)
        made = await commands["plans.grant"]({"who": "key:key_1", "plan": "pro"}, "local:0")
        assert made["wallet"] == f"user:{user_id}"
        for nobody in ("key:nobody", "payer:eip155:8453:0x12"):
            with pytest.raises(CommandRefused):
                await commands["plans.grant"]({"who": nobody, "plan": "pro"}, "local:0")
