"""Addresses as people share them: one household, office or phone is a /24 of IPv4 or a /64 of IPv6.

Used to count tries per requester, and to ask "does this request come from where you are?" on the confirm page.
Reading the address off a connection, and trusting a proxy's word for it, is the listener's.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network


@lru_cache(maxsize=1024)  # the same few addresses come with every request
def _address(ip: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(ip.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


@lru_cache(maxsize=1024)
def is_loopback(ip: str) -> bool:
    address = _address(ip)
    return address is not None and address.is_loopback


@lru_cache(maxsize=1024)
def counted_as(ip: str) -> str:
    """Return the key under which attempts are counted: an IPv4 address, or the /64 of an IPv6 subscriber."""
    address = _address(ip)
    if address is None:
        return "unknown"
    if isinstance(address, IPv6Address):
        return str(ip_network((int(address), 64), strict=False))
    return str(address)


@lru_cache(maxsize=1024)
def neighbourhood(ip: str) -> str:
    """Return the wider network that one customer may hold: the /24 of an IPv4 address, the /48 of an IPv6 address.

    One /48 has thousands of the networks that `counted_as` tells apart.
    """
    address = _address(ip)
    if address is None:
        return "unknown"
    return str(ip_network(f"{address}/{48 if isinstance(address, IPv6Address) else 24}", strict=False))


def same_network(one: str, other: str) -> bool:
    """Return whether two addresses share a /24 or /64, or are both loopback. An invalid address shares none."""
    first, second = _address(one), _address(other)
    if first is None or second is None:
        return False
    if first.is_loopback or second.is_loopback:
        return first.is_loopback and second.is_loopback
    if first.version != second.version:
        return False
    prefix = 24 if first.version == 4 else 64
    return second in ip_network((first, prefix), strict=False)
