"""Names that tools of a server had before their owner changed an id, a separator, a prefix or a name: by these they can be called still.

A name that a tool has now is never an old one. Each that is called is told to the log once, and to `ostiary doctor`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from datetime import UTC, date, datetime
from types import MappingProxyType
from typing import Any, Final

MOST_USED: Final = 100  # names whose use is remembered


def _today() -> date:
    return datetime.now(UTC).date()


class OldNames:
    """The old names of one server's tools, and which of them were called since the start."""

    def __init__(
        self,
        names: Mapping[str, str] = MappingProxyType({}),
        until: date | None = None,
        today: Callable[[], date] = _today,
    ) -> None:
        """Keep the parts. `names`: what a tool was called → what it is called; a `*` is the same on either side. `until`: the last day of that, in
        UTC."""
        self.names = names
        self.until = until
        self.used: dict[str, dict[str, str]] = {}  # old name → what it is now, and who called it last
        self._today = today

    def take(self, names: Mapping[str, str], until: date | None) -> None:
        """Follow settings that were read again."""
        if names != self.names:
            self.used.clear()
        self.names, self.until = names, until

    @property
    def are_over(self) -> bool:
        """Their end has come."""
        return self.until is not None and self._today() > self.until

    def now(self, name: str, offered: Container[str]) -> str | None:
        """Return the name that the tool has now; None where none that is offered was called so."""
        if not self.names or self.are_over:
            return None
        found = (_fitting(name, old, now) for old, now in self.names.items())
        return next((each for each in found if each is not None and each in offered), None)

    def note(self, name: str, now: str, program: str) -> bool:
        """Remember a call by an old name, and say whether it is the first."""
        first = name not in self.used
        if not first or len(self.used) < MOST_USED:
            self.used[name] = {"now": now, "program": program}
        return first and name in self.used

    def told(self) -> Mapping[str, Any]:
        """Tell what the owner might want to know of them; nothing where there are none."""
        if not self.names:
            return {}
        return {
            "used": self.used,
            "until": "" if self.until is None else self.until.isoformat(),
            "over": self.are_over,
        }


def _fitting(name: str, old: str, now: str) -> str | None:
    before, star, after = old.partition("*")
    if not star:
        return now if name == old else None
    if len(name) <= len(before) + len(after) or not (name.startswith(before) and name.endswith(after)):
        return None
    return now.replace("*", name[len(before) : len(name) - len(after)])
