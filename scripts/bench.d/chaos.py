"""Kills a server again and again, under load, and counts what it had acknowledged and is missing or doubled afterwards.

Each time it is started again on the same data directory, and its clients go on where they were. Most kills come at some moment
under load; some while it starts, some while it stops. Exit is 1 unless nothing is missing and nothing is doubled.
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
from statistics import median
from threading import Event, Thread
from typing import NamedTuple

import accounts
from caller import TRUSTED
from customers import Payer, Poster, compare_balances, compare_runs, read_journal
from durability_clients import Keeper, Newcomer, Refresher, Tasker, Witness, settle, sum_books
from restartable_server import Mortal
from targets import Broken, ostiary_source

WITNESSES: tuple[tuple[type[Witness], int], ...] = (
    (Refresher, 8), (Newcomer, 2), (Keeper, 1), (Tasker, 2), (Payer, 2), (Poster, 1)
)  # fmt: skip
GRANTED = 1_000_000  # dollars
LOAD_SECONDS = 1.5  # a kill under load comes within these
START_SECONDS = 1.0  # and one while it starts within these: it needs a little more than that
STOP_SECONDS = 0.3
# What it may need beyond the time that it was given, to look at everything once more.
AFTERWARDS_SECONDS = 60.0
SHOWN = 5  # lines of the log

SETTINGS = """
trusted_proxies = {trusted}
drain_seconds = 2

[limits]
address = ""
caller = ""

