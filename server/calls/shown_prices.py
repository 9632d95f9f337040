"""Prices as a server shows them to callers who have not come in yet, or ask for no call: on the way to a login, in answer to a verb that
calls nothing. Words and values are those that a call would be answered with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from msgspec import UNSET

from auth.values.identity_model import STRANGER, Principal, PrincipalKind
from server.calls.rights.standing import Standing
from server.calls.servers.endpoint import Endpoint
from server.mcp.terms import PRICE_META
from server.payments.seller.priced_call import Refusal, Unpaid
from server.payments.x402.requirements import DESCRIPTION_CHARACTERS, PaidResource, payment_required

LOG_IN_FIRST: Final = "This server asks for a login first: the call is then paid from its balance, or by the same payment beside the token."


class Storefront:
    """The shown prices of one server. `ordinary`: the scopes that a login usually has, `address`: where its tools are called, `prices`: where all
    prices are listed, if they are."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        ordinary: tuple[str, ...],
        address: str,
        prices: str,
        setup: Mapping[str, str],
    ) -> None:
        """Keep the parts. `setup`: how to log in, for programs that show it to people."""
        self.setup: Final = setup
        self._endpoint = endpoint
        # What anybody might see who logged in.
        self._newcomer = Principal(
            kind=PrincipalKind.USER, subject="", scopes=frozenset(ordinary), reach=frozenset(ordinary)
        )
        self._address = address
        self._prices = prices

    def poster(self, tool: str, who: Principal | None = None) -> Unpaid | None:
        """Return what calling it costs such a caller, or with None somebody who might log in. None where they may not know of it, where it is free, where
        its price depends on the call, and where it cannot be paid for directly."""
        endpoint, asked = self._endpoint, who or self._newcomer
        entry = endpoint.tool_called(tool)
        if entry is None or entry.price is None or endpoint.till is None:
            return None
        if endpoint.rights.standing(asked, entry) is Standing.HIDDEN:
            return None
        return endpoint.till.poster(entry.price, asked.kind, LOG_IN_FIRST if who is None else "")

    def routes(self) -> Iterable[Mapping[str, Any]]:
        """List every tool that those who pay may call without a login, and what it costs them."""
        endpoint = self._endpoint
        for entry in endpoint.catalog.entries():
            if entry.price is None or endpoint.rights.standing(STRANGER, entry) is Standing.HIDDEN:
                continue
            tool, poster = entry.tool, self.poster(entry.tool.name, STRANGER)
            accepts: Sequence[Any] = poster.challenge["accepts"] if poster and poster.challenge else ()
            yield {
                "server": endpoint.name,
                "tool": tool.name,
                "url": self._address + quote(tool.name),
                "method": "POST",
                "description": "" if tool.description is UNSET else tool.description[:DESCRIPTION_CHARACTERS],
                "price": None if tool.meta is UNSET else tool.meta.get(PRICE_META),
                "accepts": accepts,  # none where the price depends on the call: to be asked by a POST
            }

    def sign(self) -> Unpaid:
        """Return what is told a caller who names no tool that has a price."""
        text = (
            f"Calls are paid for here: POST a tool's arguments to {self._address}TOOL to be told what it costs, or log in."
            f" What is sold, and for how much, is listed at {self._prices}."
        )
        challenge = payment_required((), PaidResource(url=self._prices), text)
        return Unpaid(refusal=Refusal(reason="payment_required", text=text, asks=True), challenge=challenge)
