"""Jobs of the till that touch more than one table: claiming a call, charging for it, releasing it, and booking a settlement.

Each is one transaction, so that plan, caps, hold and the row of the call come and go together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from auth.audit import audit_trail
from server.lib.money.amounts import Micros, shown
from server.payments.seller import charge_rows, payment_rows, spending_caps, wallets
from server.payments.seller.charge_rows import Charge, Run
from server.payments.seller.delivery_receipts import Mark, apply_marks
from server.payments.seller.ledger import Books, Movement, MovementKind, revenue_account
from server.payments.seller.offers import Offer
from server.payments.seller.payment_rows import PaymentRow
from server.payments.seller.plans import Plans
from server.payments.seller.spending_caps import CapExceeded, CapRules
from server.store.jobs import StoreDb
from server.store.limits.usage_meters import Raised, lower

_RAISED: Final = msgspec.json.Decoder(list[Raised])
# Why a call is refused for whose caller too many answers wait (`kept_answers.py`).
NOT_FETCHED: Final = "answers_not_fetched"
# Of meters.
NOTHING: Final = "[]"
_encode: Final = msgspec.json.Encoder().encode


class NotClaimed(Exception):
    """The failure of a job, which is undone with it: the row that it was for is not there any more, or not as it was."""


# What a payment that went through means to the books: booked now, booked before, or now though it was taken for refused before, so that
# nothing stands for it any more; or its row is swept away, and nothing can be booked for it.
Booking: TypeAlias = Literal["booked", "known", "after_refusal", "gone"]
CASHED_ELSEWHERE: Final = "payment.cashed_elsewhere"
SETTLED_AFTER_REFUSAL: Final = "payment.settled_after_refusal"
# Who did it, in the audit trail.
ACTOR: Final = "local:till"


class Uncovered(msgspec.Struct, frozen=True, kw_only=True):
    """The reason why a call cannot be paid for like that. Returned rather than raised: what came along with the claim is written all the
    same."""

    reason: str
    due: Micros = 0
    balance: Micros = 0
    words: str = ""
    used_up: str = ""  # what would have covered it


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of plans and of what may be spent."""

    plans: Plans
    caps: CapRules
    balances: bool = True  # callers can have one; else what no plan covers is paid for by itself


# ── a call begins ────────────────────────────────────────────────────────────────────────────────────────────────────


def claim(
    db: StoreDb,
    *,
    wanted: Charge,
    offer: Offer,
    rules: Rules,
    books: Books,
    marks: Sequence[Mark],
    room: bool,
    now: int,
) -> Charge | Uncovered:
    """Return the charge that stands for the call: an earlier one, or the wanted one, with what it takes. `room`: its answer can be kept."""
    found = _instead(db, wanted, marks, room, now)
    if found is not None:
        return found
    assert wanted.wallet is not None
    cover = rules.plans.cover(db, offer, wanted.wallet, now)
    if cover.how == "refused":
        return Uncovered(reason=cover.reason)
    raised = cover.raised
    if cover.amount:
        if not rules.balances:
            return Uncovered(reason="payment_required", due=cover.amount, used_up=cover.reason)
        spent = spending_caps.spend(
            db,
            rules.caps,
            cover.amount,
            tool=offer.name,
            wallet=wanted.wallet,
            login=wanted.grant_id,
            now=now,
        )
        if isinstance(spent, CapExceeded):
            return Uncovered(reason=spent.reason, due=cover.amount, words=spent.words)
        raised += spent
        if not wallets.hold(db, wanted.wallet, cover.amount, now):
            lower(db, raised)
            wallet = wallets.find(db, wanted.wallet)
            free = 0 if wallet is None else wallet.free
            return Uncovered(reason="balance_too_low", due=cover.amount, balance=free, used_up=cover.reason)
    charge = replace(
        wanted,
        how=cover.how if cover.how != "due" else "balance",
        amount=cover.amount,
        price=cover.version,
        spent=_encode(raised).decode() if raised else NOTHING,
        paid=offer.upfront,
    )
    charge_rows.insert(db, charge)
    if offer.upfront and charge.amount:
        books.post(db, charge_of_wallet(charge), now)
    return charge


def reserve(
    db: StoreDb, *, row: PaymentRow, call_key: str | None, marks: Sequence[Mark], now: int
) -> Charge | PaymentRow | None:
    """Reserve an authorization. Returned is the call that it would pay for again, or the row that has it already."""
    apply_marks(db, marks, now=now)
    if call_key is not None:
        standing = charge_rows.standing(db, call_key, now)
        if standing is not None:
            return standing
    return payment_rows.reserve(db, row)


