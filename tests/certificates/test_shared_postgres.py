"""Two nodes with a store each on one PostgreSQL database: what one gets the other hears of, and proves."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import structlog
import trio

from server.certificates.certificate_keeper import CertificateKeeper, CertificatePlan
from server.certificates.certificate_rows import AcmeVault
from server.certificates.kept_certificates import IssuedCertificate
from server.certificates.name_proofs import Proofs
from server.certificates.shared_certificate import SharedKeeper
from server.cluster.postgres.postgres import open_postgres_store
from server.store import node_rows
from server.store.node_rows import MemberNode
from server.store.threaded_store import ThreadedStore
from tests.certificates.fake_authority import DIRECTORY, FakeAuthority, looking_at, serial_of

PATIENCE = 60
PLAN = CertificatePlan(names=("agent.example.org",), directory=DIRECTORY, ways=("tls-alpn-01",))


def now_millis() -> int:
    return time.time_ns() // 1_000_000


@dataclass
class Serving:
    store: ThreadedStore
    proofs: Proofs = field(default_factory=Proofs)
    served: list[str] = field(default_factory=list)
    another: trio.Event = field(default_factory=trio.Event)

    def take(self, issued: IssuedCertificate) -> None:
        self.served.append(serial_of(issued.chain))
        self.another.set()

    async def has(self, count: int) -> None:
        while len(self.served) < count:
            self.another = trio.Event()
            await self.another.wait()


async def begin(one: Serving, name: str, authority: FakeAuthority) -> SharedKeeper:
    log = structlog.get_logger()

    def make(kept: Any, take: Callable[[IssuedCertificate], object]) -> CertificateKeeper:
        return CertificateKeeper(PLAN, kept, one.proofs, authority, log, take=take)

    me = MemberNode(boot_id=name, name=name, home=name, address="", version="1", started_at=now_millis())
    await one.store.write(partial(node_rows.enter, node=me))
    keeper = SharedKeeper(
        PLAN,
        one.store,
        AcmeVault(lambda _: bytes(32), os.urandom),
        one.proofs,
        log,
        boot_id=name,
        node=name,
        make=make,
        take=one.take,
    )
    one.store.on_changes(keeper.apply_changes)
    one.store.on_trust(keeper.trust)
    await keeper.begin()
    return keeper


async def test_the_other_node_proves_the_name_and_serves_what_this_one_got(
    postgres_database: dict[str, str],
) -> None:
    async with AsyncExitStack() as stack:
        opened = [
            await stack.enter_async_context(open_postgres_store(postgres_database, clock=now_millis))
            for _ in range(2)
        ]
        one, two = (Serving(store) for store in opened)

        async def look(*proof: str) -> tuple[str, str] | None:
            """At the one that has not asked."""
            return await looking_at((two if first.leads else one).proofs)(*proof)

        authority = FakeAuthority(clock=time.time, look=look)
        first, second = await begin(one, "one", authority), await begin(two, "two", authority)
        nursery = await stack.enter_async_context(trio.open_nursery())
        with trio.fail_after(PATIENCE):
            nursery.start_soon(first.run)
            nursery.start_soon(second.run)
            await one.has(1)
            await two.has(1)
            await (second if first.leads else first).renew()
            await two.has(2)
            await one.has(2)
        assert one.served == two.served
        assert len(authority.orders) == 2 and len(authority.accounts) == 1
        assert first.leads != second.leads
        nursery.cancel_scope.cancel()
