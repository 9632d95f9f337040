"""The log of what anybody on the network can cause: so many lines a minute for one network and for all, then how many more there were."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from auth.values.ip_networks import counted_as
from server.lib.log.logger import Logger

# A person who clicks through pages leaves fewer.
LINES_PER_NETWORK: Final = 60
# 432,000 a day, of a few hundred bytes each: what strangers write in a day fits on any disk.
LINES: Final = 300
SECONDS: Final = 60.0
TOO_MANY_REQUESTS: Final = 429


class BoundedLog:
    """Implements `Logger`: an event belongs to the network of its field `ip`. Errors are faults of ours, and are not bounded; what is
    for `debug` somebody has asked for; `everything`: nothing is bounded."""

    def __init__(self, log: Logger, *, everything: bool = False) -> None:
        self.debug: Final = log.debug
        self.error: Final = log.error
        self.exception: Final = log.exception
        self._log = log
        self._everything = everything
        self._lines = 0
        self._untold = 0
        self._networks: dict[str, int] = {}  # events of each, told or not; of as many as there are lines

    def info(self, event: str, **fields: object) -> None:
        if self._has_room(fields):
            self._log.info(event, **fields)

    def warning(self, event: str, **fields: object) -> None:
        if self._has_room(fields):
            self._log.warning(event, **fields)

    def settle(self) -> None:
        """Say how many events had no line, and begin anew."""
        if self._untold:
            busiest = max(self._networks, key=self._networks.__getitem__)
            self._log.info("log.more", count=self._untold, most_from=busiest, of_it=self._networks[busiest])
        self._lines = self._untold = 0
        self._networks.clear()

    async def run(self, *, sleep: Callable[[float], Awaitable[None]] = trio.sleep) -> None:
        """Until cancelled."""
        try:
            while True:
                await sleep(SECONDS)
                self.settle()
        finally:
            self.settle()

    def _has_room(self, fields: dict[str, object]) -> bool:
        """Whoever is told to come back later is only counted: being told so was the answer to a flood."""
        if self._everything:
            return True
        network, networks = counted_as(str(fields.get("ip", ""))), self._networks
        events = networks.get(network, 0)
        if events or len(networks) < LINES:
            networks[network] = events + 1
        if fields.get("status") == TOO_MANY_REQUESTS or events >= LINES_PER_NETWORK or self._lines >= LINES:
            self._untold += 1
            return False
        self._lines += 1
        return True
