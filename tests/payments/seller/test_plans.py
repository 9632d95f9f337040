"""Plans, free calls and trials: what is covered, what is counted, what is given back, and what it costs in statements."""

from __future__ import annotations

import time
from collections.abc import Generator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from till_fakes import NOW

from server.payments.seller.offers import Offer
from server.payments.seller.plan_grants import (
    MOST_PLANS,
    PlanGrant,
    PlanNotGranted,
    active_plans,
    end_plan,
    grant_plan,
    page,
)
from server.payments.seller.plans import Cover, Plans, PlanStanding, quota_subject, trial_subject
from server.settings.money_settings import PlanConfig
from server.store.inline_store import InlineStore
from server.store.jobs import Row, StoreDb
from server.store.limits.usage_meters import (
    NEVER,
    Raised,
    lower,
    period_at,
    read_meter,
)
from tests.engine_under_test import open_at, place_of
from tests.payments.seller.open_till import an_offer

ADA = "user:ada"
DAY = 86_400_000
MONTH = 31 * DAY
PLANS = Plans(
    [
        PlanConfig(name="all", unlimited=True),
        PlanConfig(
            name="pro",
            words="Three a month",
            calls=3,
            tool_calls={"main/render": 1},
            prices={"search": "$0.004"},
        ),
        PlanConfig(name="lite", tool_calls={"main/*": 2}, prices={"*": "$0.006", "other/*": "free"}),
    ]
)


@pytest.fixture
def engine() -> str:
    return "inline-memory"


async def on(
    store: InlineStore, plan: str, wallet: str = ADA, *, ends_at: int | None = None, now: int = NOW
) -> str:
    grant_id = f"plg_{plan}_{wallet}_{now}"
    made = await store.write(
        partial(
            grant_plan, grant_id=grant_id, wallet=wallet, plan=plan, ends_at=ends_at, by="local:0", now=now
        )
    )
    assert isinstance(made, PlanGrant)
    return grant_id


async def cover(
    store: InlineStore,
    offer: Offer | None = None,
    wallet: str | None = ADA,
    now: int = NOW,
    plans: Plans = PLANS,
) -> Cover:
    return await store.write(lambda db: plans.cover(db, offer or an_offer(), wallet, now))


class Counting:
    """What a job asks of the store."""

    def __init__(self, db: StoreDb) -> None:
        self._db = db
        self.statements: list[str] = []

    def execute(self, sql: str, *params: object) -> int:
        self.statements.append(sql)
        return self._db.execute(sql, *params)

    def fetch_one(self, sql: str, *params: object) -> Row | None:
        self.statements.append(sql)
        return self._db.fetch_one(sql, *params)

    def fetch_all(self, sql: str, *params: object) -> list[Row]:
        self.statements.append(sql)
        return self._db.fetch_all(sql, *params)


async def statements(store: InlineStore, plans: Plans, offer: Offer, wallet: str | None = ADA) -> int:
    def job(db: StoreDb) -> int:
        counting: Any = Counting(db)
        plans.cover(counting, offer, wallet, NOW)
        return len(counting.statements)

    return await store.write(job)


# ── what is covered ──────────────────────────────────────────────────────────────────────────────────────────────────


async def test_who_is_on_no_plan_pays_the_price(store: InlineStore) -> None:
    assert await cover(store) == Cover(how="due", amount=10_000, version="v1")
    assert await cover(store, wallet=None) == Cover(how="due", amount=10_000, version="v1")


async def test_a_plan_without_limits_covers_everything(store: InlineStore) -> None:
    await on(store, "all")
    assert await cover(store) == Cover(how="pass", version="v1", plan="all")
    assert (await cover(store, wallet="user:bob")).how == "due"


async def test_calls_of_a_month_are_counted_and_then_the_plans_price_counts(store: InlineStore) -> None:
    await on(store, "pro")
    for _ in range(3):
        assert (await cover(store)).how == "quota"
    beyond = await cover(store)
    assert beyond == Cover(how="due", amount=4_000, version="v1@pro", plan="pro", reason="quota_exhausted")
    # of that tool a plan counts by itself, and says no price
    render = an_offer(tool="render")
    assert (await cover(store, render)).how == "quota"
    assert await cover(store, render) == Cover(
        how="due", amount=10_000, version="v1", reason="quota_exhausted"
    )
    assert (await cover(store, now=NOW + MONTH)).how == "quota"


