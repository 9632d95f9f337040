"""What this server sells, to whom it is paid, and what a buyer would see: for the line that `serve` says, its warnings, and `doctor`.

Nothing is asked of a tool and nothing is charged: a buyer's view is made by the very code that answers one who has not paid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import trio

from auth.values.identity_model import PrincipalKind
from server.calls.servers.endpoint import Endpoint
from server.payments.seller.offers import PricedTool
from server.payments.seller.price_tags import words_of, words_of_prices
from server.payments.x402.facilitators import Support
from server.run.sellers import Money
from server.settings.money_faults import unpayable
from server.settings.resolved_settings import Resolved
from server.settings.sale_settings import AcceptedAsset, accepted_assets, network_named

# Facilitators are asked side by side; who takes longer is not there.
ASKED_SECONDS: Final = 15.0
# Of a server's tools, those that somebody looks at.
TOOLS: Final = 20


def warnings(resolved: Resolved, endpoints: Mapping[str, Endpoint]) -> list[str]:
    """Sentences on prices that nobody could pay: those of the settings, and those that agents say of their tools."""
    said = (
        price.written
        for endpoint in endpoints.values()
        for tool in _priced(endpoint)
        for price in tool.prices.values()
        if price is not None
    )
    return unpayable(resolved.payments, resolved.plans, resolved.servers, said)


def sold(resolved: Resolved, endpoints: Mapping[str, Endpoint]) -> str | None:
    """In one line; None where no tool costs anything."""
    said: list[str] = []
    for name, endpoint in endpoints.items():
        priced = _priced(endpoint)
        if not priced:
            continue
        count = len(priced)
        usual = words_of_prices(priced) or f"{count} of its tools cost{'s' if count == 1 else ''} something"
        said.append(usual if len(endpoints) == 1 else f"{name}: {usual}")
    if not said:
        return None
    return f"{'; '.join(said)}; paid {_to_whom(resolved)}"


def _to_whom(resolved: Resolved) -> str:
    payments = resolved.payments
    assets = [] if payments is None else [each for each in accepted_assets(payments) if each.pay_to]
    if not assets:
        return "from balances alone, which you grant"
    by_payee: dict[str, list[str]] = {}
    for each in assets:
        by_payee.setdefault(each.pay_to, []).append(f"{each.asset.symbol} on {each.network.title}")
    return "; ".join(f"to {payee} in {', '.join(named)}" for payee, named in by_payee.items())


async def examine(resolved: Resolved, endpoints: Mapping[str, Endpoint], money: Money) -> dict[str, Any]:
    """For `doctor`. Facilitators are asked now."""
    with trio.move_on_after(ASKED_SECONDS):
        await money.facilitators.supported()
    support = money.facilitators.support
    payments = resolved.payments
    assets = () if payments is None else accepted_assets(payments)
    return {
        "warnings": warnings(resolved, endpoints),
        "assets": [_asset(each, support, resolved) for each in assets],
        "facilitators": [
            {
                "url": each.url,
                "problem": each.problem or ("" if each.kinds is not None else "has not answered yet"),
                "networks": sorted({kind.network for kind in each.kinds or ()}),
            }
            for each in support
        ],
        "tools": [
            row for name, endpoint in endpoints.items() for row in _seen_by_buyers(name, endpoint, resolved)
        ],
    }


def _priced(endpoint: Endpoint) -> list[PricedTool]:
    return [entry.price for entry in endpoint.catalog.entries() if entry.price is not None]


def _asset(each: AcceptedAsset, support: Sequence[Support], resolved: Resolved) -> dict[str, Any]:
    assert resolved.payments is not None  # it accepts this asset
    named = {one.url: one.networks for one in resolved.payments.facilitator}
    takes: list[str] = []
    for one in support:
        listed = [network_named(name) for name in named.get(one.url, ())]
        allowed = not listed or any(
            found is not None and found.caip2 == each.network.caip2 for found in listed
        )
        says = one.kinds is not None and any(
            kind.scheme == "exact" and kind.network in (each.network.caip2, each.network.v1_name)
            for kind in one.kinds
        )
        if allowed and says:
            takes.append(one.url)
    return {
        "symbol": each.asset.symbol,
        "address": each.asset.address,
        "network": each.network.caip2,
        "title": each.network.title,
        "testnet": each.network.testnet,
        "pay_to": each.pay_to,
        "taken_by": takes,
    }


def _seen_by_buyers(name: str, endpoint: Endpoint, resolved: Resolved) -> list[dict[str, Any]]:
    till = endpoint.till
    if till is None:
        return []
    settings = next(server for server in resolved.servers if server.name == name)
    strangers = resolved.open_to_all(settings) or settings.anonymous_pay
    rows: list[dict[str, Any]] = []
    for price in _priced(endpoint)[:TOOLS]:
        kind = PrincipalKind.PAYER if strangers else PrincipalKind.USER
        poster = till.poster(price, kind)
        rows.append(
            {
                "server": name,
                "tool": price.tool,
                "words": words_of(price),
                "strangers": strangers,
                "fixed": not price.depends(kind),
                "challenge": None if poster is None else poster.challenge,
            }
        )
    return rows
