"""Counting tries, so that nobody can guess: passphrases at sign-in, user codes at entry.

A try is counted in the same transaction that admits it, before anything slow looks at what was typed: parallel guesses
are serialised by the store and cannot pass together. What is counted where is decided by the callers; the rows hold a
bucket and a time and never what was typed.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

import msgspec

from auth.values.database import Db
from auth.values.identity_model import Millis
from auth.values.limits_and_lifetimes import MINUTE

# A try of which the time is further ahead was written before the clock was set back: it must not lock anybody out until then.
AHEAD: Final[Millis] = MINUTE


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """`tries` within `window`, then closed until the oldest of them is out of the window and `lock` has passed."""

    tries: int
    window: Millis
    lock: Millis = 0
    delays: tuple[Millis, ...] = ()  # how long to wait after the 1st, 2nd, … try of the window


class CountedAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One try as it was written down, so that it can be taken back when it turns out to be no guess."""

    bucket: str
    at: Millis
    sequence: int


def opens_at(newest_first: Sequence[Millis], limit: Limit) -> Millis:
    """When the next try is admitted, judged by the latest `limit.tries` tries; 0 if it was never closed."""
    if not newest_first:
        return 0
    newest = newest_first[0]
    opens = 0
    if len(newest_first) >= limit.tries:
        oldest = newest_first[limit.tries - 1]
        if newest - oldest < limit.window:
            opens = max(oldest + limit.window, newest + limit.lock)
    if limit.delays:
        recent = sum(1 for at in newest_first if newest - at < limit.window)
        opens = max(opens, newest + limit.delays[min(recent, len(limit.delays)) - 1])
    return opens


def closed_until(db: Db, buckets: Sequence[tuple[str, Limit]], now: Millis) -> Millis:
    """The latest moment at which one of the buckets opens, or 0 if all are open now."""
    latest = 0
    for bucket, limit in buckets:
        rows = db.fetch_all(
            "SELECT at FROM attempts WHERE bucket = ? AND at <= ? ORDER BY at DESC, sequence DESC LIMIT ?",
            bucket,
            now + AHEAD,
            limit.tries,
        )
        latest = max(latest, opens_at([row["at"] for row in rows], limit))
    return latest if latest > now else 0


def count(db: Db, bucket: str, now: Millis) -> CountedAttempt:
    row = db.fetch_one("SELECT MAX(sequence) AS last FROM attempts WHERE bucket = ? AND at = ?", bucket, now)
    last = row["last"] if row is not None else None
    sequence = 0 if last is None else last + 1
    db.execute("INSERT INTO attempts (bucket, at, sequence) VALUES (?, ?, ?)", bucket, now, sequence)
    return CountedAttempt(bucket=bucket, at=now, sequence=sequence)


def take_back(db: Db, tries: Sequence[CountedAttempt]) -> None:
    for one in tries:
        db.execute(
            "DELETE FROM attempts WHERE bucket = ? AND at = ? AND sequence = ?",
            one.bucket,
            one.at,
            one.sequence,
        )


def take_back_one(db: Db, bucket: str, at: Millis) -> None:
    """One try of that moment, where nobody kept which of them it was."""
    db.execute(
        "DELETE FROM attempts WHERE bucket = ? AND at = ? AND sequence ="
        " (SELECT MAX(sequence) FROM attempts WHERE bucket = ? AND at = ?)",
        bucket,
        at,
        bucket,
        at,
    )


def bucket_of_name(key: bytes, name: str) -> str:
    """An account's bucket. People type their passphrase into the name field: what is stored must not give it away."""
    return "signin:account:" + hmac.new(key, name.encode(), hashlib.sha256).hexdigest()[:32]
