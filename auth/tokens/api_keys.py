"""Keys for machines that cannot log in: made by somebody at the machine, shown once, kept as SHA-256.

A key belongs to a user and may never do more than that user may: their state, their end and their ceilings bound it at every
use. Here they are made, listed and revoked, and it is decided whether one may be used. How a request shows one is
accepted_credentials.py's; which keys are remembered, api_key_ring.py's.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import msgspec

from auth.audit import audit_trail
from auth.values import scopes, sealed_rows
from auth.values.database import Db, Row, from_row
from auth.values.entropy import Entropy
from auth.values.identity_model import LIVE_USER_STATES, Millis, Principal, PrincipalKind
from server.lib.secret import Secret

# `ost_`, 43 letters (256 bits), and 6 that check them: whoever looks for leaked secrets recognises one without asking us.
PREFIX: Final = "ost_"
SECRET_LETTERS: Final = 43
CHECK_LETTERS: Final = 6
PATTERN: Final = re.compile(rf"{PREFIX}[0-9A-Za-z]{{{SECRET_LETTERS + CHECK_LETTERS}}}")
HINT_LETTERS: Final = 4

# All of them are held in memory, so that a made-up key costs no look into the store: about 1 KiB each.
MAX_KEYS: Final = 10_000
REVOKED_KNOWN: Final = 2_000  # of those that were revoked, the last ones
LISTED: Final = 1_000  # on a page
MAX_NAME: Final = 100
MAX_SELECTION: Final = 2_048

_LETTERS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

Refused = Literal["revoked", "expired", "user_not_enabled", "other_server"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiKey:
    """A key with the user behind it, as one look into the store finds them."""

    id: str
    name: str
    user_id: str
    key_hash: str = field(repr=False)
    hint: str
    server: str | None  # None: every one of this process
    scope: str
    tools: str
    created_by: str
    created_at: Millis
    expires_at: Millis | None
    last_used_at: Millis | None
    last_used_ip: str | None
    revoked_at: Millis | None
    user_name: str
    user_usable: bool
    user_ends_at: Millis | None
    principal: Principal  # what whoever shows it may do, now

    @classmethod
    def of(cls, db: Db, row: Row) -> ApiKey:
        row = sealed_rows.checked(
            db, sealed_rows.API_KEYS, sealed_rows.checked(db, sealed_rows.USERS, row, "user_")
        )
        # Both bound it: what it was made for, and what its user may now.
        allowed = scopes.narrow(row["scope"], row["user_scope"] or "")
        return from_row(
            cls,
            row,
            user_name=row["user_name"] or "",
            user_usable=row["user_state"] in LIVE_USER_STATES,
            user_ends_at=row["user_expires_at"],
            principal=Principal(
                kind=PrincipalKind.API_KEY,
                subject=row["id"],
                grant_id=row["id"],
                scopes=frozenset(scopes.parse(allowed)) - {scopes.EVERYTHING},
                tools=";".join(each for each in (row["tools"], row["user_tools"]) if each),
                reach=frozenset(),
                user=row["user_id"],
                person=row["user_name"] or "",
                program=row["name"],
                known_as=(row["name"], row["id"]),  # as whoever made it at the machine entered it
            ),
        )

    @property
    def ended(self) -> bool:
        """The end by hand, or because its user may not be here any more: not by running out."""
        return self.revoked_at is not None or not self.user_usable


def decide(key: ApiKey, *, server: str, now: Millis) -> Refused | None:
    """Say why it may not be used; None if it may."""
    if key.revoked_at is not None:
        return "revoked"
    if not key.user_usable or (key.user_ends_at is not None and now >= key.user_ends_at):
        return "user_not_enabled"
    if key.expires_at is not None and now >= key.expires_at:
        return "expired"
    return None if key.server in (None, server) else "other_server"


def hash_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def is_one(text: str) -> bool:
    """Return whether it can be a key at all, by its form and the letters that check it."""
    return PATTERN.fullmatch(text) is not None and text[-CHECK_LETTERS:] == _check(text[:-CHECK_LETTERS])


def draw(seed: bytes) -> tuple[str, str]:
    """Draw a key, and its id."""
    entropy = Entropy(seed)
    body = PREFIX + entropy.letters(_LETTERS, SECRET_LETTERS)
    return body + _check(body), entropy.identifier("key")


def _check(body: str) -> str:
    rest, letters = zlib.crc32(body.encode()), ""
    for _ in range(CHECK_LETTERS):
        rest, place = divmod(rest, len(_LETTERS))
        letters = _LETTERS[place] + letters
    return letters


class ApiKeyOrder(msgspec.Struct, frozen=True, kw_only=True):
    """An order for a key."""

    name: str
    user_id: str
    scope: str
    server: str | None = None
    tools: str = ""
    expires_at: Millis | None = None


class NewApiKey(msgspec.Struct, frozen=True, kw_only=True):
    key: ApiKey
    secret: Secret


class ApiKeyNotMade(msgspec.Struct, frozen=True):
    reason: Literal["no_user", "beyond_the_user", "name_taken", "too_many"]
    ceiling: str = ""


def create(db: Db, order: ApiKeyOrder, *, seed: bytes, by: str, now: Millis) -> NewApiKey | ApiKeyNotMade:
    """Make a key, as a job. The scopes exist already; whether the user may have them is looked at here."""
    row = db.fetch_one("SELECT * FROM users WHERE id = ?", order.user_id)
    user = None if row is None else sealed_rows.checked(db, sealed_rows.USERS, row)
    if user is None or user["state"] not in LIVE_USER_STATES:
        return ApiKeyNotMade("no_user")
    if not scopes.within(scopes.parse(order.scope), user["scope"]):
        return ApiKeyNotMade("beyond_the_user", user["scope"])
    if db.fetch_one("SELECT 1 AS one FROM api_keys WHERE name = ? AND revoked_at IS NULL", order.name):
        return ApiKeyNotMade("name_taken")
    held = db.fetch_one("SELECT COUNT(*) AS held FROM api_keys WHERE revoked_at IS NULL")
    if held is not None and held["held"] >= MAX_KEYS:
        return ApiKeyNotMade("too_many")
    text, key_id = draw(seed)
    row = {
        "id": key_id,
        "name": order.name,
        "user_id": order.user_id,
        "key_hash": hash_of(text),
        "hint": text[-HINT_LETTERS:],
        "server": order.server,
        "scope": order.scope,
        "tools": order.tools,
        "created_by": by,
        "created_at": now,
        "expires_at": order.expires_at,
    }
    sealed_rows.insert(db, sealed_rows.API_KEYS, row)
    db.changed("api_key", key_id)
    audit_trail.record(db, now, "api_key.created", actor=audit_trail.actor(by), grant_id=key_id)
    made = find(db, key_id)
    assert made is not None
    return NewApiKey(key=made, secret=Secret(text))


def revoke(db: Db, key_id: str, *, by: str, now: Millis, of_user: str | None = None) -> bool:
    """End a key at once, as a job, with what runs for it; return False if there is none, or none of that user's, or not any more."""
    db.takes_away()
    whose = () if of_user is None else (of_user,)
    sql = f"UPDATE api_keys SET revoked_at = ?, {sealed_rows.WIPED} WHERE id = ? AND revoked_at IS NULL"
    ended = db.execute(sql + " AND user_id = ?" * len(whose), now, key_id, *whose)
    if ended:
        db.changed("api_key", key_id)
        audit_trail.record(db, now, "api_key.revoked", actor=audit_trail.actor(by), grant_id=key_id)
    return bool(ended)


