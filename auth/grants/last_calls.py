"""When a login last called: to the minute, written now and then by whoever writes calls down. A refresh is no call."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from auth.values.database import Db, Row
from auth.values.identity_model import Millis, Principal, PrincipalKind


def note(db: Db, called: Mapping[str, Millis]) -> None:
    """A job. `called`: by the id of the login; one that is not there is passed over."""
    for grant_id, at in called.items():
        db.put_in(
            "UPDATE grants SET called_at = ? WHERE id = ? AND (called_at IS NULL OR called_at < ?)",
            at,
            grant_id,
            at,
        )


class LastCall(msgspec.Struct, frozen=True, kw_only=True):
    """Of a login, or of a key. `caller`: by what callers are told apart (`Principal.key`)."""

    caller: str
    kind: str
    person: str
    program: str
    at: Millis
    place: str  # an address


def latest(db: Db, *, at_most: int, whose: str | None = None) -> list[LastCall]:
    """A job: so many logins that called last, also those that have ended since, and keys, in no order. `whose`: only what acts for this
    person."""
    of_grants, of_keys = ("", "") if whose is None else (" AND g.subject = ?", " AND k.user_id = ?")
    values = () if whose is None else (whose,)
    logins = db.fetch_all(
        "SELECT g.*, u.name AS user_name, c.name AS registered_name FROM grants g"
        " LEFT JOIN users u ON u.id = g.subject JOIN clients c ON c.id = g.client_id"
        f" WHERE g.called_at IS NOT NULL{of_grants} ORDER BY g.called_at DESC LIMIT ?",
        *values,
        at_most,
    )
    keys = db.fetch_all(
        "SELECT k.id, k.name, k.last_used_at, k.last_used_ip, u.name AS user_name FROM api_keys k"
        " LEFT JOIN users u ON u.id = k.user_id"
        f" WHERE k.last_used_at IS NOT NULL{of_keys} ORDER BY k.last_used_at DESC LIMIT ?",
        *values,
        at_most,
    )
    return [*map(_of_login, logins), *map(_of_key, keys)]


def _of_login(row: Row) -> LastCall:
    kind = PrincipalKind(row["principal_kind"])
    caller = Principal(
        kind=kind, subject=row["subject"], client_id=row["client_id"], grant_id=row["id"]
    ).key()
    return LastCall(
        caller=caller,
        kind=kind.value,
        person=row["user_name"] or "",
        program=row["registered_name"],  # as in the records of calls
        at=row["called_at"],
        place=row["last_ip"] or row["ip"],
    )


def _of_key(row: Row) -> LastCall:
    caller = Principal(kind=PrincipalKind.API_KEY, subject=row["id"], grant_id=row["id"]).key()
    return LastCall(
        caller=caller,
        kind=PrincipalKind.API_KEY.value,
        person=row["user_name"] or "",
        program=row["name"],
        at=row["last_used_at"],
        place=row["last_used_ip"] or "",
    )
