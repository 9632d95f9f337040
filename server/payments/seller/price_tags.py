"""A price as it is shown before anybody pays: to programs in `tools/list`, to people in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from server.lib.money.amounts import MOST, Micros, shown
from server.mcp.terms import PRICE_META
from server.payments.seller.offers import CURRENCY, PricedTool, ToolPrice

# What Cloudflare's clients read of a tool.
_PAYMENT_REQUIRED: Final = "agents-x402/paymentRequired"
_PRICE_USD: Final = "agents-x402/priceUSD"
_OTHERS: Final[Mapping[str, str]] = {
    "user": "people who are logged in",
    "client": "machines",
    "api_key": "API keys",
    "payer": "callers without a login",
}


def price_meta(priced: PricedTool, networks: Sequence[str]) -> dict[str, Any]:
    """What `_meta` of the tool says."""
    price = _usual(priced)
    tag: dict[str, Any] = {
        "currency": CURRENCY,
        "words": words_of(priced),
        "networks": list(networks),
        "flow": "upfront" if priced.upfront else "after",
    }
    found: dict[str, Any] = {PRICE_META: tag}
    if price is None:
        return found
    if price.plan_only:
        tag["planOnly"] = True
        return found
    found[_PAYMENT_REQUIRED] = True
    if price.amount is None:
        tag["dynamic"] = True
        if price.most != MOST:
            tag["most"] = _plain(price.most)
        return found
    tag["amount"] = _plain(price.amount)
    tag["version"] = next(offer.version for offer in priced.fixed.values() if offer.amount == price.amount)
    if price.asset:
        tag["asset"] = price.asset
    found[_PRICE_USD] = price.amount / 10**6
    return found


def words_of(priced: PricedTool) -> str:
    """`$0.01 a call; the first 3 successful calls cost nothing`."""
    usual = _usual(priced)
    said = [_cost(usual)]
    for kind, words in _OTHERS.items():
        if (other := priced.prices[kind]) != usual:
            said.append(f"{_cost(other)} for {words}")
    if priced.trial:
        said.append(f"the first {_nothing(priced.trial, 'successful call')}")
    if priced.free_calls:
        said.append(_nothing(priced.free_calls, "call", "one ", " a month"))
    if priced.upfront and usual is not None and not usual.plan_only:
        said.append("paid before it runs")
    return "; ".join(said)


def words_of_prices(tools: Iterable[PricedTool | None], kind: str = "user") -> str:
    """Of all that such a caller could call there, for pages on which a program is let in: "" where nothing costs anything."""
    priced = [tool for tool in tools if tool is not None]
    costs = [
        price for tool in priced for price in [tool.prices[kind]] if price is not None and not price.plan_only
    ]
    if not costs:
        return ""
    fixed = [price.amount for price in costs if price.amount is not None]
    bound = max([*fixed, *(price.most for price in costs if price.amount is None)])
    count = sum(tool.prices[kind] is not None for tool in priced)
    tools_word = "one of its tools costs" if count == 1 else f"{count} of its tools cost"
    if bound == MOST:
        return f"{tools_word} money, by what they are asked for"
    least = min(fixed, default=0)
    if least == bound:
        return f"{tools_word} {shown(bound)} a call"
    return f"{tools_word} up to {shown(bound)} a call"


def _usual(priced: PricedTool) -> ToolPrice | None:
    """What people pay who are logged in, or else what anybody pays."""
    return priced.prices["user"] or next((price for price in priced.prices.values() if price), None)


def _cost(price: ToolPrice | None) -> str:
    if price is None:
        return "free"
    if price.plan_only:
        return "for callers with a plan"
    if price.amount is not None:
        return f"{shown(price.amount, CURRENCY)} a call"
    bound = "" if price.most == MOST else f", at most {shown(price.most, CURRENCY)}"
    if price.expression is not None:
        return f"priced by its arguments: {price.expression.text} dollars{bound}"
    return f"priced by its arguments{bound}"


def _nothing(number: int, what: str, one: str = "", when: str = "") -> str:
    return f"{one}{what}{when} costs nothing" if number == 1 else f"{number} {what}s{when} cost nothing"


def _plain(amount: Micros) -> str:
    return shown(amount, CURRENCY).removeprefix("$")
