"""Who is connected: admission by the connection caps, the reaper that looks at every deadline, the drain's first step."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from enum import Enum, auto
from typing import Final

import trio

from .disconnect_watch import DisconnectWatch
from .response import date_line
from .server_connection import Connection
from .shared_state import Serving

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

# What one household or host is given: counting single addresses of a /64 would count nothing.
_IPV6_SITE_BITS: Final = 64


class ConnectionPlace(Enum):
    GRANTED = auto()
    VITAL = auto()  # for one question whether the server lives
    OVER_CAP = auto()
    OVER_IP_CAP = auto()


class ConnectionTable:
    """The live connections of one server. All methods but `reap` are synchronous, so counts and members always agree."""

    def __init__(self, serving: Serving, *, exempt: Sequence[Network] = ()) -> None:
        self._serving = serving
        self._exempt = tuple(exempt)
        self._live: set[Connection] = set()
        self._places: dict[str, int] = {}
        self._taken = 0
        self._vital: list[str | None] = []

    def __len__(self) -> int:
        return self._taken

    def admit(self, ip: str | None) -> tuple[ConnectionPlace, str | None]:
        """→ (the decision, the key to give back to `leave`). A place is taken when granted, or vital: of these an address has one."""
        limits = self._serving.limits
        counters = self._serving.counters
        counters.accepted += 1
        key = None if ip is None else self._key(ip)
        if self._taken >= limits.connections:
            free = self._serving.vital_paths and len(self._vital) < limits.vital_connections
            if free and (key is None or key not in self._vital):
                self._vital.append(key)
                return ConnectionPlace.VITAL, key
            counters.over_cap += 1
            return ConnectionPlace.OVER_CAP, None
        if key is not None:
            held = self._places.get(key, 0)
            if held >= limits.connections_per_ip:
                counters.over_ip_cap += 1
                return ConnectionPlace.OVER_IP_CAP, None
            self._places[key] = held + 1
        self._taken += 1
        return ConnectionPlace.GRANTED, key

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

    def remove(self, connection: Connection, place: str | None, *, vital: bool = False) -> None:
        self._live.discard(connection)
        if vital:
            self._vital.remove(place)
        else:
            self.leave(place)

    def begin_drain(self) -> None:
        for connection in tuple(self._live):
            connection.begin_drain()

    async def cut_off_at(self, moment: float) -> None:
        await trio.sleep_until(moment)
        for connection in tuple(self._live):
            connection.cut_off()

    async def reap(self) -> None:
        """For ever, every tick: end the connections whose peers are too late, and give companions to requests that last."""
        serving = self._serving
        async with trio.open_nursery() as companions:
            while True:
                await trio.sleep(serving.limits.tick_seconds)
                now = serving.now = trio.current_time()
                serving.date = date_line()
                for connection in self._live:
                    connection.check(now)
                while serving.companions:
                    companion = serving.companions.pop()
                    companion.prepare()
                    companions.start_soon(self._accompany, companion)

    async def _accompany(self, companion: DisconnectWatch) -> None:
        """A fault of ours costs the request, not the server."""
        try:
            await companion.run()
        except Exception as error:
            self._serving.counters.crashed += 1
            self._serving.log.error("http.companion_failed", exc_info=error)
            companion.give_up()

    def is_proxy(self, ip: str | None) -> bool:
        """Whether this peer is one of those that speak for many."""
        try:
            return ip is not None and any(plain_address(ip) in network for network in self._exempt)
        except ValueError:
            return False

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
