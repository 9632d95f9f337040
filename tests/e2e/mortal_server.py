"""The program as it is, but for one thing: where a file `die` in the working directory says so, the process is killed.

Its content is `before EVENT` or `after EVENT`: the process gets SIGKILL when a transaction that has this event in its audit
trail is about to be committed, or has just been, before anybody was answered. Run by test_logins_killed.py.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from auth.values.database import AuditEntry
from server.cli import run
from server.store.job_connection import Facade
from server.store.jobs import Effect
from server.store.transactions import Transactions


def wanted() -> tuple[str, str]:
    try:
        when, _, event = Path("die").read_text("utf-8").partition(" ")
    except FileNotFoundError:
        return "", ""
    return when, event


def be_mortal() -> None:
    seen: set[str] = set()
    real_audit, real_commit = Facade.audit, Transactions._commit  # pyright: ignore[reportPrivateUsage]

    def audit(self: Facade, entry: AuditEntry) -> None:
        seen.add(entry.event)
        real_audit(self, entry)

    def commit(self: Transactions, effects: Sequence[Effect]) -> None:
        when, event = wanted()
        if when == "before" and event in seen:
            os.kill(os.getpid(), signal.SIGKILL)
        real_commit(self, effects)
        if when == "after" and event in seen:
            os.kill(os.getpid(), signal.SIGKILL)
        seen.clear()

    Facade.audit = audit
    Transactions._commit = commit  # pyright: ignore[reportPrivateUsage]


if __name__ == "__main__":
    be_mortal()
    sys.exit(run(sys.argv[1:]))
