"""Accounts: the owner's claim, and proving with a passphrase who one is.

Hashing takes tens of milliseconds, so it is never part of a job: a sign-in is `admit` (count the try, read the account),
then a hash comparison in a thread that the caller lends, then `conclude`. Browser sessions are in browser_sessions.py; inviting,
disabling and locking people is in auth/administration/guest_accounts.py.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from typing import Final

import msgspec
from cryptography.exceptions import InvalidKey
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

from auth.audit import audit_trail
from auth.people import one_time_links
from auth.people.known_browsers import KnownBrowser
from auth.throttling import attempt_limits
from auth.throttling.attempt_limits import CountedAttempt, Limit
from auth.values import sealed_rows
from auth.values.database import Db, Row, from_row
from auth.values.identity_model import Millis
from auth.values.limits_and_lifetimes import MINUTE, SECOND
from auth.values.requester import Requester

PASSPHRASE_CHARACTERS: Final = 12
PASSPHRASE_BYTES: Final = 1_024  # hashing time must not depend on a megabyte that somebody pasted
NAME_CHARACTERS: Final = 64
NAME_TYPED: Final = 4 * NAME_CHARACTERS  # before it is brought into its one form
OWNERS: Final = 100  # that are looked at, where somebody made many
DIFFER: Final = "The two passphrases differ. Type both again."  # a new one, typed twice

# OWASP's smallest Argon2id setting: 19 MiB, two passes, one lane. About 26 ms, and two at once need 38 MiB.
ARGON2_MEMORY_KIB: Final = 19_456
ARGON2_PASSES: Final = 2
ARGON2_LANES: Final = 1
ARGON2_BYTES: Final = 32
SALT_BYTES: Final = 16

# Verified in place of an account that is not there, so that an unknown name takes as long as a wrong passphrase. The
# passphrase it was made from was 64 random bytes, and its success would be ignored too.
NOBODY: Final = (
    "$argon2id$v=19$m=19456,t=2,p=1$MmKEEjAZeWOSPGOkFbqs5g$kGwJbXKfhBD8E8FEr4VPkiRlXJkepVbXJVUANlggisA"
)

# A few wrong ones are typing; then waits that a person hardly notices and a guesser does; then a quarter of an hour.
PER_ACCOUNT: Final = Limit(
    tries=5, window=15 * MINUTE, lock=15 * MINUTE, delays=(0, 0, 5 * SECOND, 30 * SECOND, 60 * SECOND)
)
PER_NETWORK: Final = Limit(tries=20, window=15 * MINUTE)
# Of every kind together (a passphrase, a passkey, a provider's word), and those under way: what succeeds is taken back, or an
# office behind one address would lock itself out.
ALL_PER_NETWORK: Final = Limit(tries=30, window=10 * MINUTE)


@dataclass(frozen=True, kw_only=True, slots=True)
class User:
    id: str
    name: str
    role: str  # owner | user
    state: str  # unclaimed | invited | enabled | disabled | locked; altered: by somebody without the key file
    scope: str  # ceiling
    tools: str = ""  # a selection that bounds which tools; empty: all
    created_at: Millis = 0
    expires_at: Millis | None = None  # the account's last moment; None: none
    invited_by: str | None = None
    last_seen_at: Millis | None = None  # last sign-in
    passphrase_hash: str | None = field(repr=False)

    def may(self, now: Millis) -> bool:
        """Return whether this person may sign in, and be signed in."""
        return self.state == "enabled" and not self.over(now)

    def over(self, now: Millis) -> bool:
        """Return whether the account's time has run out."""
        return self.expires_at is not None and now >= self.expires_at

    @classmethod
    def of(cls, db: Db, row: Row) -> User:
        return from_row(cls, sealed_rows.checked(db, sealed_rows.USERS, row))


class UnfitEntry(msgspec.Struct, frozen=True):
    """A text that cannot be used; the sentence is for who typed it."""

    sentence: str


# ---------------------------------------------------------------- what people type


