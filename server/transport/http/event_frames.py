"""Server-sent events: how one is framed. Spec: basic/transports/streamable-http (2026-07-28)."""

from __future__ import annotations

from typing import Final

KEEP_ALIVE: Final = b": keep-alive\n\n"


def frame(message: bytes, event_id: str | None = None) -> bytes:
    """One JSON text, which has no line breaks, as one event."""
    if event_id is None:
        return b"data: %s\n\n" % message
    return b"id: %s\ndata: %s\n\n" % (event_id.encode(), message)
