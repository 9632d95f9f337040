"""When keys come and go: a next signing key is published a day before it signs, and an old one stays published
until the last token that it signed is over. `decide` is the whole rule; the jobs do what it says, and what people ask for.

With each new signing key comes a new refresh key. Nobody else reads what it writes, so it writes at once; the one before is
accepted as long as a login can last, and then destroyed.

A job decides on the rows that it finds in its own transaction, so two processes that rotate at once make one key, not two.
Making and sealing keys is signing_keys.py's and refresh_token_keys.py's; how often this is looked at, the server's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Final

import msgspec

from auth.audit import audit_trail
from auth.keys import refresh_token_keys as refresh_keys
from auth.keys import signing_keys as keys
from auth.keys.sealed_secrets import NONCE_BYTES
from auth.keys.signing_keys import SEAL_PURPOSE, SealedKey
from auth.values.database import Db, JobStore, Row
from auth.values.identity_model import Millis
from auth.values.limits_and_lifetimes import KeyPolicy, TokenPolicy

# Some clients and gateways hold few keys, and every one published is one more to steal.
PUBLISHED: Final = 3
ROTATION: Final = "local:rotation"
# A key's life has three steps; more than a few keys are never there.
_STEPS_AT_ONCE: Final = 16


class PublishKey(msgspec.Struct, frozen=True, kw_only=True):
    """Publish a new key; it signs later, when everybody knows it."""

    signs_from: Millis


class RetireKey(msgspec.Struct, frozen=True, kw_only=True):
    """Its successor signs: say until when it stays published."""

    kid: str
    retires_at: Millis


class ForgetKey(msgspec.Struct, frozen=True, kw_only=True):
    """It is published no more, or no token of it is accepted: destroy its secret part."""

    kid: str  # of a refresh key: rt<version>


Step = PublishKey | RetireKey | ForgetKey


@dataclass(frozen=True, kw_only=True, slots=True)
class SpareKeys:
    """Keys for a job that may need them."""

    signing: SealedKey
    refresh: refresh_keys.SpareRefreshKey


def decide(found: Sequence[Row], policy: KeyPolicy, tokens: TokenPolicy, now: Millis) -> Step | None:
    """The next thing to do, if it is time for any. `found` are the rows of `signing_keys`, in the order of `keys.rows`."""
    for row in found:
        if row["sealed_private"] and keys.is_retired(row, now):
            return ForgetKey(kid=row["kid"])
    live = [row for row in found if not keys.is_retired(row, now)]
    able = [row for row in live if row["signs_from"] <= now]
    if not able:
        return None  # the clock was set back behind every key; the first of them signs (`KeyRing.signing`)
    signing = able[-1]
    for old, successor in pairwise(able):
        if old["retires_at"] is None:
            return RetireKey(
                kid=old["kid"], retires_at=successor["signs_from"] + tokens.access_ms + policy.margin_ms
            )
    due = signing["signs_from"] + policy.signs_ms - policy.published_before_ms <= now
    # A next key of a far future, from when the clock was wrong, is none.
    has_next = any(now < row["signs_from"] <= now + policy.published_before_ms for row in live)
    if due and not has_next and len(live) < PUBLISHED:
        return PublishKey(signs_from=now + policy.published_before_ms)
    return None


async def keep(
    store: JobStore,
    *,
    subkey: Callable[[str], bytes],
    entropy: Callable[[int], bytes],
    policy: KeyPolicy,
    tokens: TokenPolicy,
    now: Millis,
) -> tuple[Step, ...]:
    """Do what is due, and say what was done. Raises what the store raises."""
    signing, refresh = await store.read(keys.every)
    if decide(signing, policy, tokens, now) is None and not _over(refresh, now):
        return ()
    job = partial(advance, spare=prepare(subkey, entropy, tokens, now), policy=policy, tokens=tokens, now=now)
    return await store.write(job)


def prepare(
    subkey: Callable[[str], bytes], entropy: Callable[[int], bytes], tokens: TokenPolicy, now: Millis
) -> SpareKeys:
    """From the system's generator: not for use inside a job."""
    return SpareKeys(
        signing=keys.generate(subkey(SEAL_PURPOSE), nonce=entropy(NONCE_BYTES), now=now),
        refresh=refresh_keys.prepare(subkey, entropy, tokens),
    )


