"""The ticket of a request that waits at an upstream while nobody follows it."""

from __future__ import annotations

from typing import Final

# The key under which the checkpoint of a call has the ticket, and what whoever comes too late is told.
TICKET_KEY: Final = "parked"
GONE: Final = "the call that this answers has ended meanwhile: make it again"
