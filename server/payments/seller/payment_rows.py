"""Rows of payments: authorizations to move money on a chain. Each counts once: who reserved it, for which call, and what became of it.

    reserved → verified → settling → settled | refused | unknown → settled | refused

Until `settling` an authorization can be let go again, and its row with it. From then on the row stays until it is known what became of
the money. A settled one stays for ever, as its movement does: the books are compared with a chain by its transaction. Everything here runs
inside jobs.
"""

from __future__ import annotations

from typing import Final

import msgspec

from server.lib.money.amounts import Micros
from server.payments.x402.chain_client import LATE_SECONDS
from server.store.jobs import Row, StoreDb
from server.store.limits.usage_meters import NEVER
from server.store.task_leases import gone

_INSERT: Final = (
    "INSERT INTO payments (id, network, asset, payer, nonce, proof_hash, purpose, fingerprint, server, caller, wallet, charge_id, atomic,"
    " amount, currency, pay_to, valid_before, state, requirements, sealed, tries, owner, created_at, expires_at)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, ?, ?, ?, ?, ?, 'reserved', ?, ?, 0, ?, ?, ?)"
)
PIECE: Final = 200
# How far this machine's clock, and a node's last block, may be from the time.
CLOCKS_SECONDS: Final = 30
# The longest between two looks for an outcome, and longer than any turn.
LONGEST_MS: Final = 600_000
# With `now` and `now + LONGEST_MS`: what is to be looked at later than that was written before the clock was set back.
_DUE: Final = "state IN ('settling', 'unknown') AND (next_try_at <= ? OR next_try_at > ?)"


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
    def account(self) -> str:
        """Where its money comes from, in the books."""
        return f"chain:{self.network}:{self.asset}"

    @property
    def went_through_refused(self) -> bool:
        """It was taken for refused, and let go of as such, before it was known that it went through."""
        return self.state == "settled" and self.problem != ""

    @property
    def over_at(self) -> int:
        """Return when it certainly cannot be carried out any more, nor a block that did be taken back; in milliseconds."""
        return (self.valid_before + LATE_SECONDS + CLOCKS_SECONDS) * 1000

    def refused_each_time(self, tries: int) -> bool:
        """Return whether the row says that none of so many tries began to carry it out. A try that was cut off has been counted, and has
        changed nothing of what the row says: the numbers differ from then on."""
        return tries == 0 or self.problem.startswith(refused_each_time(tries))


def refused_each_time(tries: int) -> str:
    """Return how the `problem` of a row begins of which no try began to carry it out."""
    return f"refused each time ({tries}): "


def reserve(db: StoreDb, payment: PaymentRow) -> PaymentRow | None:
    """None: it is reserved now. Else the row that has this authorization already."""
    found = find_authorization(
        db, network=payment.network, asset=payment.asset, payer=payment.payer, nonce=payment.nonce
    )
    if found is not None:
        return found
    db.execute(
        _INSERT,
        payment.id,
        payment.network,
        payment.asset,
        payment.payer,
        payment.nonce,
        payment.proof_hash,
        payment.purpose,
        payment.fingerprint,
        payment.server,
        payment.caller,
        payment.wallet,
        payment.atomic,
        payment.amount,
        payment.currency,
        payment.pay_to,
        payment.valid_before,
        payment.requirements,
        payment.sealed,
        payment.owner,
        payment.created_at,
        payment.expires_at,
    )
    return None


def find(db: StoreDb, payment_id: str) -> PaymentRow | None:
    row = db.fetch_one("SELECT * FROM payments WHERE id = ?", payment_id)
    return None if row is None else PaymentRow.of(row)


def find_authorization(db: StoreDb, *, network: str, asset: str, payer: str, nonce: str) -> PaymentRow | None:
    row = db.fetch_one(
        "SELECT * FROM payments WHERE network = ? AND asset = ? AND payer = ? AND nonce = ?",
        network,
        asset,
        payer,
        nonce,
    )
    return None if row is None else PaymentRow.of(row)


def verified(db: StoreDb, payment_id: str, *, charge_id: str | None, caller: str, facilitator: str) -> bool:
    return (
        db.execute(
            "UPDATE payments SET state = 'verified', charge_id = ?, caller = ?, facilitator = ? WHERE id = ? AND state = 'reserved'",
            charge_id,
            caller,
            facilitator,
            payment_id,
        )
        == 1
    )


def let_go(db: StoreDb, payment_id: str) -> bool:
    """It was never sent to be settled, and can be shown again."""
    return (
        db.execute("DELETE FROM payments WHERE id = ? AND state IN ('reserved', 'verified')", payment_id) == 1
    )


def settling(db: StoreDb, payment_id: str, *, next_try_at: int) -> bool:
    """From here on it can move money. `next_try_at`: until then it is the turn of whoever said so, and it tells the turn from any other."""
    return (
        db.execute(
            "UPDATE payments SET state = 'settling', tries = tries + 1, next_try_at = ? WHERE id = ? AND state = 'verified'",
            next_try_at,
            payment_id,
        )
        == 1
    )


def tried_again(db: StoreDb, payment_id: str, *, next_try_at: int, now: int) -> bool:
    """False: it has an outcome, or somebody else tries it."""
    return (
        db.execute(
            f"UPDATE payments SET tries = tries + 1, next_try_at = ? WHERE id = ? AND {_DUE}",
            next_try_at,
            payment_id,
            now,
            now + LONGEST_MS,
        )
        == 1
    )


