"""A facilitator that says nothing until a test has it say something, to each that sends it a payment what it is told to."""

from __future__ import annotations

from typing import Any

import trio
import trio.testing

from server.payments.x402.facilitators import FacilitatorDown
from server.payments.x402.payment_payload import Payment
from server.payments.x402.settlements import Settled, SettleOutcome
from tests.payments.seller.open_till import OpenTill
from tests.payments.x402.builders import TRANSACTION


class Sent:
    """A payment that was sent to be settled, and by whom is known from the order."""

    def __init__(self, payment: Payment, requirements: Any, *, repeated: bool) -> None:
        self.repeated = repeated
        self._payment = payment
        self._requirements = requirements
        self._said: SettleOutcome | FacilitatorDown | None = None
        self._answered = trio.Event()

    async def is_told(self, said: SettleOutcome | FacilitatorDown | None = None) -> None:
        """None: that it is settled. Comes back when whoever sent it has done all that it can."""
        self._said = said
        self._answered.set()
        await trio.testing.wait_all_tasks_blocked()

    async def outcome(self) -> SettleOutcome:
        await self._answered.wait()
        if isinstance(self._said, FacilitatorDown):
            raise self._said
        return self._said or Settled(
            transaction=TRANSACTION,
            payer=self._payment.authorization.from_,
            network=self._requirements.network,
            amount=self._requirements.amount,
        )


def hold_settlements(at: OpenTill) -> list[Sent]:
    """What is sent from here on, as it is sent."""
    sent: list[Sent] = []

    async def settle(
        payment: Payment, requirements: Any, resource: Any = None, *, at: str, repeated: bool = False
    ) -> SettleOutcome:
        each = Sent(payment, requirements, repeated=repeated)
        sent.append(each)
        return await each.outcome()

    at.facilitators.settle = settle
    return sent
