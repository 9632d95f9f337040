"""A server that pretends to be older than it is (`compat.protocol_version`), so that clients can be tried with it."""

from __future__ import annotations

from typing import TypeVar

from msgspec.structs import replace

from server.mcp.errors import InvalidRequest
from server.mcp.inbound_messages import Acknowledged, Rejection, Route
from server.mcp.versions import Revision, not_newer

T = TypeVar("T", bound=Route | Acknowledged | Rejection)


def as_older(verdict: T, newest: Revision) -> T | Rejection:
    """What a server would make of it that knows no revision after `newest`, which is of the handshake era."""
    if verdict.revision.modern and not isinstance(verdict, Acknowledged):
        # Servers of that era say so in many ways; a client that goes by any code takes this for one of them.
        return Rejection(InvalidRequest("Bad Request: unsupported protocol version"), verdict.id, newest)
    return replace(verdict, revision=not_newer(verdict.revision, newest))
