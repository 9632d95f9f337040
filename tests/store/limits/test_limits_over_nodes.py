"""What limits let through where several nodes have one database and no node is told how often another one was asked: rates at most as many
times as there are nodes, quotas and money exactly once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from random import Random

import pytest
import trio

from server.cluster.postgres.postgres import open_postgres_store
from server.lib.rates.rates import SECOND, Rate, parse_rate
from server.lib.rates.usage_table import RateTable
from server.payments.seller import wallets
from server.store.limits.daily_quotas import Quotas
from server.store.threaded_store import ThreadedStore

MOST_AHEAD = 50

NOW = 1_800_014_400_000
WALLET = "user:usr_ann"
CALLER = "caller"


class Nodes:
    """One table each, on one clock."""

    def __init__(self, rate: Rate, count: int) -> None:
        self.now = 0
        self.tables = [RateTable(rate, clock=lambda: self.now) for _ in range(count)]
        self.passed: list[int] = []  # when

    def ask(self, node: int) -> bool:
        if self.tables[node].use(CALLER):
            return False
        self.passed.append(self.now)
        return True

    def most_within(self, window: int) -> int:
        """Of all whiles that are so long."""
        return max(
            (bisect_right(self.passed, start + window) - place for place, start in enumerate(self.passed)),
            default=0,
        )


def allowed(rate: Rate, window: int) -> int:
    """By one node: what may be used at once, and one for each step."""
    return rate.room // rate.step + window // rate.step


def written(text: str) -> Rate:
    found = parse_rate(text)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "text", ["60/min", "60/min, 20 at once", "7/s, 3 at once", "1/day, 1 at once", "1000/h"]
)
@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_n_nodes_let_through_n_times_the_rate_where_all_are_flooded_and_never_one_more(
    text: str, count: int
) -> None:
    rate = written(text)
    nodes = Nodes(rate, count)
    window = 30 * rate.step
    while nodes.now <= window:
        for node in range(count):
            for _ in range(3):
                while nodes.ask(node):
                    pass
        nodes.now += rate.step
    assert len(nodes.passed) == count * allowed(rate, window), (
        "so many are reached: the bound is no looser than it has to be"
    )


@pytest.mark.parametrize("seed", range(20))
def test_however_requests_fall_on_nodes_no_while_has_more_than_n_times_the_rate(seed: int) -> None:
    chance = Random(seed)
    rate = written(chance.choice(["60/min", "5/s", "100/min, 1 at once", "10/s, 40 at once"]))
    count = chance.randint(1, 5)
    nodes = Nodes(rate, count)
    for _ in range(400):
        for _ in range(chance.choice([0, 1, 2, 40])):
            nodes.ask(chance.randrange(count))
        nodes.now += chance.choice([0, rate.step // 3, rate.step, 17 * rate.step])
    for window in (0, rate.step, 10 * rate.step, 60 * SECOND):
        assert nodes.most_within(window) <= count * allowed(rate, window)


def test_whoever_stays_at_one_node_has_what_one_server_would_give_them() -> None:
    rate = written("60/min")
    alone, several = Nodes(rate, 1), Nodes(rate, 4)
    for _ in range(500):
        alone.ask(0)
        several.ask(2)
        alone.now = several.now = alone.now + rate.step // 5
    assert several.passed == alone.passed


@asynccontextmanager
async def stores(database: Mapping[str, str], count: int) -> AsyncGenerator[list[ThreadedStore]]:
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(open_postgres_store(database, clock=lambda: NOW))
            for _ in range(count)
        ]


async def test_a_quota_is_exact_whichever_node_is_asked(postgres_database: dict[str, str]) -> None:
    limit, passed = 100, list[int]()
    async with stores(postgres_database, 3) as opened:
        quotas = [Quotas(store, clock=lambda: NOW) for store in opened]
        chance = Random(1)

        async def ask() -> None:
            if not await quotas[chance.randrange(3)].take("quota:main/search user:a", limit):
                passed.append(1)

        async with trio.open_nursery() as nursery:
            for _ in range(3 * limit):
                nursery.start_soon(ask)
        for each in quotas:
            await each.aclose()
        # What one holds ahead another one cannot give out: fewer, by so many at most, and never one more.
        assert limit - 3 * MOST_AHEAD < len(passed) <= limit
        while not await quotas[0].take("quota:main/search user:a", limit):
            passed.append(1)
        assert len(passed) == limit, "and what was held comes back"


async def test_money_is_spent_once_whichever_node_is_asked(postgres_database: dict[str, str]) -> None:
    held: list[int] = []
    async with stores(postgres_database, 3) as opened:
        await opened[0].write(partial(wallets.open_wallet, wallet=WALLET, currency="USD", now=NOW))
        await opened[0].write(lambda db: db.execute("UPDATE wallets SET balance = 1000 WHERE id = ?", WALLET))

        async def pay(store: ThreadedStore) -> None:
            if await store.write(partial(wallets.hold, wallet=WALLET, amount=30, now=NOW)):
                held.append(30)

        async with trio.open_nursery() as nursery:
            for _ in range(40):
                for store in opened:
                    nursery.start_soon(pay, store)
        assert sum(held) == 990, "of a thousand, thirty at a time"
        found = await opened[1].read(partial(wallets.find, wallet=WALLET))
        assert found is not None and (found.balance, found.held) == (1000, 990)
