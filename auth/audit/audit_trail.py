"""The audit trail: one row for every decision of identity. Never a token, a code, a passphrase.

A poll that is merely still pending (or too early) decides nothing and leaves no row: a waiting terminal would fill the table. Of refusals
that concern nobody in particular, each minute has room for so many; the rest is counted, and one row says how many they were.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, TypeVar

from auth.values.database import AuditEntry, Db, Row
from auth.values.identity_model import Millis
from auth.values.limits_and_lifetimes import MINUTE, REFUSALS_PER_MINUTE
from auth.values.requester import Requester

REFUSALS: Final = "audit_refusals"  # in `meta`: a minute, and how many it has had
KEY_PURPOSE: Final = "audit-chain"

Outcome = Literal["ok", "refused"]
T = TypeVar("T")


def actor(by: str) -> str:
    """`user:…`, `client:…`, `local:<uid>` as they are; a bare user id becomes `user:<id>`."""
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
    """The same job for a person in a browser: its rows name where that was. For jobs that a terminal has as well, and that know of none."""

    def there(db: Db) -> T:
        return job(_AskedFrom(db, who))

    return there


class _AskedFrom:
    """A job's `Db`; whatever else the store's has is there, too."""

    def __init__(self, db: Db, who: Requester) -> None:
        self._db = db
        self._who = who

    def execute(self, sql: str, *params: object) -> int:
        return self._db.execute(sql, *params)

    def put_in(self, sql: str, *params: object) -> None:
        self._db.put_in(sql, *params)

    def fetch_one(self, sql: str, *params: object) -> Row | None:
        return self._db.fetch_one(sql, *params)

    def fetch_all(self, sql: str, *params: object) -> list[Row]:
        return self._db.fetch_all(sql, *params)

    def foresee(self, sql: str, *params: object) -> None:
        self._db.foresee(sql, *params)

    def changed(self, kind: str, *entity_ids: str) -> None:
        self._db.changed(kind, *entity_ids)

    def takes_away(self) -> None:
        self._db.takes_away()

    def audit(self, entry: AuditEntry) -> None:
        # Rows of people, not one that counts the refusals of others.
        if entry.ip is None and entry.actor.startswith("user:"):
            entry = entry._replace(ip=self._who.ip, user_agent=self._who.user_agent)
        self._db.audit(entry)

    def seal(self, said: bytes) -> str:
        return self._db.seal(said)

    def altered(self, table: str, key: str) -> None:
        self._db.altered(table, key)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)


def settle(db: Db, now: Millis) -> None:
    """A job, for now and then: say how many refusals were only counted, once their minute is over."""
    minute, count = _counted(db)
    if count > REFUSALS_PER_MINUTE and minute != now // MINUTE:
        _tell_of_more(db, now, count)
        _put(db, now // MINUTE, 0)


def is_settled(db: Db, now: Millis) -> bool:
    """A job that reads: whether `settle` has nothing to do."""
    minute, count = _counted(db)
    return count <= REFUSALS_PER_MINUTE or minute == now // MINUTE


def _of_nobody(entry: AuditEntry) -> bool:
    """No person, no login, no key: anybody on the network can cause as many as the limits allow."""
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
    """The minute of the last refusal of nobody in particular, and how many it has had."""
    row = db.fetch_one("SELECT value FROM meta WHERE key = ?", REFUSALS)
    minute, _, count = ("0:0" if row is None else row["value"]).partition(":")
    return int(minute), int(count)


def _put(db: Db, minute: int, count: int) -> None:
    sql = "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
    db.execute(sql, REFUSALS, f"{minute}:{count}")
