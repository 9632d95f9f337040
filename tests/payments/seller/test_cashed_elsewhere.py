"""A payment that was used before we sent it: by another seller, whom it has paid, or by a stranger, who has paid us with it."""

from __future__ import annotations

import pytest

from server.payments.seller.priced_call import Earlier, Served
from server.payments.seller.settlement import USED_ELSEWHERE
from server.payments.x402.chain_client import Transfer
from server.payments.x402.facilitators import FacilitatorDown
from server.payments.x402.settlements import AlreadyUsed, SettleOutcome, Unknown
from tests.payments.seller.open_till import NOT_CERTAIN, OpenTill, a_call, an_offer, open_till, reason

TRANSACTION = "0x" + "ee" * 32
FACILITATOR, OTHER = "0x" + "fa" * 20, "0x" + "0b" * 20
USED = AlreadyUsed(said="used")


class FakeChain:
    """A node that knows of one transfer."""

    def __init__(self, sender: str) -> None:
        self.sender = sender

    async def find_transfer(self, *_: object) -> Transfer:
        return Transfer(transaction=TRANSACTION, block=1, sender=self.sender)


def knows(at: OpenTill, sender: str, *signers: str) -> None:
    at.facilitators.signers = frozenset(signers)
    at.chains["eip155:84532"] = FakeChain(sender)


async def audited(at: OpenTill) -> list[str]:
    return [row["event"] for row in await at.rows("audit")]


async def test_a_transfer_that_a_facilitator_made_for_another_seller_pays_for_nothing_here() -> None:
    async with open_till() as at:
        knows(at, FACILITATOR, FACILITATOR)
        at.facilitators.outcomes.append(USED)
        payment = at.payment()
        assert reason(await at.pays(a_call(), an_offer(), payment=payment)) == "settlement_failed"
        assert (await at.rows("charges"), await at.rows("movements")) == ([], [])
        assert [row["state"] for row in await at.rows("payments")] == ["refused"]
        assert "payment.cashed_elsewhere" in await audited(at)
        at.now += 3_600_000
        await at.look()
        assert at.facilitators.repeats == [False]
        assert await at.rows("movements") == []


async def test_a_transfer_that_a_stranger_made_with_it_has_paid() -> None:
    async with open_till() as at:
        knows(at, OTHER, FACILITATOR)
        at.facilitators.outcomes.append(USED)
        assert isinstance(await at.pays(a_call(), an_offer(), payment=at.payment()), Served)
        assert len(await at.rows("movements")) == 1


@pytest.mark.parametrize(
    ("outcome", "ours"),
    [
        (NOT_CERTAIN, False),
        (Unknown(problem="says: transaction_failed", transaction="0x" + "bb" * 32), False),
        (
            Unknown(problem="says: transaction_failed", transaction=TRANSACTION.upper().replace("X", "x")),
            True,
        ),
        (Unknown(problem="did not answer"), True),
    ],
    ids=["refused", "another", "this one", "silent"],
)
async def test_a_first_try_made_no_transfer_that_its_answer_does_not_leave_open(
    outcome: SettleOutcome, ours: bool
) -> None:
    async with open_till() as at:
        knows(at, FACILITATOR, FACILITATOR)
        at.facilitators.outcomes.append(outcome)
        await at.pays(a_call(), an_offer(), payment=at.payment())
        assert len(await at.rows("movements")) == ours
        assert ("payment.cashed_elsewhere" in await audited(at)) != ours


async def test_refused_twice_and_then_unreachable_it_is_still_not_ours() -> None:
    async with open_till() as at:
        at.facilitators.signers = frozenset({FACILITATOR})
        at.facilitators.outcomes += [NOT_CERTAIN, NOT_CERTAIN, FacilitatorDown("gone")]
        await at.pays(a_call(), an_offer(), payment=at.payment())
        at.now += 5_000
        await at.look()
        knows(at, FACILITATOR, FACILITATOR)
        at.now += 60_000
        await at.look()
        assert at.facilitators.repeats == [False, True, True]
        assert await at.rows("movements") == []
        assert "payment.cashed_elsewhere" in await audited(at)


async def test_nobody_is_taken_for_a_stranger_while_a_facilitator_has_not_said_from_where_it_sends() -> None:
    async with open_till() as at:
        knows(at, OTHER, FACILITATOR)
        at.facilitators.silent = True
        at.facilitators.outcomes += [USED, USED]
        payment = at.payment()
        assert reason(await at.pays(a_call(), an_offer(), payment=payment)) == "settlement_unknown"
        assert await at.rows("movements") == []
        at.facilitators.silent = False
        at.now += 3_600_000
        await at.look()
        assert len(await at.rows("movements")) == 1


async def test_a_transfer_that_our_own_lost_try_made_has_paid() -> None:
    async with open_till() as at:
        knows(at, FACILITATOR, FACILITATOR)
        chain = at.chains.pop("eip155:84532")
        at.facilitators.outcomes += [Unknown(problem="cut off"), USED]
        payment = at.payment()
        assert reason(await at.pays(a_call(), an_offer(), payment=payment)) == "settlement_unknown"
        at.chains["eip155:84532"] = chain
        at.now += 5_000
        await at.look()
        assert isinstance(await at.pays(a_call(), an_offer(), payment=payment), Earlier)
        assert len(await at.rows("movements")) == 1


@pytest.mark.parametrize("later", [FACILITATOR, OTHER])
async def test_where_no_facilitator_says_from_where_it_sends_nobody_can_tell_until_one_does(
    later: str,
) -> None:
    async with open_till() as at:
        knows(at, later)
        at.facilitators.outcomes += [USED, USED, USED]
        payment = at.payment()
        assert reason(await at.pays(a_call(), an_offer(), payment=payment)) == "settlement_unknown"
        at.now += 5_000
        await at.look()
        assert [row["problem"] for row in await at.rows("payments")] == [USED_ELSEWHERE]
        assert await at.rows("movements") == []
        at.facilitators.signers = frozenset({FACILITATOR})
        at.now += 3_600_000
        await at.look()
        assert len(await at.rows("movements")) == (later == OTHER)
        assert [row["state"] for row in await at.rows("payments")] == [
            "refused" if later == FACILITATOR else "settled"
        ]
