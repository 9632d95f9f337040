"""Browser sessions: the cookie, the row behind it, and proof that a form was ours.

Before sign-in the cookie holds a random value that no row knows: it binds forms to this browser and opens nothing. Signing
in never reuses it, so that a value planted beforehand is worth nothing afterwards. Rows hold the SHA-256 of the cookie.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from auth.jose.base64url import pack
from auth.people import user_accounts
from auth.people.user_accounts import User
from auth.values import sealed_rows
from auth.values.database import Db, from_row
from auth.values.identity_model import Millis
from auth.values.limits_and_lifetimes import DAY, MINUTE
from auth.values.requester import Requester

COOKIE_BYTES: Final = 32
IDLE: Final[Millis] = 12 * 60 * MINUTE
ABSOLUTE: Final[Millis] = 7 * DAY
TOUCHED_EVERY: Final[Millis] = MINUTE  # a write per page would be too many, and idleness is counted in hours
ID_CHARACTERS: Final = 24  # of the hash, to name a session by
LISTED: Final = 1_000  # on a page
PER_USER: Final = 20  # browsers that one person uses; the least recently used goes first

_VALUE: Final = re.compile(r"[A-Za-z0-9_-]{43}")


class BrowserSession(msgspec.Struct, frozen=True, kw_only=True):
    """A live session and who it belongs to."""

    id_hash: str
    user: User
    auth_time: Millis  # when the passphrase was last proven
    last_used_at: Millis


# ---------------------------------------------------------------- the cookie


def cookie_name(secure: bool) -> str:
    """Return the name: `__Host-` cannot be set by a neighbour's subdomain or over http; on http loopback no browser would keep it."""
    return "__Host-ostiary" if secure else "ostiary"


def cookie_from(entropy: bytes) -> str:
    if len(entropy) != COOKIE_BYTES:
        raise ValueError(f"a session needs {COOKIE_BYTES} random bytes")
    return pack(entropy)


def read_cookie(headers: Mapping[str, str], secure: bool) -> str | None:
    """Read our cookie, if there is exactly one and it looks like ours.

    On loopback every other local web server can set cookies for the same host: two of our name mean that one was planted.
    """
    name = cookie_name(secure)
    found = {
        value.strip()
        for key, _, value in (part.partition("=") for part in re.split("[;,]", headers.get("cookie", "")))
        if key.strip() == name
    }
    value = found.pop() if len(found) == 1 else ""
    return value if _VALUE.fullmatch(value) else None


def set_cookie(value: str, secure: bool, *, keep: bool) -> tuple[str, str]:
    """Make the header that sets the cookie; `keep` it for a session's longest life, or until the browser closes."""
    age = f"; Max-Age={ABSOLUTE // 1_000}" if keep else ""
    return (
        "set-cookie",
        f"{cookie_name(secure)}={value}; Path=/{age}; HttpOnly; SameSite=Lax{'; Secure' if secure else ''}",
    )


def clear_cookie(secure: bool) -> tuple[str, str]:
    return (
        "set-cookie",
        f"{cookie_name(secure)}=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax{'; Secure' if secure else ''}",
    )


def hash_of(cookie: str) -> str:
    return hashlib.sha256(cookie.encode()).hexdigest()


# ---------------------------------------------------------------- the row


def begin(db: Db, *, cookie: str, replaces: str | None, user_id: str, who: Requester, now: Millis) -> None:
    """Sign `user_id` in under a fresh cookie, as a job, and end what the browser's old cookie stood for."""
    if replaces is not None:
        _forget(db, replaces)
    db.execute(
        "DELETE FROM browser_sessions WHERE user_id = ? AND id_hash NOT IN"
        " (SELECT id_hash FROM browser_sessions WHERE user_id = ? ORDER BY last_used_at DESC, id_hash LIMIT ?)",
        user_id,
        user_id,
        PER_USER - 1,
    )
    row = {
        "id_hash": hash_of(cookie),
        "user_id": user_id,
        "created_at": now,
        "auth_time": now,
        "last_used_at": now,
        "expires_at": now + ABSOLUTE,
        "ip": who.ip,
        "user_agent": who.user_agent,
    }
    sealed_rows.insert(db, sealed_rows.SESSIONS, row)
    db.execute("UPDATE users SET last_seen_at = ? WHERE id = ?", now, user_id)


@dataclass(frozen=True, kw_only=True, slots=True)
class NewSession:
    """A session that a job begins, if it lets somebody in: under a fresh cookie, in place of the browser's old one."""

    cookie: str = field(repr=False)
    replaces: str = field(repr=False)
    who: Requester
    now: Millis

    def begin(self, db: Db, user_id: str) -> None:
        begin(db, cookie=self.cookie, replaces=self.replaces, user_id=user_id, who=self.who, now=self.now)


def find(db: Db, cookie: str | None, now: Millis) -> BrowserSession | None:
    """Find the live session behind a cookie, as a job. One that is idle, too old, or of a user who may not sign in is none."""
    if cookie is None:
        return None
    row = db.fetch_one(
        "SELECT * FROM browser_sessions WHERE id_hash = ? AND expires_at > ? AND last_used_at > ?",
        hash_of(cookie),
        now,
        now - IDLE,
    )
    if row is None or not sealed_rows.fits(db, sealed_rows.SESSIONS, row):
        return None
    user = user_accounts.find(db, row["user_id"])
    if user is None or not user.may(now):
        return None
    return from_row(BrowserSession, row, user=user)


