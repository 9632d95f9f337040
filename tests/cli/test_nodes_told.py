"""`ostiary status` where several nodes share one database: all of them, and what to do about one that is silent."""

from __future__ import annotations

import json
import time
from typing import Any

import trio
from shell import Terminal
from test_status_command import ask_running

from server.console.overview.nodes_seen import NodeStanding, standings, with_note
from server.store.node_rows import NodeSaid, NodeSeen
from tests.auth.browser_fakes import House
from tests.e2e.overview_states import node_seen

HOUR = 3_600_000
NOW = time.time_ns() // 1_000_000


def at_home(name: str, *, quiet_ms: int = 1_500, **more: Any) -> NodeSeen:
    house = House()
    house.time = NOW
    return node_seen(house, name, quiet_ms=quiet_ms, **more)


def told(*found: NodeSeen, note: str = "") -> list[Any]:
    nodes: list[NodeStanding] = standings(found, here="rowan0")
    return [with_note(each, [note] if note and each.here else []).told() for each in nodes]


async def lines(shell: Terminal, nursery: trio.Nursery, *options: str, **said: Any) -> list[str]:
    done = await ask_running(shell, nursery, *options, backups=None, **said)
    return [" ".join(line.split()) for line in (done.stdout + done.stderr).splitlines()]


async def test_a_silent_one_is_named_with_what_to_do_and_versions_that_differ_are(
    shell: Terminal, nursery: trio.Nursery
) -> None:
    nodes = told(
        at_home("rowan"),
        at_home("elm", version="0.9.5", said=NodeSaid("troubled", "no \x1b[31mroom")),
        at_home("oak", said=NodeSaid(""), quiet_ms=4 * HOUR, dead=True),
        note="worker 2 was started again",
    )
    found = await lines(shell, nursery, nodes=nodes)
    for start, fact in (
        ("nodes 1 of 3 ready, ", "0.9.5 (1), 0.9.4 (1)"),
        ("not ready elm:8000, ", "; no �[31mroom"),
        ("ready rowan:8000 (this one), ", "; worker 2 was started again"),
        ("silent oak:8000, ", "4 hours"),
        ("hint: ", "silent node"),
    ):
        assert [line for line in found if line.startswith(start) and fact in line], start


async def test_in_json_all_of_it_is_there(shell: Terminal, nursery: trio.Nursery) -> None:
    done = await ask_running(shell, nursery, "--json", nodes=told(at_home("rowan")))
    (node,) = json.loads(done.stdout)["server"]["nodes"]
    assert (node["machine"], node["standing"], node["here"], node["versions"]) == (
        "rowan",
        "ready",
        True,
        ["0.9.4"],
    )
    assert node["processes"][0]["process"] == "rowan:4000"


async def test_on_a_file_nothing_is_said_of_nodes(shell: Terminal, nursery: trio.Nursery) -> None:
    own = {"name": "rowan:1", "others": [], "lapsed": False}
    assert not [line for line in await lines(shell, nursery, nodes=[], node=own) if line.startswith("node")]