async def test_whoever_is_on_several_plans_is_covered_by_any_and_pays_the_least(store: InlineStore) -> None:
    await on(store, "lite")
    await on(store, "pro", now=NOW + 1)
    found = [await cover(store, now=NOW + 2) for _ in range(6)]
    assert [(each.how, each.plan) for each in found] == [
        *[("quota", "lite")] * 2,
        *[("quota", "pro")] * 3,
        ("due", "pro"),
    ]
    assert found[-1].amount == 4_000
    assert (await cover(store, an_offer(2_000), now=NOW + 2)).amount == 2_000  # a plan never makes it dearer
    same = await cover(store, an_offer(4_000), now=NOW + 2)
    assert (same.how, same.amount, same.plan, same.version) == ("due", 4_000, "", "v1")
    assert (await cover(store, an_offer(server="other"), now=NOW + 2)).how == "pass"


async def test_of_plans_with_one_price_the_one_that_began_first_counts(store: InlineStore) -> None:
    plans = Plans([PlanConfig(name=name, prices={"*": "$0.004"}) for name in ("b", "a")])
    await on(store, "b")
    await on(store, "a", now=NOW + 1)
    for offer in (an_offer(), an_offer(plan_only=True)):
        assert (await cover(store, offer, now=NOW + 2, plans=plans)).plan == "b"


async def test_free_calls_are_for_each_month_and_a_trial_is_once(store: InlineStore) -> None:
    offer = an_offer(free_calls=2, trial=1)
    found = [await cover(store, offer) for _ in range(4)]
    assert [each.how for each in found] == ["quota", "quota", "trial", "due"]
    assert found[-1].reason == "quota_exhausted"
    later = [await cover(store, offer, now=NOW + MONTH) for _ in range(3)]
    assert [each.how for each in later] == ["quota", "quota", "due"]
    trial_only = an_offer(tool="look", trial=1)
    assert [(await cover(store, trial_only)).reason for _ in range(2)] == ["", "trial_exhausted"]


async def test_what_cannot_be_bought_is_refused_with_the_reason(store: InlineStore) -> None:
    reserved = an_offer(0, plan_only=True)
    assert await cover(store, reserved) == Cover(how="refused", version="v1", reason="plan_required")
    assert await cover(store, reserved, wallet=None) == Cover(
        how="refused", version="v1", reason="plan_required"
    )
    tried = an_offer(0, plan_only=True, trial=1, tool="look")
    assert [(await cover(store, tried)).how for _ in range(2)] == ["trial", "refused"]
    assert (await cover(store, tried)).reason == "trial_exhausted"
    await on(store, "pro")
    render = an_offer(0, plan_only=True, tool="render")
    assert [(await cover(store, render)).how for _ in range(2)] == ["quota", "refused"]
    assert (await cover(store, render)).reason == "quota_exhausted"
    for _ in range(3):
        await cover(store)
    sold = await cover(store, reserved)  # a plan that says its price sells it
    assert (sold.how, sold.amount, sold.plan) == ("due", 4_000, "pro")


async def test_an_address_on_a_chain_gets_nothing_for_nothing(store: InlineStore) -> None:
    payer = "payer:eip155:8453:0xabc"
    assert (await cover(store, an_offer(free_calls=9, trial=9), wallet=payer)).how == "due"
    await on(store, "all", payer)
    assert (await cover(store, wallet=payer)).how == "pass"


async def test_a_plan_that_is_not_in_the_settings_any_more_covers_nothing(store: InlineStore) -> None:
    await on(store, "gone")
    assert (await cover(store)).how == "due"