def barred(db: Db, cookie: str, now: Millis) -> User | None:
    """Return, as a job, whose session this would be, if their account had not ended or been disabled meanwhile."""
    row = db.fetch_one(
        "SELECT * FROM browser_sessions WHERE id_hash = ? AND expires_at > ?", hash_of(cookie), now
    )
    fits = row is not None and sealed_rows.fits(db, sealed_rows.SESSIONS, row)
    user = user_accounts.find(db, row["user_id"]) if row is not None and fits else None
    return user if user is not None and not user.may(now) else None


class SignedOutMeanwhile(msgspec.Struct, frozen=True):
    """The session or its account ended, or changed, between a page and its answer."""


class SignedInBrowser(msgspec.Struct, frozen=True, kw_only=True):
    """A signed-in browser, for lists. `id` tells it apart and opens nothing."""

    id: str
    user_name: str
    created_at: Millis
    last_used_at: Millis
    expires_at: Millis
    ip: str
    user_agent: str


def listing(db: Db, *, now: Millis, user_id: str | None = None, after: str = "") -> list[SignedInBrowser]:
    """List live sessions, as a job, of one person or of everybody, whose ids come after this one; last used first."""
    rows = db.fetch_all(
        "SELECT b.*, u.name AS user_name FROM browser_sessions b JOIN users u ON u.id = b.user_id"
        " WHERE b.expires_at > ? AND b.last_used_at > ?"
        + ("" if user_id is None else " AND b.user_id = ?")
        + " AND substr(b.id_hash, 1, CAST(? AS INTEGER)) > ? ORDER BY b.id_hash LIMIT ?",
        now,
        now - IDLE,
        *(() if user_id is None else (user_id,)),
        ID_CHARACTERS,
        after,
        LISTED,
    )
    rows.sort(key=lambda row: (-row["last_used_at"], row["id_hash"]))
    return [
        from_row(
            SignedInBrowser,
            row,
            id=row["id_hash"][:ID_CHARACTERS],
            expires_at=min(row["expires_at"], row["last_used_at"] + IDLE),
        )
        for row in rows
    ]


def touch(db: Db, session: BrowserSession, now: Millis) -> None:
    db.execute("UPDATE browser_sessions SET last_used_at = ? WHERE id_hash = ?", now, session.id_hash)


def proven_again(db: Db, session: BrowserSession, now: Millis) -> None:
    """Note, as a job, that the passphrase was asked for and given once more."""
    sealed_rows.update(db, sealed_rows.SESSIONS, session.id_hash, {"auth_time": now, "last_used_at": now})


def end_all(db: Db, user_id: str, *, but: str = "") -> int:
    """Sign a person out of every browser, as a job, but for the one with this `id_hash`; return how many ended."""
    db.takes_away()
    return db.execute("DELETE FROM browser_sessions WHERE user_id = ? AND id_hash <> ?", user_id, but)


def end_by_id(db: Db, session_id: str, *, user_id: str | None = None) -> int:
    """End the one with this `SignedInBrowser.id`, as a job, if it is this person's where one is named."""
    if len(session_id) != ID_CHARACTERS:
        return 0
    db.takes_away()
    return db.execute(
        "DELETE FROM browser_sessions WHERE substr(id_hash, 1, CAST(? AS INTEGER)) = ?"
        + ("" if user_id is None else " AND user_id = ?"),
        ID_CHARACTERS,
        session_id,
        *(() if user_id is None else (user_id,)),
    )


def end(db: Db, cookie: str) -> bool:
    db.takes_away()
    return _forget(db, cookie)


def _forget(db: Db, cookie: str) -> bool:
    return db.execute("DELETE FROM browser_sessions WHERE id_hash = ?", hash_of(cookie)) == 1


# ---------------------------------------------------------------- forms


def form_token(key: bytes, cookie: str, purpose: str) -> str:
    """Return what a form carries to show that this server gave it to this browser for this purpose.

    The cookie's length is fixed and the purpose comes last, so no two pairs give the same text.
    """
    return hmac.new(key, f"{cookie}\n{purpose}".encode(), hashlib.sha256).hexdigest()


def token_fits(key: bytes, cookie: str | None, purpose: str, given: str) -> bool:
    if cookie is None:
        return False
    return hmac.compare_digest(form_token(key, cookie, purpose).encode(), given.encode(errors="replace"))


def sent_by_own_page(headers: Mapping[str, str], origin: str) -> bool:
    """Return whether the browser says that this POST came from one of our pages, or says nothing about it.

    `Sec-Fetch-Site` settles it where it is sent (every current browser, to https and loopback): same-site is not enough,
    for another port on localhost is that. `Origin: null` is what our own forms send, because our pages have no referrer.
    A browser that says nothing still needs the form token.
    """
    site = headers.get("sec-fetch-site")
    if site is not None and site not in ("same-origin", "none"):
        return False
    sender = headers.get("origin")
    return sender is None or sender == origin or sender == "null"
