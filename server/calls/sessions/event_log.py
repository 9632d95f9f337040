"""What a session was sent, kept for a while, so that a client whose connection broke can have the rest of a stream.

Every stream of a session (one per request that streams, one for what belongs to no request) is written here first; a
connection is a reader of it. Nothing here knows HTTP. Spec: basic/transports "Resumability and Redelivery" (2025-11-25).
"""

from __future__ import annotations

import re
import secrets
from collections import deque
from typing import Any, Final, NamedTuple, Self

import trio

# Some minutes of a busy session; who stays away longer starts its requests anew.
MAX_EVENTS: Final = 512
MAX_BYTES: Final = 2 * 1024 * 1024
# All sessions of a server together. Beyond it each keeps only a little, and what its client is about to be given.
MAX_BYTES_OVERALL: Final = 64 * 1024 * 1024
# Which nobody can take from it by keeping much: as many sessions as there may be keep no more than that again.
MIN_BYTES: Final = 16 * 1024
# What a connected client has yet to be given is kept beyond the bounds, up to this many times each: it is no past to come back
# to, but an answer that would be lost. Senders wait for their readers, and who does not read is cut off, so it is rarely much.
OWED: Final = 4

_EVENT_ID: Final = re.compile(r"([0-9a-f]{8})-(\d{1,15})-(\d{1,15})", re.ASCII).fullmatch
_LIFE_BYTES: Final = 4
# In the place of a deque that would be empty, which takes 700 bytes: most streams never have an event. Nothing can be put into it.
_NOTHING: Final[deque[Any]] = deque[Any](maxlen=0)


class StreamNotKnown(Exception):
    """Not all nodes have said whether they have a stream."""


class Event(NamedTuple):
    id: str
    message: bytes


class Allowance:
    """The bytes that the logs of all sessions may hold together, and those that each may whatever the others do."""

    __slots__ = ("least", "limit", "used")

    def __init__(self, limit: int = MAX_BYTES_OVERALL, *, least: int = MIN_BYTES) -> None:
        self.limit: Final = limit
        self.least: Final = least
        self.used = 0


class EventLog:
    def __init__(
        self, allowance: Allowance, *, max_events: int = MAX_EVENTS, max_bytes: int = MAX_BYTES
    ) -> None:
        self._allowance = allowance
        self._max_events = max_events
        self._max_bytes = max_bytes
        # A session that was taken up again has a log of its own, and a client may come back with an event's id from the one before.
        self.life: Final = secrets.token_hex(_LIFE_BYTES)
        self._streams: dict[int, EventStream] = {}
        self._opened = 0
        self._order: deque[EventStream] = _NOTHING  # whose event is the oldest, the second oldest …
        self._bytes = 0
        self._closed = False

    def open(self) -> EventStream:
        """A new stream. It can be found as long as it may have a next event or one of its events is kept."""
        stream = EventStream(self, self._opened)
        self._opened += 1
        if self._closed:
            stream.forget()
        else:
            self._streams[stream.number] = stream
        return stream

    def find_here(self, event_id: str) -> tuple[EventStream, int] | None:
        """The same for an event of this very log."""
        return self.find(event_id) if event_id.startswith(f"{self.life}-") else None

    def find(self, event_id: str) -> tuple[EventStream, int] | None:
        """The stream that an event was of, and its place there. None: no such event, or the stream has ended and none of
        it is kept. Events between that one and the oldest kept one may be missing; the answer, which is last, is not.

        Of the streams of another log only the first goes on, from what nobody was given: it is of no request, and always there."""
        match = _EVENT_ID(event_id)
        if match is None:
            return None
        number, place = int(match[2]), int(match[3])
        stream = self._streams.get(number)
        if match[1] != self.life:
            return None if stream is None or number > 0 else (stream, stream.handed)
        return None if stream is None or place > stream.last else (stream, place)

    def close(self) -> None:
        """Forget everything; readers come to their end."""
        self._closed = True
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            stream.forget()
        self._order = _NOTHING
        self._allowance.used -= self._bytes
        self._bytes = 0

    def keep(self, stream: EventStream, size: int) -> None:
        """The stream has a new event; others make room for it."""
        if self._order is _NOTHING:
            self._order = deque()
        self._order.append(stream)
        self._bytes += size
        self._allowance.used += size
        self.make_room()

    def make_room(self) -> None:
        """The newest of all is kept whatever its size, as long as all sessions together keep no more than they may."""
        if not self._exceeds(1, len(self._order)):
            return
        owed = deque[EventStream]()
        while self._order and self._exceeds(1, count := len(self._order) + len(owed)):
            if len(self._order) == 1 and not self._exceeds_allowance(1):
                break
            oldest = self._order.popleft()
            if oldest.owes and not self._exceeds(OWED, count):
                owed.append(oldest)
                continue
            freed = oldest.drop_oldest()
            self._bytes -= freed
            self._allowance.used -= freed
            self.tidy(oldest)
        self._order.extendleft(reversed(owed))

    def _exceeds(self, times: int, count: int) -> bool:
        """Whether that many events, and their bytes, are more than so many times what may be kept."""
        return (
            count > self._max_events * times
            or self._bytes > self._max_bytes * times
            or self._exceeds_allowance(times)
        )

    def _exceeds_allowance(self, times: int) -> bool:
        allowance = self._allowance
        return allowance.used > allowance.limit * times and self._bytes > allowance.least

    def tidy(self, stream: EventStream) -> None:
        if stream.ended and not stream.holds_any:
            self._streams.pop(stream.number, None)


