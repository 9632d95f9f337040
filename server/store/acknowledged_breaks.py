"""Breaks of a chain (`chains.py`) that somebody has looked into and acknowledged: they are told as that, and are no alarm any more.

Kept in `meta`, under the seal of the chain: whatever is taken away or put back there brings the alarm back. That it was done is a row of the
trail as well. A gap says where the walk goes on behind rows that are not as they were written: at the next row as it was found then, or at
the end that the record named. If that row is another one later, or there is another break, that is an alarm of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from server.store.jobs import Position

# Each is sought in a list, and a trail with more of them than this is no trail: a back-up is.
MOST_GAPS: Final = 500
_ENCODER: Final = msgspec.json.Encoder()


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """A break, from the place before it to the one at which the walk goes on."""

    after: Position
    to: Position
    row: str  # a seal of the row at `to`, as it was found; empty: an end without a row


class KnownBreaks(msgspec.Struct, frozen=True, kw_only=True):
    """What was acknowledged of one chain, and by whom the last of it."""

    noticed: int = 0  # what its record had noticed, as far as this row
    gaps: tuple[Gap, ...] = ()
    by: str = ""
    at: int = 0
    note: str = ""
    up_to: int = 0  # the newest row of that moment

    def __bool__(self) -> bool:
        return self.by != ""

    def beyond(self, at: Position) -> Gap | None:
        """The gap that begins at this place."""
        return next((gap for gap in self.gaps if gap.after == at), None)

    def with_gaps(self, more: Sequence[Gap]) -> KnownBreaks:
        """One that begins where another does takes its place: what was found there is another thing now."""
        begun = {gap.after.seq: gap for gap in self.gaps} | {gap.after.seq: gap for gap in more}
        return replace(self, gaps=tuple(begun.values()))


NOTHING: Final = KnownBreaks()


def encoded(acknowledged: KnownBreaks) -> str:
    return _ENCODER.encode(acknowledged).decode()


def decoded(text: str) -> KnownBreaks:
    return msgspec.json.decode(text, type=KnownBreaks)


def sign_of(row: Mapping[str, Any]) -> str:
    """All that is in a row, in one reading."""
    return _ENCODER.encode(sorted(row.items())).decode()


def told(acknowledged: KnownBreaks) -> dict[str, Any] | None:
    """For whoever asks at the machine."""
    if not acknowledged:
        return None
    return {name: getattr(acknowledged, name) for name in ("by", "at", "note", "up_to")}