def advance(
    db: Db, *, spare: SpareKeys, policy: KeyPolicy, tokens: TokenPolicy, now: Millis
) -> tuple[Step, ...]:
    """A job: everything that is due."""
    done: list[Step] = []
    while len(done) < _STEPS_AT_ONCE:
        step = decide(keys.rows(db), policy, tokens, now)
        if step is None:
            break
        if isinstance(step, PublishKey):
            _publish(db, spare, signs_from=step.signs_from, by=ROTATION, now=now)
        elif isinstance(step, RetireKey):
            _retire(db, step, now)
        else:
            _forget(db, step.kid, now)
        done.append(step)
    for row in _over(refresh_keys.rows(db), now):
        refresh_keys.forget(db, row["version"], by=ROTATION, now=now)
        done.append(ForgetKey(kid=refresh_keys.name_of(row)))
    return tuple(done)


def _over(refresh: Sequence[Row], now: Millis) -> list[Row]:
    return [row for row in refresh if row["sealed_secret"] and refresh_keys.is_over(row, now)]


# ---------------------------------------------------------------- by hand


class KeyPublished(msgspec.Struct, frozen=True, kw_only=True):
    kid: str
    signs_from: Millis
    made: bool  # False: it was published already


class TooManyKeys(msgspec.Struct, frozen=True, kw_only=True):
    """As many keys as may be are published."""

    until: Millis | None  # when the first of them goes


def publish_next(
    db: Db, *, spare: SpareKeys, policy: KeyPolicy, by: str, now: Millis
) -> KeyPublished | TooManyKeys:
    """A job: do not wait until it is time; the next key signs after the usual notice."""
    live = [row for row in keys.rows(db) if not keys.is_retired(row, now)]
    for row in live:
        if now < row["signs_from"] <= now + policy.published_before_ms:
            return KeyPublished(kid=row["kid"], signs_from=row["signs_from"], made=False)
    if len(live) >= PUBLISHED:
        return TooManyKeys(until=min((row["retires_at"] for row in live if row["retires_at"]), default=None))
    signs_from = now + policy.published_before_ms
    _publish(db, spare, signs_from=signs_from, by=by, now=now)
    return KeyPublished(kid=spare.signing.kid, signs_from=signs_from, made=True)


def replace_all(db: Db, *, spare: SpareKeys, by: str, now: Millis, logins: bool = False) -> tuple[str, ...]:
    """A job, for a key that may have been stolen: a new one signs at once, and every other is dropped with all its tokens.
    With `logins` the refresh keys, too: nothing of before can be refreshed. Which were dropped."""
    db.takes_away()
    dropped = [row["kid"] for row in keys.rows(db) if not keys.is_retired(row, now)]
    for kid in dropped:
        db.execute("UPDATE signing_keys SET retires_at = ?, sealed_private = '' WHERE kid = ?", now, kid)
        db.changed("key", kid)
        audit_trail.record(db, now, "key.dropped", actor=audit_trail.actor(by), reason=kid)
    if logins:
        dropped += refresh_keys.drop_all(db, by=by, now=now)
    _publish(db, spare, signs_from=now, by=by, now=now)
    return tuple(dropped)


def _publish(db: Db, spare: SpareKeys, *, signs_from: Millis, by: str, now: Millis) -> None:
    key = replace(spare.signing, signs_from=signs_from)
    keys.insert(db, key)
    hours = round((key.signs_from - now) / 3_600_000)
    reason = f"{key.kid} signs {f'in {hours} hours' if hours else 'at once'}"
    audit_trail.record(db, now, "key.published", actor=audit_trail.actor(by), reason=reason)
    refresh_keys.replace(db, spare.refresh, by=by, now=now)


def _retire(db: Db, step: RetireKey, now: Millis) -> None:
    retired = db.execute(
        "UPDATE signing_keys SET retires_at = ? WHERE kid = ? AND retires_at IS NULL",
        step.retires_at,
        step.kid,
    )
    if retired:
        db.changed("key", step.kid)
        audit_trail.record(db, now, "key.replaced", actor=ROTATION, reason=step.kid)


def _forget(db: Db, kid: str, now: Millis) -> None:
    forgotten = db.execute(
        "UPDATE signing_keys SET sealed_private = '' WHERE kid = ? AND sealed_private <> ''", kid
    )
    if forgotten:
        db.changed("key", kid)
        audit_trail.record(db, now, "key.retired", actor=ROTATION, reason=kid)
