"""A house that holds little and one that holds much, served at the same time on the same core."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from guest import Guest
from house import House, Tables
from sheet import Sheet, say
from targets import Cores, Running

from tests.postgres_server import PostgresServer

# What a server does in the background when it has just started is not counted with its end.
LOOKED_AROUND_SECONDS: Final = 2.0


@dataclass(frozen=True, kw_only=True)
class Ground:
    """What every group of measurements stands on."""

    folder: Path
    postgres: PostgresServer | None
    cores: Cores
    sheet: Sheet
    quick: bool
    large: bool

    def house(self, name: str, settings: str) -> House:
        made = House(self.folder, self.postgres, name=name, settings=settings)
        made.make(core=self.cores.server)
        return made

    def times(self, usual: int) -> int:
        return max(5, usual // 10) if self.quick else usual

    def many(self, usual: int) -> int:
        return usual // 100 if self.quick else usual


@dataclass(frozen=True, kw_only=True)
class Served:
    house: House
    server: Running
    guest: Guest

    def resident_mib(self) -> float:
        return self.server.resident_kib() / 1024


@contextmanager
def served(ground: Ground, few: House, many: House) -> Generator[tuple[Served, Served]]:
    with ExitStack() as held:
        found: list[Served] = []
        for house in (few, many):
            server = held.enter_context(house.serving(core=ground.cores.server))
            guest = Guest(server, house.home.path)
            held.callback(guest.close)
            found.append(Served(house=house, server=server, guest=guest))
        yield found[0], found[1]


def fill(house: House, how: Callable[[House, Tables], None]) -> None:
    begun = time.monotonic()
    with house.tables() as tables:
        how(house, tables)
    house.seal()
    say(f"  {house.folder.name}: filled in {time.monotonic() - begun:.0f} s")


def compare_starts(ground: Ground, few: House, many: House) -> None:
    """From the first instruction until it listens; and from the word to end until it has ended."""
    spent: dict[tuple[str, str], list[float]] = {}
    for _ in range(2 if ground.quick else 4):  # the first time uncounted
        for house in (few, many):
            begun = time.perf_counter()
            with house.serving(core=ground.cores.server):
                listening = time.perf_counter()
                time.sleep(LOOKED_AROUND_SECONDS)
                ending = time.perf_counter()
            spent.setdefault((house.folder.name, "start"), []).append(listening - begun)
            spent.setdefault((house.folder.name, "end"), []).append(time.perf_counter() - ending)
    for what in ("start", "end"):
        little, much = (median(spent[house.folder.name, what][1:]) * 1e3 for house in (few, many))
        ground.sheet.add(what, little, much)
