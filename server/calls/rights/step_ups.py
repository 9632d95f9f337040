"""Who was asked to let a program do more, and did not. Most programs ask again whenever they are challenged, so that a person who said
no would be sent to the same page with every call: for a while the tool tells what is missing instead.

A no is a login that came back without what the challenge named, or the word of the person at the page. Whoever grants it is not asked
about here any more: rights come first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import trio

from auth.values.database import AuditEntry
from auth.values.identity_model import Principal

# Long enough for a conversation to go on without it, short enough for somebody who has changed their mind and does not know how.
STANDS_SECONDS: Final = 10 * 60.0
# Callers, each with what they lack. Beyond it the oldest is forgotten, and would be asked once more.
MAX_KEPT: Final = 1024

# A person said no to a program, in a browser or to its code.
_DENIED: Final = frozenset({"code.denied", "device.denied"})


class _Asked(msgspec.Struct):
    grant_id: str | None  # the login that was asked for more
    since: float
    declined: bool = False


class StepUps:
    """Those of one server."""

    def __init__(self, *, clock: Callable[[], float] = trio.current_time, most: int = MAX_KEPT) -> None:
        self._clock = clock
        self._most = most
        self._asked: dict[tuple[str, frozenset[str]], _Asked] = {}

    def __len__(self) -> int:
        return len(self._asked)

    def may_ask(self, principal: Principal, missing: frozenset[str]) -> bool:
        """Whether the caller is to be challenged for these scopes now, which counts as asking."""
        key, now = (principal.key(), missing), self._clock()
        found = self._asked.get(key)
        if found is None or now - found.since >= STANDS_SECONDS:
            self._asked.pop(key, None)
            self._asked[key] = _Asked(principal.grant_id, now)
            if len(self._asked) > self._most:
                del self._asked[next(iter(self._asked))]
            return True
        if not found.declined and found.grant_id != principal.grant_id:
            found.declined, found.since = True, now
        return not found.declined

    def hear(self, entries: Sequence[AuditEntry]) -> None:
        """For the store's `on_audit`."""
        for entry in entries:
            if entry.event not in _DENIED or entry.outcome != "ok":
                continue
            caller = f"{entry.actor}:{entry.client_id}"
            for (key, _), asked in self._asked.items():
                if key == caller:
                    asked.declined, asked.since = True, self._clock()
