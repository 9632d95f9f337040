"""Whatever is booked in whatever order, undone, lost and run again: the books are right, and come to what was done."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from server.payments.seller import refunds, vouchers, wallets
from server.payments.seller.ledger import BooksError, Movement
from server.payments.seller.refunds import Granted, Refunded, RefundOrder
from server.payments.seller.vouchers import Redeemed, VoucherOrder
from server.store.jobs import StoreDb
from server.store.transactions import PendingJob, Transactions
from tests.engine_under_test import FakesDatabase, fakes_database
from tests.payments.seller.books_fakes import (
    AUDIT_KEY,
    BASE,
    BOOKS,
    KEY,
    NOW,
    SEARCH,
    balances,
    begin_charge,
    checked_at_once,
    deposit,
    finish_charge,
    moved,
    release_charge,
)

WHO = ("user:ann", "user:ben", "token:shop:ci")
AMOUNTS = st.sampled_from([1, 7, 50, 999, 10_000])
# How a job fares: it commits, its end is lost with the whole transaction and it runs again, or it fails with all it did.
FATES = st.sampled_from(["done", "done", "done", "twice", "undone"])

Job = Callable[[StoreDb], Any]


class Undone(Exception):
    """The process died before the commit, as far as this job is concerned."""


def begun(database: FakesDatabase) -> Transactions:
    transactions = Transactions(database.connection, job_seconds=10, engine=database.engine)
    transactions.chain_audit(AUDIT_KEY, ())
    transactions.chain_ledger(KEY, ())
    return transactions


class TheBooks(RuleBasedStateMachine):
    charges = Bundle("charges")
    movements = Bundle("movements")
    codes = Bundle("codes")

    def __init__(self) -> None:
        super().__init__()
        self.database = fakes_database()
        self.transactions = begun(self.database)
        self.number = 0
        # What there must be, kept by other means than the books'.
        self.has: dict[str, int] = {}
        self.held: dict[str, int] = {}
        self.running: dict[str, tuple[str, int]] = {}
        self.given: dict[str, tuple[str, int, int]] = {}  # by the key of a grant
        self.worth: dict[int, int] = {}  # of a movement, what can still be taken back

    def teardown(self) -> None:
        self.database.close()

    def new(self, prefix: str) -> str:
        self.number += 1
        return f"{prefix}_{self.number}"

    def run(self, job: Job, fate: str) -> Any:
        """What it returned; None if it was undone, or refused."""

        def fail(db: StoreDb) -> None:
            job(db)
            raise Undone

        lost: list[None] = []

        def lose(db: StoreDb) -> None:
            if not lost:
                lost.append(None)
                self.database.connection.execute("ROLLBACK")

        work = PendingJob(fail if fate == "undone" else job)
        beside = (
            [PendingJob(lose)]
            if fate == "twice"
            else [PendingJob(lambda db: db.fetch_one("SELECT 1 AS one"))]
        )
        self.transactions.run_batch([*beside[: self.number % 2], work, *beside[self.number % 2 :]], at=NOW)
        if isinstance(work.error, (Undone, BooksError)):
            return None
        return work.result()

    def move(self, source: str, target: str, amount: int) -> None:
        self.has[source] = self.has.get(source, 0) - amount
        self.has[target] = self.has.get(target, 0) + amount

    def free(self, wallet: str) -> int:
        return self.has.get(wallet, 0) - self.held.get(wallet, 0)

    @rule(target=movements, wallet=st.sampled_from(WHO), amount=AMOUNTS, fate=FATES, times=st.integers(1, 3))
    def deposit(self, wallet: str, amount: int, fate: str, times: int) -> int | None:
        job = partial(deposit, wallet=wallet, amount=amount, payment=self.new("pay"))
        seqs = {self.run(job, fate) for _ in range(times)}
        assert len(seqs) == 1, "asked again, it is the same movement"
        (seq,) = seqs
        if seq is not None:
            self.move(BASE, wallet, amount)
            self.worth[seq] = amount
        return seq

    @rule(target=movements, amount=AMOUNTS, fate=FATES)
    def pay_directly(self, amount: int, fate: str) -> int | None:
        movement = moved(
            "payment", BASE, SEARCH, amount, charge_id=self.new("chg"), payment_id=self.new("pay")
        )
        seq = self.run(partial(BOOKS.post, movement=movement, now=NOW), fate)
        if seq is not None:
            self.move(BASE, SEARCH, amount)
            self.worth[seq] = amount
        return seq

    @rule(target=charges, wallet=st.sampled_from(WHO), amount=AMOUNTS, fate=FATES)
    def hold(self, wallet: str, amount: int, fate: str) -> str | None:
        charge = self.new("chg")
        held = self.run(partial(begin_charge, wallet=wallet, amount=amount, charge=charge), fate)
        assert held is None or held == (self.free(wallet) >= amount)
        if not held:
            return None
        self.held[wallet] = self.held.get(wallet, 0) + amount
        self.running[charge] = (wallet, amount)
        return charge

    @rule(target=movements, charge=charges, fate=FATES, again=st.booleans())
    def charge(self, charge: str | None, fate: str, again: bool) -> int | None:
        if charge not in self.running:
            return None
        wallet, amount = self.running[charge]
        job = partial(finish_charge, wallet=wallet, amount=amount, charge=charge)
        seq = self.run(job, fate)
        if seq is None:
            return None
        if again:
            assert self.run(job, "done") == seq
        del self.running[charge]
        self.held[wallet] -= amount
        self.move(wallet, SEARCH, amount)
        self.worth[seq] = amount
        return seq

    @rule(charge=charges, fate=FATES, times=st.integers(1, 2))
    def release(self, charge: str | None, fate: str, times: int) -> None:
        if charge is None or charge not in self.running:
            return
        wallet, amount = self.running[charge]
        job = partial(release_charge, wallet=wallet, amount=amount, charge=charge)
        released = [self.run(job, fate) for _ in range(times)]
        if fate != "undone":
            assert released == [True, False][:times]
            del self.running[charge]
            self.held[wallet] -= amount

    @rule(wallet=st.sampled_from(WHO), amount=AMOUNTS, fate=FATES)
    def charge_more_than_is_held(self, wallet: str, amount: int, fate: str) -> None:
        more = self.held.get(wallet, 0) + amount
        movement = moved("charge", wallets.account_of(wallet), SEARCH, more, charge_id=self.new("chg"))
        assert self.run(partial(BOOKS.post, movement=movement, now=NOW), fate) is None

    @rule(
        movement=movements,
        part=st.sampled_from([None, 1, 5, 400]),
        by_hand=st.sampled_from([None, True]),
        fate=FATES,
    )
    def refund(self, movement: int | None, part: int | None, by_hand: bool | None, fate: str) -> None:
        if movement is None:
            return
        order = RefundOrder(refers=movement, amount=part, paid_out=by_hand)
        done = self.run(partial(refunds.refund, books=BOOKS, order=order, by="local:0", now=NOW), fate)
        amount = self.worth[movement] if part is None else part
        if isinstance(done, Refunded):
            assert 0 < amount <= self.worth[movement]
            assert (done.amount, done.left) == (amount, self.worth[movement] - amount)
            self.worth[movement] -= amount
            source, target = (each.removeprefix(wallets.ACCOUNT) for each in (done.source, done.target))
            assert self.free(source) >= amount
            self.move(source, target, amount)

    @rule(
        target=movements,
        wallet=st.sampled_from(WHO),
        amount=AMOUNTS,
        once=st.sampled_from(("", "a")),
        fate=FATES,
    )
    def grant(self, wallet: str, amount: int, once: str, fate: str) -> int | None:
        job = partial(
            refunds.grant,
            books=BOOKS,
            wallet=wallet,
            amount=amount,
            currency="USD",
            note="",
            by="local:0",
            now=NOW,
            once=once,
        )
        done = self.run(job, fate)
        if once in self.given:
            same = self.given[once][:2] == (wallet, amount)
            assert done is None or (same and done == Granted(seq=self.given[once][2], given_before=True))
        elif isinstance(done, Granted):
            assert not done.given_before
            self.move("granted", wallet, amount)
            self.worth[done.seq] = amount
            if once:
                self.given[once] = (wallet, amount, done.seq)
        return None if done is None else done.seq

    @rule(target=codes, amount=AMOUNTS, uses=st.integers(1, 3))
    def make_voucher(self, amount: int, uses: int) -> tuple[str, int, dict[str, int]]:
        self.number += 1
        order = VoucherOrder(amount=amount, currency="USD", plan=None, uses=uses, note="", expires_at=NOW + 1)
        seed = self.number.to_bytes(32, "big")
        new = self.run(partial(vouchers.make, order=order, seed=seed, by="local:0", now=NOW), "done")
        return new.code.reveal(), amount, {"left": uses}

    @rule(target=movements, voucher=codes, wallet=st.sampled_from(WHO), fate=FATES)
    def redeem(self, voucher: tuple[str, int, dict[str, int]], wallet: str, fate: str) -> int | None:
        code, amount, used = voucher
        code_hash = vouchers.hash_of(code)
        assert code_hash is not None
        job = partial(
            vouchers.redeem, books=BOOKS, code_hash=code_hash, wallet=wallet, principal=f"{wallet}:", now=NOW
        )
        done = self.run(job, fate)
        if done is None:
            return None
        assert isinstance(done, Redeemed) == (used["left"] > 0 and wallet not in used)
        if not isinstance(done, Redeemed):
            return None
        used["left"] -= 1
        used[wallet] = 1
        self.move("granted", wallet, amount)
        assert done.seq is not None
        self.worth[done.seq] = amount
        return done.seq

    @rule()
    def restart(self) -> None:
        self.transactions = begun(self.database)

    @invariant()
    def the_books_are_right(self) -> None:
        work = PendingJob(self.look)
        self.transactions.run_read(work)
        work.result()

    def look(self, db: StoreDb) -> None:
        if not db.fetch_one("SELECT 1 AS one FROM meta WHERE key = 'ledger_chain'"):
            assert not self.worth
            return
        found = checked_at_once(db)
        assert found.is_right, (found.findings, found.broken)
        assert found.movements >= len(self.worth)
        there = {name: balance for name, balance in balances(db).items() if balance}
        assert there == {name: balance for name, balance in self.has.items() if balance}
        held = {row["id"]: row["held"] for row in db.fetch_all("SELECT id, held FROM wallets WHERE held > 0")}
        assert held == {name: amount for name, amount in self.held.items() if amount}
        assert not db.fetch_all("SELECT seq FROM audit WHERE event = 'ledger.altered'")


TheBooks.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestTheBooks = TheBooks.TestCase


def test_the_machine_would_notice_a_movement_that_is_booked_on_one_side_only() -> None:
    database = fakes_database()
    transactions = begun(database)

    def one_side(db: StoreDb) -> None:
        deposit(db, WHO[0], 10, "pay_1")
        movement: Movement = moved("grant", "granted", wallets.account_of(WHO[0]), 5)
        values = (NOW, *(getattr(movement, name) for name in Movement.__struct_fields__))
        assert db.post(values) == 2

    work = PendingJob(one_side)
    transactions.run_batch([work], at=NOW)
    work.result()
    reading = PendingJob(checked_at_once)
    transactions.run_read(reading)
    assert len(reading.result().findings) >= 2
    database.close()