def claim_paid(
    db: StoreDb,
    *,
    wanted: Charge,
    payment_id: str,
    facilitator: str,
    marks: Sequence[Mark],
    room: bool,
    now: int,
) -> Charge | Uncovered:
    """Claim a call with a payment that was found to be good. Raises `NotClaimed` if that was let go meanwhile."""
    found = _instead(db, wanted, marks, room, now)
    if found is not None:
        return found
    if not payment_rows.verified(
        db, payment_id, charge_id=wanted.id, caller=wanted.caller, facilitator=facilitator
    ):
        raise NotClaimed("payment_gone")
    charge_rows.insert(db, wanted)
    return wanted


def _instead(
    db: StoreDb, wanted: Charge, marks: Sequence[Mark], room: bool, now: int
) -> Charge | Uncovered | None:
    """Return what is there instead of the wanted charge: an earlier one, or no room. None: nothing."""
    apply_marks(db, marks, now=now)
    found = charge_rows.standing(db, wanted.call_key, now)
    return found if found is not None or room else Uncovered(reason=NOT_FETCHED)


# ── it has ended ─────────────────────────────────────────────────────────────────────────────────────────────────────


def finish(
    db: StoreDb, *, run: Run, answer: bytes, books: Books, movement: Movement | None, now: int
) -> None:
    """Charge for a call, in the one transaction that keeps its answer. Raises `NotClaimed` if it was not running any more, or others
    run it."""
    if not charge_rows.done(db, run, answer=answer, now=now):
        raise NotClaimed("charge_gone")
    if movement is not None:
        books.post(db, movement, now)


def release(db: StoreDb, *, run: Run, payment_id: str | None, now: int, asked: bool = False) -> int | None:
    """Take nothing for a call. If it was paid beforehand it is owed, and returned is how often it may be tried again. If others run it by
    now, it is theirs."""
    tries = charge_rows.owed(db, run, now=now, asked=asked)
    if tries is not None:
        return tries
    charge = charge_rows.take_out(db, run.charge_id, "running")
    if charge is not None:
        give_back(db, charge, now)
    if payment_id is not None:
        payment_rows.let_go(db, payment_id)
    return None


def interrupt(
    db: StoreDb, *, run: Run, payment_id: str | None, now: int, answer: bytes | None = None
) -> int | None:
    """Release a call whose tool was run, nobody can say how far: one with a key is remembered as that. `answer`: it failed, and said so."""
    charge = _interrupted(db, run, now=now, answer=answer)
    if charge is not None:
        return charge.retries_left if charge.paid else None
    return release(db, run=run, payment_id=payment_id, now=now)


def send(db: StoreDb, *, charge_id: str, payment_id: str, answer: bytes | None, next_try_at: int) -> None:
    """Keep what was worked for, so that its payment may be sent. Raises `NotClaimed` if it is not waiting for that."""
    if not (
        charge_rows.unsettled(db, charge_id, answer=answer)
        and payment_rows.settling(db, payment_id, next_try_at=next_try_at)
    ):
        raise NotClaimed("charge_gone")


def send_deposit(db: StoreDb, *, payment_id: str, caller: str, facilitator: str, next_try_at: int) -> bool:
    """Note that a deposit is good, so that it may be sent. False: somebody else has let it go."""
    return payment_rows.verified(
        db, payment_id, charge_id=None, caller=caller, facilitator=facilitator
    ) and payment_rows.settling(db, payment_id, next_try_at=next_try_at)


def give_back(db: StoreDb, charge: Charge, now: int) -> None:
    if charge.how == "balance" and charge.amount and charge.wallet is not None:
        wallets.release(db, charge.wallet, charge.amount, now)
    if charge.spent != NOTHING:
        lower(db, _RAISED.decode(charge.spent))


# ── what a settlement brings ─────────────────────────────────────────────────────────────────────────────────────────


def book_settled(db: StoreDb, *, payment_id: str, transaction: str, books: Books, now: int) -> Booking:
    """Book money that has moved, once, however often this is said, and whatever was believed before."""
    row = payment_rows.settled(db, payment_id, transaction=transaction, now=now)
    if row is not None:
        _book(db, row, books, now)
        return "booked"
    row = payment_rows.settled_after_refusal(db, payment_id, transaction=transaction, now=now)
    if row is not None:
        _book(db, row, books, now)
        said = f"{payment_id} of {shown(row.amount, row.currency)} by {transaction or 'no known transaction'}"
        audit_trail.record(db, at=now, event=SETTLED_AFTER_REFUSAL, actor=ACTOR, reason=said)
        return "after_refusal"
    found = payment_rows.find(db, payment_id)
    if found is None:
        return "gone"
    # Whoever did not hear that it was written asks again, and is told the same.
    return "after_refusal" if found.went_through_refused else "known"


