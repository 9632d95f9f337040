"""Rows of payments: authorizations to move money on a chain. Each counts once: who reserved it, for which call, and what became of it.

    reserved → verified → settling → settled | refused | unknown → settled | refused

Until `settling` an authorization can be let go again, and its row with it. From then on the row stays until it is known what became of
the money. A settled one stays for ever, as its movement does: the books are compared with a chain by its transaction. Everything here runs
inside jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from auth.values.identity_model import PAYER
from server.lib.money.amounts import Micros
from server.payments.seller.charge_rows import KEPT_MS
from server.payments.x402.chain_client import LATE_SECONDS
from server.store.jobs import Row, StoreDb
from server.store.limits.usage_meters import NEVER
from server.store.struct_rows import insertion, values_of
from server.store.task_leases import gone

PIECE: Final = 200
# How far this machine's clock, and a node's last block, may be from the time.
CLOCKS_SECONDS: Final = 30
# The longest between two looks for an outcome, and longer than any turn.
LONGEST_MS: Final = 600_000
_OPEN: Final = "state IN ('settling', 'unknown')"
# With `now` and `now + LONGEST_MS`: what is to be looked at later than that was written before the clock was set back.
_DUE: Final = f"{_OPEN} AND (next_try_at <= ? OR next_try_at > ?)"
# With the id, and until when it is whose turn.
_OF_TURN: Final = f"WHERE id = ? AND {_OPEN} AND next_try_at = ?"


class PaymentRow(msgspec.Struct, frozen=True, kw_only=True):
    """An authorization as it is kept."""

    id: str
    network: str
    asset: str
    payer: str
    nonce: str
    proof_hash: str
    purpose: str
    fingerprint: str
    server: str
    caller: str
    wallet: str | None
    atomic: str
    amount: Micros
    currency: str
    pay_to: str
    valid_before: int
    requirements: str
    created_at: int
    expires_at: int
    state: str = "reserved"
    charge_id: str | None = None
    sealed: bytes | None = None
    facilitator: str | None = None
    tries: int = 0
    next_try_at: int | None = None
    problem: str = ""
    transaction_hash: str | None = None
    owner: str | None = None
    ended_at: int | None = None

    @classmethod
    def of(cls, row: Row) -> PaymentRow:
        return cls(**{name: row[name] for name in cls.__struct_fields__})

    @property
    def authorization(self) -> Sequence[str]:
        """The key of what counts once."""
        return self.network, self.asset, self.payer, self.nonce

    @property
    def account(self) -> str:
        """The account in the books that its money comes from."""
        return f"chain:{self.network}:{self.asset}"

    @property
    def went_through_refused(self) -> bool:
        """Return whether it was taken for refused, and let go of as such, before it was known that it went through."""
        return self.state == "settled" and self.problem != ""

    @property
    def over_at(self) -> int:
        """Return when it certainly cannot be carried out any more, nor a block that did be taken back; in milliseconds."""
        return (self.valid_before + LATE_SECONDS + CLOCKS_SECONDS) * 1000

    def refused_each_time(self, tries: int) -> bool:
        """Return whether the row says that none of so many tries began to carry it out. A try that was cut off has been counted, and has
        changed nothing of what the row says: the numbers differ from then on."""
        return tries == 0 or self.problem.startswith(refused_each_time(tries))


def payer_of(row: PaymentRow) -> str:
    """Return the caller that somebody is of whom nothing is known but the payment."""
    return f"{PAYER}{row.network}:{row.payer}"


def refused_each_time(tries: int) -> str:
    """Return how the `problem` of a row begins of which no try began to carry it out."""
    return f"refused each time ({tries}): "


_INSERT: Final = insertion("payments", PaymentRow)


def reserve(db: StoreDb, payment: PaymentRow) -> PaymentRow | None:
    """Reserve an authorization. Returned is the row that has it already."""
    found = find_authorization(db, payment.authorization)
    if found is None:
        db.execute(_INSERT, *values_of(payment))
    return found


def find(db: StoreDb, payment_id: str) -> PaymentRow | None:
    return _one(db, "SELECT * FROM payments WHERE id = ?", payment_id)


def find_authorization(db: StoreDb, key: Sequence[str]) -> PaymentRow | None:
    """Find a payment by its network, token, payer and nonce, all in small letters."""
    return _one(
        db, "SELECT * FROM payments WHERE network = ? AND asset = ? AND payer = ? AND nonce = ?", *key
    )


def verified(db: StoreDb, payment_id: str, *, charge_id: str | None, caller: str, facilitator: str) -> bool:
    sql = "UPDATE payments SET state = 'verified', charge_id = ?, caller = ?, facilitator = ? WHERE id = ? AND state = 'reserved'"
    return db.execute(sql, charge_id, caller, facilitator, payment_id) == 1


def let_go(db: StoreDb, payment_id: str) -> bool:
    """Delete one that was never sent to be settled, and can be shown again."""
    sql = "DELETE FROM payments WHERE id = ? AND state IN ('reserved', 'verified')"
    return db.execute(sql, payment_id) == 1


def settling(db: StoreDb, payment_id: str, *, next_try_at: int) -> bool:
    """Note that it can move money from here on. `next_try_at`: until then it is the turn of whoever said so, and it tells the turn from
    any other."""
    sql = "UPDATE payments SET state = 'settling', tries = tries + 1, next_try_at = ? WHERE id = ? AND state = 'verified'"
    return db.execute(sql, next_try_at, payment_id) == 1


def tried_again(db: StoreDb, payment_id: str, *, next_try_at: int, now: int) -> bool:
    """Take the next turn. False: it has an outcome, or somebody else tries it."""
    sql = f"UPDATE payments SET tries = tries + 1, next_try_at = ? WHERE id = ? AND {_DUE}"
    return db.execute(sql, next_try_at, payment_id, now, now + LONGEST_MS) == 1


def unknown(
    db: StoreDb, payment_id: str, *, until: int, problem: str, next_try_at: int, sent: bool = True
) -> bool:
    """Note that nobody can say yet what became of it. `until`: whose turn it was; False: it is another's by now. `sent` False: nobody
    could be reached, so this was no try."""
    sql = f"UPDATE payments SET state = 'unknown', tries = tries - ?, problem = ?, next_try_at = ? {_OF_TURN}"
    return db.execute(sql, int(not sent), problem, next_try_at, payment_id, until) == 1


def not_begun(db: StoreDb, payment_id: str, *, until: int, now: int) -> bool:
    """Give back a turn in which it was not sent, and will not be: what is known of it stays as it was."""
    sql = f"UPDATE payments SET tries = tries - 1, next_try_at = ? {_OF_TURN}"
    return db.execute(sql, now, payment_id, until) == 1


def settled(db: StoreDb, payment_id: str, *, transaction: str, now: int) -> PaymentRow | None:
    """Note that the money has moved. None: that was known."""
    sql = (
        "UPDATE payments SET state = 'settled', transaction_hash = ?, problem = '', sealed = NULL, owner = NULL, next_try_at = NULL,"
        f" ended_at = ?, expires_at = ? WHERE id = ? AND {_OPEN} RETURNING *"
    )
    return _one(db, sql, transaction, now, NEVER, payment_id)


def settled_after_refusal(db: StoreDb, payment_id: str, *, transaction: str, now: int) -> PaymentRow | None:
    """Note that the money has moved though it was written down that it had not. The row goes on saying why (`went_through_refused`).
    None: that is not what was written."""
    sql = (
        "UPDATE payments SET state = 'settled', transaction_hash = ?, ended_at = ?,"
        " problem = CASE WHEN problem = '' THEN 'refused' ELSE problem END,"
        " expires_at = ? WHERE id = ? AND state = 'refused' RETURNING *"
    )
    return _one(db, sql, transaction, now, NEVER, payment_id)


def refused(
    db: StoreDb, payment_id: str, *, problem: str, now: int, until: int | None = None, tries: int = 1
) -> PaymentRow | None:
    """Note that the money has certainly not moved, and will not. `until`, `tries`: this is known to whoever has the turn that ends then,
    of all tries up to its own; None: it is known of the chain itself. None comes back where it is another's turn by now, or was known."""
    turn = "" if until is None else " AND tries = ? AND next_try_at = ?"
    sql = (
        "UPDATE payments SET state = 'refused', problem = ?, sealed = NULL, owner = NULL, next_try_at = NULL, ended_at = ?,"
        " expires_at = CASE WHEN expires_at > ? THEN expires_at ELSE ? END"
        f" WHERE id = ? AND {_OPEN}{turn} RETURNING *"
    )
    of_turn = () if until is None else (tries, until)
    return _one(db, sql, problem, now, now + KEPT_MS, now + KEPT_MS, payment_id, *of_turn)


