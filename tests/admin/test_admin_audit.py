"""Commands for the audit trail and the signing keys (server/admin/audit_commands.py, token_key_commands.py): pages, pieces, bad arguments."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from auth.audit import audit_search, audit_trail
from auth.audit.audit_search import STRETCH
from auth.identity import Identity
from auth.values.database import Db
from server.admin import audit_commands as admin_audit
from server.admin.audit_commands import AuditAdmin
from server.admin.control import CommandRefused, Handler
from server.admin.token_key_commands import KeysAdmin
from tests.auth.identity_fakes import DAY, START, Clock, open_identity


@asynccontextmanager
async def table(clock: Clock | None = None) -> AsyncGenerator[tuple[Identity, Mapping[str, Handler]]]:
    async with open_identity(clock=clock) as identity:
        yield (
            identity,
            {
                **AuditAdmin(
                    store=identity.parts.store,  # type: ignore[arg-type]
                    clock=identity.parts.clock,
                    subkey=identity.parts.subkey,
                    committed_head=lambda: None,
                    written_heads=lambda: (),
                ).commands(),
                **KeysAdmin(parts=identity.parts).commands(),
            },
        )


def fill(db: Db, count: int, *, first: int = 1) -> None:
    for number in range(first, first + count):
        audit_trail.record(
            db,
            at=START + number,
            event="test.even" if number % 2 == 0 else "test.odd",
            actor=f"user:u{number % 3}",
            outcome="refused" if number % 5 == 0 else "ok",
            client_id=f"c{number % 4}",
            grant_id=f"g{number % 7}",
            reason=str(number),
        )


async def pages(commands: Mapping[str, Handler], **wanted: Any) -> list[int]:
    """Every row's number, page by page."""
    found: list[int] = []
    at: int | None = None
    while True:
        page = await commands["audit"]({**wanted, "at": at}, "local:0")
        assert len(page["rows"]) <= wanted.get("at_most", admin_audit.ROWS_AT_MOST)
        found += [row["seq"] for row in page["rows"]]
        at = page["go_on"]
        if at is None:
            return found


@pytest.mark.parametrize("at_most", [1, 7, 50, 2_000])
async def test_pages_come_to_the_end_either_way_and_show_each_row_once(at_most: int) -> None:
    async with table() as (identity, commands):
        before = len(await pages(commands))
        await identity.parts.store.write(lambda db: fill(db, 49))
        everything = list(range(1, before + 50))
        assert await pages(commands, oldest_first=True, at_most=at_most) == everything
        assert await pages(commands, oldest_first=False, at_most=at_most) == everything[::-1]


@pytest.mark.parametrize(
    ("wanted", "numbers"),
    [
        ({"events": ["test.even"]}, [2, 4, 6, 8, 10, 12]),
        ({"events": ["test"]}, list(range(1, 13))),
        ({"events": ["tes"]}, []),
        ({"events": ["test."]}, []),
        ({"events": ["test.odd", "test.even"], "outcome": "refused"}, [5, 10]),
        ({"events": ["test"], "actor": "user:u1"}, [1, 4, 7, 10]),
        ({"events": ["test"], "client_id": "c3"}, [3, 7, 11]),
        ({"events": ["test"], "grant_id": "g0"}, [7]),
        ({"events": ["test"], "since": START + 9}, [9, 10, 11, 12]),
        ({"events": ["test"], "since": START + 9, "until": START + 11}, [9, 10]),
        ({"actor": "user:' OR 1=1 --"}, []),
        ({"events": ["%"]}, []),
    ],
)
async def test_only_what_is_wanted_is_shown(wanted: dict[str, Any], numbers: list[int]) -> None:
    async with table() as (identity, commands):
        before = len(await pages(commands))
        await identity.parts.store.write(lambda db: fill(db, 12))
        found = await pages(commands, oldest_first=True, **wanted)
        assert [seq - before for seq in found] == numbers


async def test_a_rare_row_is_found_in_bounded_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_search, "STRETCH", 10)
    async with table() as (identity, commands):
        await identity.parts.store.write(lambda db: fill(db, 95))
        first = await commands["audit"]({"events": ["user.added"]}, "local:0")
        assert (first["rows"], first["go_on"] is None) == ([], False)  # ten rows were looked at, and no more
        assert len(await pages(commands, events=["user.added"])) == 1
        assert len(await pages(commands, events=["user.added"], oldest_first=True)) == 1
    assert STRETCH == 20_000


async def test_a_reason_names_people_and_keeps_what_was_written() -> None:
    async with table() as (identity, commands):

        def written(db: Db) -> tuple[str, str]:
            row = db.fetch_one("SELECT id, name FROM users")
            assert row is not None
            for reason in (f"pro to user:{row['id']}", f"{row['id']} {row['name']}", "usr_nobody is gone"):
                audit_trail.record(db, at=START, event="plan.granted", actor="local:0", reason=reason)
            return row["id"], row["name"]

        user_id, name = await identity.parts.store.write(written)
        gone, twice, given = (await commands["audit"]({}, "local:0"))["rows"][:3]
        assert (given["reason"], given["why"]) == (f"pro to user:{user_id}", f"pro to user:{name}")
        assert twice["why"] == name, "an id beside its name is no second name"
        assert gone["why"] == "usr_nobody is gone"


