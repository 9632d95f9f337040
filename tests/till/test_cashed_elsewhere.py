"""A payment that was used before we sent it: by another seller, whom it has paid, or by a stranger, who has paid us with it."""

from __future__ import annotations

import pytest

from server.till.calls import Earlier, Served
from server.till.settlement import USED_ELSEWHERE
from server.x402.chain import Transfer
from server.x402.settlements import AlreadyUsed, Unknown
from tests.till.open_till import OpenTill, a_call, an_offer, open_till, reason

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