class EventStream:
    """Events in their order. Written by any number of tasks, read by at most one."""

    __slots__ = ("_awaited", "_kept", "_log", "_reader", "_unread", "ended", "handed", "last", "number")

    def __init__(self, log: EventLog, number: int) -> None:
        self._log = log
        self._kept: deque[bytes] = _NOTHING
        self._reader: StreamReader | None = None
        self._unread: trio.Event | None = None  # somebody waits until the reader has it all
        self._awaited: trio.Event | None = None  # somebody waits for a reader
        self.number: Final = number
        self.last = 0  # the place of the newest event; place 0 is the beginning, before any
        self.handed = 0  # the place of the newest event that any reader was given
        self.ended = False

    @property
    def beginning(self) -> str:
        """An id from which everything follows."""
        return self.id_of(0)

    def id_of(self, place: int) -> str:
        return f"{self._log.life}-{self.number}-{place}"

    @property
    def holds_any(self) -> bool:
        return bool(self._kept)

    @property
    def owes(self) -> bool:
        """Whether all that is kept of it is yet to be given to whoever reads it."""
        reader = self._reader
        return reader is not None and not reader.left and self.last - len(self._kept) >= reader.handed

    @property
    def attended(self) -> bool:
        return self._reader is not None and not self._reader.left

    async def wait_stirred(self) -> None:
        """Returns when somebody has begun to read it, or `stir` was called."""
        if self._awaited is None:
            self._awaited = trio.Event()
        await self._awaited.wait()

    def stir(self) -> None:
        if self._awaited is not None:
            self._awaited.set()
            self._awaited = None

    def unread(self) -> list[bytes]:
        """What is kept of it and no reader was given."""
        owed = self.last - self.handed
        return list(self._kept)[-owed:] if owed else []

    def append(self, message: bytes) -> None:
        """Dropped on a stream that has ended."""
        if self.ended:
            return
        self.last += 1
        if self._kept is _NOTHING:
            self._kept = deque()
        self._kept.append(message)
        self._log.keep(self, len(message))
        self._rouse()

    def end(self) -> None:
        """There will be no more events. Those that are kept can still be read."""
        self.ended = True
        self._log.tidy(self)
        self._rouse()

    def let_go(self) -> None:
        """Whoever reads comes to the end of what there is to read, for now."""
        if self._reader is not None:
            self._reader.leave()

    async def taken(self) -> None:
        """Returns when the reader has asked for more than there is, or there is none: how fast a sender may be."""
        while self._reader is not None and not self._reader.left and self._reader.place < self.last:
            if self._unread is None:
                self._unread = trio.Event()
            await self._unread.wait()

    def read(self, after: int = 0) -> StreamReader:
        """For a connection, which enters it for as long as it reads."""
        return StreamReader(self, after)

    def begin_reading(self, reader: StreamReader) -> None:
        """An earlier reader that is still there comes to its end: its client has come back."""
        self.let_go()
        self._reader = reader
        self.stir()

    def end_reading(self, reader: StreamReader) -> None:
        if self._reader is reader:
            self._reader = None

    def event_after(self, place: int) -> tuple[int, bytes] | None:
        """The oldest kept event after it, with its place."""
        index = max(0, place + len(self._kept) - self.last)
        if index >= len(self._kept):
            return None
        return self.last - len(self._kept) + index + 1, self._kept[index]

    def handed_over(self, place: int) -> None:
        """Its reader has this event: what is the past now may have to make room."""
        self.handed = max(self.handed, place)
        self._log.make_room()

    def read_up(self) -> None:
        if self._unread is not None:
            self._unread.set()
            self._unread = None

    def drop_oldest(self) -> int:
        return len(self._kept.popleft())

    def forget(self) -> None:
        self._kept = _NOTHING
        self.ended = True
        self._rouse()

    def _rouse(self) -> None:
        if self._reader is not None:
            self._reader.rouse()


class StreamReader:
    __slots__ = ("_stream", "_wake", "handed", "left", "place")

    def __init__(self, stream: EventStream, after: int) -> None:
        self._stream = stream
        self.handed = after
        self.left = False
        self._wake: trio.Event | None = None
        self.place = after  # everything up to here has been dealt with

    def __enter__(self) -> Self:
        self._stream.begin_reading(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()
        self._stream.end_reading(self)

    async def next(self) -> Event | None:
        """The next event; None at the end of the stream, or when somebody else reads it now. Cancelling it loses nothing."""
        while not self.left:
            self.place = self.handed
            found = self._stream.event_after(self.handed)
            if found is not None:
                self.handed, message = found
                self._stream.handed_over(self.handed)
                return Event(self._stream.id_of(self.handed), message)
            self._stream.read_up()
            if self._stream.ended:
                return None
            self._wake = trio.Event()
            await self._wake.wait()
        return None

    @property
    def at_end(self) -> bool:
        """Whether `next` would say so without waiting."""
        return self._stream.ended and self._stream.event_after(self.handed) is None

    def rouse(self) -> None:
        if self._wake is not None:
            self._wake.set()

    def leave(self) -> None:
        self.left = True
        self._stream.read_up()
        self.rouse()
