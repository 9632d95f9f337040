"""Requests of whoever shows nothing to log in with, at a server where some tools need no login (`anonymous_tools`).

They may do what leads to a call of such a tool, and nothing else: everything else is answered with the challenge of a login, as it is to
everybody where there are no such tools. So nobody learns from an answer whether another tool exists.
"""

from __future__ import annotations

from typing import Final, cast

from auth.values.identity_model import Principal
from server.calls.rights.standing import Standing
from server.calls.servers.endpoint import Endpoint
from server.mcp.inbound_messages import Route
from server.mcp.method_params import CallToolParams

# With those of a task that a call has become: who knows its id has made it.
_METHODS: Final = frozenset(
    {
        "initialize",
        "ping",
        "server/discover",
        "tools/list",
        "tasks/get",
        "tasks/update",
        "tasks/cancel",
        "tasks/result",
    }
)


def for_visitors(endpoint: Endpoint, route: Route, principal: Principal) -> bool:
    """What cannot be read is answered with what is wrong with it, as far as it is about no tool."""
    if route.method.name != "tools/call":
        return route.method.name in _METHODS
    if route.problem is not None:
        return False
    entry = endpoint.catalog.tools.get(cast("CallToolParams", route.params).name)
    return entry is not None and endpoint.rights.standing(principal, entry) is Standing.ALLOWED
