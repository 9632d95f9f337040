"""A cashier of a server with a priced tool, plans and caps."""

from __future__ import annotations

from typing import Any

from server.agents.base.catalog import Catalog, Source
from server.agents.base.demo_agent import Demo
from server.mcp.terms import CallTerms
from server.payments.seller.claims import Rules
from server.payments.seller.ledger import Books
from server.payments.seller.plans import Plans
from server.payments.seller.revenue import Revenue
from server.payments.seller.spending_caps import CapRules
from server.payments.seller.tool_prices import Prices
from server.run.account_money import AccountMoney
from server.settings.money_settings import CapsConfig, PlanConfig
from server.settings.policy_settings import ToolConfig
from server.settings.setting_shapes import ServerConfig
from tests.payments.seller.till_fakes import PAYMENTS

PLANS = (
    PlanConfig(name="pro", words="For those who call often", calls=100, days=30),
    PlanConfig(name="all", unlimited=True),
)


def a_cashier(store: Any, books: Books, **caps: str) -> AccountMoney:
    """Of a server `agent`, whose tool `echo` costs a cent, with a trial of three calls."""
    tools = {"echo": ToolConfig(price="$0.01", trial=3)}
    settings = ServerConfig(name="agent", tools=tools)
    source = Source(name="demo", backend=Demo(), terms=CallTerms(scopes=frozenset({"mcp:tools"})))
    return AccountMoney(
        rules=Rules(plans=Plans(PLANS), caps=CapRules.of(CapsConfig(**caps))),
        books=books,
        store=store,
        catalogs={"agent": Catalog([source], None, Prices(settings, PAYMENTS))},
        takings=Revenue(store),
    )
