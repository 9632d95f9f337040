"""The list of what is sold, and the status of those who settle: however often anybody asks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
import trio
import trio.testing

from auth.values.http_messages import WireReply, WireRequest
from server.payments.x402.facilitator_client import SupportedKind
from server.payments.x402.facilitators import Support
from server.settings.sale_settings import accepted_assets
from server.transport.http.price_list import LIST_SECONDS, PRICES, PROBE_SECONDS, STATUS, PriceList
from tests.payments.seller.till_fakes import PAYMENTS

SEPOLIA = SupportedKind(version=2, scheme="exact", network="eip155:84532")
GOOD = Support(url="https://one.example/secret/path?key=hush", kinds=(SEPOLIA,))
OTHER = Support(
    url="https://one.example", kinds=(SupportedKind(version=2, scheme="exact", network="eip155:1"),)
)
NEVER = Support(url="https://two.example")
DOWN = Support(url="https://two.example", problem="answered hush")
GONE = Support(url="https://two.example", kinds=(SEPOLIA,), problem="did not answer")


class Storefronts:
    """Counts how often they are asked."""

    def __init__(self) -> None:
        self.asked = 0

    def routes(self) -> list[dict[str, Any]]:
        self.asked += 1
        return [{"url": f"https://shop.example/main/call/{self.asked}"}]


class Prices:
    def __init__(self, *known: Support) -> None:
        self.known: Sequence[Support] = known
        self.probes = 0
        self.hangs = False
        self.storefronts = Storefronts()
        self.list = PriceList(
            [self.storefronts],  # type: ignore[list-item]
            accepted_assets(PAYMENTS),
            probe=self._probe,
            known=lambda: self.known,
        )

    async def _probe(self) -> Sequence[Support]:
        self.probes += 1
        await (trio.sleep_forever() if self.hangs else trio.lowlevel.checkpoint())
        return self.known

    async def ask(self, path: str = STATUS, method: str = "GET") -> WireReply:
        return await self.list.answer(
            WireRequest(method=method, path=path, origin="https://shop.example", ip="10.0.0.1")
        )


@pytest.mark.parametrize(
    ("known", "status", "word"),
    [
        ((GOOD,), 200, "ok"),
        ((GOOD, DOWN), 200, "ok"),
        ((DOWN,), 503, "down"),
        ((GONE,), 503, "down"),
        ((OTHER,), 503, "down"),
        ((NEVER,), 503, "unknown"),
        ((), 503, "down"),
    ],
)
async def test_the_status_is_that_of_the_networks_that_are_accepted(
    known: tuple[Support, ...], status: int, word: str
) -> None:
    reply = await Prices(*known).ask()
    assert (reply.status, json.loads(reply.body)["status"]) == (status, word)
    assert b"hush" not in reply.body and b"secret" not in reply.body


async def test_however_many_ask_the_facilitators_are_asked_once_in_a_while(
    autojump_clock: trio.testing.MockClock,
) -> None:
    prices = Prices(GOOD)
    async with trio.open_nursery() as nursery:
        for _ in range(100):
            nursery.start_soon(prices.ask)
    assert prices.probes == 1
    await trio.sleep(PROBE_SECONDS - 1)
    await prices.ask()
    assert prices.probes == 1
    await trio.sleep(2)
    await prices.ask()
    assert prices.probes == 2


async def test_who_asks_and_leaves_has_not_another_question(autojump_clock: trio.testing.MockClock) -> None:
    prices = Prices(GOOD)
    prices.hangs = True
    for _ in range(20):
        with trio.move_on_after(0.01):
            await prices.ask()
    assert prices.probes == 1


async def test_a_facilitator_that_hangs_does_not_hold_the_answer_for_ever(
    autojump_clock: trio.testing.MockClock,
) -> None:
    prices = Prices(NEVER)
    prices.hangs = True
    with trio.fail_after(PROBE_SECONDS):
        assert (await prices.ask()).status == 503


async def test_the_list_is_made_anew_at_times_only(autojump_clock: trio.testing.MockClock) -> None:
    prices = Prices(GOOD)
    first = [(await prices.ask(PRICES)).body for _ in range(50)]
    assert len(set(first)) == 1 and prices.storefronts.asked == 1
    assert prices.probes == 0
    await trio.sleep(LIST_SECONDS + 1)
    assert (await prices.ask(PRICES)).body != first[0]


@pytest.mark.parametrize(
    ("method", "status"), [("HEAD", 200), ("OPTIONS", 204), ("POST", 405), ("DELETE", 405)]
)
async def test_it_can_only_be_read(method: str, status: int) -> None:
    for path in (PRICES, STATUS):
        assert (await Prices(GOOD).ask(path, method)).status == status
