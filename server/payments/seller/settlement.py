"""Settlement: payments are sent to move money on a chain, and looked after until it is known what became of them.

Three things can become of a payment: settled, refused, unknown. Unknown keeps everything as it is, is tried again with the same
authorization (which can move money only once), and is looked for on the chain where the settings name a node of it. All this belongs to no
request and survives a restart. Nothing is booked twice, however often an outcome is heard of (`claims.book_settled`).

Where several processes serve, each sends it in a turn of its own. A facilitator's word in one turn says nothing of another, but that the
money has moved, which is true whoever hears it. So is the word of the chain."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec
import trio

from server.lib.log.logger import Logger
from server.lib.shortened import short_reason
from server.payments.seller import claims, payment_rows
from server.payments.seller.delivery_receipts import Mark, apply_marks
from server.payments.seller.ledger import Books
from server.payments.seller.payment_counts import TillCounts
from server.payments.seller.payment_rows import LONGEST_MS, PaymentRow
from server.payments.seller.priced_call import Earlier
from server.payments.seller.revenue import unsettled
from server.payments.x402.chain_client import Chain, ChainUnreachable, Transfer
from server.payments.x402.facilitator_reasons import PERHAPS_CARRIED_OUT
from server.payments.x402.facilitators import FacilitatorDown, Facilitators
from server.payments.x402.payment_payload import read_payment
from server.payments.x402.requirements import PaidResource, Requirements, read_requirements
from server.payments.x402.settlements import AlreadyUsed, Rejected, Settled, SettleOutcome, Unknown
from server.store.idempotency.kept_answers import AnswerRoom
from server.store.idempotency.running_calls import UnderWay
from server.store.idempotency.sealed_answers import AnswerVault
from server.store.jobs import Store, StoreBroken, StoreError, StoreUnavailable
from server.store.write_retry import Job, WriteRetry

# The first look after an answer that did not come.
FIRST_LOOK_MS: Final = 2_000
# A settlement may be at work for so long, with the longest time that the settings allow; nobody else tries meanwhile.
SENT_MS: Final = 420_000
LOOK_SECONDS: Final = 1.0
# How often those without an outcome are counted, for whoever watches.
COUNT_SECONDS: Final = 15.0
AT_ONCE: Final = 16
MOST_MARKS: Final = 500

# Of an authorization that was used before it was sent, or by what no try of ours was: not by us, and perhaps to cancel it. What is said of it
# later means no more.
USED_ELSEWHERE: Final = "the authorization was used before it was sent"
NOT_IN_TIME: Final = "It was not carried out in its time."


class Settlements:
    """All payments of the process that are under way. Who makes it runs `run`."""

    def __init__(
        self,
        *,
        store: Store,
        books: Books,
        answers: AnswerVault,
        facilitators: Facilitators,
        chains: Mapping[str, Chain],
        clock: Callable[[], int],
        boot_id: str,
        log: Logger,
        counts: TillCounts | None = None,
        room: AnswerRoom | None = None,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self.counts: Final = TillCounts() if counts is None else counts
        self.facilitators: Final = facilitators
        self.under_way: Final[UnderWay[Earlier]] = UnderWay()
        self.room: Final = AnswerRoom(store, clock) if room is None else room
        self._store = store
        self._books = books
        self._answers = answers
        self._chains = chains
        self._clock = clock
        self._boot_id = boot_id
        self._log = log
        self._look_seconds = look_seconds
        self._nursery: trio.Nursery | None = None
        self._counted_again_at = float("-inf")
        self._marks: list[Mark] = []
        self._arrears = WriteRetry(store, log, "payment.job_failed")
        # The store could not do it now.
        self.later: Final = self._arrears.owe
        self._left = False
        # Of the tills: what they look after themselves, as often.
        self.each_look: Final[list[Callable[[], Awaitable[None]]]] = []

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look after payments, first after those that a dead process left."""
        await self._take_up_left()
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            try:
                while True:
                    await self._look()
                    await trio.sleep(self._look_seconds)
            finally:
                with trio.CancelScope(shield=True):
                    await self._last_flush()

    def look_for_left(self) -> None:
        """Take up, with the next look, what another process left that is gone."""
        self._left = True

    async def settle_owed(self) -> None:
        """Write what could not be written when it happened, before what follows from it. Raises `StoreUnavailable`."""
        await self._arrears.settle()

    async def _take_up_left(self) -> None:
        while await self._store.write(partial(claims.recover, boot_id=self._boot_id, now=self._clock())):
            pass

    # ── one payment ──────────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self, payment_id: str, until: int) -> None:
        """Send a payment whose row says that it is being settled (`claims.send`), and `until` that it is our turn. Who waits for it waits
        by its id."""
        assert self._nursery is not None
        self.under_way.begin(payment_id)
        self._nursery.start_soon(self._settle, payment_id, until)

    def not_begun(self, payment_id: str, until: int) -> None:
        """Give back a turn that a row may name as ours, in which we shall not send it: with the next look somebody does, not in minutes."""
        self.later(partial(payment_rows.not_begun, payment_id=payment_id, until=until, now=self._clock()))

    def ends_at(self, row: PaymentRow | None) -> int | None:
        """Return by when a payment without an outcome has one by itself, as far as is known now; None: perhaps never."""
        if row is None:
            return None
        asked = row.network in self._chains
        ends = row.problem != USED_ELSEWHERE if asked else row.refused_each_time(row.tries)
        return row.over_at if ends else None

    async def _settle(self, payment_id: str, until: int) -> None:
        try:
            try:
                row = await self._store.read(lambda db: payment_rows.find(db, payment_id))
            except StoreError:
                self.not_begun(payment_id, until)
                raise
            if row is not None and row.state in ("settling", "unknown") and row.next_try_at == until:
                await self._try(row)
        except StoreUnavailable as problem:
            self._log.warning("payment.store_unavailable", payment=payment_id, reason=str(problem))
        except Exception:
            self._log.exception("payment.crashed", payment=payment_id)
        finally:
            self.under_way.end(payment_id)

    async def _try(self, row: PaymentRow) -> None:
        assert row.sealed is not None
        until = row.next_try_at
        assert until is not None
        first = row.tries == 1  # else it may have been carried out before, whatever is said of this time
        begun = not row.refused_each_time(row.tries - 1)  # perhaps, by an earlier try
        sent = True
        try:
            payment = read_payment(msgspec.json.decode(self._answers.open_bytes(row.id, row.sealed)))
            requirements, resource = read_kept(row.requirements)
            answer = await self.facilitators.settle(
                payment, requirements, resource, at=row.facilitator or "", repeated=not first
            )
        except FacilitatorDown as error:
            # Nothing was sent this time; whether anything was before, only the chain can tell.
            if first:
                return await self._not_sent(row, until, error.for_log)
            answer, sent = Unknown(problem=error.for_log), False
        match answer:
            case Settled(transaction=transaction):
                return await self._settled(row, transaction)
            case Rejected(certain=True, sentence=sentence) if first:
                return await self._refused(row, sentence, until)
            case Rejected(said=said):
                problem = f"says: {said}"
            case AlreadyUsed():
                problem = USED_ELSEWHERE if first else "the authorization was used already"
            case Unknown(problem=problem):
                pass
        used_elsewhere = USED_ELSEWHERE in (row.problem, problem)
        found = await self._on_chain(row)
        if isinstance(found, Transfer):
            if not used_elsewhere and (begun or (sent and _may_have_made(answer, found))):
                return await self._settled(row, found.transaction)
            used_elsewhere = True
            signers = await self.facilitators.all_signers(row.network, found.sender)
            if found.sender in signers.addresses:
                return await self._cashed_elsewhere(row, found.transaction)
            if signers.complete:
                return await self._settled(row, found.transaction)
        if found is False:
            return await self._refused(row, NOT_IN_TIME)
        if used_elsewhere:
            problem = USED_ELSEWHERE
        elif isinstance(answer, AlreadyUsed) and row.network not in self._chains and not first:
            # We are the only ones to whom it was made out, and it was sent: that it cannot be used again is that it was.
            return await self._settled(row, answer.transaction or "")
        elif not begun and (not sent or _begins_nothing(answer)):
            if row.network not in self._chains and self._clock() >= row.over_at:
                return await self._refused(row, NOT_IN_TIME, until)
            problem = payment_rows.refused_each_time(row.tries) + problem
        await self._try_later(row, until, problem, FIRST_LOOK_MS << min(row.tries - 1, 20))
        self.counts.payment("unknown")
        self._log.warning("payment.unknown", payment=row.id, tries=row.tries, reason=short_reason(problem))
        return None

    async def _not_sent(self, row: PaymentRow, until: int, problem: str) -> None:
        now = self._clock()
        if now >= row.valid_before * 1000:
            return await self._refused(row, "It could not be sent in its time.", until)
        pause = max(FIRST_LOOK_MS, (now - row.created_at) // 2)
        await self._try_later(row, until, problem, pause, sent=False)
        self._log.warning("payment.not_sent", payment=row.id, reason=short_reason(problem))
        return None

    async def _try_later(
        self, row: PaymentRow, until: int, problem: str, pause: int, *, sent: bool = True
    ) -> None:
        """Try again after the pause, and when its time is over, since it may end then."""
        now = self._clock()
        at = now + min(pause, LONGEST_MS)
        if now < row.over_at:
            at = min(at, row.over_at)
        said = short_reason(problem)
        job = partial(
            payment_rows.unknown, payment_id=row.id, until=until, problem=said, next_try_at=at, sent=sent
        )
        await self._write_outcome(job)

    async def _on_chain(self, row: PaymentRow) -> Transfer | bool | None:
        """Look for the transfer. False: there is none, and there will be none; None: nobody can say."""
        chain = self._chains.get(row.network)
        if chain is None:
            return None
        try:
            found = await chain.find_transfer(row.asset, row.payer, row.pay_to, row.nonce, int(row.atomic))
            if found is not None:
                return found
            lapsed = await chain.authorization_lapsed(row.asset, row.payer, row.nonce, row.valid_before)
            if lapsed or await chain.authorization_cancelled(row.asset, row.payer, row.nonce):
                return False
        except ChainUnreachable as error:
            self._log.warning("payment.chain_unreachable", network=row.network, reason=str(error))
        return None

    async def _settled(self, row: PaymentRow, transaction: str) -> None:
        job = partial(
            claims.book_settled,
            payment_id=row.id,
            transaction=transaction,
            books=self._books,
            now=self._clock(),
        )

        def told(booking: object) -> None:
            facts = {"payment": row.id, "transaction": transaction, "amount": row.amount}
            match booking:
                case "booked":
                    self.counts.payment("settled")
                    self._log.info("payment.settled", **facts)
                case "after_refusal":
                    self.counts.payment("settled")
                    self._log.error(claims.SETTLED_AFTER_REFUSAL, purpose=row.purpose, **facts)
                case "gone":
                    self._log.error("payment.settled_without_row", payer=row.payer, **facts)
                case _:
                    pass

        await self._write_outcome(job, told)

    async def _refused(self, row: PaymentRow, problem: str, until: int | None = None) -> None:
        """Book a refusal. `until`: it is our turn that says so; None: it is the chain."""
        job = partial(
            claims.book_refused,
            payment_id=row.id,
            problem=short_reason(problem),
            now=self._clock(),
            until=until,
            tries=row.tries,
        )

        def told(ours: object) -> None:
            if ours:
                self.counts.payment("refused")
                self._log.info("payment.refused", payment=row.id, reason=short_reason(problem))

        await self._write_outcome(job, told)

    async def _cashed_elsewhere(self, row: PaymentRow, transaction: str) -> None:
        """Book a payment that a facilitator had carried out before we sent it: for another seller, whose books have it."""
        job = partial(
            claims.book_cashed_elsewhere, payment_id=row.id, transaction=transaction, now=self._clock()
        )

        def told(ours: object) -> None:
            if ours:
                self.counts.payment("refused")
                self._log.error(claims.CASHED_ELSEWHERE, payment=row.id, transaction=transaction)

        await self._write_outcome(job, told)

    async def _write_outcome(self, job: Job, told: Callable[[object], None] | None = None) -> None:
        """Write an outcome, later if need be: asked twice, few give an answer that is certain. `told` hears what came of it, whenever it
        is written."""
        try:
            done = await self._store.write(job)
        except StoreError:
            self.later(job, told)
            raise
        if told is not None:
            told(done)

    # ── all the others ───────────────────────────────────────────────────────────────────────────────────────────────

    async def _look(self) -> None:
        try:
            await self._flush()
            if self._left:
                await self._take_up_left()
                self._left = False
            now = self._clock()
            if trio.current_time() >= self._counted_again_at:
                self._counted_again_at = trio.current_time() + COUNT_SECONDS
                self.counts.waiting = await self._store.read(unsettled)
            for row in await self._store.read(partial(payment_rows.due, now=now, at_most=AT_ONCE)):
                if row.id in self.under_way:
                    continue
                until = now + SENT_MS
                job = partial(payment_rows.tried_again, payment_id=row.id, next_try_at=until, now=now)
                try:
                    ours = await self._store.write(job)
                except StoreBroken:
                    self.not_begun(row.id, until)
                    raise
                if ours:
                    self.begin(row.id, until)
            for look in self.each_look:
                await look()
        except StoreUnavailable as problem:
            self._log.warning("payment.store_unavailable", reason=str(problem))
        except Exception:  # whatever it is, it is no reason to look after no payment any more
            self._log.exception("payment.look_failed")

    def mark(self, mark: Mark) -> None:
        self._marks.append(mark)

    def take_marks(self) -> Sequence[Mark]:
        """Take marks. Who takes them writes them, or puts them back."""
        taken, self._marks = self._marks[:MOST_MARKS], self._marks[MOST_MARKS:]
        return taken

    def put_back(self, marks: Sequence[Mark]) -> None:
        self._marks[:0] = marks

    async def _flush(self) -> None:
        """Write all that waits. Raises `StoreUnavailable`; then all that is not written is still there."""
        await self._arrears.settle()
        while self._marks:
            marks = self.take_marks()
            try:
                await self._store.write(partial(apply_marks, marks=marks, now=self._clock()))
            except BaseException:
                self.put_back(marks)
                raise

    async def _last_flush(self) -> None:
        try:
            await self._flush()
        except StoreError as problem:
            self._log.warning("payment.not_flushed", reason=str(problem))


def _may_have_made(answer: SettleOutcome, found: Transfer) -> bool:
    """Return whether the transfer may be what a first try came to: a refusal made none, and an answer that names another made that one."""
    return (
        isinstance(answer, Unknown)
        and (answer.transaction or found.transaction).lower() == found.transaction.lower()
    )


def _begins_nothing(answer: SettleOutcome) -> bool:
    """Return whether it is a refusal that does not hint at a transfer which was begun."""
    return isinstance(answer, Rejected) and answer.code not in PERHAPS_CARRIED_OUT


def kept(requirements: Requirements, resource: PaidResource) -> str:
    """Return what a payment was asked for with, as its row has it."""
    return msgspec.json.encode([requirements.as_json(), resource]).decode()


def read_kept(text: str) -> tuple[Requirements, PaidResource]:
    requirements, resource = msgspec.json.decode(text)
    return read_requirements(requirements), msgspec.convert(resource, PaidResource)


def settlement_of(row: PaymentRow) -> Mapping[str, Any]:
    """Return what the protocol says of a settled payment."""
    return {
        "success": True,
        "transaction": row.transaction_hash or "",
        "network": row.network,
        "payer": row.payer,
        "amount": row.atomic,
    }
