"""The program as it is, but that it does not keep its word: what scripts/chaos must notice. Run by test_chaos.py.

`forgets`: every fifth refresh is answered and not kept. `repeats`: every login by code is written down twice. `keeps-to-itself`: no other
process hears that a login has ended.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import count

from auth.values.database import AuditEntry
from server.cli import run
from server.store.job_connection import Facade
from server.store.jobs import Effect
from server.store.transactions import Transactions


def forget() -> None:
    seen: set[str] = set()
    rotations = count(1)
    real_audit, real_commit = Facade.audit, Transactions._commit  # pyright: ignore[reportPrivateUsage]

    def audit(self: Facade, entry: AuditEntry) -> None:
        seen.add(entry.event)
        real_audit(self, entry)

    def commit(self: Transactions, effects: Sequence[Effect]) -> None:
        forgotten = "refresh.rotated" in seen and not next(rotations) % 5
        seen.clear()
        if forgotten:
            self._roll_back()  # pyright: ignore[reportPrivateUsage]
        else:
            real_commit(self, effects)

    Facade.audit = audit
    Transactions._commit = commit  # pyright: ignore[reportPrivateUsage]


def repeat() -> None:
    real_audit = Facade.audit

    def audit(self: Facade, entry: AuditEntry) -> None:
        for _ in range(2 if entry.event == "device.redeemed" else 1):
            real_audit(self, entry)

    Facade.audit = audit


def keep_to_itself() -> None:
    real_changed = Facade.changed

    def changed(self: Facade, kind: str, *entity_ids: str) -> None:
        if kind != "grant":
            real_changed(self, kind, *entity_ids)

    Facade.changed = changed


WAYS: dict[str, Callable[[], None]] = {
    "forgets": forget,
    "repeats": repeat,
    "keeps-to-itself": keep_to_itself,
}

if __name__ == "__main__":
    for way in sys.argv[1].split(","):
        WAYS[way]()
    sys.exit(run(sys.argv[2:]))
