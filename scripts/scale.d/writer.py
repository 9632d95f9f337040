"""The one who writes, without the rest of the program: how many jobs it does for sixty-four that wait, and how many of them with one commit.
Each job asks and writes what a refresh does, of a login of its own, with its row in the trail."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio
from distance import distance
from guest import Guest
from house import House, Tables
from pair import Ground, fill

from auth.audit import audit_trail
from auth.grant_types.refresh_token_grant import _GRANT as GRANT  # pyright: ignore[reportPrivateUsage]
from auth.grants.token_request import REFRESH_EPOCH
from auth.values.database import AuditEntry
from server.cluster.postgres.postgres import open_postgres_store
from server.store.jobs import StoreDb
from server.store.sqlite import open_store
from server.store.threaded_store import ThreadedStore

CALLERS: Final = 64
LOGINS: Final = 1_000
TRIPS: Final = (0.0, 0.0005, 0.001)
ROTATE: Final = (
    "UPDATE grants SET counter = counter + 1, rotated_at = ?, last_used_at = ?, last_ip = ?, idle_until = ?"
    " WHERE id = ? AND counter = ? AND revoked_at IS NULL"
)


def measure(ground: Ground) -> None:
    sheet, seconds = ground.sheet, 1 if ground.quick else 5
    sheet.begin(f"the writer alone, {CALLERS} waiting")
    house = ground.house("writer", "")
    with house.serving(core=ground.cores.server) as server:
        Guest(server, house.home.path).log_in()
    fill(house, _logins)
    with house.tables() as tables:
        key = house.subkey(tables)(audit_trail.KEY_PURPOSE)
    for away in TRIPS if house.parameters is not None else (0.0,):
        with ExitStack() as held:
            parameters = house.parameters
            if parameters is not None and away:
                target = ("127.0.0.1", int(parameters["port"]))
                between = held.enter_context(distance(target, away))
                parameters = {**parameters, "host": "127.0.0.1", "port": str(between.port)}
            done, commits, inside = trio.run(_crowd, house.home.database, parameters, key, seconds)
        where = f", the database {away * 1e3:g} ms away" if away else ""
        sheet.add(f"refreshes{where}", None, done / seconds, "/s")
        sheet.add("  commits", None, commits / seconds, "/s")
        sheet.add("  together in one", None, done / commits, "")
        sheet.add("  one job, of the writer's time", None, inside / done * 1e3)


def _logins(house: House, tables: Tables) -> None:
    del house
    (model,) = tables.rows("SELECT * FROM grants")
    names = (("grt_" + f"{number:020}",) for number in range(LOGINS))
    tables.copies("grants", model, ("id",), names)


async def _crowd(
    database: Path, parameters: dict[str, str] | None, key: bytes, seconds: float
) -> tuple[int, int, float]:
    """How many jobs, how many commits, and how many seconds these took."""
    done = 0

    async def caller(number: int, store: ThreadedStore) -> None:
        nonlocal done
        turn = number
        while True:
            await store.write(partial(_refresh, login=f"grt_{turn % LOGINS:020}"))
            done += 1
            turn += CALLERS

    async with opened(database, parameters) as store:
        store.chain_audit(key)
        await store.write(partial(_refresh, login=f"grt_{0:020}"))
        commits, inside, done = store.health.commits, store.health.commit_seconds, 0
        with trio.move_on_after(seconds):
            async with trio.open_nursery() as nursery:
                for number in range(CALLERS):
                    nursery.start_soon(caller, number, store)
        return done, store.health.commits - commits, store.health.commit_seconds - inside


@asynccontextmanager
async def opened(database: Path, parameters: dict[str, str] | None) -> AsyncGenerator[ThreadedStore]:
    clock = _now
    if parameters is None:
        async with open_store(database, clock=clock, backups=database.parent / "backups") as store:
            yield store
    else:
        async with open_postgres_store(parameters, clock=clock) as store:
            yield store


def _now() -> int:
    return time.time_ns() // 1_000_000


def _refresh(db: StoreDb, *, login: str) -> Any:
    now = _now()
    db.foresee(GRANT, REFRESH_EPOCH, login)
    db.fetch_one("SELECT * FROM clients WHERE id = ?", "ostiary-cli")
    row = db.fetch_one(GRANT, REFRESH_EPOCH, login)
    if row is None:
        raise LookupError(login)
    db.execute(ROTATE, now, now, "127.0.0.1", now + 10**9, login, row["counter"])
    db.audit(
        AuditEntry(
            now, "refresh.rotated", "client:ostiary-cli", "ostiary-cli", login, "127.0.0.1", "", "ok", ""
        )
    )
