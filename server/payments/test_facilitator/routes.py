"""Everything that can be asked of the test facilitator, by path and method: what it is, payments, its chain that is none, its switches
and books. `/test/…` is for this machine alone, which server/run/test_facilitator.py sees to.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import msgspec

from server.lib.evm.evm_addresses import BadChainAddress, checksummed, parse_address
from server.lib.evm.payment_networks import Asset, Network, find_network
from server.lib.money.amounts import BadAmount, parse, to_atomic
from server.payments.test_facilitator.coins import CoinsFull, SeenAuthorization
from server.payments.test_facilitator.endpoints import EndpointReply, FacilitatorEndpoints, in_json
from server.payments.test_facilitator.fake_chain_node import FACILITATOR, NodeView, answer_rpc
from server.payments.test_facilitator.switches import MODES, BadSwitch, parse_switch

WARNING: Final = "its coins are worthless, and no real facilitator or chain is ever contacted"
FOR_TESTS: Final = "/test/"

Answerer: TypeAlias = Callable[[bytes], Awaitable[EndpointReply]]


class _NewSwitches(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    verify: str | None = None
    settle: str | None = None
    times: int | None = None


class _NewCoins(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    address: str
    amount: str
    network: str | None = None


class FacilitatorFront:
    """`routes`: by path, then by method."""

    def __init__(self, desk: FacilitatorEndpoints) -> None:
        self._desk = desk
        self._coins = desk.coins
        routes: dict[str, Mapping[str, Answerer]] = {
            "/": {"GET": self._about},
            "/supported": {"GET": self._supported},
            "/verify": {"POST": desk.verify},
            "/settle": {"POST": desk.settle},
            "/rpc": {"POST": self._rpc(self._coins.networks[0][0])},
            "/test/ledger": {"GET": self._ledger},
            "/test/coins": {"POST": self._put_coins},
            "/test/switch": {"GET": self._switches, "POST": self._switch},
        }
        for network, _ in self._coins.networks:
            routes[f"/rpc/{network.chain_id}"] = {"POST": self._rpc(network)}
        self.routes: Final[Mapping[str, Mapping[str, Answerer]]] = MappingProxyType(routes)

    async def answer(self, method: str, path: str, body: bytes) -> EndpointReply:
        route = self.routes.get(path)
        if route is None:
            return in_json({"error": "nothing here", "paths": list(self.routes)}, 404)
        answerer = route.get("GET" if method == "HEAD" else method)
        if answerer is None:
            refusal = in_json({"error": f"only {' and '.join(route)} here"}, 405)
            return msgspec.structs.replace(refusal, allow=tuple(route))
        return await answerer(body)

    async def _about(self, body: bytes) -> EndpointReply:
        return in_json(
            {
                "what": "the test facilitator of Ostiary (x402)",
                "warning": WARNING,
                "networks": [
                    {
                        "network": network.caip2,
                        "title": network.title,
                        "asset": asset.address,
                        "symbol": asset.symbol,
                        "rpc": f"/rpc/{network.chain_id}",
                    }
                    for network, asset in self._coins.networks
                ],
                "paths": {path: list(methods) for path, methods in self.routes.items()},
            }
        )

    async def _supported(self, body: bytes) -> EndpointReply:
        kinds: list[dict[str, Any]] = []
        for network, _ in self._coins.networks:
            kinds.append({"x402Version": 2, "scheme": "exact", "network": network.caip2})
            if network.v1_name:
                kinds.append({"x402Version": 1, "scheme": "exact", "network": network.v1_name})
        return in_json(
            {"kinds": kinds, "extensions": [], "signers": {"eip155:*": [checksummed(FACILITATOR)]}}
        )

    def _rpc(self, network: Network) -> Answerer:
        async def answer(body: bytes) -> EndpointReply:
            node = NodeView(coins=self._coins, network=network, now=self._desk.clock())
            return EndpointReply(body=answer_rpc(node, body))

        return answer

    # ── for tests ──

    async def _ledger(self, body: bytes) -> EndpointReply:
        seen = self._coins.authorizations()
        return in_json(
            {
                "balances": [
                    {"network": network, "asset": asset, "address": address, "balance": str(amount)}
                    for network, asset, address, amount in self._coins.balances()
                ],
                "authorizations": [_as_json(each) for each in seen],
                "totals": {
                    "verify_calls": sum(each.verify_calls for each in seen),
                    "settle_calls": sum(each.settle_calls for each in seen),
                    "settled": sum(each.settled for each in seen),
                },
            }
        )

    async def _put_coins(self, body: bytes) -> EndpointReply:
        try:
            wanted = msgspec.json.decode(body, type=_NewCoins)
            asset = self._asset(wanted.network)
            address = parse_address(wanted.address)
            atomic = to_atomic(parse(wanted.amount), asset.decimals)
            self._coins.put(asset, address, atomic)
            await self._desk.save()
        except OSError as error:
            return in_json({"error": f"it could not be written down: {error.strerror}"}, 500)
        except (msgspec.DecodeError, ValueError) as error:
            part = "the address " if isinstance(error, BadChainAddress) else ""
            part = "the amount " if isinstance(error, BadAmount) else part
            return in_json({"error": f"{part}{error}", "like": {"address": "0x…", "amount": "$5"}}, 400)
        except CoinsFull:
            return in_json({"error": "no more addresses can have coins of their own"}, 503)
        return in_json(
            {"network": asset.network, "asset": asset.address, "address": address, "balance": str(atomic)}
        )

    async def _switches(self, body: bytes) -> EndpointReply:
        return in_json(self._desk.switches.as_json())

    async def _switch(self, body: bytes) -> EndpointReply:
        try:
            wanted = msgspec.json.decode(body, type=_NewSwitches)
            named = {"verify": wanted.verify, "settle": wanted.settle}
            parsed = {
                step: parse_switch(step, text, wanted.times)
                for step, text in named.items()
                if text is not None
            }
            if not parsed:
                raise BadSwitch("name verify or settle")
        except (msgspec.DecodeError, ValueError) as error:
            return in_json({"error": str(error), "modes": dict(MODES)}, 400)
        for step, switch in parsed.items():
            self._desk.switches.set(step, switch)
        return await self._switches(body)

    def _asset(self, named: str | None) -> Asset:
        if named is None:
            return self._coins.networks[0][1]
        found = find_network(named)
        for network, asset in self._coins.networks:
            if network == found:
                return asset
        raise ValueError("there are no test coins on that network")


def _as_json(seen: SeenAuthorization) -> dict[str, Any]:
    return {
        "network": seen.network,
        "asset": seen.asset,
        "from": seen.payer,
        "to": seen.to,
        "value": seen.value,
        "nonce": seen.nonce,
        "verify_calls": seen.verify_calls,
        "settle_calls": seen.settle_calls,
        "settled": seen.settled,
        "pending": seen.pending,
        "transaction": seen.transaction or None,
    }
