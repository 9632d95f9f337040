"""A server's settings and tools as the till sees them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from server.agents.base.backend import PriceAsked, ToolCall
from server.mcp.call_outlet import Outlet
from server.mcp.messages import Tool
from server.mcp.result_encoding import ToolResult
from server.payments.seller.offers import PricedTool
from server.payments.seller.tool_prices import Prices
from server.settings.money_settings import AssetConfig, PaymentsConfig, PriceValue
from server.settings.policy_settings import ToolConfig
from server.settings.setting_shapes import ServerConfig

MINE = "0x52908400098527886E0F7030069857D2E4169EE7"
TOKEN = "0xde709f2102306220921060314715629080e2fb77"
# A moment in November of 2026.
NOW = 1_795_000_000_000
PAYMENTS = PaymentsConfig(pay_to=MINE, networks=("base-sepolia",))
WITH_TOKEN = PaymentsConfig(
    pay_to=MINE,
    asset=(
        AssetConfig(
            network="eip155:31337", address=TOKEN, name="Coin", version="1", symbol="COIN", decimals=18
        ),
    ),
)


class Mute:
    """A back-end that knows no prices."""

    def __init__(self, *listed: Tool) -> None:
        self.listed = listed or (a_tool(),)

    def tools(self) -> list[Tool]:
        return list(self.listed)

    async def call(self, call: ToolCall, outlet: Outlet) -> ToolResult:
        raise NotImplementedError

    async def aclose(self) -> None: ...


FUNCTIONS = frozenset({"cost", "f"})


class Seller(Mute):
    """A back-end that knows prices."""

    price_functions = FUNCTIONS

    async def price(self, asked: PriceAsked) -> str:
        raise NotImplementedError


def a_tool(name: str = "search", **more: Any) -> Tool:
    return Tool(name=name, input_schema={"type": "object"}, **more)


def prices(
    default: PriceValue | None = None,
    tools: Mapping[str, ToolConfig] | None = None,
    payments: PaymentsConfig | None = PAYMENTS,
) -> Prices:
    return Prices(ServerConfig(name="main", price=default, tools=dict(tools or {})), payments)


def priced(payments: PaymentsConfig | None = PAYMENTS, **tool: Any) -> PricedTool:
    found = prices(None, {"search": ToolConfig(**tool)}, payments).price(a_tool(), FUNCTIONS)
    assert found is not None
    return found
