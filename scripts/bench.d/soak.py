"""Keeps a server busy with everything at once, and prints what it holds, minute by minute: memory, descriptors, threads, files.

Logins, calls, refreshes, revocations, sessions, streams, tasks, wrong tokens, wrong codes, registrations and failing sign-ins. The
pace is such that the server, its agent and this program together take no more than the given share of a core. Exit is 1 if
anything was answered that should not have been.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import NamedTuple

import accounts
from caller import TRUSTED
from leaks import gauge
from mixed_clients import SHOWN, Pace, Patron, Tally, claim
from restartable_server import HOST, Mortal
from targets import Broken, ostiary_source
from wire import exchange, open_connection, request

PATRONS = 12
LOOK_SECONDS = 0.5
IDLE_SECONDS = 15.0  # from the last request to the last look
MIB = 2**20

SETTINGS = """
trusted_proxies = {trusted}

[limits]
address = ""
caller = ""

[[server]]
[[server.agent]]
kind = "demo"
[[server.agent]]
kind = "python"
file = "{agent}"
python = "{python}"
"""


class Look(NamedTuple):
    mib: float
    agent_mib: float
    descriptors: int
    threads: int
    database_mib: float
    wal_mib: float
    log_mib: float
    tasks: int
    sessions: int


def main(arguments: list[str]) -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C: nothing of it is left running
    options = argparse.ArgumentParser(prog="scripts/soak", description=__doc__)
    options.add_argument("--minutes", type=float, default=10)
    options.add_argument(
        "--share", type=float, default=0.5, help="of one core, for the server and all of this"
    )
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--executable", type=Path, help="instead of the source, e.g. dist/ostiary")
    chosen = options.parse_args(arguments)
    command = (str(chosen.executable.resolve()),) if chosen.executable else ostiary_source()
    with tempfile.TemporaryDirectory(prefix="ostiary-soak-") as folder:
        return soak(command, Path(folder), minutes=chosen.minutes, share=chosen.share, seed=chosen.seed)


def soak(command: Sequence[str], home: Path, *, minutes: float, share: float, seed: int) -> int:
    settings = SETTINGS.format(
        trusted=list(TRUSTED), agent=Path(__file__).with_name("mixed_agent.py"), python=sys.executable
    ).replace("'", '"')  # fmt: skip
    server = Mortal(command, home, settings, log_level="info")
    server.start()
    try:
        server.await_ready()
        claim(server)
        tally, pace, over = Tally(), Pace(), Event()
        patrons = [Patron(server, Random(f"{seed} {number}"), tally, pace, over) for number in range(PATRONS)]
        threads = [Thread(target=patron.run, daemon=True) for patron in patrons]
        print(
            f"{'minute':>6} {'core':>5} {'requests':>9} {'unexpected':>10} {'MiB':>6} {'agent':>6} {'descr.':>6} "
            f"{'threads':>7} {'db MiB':>6} {'WAL':>5} {'log':>6} {'tasks':>6} {'sessions':>8}"
        )
        show("0", 0.0, tally, look(server))
        for thread in threads:
            thread.start()
        watch(server, pace, tally, patrons, minutes=minutes, share=share)
        over.set()
        for thread in threads:
            thread.join(60)
        time.sleep(IDLE_SECONDS)
        show("idle", 0.0, tally, look(server))
        crashed = int(gauge(metrics(server), "connections_crashed_total"))
        verified = server.run("verify")
        ended = server.end()
    finally:
        server.kill()
    damage = accounts.look_for_damage(accounts.copy(server.data, home / "copy"))
    errors = [line for line in server.said().splitlines() if '"level":"error"' in line]
    tell(tally, errors)
    print(
        f"crashed {crashed}, errors in the log {len(errors)}, exit {ended}, "
        f"integrity_check {damage.what if damage else 'ok'}, verify {'sound' if not verified.returncode else verified.stderr}"
    )
    print(f"unexpected answers: {len(tally.unexpected)} of {tally.requests}")
    return 1 if tally.unexpected or crashed or errors or ended or damage or verified.returncode else 0


def watch(
    server: Mortal,
    pace: Pace,
    tally: Tally,
    patrons: Sequence[Patron],
    *,
    minutes: float,
    share: float,
) -> None:
    """Keep to the share, and print a row each minute."""
    begun = last = time.monotonic()
    spent = minute_spent = cpu_seconds(server)
    minute = 0
    while last - begun < minutes * 60:
        time.sleep(LOOK_SECONDS)
        now, now_spent = time.monotonic(), cpu_seconds(server)
        pace.correct((now_spent - spent) / (now - last), share)
        last, spent = now, now_spent
        for patron in patrons:
            if patron.problem is not None:
                raise Broken(f"a client gave up: {patron.problem!r}") from patron.problem
        if now - begun >= 60 * (minute + 1):
            minute += 1
            show(str(minute), (spent - minute_spent) / 60, tally, look(server))
            minute_spent = spent


def cpu_seconds(server: Mortal) -> float:
    serving = server.serving()
    return serving.cpu_seconds() + serving.children_cpu_seconds() + time.process_time()


def look(server: Mortal) -> Look:
    serving = server.serving()
    process, said = Path(f"/proc/{serving.pid}"), metrics(server)
    return Look(
        mib=serving.resident_kib() / 1024,
        agent_mib=serving.children_resident_kib() / 1024,
        descriptors=len(list((process / "fd").iterdir())),
        threads=len(list((process / "task").iterdir())),
        database_mib=size(server.data / accounts.DATABASE),
        wal_mib=size(server.data / f"{accounts.DATABASE}-wal"),
        log_mib=size(server.log),
        tasks=int(gauge(said, "tasks_living")),
        sessions=int(gauge(said, "sessions")),
    )


def size(file: Path) -> float:
    return file.stat().st_size / MIB if file.exists() else 0.0


def metrics(server: Mortal) -> str:
    with open_connection(HOST, server.admin_port) as connection:
        asked = request(HOST, server.admin_port, "GET", "/metrics", {"Connection": "close"})
        status, body, _ = exchange(connection, asked)
    if status != 200:
        raise Broken(f"/metrics answered {status}")
    return body.decode()


def show(minute: str, share: float, tally: Tally, seen: Look) -> None:
    print(
        f"{minute:>6} {share:5.2f} {tally.requests:9d} {len(tally.unexpected):10d} {seen.mib:6.1f} {seen.agent_mib:6.1f} "
        f"{seen.descriptors:6d} {seen.threads:7d} {seen.database_mib:6.1f} {seen.wal_mib:5.1f} {seen.log_mib:6.1f} "
        f"{seen.tasks:6d} {seen.sessions:8d}",
        flush=True,
    )


def tell(tally: Tally, errors: Sequence[str]) -> None:
    print()
    for kind, statuses in sorted(tally.statuses.items()):
        print(f"{kind:24} {', '.join(f'{status}: {count}' for status, count in sorted(statuses.items()))}")
    for what in tally.unexpected[:SHOWN]:
        print(f"  UNEXPECTED {what}")
    for line in errors[:SHOWN]:
        print(f"  the log: {line[:300]}")
    print()


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Broken as problem:
        sys.exit(f"soak: {problem}")