def _book(db: StoreDb, row: PaymentRow, books: Books, now: int) -> None:
    if row.purpose == "deposit":
        assert row.wallet is not None
        wallets.open_wallet(db, row.wallet, row.currency, now)
        books.post(db, deposit_of(row), now)
        return
    assert row.charge_id is not None
    charge = charge_rows.settled(db, row.charge_id, now=now)
    books.post(db, payment_of(row, charge), now)


def book_refused(
    db: StoreDb, *, payment_id: str, problem: str, now: int, until: int | None = None, tries: int = 1
) -> bool:
    """Note that the money has certainly not moved. `until`, `tries`: as of `payment_rows.refused`. False: that was known, or is another's
    to find out."""
    row = payment_rows.refused(db, payment_id, problem=problem, now=now, until=until, tries=tries)
    if row is None:
        return False
    if row.charge_id is not None:
        charge = charge_rows.take_out(db, row.charge_id, "settling", "running")
        if charge is not None:
            give_back(db, charge, now)
    return True


def book_cashed_elsewhere(db: StoreDb, *, payment_id: str, transaction: str, now: int) -> bool:
    """Note that the money has moved for what somebody else sold to the same payee. Return whether that was not known yet."""
    refused = book_refused(db, payment_id=payment_id, problem="It was used for another purchase.", now=now)
    if refused:
        said = f"{payment_id} {transaction}"
        audit_trail.record(db, at=now, event=CASHED_ELSEWHERE, outcome="refused", actor=ACTOR, reason=said)
    return refused


# ── a process has died ───────────────────────────────────────────────────────────────────────────────────────────────


def recover(db: StoreDb, *, boot_id: str, now: int) -> int:
    """Take over some of what a dead process had in hand, and return how much. Calls that ran are released, those with a key remembered as
    interrupted, and payments that were sent are to be looked for."""
    left = charge_rows.left_behind(db, boot_id=boot_id)
    for charge in left:
        if charge.state == "settling":
            charge_rows.disowned(db, charge.id)
        elif (
            _interrupted(db, charge.run, now=now) is None
            and charge_rows.owed(db, charge.run, now=now) is None
        ):
            taken = charge_rows.take_out(db, charge.id, "running")
            if taken is not None:
                give_back(db, taken, now)
            else:
                charge_rows.disowned(db, charge.id)
    rows = payment_rows.left_behind(db, boot_id=boot_id)
    for row in rows:
        if not payment_rows.let_go(db, row.id):
            payment_rows.disowned(db, row.id, now=now)
    return len(left) + len(rows)


def _interrupted(db: StoreDb, run: Run, *, now: int, answer: bytes | None = None) -> Charge | None:
    charge = charge_rows.interrupted(db, run, now=now, answer=answer)
    if charge is not None and not charge.paid:
        give_back(db, charge, now)
        if charge.payment_id is not None:
            payment_rows.let_go(db, charge.payment_id)
    return charge


# ── movements ────────────────────────────────────────────────────────────────────────────────────────────────────────


def charge_of_wallet(charge: Charge) -> Movement:
    """Return the movement from the wallet that it was held in."""
    assert charge.wallet is not None
    return _of_call(charge, kind="charge", source=wallets.account_of(charge.wallet))


def payment_of(row: PaymentRow, charge: Charge | None) -> Movement:
    """Return the movement of a payment. `charge` None: what it was for is gone, and the money is there all the same."""
    if charge is None:
        return _of_payment(row, kind="payment", target="unassigned")
    return _of_call(charge, kind="payment", source=row.account, payment_id=row.id)


def deposit_of(row: PaymentRow) -> Movement:
    assert row.wallet is not None
    return _of_payment(row, kind="deposit", target=wallets.account_of(row.wallet))


def _of_payment(row: PaymentRow, *, kind: MovementKind, target: str) -> Movement:
    return Movement(
        kind=kind,
        source=row.account,
        target=target,
        amount=row.amount,
        currency=row.currency,
        principal=row.caller,
        server=row.server,
        payment_id=row.id,
    )


def _of_call(charge: Charge, *, kind: MovementKind, source: str, payment_id: str | None = None) -> Movement:
    return Movement(
        kind=kind,
        source=source,
        target=revenue_account(charge.server, charge.tool),
        amount=charge.amount,
        currency=charge.currency,
        principal=charge.caller,
        client_id=charge.client_id,
        grant_id=charge.grant_id,
        server=charge.server,
        tool=charge.tool,
        call_id=charge.call_id,
        charge_id=charge.id,
        payment_id=payment_id,
        price=charge.price,
    )
