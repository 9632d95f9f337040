"""Gifts of the owner: refunds of what was paid, payments by hand, and money for nothing. Each is a movement; none alters another. Jobs.

A refund names the movement that it takes back, wholly or in parts, and never more of it than there was. Money from a chain goes back there
by hand: then the books say that it was paid out, and by which transfer."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

import msgspec

from auth.audit import audit_trail
from auth.values.identity_model import Millis
from server.lib.money.amounts import Micros, shown
from server.payments.seller import charge_rows, ledger, wallets
from server.payments.seller.ledger import PAID_OUT, Books, Movement, MovementKind, gift
from server.store.jobs import Row, StoreDb

# Of what a grant is the only one for whose owner gave a key with it.
ONCE: Final = "once:"
# What takes back a movement of which kind, and where to: back to where it came from, or out of here. The first is usual.
WAYS: Final[Mapping[str, tuple[MovementKind, ...]]] = MappingProxyType(
    {
        "charge": ("refund", "payout"),
        "payment": ("payout",),
        "deposit": ("payout",),
        "grant": ("refund",),
        "voucher": ("refund",),
        "purchase": ("refund",),
    }
)

# What a movement says of the call that it was for.
_OF_CALL: Final = ("client_id", "grant_id", "server", "tool", "call_id", "charge_id", "payment_id", "price")

Refusal: TypeAlias = Literal["unknown", "not_taken_back", "no_such_way", "too_much", "spent"]


class RefundOrder(msgspec.Struct, frozen=True, kw_only=True):
    refers: int
    amount: Micros | None = None  # None: all that is left
    paid_out: bool | None = None  # by hand, outside of here; None: as is usual
    reference: str = ""  # of the transfer by hand


class Refunded(msgspec.Struct, frozen=True, kw_only=True):
    seq: int
    kind: MovementKind
    source: str
    target: str
    amount: Micros
    currency: str
    left: Micros  # that can still be taken back


class Granted(msgspec.Struct, frozen=True, kw_only=True):
    seq: int
    given_before: bool = False


class NotRefunded(msgspec.Struct, frozen=True, kw_only=True):
    reason: Refusal
    left: Micros = 0
    currency: str = ""


def refund(db: StoreDb, books: Books, order: RefundOrder, *, by: str, now: Millis) -> Refunded | NotRefunded:
    row = db.fetch_one("SELECT * FROM movements WHERE seq = ?", order.refers)
    if row is None:
        return NotRefunded(reason="unknown")
    ways = WAYS.get(row["kind"])
    if ways is None:
        return NotRefunded(reason="not_taken_back")
    kind = ways[0] if order.paid_out is None else ("payout" if order.paid_out else "refund")
    if kind not in ways:
        return NotRefunded(reason="no_such_way")
    left = row["amount"] - _taken_back(db, order.refers)
    amount = left if order.amount is None else order.amount
    if not 0 < amount <= left:
        return NotRefunded(reason="too_much", left=left, currency=row["currency"])
    movement = _back(row, kind, amount, order.reference, by)
    if not _has(db, movement):
        return NotRefunded(reason="spent", left=left, currency=row["currency"])
    seq = books.post(db, movement, now)
    if amount == left and row["charge_id"] is not None:
        charge_rows.forgiven(db, row["charge_id"])
    event = "ledger.paid_out" if kind == "payout" else "ledger.refunded"
    said = f"movement {seq} takes back {shown(amount, movement.currency)} of {order.refers}"
    audit_trail.record(db, at=now, event=event, actor=audit_trail.actor(by), reason=said)
    return Refunded(
        seq=seq,
        kind=kind,
        source=movement.source,
        target=movement.target,
        amount=amount,
        currency=movement.currency,
        left=left - amount,
    )


def grant(
    db: StoreDb,
    books: Books,
    wallet: str,
    amount: Micros,
    *,
    currency: str,
    note: str,
    by: str,
    now: Millis,
    once: str = "",
) -> Granted:
    """Give money for nothing, into a wallet that is opened if need be. `once`: a key of whoever asks, with which nothing is given a second
    time, also years later. Raises `BooksError`, and `OtherMovement` for a key that was used for another grant."""
    cause = f"{ONCE}{once}" if once else None
    given_before = cause is not None and ledger.booked_for(db, cause, "grant") is not None
    wallets.open_wallet(db, wallet, currency, now)
    seq = books.post(
        db, gift("grant", wallet, amount, currency, principal=by, charge_id=cause, note=note), now
    )
    if given_before:
        return Granted(seq=seq, given_before=True)
    said = f"movement {seq} gives {wallet} {shown(amount, currency)}"
    audit_trail.record(db, at=now, event="ledger.granted", actor=audit_trail.actor(by), reason=said)
    return Granted(seq=seq)


def _taken_back(db: StoreDb, seq: int) -> Micros:
    """Return what was taken back so far. Nobody else writes while a job does, so that stays true until the movement is posted."""
    row = db.fetch_one("SELECT coalesce(sum(amount), 0) AS amount FROM movements WHERE refers = ?", seq)
    return 0 if row is None else row["amount"]


def _has(db: StoreDb, movement: Movement) -> bool:
    """Return whether there is so much to take: of a wallet, what is free."""
    if not movement.source.startswith(wallets.ACCOUNT):
        return True
    wallet = wallets.find(db, movement.source.removeprefix(wallets.ACCOUNT))
    return wallet is not None and wallet.free >= movement.amount


def _back(row: Row, kind: MovementKind, amount: Micros, reference: str, by: str) -> Movement:
    return Movement(
        kind=kind,
        source=row["target"],
        target=PAID_OUT if kind == "payout" else row["source"],
        amount=amount,
        currency=row["currency"],
        principal=by,
        refers=row["seq"],
        note=reference,
        **{name: row[name] for name in _OF_CALL},
    )
