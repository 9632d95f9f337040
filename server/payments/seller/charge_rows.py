"""Rows of charges: one for each priced call that is running, unsettled, owed, interrupted, or kept so that it can be asked for again.

    done, paid          it was answered; the answer is not kept for ever
    done, not paid      it had a key and failed, which is its answer; without an answer, it was interrupted
    interrupted         the same where it was paid beforehand

A repeat of a call leads to the charge that stands for it (`charges_standing`). Everything here runs inside jobs.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from server.lib.money.amounts import Micros
from server.store.jobs import Row, StoreDb
from server.store.struct_rows import insertion, values_of
from server.store.task_leases import gone

# How long what was paid for can be asked for again.
KEPT_MS: Final = 24 * 3_600_000
# How many at once when a process has died.
PIECE: Final = 200


class Charge(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    call_key: str
    fingerprint: str
    keyed: bool
    state: str
    paid: bool
    how: str
    server: str
    tool: str
    call_id: str
    caller: str
    client_id: str | None
    grant_id: str | None
    wallet: str | None
    amount: Micros
    currency: str
    price: str
    spent: str  # JSON: meters that were raised for it
    payment_id: str | None
    retries_left: int
    owner: str | None
    created_at: int
    expires_at: int

    @classmethod
    def of(cls, row: Row) -> Charge:
        values: dict[str, Any] = {name: row[name] for name in cls.__struct_fields__}
        values["keyed"], values["paid"] = bool(row["keyed"]), bool(row["paid"])
        return cls(**values)

    @property
    def run(self) -> Run:
        """The run of a charge that somebody has in hand."""
        assert self.owner is not None
        return Run(charge_id=self.id, owner=self.owner, call_id=self.call_id)


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a charge. A charge that was paid beforehand may run more than once, here and in other processes, and a run ends only
    itself."""

    charge_id: str
    owner: str
    call_id: str


_INSERT: Final = insertion("charges", Charge, stands=1)
# All but the answer, which may be large: whoever looks at a charge does not read it.
_COLUMNS: Final = ", ".join(Charge.__struct_fields__)
_OF_RUN: Final = "WHERE id = ? AND state = 'running' AND owner = ? AND call_id = ?"


def insert(db: StoreDb, charge: Charge) -> None:
    db.put_in(_INSERT, *values_of(charge))


def find(db: StoreDb, charge_id: str) -> Charge | None:
    return _one(db, f"SELECT {_COLUMNS} FROM charges WHERE id = ?", charge_id)


def find_with_answer(db: StoreDb, charge_id: str) -> tuple[Charge, bytes | None] | None:
    """Find a charge with its answer as it is kept; None in its place: it is not any more."""
    row = db.fetch_one(f"SELECT {_COLUMNS}, answer FROM charges WHERE id = ?", charge_id)
    return None if row is None else (Charge.of(row), row["answer"])


def standing(db: StoreDb, call_key: str, now: int) -> Charge | None:
    """Find the charge that the same call leads to. One that has ended and is past its time does not stand in the way."""
    charge = _one(db, f"SELECT {_COLUMNS} FROM charges WHERE call_key = ? AND stands = 1", call_key)
    if charge is None or charge.expires_at > now or charge.state in ("running", "settling"):
        return charge
    db.execute("UPDATE charges SET stands = 0, answer = NULL, answer_bytes = 0 WHERE id = ?", charge.id)
    return None


def done(db: StoreDb, run: Run, *, answer: bytes | None, now: int) -> bool:
    """Keep the answer of a call that is paid for. False: that run was over."""
    sql = (
        "UPDATE charges SET state = 'done', paid = 1, answer = ?, answer_bytes = ?, owner = NULL, ended_at = ?, expires_at = ?"
        f" {_OF_RUN}"
    )
    ended = (answer, len(answer or b""), now, now + KEPT_MS)
    return db.execute(sql, *ended, run.charge_id, run.owner, run.call_id) == 1


def unsettled(db: StoreDb, charge_id: str, *, answer: bytes | None) -> bool:
    """Keep what was worked for, whatever happens then: its payment is about to be sent to be settled."""
    sql = "UPDATE charges SET state = 'settling', answer = ?, answer_bytes = ? WHERE id = ? AND state = 'running'"
    return db.execute(sql, answer, len(answer or b""), charge_id) == 1


def settled(db: StoreDb, charge_id: str, *, now: int) -> Charge | None:
    """Note that its payment was settled: with an answer it is done, without one it is owed. None: it was not waiting for that."""
    sql = (
        "UPDATE charges SET state = CASE WHEN answer IS NULL THEN 'owed' ELSE 'done' END, paid = 1, owner = NULL, ended_at = ?,"
        f" expires_at = ? WHERE id = ? AND state = 'settling' RETURNING {_COLUMNS}"
    )
    return _one(db, sql, now, now + KEPT_MS, charge_id)


