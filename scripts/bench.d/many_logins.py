"""A server with very many logins beside one with few: how soon it answers, and how fast it refreshes. The rows are written into its
database while it stands still, each login a copy of one that was made, with an id of its own and one of many people's.
"""

from __future__ import annotations

import os
import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path
from statistics import median
from typing import Any, Final

import logins
import startup
from logins import Logins
from targets import Broken, Cores, ostiary, ostiary_source, running, seal_database

from auth.grants.refresh_tokens import ChainLink, write
from auth.keys import refresh_token_keys as refresh_keys
from server.calls.servers.server_opening import subkeys
from server.store import meta_rows
from server.store.data_directory import DataDirectory
from server.store.job_connection import Facade
from server.store.keyfile import open_key
from server.store.sqlite_connect import connect_writer

FEW: Final = 20_000  # in either database; that many are refreshed, one after the other, so that no page is used over and over
EACH: Final = 100  # logins of one person
CONNECTIONS: Final = 16
WARM_SECONDS: Final = 1
ID_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz234567"
MOST: Final = 10_000_000


def compare(
    count: int,
    *,
    rounds: int,
    seconds: int,
    repeats: int,
    cores: Cores,
    fresh: Callable[[], AbstractContextManager[Path]],
    say: Callable[[str], None],
) -> dict[str, Any]:
    """What was found of few and of `count`."""
    if not FEW <= count <= MOST:
        raise Broken(f"--logins takes {FEW} to {MOST}")
    found: dict[str, Any] = {"few": FEW, "many": count}
    with fresh() as few, fresh() as many:
        held = {"few": _made(few, FEW, cores, say), "many": _made(many, count, cores, say)}
        folders = {"few": few, "many": many}
        samples: dict[str, list[dict[str, float]]] = {"few": [], "many": []}
        for number in range(1, rounds + 1):
            for name, folder in folders.items():
                say(f"logins, round {number} of {rounds}: {name}")
                samples[name].append(_measure(folder, held[name], seconds, repeats, cores))
    for name, rows in samples.items():
        found |= {f"{name}_{key}": median(row[key] for row in rows) for key in rows[0]}
    return found


def _made(folder: Path, count: int, cores: Cores, say: Callable[[str], None]) -> Logins:
    """A data directory with so many logins, and tokens of `FEW` of them."""
    say(f"logins: writing {count:,}")
    with running(ostiary(folder, auth="oauth"), core=cores.server) as server:
        held = logins.log_in(server, logins.ours(folder))
    home = DataDirectory(folder / "data")
    with closing(connect_writer(home.database)) as connection:
        chosen = _fill(connection, count)
        db = Facade(connection, at=0, writable=False)
        known = meta_rows.get(db, meta_rows.KEY_FINGERPRINT)
        key = open_key(home.key_file, known_fingerprint=known, random_bytes=os.urandom, environment={})
        seal_key = subkeys(key)(refresh_keys.SEAL_PURPOSE)
        newest = max(
            (refresh_keys.unseal(row, seal_key) for row in refresh_keys.rows(db)),
            key=lambda one: one.version,
        )
    seal_database("--data-dir", str(home.path))
    held.refresh_tokens = [write(newest, link) for link in chosen]
    held.connections = CONNECTIONS
    return held


def _fill(connection: sqlite3.Connection, count: int) -> list[ChainLink]:
    cursor = connection.execute("SELECT * FROM grants")
    columns = [column[0] for column in cursor.description]
    login = dict(zip(columns, cursor.fetchone(), strict=True))
    cursor.close()
    draw = random.Random(count)
    ids = ["grt_" + "".join(draw.choices(ID_LETTERS, k=20)) for _ in range(count)]

    def rows() -> Iterator[tuple[object, ...]]:
        for number, grant_id in enumerate(ids):
            yield tuple({**login, "id": grant_id, "subject": f"usr_{number // EACH}"}.values())

    connection.execute("BEGIN")
    people = ((f"usr_{number}", f"person-{number}") for number in range(-(-count // EACH)))
    connection.executemany(
        "INSERT INTO users (id, name, role, state, scope, created_at) VALUES (?, ?, 'user', 'enabled', '*', 0)",
        people,
    )
    connection.executemany(f"INSERT INTO grants VALUES ({', '.join('?' * len(columns))})", rows())
    connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return [ChainLink(grant_id=grant_id, counter=login["counter"]) for grant_id in draw.sample(ids, FEW)]


def _measure(folder: Path, held: Logins, seconds: int, repeats: int, cores: Cores) -> dict[str, float]:
    starts = [startup.start_ms(ostiary_source(), folder) for _ in range(repeats)]
    with running(ostiary(folder, auth="oauth"), core=cores.server) as server:
        held.server = server
        _refresh(held, WARM_SECONDS, cores)
        before = server.cpu_seconds()
        result = _refresh(held, seconds, cores)
        spent = server.cpu_seconds() - before
        resident = server.resident_kib() / 1024
    return {
        "start_ms": median(starts),
        **{name: result[name] for name in ("per_second", "p50_ms", "p99_ms")},
        "cpu_us": spent / result["refreshes"] * 1e6,
        "resident_mib": resident,
    }


def _refresh(held: Logins, seconds: float, cores: Cores) -> dict[str, float]:
    with logins.refreshing(held, core=cores.load, seconds=seconds, rate=None) as result:
        pass
    return result
