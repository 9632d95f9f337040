"""What happens to nodes and their database, in a random order that a seed repeats; each kind comes as often as the others."""

from __future__ import annotations

import os
import signal
import time
from random import Random
from typing import Literal, NamedTuple

from cluster import Cluster, Node
from databases import Databases
from multi_node_clients import Window
from network_faults import Cable, Cables
from targets import Broken

Kind = Literal[
    "worker killed", "node killed", "node ended", "node stands still", "database restarted", "database crashed",
    "standby promoted", "cut from the database", "cut from its clients",
]  # fmt: skip
ANYWHERE: tuple[Kind, ...] = (
    "node killed", "node ended", "node stands still", "database restarted", "database crashed", "standby promoted"
)  # fmt: skip
BEFORE_SECONDS = 2.0  # of load, before each
DOWN_SECONDS = 3.0
# Beyond what is forgiven (5), and beyond when a node is dead to the others (10).
SILENT_SECONDS = 14.0


class Fault(NamedTuple):
    kind: Kind
    node: str
    seconds: float  # how long it lasts, where that can be chosen


def plan(count: int, seed: int, workers: dict[str, int], cables: Cables) -> list[Fault]:
    dice = Random(seed)
    kinds: list[Kind] = [*ANYWHERE]
    if "database" in cables.kinds:
        kinds.append("cut from the database")
    if "load" in cables.kinds:
        kinds.append("cut from its clients")
    many = [name for name, count in workers.items() if count > 1]
    if many:
        kinds.append("worker killed")
    found: list[Fault] = []
    while len(found) < count:
        for kind in dice.sample(kinds, len(kinds)):
            node = dice.choice(many if kind == "worker killed" else list(workers))
            longest = (
                SILENT_SECONDS if kind in ("node stands still", "cut from the database") else DOWN_SECONDS
            )
            found.append(Fault(kind, node, dice.uniform(0.2, longest)))
    return found[:count]


class Turmoil:
    """Does what was planned. `windows`: when who could not hear what others did."""

    def __init__(self, cluster: Cluster, databases: Databases, cables: Cables) -> None:
        self.windows: list[Window] = []
        self._cluster, self._databases, self._cables = cluster, databases, cables

    def commit(self, fault: Fault) -> str:
        """Until it is over; what is to be said of it besides."""
        (node,) = (node for node in self._cluster.nodes if node.name == fault.node)
        everywhere = fault.kind in ("database restarted", "database crashed", "standby promoted")
        window = Window(node=None if everywhere else node.name, begin=time.monotonic(), what=fault.kind)
        self.windows.append(window)
        try:
            return self._done(fault, node)
        finally:
            window.end = time.monotonic()

    def follow_up(self, fault: Fault) -> None:
        """What whoever looks after it does then."""
        if fault.kind == "standby promoted":
            self._databases.have_followed()

    def _done(self, fault: Fault, node: Node) -> str:
        match fault.kind:
            case "worker killed":
                pid = node.worker_pids()[int(fault.seconds * 1000) % len(node.worker_pids())]
                os.kill(pid, signal.SIGKILL)
                return f"worker {pid} of {node.name}"
            case "node killed":
                node.kill()
                time.sleep(fault.seconds)
                self._start(node)
                return f"{node.name}, down for {fault.seconds:.1f} s"
            case "node ended":
                code = node.end()
                if code:
                    raise Broken(f"{node.name} ended with {code}")
                self._start(node)
                return node.name
            case "node stands still":
                node.freeze()
                time.sleep(fault.seconds)
                node.thaw()
                return f"{node.name}, for {fault.seconds:.1f} s"
            case "database restarted":
                self._databases.restart("fast")
                return ""
            case "database crashed":
                self._databases.restart("immediate")
                return ""
            case "standby promoted":
                self._databases.promote()
                return ""
            case "cut from the database":
                return self._cut(node, "database", fault.seconds)
            case "cut from its clients":
                return self._cut(node, "load", fault.seconds)

    def _cut(self, node: Node, cable: Cable, seconds: float) -> str:
        self._cables.cut(node.name, cable)
        try:
            time.sleep(seconds)
        finally:
            self._cables.mend(node.name, cable)
        return f"{node.name}, for {seconds:.1f} s"

    def _start(self, node: Node) -> None:
        node.start()
        node.await_ready()
