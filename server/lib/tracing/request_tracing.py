"""Which requests are traced, and the spans of those that are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from server.lib.tracing.trace_spans import INTERNAL, SERVER, Span, SpanBook, TraceContext

# Of a caller who says that every call of theirs is traced, no more than so many in a second, all callers together.
FOLLOWED_PER_SECOND: Final = 200
_SECOND: Final = 1_000_000_000
_ALL: Final = 1 << 64


class Tracing:
    """One of a process, for all its servers."""

    def __init__(
        self,
        book: SpanBook,
        *,
        share: float,
        follow: bool,
        clock: Callable[[], int],
        entropy: Callable[[int], bytes],
    ) -> None:
        """`clock`: nanoseconds since 1970."""
        self.book: Final = book
        self._below = int(share * _ALL)
        self._follow = follow
        self._clock = clock
        self._entropy = entropy
        self._second = 0
        self._followed = 0

    def begin(
        self, context: TraceContext | None, name: str, facts: dict[str, str | int | bool]
    ) -> Span | None:
        """Of a request that came from outside. None: it is not traced."""
        now = self._clock()
        if context is None:
            trace_id = self._entropy(16).hex()
            if int(trace_id[16:], 16) >= self._below:
                return None
            return self._span(trace_id, "", "", name, SERVER, now, facts)
        if self._follow:
            kept = context.sampled and self._has_room(now)
        else:
            # The end of the id says it as for ours, so that servers with the same share agree.
            kept = int(context.trace_id[16:], 16) < self._below
        if not kept:
            return None
        return self._span(context.trace_id, context.span_id, context.state, name, SERVER, now, facts)

    def inside(self, context: TraceContext, name: str, facts: dict[str, str | int | bool]) -> Span:
        """Of something that is done on behalf of what is traced already."""
        return self._span(
            context.trace_id, context.span_id, context.state, name, INTERNAL, self._clock(), facts
        )

    def end(self, span: Span, error: str = "") -> None:
        span.ended = self._clock()
        span.error = error
        self.book.add(span)

    def _span(
        self,
        trace_id: str,
        parent: str,
        state: str,
        name: str,
        kind: int,
        now: int,
        facts: dict[str, str | int | bool],
    ) -> Span:
        return Span(
            trace_id=trace_id,
            span_id=self._entropy(8).hex(),
            parent=parent,
            state=state,
            name=name,
            kind=kind,
            began=now,
            facts=facts,
        )

    def _has_room(self, now: int) -> bool:
        second = now // _SECOND
        if second != self._second:
            self._second, self._followed = second, 0
        self._followed += 1
        return self._followed <= FOLLOWED_PER_SECOND
