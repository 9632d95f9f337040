"""The end of a priced call: its tool has answered, so the money is taken and the answer may be given; or it has not, and nothing is taken.

with a payment    keep the answer, settle → serve
on a balance      keep the answer and charge, in one write → serve
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import trio

from server.mcp.result_encoding import ToolResult
from server.mcp.terms import SIGNED_RECEIPT
from server.payments.seller import charge_rows, claims, refusals
from server.payments.seller.charge_rows import Charge, Run
from server.payments.seller.delivery_receipts import Mark
from server.payments.seller.payment_rows import PaymentRow
from server.payments.seller.payment_taking import PaymentTaking
from server.payments.seller.priced_call import (
    Earlier,
    PricedCall,
    Refusal,
    Served,
    Started,
    earlier_of,
)
from server.payments.seller.settlement import SENT_MS, settlement_of
from server.payments.seller.signed_terms import OFFER_RECEIPT
from server.payments.x402.in_band import RECEIPT_KEY
from server.store.idempotency.kept_answers import GRACE_MS
from server.store.idempotency.sealed_answers import MAX_ANSWER_BYTES, AnswerTooLarge
from server.store.jobs import StoreBroken, StoreDb, StoreError

# What a settlement may take before whoever waits is told that nobody knows yet; a task can wait for longer.
SETTLE_SECONDS: Final = 60.0
PATIENT_SECONDS: Final = 3600.0
LOOK_SECONDS: Final = 1.0


class FinishCharge(PaymentTaking):
    """The end of each priced call of one server."""

    # ── the tool has answered ────────────────────────────────────────────────────────────────────────────────────────

    async def finish(self, started: Started, answer: ToolResult) -> Served | Refusal:
        """Take the money, and let the answer be given. Raises `StoreUnavailable`; then nothing was taken, or what was taken is
        found by the next call like this one."""
        try:
            sealed = self._answers.seal(started.id, answer)
        except AnswerTooLarge:
            await self.interrupt(started)
            return refusals.answer_too_large(MAX_ANSWER_BYTES, started.id if started.paid else None)
        except BaseException:
            await self.interrupt(started)
            raise
        self._room.add(started.charge.caller, len(sealed))
        earlier: Earlier | None = None
        try:
            if started.charge.payment_id is not None and not started.paid:
                refusal = await self._settle(started, sealed)
                if refusal is not None:
                    return refusal
            else:
                await self._charge_wallet(started, sealed)
            self._settlements.counts.charge(started.charge.how)
            meta = self._meta_of(started.charge, started.settlement)
            earlier = earlier_of(started.charge, started.offer, answer, meta)
            return Served(charge_id=started.id, meta=meta)
        except claims.NotClaimed:
            # This process was cut off for so long that others have let its calls go: whoever makes the call again is served by any of them.
            return refusals.NOT_WRITTEN
        finally:
            self._under_way.end(started.id, earlier)

    async def _charge_wallet(self, started: Started, sealed: bytes) -> None:
        due = not started.paid and started.charge.amount
        job = partial(
            claims.finish,
            run=self._run(started.id, started.call.call_id),
            answer=sealed,
            books=self._books,
            movement=claims.charge_of_wallet(started.charge) if due else None,
            now=self._clock(),
        )
        with trio.CancelScope(shield=True):
            try:
                await self._store.write(job)
            except Exception:
                await self.interrupt(started)
                raise

    async def _settle(self, started: Started, sealed: bytes | None) -> Refusal | None:
        """Settle the payment of a call; None: done. `sealed` None: it is paid before its tool runs, which may run now."""
        payment_id = started.charge.payment_id
        assert payment_id is not None
        row: PaymentRow | None = None
        with trio.CancelScope(shield=True):
            until = self._clock() + SENT_MS
            job = partial(
                claims.send,
                charge_id=started.id,
                payment_id=payment_id,
                answer=sealed,
                next_try_at=until,
            )
            try:
                await self._store.write(job)
            except Exception as problem:
                await (self.release if sealed is None else self.interrupt)(started)
                if isinstance(problem, StoreBroken):
                    # It may have been written. Then nothing was released, and it is sent soon.
                    self._settlements.not_begun(payment_id, until)
                raise
            self._settlements.begin(payment_id, until)
            await self._under_way.wait(payment_id, within=SETTLE_SECONDS)
            row = await self._payment(payment_id)
        if started.call.patient:
            row = await self._until_known(payment_id, row)
        if row is None or row.state == "unknown" or row.state == "settling":
            return refusals.unknown_outcome(payment_id, self._settlements.ends_at(row))
        if row.state == "refused":
            self._penalties.failed(started.call.caller, started.call.address)
            return refusals.not_settled(row, started.offer)
        if row.went_through_refused:  # the call is gone since, and its money stands for nothing
            return refusals.settled_after_refusal(row)
        started.settlement = settlement_of(row)
        if (
            sealed is None
        ):  # whoever has paid runs it now, unless somebody else who asked for the same does already
            if not await self._take_up(started.charge, started.call):
                return refusals.IN_FLIGHT
            started.paid = True
        return None

    async def _take_up(self, charge: Charge, call: PricedCall) -> bool:
        """Run what is owed, for this call: then it is under way here, and whoever asked for it ends it. False: somebody else does, or it
        was tried often enough. Raises `StoreUnavailable`."""
        job = partial(charge_rows.take_up, run=self._run(charge.id, call.call_id))
        self._under_way.begin(charge.id)
        taken = False
        try:
            await self._settlements.settle_owed()  # how its last run ended may be among it
            taken = await self._store.write(job)
        except StoreBroken:
            # It may have been written, and nobody runs it.
            self._settlements.later(self._undoing(charge.id, call.call_id, None))
            raise
        finally:
            if not taken:
                self._under_way.end(charge.id)
        return taken

    async def _until_known(self, payment_id: str, row: PaymentRow | None) -> PaymentRow | None:
        """Wait within reason until it is known what became of a payment."""
        with trio.move_on_after(PATIENT_SECONDS):
            while row is not None and row.state in ("settling", "unknown"):
                await trio.sleep(LOOK_SECONDS)
                row = await self._payment(payment_id)
        return row

    def _undoing(self, charge_id: str, call_id: str, payment_id: str | None) -> Callable[[StoreDb], object]:
        """Return a job for a call that may have been claimed or taken up, and whose tool was not run."""
        run = self._run(charge_id, call_id)
        return partial(claims.release, run=run, payment_id=payment_id, now=self._clock(), asked=True)

    def _run(self, charge_id: str, call_id: str) -> Run:
        return Run(charge_id=charge_id, owner=self._boot_id, call_id=call_id)

    # ── it has not ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def release(self, started: Started, *, asked: bool = False) -> int | None:
        """Take nothing. A call that was paid beforehand is owed: returned is how often it may be tried again, if known. `asked`: the tool
        has a question first."""
        return await self._end(started, partial(claims.release, asked=asked), None)

    async def interrupt(self, started: Started, failed: ToolResult | None = None) -> int | None:
        """Release a call whose tool was run and did not come to its end, or nobody knows how far it came: one with a key is not run again
        by itself, unless that does no harm. `failed`: what its caller is told, which is its answer from now on. Returned is what `release`
        returns."""
        if started.call.idempotent:
            return await self.release(started)
        charge = started.charge
        sealed = None if failed is None or started.paid else self._sealed(started, failed)
        earlier: Earlier | None = None
        if charge.keyed and not started.paid:
            self._room.add(charge.caller, 1 if sealed is None else len(sealed))
            if failed is not None and sealed is not None:
                earlier = Earlier(charge_id=started.id, answer=failed, keyed=True)
        return await self._end(started, partial(claims.interrupt, answer=sealed), earlier)

    async def _end(
        self, started: Started, end: Callable[..., int | None], earlier: Earlier | None
    ) -> int | None:
        """Write how it ended, now or as soon as the store can. `earlier`: the answer for those who wait for it."""
        run = self._run(started.id, started.call.call_id)
        job = partial(end, run=run, payment_id=started.charge.payment_id, now=self._clock())
        with trio.CancelScope(shield=True):
            try:
                return await self._store.write(job)
            except StoreError:
                self._settlements.later(job)
            finally:
                self._under_way.end(started.id, earlier)
        return None

    def _sealed(self, started: Started, failed: ToolResult) -> bytes | None:
        """Seal the answer of a call that failed. None: it cannot be kept."""
        try:
            return self._answers.seal(started.id, failed)
        except Exception:  # whatever cannot be written of it, it was made
            return None

    # ── its answer ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _meta_of(self, charge: Charge, settlement: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """Return the `_meta` of an answer that was paid for."""
        receipt = self._receipts.of(charge, settlement, at=self._clock())
        if settlement is None:
            return {SIGNED_RECEIPT: receipt}
        if self._terms is not None:
            signed = self._terms.receipt(settlement, self._showcase.resource(charge.tool).url)
            settlement = {**settlement, "extensions": {OFFER_RECEIPT: signed}}
        return {RECEIPT_KEY: settlement, SIGNED_RECEIPT: receipt}

    def answered(
        self, charge_id: str, *, keyed: bool, keeps_ms: int, on_chain: bool = False
    ) -> Callable[[], None] | None:
        """Note that the answer was written to its caller. Returned is what to call once it is known that the caller has it.

        `on_chain`: it was paid for by itself. Between here and its caller it may still get lost, and whoever lost it signs anew: so for a
        moment the call leads to the same answer, unless the caller is heard of before."""
        if on_chain and not keyed and keeps_ms < GRACE_MS:
            self._settlements.mark(Mark(charge_id=charge_id, keyed=False, keeps_ms=GRACE_MS))
            return lambda: self._settlements.mark(Mark(charge_id=charge_id, keyed=False, keeps_ms=keeps_ms))
        self._settlements.mark(Mark(charge_id=charge_id, keyed=keyed, keeps_ms=keeps_ms))
        return None

    def interruption_told(self, charge_id: str) -> None:
        """Let a call that was paid beforehand and interrupted be made again: its caller has been told, and decides."""
        self._settlements.mark(Mark(charge_id=charge_id, keyed=True, keeps_ms=0, interrupted=True))
