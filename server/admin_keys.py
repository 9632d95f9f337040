"""Commands of the admin socket for signing keys: which there are, the next one, and the emergency. And the self-test."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from auth import keys, rotation, self_test
from auth.db import Row
from auth.identity import Identity
from auth.model import Millis
from server.control import Handler, Refused

STATES: Final = ("next", "signing", "old", "retired")


class KeysAdmin(msgspec.Struct, frozen=True, kw_only=True):
    """Of the identity that serves: its keys are the ones that count."""

    identity: Identity
    entropy: Callable[[int], bytes] = secrets.token_bytes

    def commands(self) -> dict[str, Handler]:
        return {
            "keys": self.keys,
            "keys.rotate": self.rotate,
            "keys.replace": self.replace,
            "self_test": self.self_test,
        }

    async def keys(self, arguments: Mapping[str, Any], actor: str) -> Any:
        return _shown(await self.identity.store.read(keys.rows), self.identity.clock())

    async def rotate(self, arguments: Mapping[str, Any], actor: str) -> Any:
        """Publish the next key now instead of when it is due."""
        now = self.identity.clock()
        job = partial(
            rotation.publish_next,
            spare=rotation.prepare(self.identity.subkey, self.entropy, now),
            policy=self.identity.policy.keys,
            by=actor,
            now=now,
        )
        outcome = await self.identity.store.write(job)
        if isinstance(outcome, rotation.TooMany):
            raise Refused(
                f"{rotation.PUBLISHED} keys are published, and more must not be",
                "ostiary keys list says when one of them goes",
            )
        return {"kid": outcome.kid, "signs_from": outcome.signs_from, "made": outcome.made}

    async def replace(self, arguments: Mapping[str, Any], actor: str) -> Any:
        """A new key at once; every other is dropped, with all tokens that it signed."""
        now = self.identity.clock()
        spare = rotation.prepare(self.identity.subkey, self.entropy, now)
        job = partial(rotation.replace_all, spare=spare, by=actor, now=now)
        return {"kid": spare.kid, "dropped": list(await self.identity.store.write(job))}

    async def self_test(self, arguments: Mapping[str, Any], actor: str) -> Any:
        await self.identity.reload_keys()
        return {"problems": list(self_test.examine(self.identity))}


def _shown(found: list[Row], now: Millis) -> list[dict[str, Any]]:
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
            "algorithm": row["algorithm"],
            "state": state(row),
            "created_at": row["created_at"],
            "since": None if keys.never_signed(row) else row["signs_from"],
            "until": row["retires_at"],
        }
        for row in reversed(found)
    ]
    return sorted(shown, key=lambda key: STATES.index(key["state"]))
