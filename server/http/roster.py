"""Who is connected: admission by the connection caps, the reaper that looks at every deadline, the drain's first step."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from enum import Enum, auto
from typing import Final

import trio

from .connection import Connection
from .serving import Serving

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

# What one household or host is given: counting single addresses of a /64 would count nothing.
_IPV6_SITE_BITS: Final = 64


class Admission(Enum):
    GRANTED = auto()
    OVER_CAP = auto()
    OVER_IP_CAP = auto()


class Roster:
    """The live connections of one server. All methods but `reap` are synchronous, so counts and members always agree."""

    def __init__(self, serving: Serving, *, exempt: Sequence[Network] = ()) -> None:
        self._serving = serving
        self._exempt = tuple(exempt)
        self._live: set[Connection] = set()
        self._places: dict[str, int] = {}
        self._taken = 0

    def __len__(self) -> int:
        return self._taken

    def admit(self, ip: str | None) -> tuple[Admission, str | None]:
        """→ (the decision, the key to give back to `leave`). A place is taken when granted."""
        limits = self._serving.limits
        counters = self._serving.counters
        counters.accepted += 1
        if self._taken >= limits.connections:
            counters.over_cap += 1
            return Admission.OVER_CAP, None
        key = None if ip is None else self._key(ip)
        if key is not None:
            held = self._places.get(key, 0)
            if held >= limits.connections_per_ip:
                counters.over_ip_cap += 1
                return Admission.OVER_IP_CAP, None
            self._places[key] = held + 1
        self._taken += 1
        return Admission.GRANTED, key

    def leave(self, key: str | None) -> None:
        self._taken -= 1
        if key is not None:
            held = self._places[key] - 1
            if held:
                self._places[key] = held
            else:
                del self._places[key]

    def add(self, connection: Connection) -> None:
        self._live.add(connection)

    def remove(self, connection: Connection) -> None:
        self._live.discard(connection)

    def close_idle(self) -> None:
        for connection in self._live:
            connection.close_if_idle()

    async def reap(self) -> None:
        """For ever, every tick: end the connections whose peers are too late."""
        while True:
            await trio.sleep(self._serving.limits.tick_seconds)
            now = self._serving.now = trio.current_time()
            for connection in self._live:
                connection.check(now)

    def _key(self, ip: str) -> str | None:
        """What this peer's connections are counted under; None where one address stands for many callers."""
        try:
            address = plain_address(ip)
        except ValueError:
            return ip
        if address.is_loopback or any(address in network for network in self._exempt):
            return None
        if address.version == 6:
            return str(ipaddress.ip_network((int(address), _IPV6_SITE_BITS), strict=False))
        return str(address)


def plain_address(text: str) -> IpAddress:
    """An address without its zone, and IPv4 where it is IPv4 in IPv6's clothes. Raises ValueError."""
    address = ipaddress.ip_address(text.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return address if mapped is None else mapped