# ── given back ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_what_was_taken_for_a_call_that_failed_is_given_back(store: InlineStore) -> None:
    offer = an_offer(trial=1)
    taken = await cover(store, offer)
    assert taken.how == "trial" and (await cover(store, offer)).how == "due"
    assert taken.raised == (Raised(trial_subject(ADA, "main/search"), "ever", 1),)
    await store.write(lambda db: lower(db, taken.raised))
    assert (await cover(store, offer)).how == "trial"


async def test_giving_back_more_than_there_is_changes_nothing(store: InlineStore) -> None:
    taken = await cover(store, an_offer(trial=2))
    for _ in range(2):
        await store.write(lambda db: lower(db, taken.raised))
    found = await store.read(
        lambda db: read_meter(db, trial_subject(ADA, "main/search"), period_at("ever", NOW))
    )
    assert found == 0


async def test_of_many_at_once_just_as_many_are_covered_as_there_are(tmp_path: Path) -> None:
    found: list[str] = []
    async with open_at(place_of(tmp_path / "ostiary.db"), clock=lambda: NOW) as store:

        async def one() -> None:
            taken = await store.write(lambda db: PLANS.cover(db, an_offer(trial=3, free_calls=4), ADA, NOW))
            found.append(taken.how)

        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(one)
    assert {how: found.count(how) for how in set(found)} == {"quota": 4, "trial": 3, "due": 43}


# ── what it costs ────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_where_nothing_is_configured_the_store_is_not_asked(store: InlineStore) -> None:
    assert await statements(store, Plans(), an_offer()) == 0
    assert await statements(store, PLANS, an_offer(), None) == 0
    assert await statements(store, PLANS, an_offer()) == 1
    assert await statements(store, Plans(), an_offer(trial=1)) == 1
    await on(store, "all")
    assert await statements(store, PLANS, an_offer()) == 1
    await on(store, "pro", "user:bob")
    assert await statements(store, PLANS, an_offer(), "user:bob") == 2


# ── who is on which ──────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_plan_is_had_once_ends_by_its_time_or_is_ended(store: InlineStore) -> None:
    grant_id = await on(store, "pro", ends_at=NOW + 1000)
    again = partial(grant_plan, grant_id="x", wallet=ADA, plan="pro", ends_at=None, by="local:0", now=NOW)
    assert await store.write(again) == PlanNotGranted(reason="already_owned")
    assert await store.read(lambda db: active_plans(db, ADA, NOW + 999)) == ["pro"]
    assert await store.read(lambda db: active_plans(db, ADA, NOW + 1000)) == []
    assert await store.write(lambda db: end_plan(db, grant_id, NOW + 2000)) is None
    renewed = await on(store, "pro", now=NOW + 2000)
    ended = await store.write(lambda db: end_plan(db, renewed, NOW + 3000))
    assert ended is not None and (ended.wallet, ended.plan, ended.ended_at) == (ADA, "pro", NOW + 3000)
    assert await store.write(lambda db: end_plan(db, renewed, NOW + 3000)) is None
    assert await store.write(lambda db: end_plan(db, "nobody's", NOW)) is None
    assert (await cover(store, now=NOW + 3000)).how == "due"


async def test_a_plan_counts_and_is_not_had_twice_where_the_clock_went_back(store: InlineStore) -> None:
    grant_id = await on(store, "pro", ends_at=NOW + 30 * DAY)
    back = NOW - 2000  # the clock was set, or another node's is behind
    assert (await cover(store, now=back)).how == "quota"
    again = partial(grant_plan, grant_id="x", wallet=ADA, plan="pro", ends_at=None, by="local:0", now=back)
    assert await store.write(again) == PlanNotGranted(reason="already_owned")
    assert [each.id for each in await store.read(lambda db: page(db, back))] == [grant_id]
    assert await store.write(lambda db: end_plan(db, grant_id, back)) is not None
    assert (await cover(store, now=back)).how == "due"


async def test_nobody_is_on_more_plans_than_a_call_looks_at(store: InlineStore) -> None:
    for number in range(MOST_PLANS):
        await on(store, f"p{number}")
    more = partial(grant_plan, grant_id="x", wallet=ADA, plan="more", ends_at=None, by="local:0", now=NOW)
    assert await store.write(more) == PlanNotGranted(reason="too_many")


