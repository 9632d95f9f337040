"""The program as it is, but for one thing: where a file `die` in the working directory says so, the process is killed.

Its content is `before JOB` or `after JOB`, and JOB one of the till's: the process gets SIGKILL when a transaction in which that job ran is
about to be committed, or has just been, before anybody was answered. Run by test_paid_faults.py.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

from server.cli import run
from server.payments.seller import charge_rows, claims
from server.store.jobs import Effect
from server.store.transactions import Transactions

JOBS = (
    (claims, ("reserve", "claim", "claim_paid", "send", "finish", "release", "book_settled", "book_refused")),
    (charge_rows, ("take_up",)),
)


def wanted() -> tuple[str, str]:
    try:
        when, _, job = Path("die").read_text("utf-8").partition(" ")
    except FileNotFoundError:
        return "", ""
    return when, job


def be_mortal() -> None:
    seen: set[str] = set()
    real_commit = Transactions._commit  # pyright: ignore[reportPrivateUsage]

    def noted(name: str, job: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(job)
        def do(*arguments: Any, **more: Any) -> Any:
            seen.add(name)
            return job(*arguments, **more)

        return do

    def commit(self: Transactions, effects: Sequence[Effect]) -> None:
        when, job = wanted()
        if when == "before" and job in seen:
            os.kill(os.getpid(), signal.SIGKILL)
        real_commit(self, effects)
        if when == "after" and job in seen:
            os.kill(os.getpid(), signal.SIGKILL)
        seen.clear()

    for module, names in JOBS:
        for name in names:
            setattr(module, name, noted(name, getattr(module, name)))
    Transactions._commit = commit  # pyright: ignore[reportPrivateUsage]


if __name__ == "__main__":
    be_mortal()
    sys.exit(run(sys.argv[1:]))
