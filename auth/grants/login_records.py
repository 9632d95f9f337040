"""Logins as the people in charge see them: which live, and ending them. A revocation is known everywhere at its commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal

import msgspec

from auth.audit import audit_trail
from auth.grants.token_request import REFRESH_EPOCH, epoch
from auth.values import sealed_rows
from auth.values.database import Db, JobStore, Row
from auth.values.identity_model import LIVE_USER_STATES, OF_NOBODY, Grant, Millis

SHOWN: Final = 1_000  # a page of logins; a private agent has tens
# Of one person's logins, how many are ended one by one, each with its row in the audit trail, when all of them are; one row
# speaks for the rest.
NAMED: Final = 500
PIECE: Final = 200  # logins ended in one write when there are many: some milliseconds of the writer's time

AT_ONCE: Final = (
    20 * PIECE
)  # ended for one command, which is then given again: its terminal must not wait in vain
MADE_ROOM: Final = 20  # logins ended for a new one at most
OF_ONE: Final = 10_000  # logins of one person that are counted: many times as many as one may have
# Found in this order by their index, and so many at most: PostgreSQL believes that whoever has had very many logins has as many that live, and
# would go through all.
_SOON: Final = " ORDER BY expires_at LIMIT ?"

Standing = Literal["verified", "registered", "unverified"]
_SEARCHED: Final = (
    "u.name",
    "g.client_name",
    "c.name",
    "g.client_id",
    "g.hostname",
    "g.ip",
    "g.last_ip",
    "g.server",
)


class LoginRecord(msgspec.Struct, frozen=True, kw_only=True):
    grant: Grant
    user_name: str  # empty for a machine that has credentials of its own
    registered_name: str  # what the operator calls the client; `grant.client_name` is what it called itself
    client_kind: str = "builtin"
    standing: Standing = "unverified"  # what the program's name is worth
    paused: str = ""  # why it cannot be used now, though it was not revoked; empty: it can

    @property
    def named(self) -> str:
        """The program in words, as it calls itself, and where it says to be."""
        document = self.client_kind == "document"
        said = self.registered_name if document else self.grant.client_name or self.registered_name
        said = said or "a program without a name"
        return f"{said} on {self.grant.hostname}" if self.grant.hostname else said

    @property
    def usable(self) -> bool:
        """False while its user or client is disabled, or its user's time is over."""
        return not self.paused


def sessions(
    db: Db,
    now: Millis,
    *,
    subject: str | None = None,
    client_id: str | None = None,
    limit: int = SHOWN,
    after: str | None = None,
    before: tuple[Millis, str] | None = None,
    like: str = "",
) -> list[LoginRecord]:
    """List logins that are neither revoked nor over, last used first; of one person, or one client, if so asked. `after`: only those
    whose id comes after this one, and a page is those with the next ids. `before`: when the last one of a page was used, and its
    id; those of the next page follow it. `like`: something that the person, the program, its computer or address has in it."""
    living, values = _living(db, now, subject, client_id)
    sought, words = searched(like)
    living, values = living + sought, (*values, *words)
    if before is not None:
        living += " AND (g.last_used_at < ? OR (g.last_used_at = ? AND g.id > ?))"
        values = (*values, before[0], *before)
    if after is not None:
        living, values = f"{living} AND g.id > ?", (*values, after)
    rows = db.fetch_all(
        f"{RECORDS} WHERE {living} ORDER BY {'g.last_used_at DESC, g.id' if after is None else 'g.id'} LIMIT ?",
        *values,
        limit,
    )
    if after is not None:
        rows.sort(key=lambda row: (-row["last_used_at"], row["id"]))
    return [recorded(row, now) for row in rows]


RECORDS: Final = (
    "SELECT g.*, u.name AS user_name, u.state AS user_state, u.expires_at AS user_expires_at,"
    " c.name AS registered_name, c.state AS client_state, c.kind AS client_kind, c.auth_method AS auth_method"
    " FROM grants g LEFT JOIN users u ON u.id = g.subject JOIN clients c ON c.id = g.client_id"
)


