"""How many answers are kept for one caller, and that they do not become too many.

An answer is kept until it was fully given, and one of a call with a key, or with `dedupe`, as long as it may be asked for again. Those that were
given make room for new calls, as soon as they can have arrived: first those that nobody paid for, then the oldest. Those that were paid for and
not given yet never do: where they alone are too many, no further call is begun. Those that were paid for and those that cost nothing are rows of two tables (`KeptRows`), each with its bounds.

What is kept is added up when a caller is first heard of, again when a share of the bound was added here since, because other processes on
the same database add as well, and again when it could be too much; so an ordinary call adds nothing up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

import msgspec
import trio

from server.store.jobs import Store, StoreDb


class KeptSum(msgspec.Struct, frozen=True):
    answers: int
    bytes: int

    def reaches(self, bound: KeptSum) -> bool:
        return self.answers >= bound.answers or self.bytes >= bound.bytes

    def __add__(self, more: KeptSum) -> KeptSum:
        return KeptSum(self.answers + more.answers, self.bytes + more.bytes)

    def __sub__(self, less: KeptSum) -> KeptSum:
        return KeptSum(self.answers - less.answers, self.bytes - less.bytes)

    def share(self, parts: int) -> KeptSum:
        return KeptSum(max(self.answers // parts, 1), max(self.bytes // parts, 1))


# Asked before each call, so what a caller has under way at that moment may come on top, and what other processes added since it was looked.
OF_CALLER: Final = KeptSum(10_000, 256 * 1024 * 1024)
# All together of whom nothing is known but what they pay with: one person can have any number of addresses.
OF_STRANGERS: Final = KeptSum(40_000, 4 * 1024 * 1024 * 1024)
# How long an answer that was written may take to its caller, through whatever lies between.
GRACE_MS: Final = 3_000
# Room is made in steps of one part in so many, not anew for each call; it is found by reads, which hold up nobody, and made by small writes.
PARTS: Final = 16
# What was added here is one part in so many of the bound: others may have added as much. So with N processes no more than N of these parts
# come on top; and to add up ten thousand rows takes a few milliseconds, once in 156 calls.
SHARES: Final = 64
PIECE: Final = 100
FOUND: Final = 5_000
# Whose sums are remembered; of others they are added up again.
MOST_HOLDERS: Final = 10_000
# Whoever was found to have too much is not looked at anew with each call that is refused.
LOOK_AGAIN_SECONDS: Final = 1.0

_OF_ONE: Final = "caller = ?"
_OF_ANY_STRANGER: Final = "caller >= ? AND caller < ?"
_GIVEN: Final = "answered_at <= ?"


class KeptRows(msgspec.Struct, frozen=True, kw_only=True):
    """Where answers are kept: a table with `id`, `caller`, `answered_at` and `answer_bytes`, which is 0 where none is. `stranger`: how the
    callers begin that are bounded all together, up to the colon. `drop` makes room of the row with an id; `first`: those that go first."""

    table: str
    stranger: str
    drop: str
    first: str = "answered_at"

    @property
    def strangers(self) -> str:
        """All of them, as a holder."""
        return f"{self.stranger}*"

    def callers(self, holder: str) -> tuple[str, tuple[object, ...]]:
        if holder == self.strangers:
            # The character after the colon: whatever begins like a stranger comes before it.
            return _OF_ANY_STRANGER, (self.stranger, f"{self.stranger[:-1]};")
        return _OF_ONE, (holder,)

    def sum(self, db: StoreDb, condition: str, *which: object) -> KeptSum:
        row = db.fetch_one(
            "SELECT count(*) AS answers, coalesce(sum(answer_bytes), 0) AS bytes"
            f" FROM {self.table} WHERE answer_bytes > 0 AND {condition}",
            *which,
        )
        assert row is not None
        return KeptSum(**row)


# Of calls that stay made and paid for: a repeat is told that it was answered. One that was interrupted or failed, and was not paid for, is
# forgotten; and before any other, for it costs nothing to make many of them.
CHARGES: Final = KeptRows(
    table="charges",
    stranger="payer:",
    drop="UPDATE charges SET answer = NULL, answer_bytes = 0, expires_at = CASE paid WHEN 1 THEN expires_at ELSE 0 END"
    " WHERE id = ? AND state = 'done' AND answered_at IS NOT NULL",
    first="paid, answered_at",
)
STRANGERS: Final = CHARGES.strangers


def kept_for(db: StoreDb, holder: str, rows: KeptRows = CHARGES) -> KeptSum:
    """What is kept for a caller, or for all strangers."""
    callers, which = rows.callers(holder)
    return rows.sum(db, callers, *which)


def too_old(db: StoreDb, holder: str, bound: KeptSum, *, now: int, rows: KeptRows = CHARGES) -> Sequence[str]:
    """Rows whose answers have to go so that what is kept comes below the bound: the oldest that were given; not all of them where
    there are very many. Empty: that would not be enough, or nothing has to go."""
    kept, (callers, which), arrived = kept_for(db, holder, rows), rows.callers(holder), now - GRACE_MS
    given = rows.sum(db, f"{_GIVEN} AND {callers}", arrived, *which)
    waiting = KeptSum(kept.answers - given.answers, kept.bytes - given.bytes)
    if not kept.reaches(bound) or waiting.reaches(bound):
        return ()
    to_go = kept - bound + bound.share(PARTS)
    too_many, too_large = to_go.answers, to_go.bytes
    sql = (
        f"SELECT id, answer_bytes FROM {rows.table} WHERE answer_bytes > 0 AND {_GIVEN} AND {callers}"
        f" ORDER BY {rows.first}, id LIMIT ?"
    )
    found: list[str] = []
    for row in db.fetch_all(sql, arrived, *which, FOUND):
        if too_many <= 0 and too_large <= 0:
            break
        found.append(row["id"])
        too_many -= 1
        too_large -= row["answer_bytes"]
    return found


def drop_answers(db: StoreDb, ids: Sequence[str], rows: KeptRows = CHARGES) -> None:
    for each in ids:
        db.execute(rows.drop, each)


class _Known:
    """What was found at the last look, by whomever it was added, and what was added here since."""

    __slots__ = ("added", "found", "full_until", "looking")

    def __init__(self) -> None:
        self.found: KeptSum | None = None
        self.added = KeptSum(0, 0)
        self.looking = trio.Lock()
        self.full_until = -math.inf  # on trio's clock

    def is_stale(self, bound: KeptSum) -> bool:
        return self.found is None or self.added.reaches(bound.share(SHARES))

    def has_room(self, bound: KeptSum) -> bool:
        return self.found is not None and not (self.found + self.added).reaches(bound)


class AnswerRoom:
    """Of the whole process. Others on the same database add answers, too, each with a room of its own: together they keep a share of the
    bound more at most, for each of them."""

    def __init__(
        self,
        store: Store,
        clock: Callable[[], int],
        *,
        of_caller: KeptSum = OF_CALLER,
        of_strangers: KeptSum = OF_STRANGERS,
        rows: KeptRows = CHARGES,
    ) -> None:
        self._rows = rows
        self._store = store
        self._clock = clock
        self._of_caller = of_caller
        self._of_strangers = of_strangers
        self._known: dict[str, _Known] = {}

    async def is_left(self, caller: str) -> bool:
        """Whether another answer can be kept for this caller, as far as is known. Raises what the store raises."""
        for holder, bound in self._holders(caller):
            known = self._known.get(holder) or self._begin(holder)
            if known.is_stale(bound):
                async with known.looking:
                    if known.is_stale(bound):
                        await self._look(known, holder)
            if not known.has_room(bound):
                return False
        return True

    async def make(self, caller: str) -> bool:
        """For a call that none before it stands for, where none seemed to be left. False: there is none."""
        for holder, bound in self._holders(caller):
            known = self._known.get(holder) or self._begin(holder)
            async with known.looking:  # one after the other: who waited finds what the first has found
                if not known.has_room(bound) and not await self._make(known, holder, bound):
                    return False
        return True

    def add(self, caller: str, size: int) -> None:
        """An answer is about to be kept."""
        for holder, _ in self._holders(caller):
            known = self._known.get(holder)
            if known is not None:
                known.added += KeptSum(1, size)

    def _holders(self, caller: str) -> Iterable[tuple[str, KeptSum]]:
        own = (caller, self._of_caller)
        if not caller.startswith(self._rows.stranger):
            return (own,)
        return own, (self._rows.strangers, self._of_strangers)

    def _begin(self, holder: str) -> _Known:
        while len(self._known) >= MOST_HOLDERS:
            del self._known[next(iter(self._known))]
        known = self._known[holder] = _Known()
        return known

    async def _make(self, known: _Known, holder: str, bound: KeptSum) -> bool:
        """What may be too much is looked at again first: something is dropped only where it is."""
        if trio.current_time() < known.full_until:
            return False
        while (await self._look(known, holder)).reaches(bound):
            job = partial(too_old, holder=holder, bound=bound, now=self._clock(), rows=self._rows)
            old = await self._store.read(job)
            if not old:
                known.full_until = trio.current_time() + LOOK_AGAIN_SECONDS
                return False
            for start in range(0, len(old), PIECE):
                piece = old[start : start + PIECE]
                await self._store.write(partial(drop_answers, ids=piece, rows=self._rows))
        return True

    async def _look(self, known: _Known, holder: str) -> KeptSum:
        before = known.added
        known.found = await self._store.read(partial(kept_for, holder=holder, rows=self._rows))
        known.added -= before  # what was added meanwhile stays
        return known.found
