"""What is written for a login, a refresh, a call, a paid call, a task: transactions, rows, bytes, trips to the database; and how many are done
by sixty-four callers at once, also where the database is a network away."""

from __future__ import annotations

import json
import re
import selectors
import socket
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

import psycopg
from distance import Distance, distance
from guest import CLIENT, Guest
from house import House
from pair import Ground, Served
from psycopg.conninfo import make_conninfo
from targets import ROOT, Broken, Running, free_port
from wire import Incoming, call_request, exchange, form_request, open_connection, request

from tests.postgres_server import PostgresServer

SETTINGS: Final = f"""
[[server]]
name = "bench"
[[server.agent]]
kind = "demo"
[[server.agent]]
kind = "python"
file = "{ROOT / "scripts/bench.d/mixed_agent.py"}"
python = "{sys.executable}"
[server.tools.echo]
price = "$0.000001"
"""
ROUND_TRIP: Final = 0.0005
CALLERS: Final = 64
SETTLE_SECONDS: Final = 1.5  # until what was called is recorded, and the database has counted what was done
TABLES: Final = "SELECT relname, n_tup_ins AS inserted, n_tup_upd AS updated, n_tup_hot_upd AS in_place, n_tup_del AS deleted FROM pg_stat_user_tables"
LOG: Final = "SELECT pg_current_wal_lsn() - '0/0'::pg_lsn AS at"


class Books(NamedTuple):
    """How far everything was at one moment."""

    commits: float
    written: float  # bytes
    trips: float
    rows: Mapping[str, tuple[int, int, int, int]]


class Ledger:
    """Reads them."""

    def __init__(
        self,
        house: House,
        server: Running,
        admin: int,
        between: Distance | None,
        postgres: PostgresServer | None,
    ) -> None:
        self._database = None
        if postgres is not None:
            pid = int((postgres.folder / "data" / "postmaster.pid").read_text("ascii").split()[0])
            self._database = Running(target=server.target, pid=pid, host="", port=0)
        self._server, self._admin, self._between = server, admin, between
        self._connection = None
        if house.parameters is not None:
            self._connection = psycopg.connect(make_conninfo("", **house.parameters), autocommit=True)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def database_cpu_seconds(self) -> float:
        return 0.0 if self._database is None else self._database.children_cpu_seconds()

    def look(self) -> Books:
        commits = gauge(self._server, self._admin, "store_commits_total")
        if self._connection is None:
            return Books(commits, written_by(self._server.pid), 0, {})
        (row,) = self._connection.execute(LOG.encode()).fetchall()
        trips = 0 if self._between is None else self._between.trips
        rows = {name: tuple(counts) for name, *counts in self._connection.execute(TABLES.encode()).fetchall()}
        return Books(commits, float(row[0]), trips, rows)  # pyright: ignore[reportArgumentType]


def gauge(server: Running, admin: int, name: str) -> float:
    with open_connection(server.host, admin) as connection:
        _, body, _ = exchange(
            connection, request(server.host, admin, "GET", "/metrics", {"Connection": "close"})
        )
    found = re.search(rf"^ostiary_{name} ([\d.e+]+)$", body.decode(), re.MULTILINE)
    if found is None:
        raise Broken(f"there is no metric {name}")
    return float(found[1])


def written_by(pid: int) -> float:
    """Of everything that the process wrote into files: the log of the database, the database itself when that is folded in."""
    found = re.search(r"^wchar: (\d+)$", Path(f"/proc/{pid}/io").read_text("ascii"), re.MULTILINE)
    return float(found[1]) if found else 0.0


def measure(ground: Ground) -> None:
    sheet, times = ground.sheet, ground.times(200)
    sheet.begin("writes, each")
    house = ground.house("writes", SETTINGS)
    with _served(ground, house, 0.0) as (one, ledger):
        one.guest.ask("ledger.grant", wallet="owner", amount=10**9)
        for what, act in _acts(one, times).items():
            _count(ground, ledger, what, act, times)
    sheet.begin(f"{CALLERS} callers")
    seconds = 2 if ground.quick else 8
    for title, away in (("", 0.0), (f", the database {ROUND_TRIP * 1e3:g} ms away", ROUND_TRIP)):
        if away and house.parameters is None:
            continue
        with _served(ground, house, away) as (one, ledger):
            for what, work in (("refreshes", _refreshing), ("paid calls", _paying)):
                ask, hear = work(one)
                before, cpu, below = ledger.look(), one.server.cpu_seconds(), ledger.database_cpu_seconds()
                done, took = at_once(one.server, ask, hear, seconds)
                cpu, below = one.server.cpu_seconds() - cpu, ledger.database_cpu_seconds() - below
                commits = ledger.look().commits - before.commits
                sheet.add(f"{what}{title}", None, done / took, "/s")
                sheet.add("  commits", None, commits / took, "/s")
                sheet.add("  together in one", None, done / commits, "")
                sheet.add("  CPU of the server", None, cpu / done * 1e3)
                if below:
                    sheet.add("  CPU of the database", None, below / done * 1e3)


