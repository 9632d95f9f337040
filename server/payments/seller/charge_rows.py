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
from server.store.task_leases import gone

_INSERT: Final = (
    "INSERT INTO charges (id, call_key, fingerprint, stands, keyed, state, paid, how, server, tool, call_id, caller, client_id, grant_id,"
    " wallet, amount, currency, price, spent, payment_id, retries_left, owner, created_at, expires_at)"
    " VALUES (?, ?, ?, 1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
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


# All but the answer, which may be large: whoever looks at a charge does not read it.
_COLUMNS: Final = ", ".join(Charge.__struct_fields__)


def insert(db: StoreDb, charge: Charge) -> None:
    db.put_in(
        _INSERT,
        charge.id,
        charge.call_key,
        charge.fingerprint,
        int(charge.keyed),
        charge.state,
        int(charge.paid),
        charge.how,
        charge.server,
        charge.tool,
        charge.call_id,
        charge.caller,
        charge.client_id,
        charge.grant_id,
        charge.wallet,
        charge.amount,
        charge.currency,
        charge.price,
        charge.spent,
        charge.payment_id,
        charge.retries_left,
        charge.owner,
        charge.created_at,
        charge.expires_at,
    )


def find(db: StoreDb, charge_id: str) -> Charge | None:
    row = db.fetch_one(f"SELECT {_COLUMNS} FROM charges WHERE id = ?", charge_id)
    return None if row is None else Charge.of(row)


def find_with_answer(db: StoreDb, charge_id: str) -> tuple[Charge, bytes | None] | None:
    """The answer as it is kept; None: it is not any more."""
    row = db.fetch_one(f"SELECT {_COLUMNS}, answer FROM charges WHERE id = ?", charge_id)
    return None if row is None else (Charge.of(row), row["answer"])


def standing(db: StoreDb, call_key: str, now: int) -> Charge | None:
    """The charge that the same call leads to. One that has ended and is past its time does not stand in the way."""
    row = db.fetch_one(f"SELECT {_COLUMNS} FROM charges WHERE call_key = ? AND stands = 1", call_key)
    if row is None:
        return None
    charge = Charge.of(row)
    if charge.expires_at > now or charge.state in ("running", "settling"):
        return charge
    db.execute("UPDATE charges SET stands = 0, answer = NULL, answer_bytes = 0 WHERE id = ?", charge.id)
    return None


# A charge that was paid beforehand may run more than once, here and in other processes: by its owner and the id of the call each run is told
# from the others, and ends only itself.


def done(
    db: StoreDb,
    charge_id: str,
    *,
    owner: str,
    call_id: str,
    answer: bytes | None,
    now: int,
    expires_at: int,
) -> bool:
    """It is paid for, and this is its answer. False: that run was over."""
    return (
        db.execute(
            "UPDATE charges SET state = 'done', paid = 1, answer = ?, answer_bytes = ?, owner = NULL, ended_at = ?, expires_at = ?"
            " WHERE id = ? AND state = 'running' AND owner = ? AND call_id = ?",
            answer,
            len(answer or b""),
            now,
            expires_at,
            charge_id,
            owner,
            call_id,
        )
        == 1
    )


def unsettled(db: StoreDb, charge_id: str, *, answer: bytes | None) -> bool:
    """Its payment is about to be sent to be settled. What was worked for is kept, whatever happens then."""
    return (
        db.execute(
            "UPDATE charges SET state = 'settling', answer = ?, answer_bytes = ? WHERE id = ? AND state = 'running'",
            answer,
            len(answer or b""),
            charge_id,
        )
        == 1
    )


def settled(db: StoreDb, charge_id: str, *, now: int, expires_at: int) -> Charge | None:
    """Its payment was settled: with its answer it is done, without one it is owed. None: it was not waiting for that."""
    row = db.fetch_one(
        "UPDATE charges SET state = CASE WHEN answer IS NULL THEN 'owed' ELSE 'done' END, paid = 1, owner = NULL, ended_at = ?,"
        f" expires_at = ? WHERE id = ? AND state = 'settling' RETURNING {_COLUMNS}",
        now,
        expires_at,
        charge_id,
    )
    return None if row is None else Charge.of(row)


def owed(
    db: StoreDb,
    charge_id: str,
    *,
    owner: str,
    call_id: str,
    now: int,
    expires_at: int,
    asked: bool = False,
) -> int | None:
    """It was paid beforehand and could not be served: how often it may be tried again. None: it was not paid, or that run was over.
    `asked`: it ended in a question, and that was no try."""
    row = db.fetch_one(
        "UPDATE charges SET state = 'owed', owner = NULL, ended_at = ?, expires_at = ?, retries_left = retries_left + ?"
        " WHERE id = ? AND state = 'running' AND paid = 1 AND owner = ? AND call_id = ? RETURNING retries_left",
        now,
        expires_at,
        int(asked),
        charge_id,
        owner,
        call_id,
    )
    return None if row is None else row["retries_left"]


def take_up(db: StoreDb, charge_id: str, *, owner: str, call_id: str) -> bool:
    """Try again what is owed. False: somebody else does, or it was tried often enough."""
    return (
        db.execute(
            "UPDATE charges SET state = 'running', owner = ?, call_id = ?, retries_left = retries_left - 1"
            " WHERE id = ? AND state = 'owed' AND retries_left > 0",
            owner,
            call_id,
            charge_id,
        )
        == 1
    )


def take_out(db: StoreDb, charge_id: str, *states: str) -> Charge | None:
    """Away with one that is not paid for: what it held and raised is whoever asks to give back. None: it is not there like that."""
    marks = ", ".join("?" * len(states))
    row = db.fetch_one(
        f"DELETE FROM charges WHERE id = ? AND paid = 0 AND state IN ({marks}) RETURNING {_COLUMNS}",
        charge_id,
        *states,
    )
    return None if row is None else Charge.of(row)


def is_unanswered(db: StoreDb, charge_id: str, *, since: int) -> bool:
    """Whether nobody was given its answer before `since`."""
    row = db.fetch_one("SELECT answered_at FROM charges WHERE id = ?", charge_id)
    return row is not None and (row["answered_at"] is None or row["answered_at"] >= since)


def interrupted(
    db: StoreDb,
    charge_id: str,
    *,
    owner: str,
    call_id: str,
    now: int,
    expires_at: int,
    answer: bytes | None = None,
) -> Charge | None:
    """Keep a call that its caller gave a key, and that may have come to its tool: the same call is not run again by itself. `answer`: of one
    that failed and was not paid beforehand. What it held is whoever asks to give back. None: it had no key, or certainly did not run."""
    # What is to be paid beforehand has tries left, and does not run before it is paid. What is not paid makes room like an answer that was
    # given, also where an older program does that.
    row = db.fetch_one(
        "UPDATE charges SET state = CASE paid WHEN 1 THEN 'interrupted' ELSE 'done' END, owner = NULL, ended_at = ?, expires_at = ?,"
        " answer = ?, answer_bytes = CASE paid WHEN 1 THEN 0 ELSE ? END, answered_at = CASE paid WHEN 1 THEN answered_at ELSE ? END"
        " WHERE id = ? AND state = 'running' AND owner = ? AND call_id = ? AND keyed = 1 AND (paid = 1 OR retries_left = 0)"
        f" RETURNING {_COLUMNS}",
        now,
        expires_at,
        answer,
        1 if answer is None else len(answer),
        now,
        charge_id,
        owner,
        call_id,
    )
    return None if row is None else Charge.of(row)


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
    """What was paid for it was given back: it is owed no longer, and the same call is a new one."""
    db.execute(
        "UPDATE charges SET stands = 0, retries_left = 0, answer = NULL, answer_bytes = 0 WHERE id = ? AND state IN ('owed', 'interrupted')",
        charge_id,
    )


def disowned(db: StoreDb, charge_id: str) -> None:
    """Whoever ran it is gone, and what became of its payment is to be found out."""
    db.execute("UPDATE charges SET owner = NULL WHERE id = ?", charge_id)


def left_behind(db: StoreDb, *, boot_id: str) -> list[Charge]:
    """Some of those that a process which is gone was running."""
    rows = db.fetch_all(
        f"SELECT {_COLUMNS} FROM charges WHERE owner IS NOT NULL AND owner <> ?"
        f" AND {gone('charges.owner')} ORDER BY owner, id LIMIT ?",
        boot_id,
        PIECE,
    )
    return [Charge.of(row) for row in rows]
