"""Passkeys as rows: whose they are, and the jobs that add one, take one away, and let somebody in with one.

The word of an authenticator is checked in webauthn_ceremony.py, before the job that believes it. The pages are in auth/pages/passkey_pages.py;
asking a signed-in person once more is in pages/reauthentication_proof.py.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Final, Literal

import msgspec

from auth.audit import audit_trail
from auth.people import user_accounts
from auth.people.user_accounts import Throttled, User
from auth.people.webauthn_ceremony import NewPasskey, PasskeyAnswer, PasskeyChallenge, PasskeyNotBelieved
from auth.throttling import attempt_limits
from auth.throttling.attempt_limits import CountedAttempt
from auth.values import sealed_rows
from auth.values.database import Db, from_row
from auth.values.identity_model import Millis
from auth.values.requester import Requester, clean

KEY_PURPOSE: Final = "passkey-challenges"  # whoever has this subkey can make challenges
PER_USER: Final = 20
NAME_CHARACTERS: Final = 60
DEFAULT_NAME: Final = "Passkey"


@dataclass(frozen=True, kw_only=True, slots=True)
class Passkey:
    credential_id: str
    user_id: str
    rp_id: str
    public_key: str = field(repr=False)
    sign_count: int
    name: str
    created_at: Millis
    last_used_at: Millis | None


def find(db: Db, credential_id: str) -> Passkey | None:
    row = db.fetch_one("SELECT * FROM passkeys WHERE credential_id = ?", credential_id)
    fits = row is not None and sealed_rows.fits(db, sealed_rows.PASSKEYS, row)
    return from_row(Passkey, row) if row is not None and fits else None


def of_user(db: Db, user_id: str) -> tuple[Passkey, ...]:
    rows = db.fetch_all(
        "SELECT * FROM passkeys WHERE user_id = ? ORDER BY created_at, credential_id", user_id
    )
    return tuple(from_row(Passkey, row) for row in rows if sealed_rows.fits(db, sealed_rows.PASSKEYS, row))


def usable(db: Db, user_id: str, rp_id: str) -> tuple[str, ...]:
    """List the credentials that this person can answer with at this name."""
    return tuple(each.credential_id for each in of_user(db, user_id) if each.rp_id == rp_id)


def any_for(db: Db, rp_id: str) -> bool:
    """Return whether it makes sense to offer strangers to sign in with one."""
    return db.fetch_one("SELECT 1 AS found FROM passkeys WHERE rp_id = ? LIMIT 1", rp_id) is not None


# ---------------------------------------------------------------- adding and removing


class PasskeyToAdd(msgspec.Struct, frozen=True, kw_only=True):
    """A passkey that was just made for this account, and the question that it answers."""

    user_id: str
    made: NewPasskey
    question: PasskeyChallenge
    name: str  # what its browser is called, until somebody calls it something else


class PasskeyAdded(msgspec.Struct, frozen=True):
    pass


class NotAdded(msgspec.Struct, frozen=True):
    """A passkey that was not added. The sentence is for the person."""

    sentence: str


def add(db: Db, new: PasskeyToAdd, *, who: Requester, now: Millis) -> PasskeyAdded | NotAdded:
    """Add a passkey, as a job or the first part of one that makes an account somebody's: a refusal must have nothing to undo."""
    user_id, made = new.user_id, new.made
    if not _spend(db, new.question, now):
        return _not_added(db, user_id, who, now, "the challenge was used before", "Try that once more.")
    held = db.fetch_one("SELECT COUNT(*) AS held FROM passkeys WHERE user_id = ?", user_id)
    if held is not None and held["held"] >= PER_USER:
        sentence = f"{PER_USER} passkeys are the most that one person can have. Remove one first."
        return _not_added(db, user_id, who, now, "too many passkeys", sentence)
    row = {
        "credential_id": made.credential_id,
        "user_id": user_id,
        "rp_id": made.rp_id,
        "public_key": made.public_key,
        "sign_count": made.sign_count,
        "name": fit_name(new.name),
        "created_at": now,
    }
    added = sealed_rows.insert(
        db, sealed_rows.PASSKEYS, row, conflict=" ON CONFLICT (credential_id) DO NOTHING"
    )
    if added != 1:
        return _not_added(db, user_id, who, now, "a known passkey", "This passkey is in use here already.")
    reason = short(made.credential_id)
    audit_trail.record(db, now, "passkey.added", actor=f"user:{user_id}", who=who, reason=reason)
    return PasskeyAdded()


def _not_added(db: Db, user_id: str, who: Requester, now: Millis, reason: str, sentence: str) -> NotAdded:
    audit_trail.record(db, now, "passkey.added", actor=f"user:{user_id}", who=who, refused=reason)
    return NotAdded(sentence)


def take_back(db: Db, new: PasskeyToAdd, *, who: Requester, now: Millis) -> None:
    """Take a passkey back, in a job that added it, and then found that it could not give the account away."""
    db.execute("DELETE FROM passkeys WHERE credential_id = ?", new.made.credential_id)
    reason = "the account was not given away"
    audit_trail.record(db, now, "passkey.removed", actor=f"user:{new.user_id}", who=who, reason=reason)


