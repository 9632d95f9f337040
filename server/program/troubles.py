"""Agents that are out of order, as whoever runs the server is told of them: in `ostiary status` and `doctor`, at /readyz, in the metrics.

A bad agent takes nobody else down with it: the server is ready, and says which one is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import asdict

from server.backends.base import Trouble
from server.endpoint.endpoint import Endpoint
from server.observe.metrics import Metrics


def troubles(endpoints: Mapping[str, Endpoint]) -> Mapping[str, Trouble]:
    """By the name of the agent, which begins with that of its server."""
    return {
        name: trouble
        for endpoint in endpoints.values()
        for name, trouble in endpoint.catalog.troubles().items()
    }


def described_agents(endpoints: Mapping[str, Endpoint]) -> list[dict[str, Any]]:
    """For whoever is at the machine."""
    return [{"name": name, **asdict(trouble)} for name, trouble in troubles(endpoints).items()]


def count_troubles(metrics: Metrics, endpoints: Mapping[str, Endpoint]) -> None:
    metrics.gauges(
        "agent_out_of_order",
        "Agents that could not be reached or started when that was tried last",
        "agent",
        lambda: dict.fromkeys(troubles(endpoints), 1),
    )
