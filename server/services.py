"""What the running server consists of, and how its parts are put together: identity, its pages, the agents, what counts.

Nothing is started here; that, and the order of it, is app.py's. Requests find their way in answering.py.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final

import trio
from structlog.typing import FilteringBoundLogger

from auth import endpoints, users
from auth.endpoints import Identity
from auth.model import Millis
from auth.policy import DAY, MINUTE, DevicePolicy, Policy, TokenPolicy
from auth.site import Site
from auth.visit import Parts
from server import __version__, agents
from server.admin import Admin
from server.backends.catalog import Catalog
from server.observe.metrics import Metrics
from server.resolve import Resolved
from server.store import keyfile, meta
from server.store.home import Home
from server.store.jobs import Store
from server.store.keyfile import MasterKey
from server.subscriptions import Subscriptions

# Argon2id takes 26 ms and 19 MiB each: two at once keep the machine responsive while somebody guesses.
HASHES_AT_ONCE: Final = 2
# Subkeys carry an id, so that one purpose can be given a new key one day while the old one still reads.
SUBKEY_ID: Final = 1


class CannotStart(Exception):
    """Something on this machine prevents the start; the text says what, the hint what to do."""

    def __init__(self, problem: str, hint: str = "") -> None:
        super().__init__(problem)
        self.hint = hint


@dataclass(frozen=True, kw_only=True, slots=True)
class Services:
    """What the running server consists of. Functions take the parts they use, not this."""

    resolved: Resolved
    log: FilteringBoundLogger
    metrics: Metrics
    store: Store
    identity: Identity
    pages: Parts
    catalogs: Mapping[str, Catalog]
    subscriptions: Subscriptions
    boot_id: str
    started_at: Millis


def now_millis() -> Millis:
    return time.time_ns() // 1_000_000


async def open_key(resolved: Resolved, home: Home, store: Store) -> MasterKey:
    """The key file that belongs to this database, made at the very first start."""
    known = await store.read(lambda db: meta.get(db, meta.KEY_FINGERPRINT))
    key = keyfile.open_key(
        resolved.config.key_file or home.key_file,
        known_fingerprint=known,
        random_bytes=secrets.token_bytes,
        environment=os.environ,
    )
    await store.write(partial(keyfile.bind_key, fingerprint=key.fingerprint))
    return key


async def build(
    resolved: Resolved, log: FilteringBoundLogger, store: Store, key: MasterKey, *, port: int
) -> Services:
    config = resolved.config

    @cache
    def subkey(purpose: str) -> bytes:
        return key.subkey(f"{purpose}/{SUBKEY_ID}")

    policy = Policy(
        device=DevicePolicy(
            lifetime_ms=config.device_code_minutes * MINUTE, approve_from=config.device_approval
        ),
        tokens=TokenPolicy(
            access_ms=config.access_token_minutes * MINUTE, device_login_ms=config.login_days * DAY
        ),
    )
    home = Site(issuer=resolved.canonical_issuer(port), loopback=resolved.loopback, servers=resolved.paths)
    identity = await endpoints.found(
        store, clock=now_millis, entropy=secrets.token_bytes, subkey=subkey, site=home, policy=policy
    )
    store.on_changes(identity.apply_changes)
    hashing = trio.CapacityLimiter(HASHES_AT_ONCE)

    async def hash_passphrase(passphrase: str, salt: bytes) -> str:
        return await trio.to_thread.run_sync(users.hash_passphrase, passphrase, salt, limiter=hashing)

    async def verify_passphrase(passphrase: str, phc: str) -> bool:
        return await trio.to_thread.run_sync(users.verify_passphrase, passphrase, phc, limiter=hashing)

    pages = Parts(
        store=store,
        clock=now_millis,
        entropy=secrets.token_bytes,
        subkey=subkey,
        hash_passphrase=hash_passphrase,
        verify_passphrase=verify_passphrase,
        site=home,
        policy=policy,
    )
    try:
        catalogs = {server.name: agents.make_catalog(server, subkey) for server in resolved.servers}
    except ValueError as problem:
        raise CannotStart(
            f"an agent cannot be used: {problem}", "see [[server.agent]] in the settings"
        ) from problem
    metrics, subscriptions = Metrics(__version__), Subscriptions()
    metrics.gauge("subscriptions", "Open subscription streams", subscriptions.count)
    return Services(
        resolved=resolved,
        log=log,
        metrics=metrics,
        store=store,
        identity=identity,
        pages=pages,
        catalogs=catalogs,
        subscriptions=subscriptions,
        boot_id=secrets.token_hex(8),
        started_at=now_millis(),
    )


def admin_of(services: Services) -> Admin:
    issuer = services.identity.site.issuer

    def status() -> Mapping[str, Any]:
        return {
            "version": __version__,
            "origin": issuer,
            "paths": dict(services.resolved.paths),
            "data_dir": str(services.resolved.data_dir),
            "started_at": services.started_at,
            "auth": services.resolved.config.auth,
        }

    return Admin(
        store=services.store,
        clock=now_millis,
        subkey=services.identity.subkey,
        status=status,
        origin=lambda: issuer,
    )
