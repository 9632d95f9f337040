"""What whoever starts the server at a terminal is told of what it serves: how much, what is out of order, and a call that works as it is typed."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import UNSET

from server.agents.base.catalog import ToolEntry
from server.calls.servers.endpoint import Endpoint
from server.console.overview.outages import troubles


def serves(endpoints: Mapping[str, Endpoint]) -> tuple[str, ...]:
    """The first line says how much there is, each further one what is out of order."""
    count = sum(len(endpoint.catalog.tools) for endpoint in endpoints.values())
    wrong = [f"{found.name}: {found.trouble.words}" for _, found in troubles(endpoints)]
    much = f"{count} tool{'' if count == 1 else 's'}"
    return (f"{much}; out of order:" if wrong else much, *wrong)


def first_call(endpoints: Mapping[str, Endpoint]) -> str | None:
    """Of the first server: of the demo an echo, else what only reads and needs no arguments."""
    catalog = next(iter(endpoints.values())).catalog
    if "echo" in catalog.tools and "countdown" in catalog.tools:
        return "echo text=hello"
    return next((name for name, entry in catalog.tools.items() if _may_be_tried(entry)), None)


def _may_be_tried(entry: ToolEntry) -> bool:
    tool = entry.tool
    reads = tool.annotations is not UNSET and tool.annotations.read_only_hint is True
    only_a_task = tool.execution is not UNSET and tool.execution.task_support == "required"
    return reads and not only_a_task and entry.price is None and not tool.input_schema.get("required")
