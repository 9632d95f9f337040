"""The nodes on this database, told: what each says of itself with every beat, and all of them together for the Overview and `ostiary status`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from server.calls.servers.server_opening import now_millis
from server.run.agent_outages import words_of
from server.store.node_rows import NodeSaid

if TYPE_CHECKING:
    from server.cluster.workers.worker_messages import WorkerSeen
    from server.console.overview.nodes_seen import NodeStanding
    from server.run.one_of_several import OneOfSeveral
    from server.run.one_process import OneProcess
    from server.run.services import Services


class SelfDescription:
    """The state of this process, for pages of the others: `starting`, `serving`, then `draining`."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.state = "starting"

    def __call__(self) -> NodeSaid:
        services = self._services
        agents = words_of(services.endpoints, now_millis())
        told = "; ".join(f"out of order: {each}" for each in agents)
        if self.state == "serving" and (problem := services.probe.report().problem):
            return NodeSaid("troubled", problem)
        return NodeSaid(self.state, told)


async def nodes_told(
    services: Services, place: OneProcess | OneOfSeveral | None = None
) -> list[NodeStanding]:
    """Return the nodes; none where the rows are in a file. `place` adds what a parent knows. Raises `StoreError`."""
    if services.membership.alone:
        return []
    from server.console.overview.nodes_seen import standings, with_note
    from server.store import node_rows

    found = standings(await services.store.read(node_rows.look), here=services.boot_id)
    notes = [] if place is None else _started_again(await place.workers())
    return [with_note(each, notes) if each.here else each for each in found]


def _started_again(workers: Sequence[WorkerSeen]) -> list[str]:
    return [
        f"worker {each.worker} was started again {each.restarts} time{'' if each.restarts == 1 else 's'},"
        f" last after {each.ended}"
        for each in workers
        if each.restarts
    ]
