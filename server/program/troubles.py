"""Agents that are out of order, as whoever runs the server is told of them: in `ostiary status` and `doctor`, at /readyz, in the metrics.

A bad agent takes nobody else down with it: the server is ready, and says which one is not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from msgspec.structs import asdict

from server.backends.base import Trouble
from server.endpoint.endpoint import Endpoint
from server.observe.metrics import Metrics


def troubles(endpoints: Mapping[str, Endpoint], *, besides: Collection[object] = ()) -> Mapping[str, Trouble]:
    """By the name of the agent, which begins with that of its server. `besides`: back-ends of whose troubles is told elsewhere."""
    return {
        name: trouble
        for endpoint in endpoints.values()
        for name, trouble in endpoint.catalog.troubles(besides=besides).items()
    }


def described_agents(
    endpoints: Mapping[str, Endpoint], *, besides: Collection[object]
) -> list[dict[str, Any]]:
    """For whoever is at the machine."""
    return [
        {"name": name, **asdict(trouble)} for name, trouble in troubles(endpoints, besides=besides).items()
    ]


def count_troubles(metrics: Metrics, endpoints: Mapping[str, Endpoint]) -> None:
    metrics.gauges(
        "agent_out_of_order",
        "Agents that could not be reached or started when that was tried last",
        "agent",
        lambda: dict.fromkeys(troubles(endpoints), 1),
    )
