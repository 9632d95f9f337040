"""Caps: what may be spent, by whom, on what, and in which time."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from till_fakes import NOW

from server.payments.seller.spending_caps import (
    CapExceeded,
    CapRules,
    caps_of,
    drop_cap,
    login_subject,
    set_cap,
    spend,
    tool_subject,
    wallet_subject,
)
from server.settings.money_settings import CapsConfig
from server.store.inline_store import InlineStore
from server.store.limits.usage_meters import Raised, lower, period_at, read_meter
from tests.engine_under_test import open_at, place_of

ADA, LOGIN = "user:ada", "grt_1"
DAY = 86_400_000
NONE = CapRules()


@pytest.fixture
def engine() -> str:
    return "inline-memory"


def rules(**written: str) -> CapRules:
    return CapRules.of(CapsConfig(**written))


async def pay(
    store: InlineStore, by: CapRules, amount: int, now: int = NOW, **who: Any
) -> tuple[Raised, ...] | CapExceeded:
    fields: dict[str, Any] = {"tool": "main/search", "wallet": ADA, "login": LOGIN, **who}
    return await store.write(partial(spend, rules=by, amount=amount, now=now, **fields))


def left(found: tuple[Raised, ...] | CapExceeded) -> int:
    assert isinstance(found, CapExceeded)
    assert found.reason == "spend_cap_exceeded"
    return found.left


async def test_without_a_cap_nothing_is_counted(store: InlineStore) -> None:
    assert await pay(store, NONE, 10**12) == ()


async def test_no_call_costs_more_than_a_call_may(store: InlineStore) -> None:
    found = await pay(store, rules(per_call="$0.05"), 50_001)
    assert isinstance(found, CapExceeded)
    assert found.words == "this call costs $0.050001, and no call here may cost more than $0.05"
    assert await pay(store, rules(per_call="$0.05"), 50_000) == ()


@pytest.mark.parametrize(
    ("cap", "same", "other", "later"),
    [
        ("per_login", {"wallet": "user:bob", "tool": "main/look"}, {"login": "grt_2"}, None),
        ("per_day", {"login": "grt_2", "tool": "main/look"}, {"wallet": "user:bob"}, DAY),
        ("per_month", {"login": None, "tool": "main/look"}, {"wallet": "user:bob"}, 31 * DAY),
        ("per_tool", {"login": None}, {"tool": "main/look"}, DAY),
    ],
)
async def test_each_cap_counts_what_it_is_of(
    store: InlineStore, cap: str, same: dict[str, Any], other: dict[str, Any], later: int | None
) -> None:
    by = rules(**{cap: "$0.03"})
    assert isinstance(await pay(store, by, 20_000), tuple)
    assert left(await pay(store, by, 20_000, **same)) == 10_000
    assert isinstance(await pay(store, by, 10_000, **same), tuple)
    assert left(await pay(store, by, 1)) == 0
    assert isinstance(await pay(store, by, 20_000, **other), tuple)
    if later is not None:
        assert isinstance(await pay(store, by, 30_000, now=NOW + later), tuple)
    else:
        assert left(await pay(store, by, 1, now=NOW + 1000 * DAY)) == 0


async def test_what_is_beyond_one_cap_is_counted_by_none(store: InlineStore) -> None:
    by = rules(per_login="$1", per_day="$1", per_month="$1", per_tool="$0.01")
    found = await pay(store, by, 20_000)
    assert isinstance(found, CapExceeded)
    assert (
        found.words
        == "this call costs $0.02, and you may spend $0.01 a day on this tool, of which $0.01 is left"
    )
    for subject, period in (
        (login_subject(LOGIN), "ever"),
        (wallet_subject(ADA), "day"),
        (wallet_subject(ADA), "month"),
    ):
        assert await store.read(lambda db, s=subject, p=period: read_meter(db, s, period_at(p, NOW))) == 0  # pyright: ignore[reportArgumentType]


async def test_what_was_not_charged_after_all_was_not_spent(store: InlineStore) -> None:
    by = rules(per_login="$0.01", per_day="$0.01")
    spent = await pay(store, by, 10_000)
    assert isinstance(spent, tuple) and len(spent) == 2
    await store.write(lambda db: lower(db, spent))
    assert isinstance(await pay(store, by, 10_000), tuple)


async def test_a_cap_of_ones_own_counts_beside_the_settings_and_the_tighter_refuses(
    store: InlineStore,
) -> None:
    own = partial(set_cap, by="user:ada", now=NOW)
    await store.write(lambda db: own(db, login_subject(LOGIN), "ever", 15_000))
    await store.write(lambda db: own(db, wallet_subject(ADA), "day", 90_000))
    await store.write(lambda db: own(db, tool_subject(ADA, "main/search"), "month", 0))
    assert left(await pay(store, NONE, 1)) == 0
    assert isinstance(
        await pay(store, rules(per_login="$9", per_day="$0.02"), 10_000, tool="main/look"), tuple
    )
    found = await pay(store, rules(per_login="$9", per_day="$0.02"), 10_000, tool="main/look")
    assert isinstance(found, CapExceeded) and (found.cap, found.left) == (15_000, 5_000)
    assert (
        found.words
        == "this call costs $0.01, and this login may spend $0.015 in all, of which $0.005 is left"
    )


async def test_a_cap_is_replaced_shown_and_dropped(store: InlineStore) -> None:
    subject = wallet_subject(ADA)
    for amount in (10_000, 20_000):
        await store.write(lambda db, a=amount: set_cap(db, subject, "day", a, by="local:0", now=NOW))
    (cap,) = await store.read(lambda db: caps_of(db, subject))
    assert (cap.period, cap.amount, cap.set_by) == ("day", 20_000, "local:0")
    assert await store.write(lambda db: drop_cap(db, subject, "day"))
    assert not await store.write(lambda db: drop_cap(db, subject, "day"))
    assert await pay(store, NONE, 10**9) == ()


async def test_callers_whom_nobody_knows_have_the_bound_of_a_call_alone(store: InlineStore) -> None:
    by = rules(per_call="$0.05", per_login="$0.01", per_day="$0.01", per_tool="$0.01")
    for _ in range(3):
        assert await pay(store, by, 50_000, wallet=None, login=None) == ()


async def test_many_at_once_never_spend_more_than_the_cap(tmp_path: Path) -> None:
    by, found = rules(per_day="$0.10"), list[tuple[Raised, ...] | CapExceeded]()
    async with open_at(place_of(tmp_path / "ostiary.db"), clock=lambda: NOW) as store:

        async def one() -> None:
            job = partial(spend, rules=by, amount=30_000, tool="main/search", wallet=ADA, login=None, now=NOW)
            found.append(await store.write(job))

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(one)
    assert sum(isinstance(each, tuple) for each in found) == 3
