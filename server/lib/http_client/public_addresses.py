"""Whether an IP address is one that the public internet routes to one machine: the only kind that may be called for strangers.

What is special comes from IANA's registries (RFC 6890 and its successors), written out here so that it does not change with
the interpreter. Of IPv6 only 2000::/3 is unicast that is routed to everybody (RFC 4291 §2.4): mapped, translated, unique-local,
link-local and multicast addresses fall out by that alone. Resolving names, and connecting, is server/run/pinned_fetcher.py's.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final, TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address

_V4: Final = tuple(
    IPv4Network(network)
    for network in (
        "0.0.0.0/8",          # this host, this network
        "10.0.0.0/8",         # private
        "100.64.0.0/10",      # carrier-grade NAT; also where some clouds keep their metadata
        "127.0.0.0/8",        # loopback
        "168.63.129.16/32",   # a public address by which one cloud's machines reach their host
        "169.254.0.0/16",     # link-local; metadata of most clouds
        "172.16.0.0/12",      # private
        "192.0.0.0/24",       # protocol assignments
        "192.0.2.0/24",       # documentation
        "192.31.196.0/24",    # AS112: answered by the nearest network
        "192.52.193.0/24",    # multicast tunnels
        "192.88.99.0/24",     # relays of 6to4, withdrawn
        "192.168.0.0/16",     # private
        "192.175.48.0/24",    # AS112
        "198.18.0.0/15",      # benchmarking
        "198.51.100.0/24",    # documentation
        "203.0.113.0/24",     # documentation
        "224.0.0.0/4",        # multicast
        "240.0.0.0/4",        # reserved, and broadcast
    )
)  # fmt: skip

_V6: Final = tuple(
    IPv6Network(network)
    for network in (
        "2001::/23",          # protocol assignments: Teredo (both its IPv4 addresses), benchmarking, ORCHID, AS112 …
        "2001:db8::/32",      # documentation
        "2002::/16",          # 6to4: leads to whatever IPv4 address it holds
        "2620:4f:8000::/48",  # AS112
        "3fff::/20",          # documentation
    )
)  # fmt: skip

_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")
# RFC 6052 §2.1: what a network without IPv4 resolves every IPv4 name to. Its sister 64:ff9b:1::/48 is for local use.
_NAT64: Final = IPv6Network("64:ff9b::/96")
# RFC 5214 §6.1: an interface identifier that holds the IPv4 address to tunnel to, under any prefix.
_ISATAP: Final = frozenset({0x0000_5EFE, 0x0200_5EFE})


def is_public(address: Address) -> bool:
    """Whether it is global unicast. An address that holds another one is so only if that one is as well."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _V4)
    if address.scope_id is not None:
        return False
    value = int(address)
    last = IPv4Address(value & 0xFFFF_FFFF)
    if address in _NAT64:
        return is_public(last)
    if address not in _GLOBAL_UNICAST or any(address in network for network in _V6):
        return False
    return (value >> 32) & 0xFFFF_FFFF not in _ISATAP or is_public(last)