def remove(
    db: Db, *, user: User, credential_id: str, who: Requester, now: Millis
) -> Literal["removed", "last"] | None:
    """Remove a passkey, as a job; return None if this person has no such one, "last" if it is their only way to sign in."""
    mine = of_user(db, user.id)
    gone = next((each for each in mine if each.credential_id == credential_id), None)
    if gone is None:
        return None
    others = any(each is not gone and each.rp_id == gone.rp_id for each in mine)
    current = user_accounts.find(db, user.id)
    if not others and (current is None or current.passphrase_hash is None):
        last = "the last way in"
        audit_trail.record(db, now, "passkey.removed", actor=f"user:{user.id}", who=who, refused=last)
        return "last"
    db.takes_away()
    db.execute("DELETE FROM passkeys WHERE credential_id = ? AND user_id = ?", credential_id, user.id)
    reason = short(credential_id)
    audit_trail.record(db, now, "passkey.removed", actor=f"user:{user.id}", who=who, reason=reason)
    return "removed"


# ---------------------------------------------------------------- being let in


class PasskeyAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One try, counted already, and the passkey that it is about; None if we have no such passkey."""

    passkey: Passkey | None
    counted: tuple[CountedAttempt, ...]


def admit(db: Db, *, assertion: PasskeyAnswer, who: Requester, now: Millis) -> PasskeyAttempt | Throttled:
    """Count a try, as a job, before anything looks at it; by network only: nobody guesses a signature, and a stranger who
    knows a credential's id must not be able to lock its owner out."""
    network, overall = user_accounts.buckets_of_network(who)
    until = attempt_limits.closed_until(
        db, ((network, user_accounts.PER_NETWORK), (overall, user_accounts.ALL_PER_NETWORK)), now
    )
    if until:
        return Throttled(until=until)
    counted = (attempt_limits.count(db, network, now), attempt_limits.count(db, overall, now))
    return PasskeyAttempt(passkey=find(db, assertion.credential_id), counted=counted)


def conclude(
    db: Db,
    candidate: PasskeyAttempt,
    *,
    assertion: PasskeyAnswer,
    verified: int | PasskeyNotBelieved,
    question: PasskeyChallenge,
    event: str,
    who: Requester,
    now: Millis,
    user_id: str | None = None,
) -> User | None:
    """Return the user whose passkey answered, as a job, if all of it still holds. `verified` is ceremony's word on the signature;
    `user_id` is who has to have answered, where it cannot be anybody."""
    spent = _spend(db, question, now)
    passkey = candidate.passkey
    current = None if passkey is None else find(db, passkey.credential_id)
    user = None if current is None else user_accounts.find(db, current.user_id)
    refused = ""
    if passkey is None or current is None or user is None or current.public_key != passkey.public_key:
        refused = "unknown passkey"
    elif isinstance(verified, PasskeyNotBelieved):
        refused = verified.reason
    elif user_id not in (None, user.id):
        refused = "the passkey is another person's"
    elif not spent:
        refused = "the challenge was used before"
    elif assertion.user_handle not in (None, user.id):
        refused = "the passkey says that it is somebody else's"
    elif not user.may(now):
        refused = f"the account is {'over' if user.over(now) else user.state}"
    elif not _counted_up(db, current, verified, now):
        refused = "the passkey's counter went back: it may have been copied"
    actor = "anonymous" if current is None else f"user:{current.user_id}"
    if refused or user is None or passkey is None:
        audit_trail.record(db, now, event, actor=actor, who=who, refused=refused)
        return None
    attempt_limits.take_back(db, candidate.counted)
    reason = f"passkey {short(passkey.credential_id)}"
    audit_trail.record(db, now, event, actor=actor, who=who, reason=reason)
    return user


def _counted_up(db: Db, passkey: Passkey, count: int, now: Millis) -> bool:
    """Expect a higher number than the last, where an authenticator counts at all (§6.1.1)."""
    return (
        db.execute(
            "UPDATE passkeys SET sign_count = ?, last_used_at = ?"
            " WHERE credential_id = ? AND (sign_count < ? OR (sign_count = 0 AND ? = 0))",
            count,
            now,
            passkey.credential_id,
            count,
            count,
        )
        == 1
    )


def _spend(db: Db, question: PasskeyChallenge, now: Millis) -> bool:
    """Return whether this is the first answer to the question, and in time."""
    first = db.execute(
        "INSERT INTO passkey_challenges (challenge_hash, used_at, expires_at) VALUES (?, ?, ?)"
        " ON CONFLICT (challenge_hash) DO NOTHING",
        hashlib.sha256(question.challenge).hexdigest(),
        now,
        question.expires_at,
    )
    return first == 1 and now < question.expires_at


def fit_name(typed: str) -> str:
    return clean(typed, NAME_CHARACTERS) or DEFAULT_NAME


def short(credential_id: str) -> str:
    """Cut an id to what tells one's passkeys apart in the audit trail."""
    return credential_id[:12]
