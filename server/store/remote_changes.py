"""What a store hears of the other processes on its database, told to the same listeners as what it commits itself: each change once.

All of it belongs to the thread of the event loop; what is read there comes from `change_feed.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

import trio

from server.store.change_feed import (
    CONFIRMED_SECONDS,
    ChangeFeed,
    Confirmation,
    News,
    running_seconds,
)
from server.store.jobs import CANNOT_BE_REACHED, Change, ChangeInDoubt, OnTrust, StoreUnreachable

MAY_BE_REPLACED: Final = (
    "the database commits nothing: the standby that it waits for does not answer, or has taken its place"
)
IF_REPLACED: Final = (
    "nobody is let in meanwhile: bring the standby back, or stop the old primary if the standby was promoted"
)

# Many times as many as may be committed here and heard of before their writers are answered.
HEARD: Final = 1_024


class TellingStore(Protocol):
    """The store."""

    def tell(self, changes: Sequence[Change]) -> None: ...

    def give_in(self, error: BaseException) -> None: ...


class RemoteChanges:
    def __init__(self, feed: ChangeFeed) -> None:
        self.listeners: list[OnTrust] = []
        self.on_letters: list[Callable[[], None]] = []
        self._letters = 0
        self.confirmation = Confirmation(self._trust)
        self._feed = feed
        self._up_to = feed.after  # everything up to this number was told
        self._ahead: set[int] = set()  # and of what comes after it, what was committed here
        # And of what came before it, the last, whose writers may not have been answered yet.
        self._heard: dict[Change, None] = {}
        self._awaits_standby = False
        self._heard_at = 0.0
        self._store: TellingStore | None = None

    @property
    def doubt(self) -> StoreUnreachable | None:
        """Why nothing that could be read is to be believed: the standby of the database that is asked may have taken its place, and what was
        ended there is not known here."""
        if not (self._awaits_standby and self.confirmation.is_missing):
            return None
        if self.is_heard:
            return StoreUnreachable(MAY_BE_REPLACED, hint=IF_REPLACED)
        return StoreUnreachable(CANNOT_BE_REACHED)

    @property
    def is_heard(self) -> bool:
        """The database answers, whatever its answers are worth."""
        return running_seconds() < self._heard_at + CONFIRMED_SECONDS

    def start(self, store: TellingStore, in_trio: Callable[..., None]) -> None:
        """`in_trio` calls a function in the thread of the event loop."""
        self._store = store
        self.confirmation.begin()
        trio.lowlevel.add_instrument(self.confirmation)
        self._feed.start(partial(in_trio, self._hear))

    async def end(self) -> None:
        trio.lowlevel.remove_instrument(self.confirmation)
        await self._feed.end()

    def not_told(self, changes: Sequence[Change]) -> Sequence[Change]:
        """Of those that were committed here; whoever asks tells them now. They may come before earlier ones of others. Their numbers say
        nothing: where another database took over, which was behind, they may be lower than what was heard."""
        fresh = [change for change in changes if change not in self._heard]
        # What comes to count later would be remembered as it was before.
        self._ahead.update(
            change.seq
            for change in fresh
            if change.seq > self._up_to and not isinstance(change, ChangeInDoubt)
        )
        return fresh

    def _hear(self, news: News) -> None:
        if news.gap:
            self._trust(False)
        fresh = [change for change in news.changes if change.seq not in self._ahead]
        self._up_to = news.up_to
        self._heard.update(dict.fromkeys(fresh))
        while len(self._heard) > HEARD:
            del self._heard[next(iter(self._heard))]
        self._ahead = {seq for seq in self._ahead if seq > news.up_to}
        if self._store is not None:
            self._store.tell(fresh)
        if news.gap and not self.confirmation.is_missing:
            self._trust(True)
        self._awaits_standby, self._heard_at = news.awaits_standby, running_seconds()
        self.confirmation.confirm(news.known_at)
        if news.letters != self._letters:
            self._letters = news.letters
            for listener in self.on_letters:
                listener()

    def _trust(self, trusted: bool) -> None:
        for listener in self.listeners:
            try:
                listener(trusted)
            except Exception as error:  # it may believe what it must not
                assert self._store is not None
                self._store.give_in(error)
