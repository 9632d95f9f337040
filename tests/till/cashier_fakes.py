"""A cashier of a server with a priced tool, plans and caps."""

from __future__ import annotations

from typing import Any

from server.backends.catalog import Catalog, Source
from server.backends.demo import Demo
from server.backends.terms import CallTerms
from server.settings.money import CapsConfig, PlanConfig
from server.settings.policies import ToolConfig
from server.settings.shapes import ServerConfig
from server.till.caps import CapRules
from server.till.cashier import TillCashier
from server.till.claims import Rules
from server.till.ledger import Books
from server.till.plans import Plans
from server.till.prices import Prices
from server.till.takings import Takings
from tests.till.till_fakes import PAYMENTS

PLANS = (
    PlanConfig(name="pro", words="For those who call often", calls=100, days=30),
    PlanConfig(name="all", unlimited=True),
)


def a_cashier(store: Any, books: Books, **caps: str) -> TillCashier:
    """Of a server `agent`, whose tool `echo` costs a cent, with a trial of three calls."""
    tools = {"echo": ToolConfig(price="$0.01", trial=3)}
    settings = ServerConfig(name="agent", tools=tools)
    source = Source(name="demo", backend=Demo(), terms=CallTerms(scopes=frozenset({"mcp:tools"})))
    return TillCashier(
        rules=Rules(plans=Plans(PLANS), caps=CapRules.of(CapsConfig(**caps))),
        books=books,
        store=store,
        catalogs={"agent": Catalog([source], None, Prices(settings, PAYMENTS))},
        takings=Takings(store),
    )