def fit_name(typed: str) -> str | UnfitEntry:
    """Return the name in the one form in which it is stored and compared."""
    name = unicodedata.normalize("NFKC", typed[:NAME_TYPED]).strip().casefold()
    if not name:
        return UnfitEntry("Choose a name.")
    if len(name) > NAME_CHARACTERS:
        return UnfitEntry(f"A name has at most {NAME_CHARACTERS} characters.")
    if not all(character.isalnum() or character in "._@+-" for character in name):
        return UnfitEntry("A name is made of letters, digits and . _ @ + -")
    return name


def fit_passphrase(typed: str) -> str | UnfitEntry:
    """Return the passphrase in the one form in which it is hashed: keyboards compose accents in different ways."""
    if len(typed) > PASSPHRASE_BYTES:  # before normalising, whose work grows with the text
        return UnfitEntry(f"A passphrase has at most {PASSPHRASE_BYTES} bytes.")
    passphrase = unicodedata.normalize("NFC", typed)
    if len(passphrase) < PASSPHRASE_CHARACTERS:
        return UnfitEntry(
            f"A passphrase has at least {PASSPHRASE_CHARACTERS} characters. A few random words are good."
        )
    try:
        size = len(passphrase.encode())
    except UnicodeEncodeError:
        return UnfitEntry("This passphrase has characters that cannot be stored.")
    if size > PASSPHRASE_BYTES:
        return UnfitEntry(f"A passphrase has at most {PASSPHRASE_BYTES} bytes.")
    return passphrase


# ---------------------------------------------------------------- hashing: slow, for a thread, never in a job


def hash_passphrase(passphrase: str, salt: bytes) -> str:
    """Hash a passphrase with Argon2id, as a PHC string."""
    return Argon2id(
        salt=salt,
        length=ARGON2_BYTES,
        iterations=ARGON2_PASSES,
        lanes=ARGON2_LANES,
        memory_cost=ARGON2_MEMORY_KIB,
    ).derive_phc_encoded(passphrase.encode())


def verify_passphrase(passphrase: str, phc: str) -> bool:
    try:
        Argon2id.verify_phc_encoded(passphrase.encode(), phc)
    except InvalidKey:
        return False
    return True


# ---------------------------------------------------------------- accounts


def find(db: Db, user_id: str) -> User | None:
    row = db.fetch_one("SELECT * FROM users WHERE id = ?", user_id)
    return None if row is None else User.of(db, row)


def named(db: Db, name: str) -> User | None:
    row = db.fetch_one("SELECT * FROM users WHERE name = ?", name)
    return None if row is None else User.of(db, row)


def owner(db: Db) -> User | None:
    """Return the first owner; an altered account only where there is no other."""
    rows = db.fetch_all("SELECT * FROM users WHERE role = 'owner' ORDER BY created_at, id LIMIT ?", OWNERS)
    found = [User.of(db, row) for row in rows]
    return next((user for user in found if user.role == "owner"), found[0] if found else None)


def owner_id(db: Db) -> str:
    """Return whose the server is. That account is made before the first request (store_preparation.py); a store without one is broken."""
    user = owner(db)
    if user is None:
        raise LookupError("this store has no owner")
    return user.id


def claimed(db: Db) -> bool:
    """Return whether the owner's account is somebody's."""
    user = owner(db)
    return user is not None and user.state != "unclaimed"


class LinkIsOver(msgspec.Struct, frozen=True):
    """Unknown, expired, used, or its account has been claimed another way."""


class NameTaken(msgspec.Struct, frozen=True):
    """Somebody else has this name, whose account is in this state. Nothing was used up."""

    state: str


def claim(
    db: Db, *, token: str, name: str, passphrase_hash: str | None, who: Requester, now: Millis
) -> User | LinkIsOver | NameTaken:
    """Use the link up, as a job, and make its account the holder's. Without a passphrase there is a passkey in the same job."""
    link = one_time_links.find(db, kind=one_time_links.CLAIM, token=token, now=now)
    if link is None:
        return not_claimed(db, who=who, now=now)
    namesake = named(db, name)
    if namesake is not None and namesake.id != link.user_id:
        return NameTaken(state=namesake.state)
    if one_time_links.use(db, kind=one_time_links.CLAIM, token=token, now=now) is None:
        return not_claimed(db, who=who, now=now)
    values = {"name": name, "passphrase_hash": passphrase_hash, "state": "enabled"}
    won = sealed_rows.update(db, sealed_rows.USERS, link.user_id, values, when={"state": "unclaimed"})
    user = find(db, link.user_id)
    if not won or user is None:
        return not_claimed(db, who=who, now=now)
    db.changed("user", user.id)
    audit_trail.record(db, now, "owner.claimed", actor=f"user:{user.id}", who=who)
    return user


