"""What whoever pays without a login may know of, and use."""

from __future__ import annotations

from typing import Any

import pytest

from auth.values.identity_model import STRANGER, Principal, PrincipalKind
from server.agents.base.catalog import ToolEntry
from server.calls.rights.standing import Rights, Standing
from server.mcp.messages import Tool
from server.mcp.schema import ToolSchema
from server.mcp.terms import CallTerms
from server.settings.money_settings import PriceTable
from tests.payments.seller.till_fakes import priced

TOOL = Tool(name="search", input_schema={"type": "object"})
WITH_TOKEN = Principal(kind=PrincipalKind.PAYER, subject="payer:eip155:1:0xab", grant_id="grt_1")


def entry(price: Any = None, **terms: Any) -> ToolEntry:
    return ToolEntry(TOOL, ToolSchema(TOOL), None, CallTerms(**terms), price)  # type: ignore[arg-type]


@pytest.mark.parametrize("who", [STRANGER, WITH_TOKEN], ids=["stranger", "token"])
@pytest.mark.parametrize(
    ("found", "standing"),
    [
        (entry(), Standing.HIDDEN),
        (entry(priced(price="$0.01")), Standing.ALLOWED),
        # A scope is what a person grants, and nobody is here who could.
        (entry(priced(price="$0.01"), scopes=frozenset({"mcp:tools"})), Standing.ALLOWED),
        (entry(priced(price="$0.01"), tier="financial"), Standing.HIDDEN),
        (entry(priced(price="$0.01", price_for={"payer": "free"})), Standing.HIDDEN),
        (entry(priced(price_for={"user": "$0.01"})), Standing.HIDDEN),
        (entry(priced(price_for={"payer": "$0.01"})), Standing.ALLOWED),
        (entry(priced(price="plan")), Standing.HIDDEN),
        (entry(priced(price=PriceTable(expression="0.01 * n"))), Standing.ALLOWED),
    ],
)
def test_payers_reach_what_is_sold_to_them_and_nothing_else(
    who: Principal, found: ToolEntry, standing: Standing
) -> None:
    assert Rights().standing(who, found) is standing


@pytest.mark.parametrize("who", [STRANGER, WITH_TOKEN], ids=["stranger", "token"])
def test_what_the_server_hides_is_hidden_from_payers_too(who: Principal) -> None:
    rights = Rights(lambda _principal, _entry: False)
    assert rights.standing(who, entry(priced(price="$0.01"))) is Standing.HIDDEN
