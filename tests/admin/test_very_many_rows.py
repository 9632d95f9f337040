"""A hundred thousand of each: what ends, lists or loads them works in pieces, and says how many there are."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio

from auth.administration import guest_accounts
from auth.grants import login_records as grants
from auth.identity import Identity, found
from auth.people import user_accounts
from auth.people.user_accounts import User
from auth.tokens import api_keys
from auth.values.database import Db
from auth.values.limits_and_lifetimes import Policy, TokenPolicy
from auth.values.sealed_rows import API_KEYS, TABLES
from server.admin.client_commands import ClientAdmin
from server.admin.control import Handler, ListPage
from server.admin.people_commands import PeopleAdmin
from server.admin.store_status import COUNTED, counted
from server.settings.tool_selection import SelectableNames
from server.store import inline_store
from server.store.jobs import Store
from server.store.sealed_rows import SealPlace, seal_piece
from tests.auth.identity_fakes import (
    DAY,
    ORIGIN,
    SITE,
    START,
    Clock,
    logged_in,
    open_identity,
    post,
    seeds,
    subkey,
)
from tests.auth.registration_fakes import sent
from tests.sealing import by_hand

MANY = 100_000
BY = "local:0"
PATIENCE = 300  # a bound, not an expectation: each takes some seconds

NUMBERS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"


def padded(expression: str, width: int) -> str:
    """A number below 10⁹ as so many digits, in any database."""
    return f"'{'0' * (width - 9)}' || substr(CAST(1000000000 + {expression} AS TEXT), 2)"


def bulk(table: str, row: Mapping[str, Any], varied: Mapping[str, str], db: Db) -> None:
    """Rows like this one, of which some columns are expressions over `i`."""
    row = {name: value for name, value in row.items() if name in varied or value is not None}
    columns = ", ".join(row)
    values = ", ".join(varied.get(name, "?") for name in row)
    rest = [value for name, value in row.items() if name not in varied]
    db.execute(f"INSERT INTO {table} ({columns}) {NUMBERS} SELECT {values} FROM n", MANY, *rest)


async def many_logins(identity: Identity) -> dict[str, Any]:
    """Of the owner; the last of them is a real one, whose tokens these are."""
    tokens = await logged_in(identity)

    def fill(db: Db) -> None:
        row = db.fetch_one("SELECT * FROM grants")
        assert row is not None
        bulk("grants", row, {"id": f"'grt_' || {padded('i', 20)}", "last_used_at": f"{START} - i"}, db)

    await identity.parts.store.write(fill)
    return tokens


def commands(identity: Identity) -> dict[str, Handler]:
    parts = identity.parts
    people = PeopleAdmin(
        store=parts.store,
        clock=parts.clock,
        origin=lambda: ORIGIN,
        scopes=parts.site.scopes,
        servers=lambda: {"agent": SelectableNames(groups=(), tools=())},
    )
    programs = ClientAdmin(
        store=parts.store, clock=parts.clock, scopes=parts.site.scopes, servers=lambda: parts.site.servers
    )
    return {**people.commands(), **programs.commands()}


async def every(command: Handler, arguments: Mapping[str, Any]) -> list[Any]:
    """All pages, as `control.ask` puts them together."""
    page, rows = await command(arguments, BY), list[Any]()
    while True:
        assert isinstance(page, ListPage)
        rows += page.rows
        if page.go_on is None:
            return rows
        page = await command({**arguments, "at": page.go_on}, BY)


@asynccontextmanager
async def patient() -> AsyncGenerator[Identity]:
    with trio.fail_after(PATIENCE):
        opened = partial(inline_store.open_inline_store, job_seconds=PATIENCE)
        async with open_identity(clock=Clock(START), opened=opened) as identity:
            yield identity


def second_owner(db: Db) -> None:
    by_hand(
        "INSERT INTO users (id, name, role, state, scope, created_at) VALUES ('usr_2', 'second', 'owner', 'enabled', '*', 0)"
    )(db)


@pytest.mark.parametrize("way", ["lock", "remove"])
async def test_a_person_with_very_many_logins_is_shut_out_in_one_go(way: str) -> None:
    async with patient() as identity:
        tokens = await many_logins(identity)
        store, now = identity.parts.store, identity.parts.clock()
        await store.write(second_owner)
        (owner,) = await store.read(lambda db: db.fetch_all("SELECT id, name FROM users WHERE id <> 'usr_2'"))
        shut = (
            partial(guest_accounts.remove, name=owner["name"], by=BY, now=now)
            if way == "remove"
            else partial(guest_accounts.switch, verb="lock", name=owner["name"], by=BY, now=now)
        )
        await store.write(by_hand("UPDATE users SET state = 'enabled'"))
        assert isinstance(await store.write(shut), User)
        assert (await store.read(partial(counted, now=now)))["logins"] == 0
        refresh = post(
            "/token",
            client_id="ostiary-cli",
            grant_type="refresh_token",
            refresh_token=tokens["refresh_token"],
        )
        assert (await sent(identity, refresh)).status == 400
        rows = await store.read(
            lambda db: db.fetch_all("SELECT reason FROM audit WHERE event = 'grant.revoked' ORDER BY seq")
        )
        assert len(rows) == 501, "each of some, and one that speaks for the rest"
        assert f"{MANY + 1 - 500} more logins" in rows[-1]["reason"]


async def test_very_many_logins_are_counted_listed_once_each_and_revoked() -> None:
    async with patient() as identity:
        await many_logins(identity)
        table, store, now = commands(identity), identity.parts.store, identity.parts.clock()
        status = await store.read(partial(counted, now=now))
        assert (status["logins"], status["more_logins"]) == (COUNTED, True)
        assert await table["sessions.count"]({"client": "ostiary-cli"}, BY) == {"logins": MANY + 1}
        listed = await every(table["sessions"], {})
        assert len(listed) == len({one["id"] for one in listed}) == MANY + 1
        for _ in "12":
            assert await table["revoke"]({"all": True}, BY) == {"ended": grants.AT_ONCE, "more": True}
        left = MANY + 1 - 2 * grants.AT_ONCE
        assert await table["sessions.count"]({}, BY) == {"logins": left}
        few = 300  # the others are as good as ended: nothing more is seen by ending each of them here
        await store.write(
            lambda db: db.execute(
                "UPDATE grants SET revoked_at = 1 WHERE id IN"
                " (SELECT id FROM grants WHERE revoked_at IS NULL ORDER BY id LIMIT ?)",
                left - few,
            )
        )
        assert await table["revoke"]({"all": True}, BY) == {"ended": few, "more": False}
        assert await every(table["sessions"], {}) == []


async def test_very_many_programs_browsers_and_people_are_listed_once_each() -> None:
    async with patient() as identity:
        store, table = identity.parts.store, commands(identity)

        def fill(db: Db) -> None:
            client = db.fetch_one("SELECT * FROM clients")
            user = db.fetch_one("SELECT * FROM users")
            assert client is not None
            assert user is not None
            bulk("clients", client, {"id": "'cli_' || i", "created_at": "i / 7", "kind": "'dynamic'"}, db)
            bulk("users", {**user, "role": "user"}, {"id": "'usr_' || i", "name": "'name' || i"}, db)
            browser = {
                "id_hash": "", "user_id": user["id"], "created_at": START, "auth_time": START, "last_used_at": 0,
                "expires_at": START + DAY, "ip": "", "user_agent": "",
            }  # fmt: skip
            bulk(
                "browser_sessions",
                browser,
                {
                    "id_hash": f"{padded('i * 7919', 24)} || {padded('i', 40)}",
                    "last_used_at": f"{START} - i",
                },
                db,
            )

        await store.write(fill)
        for name, there in (("clients", MANY + 1), ("users", MANY + 1), ("browsers", MANY)):
            listed = await every(table[name], {})
            assert len(listed) == len({one["id"] for one in listed}) == there


async def test_a_server_starts_with_very_many_keys_and_knows_those_that_live() -> None:
    async with patient() as identity:
        store, owner = identity.parts.store, await identity.parts.store.read(user_accounts.owner_id)
        row = {
            "id": "", "name": "", "user_id": owner, "key_hash": "", "hint": "abcd", "server": None, "scope": "mcp",
            "tools": "", "created_by": BY, "created_at": START, "revoked_at": START,
        }  # fmt: skip
        varied = {"id": "'key_' || i", "name": "'name' || i", "key_hash": padded("i", 64)}
        await store.write(partial(bulk, "api_keys", row, varied))
        await store.write(
            lambda db: db.execute(
                "UPDATE api_keys SET revoked_at = NULL WHERE CAST(substr(id, 5) AS INTEGER) <= ?",
                api_keys.MAX_KEYS,
            )
        )
        at: SealPlace | None = SealPlace(table=TABLES.index(API_KEYS))
        while at is not None:
            at = (await store.write(partial(seal_piece, place=at))).next
        clock = identity.parts.clock
        again = await found(store, clock=clock, entropy=seeds(7), subkey=subkey, site=SITE, policy=Policy())
        await again.key_ring.catch_up()
        assert len(again.key_ring) == api_keys.MAX_KEYS + api_keys.REVOKED_KNOWN
        for number in (1, api_keys.MAX_KEYS):
            assert again.key_ring.find(bytes.fromhex(f"{number:064}")) is not None


async def test_a_person_has_so_many_logins_and_the_one_that_was_unused_for_longest_makes_room() -> None:
    clock = Clock(START)
    policy = Policy(tokens=TokenPolicy(logins_per_person=3))
    async with open_identity(clock=clock, policy=policy) as identity:
        made: list[dict[str, Any]] = []
        for _ in range(3):
            made.append(await logged_in(identity))
            clock.now += 60_000

        async def refreshed(tokens: dict[str, Any]) -> int:
            form = {"client_id": "ostiary-cli", "grant_type": "refresh_token"}
            reply = await sent(identity, post("/token", refresh_token=tokens["refresh_token"], **form))
            if reply.status == 200:
                tokens.update(json.loads(reply.body))
            return reply.status

        assert await refreshed(made[0]) == 200  # now the second is the one that nobody used
        clock.now += 60_000
        made.append(await logged_in(identity))
        assert [await refreshed(each) for each in made] == [200, 400, 200, 200]
        store: Store = identity.parts.store  # pyright: ignore[reportAssignmentType]
        rows = await store.read(
            lambda db: db.fetch_all("SELECT reason FROM audit WHERE event = 'grant.revoked' ORDER BY seq")
        )
        assert [row["reason"] for row in rows] == ["another login took its place"]
