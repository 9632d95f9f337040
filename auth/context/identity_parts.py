"""The one bag of parts that identity works with: what the server lends it, what it caches, what it counts.

Put together once per process (auth/identity.py), below everything that answers a request: endpoints for programs and pages for people
take the same one. Functions take the parts they use where that is few. Nothing here decides.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Final, NoReturn, Protocol, TypeAlias

import msgspec

from auth.clients.client_identifier_urls import NO_DOCUMENTS, Documents, FetchDocument
from auth.clients.client_key_sets import KeySets
from auth.keys import signing_keys as keys
from auth.keys.signing_keys import Keys
from auth.providers import provider_requests as upstream_provider
from auth.providers.provider_requests import Upstreams
from auth.throttling.request_throttle import Throttle
from auth.values.cashier import Cashier
from auth.values.connected_accounts import Connections
from auth.values.database import JobStore
from auth.values.identity_model import Millis
from auth.values.issuer_and_resources import Site
from auth.values.limits_and_lifetimes import Policy
from auth.values.offered_servers import Offerings


class HashingBusy(Exception):
    """A full queue for hashes. Nothing was counted or begun: it can be tried again in a few seconds."""


class HashPlace(Protocol):
    """A place in the queue of those who need a hash."""

    async def turn(self) -> None:
        """Wait until it is this one's turn, which lasts to the end of the block."""
        ...


class HashPlaces(Protocol):
    """The order in which people may hash. `first`: this is somebody who was let in before, and goes before strangers."""

    def __call__(self, *, first: bool) -> AbstractContextManager[HashPlace]:
        """Take a place. Raise `HashingBusy`."""
        ...


class _AlwaysNext:
    async def turn(self) -> None:
        """Wait for nobody."""


def _no_queue(*, first: bool) -> AbstractContextManager[HashPlace]:
    del first
    return nullcontext(_AlwaysNext())


# `user_accounts.hash_passphrase` and `verify_passphrase`, in a thread of the caller's.
Hasher: TypeAlias = Callable[[str, bytes], Awaitable[str]]
PassphraseVerifier: TypeAlias = Callable[[str, str], Awaitable[bool]]


async def _hash_nothing(*given: object) -> NoReturn:
    del given
    raise RuntimeError("nobody lent a thread for passphrases")


class Hashing(msgspec.Struct, frozen=True, kw_only=True):
    """The hashing of passphrases, elsewhere: it takes long, and much memory. A place is taken first, before anything is counted."""

    hash_passphrase: Hasher
    verify_passphrase: PassphraseVerifier
    place: HashPlaces = _no_queue


NO_HASHING: Final = Hashing(hash_passphrase=_hash_nothing, verify_passphrase=_hash_nothing)


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    store: JobStore
    clock: Callable[[], Millis]
    entropy: Callable[[int], bytes]
    subkey: Callable[[str], bytes]
    site: Site
    policy: Policy
    keys: Keys
    throttle: Throttle = msgspec.field(default_factory=Throttle)
    documents: Documents = NO_DOCUMENTS
    fetch: FetchDocument | None = None  # documents of clients; None: this server asks nobody
    key_sets: KeySets = msgspec.field(default_factory=KeySets)
    upstreams: Upstreams = msgspec.field(default_factory=upstream_provider.none)
    hashing: Hashing = NO_HASHING  # of a server without pages
    cashier: Cashier | None = None  # where something costs money
    connections: Connections | None = None  # where tools are used with accounts of people elsewhere
    offerings: Offerings | None = None  # what the servers are that somebody is let in to

    def __repr__(self) -> str:
        return "Parts(…)"  # what lends entropy and subkeys may show secrets

    async def reload_keys(self) -> None:
        """Read the keys again if the store has newer ones. Raise what the store raises."""
        if self.keys.stale or not self.keys.trusted:
            await self.keys.reload(lambda: self.store.read(keys.every))