[[server]]
[server.tools.sold]
price = "$0.01"
[[server.agent]]
kind = "demo"
[[server.agent]]
kind = "python"
file = "{agent}"
python = "{python}"
environment = {{ OSTIARY_NOTES = "{notes}" }}
[[server.agent]]
kind = "python"
file = "{sold}"
python = "{python}"
environment = {{ OSTIARY_JOURNAL = "{journal}" }}
"""


class Kill(NamedTuple):
    moment: str  # under load | starting | stopping
    seconds: float


def main(arguments: list[str]) -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C: nothing of it is left running
    options = argparse.ArgumentParser(prog="scripts/chaos", description=__doc__)
    options.add_argument("--kills", type=int, default=100)
    options.add_argument("--nodes", type=int, default=1, help="so many, on one PostgreSQL with a standby")
    options.add_argument("--faults", type=int, default=20, help="of several nodes, in the place of kills")
    options.add_argument(
        "--keep", type=Path, help="leave logs and settings of several nodes in this new folder"
    )
    options.add_argument(
        "--proxies",
        action="store_true",
        help="cut several nodes off by proxies, also where networks may be made",
    )
    options.add_argument(
        "--seconds", type=float, help="ends after so long, however many it had (900; 7200 with several nodes)"
    )
    options.add_argument("--seed", type=int, default=None, help="the same seed plans the same kills")
    options.add_argument("--executable", type=Path, help="instead of the source, e.g. dist/ostiary")
    chosen = options.parse_args(arguments)
    seed = chosen.seed if chosen.seed is not None else Random().randrange(1_000_000)
    command = (str(chosen.executable.resolve()),) if chosen.executable else ostiary_source()
    if chosen.nodes > 1:
        import cluster_chaos  # what SQLite does without

        seconds = chosen.seconds or 7200.0
        return cluster_chaos.run(
            chosen.nodes,
            chosen.faults,
            seed,
            command,
            seconds=seconds,
            keep=chosen.keep,
            proxies=chosen.proxies,
        )
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="ostiary-chaos-") as folder:
        home = Path(folder)
        house = House(command, home, seed)
        try:
            house.open()
            done = house.kill_often(plan(chosen.kills, seed), time.monotonic() + (chosen.seconds or 900.0))
            sound = house.close()
        finally:
            house.server.kill()
    if not done:
        print("there was no time for a single kill")
    return 0 if sound and done else 1


def plan(kills: int, seed: int) -> list[Kill]:
    dice = Random(seed)
    moments = (("under load", LOAD_SECONDS), ("starting", START_SECONDS), ("stopping", STOP_SECONDS))
    chosen = dice.choices(moments, weights=(8, 1, 1), k=kills)
    return [Kill(moment, dice.uniform(0, seconds)) for moment, seconds in chosen]


class House:
    """The server and its clients."""

    def __init__(self, command: Sequence[str], home: Path, seed: int) -> None:
        # A folder of the agent's own: beside the settings it may make nothing.
        written = home / "written"
        written.mkdir()
        self._notes, self._journal, self._copy = written / "notes", written / "journal", home / "copy"
        settings = SETTINGS.format(
            trusted=list(TRUSTED), agent=Path(__file__).with_name("mixed_agent.py"), python=sys.executable,
            notes=self._notes, sold=Path(__file__).with_name("sold_agent.py"), journal=self._journal,
        ).replace("'", '"')  # fmt: skip
        self.server = Mortal(command, home, settings)
        self._over = Event()
        kinds = [kind for kind, count in WITNESSES for _ in range(count)]
        self._witnesses = [
            kind(self.server, Random(f"{seed} {number}"), self._over, f"{kind.__name__.lower()}{number}")
            for number, kind in enumerate(kinds)
        ]
        self._threads = [Thread(target=witness.run, daemon=True) for witness in self._witnesses]
        self._damaged: list[str] = []
        self._failed: list[str] = []  # witnesses that could not go on
        self._starts: list[float] = []

    def open(self) -> None:
        self.server.start()
        self.server.await_ready()
        given = self.server.run("ledger", "grant", "owner", f"${GRANTED}", "--yes")
        if given.returncode:
            raise Broken(f"nothing could be granted: {given.stderr}")
        for thread in self._threads:
            thread.start()

    def kill_often(self, kills: Sequence[Kill], until: float) -> int:
        """How many there were."""
        for number, kill in enumerate(kills):
            if time.monotonic() > until:
                print(f"time is over after {number} kills of {len(kills)}")
                return number
            if kill.moment == "starting":
                self.server.kill()
                self.server.start()
            time.sleep(kill.seconds if kill.moment != "stopping" else LOAD_SECONDS / 2)
            if kill.moment == "stopping":
                self.server.ask_to_end()
                time.sleep(kill.seconds)
            self.server.kill()
            if damage := accounts.look_for_damage(accounts.copy(self.server.data, self._copy)):
                self._damaged.append(f"after kill {number + 1}: {damage.what}")
            self.server.start()
            self._starts.append(self.server.await_ready())
            print(f"kill {number + 1:3d}, {kill.moment:10}: up again in {self._starts[-1]:.1f} s", flush=True)
            if any(witness.problem is not None for witness in self._witnesses):
                return number + 1  # what is known by then is told
        return len(kills)

    def close(self) -> bool:
        """Print the accounts. True: nothing is missing, nothing doubled, nothing damaged."""
        self._over.set()
        for thread in self._threads:
            thread.join(AFTERWARDS_SECONDS)
            if thread.is_alive():
                raise Broken("a client still waits for an answer")
        self._failed += settle(self._witnesses)
        verified = self.server.run("verify")
        checked = self.server.run("ledger", "check")
        ended = self.server.end()
        database = accounts.copy(self.server.data, self._copy)
        if damage := accounts.look_for_damage(database):
            self._damaged.append(f"at the end: {damage.what}")
        books = sum_books(self._witnesses)
        with accounts.opened(database) as rows:
            books["audit rows"] = accounts.compare(rows, self._notes, self._witnesses, books)
            compare_balances(rows, self._witnesses, GRANTED, books[Payer.noun])
        compare_runs(read_journal(self._journal), self._witnesses, books)
        wrong = accounts.tell(books)
        errors = [line for line in self.server.said().splitlines() if '"level":"error"' in line]
        for line in errors[:SHOWN]:
            print(f"  the log: {line[:300]}")
        for what in self._damaged:
            print(f"  DAMAGED {what}")
        for what in self._failed:
            print(f"  FAILED {what}")
        if self._starts:
            print(f"up again after a kill: {median(self._starts):.1f} s, at most {max(self._starts):.1f} s")
        print(
            f"ostiary verify: {verified.stdout.splitlines()[0] if verified.stdout else verified.stderr.strip()}"
        )
        print(f"ostiary ledger check: {(checked.stdout or checked.stderr).splitlines()[0]}")
        print(
            f"integrity_check: {'ok' if not self._damaged else 'DAMAGED'}, errors in the log: {len(errors)}, exit {ended}"
        )
        print(f"missing {wrong[0]}, doubled {wrong[1]}")
        sound = not self._damaged and not self._failed and not errors
        return sound and wrong == (0, 0) and not (verified.returncode or checked.returncode or ended)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Broken as problem:
        sys.exit(f"chaos: {problem}")
