"""What an upstream says that its tools cost, and what they cost here: the same and a mark-up. Pure.

Read from what `tools/list` says of a tool: our own tag (`io.ostiary/price`), and the one that Cloudflare's servers have. A tool whose price depends on
the call says so there, and what a call costs when it is made without payment (buying.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec
from msgspec import UNSET, UnsetType

from server.agents.base.backend import ToolCall
from server.lib.money.amounts import MOST, ONE, BadAmount, Micros, parse, shown
from server.mcp.terms import PRICE_META

CURRENCY: Final = "USD"
# By which our own prices ask the back-end (`Pricing`).
UPSTREAM_PRICE: Final = "upstream"
_REQUIRED: Final = "agents-x402/paymentRequired"
_USD: Final = "agents-x402/priceUSD"
_PERCENT: Final = re.compile(r"(0|[1-9][0-9]{0,3})(?:\.([0-9]{1,2}))? ?%")
_WHOLE: Final = 100 * 100  # hundredths of a per cent


class AskedPrice(msgspec.Struct, frozen=True):
    amount: Micros | None  # None: it depends on the call


class MarkUp(msgspec.Struct, frozen=True):
    """Beyond what the upstream asks: a part of that, and a fixed amount."""

    part: int = 0  # hundredths of a per cent
    fixed: Micros = 0

    def on(self, amount: Micros) -> Micros:
        """Never less than was paid: what does not come out even is rounded up."""
        return min(amount + -(-amount * self.part // _WHOLE) + self.fixed, MOST)

    def within(self, sold: Micros) -> Micros:
        """The most that may be paid for what was sold for this."""
        return max(0, sold - self.fixed) * _WHOLE // (_WHOLE + self.part)


def read_mark_up(text: str) -> MarkUp:
    """`"20%"`, `"2.5%"`, `"$0.01"`. Raises `BadAmount`."""
    found = _PERCENT.fullmatch(text.strip())
    if found is not None:
        return MarkUp(part=int(found[1]) * 100 + int((found[2] or "").ljust(2, "0")))
    try:
        return MarkUp(fixed=parse(text))
    except BadAmount:
        raise BadAmount('is neither a part nor an amount: write it like "20%" or "$0.01"') from None


def asked_price(meta: Mapping[str, Any] | UnsetType) -> AskedPrice | None:
    """None: it says nothing of a price."""
    if meta is UNSET:
        return None
    tag: object = meta.get(PRICE_META)
    if isinstance(tag, Mapping):
        said = cast("Mapping[str, Any]", tag)
        if said.get("planOnly") is True or said.get("currency", CURRENCY) != CURRENCY:
            return AskedPrice(None)
        amount: object = said.get("amount")
        return AskedPrice(_amount(amount) if isinstance(amount, str) else None)
    usd: object = meta.get(_USD)
    if isinstance(usd, int | float) and not isinstance(usd, bool):
        return AskedPrice(_dollars(usd))
    return AskedPrice(None) if meta.get(_REQUIRED) is True else None


def most_for(call: ToolCall, listed: AskedPrice | None, mark_up: MarkUp) -> Micros | None:
    """No more is paid for a call that is sold on; None: as much as the wallet may spend. What was sold as the upstream said stays so,
    whatever that says by now."""
    if call.sold is not None and call.sold_as_said:
        return mark_up.within(call.sold)
    if listed is None:
        return call.sold or 0
    return call.sold if listed.amount is None else listed.amount


def tag_of(price: AskedPrice, mark_up: MarkUp) -> Mapping[str, Any]:
    """The price as a tool's author says it to us (server/payments/seller/tool_prices.py)."""
    if price.amount is None:
        return {PRICE_META: {"function": UPSTREAM_PRICE}}
    return {PRICE_META: shown(mark_up.on(price.amount), CURRENCY)}


def _amount(text: str) -> Micros | None:
    try:
        return parse(text) or None
    except BadAmount:
        return None


def _dollars(number: float) -> Micros | None:
    micros = round(number * ONE) if 0 < number < MOST // ONE else 0
    return micros or None
