"""A log event for each decision of identity, from the row that the audit trail has of it: who, what, and how it ended.

The trail is the record; these lines are for whoever watches. Nothing is added that is not in the row, and no row has a secret.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from auth.values.database import AuditEntry
from server.lib.log.logger import Logger

# What clients do by themselves, all day long.
ROUTINE: Final = frozenset({"refresh.rotated", "refresh.replayed", "token.introspected", "api_key.used"})
# What stands in front of tools says itself what it decides, more often than there are rows of it.
SAID_ALREADY: Final = "policy."
FIRST_START: Final = "local:setup"  # what a new store is furnished with
# Somebody else may have a token, guesses, or had a hand in the data directory: worth waking someone for.
ALARMING: Final = frozenset(
    {
        "refresh.reuse",
        "refresh.future",
        "key.dropped",
        "audit.head_lost",
        "ledger.head_lost",
        "store.restored",
    }
)
# Somebody had a hand in the trail itself, or in the books.
WRONG: Final = frozenset({"audit.altered", "ledger.altered", "rights.altered"})
ALARMING_ENDINGS: Final = (".reuse", ".reused", ".replay", ".locked", ".locked_out")


def log_decisions(log: Logger) -> Callable[[Sequence[AuditEntry]], None]:
    """For the store's `on_audit`."""

    def listen(entries: Sequence[AuditEntry]) -> None:
        # Written out here, for a refresh is not to pay for functions more.
        for entry in entries:
            if entry.event.startswith(SAID_ALREADY):
                continue
            say = getattr(log, level_of(entry))
            said = {name: value for name, value in _said(entry).items() if value}
            say(f"identity.{entry.event}", **said)

    return listen


def is_told(entry: AuditEntry) -> bool:
    return not entry.event.startswith(SAID_ALREADY)


def say_named(log: Logger, entry: AuditEntry, names: Mapping[str, str]) -> None:
    """The same, with names for people."""
    said = {name: value for name, value in {**_said(entry), **names}.items() if value}
    getattr(log, level_of(entry))(f"identity.{entry.event}", **said)


def level_of(entry: AuditEntry) -> str:
    if entry.event in WRONG:
        return "error"
    if entry.event in ALARMING or entry.event.endswith(ALARMING_ENDINGS):
        return "warning"
    routine = entry.event in ROUTINE or entry.actor == FIRST_START
    return "debug" if routine and entry.outcome == "ok" else "info"


def _said(entry: AuditEntry) -> dict[str, str | None]:
    return {
        "outcome": entry.outcome,
        "actor": entry.actor,
        "client": entry.client_id,
        "grant": entry.grant_id,
        "ip": entry.ip,
        "user_agent": entry.user_agent,
        "reason": entry.reason,
    }
