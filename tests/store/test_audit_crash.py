"""A process killed while it audits and changes keys: the chain is whole, nothing acknowledged is gone, and one key signs."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from audit_child import POLICY, SITE, Clock, subkey
from store_engines import NOW

from auth import self_test
from auth.audit import audit_trail
from auth.identity import found
from auth.keys import key_rotation
from auth.keys import signing_keys as keys
from server.store.audit_chain import AuditChain
from server.store.sqlite import open_store
from tests.killed_child import said_until_killed

CHILD = Path(__file__).with_name("audit_child.py")
YEAR = 365 * 24 * 3_600_000


async def test_killed_at_any_step_the_chain_verifies_and_exactly_one_key_signs(directory: Path) -> None:
    database, said = directory / "ostiary.db", list[str]()
    for round_number in range(6):
        now = NOW + round_number * YEAR
        new = said_until_killed(CHILD, str(database), str(now), lines=40 + 57 * round_number)
        said += new
        # No later than when it was killed: there, whatever is due is still due.
        clock = Clock(now)
        async with open_store(database, clock=clock, backups=directory / "backups") as store:
            identity = await found(store, clock=clock, entropy=bytes, subkey=subkey, site=SITE, policy=POLICY)
            chain = AuditChain(subkey(audit_trail.KEY_PURPOSE))
            piece = await store.read(partial(chain.walk, at=None, at_most=9_000))
            assert piece.broken is None
            rows = await store.read(
                lambda db: db.fetch_all("SELECT seq, event, reason FROM audit ORDER BY seq")
            )
            assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
            there = {(row["seq"], row["reason"]) for row in rows}
            for line in said:
                if line.startswith("row "):
                    _, seq, reason = line.split()
                    assert (int(seq), reason) in there, f"{line} was acknowledged and is lost"
            found_keys, refresh = await store.read(keys.every)
            assert 1 <= sum(bool(row["sealed_private"]) for row in found_keys) <= key_rotation.PUBLISHED
            kids = {row["kid"] for row in found_keys}
            assert kids >= {line.split()[1] for line in said if line.startswith("signs ")}
            # Each step is a row of its own, in the same transaction: what the keys are is what the trail says.
            dropped = {row["reason"] for row in rows if row["event"] in ("key.dropped", "key.retired")}
            gone = {row["kid"] for row in found_keys if not row["sealed_private"]}
            assert dropped == gone | {f"rt{row['version']}" for row in refresh if not row["sealed_secret"]}
            assert [row["version"] for row in refresh] == list(range(1, len(refresh) + 1))
            assert [row["accepted_until"] is None for row in refresh] == [False] * (len(refresh) - 1) + [True]
            assert self_test.examine(identity.parts) == ()
    assert sum(line.startswith("step Publish") for line in said) >= 1
