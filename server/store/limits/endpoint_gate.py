"""The gate of an MCP endpoint: how often one address may knock, how often one caller may ask, and how much of theirs runs at once.

An address is counted before anything of a request is looked at but its head. A caller who turns out to be known has a budget of their
own, and the address gets back what it was charged: many people share an address, and are not each other's flood. What one tool allows is
tool_limits.py's. Nothing here waits.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final

import msgspec

from auth.values.identity_model import UNIDENTIFIED, Principal
from server.lib.rates.rates import whole_seconds
from server.lib.rates.usage_table import UsedRates
from server.store.limits.restraint_counts import Restraint

if TYPE_CHECKING:
    from server.store.limits.tool_limits import ToolBounds

# What one household or host is given of IPv6: counting its single addresses would count nothing.
_SITE_BITS: Final = 64
_SITES: Final = 4096


class GateRules(msgspec.Struct, frozen=True, kw_only=True):
    """What is no rate."""

    calls_at_once: int  # 0: as many as there are
    loopback: bool  # whether callers on this machine are counted as well


def site_of(address: str, loopback: bool = True) -> str:
    """What an address is counted under; "" for one that is not. `loopback`: those of this machine are."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return ""  # a Unix socket, where everybody is the proxy behind it
    mapped = getattr(found, "ipv4_mapped", None)
    found = found if mapped is None else mapped
    if found.is_loopback and not loopback:
        return ""
    if found.version == 6:
        return str(ipaddress.ip_network((int(found), _SITE_BITS), strict=False))
    return str(found)


_site: Final = lru_cache(_SITES)(site_of)


def sharer_of(principal: Principal, address: str) -> str:
    """By what callers share what there is only so much of: a person has one share, however many programs they use, and those of whom
    nothing is known have one for each address."""
    if principal.kind in UNIDENTIFIED and principal.grant_id is None:
        return _site(address)
    return f"{principal.kind._value_}:{principal.subject}"


class ServerLimits(msgspec.Struct, kw_only=True):
    """All that bounds the callers of one server. `bounds` are others when its settings are."""

    gate: Gate
    restraint: Restraint
    bounds: ToolBounds | None = None  # where any tool has bounds


class Gate:
    """`site_of`: what an address is counted under, "" for one that is not."""

    def __init__(
        self,
        rules: GateRules,
        restraint: Restraint,
        *,
        addresses: UsedRates | None,
        callers: UsedRates | None,
    ) -> None:
        """`addresses`, `callers`: where they are counted; None: nowhere."""
        self.site_of: Final[Callable[[str], str]] = lru_cache(_SITES)(
            partial(site_of, loopback=rules.loopback)
        )
        self.counts_all: Final = rules.loopback  # also those whose address is not counted
        self.calls_at_once: Final = rules.calls_at_once
        self.restraint: Final = restraint
        # A request from a site: 0, or for how many nanoseconds it has to wait. The table's own: every request comes by here.
        self.knock: Final[Callable[[str], int]] = _come_in if addresses is None else addresses.use
        self._addresses = addresses
        self._callers = callers
        self._running: dict[str, int] = {}

    def turned_back(self, site: str, wait: int) -> int:
        """Somebody who knocked too often; in so many seconds they may come again."""
        self.restraint.note(site, "address")
        return whole_seconds(wait)

    def recognise(self, principal: Principal, site: str) -> int:
        """It is from this caller, who has been let in: 0, or after how many seconds they may come again."""
        if principal.kind in UNIDENTIFIED and principal.grant_id is None:
            return 0  # of whom no more is known than where they are
        who = f"{principal.kind._value_}:{principal.subject}"
        if site and self._addresses is not None:
            self._addresses.give_back(site)
        if self._callers is None or not (wait := self._callers.use(who)):
            return 0
        self.restraint.note(who, "caller")
        return whole_seconds(wait)

    def recognise_more(self, principal: Principal, address: str, more: int) -> int:
        """So many more of theirs came in the same request, which was counted as one: as `recognise`."""
        site = self.site_of(address)
        known = principal.kind not in UNIDENTIFIED or principal.grant_id is not None
        rates = self._callers if known else self._addresses
        if rates is None or not (site or (known and self.counts_all)):
            return 0
        who = f"{principal.kind._value_}:{principal.subject}" if known else site
        for _ in range(more):
            if wait := rates.use(who):
                self.restraint.note(who, "caller" if known else "address")
                return whole_seconds(wait)
        return 0

    def begin(self, who: str) -> bool:
        """One more of theirs runs, until `end`. False: there are too many."""
        running = self._running.get(who, 0)
        if running >= self.calls_at_once:
            self.restraint.note(who, "at once")
            return False
        self._running[who] = running + 1
        return True

    def end(self, who: str) -> None:
        running = self._running[who] - 1
        if running:
            self._running[who] = running
        else:
            del self._running[who]


def _come_in(_site: str) -> int:
    return 0
