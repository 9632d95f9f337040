"""The list of tests that failed and passed alone: each may do so once, and then its cause is to be found.

A row of `tests/raced.txt`: the day, the store, the test, and behind a `#` the cause.
"""

from __future__ import annotations

import datetime
import re
from typing import Final, NamedTuple

from entries import ROOT

LIST: Final = ROOT / "tests" / "raced.txt"
UNKNOWN: Final = "not known yet"
_ROW: Final = re.compile(r"(\d{4}-\d\d-\d\d) (sqlite|postgres) (\S.*?)  # (\S.*)")


class Raced(NamedTuple):
    store: str
    test: str


def on_record() -> frozenset[Raced]:
    rows = [line for line in LIST.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    found = [_ROW.fullmatch(line) for line in rows]
    return frozenset(Raced(row[2], row[3]) for row in found if row is not None)


def record(raced: Raced) -> str:
    """Open a row for this test; the row."""
    row = f"{datetime.date.today()} {raced.store} {raced.test}  # {UNKNOWN}"  # noqa: DTZ011  # the day of whoever reads it
    with LIST.open("a", encoding="utf-8") as rows:
        rows.write(row + "\n")
    return row
