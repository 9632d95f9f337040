"""Commands of the admin socket for the keys of tokens: which there are, the next ones, and the emergency. And the self-test."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from auth import self_test
from auth.context.identity_parts import Parts
from auth.grants import login_records as grants
from auth.keys import key_rotation
from auth.keys import refresh_token_keys as refresh_keys
from auth.keys import signing_keys as keys
from auth.values.database import Db, Row
from auth.values.entropy import SEED_BYTES, Entropy
from auth.values.identity_model import Millis
from auth.values.limits_and_lifetimes import DAY
from server.admin.control import CommandRefused, Handler

# What is retired stays in the list for so long, and in the store for receipts.
LISTED_MS: Final = 90 * DAY
# Of a refresh key "signing" is called "writing": what it makes is a MAC.
STATES: Final = ("next", "signing", "writing", "old", "retired")


class KeysAdmin(msgspec.Struct, frozen=True, kw_only=True):
    """`parts`: of the identity that serves, whose keys are the ones that count."""

    parts: Parts
    entropy: Callable[[int], bytes] = secrets.token_bytes

    def commands(self) -> dict[str, Handler]:
        return {
            "keys": self.keys,
            "keys.rotate": self.rotate,
            "keys.replace": self.replace,
            "keys.replace_all": self.replace_all,
            "self_test": self.self_test,
        }

    async def keys(self, arguments: Mapping[str, Any], actor: str) -> Any:
        signing, refresh = await self.parts.store.read(keys.every)
        now = self.parts.clock()
        return [*_shown(signing, now), *_refresh_shown(refresh, now)]

    async def rotate(self, arguments: Mapping[str, Any], actor: str) -> Any:
        """Publish the next signing key now instead of when it is due. With it comes a new refresh key."""
        now, policy = self.parts.clock(), self.parts.policy.keys
        spare = self._spare(now)

        def job(db: Db) -> tuple[key_rotation.KeyPublished | key_rotation.TooManyKeys, str]:
            outcome = key_rotation.publish_next(db, spare=spare, policy=policy, by=actor, now=now)
            return outcome, _writing(db)

        outcome, writing = await self.parts.store.write(job)
        if isinstance(outcome, key_rotation.TooManyKeys):
            raise CommandRefused(
                f"{key_rotation.PUBLISHED} keys are published, and more must not be",
                "ostiary keys list says when one of them goes",
            )
        return {
            "kid": outcome.kid,
            "signs_from": outcome.signs_from,
            "made": outcome.made,
            "refresh_key": writing,
        }

    async def replace(self, arguments: Mapping[str, Any], actor: str) -> Any:
        """A new signing key at once; every other is dropped, with all tokens that it signed."""
        now = self.parts.clock()
        spare = self._spare(now)

        def job(db: Db) -> dict[str, Any]:
            dropped = key_rotation.replace_all(db, spare=spare, by=actor, now=now)
            return _replaced(db, spare, dropped)

        return await self.parts.store.write(job)

    async def replace_all(self, arguments: Mapping[str, Any], actor: str) -> Any:
        """Signing keys and refresh keys, and every login ends: at one commit, since a refresh may be under way that has read
        the old keys already, or was just written with the new ones."""
        now = self.parts.clock()
        spare, successor = self._spare(now), Entropy(self.entropy(SEED_BYTES)).identifier("epo")
        reason = "every key was dropped"

        def job(db: Db) -> dict[str, Any]:
            dropped = key_rotation.replace_all(db, spare=spare, by=actor, now=now, logins=True)
            grants.end_epoch(db, successor=successor, reason=reason, by=actor, now=now)
            return _replaced(db, spare, dropped)

        answer = await self.parts.store.write(job)
        # They count no more; what is left is to say so of each, and to stop what runs for it.
        each = partial(grants.revoke_all, reason=reason, by=actor, now=now, limit=grants.PIECE)
        return answer | {"logins_ended": await grants.in_pieces(self.parts.store, each)}

    def _spare(self, now: Millis) -> key_rotation.SpareKeys:
        return key_rotation.prepare(self.parts.subkey, self.entropy, self.parts.policy.tokens, now)

    async def self_test(self, arguments: Mapping[str, Any], actor: str) -> Any:
        await self.parts.reload_keys()
        return {"problems": list(self_test.examine(self.parts))}


def _replaced(db: Db, spare: key_rotation.SpareKeys, dropped: tuple[str, ...]) -> dict[str, Any]:
    return {"kid": spare.signing.kid, "dropped": list(dropped), "refresh_key": _writing(db)}


def _writing(db: Db) -> str:
    """The refresh key that writes now. Asked in the job, so that nothing can fail once the keys are changed."""
    return refresh_keys.name_of(refresh_keys.rows(db)[-1])


def _shown(found: Sequence[Row], now: Millis) -> list[dict[str, Any]]:
    """The next one first, then as they signed, newest first. `since` is when it began to sign or will (None: it never did),
    `until` when it is published no more."""
    live = [row for row in found if not keys.is_retired(row, now)]
    able = [row["kid"] for row in live if row["signs_from"] <= now]
    signing = able[-1] if able else next((row["kid"] for row in live), None)

    def state(row: Row) -> str:
        if keys.is_retired(row, now):
            return "retired"
        if row["kid"] == signing:
            return "signing"
        return "next" if row["signs_from"] > now else "old"

    shown = [
        {
            "kid": row["kid"],
            "use": "access",
            "algorithm": row["algorithm"],
            "state": state(row),
            "created_at": row["created_at"],
            "since": None if keys.never_signed(row) else row["signs_from"],
            "until": row["retires_at"],
        }
        for row in reversed(found)
        if row["retires_at"] is None or row["retires_at"] > now - LISTED_MS
    ]
    return sorted(shown, key=lambda key: STATES.index(key["state"]))


def _refresh_shown(found: Sequence[Row], now: Millis) -> list[dict[str, Any]]:
    """Newest first. `until` is when its tokens are accepted no more."""

    def state(row: Row) -> str:
        if refresh_keys.is_over(row, now):
            return "retired"
        return "writing" if row["accepted_until"] is None else "old"

    return [
        {
            "kid": refresh_keys.name_of(row),
            "use": "refresh",
            "algorithm": refresh_keys.ALGORITHM,
            "state": state(row),
            "created_at": row["created_at"],
            "since": row["created_at"],
            "until": row["accepted_until"],
        }
        for row in reversed(found)
    ]
