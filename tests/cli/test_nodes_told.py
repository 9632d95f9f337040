"""`ostiary status` where several nodes share one database: all of them, and what to do about one that is silent."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import trio
from shell import Terminal
from test_status_command import ask_running

from server.overview.nodes_seen import NodeStanding, standings, with_note
from server.store.nodes import NodeSaid, NodeSeen
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


async def test_all_nodes_are_shown_each_with_how_it_is(shell: Terminal, nursery: trio.Nursery) -> None:
    found = await lines(
        shell,
        nursery,
        nodes=told(at_home("rowan", quiet_ms=400), at_home("elm", worker=1), at_home("elm", worker=2)),
    )
    first = found.index("nodes 2 ready")
    assert found[first + 1] == "ready elm:8000, version 0.9.4, 2 workers, for 3 days, heard 1 second ago"
    assert found[first + 2] == "ready rowan:8000 (this one), version 0.9.4, for 3 days, heard just now"
    assert not any(line.startswith("hint: look on the silent node's") for line in found)


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
    assert "nodes 1 of 3 ready, of different versions: 0.9.5 (1), 0.9.4 (1)" in found
    assert any(
        re.fullmatch(r"not ready elm:8000, version 0.9.5, .+ ago; no �\[31mroom", line) for line in found
    )
    assert any(
        re.fullmatch(r"ready rowan:8000 \(this one\), .+; worker 2 was started again", line) for line in found
    )
    assert "silent oak:8000, for 4 hours, version 0.9.4" in found
    assert any(line.startswith("hint: look on the silent node's machine") for line in found)


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


async def test_without_the_table_what_was_known_last_is_said(shell: Terminal, nursery: trio.Nursery) -> None:
    own = {"name": "rowan:1", "others": [{"name": "elm:1"}], "lapsed": True}
    (line,) = [line for line in await lines(shell, nursery, nodes=None, node=own) if line.startswith("node")]
    assert line == "node rowan:1, beside elm:1; it could not say in time that it is alive"
