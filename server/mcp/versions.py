"""The protocol's revisions, and what each one has. Era code asks this table; nothing else compares version strings.

Spec: basic/versioning (2026-07-28), basic/lifecycle (2025-11-25 and before).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

import msgspec


class Era(Enum):
    LEGACY = "legacy"  # `initialize` first; disconnecting does not cancel
    MODERN = "modern"  # every request stands alone; disconnecting cancels


class Revision(msgspec.Struct, frozen=True, kw_only=True):
    version: str
    era: Era
    batches: bool = False
    annotations: bool = True  # tool annotations, audio content, a message with progress
    structured: bool = True  # structuredContent, outputSchema, resource_link, title
    icons: bool = True  # and a description of the implementation
    any_structured: bool = False  # structured content may be any value, not only an object
    completions: bool = True  # completion is a capability; before, the method was just there
    elicits: bool = True  # a person can be asked through the client
    elicits_by_url: bool = True  # and be sent to a page
    primes: bool = False  # a stream begins with an empty event, may be closed early, and is come back to
    tasks: bool = False  # as a capability of the core
    modern: bool = False  # its era, as it is asked for most


# fmt: off
_TABLE: Final = (
    Revision(version="2024-11-05", era=Era.LEGACY, annotations=False, structured=False, icons=False, completions=False, elicits=False, elicits_by_url=False),
    Revision(version="2025-03-26", era=Era.LEGACY, batches=True,      structured=False, icons=False, elicits=False, elicits_by_url=False),
    Revision(version="2025-06-18", era=Era.LEGACY, icons=False, elicits_by_url=False),
    Revision(version="2025-11-25", era=Era.LEGACY, primes=True, tasks=True),
    Revision(version="2026-07-28", era=Era.MODERN, modern=True, any_structured=True),
)
# fmt: on

REVISIONS: Final[Mapping[str, Revision]] = MappingProxyType({row.version: row for row in _TABLE})
LATEST_LEGACY: Final = REVISIONS["2025-11-25"]
LATEST: Final = REVISIONS["2026-07-28"]
# Tasks are an extension of the stateless era; 2025-11-25 has them in its core.
TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"
PAYMENT_EXTENSION: Final = "org.x402/payment"

# What a request without the version header means (streamable HTTP, 2025-06-18 and later): the revision before headers.
UNNAMED: Final = REVISIONS["2025-03-26"]

# One list for `server/discover` and for the refusal of an unknown version: a legacy revision is reached by `initialize`.
MODERN_VERSIONS: Final = tuple(row.version for row in _TABLE if row.modern)


def negotiate(requested: str | None) -> Revision:
    """Return the revision for the answer to `initialize`: the requested one if it has a handshake, else the latest with one."""
    revision = REVISIONS.get(requested or "")
    return LATEST_LEGACY if revision is None or revision.modern else revision


def not_newer(revision: Revision, newest: Revision) -> Revision:
    """Return the older of two revisions. Versions are dates, so their texts compare."""
    return newest if revision.version > newest.version else revision
