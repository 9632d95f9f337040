"""What is said of sales: which prices nobody could pay, wherever they were set, and what a buyer would see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from auth.values.identity_model import PrincipalKind
from server.agents.base.catalog import Catalog, Source
from server.mcp.messages import Tool
from server.payments.seller.offers import PricedTool
from server.payments.seller.payment_requirements import PaymentOffers
from server.payments.seller.priced_call import Refusal, Unpaid
from server.payments.seller.tool_prices import Prices
from server.payments.x402.facilitator_client import SupportedKind
from server.payments.x402.facilitators import Support
from server.run import sales_summary
from server.run.sellers import announced
from server.settings.resolved_settings import Resolved, resolve
from server.settings.sale_settings import accepted_assets
from server.settings.settings_reader import load
from tests.payments.seller.till_fakes import MINE, Seller, a_tool

FACILITATOR = '[[payments.facilitator]]\nurl = "https://facilitator.example"\n'
NETWORK = f'[payments]\npay_to = "{MINE}"\nnetworks = ["base-sepolia"]\n'
SERVER = '[[server]]\nname = "main"\n{lines}\n[[server.agent]]\nkind = "demo"\n'
TAKES = Support(
    url="https://facilitator.example",
    kinds=(SupportedKind(version=2, scheme="exact", network="eip155:84532"),),
)


def by_its_author(price: Any, name: str = "search") -> Tool:
    return a_tool(name, meta={"io.ostiary/price": price})


@dataclass
class Shop:
    """A server whose agents have these tools."""

    resolved: Resolved
    tools: Sequence[Tool]
    support: Sequence[Support] = ()
    asked: int = 0
    hangs: bool = False
    endpoints: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        (settings,) = self.resolved.servers
        source = Source(name="agent", backend=Seller(*self.tools))
        catalog = Catalog([source], None, Prices(settings, self.resolved.payments))
        self.endpoints = {settings.name: SimpleNamespace(catalog=catalog, till=self)}

    def poster(self, price: PricedTool, kind: PrincipalKind, text: str = "") -> Unpaid | None:
        offer = price.static(kind)
        assert self.resolved.payments is not None
        showcase = PaymentOffers(
            server="main",
            base="https://shop.example/main/call/",
            title="Shop",
            assets=accepted_assets(self.resolved.payments),
            max_timeout_seconds=300,
        )
        requirements = () if offer is None else showcase.requirements(offer)
        if offer is None or not requirements:
            return None
        refusal = Refusal(reason="payment_required", text="pay", asks=True)
        return Unpaid(refusal=refusal, challenge=showcase.challenge(offer, requirements, "pay"))

    async def supported(self) -> Sequence[Support]:
        self.asked += 1
        if self.hangs:
            await trio.sleep_forever()
        return self.support

    @property
    def warnings(self) -> list[str]:
        return sales_summary.warnings(self.resolved, self.endpoints)

    @property
    def sold(self) -> str | None:
        return sales_summary.sold(self.resolved, self.endpoints)

    async def examine(self) -> dict[str, Any]:
        return await sales_summary.examine(self.resolved, self.endpoints, SimpleNamespace(facilitators=self))  # type: ignore[arg-type]


def shop(tmp_path: Path, text: str, *tools: Tool, lines: str = "", support: Sequence[Support] = ()) -> Shop:
    file = tmp_path / "ostiary.toml"
    file.write_text(text + SERVER.format(lines=lines), "utf-8")
    return Shop(resolve(load(file, {})), tools, support)


# ── warnings ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("price", ["$0.01", {"function": "cost"}])
def test_a_price_that_its_author_sets_and_nobody_can_pay_is_warned_of(tmp_path: Path, price: Any) -> None:
    assert shop(tmp_path, NETWORK, by_its_author(price)).warnings == [
        "no [[payments.facilitator]] serves Base Sepolia: payments there are refused"
    ]
    assert shop(tmp_path, NETWORK + FACILITATOR, by_its_author(price)).warnings == []
    assert shop(tmp_path, NETWORK, by_its_author("free"), a_tool("other")).warnings == []


def test_without_a_network_only_what_is_granted_pays_for_it(tmp_path: Path) -> None:
    (sentence,) = shop(tmp_path, "[payments]\n", by_its_author("$0.01")).warnings
    assert "what you grant alone" in sentence


def test_a_price_that_its_author_sets_finer_than_a_token_counts_is_warned_of(tmp_path: Path) -> None:
    coarse = (
        f'[[payments.asset]]\nnetwork = "base"\naddress = "{MINE}"\nname = "Coin"\nversion = "1"\n'
        'symbol = "COIN"\ndecimals = 2\n'
    )
    found = shop(tmp_path, NETWORK + coarse + FACILITATOR, by_its_author("$0.015")).warnings
    assert [sentence for sentence in found if sentence.startswith("the price $0.015 ")]


def test_what_the_settings_say_in_its_place_is_what_counts(tmp_path: Path) -> None:
    there = shop(tmp_path, NETWORK, by_its_author("$0.01"), lines='[server.tools.search]\nprice = "free"')
    assert there.warnings == []
    assert there.sold is None


# ── what is sold ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_sold_is_said_in_one_line_with_whoever_is_paid(tmp_path: Path) -> None:
    said = shop(tmp_path, NETWORK + FACILITATOR, by_its_author("$0.01"), a_tool("other")).sold
    assert said == f"one of its tools costs $0.01 a call; paid to {MINE} in USDC on Base Sepolia"
    granted = shop(tmp_path, "[payments]\n", by_its_author("$0.01")).sold
    assert granted is not None and granted.endswith("paid from balances alone, which you grant")


async def test_a_buyers_view_has_the_challenge_that_a_buyer_is_shown(tmp_path: Path) -> None:
    tools = by_its_author("$0.01"), by_its_author({"function": "cost"}, "render"), a_tool("other")
    there = shop(tmp_path, NETWORK + FACILITATOR, *tools, support=[TAKES])
    found = await there.examine()
    assert (found["warnings"], there.asked) == ([], 1)
    search, render = found["tools"]
    assert (search["tool"], search["fixed"], search["strangers"]) == ("search", True, False)
    assert search["challenge"]["accepts"][0]["amount"] == "10000"
    assert (render["tool"], render["fixed"], render["challenge"]) == ("render", False, None)
    assert found["assets"][0]["taken_by"] == ["https://facilitator.example"]
    assert found["facilitators"] == [
        {"url": "https://facilitator.example", "problem": "", "networks": ["eip155:84532"]}
    ]


async def test_strangers_are_shown_where_they_may_buy(tmp_path: Path) -> None:
    there = shop(tmp_path, NETWORK + FACILITATOR, by_its_author("$0.01"), lines="anonymous_pay = true")
    assert (await there.examine())["tools"][0]["strangers"] is True


async def test_facilitators_that_do_not_answer_are_waited_for_so_long(
    tmp_path: Path, autojump_clock: object
) -> None:
    there = shop(tmp_path, NETWORK + FACILITATOR, by_its_author("$0.01"))
    there.hangs, there.support = True, [Support(url="https://facilitator.example")]
    began = trio.current_time()
    found = await there.examine()
    assert trio.current_time() - began == sales_summary.ASKED_SECONDS
    assert found["facilitators"][0]["problem"] == "has not answered yet"
    assert found["assets"][0]["taken_by"] == []


def test_where_balances_are_filled_is_announced_where_they_can_be(tmp_path: Path) -> None:
    for text, told in (
        (NETWORK, {"ostiary_calls_endpoint", "ostiary_deposit_endpoint"}),
        (NETWORK + "wallets = false\n", {"ostiary_calls_endpoint"}),
        ("[payments]\n", {"ostiary_calls_endpoint"}),
    ):
        resolved = shop(tmp_path, text).resolved
        assert announced(resolved, resolved.servers[0]).keys() == told
