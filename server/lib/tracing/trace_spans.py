"""A span, the trace that it belongs to, and those that wait to be sent.

A context comes as W3C's recommendation has it (`traceparent`, https://www.w3.org/TR/trace-context/): what cannot be read is none, and
then a new trace begins. Nothing that a caller wrote goes into a span: names are those of the settings and of what agents offer.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Final

import msgspec
import trio

# Beyond that the oldest go: what is new says more about what is wrong.
MOST_WAITING: Final = 4096
# As many as are sent in one go.
BATCH: Final = 512
_TRACEPARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)
_ZEROS: Final = re.compile("0+")
_TRACESTATE_CHARACTERS: Final = 512

SERVER: Final = 2
INTERNAL: Final = 1


class TraceContext(msgspec.Struct, frozen=True):
    trace_id: str
    span_id: str
    sampled: bool
    state: str = ""


def context_of(traceparent: str | None, tracestate: str | None = None) -> TraceContext | None:
    found = None if traceparent is None else _TRACEPARENT.fullmatch(traceparent)
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if (
        version == "ff"
        or (version == "00" and more)
        or _ZEROS.fullmatch(trace_id)
        or _ZEROS.fullmatch(span_id)
    ):
        return None
    state = tracestate or ""
    if len(state) > _TRACESTATE_CHARACTERS or not state.isascii() or not state.isprintable():
        state = ""
    return TraceContext(trace_id, span_id, bool(int(flags, 16) & 1), state)


class Span(msgspec.Struct, kw_only=True):
    """`error` empty: nothing went wrong."""

    trace_id: str
    span_id: str
    parent: str
    state: str
    name: str
    kind: int
    began: int  # nanoseconds since 1970
    ended: int = 0
    facts: dict[str, str | int | bool]
    error: str = ""

    @property
    def traceparent(self) -> str:
        """For whatever is done on its behalf."""
        return f"00-{self.trace_id}-{self.span_id}-01"


class SpanBook:
    """Those that have ended and wait to be sent."""

    def __init__(self) -> None:
        self._waiting: deque[Span] = deque(maxlen=MOST_WAITING)
        self._full = trio.Event()
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, span: Span) -> None:
        if len(self._waiting) == MOST_WAITING:
            self.dropped += 1
        self._waiting.append(span)
        if len(self._waiting) >= BATCH:
            self._full.set()

    async def wait(self, seconds: float) -> None:
        """Until there is a batch, but no longer."""
        with trio.move_on_after(seconds):
            await self._full.wait()

    def take(self) -> list[Span]:
        self._full = trio.Event()
        return [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]

    def put_back(self, spans: list[Span]) -> None:
        """What could not be sent. Those that came meanwhile stay before it."""
        room = MOST_WAITING - len(self._waiting)
        kept = spans[len(spans) - min(room, len(spans)) :]
        self.dropped += len(spans) - len(kept)
        self._waiting.extendleft(reversed(kept))
