"""Changes that other processes committed, and whether this one has all of them: where several use one database.

    ChangeFeed      a thread with a connection of its own: woken by a commit (`NOTIFY`), or after half a second, it reads `changes` after the
                    last number that it has seen
    Confirmation    in the thread of the event loop: until when what is cached may be believed

Nothing is asked by a call as long as all is well. When the number was not confirmed for five seconds, everything that is cached is
forgotten before any task goes on, and nothing is cached until it is confirmed again.

A primary whose place its standby has taken may still answer, and would confirm what was ended at its heir long ago. Where commits wait for a
standby it gives itself away: none gets through any more. There, a look confirms only what was so when somebody last committed.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

import msgspec
import trio

from server.store.change_rows import newest_change, read_changes
from server.store.jobs import Change, StoreDb
from server.store.transactions import PendingJob, Transactions

# Whoever was told "revoked" by one process meets another that still lets the login in for as long as a wake-up takes; if that is
# lost, for this long; if the database is out of reach, for five seconds at most.
LOOK_SECONDS: Final = 0.5
# After a look that failed. How often a connection is tried then is its own to say (`server/cluster/postgres/postgres_wire.py`).
AGAIN_SECONDS: Final = 0.1
CONFIRMED_SECONDS: Final = 5.0
PAGE: Final = 1_000
# A connection that hangs holds up the end no longer.
_END_SECONDS: Final = 1.0


# Of a clock that nobody sets, and that goes on while the machine sleeps. Asked at each turn of the event loop, so without a function of ours.
running_seconds: Final[Callable[[], float]] = partial(
    time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
)


class NoticedConnection(Protocol):
    """A connection that can wait for a word of others'."""

    generation: int  # another after each connection that was lost

    def wait_for_notice(self, seconds: float) -> None: ...

    def wake(self) -> None:
        """From any thread: whoever waits for a word goes on."""
        ...


class News(msgspec.Struct, frozen=True, kw_only=True):
    """What one look found."""

    changes: Sequence[Change]  # in order
    up_to: int  # everything up to this number was seen
    known_at: float  # all that was committed before then was seen
    gap: bool  # what came between may not be all: nothing that is cached counts
    letters: int = 0  # the number of the newest
    awaits_standby: bool = False  # a commit does


class Glimpse(msgspec.Struct, frozen=True, kw_only=True):
    """What is there at one moment."""

    changes: Sequence[Change]
    up_to: int
    complete: bool  # nothing is missing between
    letters: int
    awaits_standby: bool
    # Another one where somebody has committed since: every two seconds, if only because a process says that it lives.
    mark: tuple[int, ...]


_BESIDE: Final = """
SELECT (SELECT max(seq) FROM letters) AS letters, (SELECT max(seq) FROM audit) AS audit, (SELECT max(seq) FROM movements) AS movements,
  (SELECT CAST(sum(alive_until) AS BIGINT) FROM nodes) AS beats,
  current_setting('synchronous_standby_names') <> '' AND current_setting('synchronous_commit') NOT IN ('off', 'local') AS awaits
"""


def look(db: StoreDb, *, after: int) -> Glimpse:
    """A job: what comes after that number."""
    beside = db.fetch_one(_BESIDE)
    assert beside is not None
    page = read_changes(db, after_seq=after, limit=PAGE)
    newest = page.changes[-1].seq if page.changes else newest_change(db)
    return Glimpse(
        changes=page.changes,
        up_to=newest,
        complete=page.complete and newest >= after,  # lower: the database that took over was behind
        letters=beside["letters"] or 0,
        mark=(newest, *(beside[name] or 0 for name in ("letters", "audit", "movements", "beats"))),
        awaits_standby=beside["awaits"],
    )


class ChangeFeed:
    """Made with the number from which on nothing is cached yet."""

    def __init__(self, transactions: Transactions, connection: NoticedConnection, *, after: int) -> None:
        self._transactions = transactions
        self._connection = connection
        self._generation = connection.generation
        self._number = after
        self._tell: Callable[[News], None] = lambda _: None
        self._ending = False
        self._heard = True  # at the last look
        self._mark: tuple[int, ...] | None = None  # of the last look
        self._asked_at = running_seconds()  # for it
        self._committed_at = self._asked_at  # somebody has, then or later
        self._thread = threading.Thread(target=self._run, name="store-changes", daemon=True)

    @property
    def after(self) -> int:
        return self._number

    def start(self, tell: Callable[[News], None]) -> None:
        """`tell` is called in the thread of the feed."""
        self._tell = tell
        self._thread.start()

    async def end(self) -> None:
        self._ending = True
        self._connection.wake()
        if self._thread.ident is not None:
            await trio.to_thread.run_sync(partial(self._thread.join, _END_SECONDS), abandon_on_cancel=True)

    def _run(self) -> None:
        try:
            while not self._ending:
                if not self.look():
                    self._connection.wait_for_notice(LOOK_SECONDS if self._heard else AGAIN_SECONDS)
        finally:
            self._transactions.close()

    def look(self) -> bool:
        """Once; whether there may be more."""
        asked_at = running_seconds()
        work = PendingJob(partial(look, after=self._number))
        self._transactions.run_read(work)
        self._heard = work.error is None
        if work.error is not None:  # it is tried again; what is cached is believed for a while
            return False
        found = work.result()
        same = self._connection.generation == self._generation
        # By another connection it may be another server, whose last commit may be old.
        if same and found.mark != self._mark:
            self._committed_at = self._asked_at
        self._generation = self._connection.generation
        self._mark, self._asked_at, self._number = found.mark, asked_at, found.up_to
        self._tell(
            News(
                changes=found.changes,
                up_to=found.up_to,
                letters=found.letters,
                known_at=self._committed_at if found.awaits_standby else asked_at,
                gap=not found.complete or not same,
                awaits_standby=found.awaits_standby,
            )
        )
        return len(found.changes) == PAGE


class Confirmation(trio.abc.Instrument):
    """Looked at whenever the event loop has waited, before any task goes on: also one that was stopped for a while comes by here first."""

    def __init__(
        self, trust: Callable[[bool], None], *, clock: Callable[[], float] = running_seconds
    ) -> None:
        self._trust = trust  # must not fail
        self._clock = clock
        self._until = math.inf
        self.at: float | None = None  # when it was confirmed last

    def begin(self) -> None:
        """Nothing is cached yet. From here on it counts, also if it is never confirmed."""
        self.at = self._clock()
        self._until = self.at + CONFIRMED_SECONDS

    @property
    def is_missing(self) -> bool:
        return self.at is not None and self._until == math.inf

    @property
    def seconds_ago(self) -> float | None:
        return None if self.at is None else self._clock() - self.at

    def confirm(self, known_at: float) -> None:
        """All that was committed before then is known."""
        if known_at + CONFIRMED_SECONDS <= self._clock():  # it was long on its way
            return
        missing, self.at = self.is_missing, known_at
        self._until = known_at + CONFIRMED_SECONDS
        if missing:
            self._trust(True)

    def after_io_wait(self, timeout: float) -> None:
        del timeout
        if self._clock() >= self._until:
            self._until = math.inf
            self._trust(False)
