"""A call that was paid beforehand, and is run again: each run ends itself and no other, whichever process it is in, and however late it is
heard of."""

from __future__ import annotations

from functools import partial

import pytest

from server.payments.seller import claims
from server.payments.seller.priced_call import Earlier, Served, Shown, Started
from server.payments.seller.till import Till
from server.store.jobs import StoreBroken
from tests.payments.seller.open_till import ANSWER, OpenTill, a_call, an_offer, no_room, open_till, reason

OFFER = an_offer(upfront=True)
SHOWN = Shown(key="k1")


async def asked(till: Till, call_id: str) -> object:
    return await till.begin(a_call(call_id=call_id, idempotent=True), OFFER, SHOWN)


async def started(till: Till, call_id: str) -> Started:
    begun = await asked(till, call_id)
    assert isinstance(begun, Started)
    return begun


async def failed(at: OpenTill) -> None:
    """It was paid beforehand, and can be tried again three times."""
    await at.give(50_000)
    assert await at.till.release(await started(at.till, "call_1")) == 3


async def taken_for_dead(at: OpenTill) -> Till:
    """By another process, whose till this is."""
    while await at.store.inner.write(partial(claims.recover, boot_id="boot-2", now=at.now)):
        pass
    return at.made_till(at.made_settlements("boot-2"), "boot-2")


async def charge_of(at: OpenTill) -> tuple[str, int]:
    (charge,) = await at.rows("charges")
    return charge["state"], charge["retries_left"]


@pytest.mark.parametrize("same_call", [False, True])
@pytest.mark.parametrize("lasting", [False, True])
async def test_that_a_try_may_have_been_begun_ends_no_later_one(lasting: bool, same_call: bool) -> None:
    """The database was lost as it was to be taken up, and it was not. `lasting`: what is owed for that is not written for a while."""
    async with open_till() as at:
        await failed(at)
        left = ["take_up"]

        def in_doubt(name: str) -> Exception | None:
            if name in left:
                left.remove(name)
                return StoreBroken("lost during a commit")
            return no_room("release")(name) if lasting else None

        at.store.failing = in_doubt
        with pytest.raises(StoreBroken):
            await asked(at.till, "call_2")
        if lasting:
            with pytest.raises(Exception, match="no room"):  # what follows from it waits for it
                await asked(at.till, "call_3")
            at.store.failing = lambda name: None
        again = await started(at.till, "call_2" if same_call else "call_3")
        await at.look()
        assert await charge_of(at) == ("running", 2)
        other = at.made_till(at.made_settlements("boot-2"), "boot-2")
        assert reason(await asked_briefly(other)) == "in_flight"
        assert isinstance(await at.till.finish(again, ANSWER), Served)
        assert await charge_of(at) == ("done", 2)


async def asked_briefly(till: Till) -> object:
    return await till.begin(a_call(call_id="call_9", deadline_seconds=0.0), OFFER, SHOWN)


async def test_that_a_try_may_have_been_begun_ends_none_of_another_process() -> None:
    """What is owed is written when another process has taken it up."""
    async with open_till() as at:
        await failed(at)
        at.store.failing = lambda name: StoreBroken("lost") if name == "take_up" else no_room("release")(name)
        with pytest.raises(StoreBroken):
            await asked(at.till, "call_2")
        at.store.failing = lambda name: None
        other = at.made_till(at.made_settlements("boot-2"), "boot-2")
        second = await started(other, "call_3")
        await at.look()
        assert await charge_of(at) == ("running", 2)
        assert isinstance(await other.finish(second, ANSWER), Served)


async def test_a_try_that_was_begun_and_of_which_nobody_knew_is_no_try() -> None:
    async with open_till() as at:
        await failed(at)
        at.store.losing = lambda name: name == "take_up"
        with pytest.raises(StoreBroken):
            await asked(at.till, "call_2")
        at.store.losing = lambda name: False
        assert await charge_of(at) == ("running", 2)
        await at.look()
        assert await charge_of(at) == ("owed", 3)
        assert isinstance(await at.till.finish(await started(at.till, "call_3"), ANSWER), Served)


@pytest.mark.parametrize("comes_to", ["nothing", "an answer"])
async def test_whoever_was_taken_for_dead_does_not_end_what_others_run(comes_to: str) -> None:
    async with open_till() as at:
        await at.give(50_000)
        first = await started(at.till, "call_1")
        other = await taken_for_dead(at)
        second = await started(other, "call_2")
        assert await charge_of(at) == ("running", 2)
        if comes_to == "nothing":
            assert await at.till.release(first) is None
        else:
            assert reason(await at.till.finish(first, ANSWER)) == "temporarily_unavailable"
        assert await charge_of(at) == ("running", 2)
        assert isinstance(await other.finish(second, ANSWER), Served)
        assert isinstance(await asked(at.till, "call_3"), Earlier)
        assert [row["kind"] for row in await at.rows("movements")] == ["grant", "charge"]


async def test_whoever_was_taken_for_dead_does_not_end_what_is_run_here_again() -> None:
    """The same process, which has come back, and runs it once more while its first run has not ended."""
    async with open_till() as at:
        await at.give(50_000)
        first = await started(at.till, "call_1")
        await taken_for_dead(at)
        back = at.made_till(at.made_settlements("boot-1"), "boot-1")
        second = await started(back, "call_2")
        assert await at.till.release(first) is None
        assert await charge_of(at) == ("running", 2)
        assert isinstance(await back.finish(second, ANSWER), Served)
