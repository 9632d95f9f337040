"""The public keys of clients: from the registration, or an address that a client named (`jwks_uri`, RFC 7591 §2).

Keys are fetched before a job, never in it, and remembered in this process: losing them costs one fetch. Fetching safely is
the business of whoever lends `FetchDocument`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

import msgspec
from msgspec.structs import replace

from auth.clients.client_identifier_urls import CannotFetch, FetchDocument
from auth.jose.public_keys import BadKeys, PublicKey, parse_set, read_set
from auth.values.identity_model import Client, Millis
from auth.values.limits_and_lifetimes import DAY, MINUTE

SETS: Final = 200  # of a few KiB; clients that sign are rare
SHORTEST_MS: Final = 5 * MINUTE
LONGEST_MS: Final = 1 * DAY
STALE_MS: Final = 7 * DAY  # while the address cannot be reached at all
# After a failure, and for a kid that we do not know: a client may have changed its keys a moment ago, or somebody plays.
AGAIN_MS: Final = 1 * MINUTE


class NoKeys(Exception):
    """A lack of keys to check with. The text says why, for the client."""


class _Known(msgspec.Struct, frozen=True, kw_only=True):
    keys: tuple[PublicKey, ...]  # empty: there are none
    problem: str
    fetched_at: Millis
    fresh_until: Millis
    tried_at: Millis


class KeySets:
    """The key sets that one process remembers."""

    def __init__(self, *, sets: int = SETS) -> None:
        self._known: dict[str, _Known] = {}
        self._sets = sets

    async def of(
        self,
        client: Client,
        kid: str,
        *,
        fetch: FetchDocument | None,
        may_fetch: Callable[[], bool],
        now: Millis,
    ) -> tuple[PublicKey, ...]:
        """Return the client's keys. `kid` is the one that is looked for. `may_fetch` is asked right before a stranger's server is,
        and counts. Raise `NoKeys`."""
        if client.jwks is not None:
            try:  # it was checked when it was stored; how deep a text may be nested depends on who reads it
                return read_set(json.loads(client.jwks))
            except (ValueError, RecursionError) as error:
                raise NoKeys("the keys of this client cannot be read") from error
        if client.jwks_uri is None:
            raise NoKeys("this client has no keys")
        known = self._known.get(client.jwks_uri)
        if known is None or self._is_due(known, kid, now):
            if fetch is None:
                raise NoKeys("this server fetches no keys")
            if may_fetch():
                known = await self._ask(client.jwks_uri, known, fetch, now)
                self._keep(client.jwks_uri, known)
            elif known is None:
                raise NoKeys("too many keys were fetched in the last minute")
        if not known.keys:
            raise NoKeys(f"its jwks_uri {known.problem}")
        return known.keys

    @staticmethod
    def _is_due(known: _Known, kid: str, now: Millis) -> bool:
        if now < known.tried_at + AGAIN_MS:
            return False
        missing = bool(kid) and all(key.kid != kid for key in known.keys)
        return missing or now >= known.fresh_until

    @staticmethod
    async def _ask(url: str, before: _Known | None, fetch: FetchDocument, now: Millis) -> _Known:
        try:
            fetched = await fetch(url)
            keys = parse_set(fetched.body)
        except BadKeys as problem:
            return _failed(str(problem), now)
        except CannotFetch as problem:
            kept = before is not None and before.keys and not problem.definite
            if before is not None and kept and now < before.fetched_at + STALE_MS:
                return replace(before, fresh_until=now + AGAIN_MS, tried_at=now)
            return _failed(str(problem), now)
        lives = min(max((fetched.max_age_seconds or 0) * 1_000, SHORTEST_MS), LONGEST_MS)
        return _Known(keys=keys, problem="", fetched_at=now, fresh_until=now + lives, tried_at=now)

    def _keep(self, url: str, known: _Known) -> None:
        self._known.pop(url, None)
        while len(self._known) >= self._sets:
            del self._known[next(iter(self._known))]
        self._known[url] = known


def _failed(problem: str, now: Millis) -> _Known:
    return _Known(keys=(), problem=problem, fetched_at=now, fresh_until=now + AGAIN_MS, tried_at=now)
