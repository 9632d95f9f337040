from __future__ import annotations

import pytest

from server.lib.evm.evm_addresses import checksummed
from server.lib.evm.payment_networks import (
    ASSETS,
    NETWORKS,
    Asset,
    Network,
    evm_network,
    find_network,
    usual_asset,
)

# As two independent packages publish them: (chain id, name in version 1, address in small letters, name and version that are signed).
PUBLISHED = {
    (8453, "base", "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913", "USD Coin", "2"),
    (84532, "base-sepolia", "0x036cbd53842c5426634e7929541ec2318f3dcf7e", "USDC", "2"),
    (137, "polygon", "0x3c499c542cef5e3811e1192ce70d8cc03d5c3359", "USD Coin", "2"),
    (43114, "avalanche", "0xb97ef9ef8734c71904d8002f8b6bc66dd9c48a6e", "USD Coin", "2"),
    (43113, "avalanche-fuji", "0x5425890298aed601595a70ab815c96711a31bc65", "USD Coin", "2"),
}


def test_the_table_holds_what_is_published_of_each_network_and_its_dollar() -> None:
    found = {
        (network.chain_id, network.v1_name, asset.address.lower(), asset.name, asset.version)
        for network in NETWORKS
        if (asset := usual_asset(network.caip2)) is not None
    }
    assert found == PUBLISHED
    assert all(network.caip2 == f"eip155:{network.chain_id}" for network in NETWORKS)
    assert {asset.decimals for asset in ASSETS} == {6}
    assert {network.title for network in NETWORKS if network.testnet} == {"Base Sepolia", "Avalanche Fuji"}


@pytest.mark.parametrize("asset", ASSETS, ids=lambda asset: asset.network)
def test_a_tokens_address_is_written_with_its_checksum(asset: Asset) -> None:
    assert checksummed(asset.address.lower()) == asset.address


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.v1_name)
def test_a_network_is_found_by_either_of_its_names(network: Network) -> None:
    assert find_network(network.caip2) is network
    assert find_network(network.v1_name) is network


@pytest.mark.parametrize("text", ["", "Base", "eip155:1", "eip155:08453", "base ", "8453"])
def test_what_is_in_no_table_is_not_found(text: str) -> None:
    assert find_network(text) is None


def test_any_chain_of_the_same_kind_can_be_named_by_its_number() -> None:
    found = evm_network("eip155:31337")
    assert found is not None
    assert (found.caip2, found.chain_id, found.v1_name) == ("eip155:31337", 31337, "")
    assert evm_network("eip155:8453") is find_network("base")
    assert usual_asset("eip155:31337") is None


@pytest.mark.parametrize(
    "text",
    [
        "base",
        "eip155:",
        "eip155:0",
        "eip155:01",
        "eip155:-1",
        "eip155:1e3",
        "eip155:" + "9" * 16,
        "solana:5eykt",
        "EIP155:1",
        "eip155:1\n",
    ],
)
def test_another_kind_of_network_is_none_of_these(text: str) -> None:
    assert evm_network(text) is None
