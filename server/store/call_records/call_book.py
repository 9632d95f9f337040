"""Calls that have ended and are not written down yet: a call costs an entry in a queue, and whoever writes takes them in pieces.

Every call is counted, in the sum of its hour. A row of its own is for `ROWS_AT_ONCE` of what one round writes (a second's worth, see
recording.py): beyond that calls are passed over, and the next row says how many. Nothing here is durable: what a process that is
killed had not written is lost, which is a second's worth.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, Generic, TypeVar

import msgspec
import trio

from auth.values.identity_model import Millis, Principal, PrincipalKind
from server.store.call_records.call_record import (
    BUCKETS,
    FAILURES,
    HOUR,
    CallRecord,
    HourKey,
    HourSum,
    ToolKey,
)

K = TypeVar("K")

# Calls that wait to be counted: some seconds' worth of the fastest tool there is. Only an event loop that stands still gets there.
MOST_WAITING: Final = 100_000
# Rows of one round: a few milliseconds of the store's writer. A flood that lasts a day leaves ten million rows without this bound, and the disk full.
ROWS_AT_ONCE: Final = 500
# Of them for calls that failed, which are looked for: those that went well do not take their place.
FOR_FAILURES: Final = 100
# Sums of one hour: callers times tools times outcomes. Beyond, callers are counted together.
SUMS_AN_HOUR: Final = 1_000
# Sums that wait while the store takes nothing.
MOST_SUMS: Final = 4 * SUMS_AN_HOUR
# "Last used" to the minute is what people look for, and spares a write per login and second.
NOTED_EVERY: Final[Millis] = 60_000
# Logins and tools of which is known when that was written last. Beyond, all are written once more, and of those that wait to be
# written nothing more is noted.
MOST_NOTED: Final = 10_000


class LastUses(Generic[K]):
    """When each was used last, as far as it is to be written: the first time, and then once in a while."""

    def __init__(self) -> None:
        self._waiting: dict[K, Millis] = {}
        self._noted: dict[K, Millis] = {}

    def note(self, key: K, at: Millis) -> None:
        noted = self._noted.get(key)
        if noted is not None and 0 <= at - noted < NOTED_EVERY:  # a clock that was set back begins anew
            return
        if len(self._waiting) >= MOST_NOTED and key not in self._waiting:  # the store takes nothing
            return
        if len(self._noted) >= MOST_NOTED:
            self._noted.clear()
        self._noted[key] = self._waiting[key] = at

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self) -> Mapping[K, Millis]:
        found, self._waiting = self._waiting, {}
        return found

    def put_back(self, taken: Mapping[K, Millis]) -> None:
        self._waiting = {**taken, **self._waiting}


class CallBatch(msgspec.Struct, frozen=True):
    """What one write takes."""

    rows: Sequence[CallRecord]
    sums: Mapping[HourKey, HourSum]
    logins: Mapping[str, Millis] = MappingProxyType({})  # that called, and when
    tools: Mapping[ToolKey, Millis] = MappingProxyType({})  # that were called
    in_doubt: bool = False  # it may have been written

    @property
    def count(self) -> int:
        return sum(found.count for found in self.sums.values())


class CallBook:
    """One per process; in the event loop's thread only. Whoever has a record appends it to `waiting`, if that has room for it, else
    counts it in `missed`, and calls `wake` with the first."""

    def __init__(self) -> None:
        self.waiting: deque[CallRecord] = deque()
        self.missed = 0  # since the start: neither kept nor counted
        self.passed_over = 0  # since the start: counted, and not kept
        self.held_up = False  # the store did not take the last batch
        self._bell = trio.Event()
        self._rows: list[CallRecord] = []
        self._well = 0  # of these rows
        self._unsaid = 0  # passed over since the last row
        self._sums: dict[HourKey, HourSum] = {}
        self._hour: Millis = 0
        self._known = set[HourKey]()  # of this hour
        self._in_doubt = deque[CallBatch]()
        self._logins: LastUses[str] = LastUses()
        self._tools: LastUses[ToolKey] = LastUses()

    def wake(self) -> None:
        self._bell.set()

    async def wait(self) -> None:
        """Until there is something to write."""
        if not self._sums and not self._logins and not self._in_doubt:
            await self._bell.wait()

    def used(self, who: Principal, at: Millis) -> None:
        """Something else was done for them than a call of a tool: no row and no sum, but their login is in use."""
        if who.grant_id is not None and who.kind is not PrincipalKind.API_KEY:
            self._logins.note(who.grant_id, at)
            if self._logins:
                self.wake()

    def count(self, at_most: int) -> bool:
        """Take so many of those that wait; whether there are more."""
        if self._bell.is_set():  # else somebody waits for this one
            self._bell = trio.Event()
        waiting = self.waiting
        for _ in range(min(at_most, len(waiting))):
            record = waiting.popleft()
            self._sum_of(record).add(record.seconds)
            self._keep(record)
            who = record.who
            if who.grant_id is not None and who.kind is not PrincipalKind.API_KEY:  # of keys others take note
                self._logins.note(who.grant_id, record.at)
            self._tools.note((record.server, record.tool), record.at)
        return bool(waiting)

    def take(self) -> CallBatch | None:
        """What was counted, and before that what may have been written; it is forgotten here."""
        if self._in_doubt:
            return self._in_doubt.popleft()
        if not self._sums and not self._logins:
            return None
        batch = CallBatch(self._rows, self._sums, self._logins.take(), self._tools.take())
        self._rows, self._sums, self._well = [], {}, 0
        return batch

    def put_back(self, batch: CallBatch, *, in_doubt: bool = False) -> None:
        """It could not be written: for the next time. `in_doubt`: it may have been written, so it stays by itself, to be looked for. Sums
        stay exact."""
        if in_doubt or batch.in_doubt:
            self._in_doubt.append(msgspec.structs.replace(batch, in_doubt=True))
            return
        self._logins.put_back(batch.logins)
        self._tools.put_back(batch.tools)
        later, self._sums = self._sums, dict(batch.sums)
        for key, found in later.items():
            if (known := self._sums.get(key)) is None:
                self._sums[key] = found
            else:
                known.merge(found)
        newer, self._rows, self._well = self._rows, [], 0
        for record in (*batch.rows, *newer):
            self._keep(record)

    def give_up(self, batch: CallBatch) -> None:
        """It can never be written."""
        self.missed += batch.count

    def _sum_of(self, record: CallRecord) -> HourSum:
        hour = record.at // HOUR * HOUR
        if hour != self._hour:
            self._hour, self._known = hour, set[HourKey]()
        key = (hour, record.server, record.tool, record.who.key(), record.outcome)
        found = self._sums.get(key)
        if found is not None:
            found.who = record.who
            return found
        if key in self._known or (len(self._known) < SUMS_AN_HOUR and len(self._sums) < MOST_SUMS):
            self._known.add(key)
            found = self._sums[key] = HourSum(record.who, 0, 0.0, [0] * BUCKETS)
            return found
        return self._sums.setdefault(
            (hour, record.server, record.tool, "", record.outcome), HourSum(None, 0, 0.0, [0] * BUCKETS)
        )

    def _keep(self, record: CallRecord) -> None:
        well = record.outcome not in FAILURES
        if len(self._rows) >= ROWS_AT_ONCE or (well and self._well >= ROWS_AT_ONCE - FOR_FAILURES):
            self._unsaid += 1 + record.passed_over
            self.passed_over += 1
            return
        self._well += well
        record.passed_over += self._unsaid
        self._unsaid = 0
        self._rows.append(record)