def searched(like: str) -> tuple[str, tuple[str, ...]]:
    """Return SQL to go on with after a WHERE on `RECORDS`, and its parameters."""
    if not like:
        return "", ()
    tests = " OR ".join(f"instr(lower({column}), ?) > 0" for column in _SEARCHED)
    return f" AND ({tests})", (like.lower(),) * len(_SEARCHED)


def recorded(row: Row, now: Millis) -> LoginRecord:
    """Make a record of a row of `RECORDS`."""
    return LoginRecord(
        grant=Grant.of(row),
        user_name=row["user_name"] or "",
        registered_name=row["registered_name"],
        client_kind=row["client_kind"],
        standing=_standing(row),
        paused=_paused(row, now),
    )


def find(db: Db, grant_id: str, now: Millis) -> LoginRecord | None:
    """Find one login, as a job, whether it lives or not."""
    row = db.fetch_one(f"{RECORDS} WHERE g.id = ?", grant_id)
    return None if row is None else recorded(row, now)


def count(db: Db, now: Millis, *, subject: str | None = None, client_id: str | None = None) -> int:
    """Count those that `sessions` would list, were there no page."""
    living, values = _living(db, now, subject, client_id)
    sql = f"SELECT COUNT(*) AS n FROM grants g WHERE {living}"
    if subject is not None:
        sql = f"SELECT COUNT(*) AS n FROM (SELECT 1 AS one FROM grants g WHERE {living}{_SOON}) AS living"
        values = (*values, OF_ONE)
    row = db.fetch_one(sql, *values)
    return 0 if row is None else row["n"]


def _living(
    db: Db, now: Millis, subject: str | None, client_id: str | None
) -> tuple[str, tuple[object, ...]]:
    whose, values = _whose(subject, client_id)
    where = f"g.revoked_at IS NULL AND g.expires_at > ? AND g.idle_until > ? AND g.epoch = ?{whose}"
    return where, (now, now, epoch(db), *values)


def _whose(subject: str | None, client_id: str | None) -> tuple[str, tuple[str, ...]]:
    """Return SQL to go on with after a WHERE on `grants g`, and its parameters."""
    tests = (("subject", subject), ("client_id", client_id))
    sql = "".join(f" AND g.{column} = ?" for column, value in tests if value)
    persons = "" if subject is None else " AND g.principal_kind = 'user'"
    return sql + persons, tuple(value for _, value in tests if value)


def _standing(row: Row) -> Standing:
    """Weigh a name: a secret, a key or an address of its own proves it; an entry by the operator says so; else it is a mere claim."""
    if row["auth_method"] != "none" or row["client_kind"] == "document":
        return "verified" if row["client_kind"] != "dynamic" else "unverified"
    return "registered" if row["client_kind"] == "registered" else "unverified"


def _paused(row: Row, now: Millis) -> str:
    if row["client_state"] != "enabled":
        return "its program is disabled"
    if row["principal_kind"] in OF_NOBODY:
        return ""
    if row["user_state"] not in LIVE_USER_STATES:
        return f"the account is {row['user_state'] or 'gone'}"
    over = row["user_expires_at"] is not None and now >= row["user_expires_at"]
    return "the account is over" if over else ""


def revoke(db: Db, grant_id: str, *, reason: str, by: str, now: Millis) -> bool:
    """End a login, as a job, its refresh chain and all its access tokens; return False if there was nothing left to end."""
    db.takes_away()
    ended = db.execute(
        f"UPDATE grants SET revoked_at = ?, revoked_reason = ?, {sealed_rows.WIPED} WHERE id = ? AND revoked_at IS NULL",
        now,
        reason,
        grant_id,
    )
    if ended:
        db.changed("grant", grant_id)
        audit_trail.record(
            db, now, "grant.revoked", actor=audit_trail.actor(by), grant_id=grant_id, reason=reason
        )
    return bool(ended)


def end_epoch(db: Db, *, successor: str, reason: str, by: str, now: Millis) -> None:
    """End all logins that began before, as a job, and each yes that was not redeemed yet. One statement each, however
    many there are; `revoke_all` then says so of every login."""
    db.takes_away()
    db.execute("UPDATE meta SET value = ? WHERE key = ?", successor, REFRESH_EPOCH)
    db.changed("epoch", REFRESH_EPOCH)
    db.execute("DELETE FROM authorization_codes WHERE state = 'live'")
    db.execute(
        f"UPDATE device_codes SET state = 'denied', decided_at = ?, decided_by = ?, {sealed_rows.WIPED} WHERE state = 'approved'",
        now,
        by,
    )
    audit_trail.record(db, now, "grant.epoch", actor=audit_trail.actor(by), reason=reason)


