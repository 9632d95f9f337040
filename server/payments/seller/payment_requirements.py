"""Requirements that are shown to whoever is to pay: which tokens are taken, to whom they go, for what, and how long a payment must be
good.

A payment is compared with the same values: nobody's word but the settings' is in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, cast
from urllib.parse import urljoin

from server.lib.money.amounts import BadAmount, to_atomic
from server.payments.seller.offers import Offer
from server.payments.seller.signed_terms import OFFER_RECEIPT, SignedTerms
from server.payments.x402.payment_identifier import PAYMENT_IDENTIFIER, declaration
from server.payments.x402.payment_payload import Payment
from server.payments.x402.requirements import (
    EXACT,
    PaidResource,
    Requirements,
    payment_required,
    payment_required_v1,
)
from server.settings.sale_settings import AcceptedAsset

# Of a payment's time, what settling it may take at the end, and what may pass before it arrives.
SETTLE_ROOM_SECONDS: Final = 10
ARRIVAL_SECONDS: Final = 30
# A tool always has so long, or payments for it are refused for being too short.
LEAST_SECONDS: Final = 5
# For which tool this is not enough must be paid with what is new, or from a balance.
ENOUGH_SECONDS: Final = 20
QUOTE: Final = "quote"


class PaymentOffers:
    """The offers of one server. `assets` in the order in which they are offered; those that nobody is paid with are left out."""

    def __init__(
        self,
        *,
        server: str,
        base: str,
        title: str,
        assets: Sequence[AcceptedAsset],
        max_timeout_seconds: int,
        signs: SignedTerms | None = None,
    ) -> None:
        """Read the settings. `base`: where tools are called by plain HTTP, without their name."""
        self._server = server
        self._base = base
        self._title = title
        self._assets = tuple(each for each in assets if each.pay_to)
        self._timeout = max_timeout_seconds
        self._signs = signs  # offers; None: they are not signed

    @property
    def money_page(self) -> str:
        """The page where somebody with an account here puts money on their balance."""
        return urljoin(self._base, "/account/you")

    @property
    def takes_payments(self) -> bool:
        return bool(self._assets)

    def requirements(self, offer: Offer, quote: str = "") -> Sequence[Requirements]:
        if offer.plan_only:
            return ()
        return _requirements(self._assets, offer, quote, self._timeout)

    def resource(self, tool: str) -> PaidResource:
        return PaidResource(url=self._base + tool, service_name=self._title)

    def resources(self, tool: str) -> frozenset[str]:
        """Return what a payment for it may say that it is for."""
        return frozenset({self._base + tool, f"mcp://tool/{tool}", f"x402://{tool}"})

    def challenge(self, offer: Offer, requirements: Sequence[Requirements], text: str) -> Mapping[str, Any]:
        extensions: dict[str, Any] = {PAYMENT_IDENTIFIER: declaration()}
        if self._signs is not None:
            extensions[OFFER_RECEIPT] = self._signs.offers(requirements, self.resource(offer.tool).url)
        return payment_required(requirements, self.resource(offer.tool), text, extensions)

    def challenge_v1(self, offer: Offer, text: str) -> Mapping[str, Any] | None:
        return payment_required_v1(self.requirements(offer), self.resource(offer.tool), text)

    def tool_seconds(self, deadline_seconds: float) -> float:
        """Return how long a tool may run whose payment is settled afterwards."""
        return min(
            deadline_seconds, max(LEAST_SECONDS, self._timeout - SETTLE_ROOM_SECONDS - ARRIVAL_SECONDS)
        )

    def needed_seconds(self, deadline_seconds: float, *, upfront: bool) -> int:
        """Return what must be left of a payment's time when it comes. A payment may come again, after a question was answered or
        while a facilitator was away: so not all that a tool may take, which has what is left of it."""
        if upfront:
            return SETTLE_ROOM_SECONDS
        return SETTLE_ROOM_SECONDS + int(min(ENOUGH_SECONDS, self.tool_seconds(deadline_seconds)))


@lru_cache(maxsize=1024)
def _requirements(
    assets: tuple[AcceptedAsset, ...], offer: Offer, quote: str, timeout: int
) -> tuple[Requirements, ...]:
    found: list[Requirements] = []
    for each in assets:
        asset = each.asset
        if offer.asset and offer.asset not in (asset.symbol.lower(), asset.address.lower()):
            continue
        try:
            amount = to_atomic(offer.amount, asset.decimals)
        except BadAmount:
            continue
        extra: dict[str, Any] = {"name": asset.name, "version": asset.version}
        if offer.upfront:
            extra["paymentFlow"] = "upfront"
        if quote:
            extra[QUOTE] = quote
        found.append(
            Requirements(
                scheme=EXACT,
                network=asset.network,
                amount=str(amount),
                asset=asset.address,
                pay_to=each.pay_to,
                max_timeout_seconds=timeout,
                extra=extra,
            )
        )
    return tuple(found)


def quote_in(payment: Payment) -> str | None:
    """Return the quote that came back with a payment."""
    extra = None if payment.accepted is None else payment.accepted.get("extra")
    found = cast("Mapping[str, Any]", extra).get(QUOTE) if isinstance(extra, Mapping) else None
    return found if isinstance(found, str) and found else None
