"""What the database of a stopped server must say, if all that its clients were told is true.

A copy is looked at: the log that SQLite reads after a kill is for the server to read.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from durability_clients import Book, Keeper, Newcomer, Refresher, Tasker, Witness

SHOWN = 5  # sentences about what is wrong, of each kind
DATABASE = "ostiary.db"
STEP = re.compile(r"(\S+) (begins|kept) (\d+)")
TOOK = re.compile(r"([\w-]+) took (\d+) steps")


class Damaged(NamedTuple):
    what: str


class Rows:
    """The database, for a look."""

    def __init__(self, execute: Callable[[str], Any]) -> None:
        """`execute` gives a cursor, of either kind of database."""
        self._execute = execute

    def counted(self, query: str) -> dict[Any, int]:
        return dict(self._execute(query).fetchall())

    def one(self, query: str) -> Any:
        return self._execute(query).fetchone()[0]


def copy(data: Path, into: Path) -> Path:
    """The database and its log, as they lie there."""
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir()
    for name in (DATABASE, f"{DATABASE}-wal"):
        if (data / name).exists():
            shutil.copy(data / name, into / name)
    return into / DATABASE


def look_for_damage(database: Path) -> Damaged | None:
    with closing(sqlite3.connect(database)) as connection:
        try:
            said = [row[0] for row in connection.execute("PRAGMA integrity_check")]
            strangers = connection.execute("PRAGMA foreign_key_check").fetchall()
        except sqlite3.DatabaseError as error:
            return Damaged(str(error))
    if said != ["ok"]:
        return Damaged("; ".join(said[:3]))
    return Damaged(f"{len(strangers)} rows lead nowhere") if strangers else None


@contextmanager
def opened(database: Path) -> Generator[Rows]:
    with closing(sqlite3.connect(database)) as connection:
        yield Rows(connection.execute)


def compare(rows: Rows, notes: Path, witnesses: Sequence[Witness], books: dict[str, Book]) -> Book:
    """Adds to `books` what is missing or doubled in the database, and returns what became of the audit rows."""
    _chains(rows, witnesses, books["refreshes"])
    _logins(rows, witnesses, books["logins"])
    _revocations(rows, witnesses, books["revocations"])
    _keys(rows, witnesses, books["API keys"], books["API keys ended"])
    tasks = sum(len(witness.begun) for witness in witnesses if isinstance(witness, Tasker))
    _count(
        rows.one("SELECT COUNT(*) FROM tasks WHERE tool = 'steps'"), tasks, books["tasks"], "rows of tasks"
    )
    compare_steps(notes, witnesses, books["tasks"])
    return _audit(rows)


def tell(books: dict[str, Book]) -> tuple[int, int]:
    """How much is missing, and how much is doubled."""
    print(f"\n{'':16} {'acknowledged':>12} {'in doubt':>9} {'missing':>8} {'doubled':>8}")
    for noun, book in books.items():
        print(
            f"{noun:16} {book.acknowledged:12d} {book.in_doubt:9d} {len(book.missing):8d} {len(book.doubled):8d}"
        )
        for what in book.missing[:SHOWN]:
            print(f"  MISSING {what}")
        for what in book.doubled[:SHOWN]:
            print(f"  DOUBLED {what}")
    return sum(len(book.missing) for book in books.values()), sum(
        len(book.doubled) for book in books.values()
    )


def _chains(rows: Rows, witnesses: Sequence[Witness], book: Book) -> None:
    counters = rows.counted("SELECT id, counter FROM grants")
    for witness in witnesses:
        if isinstance(witness, Refresher) and witness.login is not None:
            login = witness.login
            differ(counters.get(login.grant_id, 0), login.counter, book, f"the counter of {login.grant_id}")
    rotated = rows.counted(
        "SELECT grant_id, COUNT(*) FROM audit WHERE event = 'refresh.rotated' AND outcome = 'ok' GROUP BY grant_id"
    )
    for grant_id, counter in counters.items():
        differ(rotated.get(grant_id, 0), counter - 1, book, f"refresh.rotated of {grant_id}")


def _logins(rows: Rows, witnesses: Sequence[Witness], book: Book) -> None:
    redeemed = rows.counted(
        "SELECT grant_id, COUNT(*) FROM audit WHERE event = 'device.redeemed' AND outcome = 'ok' GROUP BY grant_id"
    )
    made = rows.counted("SELECT id, 1 FROM grants")
    for grant_id in made.keys() | redeemed.keys():
        differ(redeemed.get(grant_id, 0), made.get(grant_id, 0), book, f"device.redeemed of {grant_id}")
    lost = sum(witness.lost_logins for witness in witnesses)
    differ(len(made), book.acknowledged + lost, book, "logins")


def _revocations(rows: Rows, witnesses: Sequence[Witness], book: Book) -> None:
    revoked = rows.counted(
        "SELECT grant_id, COUNT(*) FROM audit WHERE event = 'grant.revoked' GROUP BY grant_id"
    )
    ended = rows.counted("SELECT id, 1 FROM grants WHERE revoked_at IS NOT NULL")
    for grant_id in ended.keys() | revoked.keys():
        differ(revoked.get(grant_id, 0), ended.get(grant_id, 0), book, f"grant.revoked of {grant_id}")
    told = [
        login.grant_id for witness in witnesses if isinstance(witness, Newcomer) for login in witness.ended
    ]
    book.missing += [f"the end of {grant_id}" for grant_id in told if grant_id not in ended]
    lost = sum(witness.lost_logins for witness in witnesses)
    differ(len(ended), len(told) + lost, book, "revocations")


def _keys(rows: Rows, witnesses: Sequence[Witness], made: Book, ended: Book) -> None:
    created = rows.counted(
        "SELECT grant_id, COUNT(*) FROM audit WHERE event = 'api_key.created' GROUP BY grant_id"
    )
    revoked = rows.counted(
        "SELECT grant_id, COUNT(*) FROM audit WHERE event = 'api_key.revoked' GROUP BY grant_id"
    )
    there = rows.counted("SELECT id, revoked_at IS NOT NULL FROM api_keys")
    for key_id in there.keys() | created.keys():
        differ(created.get(key_id, 0), int(key_id in there), made, f"api_key.created of {key_id}")
    for key_id in there.keys() | revoked.keys():
        differ(revoked.get(key_id, 0), there.get(key_id, 0), ended, f"api_key.revoked of {key_id}")
    for witness in witnesses:
        if isinstance(witness, Keeper):
            made.missing += [key_id for key_id in witness.kept if there.get(key_id) != 0]
            ended.missing += [key_id for key_id in witness.ended if there.get(key_id) != 1]
    _count(len(there), made.acknowledged, made, "API keys")


def _audit(rows: Rows) -> Book:
    first, last, count = (
        rows.one(f"SELECT {what} FROM audit") for what in ("MIN(seq)", "MAX(seq)", "COUNT(*)")
    )
    book = Book(acknowledged=count)
    differ(count, last - first + 1, book, "audit rows")
    return book


def compare_steps(notes: Path, witnesses: Sequence[Witness], book: Book) -> None:
    """A step whose checkpoint was acknowledged is not taken again, and a task that has completed has begun each of its steps."""
    kept: Counter[str] = Counter()
    begun: dict[str, set[int]] = {}
    for name, what, number in STEP.findall(notes.read_text("utf-8") if notes.exists() else ""):
        step = int(number)
        if what == "kept":
            kept[name] = max(kept[name], step + 1)
            continue
        begun.setdefault(name, set()).add(step)
        if step < kept[name]:
            book.doubled.append(f"step {step} of {name}")
    for said in (said for each in witnesses if isinstance(each, Tasker) for said in each.completed.values()):
        if (took := TOOK.search(said)) is None:
            book.missing.append(f"steps: a task has completed with {said}")
            continue
        name, count = took[1], int(took[2])
        for step in sorted(set(range(count)) - begun.get(name, set())):
            book.missing.append(f"step {step} of {name}, which has completed")


def _count(found: int, acknowledged: int, book: Book, what: str) -> None:
    """There may be more than was acknowledged, by as many as are in doubt."""
    if found < acknowledged:
        book.missing.append(f"{what}: {found}, not {acknowledged}")
    elif found > acknowledged + book.in_doubt:
        book.doubled.append(f"{what}: {found}, not {acknowledged} and at most {book.in_doubt} more")


def differ(found: int, expected: int, book: Book, what: str) -> None:
    if found < expected:
        book.missing.append(f"{what}: {found}, not {expected}")
    elif found > expected:
        book.doubled.append(f"{what}: {found}, not {expected}")