def not_claimed(db: Db, *, who: Requester, now: Millis) -> LinkIsOver:
    """Note, as a job or the end of one, that somebody sent the form of a claim link that does not work."""
    audit_trail.record(db, now, "owner.claimed", who=who, refused="the link is over")
    return LinkIsOver()


# ---------------------------------------------------------------- proving who one is


@dataclass(frozen=True, kw_only=True, slots=True)
class CountedGuess:
    """A guess that may be made. `conclude` takes its count back if it was right."""

    user_id: str | None  # None: nobody of that name who can sign in
    passphrase_hash: str = field(repr=False)
    counted: tuple[CountedAttempt, ...]


class Throttled(msgspec.Struct, frozen=True, kw_only=True):
    until: Millis


def buckets_of_network(who: Requester) -> tuple[str, str]:
    """Return where failed sign-ins and all sign-ins of a network are counted, whatever they are made with."""
    return f"signin:network:{who.network}", f"signin:all:{who.network}"


def admit(
    db: Db, *, name: str, key: bytes, who: Requester, now: Millis, known: KnownBrowser | None = None
) -> CountedGuess | Throttled:
    """Count a try, as a job, against the account and the network, before anything slow looks at it. One from a browser in which this
    very account was signed in before is counted against that browser instead of the account."""
    user = named(db, name)
    own = known is not None and user is not None and known.user_id == user.id
    account = known.bucket if own and known is not None else attempt_limits.bucket_of_name(key, name)
    return _admit(db, account, user, who, now)


def admit_again(db: Db, *, user_id: str, who: Requester, now: Millis) -> CountedGuess | Throttled:
    """Count a try, as a job, of somebody who is signed in as this user and shows once more that it is them. These are counted by
    themselves: who knows no more than a name must not be able to use them up."""
    db.takes_away()  # or what follows does: on a full disk nobody may be kept from that by having to show who they are
    return _admit(db, f"proof:account:{user_id}", find(db, user_id), who, now)


def _admit(db: Db, account: str, user: User | None, who: Requester, now: Millis) -> CountedGuess | Throttled:
    network, overall = buckets_of_network(who)
    until = attempt_limits.closed_until(
        db, ((account, PER_ACCOUNT), (network, PER_NETWORK), (overall, ALL_PER_NETWORK)), now
    )
    if until:
        return Throttled(until=until)
    counted = tuple(attempt_limits.count(db, bucket, now) for bucket in (account, network, overall))
    if user is None or not user.may(now) or user.passphrase_hash is None:
        return CountedGuess(user_id=None, passphrase_hash=NOBODY, counted=counted)
    return CountedGuess(user_id=user.id, passphrase_hash=user.passphrase_hash, counted=counted)


def conclude(
    db: Db, admitted: CountedGuess, *, matched: bool, event: str, who: Requester, now: Millis
) -> User | None:
    """Return the user, as a job, if the passphrase matched and the account is still the one that was looked at."""
    user = find(db, admitted.user_id) if matched and admitted.user_id is not None else None
    if user is None or not user.may(now) or user.passphrase_hash != admitted.passphrase_hash:
        actor = "anonymous" if admitted.user_id is None else f"user:{admitted.user_id}"
        closed = ", and no more tries for now" if _closed(db, admitted, now) else ""
        refused = f"wrong name or passphrase{closed}"
        audit_trail.record(db, now, event, actor=actor, who=who, refused=refused)
        return None
    attempt_limits.take_back(db, admitted.counted)
    audit_trail.record(db, now, event, actor=f"user:{user.id}", who=who)
    return user


def _closed(db: Db, admitted: CountedGuess, now: Millis) -> bool:
    """Return whether this was the last try for a while: those that the limits turn away leave no rows of their own."""
    account, network, _ = (each.bucket for each in admitted.counted)
    until = attempt_limits.closed_until(db, ((account, PER_ACCOUNT), (network, PER_NETWORK)), now)
    return until > now + max(PER_ACCOUNT.delays)