async def test_a_listing_has_those_that_count_now(store: InlineStore) -> None:
    kept = await on(store, "pro")
    gone = await on(store, "lite")
    await store.write(lambda db: end_plan(db, gone, NOW))
    assert [each.id for each in await store.read(lambda db: page(db, NOW))] == [kept]
    assert await store.read(lambda db: page(db, NOW, after=kept)) == []


async def test_somebody_is_told_what_is_left(store: InlineStore) -> None:
    await on(store, "pro")
    await cover(store)
    await cover(store, an_offer(tool="render"))
    (standing,) = await store.read(lambda db: PLANS.standing(db, ADA, NOW))
    assert standing == PlanStanding(
        name="pro", words="Three a month", unlimited=False, calls=3, left=2, tools_left={"main/render": 0}
    )
    used = await store.read(
        lambda db: read_meter(db, quota_subject(ADA, "pro", "*all"), period_at("month", NOW))
    )
    assert used == 1


# ── periods ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def at(*when: int) -> int:
    return int(datetime(*when, tzinfo=UTC).timestamp() * 1000)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("now", "day", "month", "month_ends"),
    [
        (at(2026, 11, 22, 23, 59, 59), "2026-11-22", "2026-11", at(2026, 12, 1)),
        (at(2026, 12, 1), "2026-12-01", "2026-12", at(2027, 1, 1)),
        (at(2028, 2, 29, 12), "2028-02-29", "2028-02", at(2028, 3, 1)),
        (at(2027, 1, 31), "2027-01-31", "2027-01", at(2027, 2, 1)),
    ],
)
def test_days_and_months_are_those_of_utc(now: int, day: str, month: str, month_ends: int) -> None:
    week = 7 * 86_400_000
    assert period_at("day", now).name == day
    assert (period_at("month", now).name, period_at("month", now).expires_at) == (month, month_ends + week)
    assert (period_at("ever", now).name, period_at("ever", now).expires_at) == ("ever", NEVER)
    assert now < period_at("day", now).expires_at - week <= now + 86_400_000


@pytest.fixture(params=["UTC", "Etc/GMT+12", "Etc/GMT-14"])
def somewhere(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """A machine that lives in this time zone."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("somewhere")
@pytest.mark.parametrize(
    "begin",
    [at(2027, 2, 1), at(2027, 3, 1), at(2028, 3, 1), at(2027, 5, 1), at(2028, 1, 1)],
    ids=["after-31", "after-28", "after-29", "after-30", "new-year"],
)
async def test_a_month_is_used_up_to_its_last_moment_and_the_next_begins_whole(
    store: InlineStore, begin: int
) -> None:
    await on(store, "pro", now=begin - 20 * DAY)
    last = begin - 1
    found = [await cover(store, now=when) for when in (last - DAY, last, last, last)]
    assert [each.how for each in found] == ["quota", "quota", "quota", "due"]
    assert [(await cover(store, now=begin)).how for _ in range(2)] == ["quota"] * 2
    # A clock that goes back and forth over the end of the month makes no more of either.
    assert (await cover(store, now=last)).how == "due"
    assert [(await cover(store, now=begin)).how for _ in range(2)] == ["quota", "due"]
    # What a call took before the end and gives back after it is of the month that it was taken of.
    await store.write(lambda db: lower(db, found[2].raised))
    assert (await cover(store, now=begin)).how == "due"
    assert [(await cover(store, now=last)).how for _ in range(2)] == ["quota", "due"]


async def test_a_plan_of_some_days_ends_at_its_moment_whatever_month_that_is_in(store: InlineStore) -> None:
    begin = at(2028, 1, 31, 23, 59, 59)
    ends_at = begin + 30 * DAY
    await on(store, "pro", ends_at=ends_at, now=begin)
    assert ends_at == at(2028, 3, 1, 23, 59, 59)
    assert (await cover(store, now=ends_at - 1)).how == "quota"
    assert (await cover(store, now=ends_at)).how == "due"
