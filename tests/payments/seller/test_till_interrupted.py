"""Calls that are cut off at each of their steps, by their caller or by the store: the same call made again is answered, and paid for once."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio

from server.mcp.result_encoding import ToolResult
from server.payments.seller import claims
from server.payments.seller.priced_call import Earlier, Refusal, Served, Shown, Started
from server.store.jobs import StoreBroken, StoreUnavailable
from tests.payments.seller.open_till import ANSWER, OpenTill, a_call, an_offer, open_till, reason

# More than a call has, with all that it waits for.
STEPS = range(1, 16)


async def _call(at: OpenTill, shown: Shown, *, upfront: bool, fails: bool = False) -> Any:
    """As server/calls/payment_stage.py makes it."""
    begun = await at.till.begin(a_call(), an_offer(upfront=upfront), shown)
    if not isinstance(begun, Started):
        return begun
    try:
        await trio.lowlevel.checkpoint()
        answer = ToolResult(content=(), is_error=True) if fails else ANSWER
    except BaseException:
        await at.till.release(begun)
        raise
    if fails:
        await at.till.release(begun)
        return answer
    return await at.till.finish(begun, answer)


def _shown(at: OpenTill, *, paying: bool, upfront: bool) -> Shown:
    until = str(at.now // 1000 + 7200)
    return Shown(payment=at.payment(an_offer(upfront=upfront), validBefore=until)) if paying else Shown()


async def _until_quiet(at: OpenTill) -> None:
    at.now += 10_000  # nobody comes back after minutes
    for _ in range(3):
        await at.look()


async def _is_answered_and_paid_for_once(at: OpenTill, shown: Shown, *, upfront: bool) -> None:
    await _until_quiet(at)
    found: Any = None
    with trio.move_on_after(60):
        found = await _call(at, shown, upfront=upfront)
        assert isinstance(found, Served | Earlier), found
    assert found is not None, "it waits for somebody who is gone"
    movements = [row["kind"] for row in await at.rows("movements")]
    assert len(movements) == 2, movements  # one is the grant
    assert all(row["held"] == 0 for row in await at.rows("wallets"))
    assert all(row["state"] == "done" for row in await at.rows("charges"))


@pytest.mark.parametrize("owed", [False, True])
@pytest.mark.parametrize("upfront", [False, True])
@pytest.mark.parametrize("paying", [False, True])
@pytest.mark.parametrize("step", STEPS)
async def test_by_a_caller_who_leaves(step: int, paying: bool, upfront: bool, owed: bool) -> None:
    async with open_till() as at:
        await at.give(50_000)
        shown = _shown(at, paying=paying, upfront=upfront)
        if owed:  # or let go
            await _call(at, shown, upfront=upfront, fails=True)
        scope, first = trio.CancelScope(), at.store.jobs
        at.store.after = lambda number: scope.cancel() if number == first + step else None
        with scope:
            await _call(at, shown, upfront=upfront)
        at.store.after = lambda number: None
        await _is_answered_and_paid_for_once(at, shown, upfront=upfront)


@pytest.mark.parametrize("upfront", [False, True])
@pytest.mark.parametrize("paying", [False, True])
@pytest.mark.parametrize("step", STEPS)
async def test_by_a_store_that_has_no_room_for_a_while(step: int, paying: bool, upfront: bool) -> None:
    async with open_till() as at:
        await at.give(50_000)
        shown, first = _shown(at, paying=paying, upfront=upfront), at.store.jobs

        def full(number: int) -> None:
            if number >= first + step:
                raise StoreUnavailable("no room")

        at.store.before = full
        try:
            found = await _call(at, shown, upfront=upfront)
            assert isinstance(found, Served | Refusal)
        except StoreUnavailable:
            pass
        at.store.before = lambda number: None
        await _is_answered_and_paid_for_once(at, shown, upfront=upfront)


@pytest.mark.parametrize("owed", [False, True])
@pytest.mark.parametrize("upfront", [False, True])
@pytest.mark.parametrize("paying", [False, True])
@pytest.mark.parametrize("step", STEPS)
async def test_by_a_store_that_does_not_know_whether_it_wrote(
    step: int, paying: bool, upfront: bool, owed: bool
) -> None:
    """It did: the database went away as it was about to say so. Nobody has the call in hand then, and nobody waits for whoever had."""
    async with open_till() as at:
        await at.give(50_000)
        shown = _shown(at, paying=paying, upfront=upfront)
        if owed:  # or let go
            await _call(at, shown, upfront=upfront, fails=True)
        first = at.store.jobs

        def lost(number: int) -> None:
            if number == first + step:
                raise StoreBroken("lost during a commit")

        at.store.after = lost
        try:
            found = await _call(at, shown, upfront=upfront)
            assert isinstance(found, Served | Refusal | Earlier)
        except StoreBroken:
            pass
        at.store.after = lambda number: None
        await _is_answered_and_paid_for_once(at, shown, upfront=upfront)


@pytest.mark.parametrize("paying", [False, True])
async def test_by_others_who_took_its_process_for_dead(paying: bool) -> None:
    """They have let the call go, and it answers nevertheless: nothing is served that is not paid for."""
    async with open_till() as at:
        await at.give(50_000)
        shown = _shown(at, paying=paying, upfront=False)
        begun = await at.till.begin(a_call(), an_offer(), shown)
        assert isinstance(begun, Started)
        while await at.store.write(partial(claims.recover, boot_id="boot-2", now=at.now)):
            pass
        assert reason(await at.till.finish(begun, ANSWER)) == "temporarily_unavailable"
        await _is_answered_and_paid_for_once(at, shown, upfront=False)


@pytest.mark.parametrize("upfront", [False, True])
@pytest.mark.parametrize("paying", [False, True])
@pytest.mark.parametrize("step", STEPS)
async def test_by_others_at_each_of_its_steps(step: int, paying: bool, upfront: bool) -> None:
    """They take its process for dead while it stands still, and let go what it has in hand: its caller is told so in words."""
    async with open_till() as at:
        await at.give(50_000)
        shown, last = _shown(at, paying=paying, upfront=upfront), at.store.jobs + step

        async def taken_for_dead(number: int) -> None:
            if number == last:
                while await at.store.inner.write(partial(claims.recover, boot_id="boot-2", now=at.now)):
                    pass

        at.store.meanwhile = taken_for_dead
        found = await _call(at, shown, upfront=upfront)
        told = ("temporarily_unavailable", "in_flight", "settlement_unknown")
        assert isinstance(found, Served) or reason(found) in told, found
        await _is_answered_and_paid_for_once(at, shown, upfront=upfront)
