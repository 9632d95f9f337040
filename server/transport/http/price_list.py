"""What is sold to everybody, for programs that look for it, and whether payments can be taken at the moment.

/.well-known/x402, /.well-known/x402.json    what can be called without a login, for how much, in which tokens, paid to whom
/x402/status                                 whether the facilitators answer: asked seldom, however often somebody wants to know
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
import trio

from auth.endpoints import json_replies
from auth.values.http_messages import WireReply, WireRequest
from server.calls.shown_prices import Storefront
from server.payments.x402.facilitators import Support
from server.payments.x402.requirements import EXACT, V1, V2
from server.settings.sale_settings import AcceptedAsset

PRICES: Final = "/.well-known/x402"
STATUS: Final = "/x402/status"
PATHS: Final = frozenset({PRICES, f"{PRICES}.json", STATUS})
READ: Final = ("GET", "HEAD", "OPTIONS")
# A list is made anew so often at most: it can name thousands of tools, and anybody may ask for it.
LIST_SECONDS: Final = 5.0
# So often at most facilitators are asked because somebody wants to know, and so long an answer is waited for.
PROBE_SECONDS: Final = 30.0
ANSWER_SECONDS: Final = 10.0
_encode: Final = msgspec.json.Encoder().encode


class PriceList:
    """Of the whole process. `storefronts`: of the servers that sell to whoever pays. `probe` asks all facilitators; `known` is what was
    last heard of them, without asking."""

    def __init__(
        self,
        storefronts: Sequence[Storefront],
        assets: Sequence[AcceptedAsset],
        *,
        servers: Sequence[Mapping[str, str]] = (),
        probe: Callable[[], Awaitable[Sequence[Support]]],
        known: Callable[[], Sequence[Support]],
    ) -> None:
        """`servers`: the paths of each of them, by what is there."""
        self._servers = servers
        self._storefronts = storefronts
        self._assets = tuple(each for each in assets if each.pay_to)
        self._probe = probe
        self._known = known
        self._list = b""
        self._listed_until = float("-inf")
        self._probed_until = float("-inf")
        self._probing = trio.Lock()

    async def answer(self, request: WireRequest) -> WireReply:
        """To a request for one of `PATHS`."""
        if request.method == "OPTIONS":
            return json_replies.preflight(READ)
        if request.method not in READ:
            return json_replies.wrong_method(READ)
        if request.path != STATUS:
            return json_replies.document(request, self._prices())
        facts = await self._status()
        headers = (*json_replies.JSON, *json_replies.NO_STORE, *json_replies.CORS)
        return WireReply(status=200 if facts["status"] == "ok" else 503, headers=headers, body=_encode(facts))

    def _prices(self) -> bytes:
        now = trio.current_time()
        if now >= self._listed_until:
            self._list, self._listed_until = _encode(self._listed()), now + LIST_SECONDS
        return self._list

    def _listed(self) -> Mapping[str, Any]:
        routes = [route for storefront in self._storefronts for route in storefront.routes()]
        return {
            "version": 1,
            "x402Version": V2,
            "resources": [route["url"] for route in routes],
            "routes": routes,
            "servers": self._servers,
            "networks": list(dict.fromkeys(each.network.caip2 for each in self._assets)),
            "assets": [_asset(each) for each in self._assets],
            "payTo": list(dict.fromkeys(each.pay_to for each in self._assets)),
            "facilitator": self._word(self._known()),
        }

    async def _status(self) -> Mapping[str, Any]:
        # The first who asks waits for the answer; whoever asks meanwhile waits with them, and whoever leaves has had the one question.
        async with self._probing:
            if trio.current_time() >= self._probed_until:
                self._probed_until = trio.current_time() + PROBE_SECONDS
                with trio.move_on_after(ANSWER_SECONDS):
                    await self._probe()
        known = self._known()
        return {
            "status": self._word(known),
            "facilitators": [{"host": urlsplit(each.url).hostname, "status": _heard(each)} for each in known],
            "networks": {
                each.network.caip2: "ok" if _is_served(known, each.network.caip2) else "unreachable"
                for each in self._assets
            },
        }

    def _word(self, known: Sequence[Support]) -> str:
        """ok, degraded, down; unknown before any of them was asked."""
        served = [_is_served(known, each.network.caip2) for each in self._assets]
        if served and all(served):
            return "ok"
        if known and all(_heard(each) == "unknown" for each in known):
            return "unknown"
        return "degraded" if any(served) else "down"


def _heard(support: Support) -> str:
    if support.problem:
        return "unreachable"
    return "unknown" if support.kinds is None else "ok"


def _is_served(known: Sequence[Support], caip2: str) -> bool:
    return any(
        kind.covers(version, EXACT, caip2)
        for each in known
        if not each.problem
        for kind in each.kinds or ()
        for version in (V2, V1)
    )


def _asset(each: AcceptedAsset) -> Mapping[str, Any]:
    asset = each.asset
    return {
        "network": asset.network,
        "address": asset.address,
        "symbol": asset.symbol,
        "decimals": asset.decimals,
        "payTo": each.pay_to,
    }
