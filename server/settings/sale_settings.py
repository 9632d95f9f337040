"""What `[payments]` comes to: which assets are accepted, and where each is paid to. Loaded only where there is something to be paid."""

from __future__ import annotations

import msgspec

from server.lib.evm.payment_networks import Asset, Network, evm_network, find_network, usual_asset
from server.settings.money_settings import PaymentsConfig


def network_named(text: str) -> Network | None:
    """One of the table by either of its names, or any other by its CAIP-2 id."""
    return find_network(text) or evm_network(text)


class AcceptedAsset(msgspec.Struct, frozen=True, kw_only=True):
    asset: Asset
    network: Network
    pay_to: str  # "": nobody said so, and then it cannot be paid with


def accepted_assets(payments: PaymentsConfig) -> tuple[AcceptedAsset, ...]:
    """In the order in which they are offered: payers take the first that they can. Of settings without faults."""
    found: dict[tuple[str, str], AcceptedAsset] = {}
    for name in payments.networks:
        network = network_named(name)
        usual = usual_asset(network.caip2) if network is not None else None
        if network is not None and usual is not None:
            found[network.caip2, usual.address.lower()] = AcceptedAsset(
                asset=usual, network=network, pay_to=payments.pay_to
            )
    for written in payments.asset:
        network = network_named(written.network)
        if network is None:
            continue
        usual = usual_asset(network.caip2)
        if usual is not None and written.address.lower() in ("", usual.address.lower()):
            asset = usual
        else:
            asset = Asset(
                network=network.caip2,
                address=written.address,
                symbol=written.symbol or written.name,
                decimals=written.decimals,
                name=written.name,
                version=written.version,
            )
        # What a table says of the usual asset of a network that is listed keeps its place there.
        found[network.caip2, asset.address.lower()] = AcceptedAsset(
            asset=asset, network=network, pay_to=written.pay_to or payments.pay_to
        )
    return tuple(found.values())