@contextmanager
def _served(ground: Ground, house: House, away: float) -> Generator[tuple[Served, Ledger]]:
    """With something between it and its database, which counts."""
    admin = free_port()
    postgres = ground.postgres
    if postgres is None:
        with (
            house.serving(core=ground.cores.server, admin=admin) as server,
            _with_guest(house, server, admin, None, None) as found,
        ):
            yield found
        return
    with (
        distance(("127.0.0.1", int(postgres.settings["port"])), away) as between,
        house.by_way_of(between.port),
        house.serving(core=ground.cores.server, admin=admin) as server,
        _with_guest(house, server, admin, between, postgres) as found,
    ):
        yield found


@contextmanager
def _with_guest(
    house: House, server: Running, admin: int, between: Distance | None, postgres: PostgresServer | None
) -> Generator[tuple[Served, Ledger]]:
    guest, ledger = Guest(server, house.home.path), Ledger(house, server, admin, between, postgres)
    try:
        yield Served(house=house, server=server, guest=guest), ledger
    finally:
        guest.close()
        ledger.close()


def _acts(one: Served, times: int) -> dict[str, Callable[[], object]]:
    guest, held = one.guest, list[dict[str, str]]()
    number = count()

    def log_in() -> None:
        held.append(guest.log_in())

    def refresh() -> None:
        held[0] |= guest.refresh(held[0]["refresh_token"])

    def revoke() -> None:
        guest.revoke(held.pop()["refresh_token"])

    return {
        "login (a code asked for, a yes, tokens)": log_in,
        "refresh": refresh,
        "call": lambda: guest.call(held[0]["access_token"], "clock", zone="UTC"),
        "paid call": lambda: guest.call(held[0]["access_token"], text=f"hello {next(number)}"),
        "task": lambda: guest.task(held[0]["access_token"], "steps", name=f"{next(number)}", seconds=0),
        "login, and its revocation": lambda: (log_in(), revoke()),
    }


def _count(ground: Ground, ledger: Ledger, what: str, act: Callable[[], object], times: int) -> None:
    """The database makes known what a connection did when that connection does something a second later: so the last act is by itself."""
    act()
    time.sleep(SETTLE_SECONDS)
    act()
    before, begun = ledger.look(), time.perf_counter()
    for _ in range(times - 1):
        act()
    took = time.perf_counter() - begun
    time.sleep(SETTLE_SECONDS)
    act()
    after, add = ledger.look(), ground.sheet.add
    add(f"{what}: time", None, took / (times - 1) * 1e3)
    add("  transactions", None, (after.commits - before.commits) / times, "")
    add("  bytes written", None, (after.written - before.written) / times, "")
    if not after.rows:
        return
    add("  trips to the database", None, (after.trips - before.trips) / times, "")
    for table, counts in sorted(after.rows.items()):
        past = before.rows.get(table, (0, 0, 0, 0))
        names = ("put in", "changed", "changed in place", "taken out")
        for name, now, then in zip(names, counts, past, strict=True):
            if (now - then) / times >= 0.05:
                add(f"  {table}: {name}", None, (now - then) / times, "rows")


Crowd = tuple[Callable[[int], bytes], Callable[[int, bytes], None]]  # what a caller asks, and what it hears


def _refreshing(one: Served) -> Crowd:
    """Each caller its own login, always with the token that the refresh before brought."""
    tokens = [one.guest.log_in()["refresh_token"] for _ in range(CALLERS)]

    def ask(caller: int) -> bytes:
        form = {**CLIENT, "grant_type": "refresh_token", "refresh_token": tokens[caller]}
        return form_request(one.server.host, one.server.port, "/token", form)

    def hear(caller: int, body: bytes) -> None:
        tokens[caller] = json.loads(body)["refresh_token"]

    return ask, hear


def _paying(one: Served) -> Crowd:
    """All from one balance, with arguments that are others each time: a call that was paid for is not paid for again."""
    token, numbers = one.guest.log_in()["access_token"], count()

    def ask(caller: int) -> bytes:
        params = {"name": "echo", "arguments": {"text": f"{one.server.pid} {caller} {next(numbers)}"}}
        return call_request(one.server.host, one.server.port, "tools/call", params, name="echo", token=token)

    def hear(_: int, body: bytes) -> None:
        if b"receipt" not in body and b"isError" in body:
            raise Broken(f"a paid call was answered {body[:300]!r}")

    return ask, hear


def at_once(
    server: Running, ask: Callable[[int], bytes], hear: Callable[[int, bytes], None], seconds: float
) -> tuple[int, float]:
    """So many callers, each with its next request as soon as the one before is answered. How many were, in how many seconds."""
    begun = time.perf_counter()
    done, end = 0, begun + seconds
    with ExitStack() as held, selectors.DefaultSelector() as selector:
        incoming = [Incoming() for _ in range(CALLERS)]
        for caller in range(CALLERS):
            connection = held.enter_context(open_connection(server.host, server.port))
            selector.register(connection, selectors.EVENT_READ, caller)
            connection.sendall(ask(caller))
        waiting = CALLERS
        while waiting:
            for key, _ in selector.select():
                connection, caller = key.fileobj, key.data
                assert isinstance(connection, socket.socket)
                incoming[caller].data += connection.recv(65536)
                answer = incoming[caller].whole()
                if answer is None:
                    continue
                if answer[0] != 200:
                    raise Broken(f"answered {answer[0]}: {answer[1][:300]!r}")
                hear(caller, answer[1])
                done += 1
                if time.perf_counter() < end:
                    connection.sendall(ask(caller))
                else:
                    waiting -= 1
    return done, time.perf_counter() - begun
