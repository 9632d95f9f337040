"""The audit trail: one row for every decision of identity, without tokens, codes and passphrases.

A poll that is merely still pending (or too early) decides nothing and leaves no row: a waiting terminal would fill the table. Each minute
has room for so many refusals that concern nobody in particular; the rest is counted, and one row says how many they were.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, TypeVar, cast

from auth.values.database import AuditEntry, Db
from auth.values.identity_model import Millis
from auth.values.limits_and_lifetimes import MINUTE, REFUSALS_PER_MINUTE
from auth.values.requester import Requester

REFUSALS: Final = "audit_refusals"  # in `meta`: a minute, and how many it has had
KEY_PURPOSE: Final = "audit-chain"

Outcome = Literal["ok", "refused"]
T = TypeVar("T")


def actor(by: str) -> str:
    """Return `user:…`, `client:…`, `local:<uid>` as they are; make `user:<id>` of a bare user id."""
    return by if ":" in by or by == "anonymous" else f"user:{by}"


def record(
    db: Db,
    at: Millis,
    event: str,
    *,
    actor: str = "anonymous",
    who: Requester | None = None,
    outcome: Outcome = "ok",
    reason: str = "",
    refused: str = "",
    client_id: str | None = None,
    grant_id: str | None = None,
    ip: str | None = None,
    user_agent: str | None = None,
) -> None:
    """Append a decision. `refused` is the reason of a refusal, in place of `outcome` and `reason`; `who`, of the other two at the end."""
    if who is not None:
        ip, user_agent = who.ip, who.user_agent
    outcome = "refused" if refused else outcome
    entry = AuditEntry(at, event, actor, client_id, grant_id, ip, user_agent, outcome, refused or reason)
    if outcome == "ok" or not _of_nobody(entry) or _has_room(db, at):
        db.audit(entry)


def record_client(
    db: Db,
    at: Millis,
    event: str,
    client_id: str,
    who: Requester,
    *,
    reason: str = "",
    refused: str = "",
    grant_id: str | None = None,
) -> None:
    """Append a decision on what a client asked for itself."""
    record(
        db,
        at,
        event,
        actor=f"client:{client_id}",
        who=who,
        reason=reason,
        refused=refused,
        client_id=client_id,
        grant_id=grant_id,
    )


def asked_from(job: Callable[[Db], T], who: Requester) -> Callable[[Db], T]:
    """Make a job's rows name where a person in a browser asked for it. Jobs of the terminal know of no such place."""

    def there(db: Db) -> T:
        return job(cast("Db", _AskedFrom(db, who)))

    return there


class _AskedFrom:
    """The `Db` of a job whose rows name where a person asked; for all else it is the store's."""

    def __init__(self, db: Db, who: Requester) -> None:
        self._db = db
        self._who = who

    def audit(self, entry: AuditEntry) -> None:
        # Rows of people, not one that counts the refusals of others.
        if entry.ip is None and entry.actor.startswith("user:"):
            entry = entry._replace(ip=self._who.ip, user_agent=self._who.user_agent)
        self._db.audit(entry)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)


def settle(db: Db, now: Millis) -> None:
    """Say how many refusals were only counted, once their minute is over, as a job for now and then."""
    minute, count = _counted(db)
    if count > REFUSALS_PER_MINUTE and minute != now // MINUTE:
        _tell_of_more(db, now, count)
        _put(db, now // MINUTE, 0)


def is_settled(db: Db, now: Millis) -> bool:
    """Return whether `settle` has nothing to do, as a job that reads."""
    minute, count = _counted(db)
    return count <= REFUSALS_PER_MINUTE or minute == now // MINUTE


def _of_nobody(entry: AuditEntry) -> bool:
    """Return whether no person, login or key is concerned: anybody on the network can cause as many as the limits allow."""
    return entry.grant_id is None and (entry.actor == "anonymous" or entry.actor.startswith("client:"))


def _has_room(db: Db, at: Millis) -> bool:
    minute, count = _counted(db)
    if minute != at // MINUTE:
        if count > REFUSALS_PER_MINUTE:
            _tell_of_more(db, at, count)
        count = 0
    _put(db, at // MINUTE, count + 1)
    return count < REFUSALS_PER_MINUTE


def _tell_of_more(db: Db, at: Millis, count: int) -> None:
    reason = f"and {count - REFUSALS_PER_MINUTE} more of nobody in particular, within a minute"
    db.audit(AuditEntry(at, "audit.refusals", "anonymous", None, None, None, None, "refused", reason))


def _counted(db: Db) -> tuple[int, int]:
    """Return the minute of the last refusal of nobody in particular, and how many it has had."""
    row = db.fetch_one("SELECT value FROM meta WHERE key = ?", REFUSALS)
    minute, _, count = ("0:0" if row is None else row["value"]).partition(":")
    return int(minute), int(count)


def _put(db: Db, minute: int, count: int) -> None:
    sql = "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
    db.execute(sql, REFUSALS, f"{minute}:{count}")