def unknown(db: StoreDb, payment_id: str, *, until: int, problem: str, next_try_at: int) -> bool:
    """It was sent, and nobody can say yet what became of it. `until`: whose turn it was; False: it is another's by now."""
    return (
        db.execute(
            "UPDATE payments SET state = 'unknown', problem = ?, next_try_at = ?"
            " WHERE id = ? AND state IN ('settling', 'unknown') AND next_try_at = ?",
            problem,
            next_try_at,
            payment_id,
            until,
        )
        == 1
    )


def not_sent(db: StoreDb, payment_id: str, *, until: int, problem: str, next_try_at: int) -> bool:
    """Nobody could be reached, so this was no try. False: that is known, or it is another's turn by now."""
    return (
        db.execute(
            "UPDATE payments SET state = 'unknown', tries = tries - 1, problem = ?, next_try_at = ?"
            " WHERE id = ? AND state IN ('settling', 'unknown') AND next_try_at = ?",
            problem,
            next_try_at,
            payment_id,
            until,
        )
        == 1
    )


def not_begun(db: StoreDb, payment_id: str, *, until: int, now: int) -> bool:
    """Whoever has the turn that ends then has not sent it, and will not: what is known of it stays as it was."""
    return (
        db.execute(
            "UPDATE payments SET tries = tries - 1, next_try_at = ?"
            " WHERE id = ? AND state IN ('settling', 'unknown') AND next_try_at = ?",
            now,
            payment_id,
            until,
        )
        == 1
    )


def settled(db: StoreDb, payment_id: str, *, transaction: str, now: int) -> PaymentRow | None:
    """The money has moved. None: that was known."""
    row = db.fetch_one(
        "UPDATE payments SET state = 'settled', transaction_hash = ?, problem = '', sealed = NULL, owner = NULL, next_try_at = NULL,"
        " ended_at = ?, expires_at = ? WHERE id = ? AND state IN ('settling', 'unknown') RETURNING *",
        transaction,
        now,
        NEVER,
        payment_id,
    )
    return None if row is None else PaymentRow.of(row)


def settled_after_refusal(db: StoreDb, payment_id: str, *, transaction: str, now: int) -> PaymentRow | None:
    """The money has moved, and it was written down that it had not. The row goes on saying why (`went_through_refused`). None: that it
    had not is not what was written."""
    row = db.fetch_one(
        "UPDATE payments SET state = 'settled', transaction_hash = ?, ended_at = ?,"
        " problem = CASE WHEN problem = '' THEN 'refused' ELSE problem END,"
        " expires_at = ? WHERE id = ? AND state = 'refused' RETURNING *",
        transaction,
        now,
        NEVER,
        payment_id,
    )
    return None if row is None else PaymentRow.of(row)


def refused(
    db: StoreDb,
    payment_id: str,
    *,
    problem: str,
    now: int,
    expires_at: int,
    until: int | None = None,
    tries: int = 1,
) -> PaymentRow | None:
    """The money has certainly not moved, and will not. `until`, `tries`: this is known to whoever has the turn that ends then, of all
    tries up to its own; None: it is known of the chain itself. None comes back where it is another's turn by now, or was known."""
    turn = "" if until is None else " AND tries = ? AND next_try_at = ?"
    row = db.fetch_one(
        "UPDATE payments SET state = 'refused', problem = ?, sealed = NULL, owner = NULL, next_try_at = NULL, ended_at = ?,"
        " expires_at = CASE WHEN expires_at > ? THEN expires_at ELSE ? END"
        f" WHERE id = ? AND state IN ('settling', 'unknown'){turn} RETURNING *",
        problem,
        now,
        expires_at,
        expires_at,
        payment_id,
        *(() if until is None else (tries, until)),
    )
    return None if row is None else PaymentRow.of(row)


def due(db: StoreDb, *, now: int, at_most: int) -> list[PaymentRow]:
    """Those whose outcome is to be looked for now."""
    rows = db.fetch_all(
        f"SELECT * FROM payments WHERE {_DUE} ORDER BY next_try_at LIMIT ?",
        now,
        now + LONGEST_MS,
        at_most,
    )
    return [PaymentRow.of(row) for row in rows]


def unsettled(db: StoreDb, *, after: str, at_most: int) -> list[PaymentRow]:
    """Those without an outcome whose ids come after this one, in the order of their ids."""
    rows = db.fetch_all(
        "SELECT * FROM payments WHERE state IN ('settling', 'unknown') AND id > ? ORDER BY id LIMIT ?",
        after,
        at_most,
    )
    return [PaymentRow.of(row) for row in rows]


def left_behind(db: StoreDb, *, boot_id: str) -> list[PaymentRow]:
    """Some of those that a process which is gone had in hand."""
    rows = db.fetch_all(
        "SELECT * FROM payments WHERE owner IS NOT NULL AND owner <> ?"
        f" AND {gone('payments.owner')} ORDER BY owner, id LIMIT ?",
        boot_id,
        PIECE,
    )
    return [PaymentRow.of(row) for row in rows]


def disowned(db: StoreDb, payment_id: str, *, now: int) -> None:
    """Sent by a process that is gone: its outcome is to be looked for at once."""
    db.execute(
        "UPDATE payments SET owner = NULL, state = 'unknown', next_try_at = ? WHERE id = ? AND state IN ('settling', 'unknown')",
        now,
        payment_id,
    )
