"""Calls with a key that were cut off while their tool ran, or may have: what may have run is not run again by itself, and nothing is taken for it twice."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from server.payments.seller import claims
from server.payments.seller.priced_call import Earlier, Refusal, Shown, Started
from server.store.idempotency.kept_answers import KeptSum
from server.store.jobs import StoreUnavailable
from tests.payments.seller.open_till import (
    ANSWER,
    OpenTill,
    a_call,
    an_offer,
    anonymous,
    no_room,
    open_till,
    reason,
)

CALLS = {"balance": a_call(), "payment": a_call(), "stranger": anonymous()}


def _shown(at: OpenTill, way: str, *, upfront: bool, key: str | None = "order-1") -> Shown:
    until = str(at.now // 1000 + 7200)
    offer = an_offer(upfront=upfront)
    return Shown(payment=None if way == "balance" else at.payment(offer, validBefore=until), key=key)


async def _killed(at: OpenTill, way: str, shown: Shown, *, upfront: bool = False) -> None:
    """Its tool runs, and another process finds that its own is gone."""
    begun = await at.till.begin(CALLS[way], an_offer(upfront=upfront), shown)
    assert isinstance(begun, Started)
    while await at.store.write(partial(claims.recover, boot_id="boot-2", now=at.now)):
        pass
    await at.till.finish(begun, ANSWER)  # which comes to nothing: it is not under way here any more


async def _again(
    at: OpenTill, way: str, shown: Shown, *, upfront: bool = False, idempotent: bool = False
) -> Any:
    call = a_call(idempotent=idempotent) if way != "stranger" else anonymous(idempotent=idempotent)
    return await at.till.begin(call, an_offer(upfront=upfront), shown)


@pytest.mark.parametrize("way", CALLS)
async def test_it_is_told_as_interrupted_for_a_day_and_costs_nothing(way: str) -> None:
    async with open_till() as at:
        await at.give(50_000)
        shown = _shown(at, way, upfront=False)
        await _killed(at, way, shown)
        assert (await at.wallet())["held"] == 0
        assert await at.rows("payments") == []
        for _ in range(3):
            assert reason(await _again(at, way, shown)) == "interrupted"
            await at.look()
        assert [row["kind"] for row in await at.rows("movements")] == ["grant"]
        new = Shown(payment=shown.payment, key="order-2")
        begun = await _again(at, way, new)
        assert isinstance(begun, Started), "with a new key, and what it was to be paid with, it is a new call"
        await at.till.finish(begun, ANSWER)
        assert reason(await _again(at, way, _shown(at, way, upfront=False))) == "interrupted"
        at.now += 24 * 3_600_000
        assert isinstance(await _again(at, "balance", Shown(key="order-1")), Started)


@pytest.mark.parametrize("upfront", [False, True])
@pytest.mark.parametrize("way", CALLS)
async def test_it_runs_again_where_that_does_no_harm(way: str, upfront: bool) -> None:
    async with open_till() as at:
        await at.give(50_000)
        shown = _shown(at, way, upfront=upfront)
        await _killed(at, way, shown, upfront=upfront)
        begun = await _again(at, way, shown, upfront=upfront, idempotent=True)
        assert isinstance(begun, Started)
        await at.till.finish(begun, ANSWER)
        assert isinstance(await _again(at, way, shown, upfront=upfront), Earlier)
        assert len(await at.rows("movements")) == 2  # one is the grant


@pytest.mark.parametrize("way", ["balance", "payment"])
async def test_one_without_a_key_runs_again(way: str) -> None:
    async with open_till() as at:
        await at.give(50_000)
        shown = _shown(at, way, upfront=False, key=None)
        await _killed(at, way, shown)
        assert isinstance(await _again(at, way, shown), Started)


@pytest.mark.parametrize("way", CALLS)
async def test_what_was_paid_beforehand_stays_owed_and_is_run_again_when_its_caller_was_told(
    way: str,
) -> None:
    async with open_till() as at:
        await at.give(50_000)
        shown = _shown(at, way, upfront=True)
        await _killed(at, way, shown, upfront=True)
        assert reason(await _again(at, way, shown, upfront=True)) == "interrupted"
        told = await _again(at, way, shown, upfront=True)
        assert isinstance(told, Refusal) and told.resumes is not None
        at.till.interruption_told(told.resumes)
        begun = await _again(at, way, shown, upfront=True)
        assert isinstance(begun, Started) and begun.paid
        await at.till.finish(begun, ANSWER)
        assert len(await at.rows("movements")) == 2  # one is the grant


async def _stopped(at: OpenTill, begun: Started, how: str) -> None:
    if how == "stop":
        await at.till.interrupt(begun)
        return
    while await at.store.write(partial(claims.recover, boot_id="boot-2", now=at.now)):
        pass
    await at.till.finish(begun, ANSWER)  # as in `_killed`


@pytest.mark.parametrize("how", ["stop", "kill"])
@pytest.mark.parametrize("upfront", [False, True])
@pytest.mark.parametrize("way", CALLS)
async def test_a_task_goes_on_with_its_own_charge_after_any_number_of_restarts(
    autojump_clock: trio.testing.MockClock, way: str, upfront: bool, how: str
) -> None:
    async with open_till() as at:
        await at.give(50_000)
        shown, offer = _shown(at, way, upfront=upfront), an_offer(upfront=upfront)
        task = msgspec.structs.replace(CALLS[way], call_id="call_of_task", patient=True)
        begun = await at.till.begin(task, offer, shown)
        for _ in range(5):
            assert isinstance(begun, Started)
            await _stopped(at, begun, how)
            begun = await at.till.begin(task, offer, shown)
        assert isinstance(begun, Started)
        if way != "stranger":
            brief = msgspec.structs.replace(CALLS[way], deadline_seconds=1.0)
            assert reason(await at.till.begin(brief, offer, shown)) == "in_flight"
        await at.till.finish(begun, ANSWER)
        assert isinstance(await _again(at, way, shown, upfront=upfront), Earlier)
        assert len(await at.rows("movements")) == 2  # one is the grant
        wallet = await at.wallet()
        assert (wallet["balance"], wallet["held"]) == (40_000 if way == "balance" else 50_000, 0)


async def test_what_was_not_yet_paid_beforehand_has_certainly_not_run() -> None:
    async with open_till() as at:
        shown = _shown(at, "payment", upfront=True)
        await at.give(50_000)

        async def taken_for_dead(number: int) -> None:
            if [row["state"] for row in await at.rows("charges")] == ["running"] and not killed:
                killed.append(number)
                while await at.store.inner.write(partial(claims.recover, boot_id="boot-2", now=at.now)):
                    pass

        killed: list[int] = []
        at.store.meanwhile = taken_for_dead
        await at.till.begin(a_call(), an_offer(upfront=True), shown)
        assert killed
        assert isinstance(await _again(at, "payment", shown, upfront=True), Started)


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("way", CALLS)
async def test_one_whose_answer_cannot_be_written_may_have_been_made(way: str, idempotent: bool) -> None:
    async with open_till() as at:
        await at.give(50_000)
        shown = _shown(at, way, upfront=False)
        begun = await _again(at, way, shown, idempotent=idempotent)
        at.store.failing = no_room("finish", "send", "interrupt", "release")
        with pytest.raises(StoreUnavailable):
            await at.till.finish(begun, ANSWER)
        at.store.failing = lambda name: None
        await at.look()
        assert (await at.wallet())["held"] == 0
        again = await _again(at, way, shown, idempotent=idempotent)
        assert isinstance(again, Started) if idempotent else reason(again) == "interrupted"


async def test_no_more_of_them_are_remembered_than_answers_are_kept() -> None:
    async with open_till(of_caller=KeptSum(3, 1_000_000)) as at:
        await at.give(50_000)
        for number in range(8):
            begun = await at.till.begin(a_call(), an_offer(), Shown(key=f"order-{number}"))
            assert isinstance(begun, Started)
            await at.till.interrupt(begun)
            at.now += 10_000
        standing = [row for row in await at.rows("charges") if row["expires_at"] > at.now]
        assert len(standing) <= 3
        assert reason(await at.till.begin(a_call(), an_offer(), Shown(key="order-7"))) == "interrupted"
        assert isinstance(await at.till.begin(a_call(), an_offer(), Shown(key="order-0")), Started)


@pytest.mark.parametrize("ends", ["interrupted", "failed"])
async def test_no_stranger_drops_what_another_has_paid_for_without_paying(ends: str) -> None:
    async with open_till(of_strangers=KeptSum(4, 1_000_000)) as at:
        paid = Shown(payment=at.payment(), key="paid-for")
        served = await at.pays(anonymous(), an_offer(), payment=paid.payment, key=paid.key)
        at.written(served, keyed=True)
        await at.look()
        failed = msgspec.structs.replace(ANSWER, is_error=True) if ends == "failed" else None
        other: dict[str, Any] = {"from": "0x" + "12" * 20}
        for number in range(12):
            at.now += 5_000
            shown = Shown(payment=at.payment(**other), key=f"free-{number}")
            begun = await at.till.begin(anonymous(), an_offer(), shown)
            assert isinstance(begun, Started)
            await at.till.interrupt(begun, failed)
        assert isinstance(await at.till.begin(anonymous(), an_offer(), paid), Earlier)
        standing = [row for row in await at.rows("charges") if row["expires_at"] > at.now]
        assert len(standing) <= 4
