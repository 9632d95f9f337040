"""How much memory callers can make the server use: computed from the bounds that the server has. docs/operating.md says it, and
`scripts/leaks` measures against it.
"""

from __future__ import annotations

import sys
from typing import Final

import msgspec

from server.calls.sessions.event_log import MAX_BYTES_OVERALL
from server.calls.sessions.session import MAX_RUNNING_OF_CALLER
from server.calls.tasks.task_order import MAX_RESULT_BYTES, TaskTerms
from server.mcp.loads import SMALL_BYTES, Loads
from server.transport.http.connection_limits import HttpLimits
from server.transport.http.mcp_endpoint import MAX_ALONE
from server.transport.http.server_connection import READ_BYTES

LIMITS: Final = HttpLimits()
LOADS: Final = Loads(LIMITS.body_bytes)
MIB: Final = 1024 * 1024

# A body in its weight: what has arrived, and the whole of it in one piece; its arguments, the line for the agent and, of a task,
# the row of the store with its copy for the writer. What its arguments take besides, its weight counts.
COPIES: Final = 6
# Of a small body, which nobody weighs: what its arguments take for each of its bytes, at their worst. Lists of one in lists of one,
# each of two characters.
SPREAD: Final = sys.getsizeof(msgspec.json.decode(b"[0]")) // len("[]")
# Of one caller, from one address: each connection waits for one call, and calls of the handshake era and tasks go on without one.
CALLS_AT_ONCE: Final = LIMITS.connections_per_ip + MAX_RUNNING_OF_CALLER + MAX_ALONE + TaskTerms().per_owner
# What the allocator may keep of it, in blocks that are too small to have pages of their own, and caches that fill once.
KEPT_BYTES: Final = 64 * MIB


def of_large() -> int:
    """Requests of all callers, calls that run on without them, and tasks."""
    return COPIES * LOADS.limit


def of_text(number: int) -> int:
    """So many at once, each with the largest body, all of it text."""
    return min(of_large(), COPIES * number * LIMITS.body_bytes)


def of_small() -> int:
    return CALLS_AT_ONCE * SMALL_BYTES * (COPIES + SPREAD)


def of_connections() -> int:
    """What has arrived on them, and nobody has asked for: a head, what follows it, and one more piece."""
    return LIMITS.connections_per_ip * (LIMITS.head_bytes + LIMITS.pipeline_bytes + READ_BYTES)


def of_answers() -> int:
    """Those that nobody takes: their budget, and one more answer, as what its agent said and as what is sent, beyond it."""
    return LIMITS.unsent_bytes + 4 * MAX_RESULT_BYTES


def at_most() -> int:
    """Above idle."""
    return of_large() + of_small() + of_connections() + of_answers() + MAX_BYTES_OVERALL + KEPT_BYTES


def afterwards() -> int:
    """Above idle, when all calls have ended."""
    return MAX_BYTES_OVERALL + KEPT_BYTES