def due(db: StoreDb, *, now: int, at_most: int) -> list[PaymentRow]:
    """List those whose outcome is to be looked for now."""
    sql = f"SELECT * FROM payments WHERE {_DUE} ORDER BY next_try_at LIMIT ?"
    return _all(db, sql, now, now + LONGEST_MS, at_most)


def unsettled(db: StoreDb, *, after: str, at_most: int) -> list[PaymentRow]:
    """List those without an outcome whose ids come after this one, in the order of their ids."""
    return _all(db, f"SELECT * FROM payments WHERE {_OPEN} AND id > ? ORDER BY id LIMIT ?", after, at_most)


def left_behind(db: StoreDb, *, boot_id: str) -> list[PaymentRow]:
    """List some of those that a process which is gone had in hand."""
    sql = (
        "SELECT * FROM payments WHERE owner IS NOT NULL AND owner <> ?"
        f" AND {gone('payments.owner')} ORDER BY owner, id LIMIT ?"
    )
    return _all(db, sql, boot_id, PIECE)


def disowned(db: StoreDb, payment_id: str, *, now: int) -> None:
    """Note that a process which is gone had sent it: its outcome is to be looked for at once."""
    sql = f"UPDATE payments SET owner = NULL, state = 'unknown', next_try_at = ? WHERE id = ? AND {_OPEN}"
    db.execute(sql, now, payment_id)


def _one(db: StoreDb, sql: str, *params: object) -> PaymentRow | None:
    row = db.fetch_one(sql, *params)
    return None if row is None else PaymentRow.of(row)


def _all(db: StoreDb, sql: str, *params: object) -> list[PaymentRow]:
    return [PaymentRow.of(row) for row in db.fetch_all(sql, *params)]