async def test_an_empty_trail_is_one_empty_page() -> None:
    async with table() as (identity, commands):
        await identity.parts.store.write(lambda db: db.execute("DELETE FROM audit"))
        assert await commands["audit"]({}, "local:0") == {"rows": [], "go_on": None}


async def test_the_check_goes_on_where_the_last_answer_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_audit, "PIECE", 10)
    monkeypatch.setattr(admin_audit, "PIECES", 2)
    async with table() as (identity, commands):
        before = len(await pages(commands))
        await identity.parts.store.write(lambda db: fill(db, 55))
        checked, at, answers = 0, None, 0
        while True:
            answer = await commands["audit.verify"]({"at": at, "expect": 3}, "local:0")
            checked, at, answers = checked + answer["checked"], answer["at"], answers + 1
            assert answer["expected"]
            assert answer["broken"] is None
            if answer["done"]:
                break
        assert checked == before + 55
        assert answers == -(-checked // 20)
        await identity.parts.store.write(
            lambda db: db.execute("UPDATE audit SET reason = 'x' WHERE seq = 44")
        )
        answer = await commands["audit.verify"]({"at": None}, "local:0")
        assert answer["broken"] is None
        answer = await commands["audit.verify"]({"at": answer["at"]}, "local:0")
        answer = await commands["audit.verify"]({"at": answer["at"]}, "local:0")
        assert answer["broken"] == {"seq": 44, "what": "altered"}


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("audit", {"at": -1}),
        ("audit", {"at": "1"}),
        ("audit", {"at": True}),
        ("audit", {"at": 2**63}),
        ("audit", {"since": 1.5}),
        ("audit", {"events": "key"}),
        ("audit", {"events": [7]}),
        ("audit", {"events": ["e"] * 21}),
        ("audit", {"actor": "x" * 513}),
        ("audit", {"client_id": ["c"]}),
        ("audit.verify", {"at": 7}),
        ("audit.verify", {"at": {"seq": "7"}}),
        ("audit.verify", {"at": {"seq": 7, "mac": 7}}),
        ("audit.verify", {"expect": "head"}),
    ],
)
async def test_an_argument_of_another_kind_is_refused_in_words(name: str, arguments: dict[str, Any]) -> None:
    async with table() as (_, commands):
        with pytest.raises(CommandRefused):
            await commands[name](arguments, "local:0")


# ---------------------------------------------------------------- keys


async def test_keys_are_listed_with_what_they_do_and_nothing_private() -> None:
    clock = Clock()
    async with table(clock) as (identity, commands):

        async def states(use: str) -> list[str]:
            return [key["state"] for key in await commands["keys"]({}, "local:7") if key["use"] == use]

        assert (await states("access"), await states("refresh")) == (["signing"], ["writing"])
        made = await commands["keys.rotate"]({}, "local:7")
        assert (made["signs_from"], made["refresh_key"]) == (START + DAY, "rt2")
        assert (await states("access"), await states("refresh")) == (["next", "signing"], ["writing", "old"])
        again = await commands["keys.rotate"]({}, "local:7")
        assert (again["made"], again["refresh_key"]) == (False, "rt2")
        clock.now += DAY
        assert await states("access") == ["signing", "old"]
        replaced = await commands["keys.replace"]({}, "local:7")
        assert await states("access") == ["signing", "retired", "retired"]
        assert await states("refresh") == ["writing", "old", "old"]
        listed = await commands["keys"]({}, "local:7")
        assert (listed[0]["kid"], listed[3]["kid"]) == (replaced["kid"], replaced["refresh_key"])
        assert {frozenset(key) for key in listed} == {
            frozenset({"kid", "use", "algorithm", "state", "created_at", "since", "until"})
        }
        dropped = (await commands["keys.replace_all"]({}, "local:7"))["dropped"]
        assert dropped == [replaced["kid"], "rt1", "rt2", "rt3"]
        assert await states("refresh") == ["writing", "retired", "retired", "retired"]
        actors = await identity.parts.store.read(
            lambda db: db.fetch_all("SELECT DISTINCT actor FROM audit WHERE event LIKE 'key.%'")
        )
        assert {row["actor"] for row in actors} == {"local:setup", "local:7"}


async def test_a_key_that_was_dropped_before_its_time_never_signed() -> None:
    async with table() as (_, commands):
        waiting = (await commands["keys.rotate"]({}, "local:7"))["kid"]
        await commands["keys.replace"]({}, "local:7")
        (dropped,) = [key for key in await commands["keys"]({}, "local:7") if key["kid"] == waiting]
        assert (dropped["state"], dropped["since"]) == ("retired", None)


async def test_a_fourth_key_is_refused_with_a_way_to_see_when_there_is_room() -> None:
    clock = Clock()
    async with table(clock) as (_, commands):
        await commands["keys.rotate"]({}, "local:7")
        clock.now += DAY
        await commands["keys.rotate"]({}, "local:7")
        clock.now += DAY
        with pytest.raises(CommandRefused, match="3 keys") as caught:
            await commands["keys.rotate"]({}, "local:7")
        assert "keys list" in caught.value.hint


async def test_the_self_test_is_run_on_demand() -> None:
    async with table() as (_, commands):
        assert await commands["self_test"]({}, "local:0") == {"problems": []}