def owed(db: StoreDb, run: Run, *, now: int, asked: bool = False) -> int | None:
    """Return how often a call may be tried again that was paid beforehand and could not be served. None: it was not paid, or that run
    was over. `asked`: it ended in a question, and that was no try."""
    sql = (
        "UPDATE charges SET state = 'owed', owner = NULL, ended_at = ?, expires_at = ?, retries_left = retries_left + ?"
        f" {_OF_RUN} AND paid = 1 RETURNING retries_left"
    )
    row = db.fetch_one(sql, now, now + KEPT_MS, int(asked), run.charge_id, run.owner, run.call_id)
    return None if row is None else row["retries_left"]


def take_up(db: StoreDb, run: Run) -> bool:
    """Try again what is owed. False: somebody else does, or it was tried often enough."""
    sql = (
        "UPDATE charges SET state = 'running', owner = ?, call_id = ?, retries_left = retries_left - 1"
        " WHERE id = ? AND state = 'owed' AND retries_left > 0"
    )
    return db.execute(sql, run.owner, run.call_id, run.charge_id) == 1


def take_out(db: StoreDb, charge_id: str, *states: str) -> Charge | None:
    """Delete a charge that is not paid for: who asks gives back what it held and raised. None: it is not there like that."""
    marks = ", ".join("?" * len(states))
    sql = f"DELETE FROM charges WHERE id = ? AND paid = 0 AND state IN ({marks}) RETURNING {_COLUMNS}"
    return _one(db, sql, charge_id, *states)


def is_unanswered(db: StoreDb, charge_id: str, *, since: int) -> bool:
    """Return whether nobody was given its answer before `since`."""
    row = db.fetch_one("SELECT answered_at FROM charges WHERE id = ?", charge_id)
    return row is not None and (row["answered_at"] is None or row["answered_at"] >= since)


def interrupted(db: StoreDb, run: Run, *, now: int, answer: bytes | None = None) -> Charge | None:
    """Keep a call that its caller gave a key, and that may have come to its tool: the same call is not run again by itself. `answer`: of
    one that failed and was not paid beforehand. Who asks gives back what it held. None: it had no key, or certainly did not run."""
    # What is to be paid beforehand has tries left, and does not run before it is paid. What is not paid makes room like an answer that was
    # given, also where an older program does that.
    sql = (
        "UPDATE charges SET state = CASE paid WHEN 1 THEN 'interrupted' ELSE 'done' END, owner = NULL, ended_at = ?, expires_at = ?,"
        " answer = ?, answer_bytes = CASE paid WHEN 1 THEN 0 ELSE ? END, answered_at = CASE paid WHEN 1 THEN answered_at ELSE ? END"
        f" {_OF_RUN} AND keyed = 1 AND (paid = 1 OR retries_left = 0) RETURNING {_COLUMNS}"
    )
    kept = (answer, 1 if answer is None else len(answer), now)
    return _one(db, sql, now, now + KEPT_MS, *kept, run.charge_id, run.owner, run.call_id)


def resume(db: StoreDb, charge_id: str, *, own: bool = False) -> None:
    """Let an interrupted call be made again: what was paid for it is owed, else the same call is a new one. `own`: it goes on by itself,
    and that is no further try."""
    db.execute(
        "UPDATE charges SET state = 'owed', retries_left = retries_left + ? WHERE id = ? AND state = 'interrupted' AND paid = 1",
        int(own),
        charge_id,
    )
    db.execute(
        "DELETE FROM charges WHERE id = ? AND state = 'done' AND paid = 0 AND answer IS NULL", charge_id
    )


def forgiven(db: StoreDb, charge_id: str) -> None:
    """Note that what was paid for it was given back: it is owed no longer, and the same call is a new one."""
    db.execute(
        "UPDATE charges SET stands = 0, retries_left = 0, answer = NULL, answer_bytes = 0 WHERE id = ? AND state IN ('owed', 'interrupted')",
        charge_id,
    )


def disowned(db: StoreDb, charge_id: str) -> None:
    """Note that whoever ran it is gone, and what became of its payment is to be found out."""
    db.execute("UPDATE charges SET owner = NULL WHERE id = ?", charge_id)


def left_behind(db: StoreDb, *, boot_id: str) -> list[Charge]:
    """List some of those that a process which is gone was running."""
    sql = (
        f"SELECT {_COLUMNS} FROM charges WHERE owner IS NOT NULL AND owner <> ?"
        f" AND {gone('charges.owner')} ORDER BY owner, id LIMIT ?"
    )
    return [Charge.of(row) for row in db.fetch_all(sql, boot_id, PIECE)]


def _one(db: StoreDb, sql: str, *params: object) -> Charge | None:
    row = db.fetch_one(sql, *params)
    return None if row is None else Charge.of(row)
