"""Networks that payments are made on, and the token that prices in dollars are paid with there (CAIP-2; EIP-712 domains).

The tokens are Circle's USDC. Name and version belong to the domain that payers sign: they are what the contract itself says of
itself, which is not the same on every network. Another network or token can be used all the same, where the settings name it whole.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import Final

import msgspec


class Network(msgspec.Struct, frozen=True, kw_only=True):
    caip2: str
    chain_id: int
    v1_name: str  # in version 1 of the protocol; empty where it has none
    title: str
    testnet: bool


class Asset(msgspec.Struct, frozen=True, kw_only=True):
    """A token that takes signed authorizations (EIP-3009)."""

    network: str  # CAIP-2
    address: str  # as it is published: in the mixed case of EIP-55
    symbol: str
    decimals: int
    name: str  # of the EIP-712 domain
    version: str


def _network(chain_id: int, v1_name: str, title: str, *, testnet: bool = False) -> Network:
    return Network(
        caip2=f"eip155:{chain_id}", chain_id=chain_id, v1_name=v1_name, title=title, testnet=testnet
    )


def _usdc(chain_id: int, address: str, name: str) -> Asset:
    return Asset(
        network=f"eip155:{chain_id}", address=address, symbol="USDC", decimals=6, name=name, version="2"
    )


NETWORKS: Final = (
    _network(8453,  "base",           "Base"),
    _network(84532, "base-sepolia",   "Base Sepolia", testnet=True),
    _network(137,   "polygon",        "Polygon"),
    _network(43114, "avalanche",      "Avalanche"),
    _network(43113, "avalanche-fuji", "Avalanche Fuji", testnet=True),
)  # fmt: skip

ASSETS: Final = (
    _usdc(8453,  "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", "USD Coin"),
    _usdc(84532, "0x036CbD53842c5426634e7929541eC2318f3dCF7e", "USDC"),
    _usdc(137,   "0x3c499c542cEF5E3811e1192ce70d8cC03d5c3359", "USD Coin"),
    _usdc(43114, "0xB97EF9Ef8734C71904D8002F8b6Bc66Dd9c48a6E", "USD Coin"),
    _usdc(43113, "0x5425890298aed601595a70AB815c96711a31Bc65", "USD Coin"),
)  # fmt: skip

_BY_NAME: Final = MappingProxyType(
    {name: network for network in NETWORKS for name in (network.caip2, network.v1_name)}
)
_USUAL: Final = MappingProxyType({asset.network: asset for asset in ASSETS})
# CAIP-2 allows 32 characters for the reference; a chain id above 2**53 would not survive most JSON.
_EIP155: Final = re.compile(r"eip155:([1-9][0-9]{0,14})")


def find_network(text: str) -> Network | None:
    """One of the table, by its CAIP-2 id or its name in version 1."""
    return _BY_NAME.get(text)


def evm_network(caip2: str) -> Network | None:
    """Any network whose id has the form `eip155:<chain id>`: of the table, or with no more to it than its number."""
    if known := _BY_NAME.get(caip2):
        return known if caip2 == known.caip2 else None
    match = _EIP155.fullmatch(caip2)
    return _network(int(match[1]), "", f"chain {match[1]}") if match else None


def usual_asset(caip2: str) -> Asset | None:
    return _USUAL.get(caip2)
