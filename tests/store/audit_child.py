"""A process that audits and changes signing keys as fast as it can, until it is killed. Started by test_audit_crash.py.

usage: audit_child.py DATABASE MILLIS
"""

from __future__ import annotations

import hashlib
import secrets
import sys
from functools import partial
from pathlib import Path

import trio

from auth.audit import audit_trail
from auth.identity import Identity, found
from auth.keys import key_rotation
from auth.values.database import Db
from auth.values.issuer_and_resources import Site
from auth.values.limits_and_lifetimes import DAY, KeyPolicy, Policy
from server.store.sqlite import open_store
from tests.killed_child import say

SITE = Site(issuer="http://127.0.0.1:8420", loopback=True, servers={"agent": "/mcp"})
POLICY = Policy(keys=KeyPolicy(signs_ms=4 * DAY))
WRITERS = 4


def subkey(purpose: str) -> bytes:
    return hashlib.sha256(b"crash test " + purpose.encode()).digest()


class Clock:
    """Hours pass at each look, so that keys are always due."""

    def __init__(self, now: int) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


async def write(identity: Identity, number: int) -> None:
    serial = 0
    while True:
        name = f"{number}-{serial}"

        def job(db: Db, name: str = name) -> int:
            audit_trail.record(db, at=identity.parts.clock(), event="test.done", reason=name)
            row = db.fetch_one("SELECT max(seq) AS seq FROM audit")
            return 0 if row is None else row["seq"]

        say(f"row {await identity.parts.store.write(job)} {name}")
        serial += 1


async def rotate(identity: Identity, clock: Clock) -> None:
    rounds = 0
    while True:
        clock.now += DAY // 8
        rounds += 1
        if rounds % 20 == 0:
            spare = key_rotation.prepare(subkey, secrets.token_bytes, POLICY.tokens, clock.now)
            job = partial(key_rotation.replace_all, spare=spare, by="local:0", now=clock.now)
            await identity.parts.store.write(job)
            say(f"signs {spare.signing.kid}")
            continue
        steps = await key_rotation.keep(
            identity.parts.store,
            subkey=subkey,
            entropy=secrets.token_bytes,
            policy=POLICY.keys,
            tokens=POLICY.tokens,
            now=clock.now,
        )
        for step in steps:
            say(f"step {type(step).__name__}")


async def main(database: Path, now: int) -> None:
    clock = Clock(now)
    async with open_store(database, clock=clock, backups=database.parent / "backups") as store:
        identity = await found(
            store, clock=clock, entropy=secrets.token_bytes, subkey=subkey, site=SITE, policy=POLICY
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rotate, identity, clock)
            for number in range(WRITERS):
                nursery.start_soon(write, identity, number)


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]), int(sys.argv[2]))
