"""Names in Host headers that this server does not answer for, told in the log with the settings that would change that.

The commonest mistake of a deployment is an `issuer` that is not what callers type. Strangers try names as well: each is told once an hour,
and few in all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from server.lib.log.logger import Logger
from server.lib.shortened import short_name

TOLD_AGAIN_SECONDS: Final = 3600.0
# In so many seconds. A machine has few names that people mean.
MOST_NAMES: Final = 8


class UnknownHosts:
    def __init__(self, log: Logger, clock: Callable[[], float]) -> None:
        """`clock`: seconds that never go back."""
        self._log = log
        self._clock = clock
        self._told: dict[str, float] = {}

    def __call__(self, name: str) -> None:
        now = self._clock()
        self._told = {each: at for each, at in self._told.items() if now - at < TOLD_AGAIN_SECONDS}
        if name in self._told or len(self._told) >= MOST_NAMES:
            return
        self._told[name] = now
        hint = "set issuer to the address that callers type, or add the name to allowed_hosts"
        self._log.warning("http.unknown_host", host=short_name(name), hint=hint)
