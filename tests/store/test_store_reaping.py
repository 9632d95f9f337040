"""Sweeping programs that registered themselves (server/store/reaping.py)."""

from __future__ import annotations

from typing import Any

import pytest
from store_engines import NOW, AnyStore
from test_store_maintenance import FAR, ids, insert

from auth.values.limits_and_lifetimes import RegistrationPolicy
from server.store import reaping
from server.store.jobs import StoreDb
from server.store.maintenance import sweep
from server.store.retention import Retention

UNUSED, IDLE = 100, 1_000
KEEP = Retention(clients_unused=UNUSED, clients_idle=IDLE)


async def swept(store: AnyStore) -> dict[str, int]:
    found = await sweep(store, owner="boot-1", clock=lambda: NOW, retention=KEEP)
    assert found is not None
    return found


async def left(store: AnyStore) -> list[Any]:
    return await store.read(lambda db: ids(db, "clients", "id"))


def client(db: StoreDb, client_id: str, kind: str = "dynamic", **fields: object) -> None:
    insert(
        db, "clients", id=client_id, **{"kind": kind, "created_at": NOW - IDLE, "state": "enabled", **fields}
    )


async def test_one_that_nobody_let_in_goes_after_a_week_and_one_that_was_let_in_after_a_season(
    store: AnyStore,
) -> None:
    def fill(db: StoreDb) -> None:
        client(db, "never", created_at=NOW - UNUSED)
        client(db, "never-but-young", created_at=NOW - UNUSED + 1)
        client(db, "idle", authorized_at=NOW - IDLE, last_used_at=NOW - IDLE)
        client(db, "idle-and-disabled", authorized_at=NOW - IDLE, last_used_at=NOW - IDLE, state="disabled")
        client(db, "let-in-long-ago", authorized_at=NOW - IDLE, last_used_at=NOW - IDLE + 1)
        client(db, "let-in-lately", authorized_at=NOW - IDLE + 1)
        for kind in ("registered", "builtin"):
            client(db, kind, kind, created_at=0)

    await store.write(fill)
    assert (await swept(store))["clients"] == 3
    assert await left(store) == [
        "builtin",
        "let-in-lately",
        "let-in-long-ago",
        "never-but-young",
        "registered",
    ]


LIVE: dict[str, dict[str, object]] = {
    "grants": {"expires_at": FAR, "idle_until": FAR},
    "device_codes": {"expires_at": NOW + 1},
    "authorization_codes": {"expires_at": NOW + 1},
    "pushed_requests": {"expires_at": NOW + 1},
}


@pytest.mark.parametrize("table", LIVE)
async def test_one_with_something_under_way_stays(store: AnyStore, table: str) -> None:
    def fill(db: StoreDb) -> None:
        client(db, "busy", authorized_at=1, last_used_at=1)
        client(db, "new", created_at=1)
        for client_id in ("busy", "new"):
            texts = {"device_codes": ("id", "device_code_hash", "user_code_mac"), "grants": ("id",)}
            names = texts.get(table, ("id", "code_hash") if table == "authorization_codes" else ("uri_hash",))
            insert(db, table, client_id=client_id, **dict.fromkeys(names, client_id), **LIVE[table])

    await store.write(fill)
    assert (await swept(store))["clients"] == 0
    assert await left(store) == ["busy", "new"]


async def test_what_is_left_of_its_logins_goes_with_it_and_every_process_hears(store: AnyStore) -> None:
    heard: list[tuple[str, str]] = []
    store.on_changes(lambda changes: heard.extend((one.kind, one.entity_id) for one in changes))

    def fill(db: StoreDb) -> None:
        client(db, "over", authorized_at=1, last_used_at=1)
        client(db, "other", "registered")
        insert(db, "users", id="u")
        # Over, but not yet so long that they would be swept by themselves.
        insert(db, "grants", id="revoked", client_id="over", expires_at=FAR, idle_until=FAR, revoked_at=NOW)
        insert(db, "grants", id="expired", client_id="over", expires_at=NOW, idle_until=NOW)
        insert(db, "grants", id="of-another", client_id="other", expires_at=NOW, idle_until=NOW)
        insert(db, "device_codes", id="d", client_id="over", expires_at=NOW)
        insert(db, "consents", user_id="u", client_id="over", expires_at=FAR)

    await store.write(fill)
    assert (await swept(store))["clients"] == 1
    assert await left(store) == ["other"]
    assert await store.read(lambda db: ids(db, "grants", "id")) == ["of-another"]
    for table in ("device_codes", "consents"):
        assert await store.read(lambda db, t=table: ids(db, t, "client_id")) == []
    assert ("client", "over") in heard


async def test_more_than_a_piece_goes_in_small_writes(store: AnyStore) -> None:
    def fill(db: StoreDb) -> None:
        for number in range(2 * reaping.PIECE + 1):
            client(db, f"c{number:03}", created_at=1)

    await store.write(fill)
    assert (await swept(store))["clients"] == 2 * reaping.PIECE + 1


async def test_those_that_are_kept_hide_none_behind_them(
    store: AnyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However few are looked at at once, and also where several were registered at the same moment."""
    monkeypatch.setattr(reaping, "LOOKED_AT", 2)

    def fill(db: StoreDb) -> None:
        for number in range(9):
            busy: dict[str, object] = {"expires_at": NOW + 1, "client_id": f"new{number}"}
            client(db, f"new{number}", created_at=1 + number // 3)
            client(db, f"old{number}", created_at=1, authorized_at=1, last_used_at=NOW if number % 2 else 1)
            if number % 2:
                insert(db, "device_codes", id=f"{number}", device_code_hash=f"{number}", user_code_mac=f"{number}", **busy)  # fmt: skip

    await store.write(fill)
    assert (await swept(store))["clients"] == 10
    assert await left(store) == [*(f"new{number}" for number in (1, 3, 5, 7)), *(f"old{number}" for number in (1, 3, 5, 7))]  # fmt: skip


async def test_one_that_was_let_in_between_the_look_and_the_write_stays(store: AnyStore) -> None:
    def fill(db: StoreDb) -> None:
        client(db, "lucky", created_at=1)

    await store.write(fill)
    found = await store.read(lambda db: reaping.find(db, "unused", unused=NOW, idle=NOW - IDLE, now=NOW))
    assert found.ids == ["lucky"]
    await store.write(
        lambda db: db.execute("UPDATE clients SET authorized_at = ?, last_used_at = ?", NOW, NOW)
    )
    assert (
        await store.write(lambda db: reaping.delete(db, ids=found.ids, unused=NOW, idle=NOW - IDLE, now=NOW))
        == 0
    )
    assert await left(store) == ["lucky"]


def test_the_policy_and_the_broom_agree() -> None:
    policy, keep = RegistrationPolicy(), Retention()
    assert (keep.clients_unused, keep.clients_idle) == (policy.unused_ms, policy.idle_ms)
    assert keep.attempts >= policy.per_network_ms
