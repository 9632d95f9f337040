"""The nodes that share one database, as whoever looks after them sees them: which there are, since when, and how each is. Values, made of the
rows in which each process says how it is (`store/node_rows.py`); one that is silent is among them.

The processes of one parent are one node with so many workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import asdict, replace

from auth.values.identity_model import Millis
from server.console.overview.outage_effects import lasting
from server.store.node_rows import NodeSeen, machine_of

# Two of its words that did not come, and the third is late.
SILENT_AFTER: Final[Millis] = 5_000
# What is said of one that is silent, behind for how long.
WHAT_TO_DO: Final = (
    "Look on its machine whether it runs, and whether it reaches the database. "
    "If it was taken away for good, nothing is to be done: it is named here for a day"
)
_STANDINGS: Final = {"starting": "starting", "troubled": "not ready", "draining": "ending"}


class ProcessStanding(msgspec.Struct, frozen=True, kw_only=True):
    """One process."""

    worker: int  # 0: the only one of its node
    process: str  # its machine and its number there
    version: str
    started_at: Millis
    quiet_ms: Millis  # since it said last that it lives
    standing: str  # ready, not ready, starting, ending, silent
    why: str = ""  # not; or what is to be known of it though it is ready


class NodeStanding(msgspec.Struct, frozen=True, kw_only=True):
    """One node: a process, or a parent's workers."""

    machine: str
    address: str
    here: bool  # whoever says this belongs to it
    versions: tuple[str, ...]
    started_at: Millis
    quiet_ms: Millis
    standing: str  # ready if one of its processes is
    why: tuple[str, ...] = ()
    processes: tuple[ProcessStanding, ...]

    @property
    def workers(self) -> int:
        """That serve."""
        return sum(1 for each in self.processes if each.worker and each.standing == "ready")

    def told(self) -> dict[str, Any]:
        """For whoever is at the machine."""
        return {**asdict(self), "processes": [asdict(each) for each in self.processes]}


def standings(found: Sequence[NodeSeen], *, here: str) -> list[NodeStanding]:
    """The oldest first, silent ones last. `here`: the boot id of this process."""
    places: dict[str, list[NodeSeen]] = {}
    for each in found:
        places.setdefault(each.node.place or each.node.home, []).append(each)
    told = [_node(each, here) for each in places.values()]
    return sorted(told, key=lambda each: (each.standing == "silent", each.started_at, each.machine))


def by_version(found: Sequence[NodeStanding]) -> dict[str, list[str]]:
    """The machines of each version that serves, where there is more than one; newer ones are told later by who started later."""
    versions: dict[str, list[str]] = {}
    for node in found:
        for version in node.versions if node.standing != "silent" else ():
            versions.setdefault(version, []).append(node.machine)
    return versions if len(versions) > 1 else {}


def with_note(node: NodeStanding, notes: Sequence[str]) -> NodeStanding:
    return replace(node, why=(*node.why, *notes))


def _node(found: Sequence[NodeSeen], here: str) -> NodeStanding:
    processes = tuple(
        sorted((_process(each) for each in found), key=lambda each: (each.worker, each.started_at))
    )
    standing = next((each.standing for each in processes if each.standing == "ready"), None) or min(
        (each.standing for each in processes), key=("not ready", "starting", "ending", "silent").index
    )
    # Of one that is silent as a whole, it is said with its name.
    why = [
        words
        for each in processes
        if (words := _of_worker(each) if each.worker else each.why)
        and not each.standing == standing == "silent"
    ]
    speaks = [each for each in processes if each.standing != "silent"] or processes
    first = found[0].node
    return NodeStanding(
        machine=machine_of(first),
        address=first.address,
        here=any(each.node.boot_id == here for each in found),
        versions=tuple(sorted({each.version for each in speaks})),
        started_at=min(each.started_at for each in speaks),
        quiet_ms=min(each.quiet_ms for each in speaks),
        standing=standing,
        why=tuple(dict.fromkeys(why)),
        processes=processes,
    )


def _process(found: NodeSeen) -> ProcessStanding:
    silent = found.dead or found.quiet_ms > SILENT_AFTER
    return ProcessStanding(
        worker=found.node.worker,
        process=found.node.name,
        version=found.node.version,
        started_at=found.node.started_at,
        quiet_ms=found.quiet_ms,
        standing="silent" if silent else _STANDINGS.get(found.said.state, "ready"),
        why="" if silent else found.said.trouble,
    )


def _of_worker(each: ProcessStanding) -> str:
    match each.standing:
        case "ready":
            return each.why  # of an agent that is out of order, mostly: all workers say the same
        case "silent":
            return f"worker {each.worker} has been silent for {lasting(each.quiet_ms)}"
        case standing:
            return f"worker {each.worker} is {standing}" + (f": {each.why}" if each.why else "")
