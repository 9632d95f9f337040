"""The nodes of one database as whoever looks after them sees them: one or many, silent, not ready, of different versions, with workers."""

from __future__ import annotations

import pytest

from server.console.overview.nodes_seen import SILENT_AFTER, NodeStanding, by_version, standings, with_note
from server.console.overview.overview_values import RunningParts
from server.store.node_rows import NodeSaid, NodeSeen
from tests.auth.browser_fakes import Browser, House
from tests.e2e.overview_states import HOUR, node_seen

LOST = NodeSaid("")


@pytest.fixture
def house() -> House:
    house = House().owned()
    house.add_user("usr_bob", "bob")
    return house


def told(*found: NodeSeen) -> list[tuple[str, str, int, tuple[str, ...]]]:
    return [(each.machine, each.standing, each.workers, each.why) for each in standings(found, here="")]


def test_workers_of_one_parent_are_one_node_which_is_ready_while_one_of_them_is(house: House) -> None:
    one, other = node_seen(house, "elm", worker=1), node_seen(house, "elm", worker=2)
    assert told(other, one) == [("elm", "ready", 2, ())]
    late = node_seen(house, "elm", worker=2, quiet_ms=SILENT_AFTER + 1)
    assert told(one, late) == [("elm", "ready", 1, ("worker 2 has been silent for 5 seconds",))]
    troubled = node_seen(house, "elm", worker=1, said=NodeSaid("troubled", "no room"))
    begins = node_seen(house, "elm", worker=3, said=NodeSaid("starting"))
    assert told(troubled, late, begins) == [
        (
            "elm",
            "not ready",
            0,
            (
                "worker 1 is not ready: no room",
                "worker 2 has been silent for 5 seconds",
                "worker 3 is starting",
            ),
        )
    ]
    gone = [node_seen(house, "elm", worker=number, said=LOST, quiet_ms=HOUR, dead=True) for number in (1, 2)]
    assert told(*gone) == [("elm", "silent", 0, ())]


@pytest.mark.parametrize(
    ("said", "quiet_ms", "dead", "standing", "why"),
    [
        (NodeSaid("serving"), 0, False, "ready", ()),
        (NodeSaid("serving", "out of order: x"), 0, False, "ready", ("out of order: x",)),
        (NodeSaid(""), 0, False, "ready", ()),  # a version that does not say
        (NodeSaid("starting"), 0, False, "starting", ()),
        (NodeSaid("draining"), 0, False, "ending", ()),
        (NodeSaid("troubled", "no room"), 0, False, "not ready", ("no room",)),
        (NodeSaid("serving"), SILENT_AFTER, False, "ready", ()),
        (NodeSaid("serving", "x"), SILENT_AFTER + 1, False, "silent", ()),
        (NodeSaid(""), 0, True, "silent", ()),
    ],
)
def test_one_process_is_as_it_says_unless_it_says_nothing(
    house: House, said: NodeSaid, quiet_ms: int, dead: bool, standing: str, why: tuple[str, ...]
) -> None:
    (found,) = told(node_seen(house, "rowan", said=said, quiet_ms=quiet_ms, dead=dead))
    assert found == ("rowan", standing, 0, why)


def test_versions_are_named_only_where_they_differ_and_of_those_that_serve(house: House) -> None:
    same = [node_seen(house, name) for name in ("rowan", "elm")]
    old = node_seen(house, "oak", version="0.9.3")
    lost = node_seen(house, "ash", version="0.1", said=LOST, dead=True)
    assert by_version(standings([*same, lost], here="")) == {}
    assert by_version(standings([*same, old, lost], here="")) == {"0.9.4": ["elm", "rowan"], "0.9.3": ["oak"]}


async def overview(house: House, name: str, *found: NodeSeen, note: str = "") -> str:
    browser = Browser(house)

    async def nodes() -> list[NodeStanding]:
        return [
            with_note(each, [note] if note and each.here else []) for each in standings(found, here="rowan0")
        ]

    browser.routed.running = RunningParts(nodes=nodes)
    await browser.sign_in(name)
    await browser.get("/account")
    return browser.words


async def test_where_there_can_be_one_process_only_nothing_is_said_of_nodes(house: House) -> None:
    assert "Nodes" not in await overview(house, "alice")


async def test_nodes_in_order_are_listed_and_nothing_needs_the_owner(house: House) -> None:
    words = await overview(
        house, "alice", node_seen(house, "rowan"), node_seen(house, "elm", worker=1, quiet_ms=2_000)
    )
    assert "Nothing waits for you." in words
    assert (
        "rowan ready this one version 0.9.4, started 3 days ago rowan:8000 , last heard of just now" in words
    )
    assert (
        "elm ready version 0.9.4, 1 worker, started 3 days ago elm:8000 , last heard of 2 seconds ago"
        in words
    )


async def test_one_that_is_silent_or_not_ready_is_named_first_with_what_to_do(house: House) -> None:
    lost = node_seen(house, "<b>oak", said=LOST, quiet_ms=4 * HOUR, dead=True)
    sick = node_seen(house, "ash", said=NodeSaid("troubled", "it has heard nothing for 7 s"), version="0.9.5")
    words = await overview(
        house, "alice", node_seen(house, "rowan"), lost, sick, note="worker 2 was started again 3 times"
    )
    first = words.index(
        "The node <b>oak has been silent for 4 hours It was at <b>oak:8000. What it had in hand"
    )
    assert first < words.index("Look on its machine") < words.index("Last 24 hours")
    assert "The node ash is not ready It has heard nothing for 7 s." in words
    assert "Nothing waits for you." not in words
    assert "<b>oak silent version 0.9.4" in words
    assert "Different versions serve: 0.9.5 on ash; 0.9.4 on rowan ." in words
    assert "Worker 2 was started again 3 times" in words
    assert "Nobody else is ready." in await overview(house, "alice", lost, sick)


async def test_nobody_but_an_owner_learns_which_nodes_there_are(house: House) -> None:
    words = await overview(house, "bob", node_seen(house, "rowan"))
    assert "rowan" not in words