def revoke_all(
    db: Db,
    *,
    subject: str | None = None,
    client_id: str | None = None,
    reason: str,
    by: str,
    now: Millis,
    limit: int = PIECE,
) -> int:
    """End logins of a person, of a client, or of everybody, as a job; those that ran out are left. Return how many ended: as many
    as `limit` means that there may be more."""
    whose, values = _whose(subject, client_id)
    # In the order of an index that those which have ended are not in: piece after piece, none is looked at twice.
    some = (
        f"SELECT g.id FROM grants g WHERE g.revoked_at IS NULL AND g.expires_at > ?{whose}"
        " ORDER BY g.created_at, g.id LIMIT ?"
    )
    return _revoke_some(db, some, (now, *values, limit), reason=reason, by=by, now=now)


def _revoke_some(db: Db, some: str, values: Sequence[object], *, reason: str, by: str, now: Millis) -> int:
    """End those whose ids the SQL `some` finds, in two statements: across a network each is a trip, and others wait to write."""
    db.takes_away()
    ended = db.fetch_all(
        f"UPDATE grants SET revoked_at = ?, revoked_reason = ?, {sealed_rows.WIPED} WHERE id IN ({some}) RETURNING id, created_at",
        now,
        reason,
        *values,
    )
    ended.sort(key=lambda row: (row["created_at"], row["id"]))
    db.changed("grant", *(row["id"] for row in ended))
    for row in ended:
        audit_trail.record(
            db, now, "grant.revoked", actor=audit_trail.actor(by), grant_id=row["id"], reason=reason
        )
    return len(ended)


def revoke_of_person(db: Db, subject: str, *, reason: str, by: str, now: Millis) -> int:
    """End all logins of a person at once, however many there are, in a job that tells of the person's change as well."""
    db.takes_away()
    ended = revoke_all(db, subject=subject, reason=reason, by=by, now=now, limit=NAMED)
    more = db.execute(
        f"UPDATE grants SET revoked_at = ?, revoked_reason = ?, {sealed_rows.WIPED}"
        " WHERE subject = ? AND principal_kind = 'user' AND revoked_at IS NULL AND expires_at > ?",
        now,
        reason,
        subject,
        now,
    )
    if more:
        why = f"{reason}: {more} more logins of {subject}"
        audit_trail.record(db, now, "grant.revoked", actor=audit_trail.actor(by), reason=why)
    return ended + more


def make_room(db: Db, subject: str, *, most: int, now: Millis) -> None:
    """Make room, in a job that begins another login of this person: beyond `most`, those that were not used for longest end."""
    row = db.fetch_one(
        "SELECT COUNT(*) AS n FROM (SELECT 1 AS one FROM grants WHERE subject = ? AND revoked_at IS NULL AND expires_at > ?"
        f" AND principal_kind = 'user'{_SOON}) AS living",
        subject,
        now,
        most + MADE_ROOM,
    )
    beyond = 0 if row is None else row["n"] + 1 - most
    if beyond <= 0:
        return
    oldest = (
        "SELECT id FROM grants WHERE subject = ? AND revoked_at IS NULL AND expires_at > ?"
        " AND principal_kind = 'user' ORDER BY last_used_at, id LIMIT ?"
    )
    values = (subject, now, min(beyond, MADE_ROOM))
    _revoke_some(db, oldest, values, reason="another login took its place", by=subject, now=now)


async def in_pieces(store: JobStore, job: Callable[[Db], int], *, at_most: int | None = None) -> int:
    """Run a job that ends `PIECE` logins at most, again and again, so that nobody's login waits for the whole of it; return how many
    ended. With `at_most`, as many as that means that there may be more."""
    ended = 0
    while at_most is None or ended < at_most:
        piece = await store.write(job)
        ended += piece
        if piece < PIECE:
            break
    return ended
