"""What a call that touches no row costs: on a file, on a database, and at each of two nodes that share it. As CPU of the server, since two
nodes, their load and their database want more cores than most machines have."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from statistics import median
from typing import Final

from echo import Sample
from echo import measure as load
from guest import Guest
from house import House
from pair import Ground
from sheet import say
from targets import Running, free_port

ROUNDS: Final = 5
SECONDS: Final = 4
SETTINGS: Final = 'issuer = "http://127.0.0.1:{port}"\n{more}\n[[server]]\n[[server.agent]]\nkind = "demo"\n'


def measure(ground: Ground) -> None:
    ground.sheet.begin("a call without a row, CPU at the server")
    if ground.postgres is None:
        say("  nodes share a database: --store postgres")
        return
    port = free_port()
    first = ground.house("nodes", SETTINGS.format(port=port, more=""))
    # With a data directory of its own, and the key and the database of the first.
    common = f'store = "file:{first.folder / "address"}"\nkey_file = "{first.home.key_file}"'
    second = House(ground.folder, None, name="nodes_second", settings=SETTINGS.format(port=port, more=common))
    alone = House(ground.folder, None, name="alone", settings=SETTINGS.format(port=port, more=""))
    ways = {"file": (alone,), "database": (first,), "two nodes": (first, second)}
    spent: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(2 if ground.quick else ROUNDS):
        for way, houses in ways.items():
            spent[way].append(median(sample.cpu_us for sample in called(ground, houses)))
    file, database, two = (median(spent[way]) for way in ways)
    ground.sheet.add("with a database, beside a file", file, database, "µs")
    ground.sheet.add("each of two nodes, beside one", database, two, "µs")
    ground.sheet.add("two nodes with a core each serve, beside one", 1, 2 * database / two, "×")


def called(ground: Ground, houses: tuple[House, ...]) -> list[Sample]:
    """Each of them at the same time."""
    with ExitStack() as held:
        servers = [held.enter_context(house.serving(core=ground.cores.server)) for house in houses]
        guest = Guest(servers[0], houses[0].home.path)
        held.callback(guest.close)
        token = guest.log_in()["access_token"]

        def call(server: Running, seconds: int) -> Sample:
            return load(server, core=ground.cores.load, seconds=seconds, token=token)

        pool = held.enter_context(ThreadPoolExecutor(len(servers)))
        list(pool.map(partial(call, seconds=1), servers))
        return list(pool.map(partial(call, seconds=1 if ground.quick else SECONDS), servers))
