"""What is told of prices before a call (server/calls/shown_prices.py): to whom, and whether a login is asked for."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

from auth.values.identity_model import STRANGER, Principal, PrincipalKind
from server.agents.base.catalog import Catalog, Source
from server.calls.rights.standing import Rights
from server.calls.shown_prices import LOG_IN_FIRST, Storefront
from server.payments.seller.priced_call import Unpaid
from server.settings.policy_settings import ToolConfig
from tests.payments.seller.open_till import open_till
from tests.payments.seller.till_fakes import Seller, a_tool, prices

ADA = Principal(kind=PrincipalKind.USER, subject="ada", scopes=frozenset({"mcp"}), reach=frozenset({"mcp"}))
FOR_USERS = {"price": "free", "price_for": {"user": "$0.03"}}


@asynccontextmanager
async def a_shop(*, sells: bool = True) -> AsyncGenerator[Storefront]:
    tools: dict[str, dict[str, Any]] = {
        "search": {"price": "$0.01"},
        "secret": {"price": "$0.02"},
        "look": {},
        "users": FOR_USERS,
    }
    configured = prices(None, {name: ToolConfig(**fields) for name, fields in tools.items()})
    catalog = Catalog([Source(name="agent", backend=Seller(*map(a_tool, tools)))], None, configured)
    async with open_till() as at:
        endpoint: Any = SimpleNamespace(
            name="main",
            catalog=catalog,
            tool_called=catalog.get,
            rights=Rights(lambda who, entry: entry is not catalog.tools["secret"]),
            till=at.till if sells else None,
        )
        yield Storefront(
            endpoint, ordinary=("mcp",), address="https://shop.example/call/", prices="https://shop.example/prices", setup={}
        )  # fmt: skip


def text(poster: Unpaid | None) -> str:
    assert poster is not None
    return poster.refusal.text


async def test_only_who_has_not_come_in_is_told_to_log_in_first() -> None:
    async with a_shop() as shop:
        assert text(shop.poster("search")).endswith(LOG_IN_FIRST)
        for who in (STRANGER, ADA):
            assert LOG_IN_FIRST not in text(shop.poster("search", who))


async def test_there_is_no_poster_of_what_costs_nothing_or_must_not_be_known() -> None:
    async with a_shop() as shop:
        assert shop.poster("look") is shop.poster("no-such-tool") is None
        assert shop.poster("users") is not None
        assert shop.poster("users", STRANGER) is None
        assert shop.poster("secret") is shop.poster("secret", ADA) is None
    async with a_shop(sells=False) as shop:
        assert shop.poster("search") is None


async def test_the_routes_are_what_whoever_pays_may_call() -> None:
    async with a_shop() as shop:
        (route,) = shop.routes()
        assert (route["tool"], route["url"]) == ("search", "https://shop.example/call/search")
        assert [each["amount"] for each in route["accepts"]] == ["10000"]
