"""What a call that touches no row costs: on a file, on a database, and at each of two nodes that share it. As CPU of the server, since two
nodes, their load and their database want more cores than most machines have. Two processes that take turns on one core take more of it each,
whatever they are; so two servers that share nothing are called in the same way."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from statistics import median
from typing import Final, NamedTuple

from echo import Sample
from echo import measure as load
from guest import Guest
from house import House
from pair import Ground
from sheet import say
from targets import Running, free_port

ROUNDS: Final = 5
SECONDS: Final = 4
SETTINGS: Final = """
issuer = "http://127.0.0.1:{issuer}"
allowed_hosts = ["127.0.0.1:{port}"]
{more}
[[server]]
[[server.agent]]
kind = "demo"
"""


class NodeHouse(NamedTuple):
    house: House
    port: int


def measure(ground: Ground) -> None:
    ground.sheet.begin("a call without a row, CPU at the server")
    if ground.postgres is None:
        say("  nodes share a database: --store postgres")
        return
    ports = [free_port() for _ in range(4)]

    def settings(port: int, more: str = "") -> str:
        return SETTINGS.format(issuer=ports[0], port=port, more=more)

    first = ground.house("nodes", settings(ports[0]))
    # With a data directory of its own, and the key and the database of the first.
    common = f'store = "file:{first.folder / "address"}"\nkey_file = "{first.home.key_file}"'
    second = House(ground.folder, None, name="nodes_second", settings=settings(ports[1], common))
    alone = House(ground.folder, None, name="alone", settings=settings(ports[2]))
    apart = House(ground.folder, None, name="apart", settings=settings(ports[3]))
    one, other, on_file, elsewhere = map(NodeHouse, (first, second, alone, apart), ports)
    ways = {
        "file": (on_file,),
        "database": (one,),
        "two nodes": (one, other),
        "two files": (on_file, elsewhere),
    }
    spent: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(2 if ground.quick else ROUNDS):
        for way, houses in ways.items():
            spent[way].append(median(sample.cpu_us for sample in called(ground, houses)))
    file, database, two, nothing_shared = (median(spent[way]) for way in ways)
    ground.sheet.add("with a database, beside a file", file, database, "µs")
    ground.sheet.add("each of two nodes, beside one", database, two, "µs")
    ground.sheet.add("each of two nodes, beside two that share nothing", nothing_shared, two, "µs")
    ground.sheet.add("two nodes with a core each, beside one", 1, 2 * database / two, "×")


def called(ground: Ground, houses: tuple[NodeHouse, ...]) -> list[Sample]:
    """Each of them at the same time."""
    core = ground.cores.server
    with ExitStack() as held:
        servers = [held.enter_context(each.house.serving(core=core, port=each.port)) for each in houses]
        tokens = list[str]()
        for each, server in zip(houses, servers, strict=True):
            guest = Guest(server, each.house.home.path)
            held.callback(guest.close)
            tokens.append(guest.log_in()["access_token"])

        def call(server: Running, token: str, seconds: int) -> Sample:
            return load(server, core=ground.cores.load, seconds=seconds, token=token)

        pool = held.enter_context(ThreadPoolExecutor(len(servers)))
        list(pool.map(partial(call, seconds=1), servers, tokens))
        return list(pool.map(partial(call, seconds=1 if ground.quick else SECONDS), servers, tokens))