_SELECT: Final = (
    f"SELECT {sealed_rows.USERS.of('u', 'user_')}, k.* FROM api_keys k LEFT JOIN users u ON u.id = k.user_id"
)


def find(db: Db, key_id: str) -> ApiKey | None:
    return next(iter(_some(db, "k.id = ?", key_id)), None)


def shown(db: Db, key_hash: str) -> ApiKey | None:
    """Find the key that has this hash, as a job."""
    return next(iter(_some(db, "k.key_hash = ?", key_hash)), None)


def some(db: Db, ids: Sequence[str]) -> list[ApiKey]:
    """Find the keys that have these ids, as a job, as far as they exist."""
    return _some(db, f"k.id IN ({', '.join('?' * len(ids))})", *ids)


def _some(db: Db, where: str, *values: object) -> list[ApiKey]:
    return [ApiKey.of(db, row) for row in db.fetch_all(f"{_SELECT} WHERE {where}", *values)]


def every(db: Db) -> list[ApiKey]:
    """Read all that live, and the last ones that were revoked, as long as they are kept: a refused one is then known by its name."""
    living: list[ApiKey] = []
    while True:
        some = page(db, living[-1].id if living else "")
        living += some
        if len(some) < LISTED:
            break
    revoked = "k.revoked_at IS NOT NULL ORDER BY k.revoked_at DESC, k.id LIMIT ?"
    return [*living, *_some(db, revoked, REVOKED_KNOWN)]


def listing(
    db: Db,
    *,
    user_id: str | None = None,
    limit: int = LISTED,
    before: tuple[Millis, str] | None = None,
    like: str = "",
) -> list[ApiKey]:
    """List those that were not revoked, the newest first. `before`: when the last one of a page was made, and its id; those of the
    next page follow it. `like`: something that its name, its person's or its last letters have in them."""
    tests, values = ["k.revoked_at IS NULL"], list[object]()
    if user_id is not None:
        tests.append("k.user_id = ?")
        values.append(user_id)
    if like:
        tests.append(
            "(instr(lower(k.name), ?) > 0 OR instr(lower(u.name), ?) > 0 OR instr(lower(k.hint), ?) > 0)"
        )
        values += [like.lower()] * 3
    if before is not None:
        tests.append("(k.created_at < ? OR (k.created_at = ? AND k.id > ?))")
        values += [before[0], *before]
    where = " AND ".join(tests)
    return _some(db, f"{where} ORDER BY k.created_at DESC, k.id LIMIT ?", *values, limit)


def page(db: Db, after: str) -> list[ApiKey]:
    """Read some of those that were not revoked whose ids come after this one."""
    return _some(db, "k.revoked_at IS NULL AND k.id > ? ORDER BY k.id LIMIT ?", after, LISTED)
