"""How much memory one caller can make the server use: computed from the bounds that the server has. docs/operating.md says it, and
`scripts/leaks` measures against it.
"""

from __future__ import annotations

import sys
from typing import Final

import msgspec

from server.http.limits import HttpLimits
from server.http.mcp import MAX_ALONE
from server.sessions.event_log import MAX_BYTES_OVERALL
from server.sessions.sessions import MAX_RUNNING_OF_CALLER
from server.tasks.order import MAX_RESULT_BYTES, TaskTerms

LIMITS: Final = HttpLimits()
MIB: Final = 1024 * 1024

# A body in its own length: what has arrived, and the whole of it in one piece; its arguments, the line for the agent and, of a task,
# the row of the store with its copy for the writer.
COPIES: Final = 6
# Arguments for each of their bytes, at their worst: lists of one in lists of one, each of two characters.
SPREAD: Final = sys.getsizeof(msgspec.json.decode(b"[0]")) // len("[]")
# From one address: each connection waits for one call, and calls of the handshake era and tasks go on without one.
CALLS_AT_ONCE: Final = LIMITS.connections_per_ip + MAX_RUNNING_OF_CALLER + MAX_ALONE + TaskTerms().per_owner
# What the allocator may keep of it, in blocks that are too small to have pages of their own, and caches that fill once.
KEPT_BYTES: Final = 64 * MIB


def of_calls(number: int, *, spread: bool = False) -> int:
    """So many at once, each with the largest body. `spread`: of arguments that take the most memory; else of plain text."""
    return number * LIMITS.body_bytes * (COPIES + (SPREAD if spread else 0))


def of_answers() -> int:
    """Those that nobody takes: their budget, and one more answer, as what its agent said and as what is sent, beyond it."""
    return LIMITS.unsent_bytes + 4 * MAX_RESULT_BYTES


def at_most(*, spread: bool = False) -> int:
    """Above idle."""
    return of_calls(CALLS_AT_ONCE, spread=spread) + of_answers() + MAX_BYTES_OVERALL + KEPT_BYTES


def afterwards() -> int:
    """Above idle, when all calls have ended."""
    return MAX_BYTES_OVERALL + KEPT_BYTES
