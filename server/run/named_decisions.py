"""Decisions of identity for a log that a person reads: with the names of who did what, which the audit trail does not have.

The names are in the database, so a line comes a moment after what it tells of. No decision waits for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Final

import trio

from auth.audit.audit_actors import shown_actor
from auth.audit.audit_names import AuditNames, names_of
from auth.values.database import AuditEntry
from server.lib.log.logger import Logger
from server.run.logged_decisions import is_told, say_named
from server.store.jobs import Store, StoreError

# Decisions of a flood that wait for their names; beyond that they are told without.
MOST_WAITING: Final = 1_000
# A disk that does not answer keeps nobody from hearing of what was decided.
NAMES_SECONDS: Final = 2.0


class NamedDecisions:
    def __init__(self, store: Store, log: Logger) -> None:
        self._store = store
        self._log = log
        self._waiting: deque[AuditEntry] = deque()
        self._bell = trio.Event()

    def hear(self, entries: Sequence[AuditEntry]) -> None:
        """For the store's `on_audit`."""
        self._waiting += [entry for entry in entries if is_told(entry)]
        while len(self._waiting) > MOST_WAITING:
            self._say(self._waiting.popleft(), AuditNames())
        self._bell.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._bell.wait()
            self._bell = trio.Event()
            await self.tell()

    async def tell(self) -> None:
        """All that wait."""
        entries = tuple(self._waiting)
        self._waiting.clear()
        names: Sequence[AuditNames] = [AuditNames()] * len(entries)  # what was decided is told all the same
        try:
            with trio.move_on_after(NAMES_SECONDS):
                names = await self._store.read(partial(names_of, entries=entries)) if entries else ()
        except StoreError:
            pass
        except trio.Cancelled:
            self._waiting.extendleft(reversed(entries))
            raise
        for entry, named in zip(entries, names, strict=True):
            self._say(entry, named)

    def _say(self, entry: AuditEntry, names: AuditNames) -> None:
        who = shown_actor(entry.actor, person=names.person, program=names.program)
        say_named(self._log, entry, {"who": who, "program": names.program})
