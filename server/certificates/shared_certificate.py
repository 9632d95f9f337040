"""One certificate for all nodes that share a database.

    lead     whoever holds the lease gets, renews and revokes it (certificate_keeper.py), and says how it stands
    follow   every node serves what the database has, and shows the authority what proves a name, whichever of them it comes to

A node that is behind, or finds what it cannot read, serves on what it has. A wish for another certificate is left in the database:
the node with the lease fulfils it. If that node dies the next one goes on, with the same order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec
import trio

from server.certificates import certificate_rows as rows
from server.certificates.certificate_files import AcmeFiles
from server.certificates.certificate_keeper import (
    MOST_REVOCATIONS,
    CertificateKeeper,
    CertificatePlan,
    too_many,
)
from server.certificates.certificate_rows import AcmeRow, AcmeVault, SharedProofs, SharedState
from server.certificates.certificate_state import CertificateState
from server.certificates.kept_certificates import CannotKeep, IssuedCertificate, KeepsCertificates
from server.certificates.name_proofs import Proofs
from server.certificates.shared_records import NotOurs, SharedKept, asked, issued_in
from server.lib.log.logger import Logger
from server.store import task_leases
from server.store.jobs import Change, Store, StoreError
from server.store.task_leases import Lease

# The lease is somebody's as long as that node lives; it is renewed all the same, so that nothing rests on one look at who does.
LEASE_MILLIS: Final = 30 * 60_000
RENEW_SECONDS: Final = 600.0
# Others are told when a node is gone; this is for a word that was lost, and for who let go of it and may have it again.
LEAD_AGAIN_SECONDS: Final = 600.0
LEAD_SOON_SECONDS: Final = 60.0
# Each change is told; this is for one that was lost, and for a database that was away.
LOOK_SECONDS: Final = 600.0
LOOK_AGAIN_SECONDS: Final = 5.0
_LEADING: Final = "lead"

MakeKeeper = Callable[[KeepsCertificates, Callable[[IssuedCertificate], object]], CertificateKeeper]


class SharedKeeper:
    """The keeper of one node: `begin`, then `run` for as long as the server listens."""

    def __init__(
        self,
        plan: CertificatePlan,
        store: Store,
        vault: AcmeVault,
        proofs: Proofs,
        log: Logger,
        *,
        boot_id: str,
        node: str,
        make: MakeKeeper,
        take: Callable[[IssuedCertificate], None],
        before: Callable[[], AcmeFiles | None] = lambda: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Take the parts. `take` has this certificate served from now on, and raises `CannotKeep`. `node` is this one's name, for people.
        `before` gives the files of a server that was alone until now, if there are any, and blocks."""
        self._store = store
        self._vault = vault
        self._proofs = proofs
        self._log = log
        self._boot_id = boot_id
        self._node = node
        self._make = make
        self._take = take
        self._before = before
        self._clock = clock
        self._seen: dict[str, str] = {}  # the sealed texts that were taken up, or would not do
        self._served: IssuedCertificate | None = None
        self._problems: dict[str, str] = {}  # by what it is about
        self._told = SharedState(node="")
        self._hurried = 0  # the wish for which it was hurried last, while this node leads
        self._proofs_until = trio.current_time()
        self._following = CertificateState(names=plan.names, authority=plan.directory)
        self._keeper: CertificateKeeper | None = None  # while this node leads
        self._kept: SharedKept | None = None
        self._leading: trio.CancelScope | None = None
        self._look = trio.Event()
        self._free = trio.Event()

    # ── for others ───────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def leads(self) -> bool:
        return self._keeper is not None

    @property
    def has_one(self) -> bool:
        return self._served is not None

    def described(self) -> dict[str, Any]:
        return self._state().described()

    def note(self) -> str:
        """Say in one line how it stands, for whoever looks at /readyz; nothing where all is well."""
        for problem in self._problems.values():
            then = "; the one of before is served" if self._served is not None else ""
            return f"certificate: {problem}{then}"
        state = self._state()
        return state.note(self._clock() + state.ahead_seconds)

    async def renew(self) -> int:
        """Have a new certificate with a new key got, now, by whoever does that; return how many attempts will be over when this one is.
        Raise `CannotKeep`."""
        return await self._ask(None)

    async def revoke(self, reason: int, *, at_once: bool) -> int:
        """Renew, and have what is served revoked. Raise `LookupError` as well, where there is none."""
        if self._served is None:
            raise LookupError("there is no certificate")
        revocation = self._served.revocation(reason, at_once=at_once)
        what = rows.name_of(revocation)
        return await self._ask((what, self._vault.seal(what, msgspec.json.encode(revocation))))

    async def _ask(self, revocation: tuple[str, str] | None) -> int:
        job = partial(
            rows.wish,
            vault=self._vault,
            sealed=self._vault.seal(rows.WISH, b"{}"),
            revocation=revocation,
            most=MOST_REVOCATIONS,
        )
        wished = await asked(self._store.write(job))
        if wished.full:
            raise too_many(self.note())
        return wished.attempt

    # ── what the server hears ────────────────────────────────────────────────────────────────────────────────────────

    def apply_changes(self, changes: Sequence[Change]) -> None:
        """Handle the store's `on_changes`."""
        if any(change.kind == rows.CHANGE for change in changes):
            self._look.set()

    def trust(self, trusted: bool) -> None:
        """Handle the store's `on_trust`: changes of meanwhile may not have been told. The served certificate is served on."""
        if trusted:
            self._look.set()

    def let_go(self) -> None:
        """Let go, because this node may be taken for dead: another one may get certificates now."""
        if self._leading is not None:
            self._leading.cancel()

    def look_for_left(self) -> None:
        """Look whether it is this one's turn, because another node is gone."""
        self._free.set()

    # ── running ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def begin(self) -> None:
        """Serve what there is. Raise `CannotKeep`."""
        found = await asked(self._store.read(rows.followed))
        row = found.get(rows.CERTIFICATE)
        if row is not None:
            self._serve(issued_in(row, self._vault))
            self._seen[row.what] = row.sealed
        await asked(self._take_up(found))

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow)
            nursery.start_soon(self._lead)

    async def _follow(self) -> None:
        while True:
            self._look = trio.Event()
            wait = LOOK_SECONDS
            try:
                await self._take_up(await self._store.read(rows.followed))
            except StoreError as problem:
                self._log.debug("certificate.not_looked_for", reason=str(problem))
                wait = LOOK_AGAIN_SECONDS
            left = self._proofs_until - trio.current_time()
            with trio.move_on_after(min(wait, left) if left > 0 else wait):
                await self._look.wait()
            if self._proofs and not self.leads and trio.current_time() >= self._proofs_until:
                await self._proofs.take(())

    async def _take_up(self, found: Mapping[str, AcmeRow]) -> None:
        """Take up what is new of it. Raise `StoreError`."""
        if (wish := found.get(rows.WISH)) is not None:
            self._hear(wish.version)
        for what, take in (
            (rows.CERTIFICATE, self._take_certificate),
            (rows.STATE, self._take_state),
            (rows.PROOFS, self._take_proofs),
        ):
            row = found.get(what)
            if row is None or self._seen.get(what) == row.sealed:
                continue
            try:
                await take(row)
            except CannotKeep as problem:
                self._say(what, problem)
            else:
                self._problems.pop(what, None)
            self._seen[what] = row.sealed

    async def _take_certificate(self, row: AcmeRow) -> None:
        issued = issued_in(row, self._vault)
        if self._serve(issued) and not self.leads:
            self._log.info(
                "certificate.taken_over", names=list(issued.facts.names), serial=issued.facts.serial
            )

    async def _take_state(self, row: AcmeRow) -> None:
        self._told = self._vault.read(row, SharedState)

    async def _take_proofs(self, row: AcmeRow) -> None:
        if self.leads:  # it made them
            return
        proofs = self._vault.read(row, SharedProofs)
        left = proofs.until / 1000 - self._clock()
        await self._proofs.take(proofs.shown if left > 0 else ())
        self._proofs_until = trio.current_time() + max(left, 0.0)
        if proofs.shown:
            await self._store.write(partial(rows.show, boot_id=self._boot_id, proofs=row.version))

    def _hear(self, wish: int) -> None:
        kept, keeper = self._kept, self._keeper
        if keeper is not None and kept is not None and wish > max(kept.heard, self._hurried):
            self._hurried = wish
            keeper.hurry()

    def _serve(self, issued: IssuedCertificate) -> bool:
        """Serve it; return whether it is another one than before. Raise `CannotKeep`."""
        before, another = self._served, issued.facts.fingerprint
        if before is not None and before.facts.fingerprint == another:
            return False
        self._take(issued)
        self._served = issued
        return True

    def _say(self, what: str, problem: CannotKeep) -> None:
        if self._problems.get(what) != str(problem):
            self._log.error("certificate.not_taken_over", reason=str(problem), hint=problem.hint)
        self._problems[what] = str(problem)

    def _state(self) -> CertificateState:
        if self._keeper is not None:
            return self._keeper.state
        state, told = self._following, self._told
        state.serving = None if self._served is None else self._served.facts
        state.doing = "getting" if told.doing == "getting" else "waiting"
        state.attempts, state.renews_at, state.trouble = told.attempts, told.renews_at, told.trouble
        state.ahead_seconds, state.revoking = told.ahead_seconds, told.revoking
        return state

    # ── while it holds the lease ─────────────────────────────────────────────────────────────────────────────────────

    async def _lead(self) -> None:
        lease: Lease | None = None
        while True:
            self._free = trio.Event()
            again = LEAD_AGAIN_SECONDS
            try:
                lease = await self._store.write(partial(self._hold, held=lease, now=self._now()))
                if lease is not None:
                    again = LEAD_SOON_SECONDS
                    await self._keep(lease)
            except StoreError as problem:
                self._log.debug("certificate.not_led", reason=str(problem))
            except NotOurs:
                pass
            except CannotKeep as problem:
                self._say(_LEADING, problem)
            with trio.move_on_after(again):
                await self._free.wait()

    def _hold(self, db: Any, *, held: Lease | None, now: int) -> Lease | None:
        return rows.hold(db, owner=self._boot_id, held=held, now=now, millis=LEASE_MILLIS)

    async def _keep(self, lease: Lease) -> None:
        """Keep certificates for as long as this node has the lease. Raise `CannotKeep` and `StoreError`."""
        with trio.CancelScope() as leading:
            kept = SharedKept(
                self._store, self._vault, lease, node=self._node, clock=self._now, lost=leading.cancel
            )
            keeper = self._make(kept, self._serve)
            await self._go_on(kept, keeper)
            self._problems.pop(_LEADING, None)
            self._leading, self._kept, self._keeper, self._hurried = leading, kept, keeper, 0
            alone, self._proofs.tell = self._proofs.tell, kept.show
            self._log.info("certificate.led", node=self._node)
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._stay, lease, leading)
                    nursery.start_soon(keeper.run)
            finally:
                self._leading = self._kept = self._keeper = None
                self._proofs.tell = alone
                # What was passed over while it led.
                self._seen.pop(rows.PROOFS, None)
                self._look.set()

    async def _go_on(self, kept: SharedKept, keeper: CertificateKeeper) -> None:
        """Go on where the node that had the lease before has left off."""
        if self._served is None:
            await self._bring_along(kept)
        await keeper.begin()
        before = await self._store.read(partial(rows.get, what=rows.STATE))
        if before is not None:
            told = self._vault.read(before, SharedState)
            kept.heard = told.heard
            # What was under way there has ended with it.
            keeper.state.attempts = told.attempts + (told.doing == "getting")
        if await kept.attempted(keeper.state):
            keeper.hurry()

    async def _bring_along(self, kept: SharedKept) -> None:
        """Keep what a server has got that was alone until now."""
        if await kept.certificate() is not None:
            return
        files = await trio.to_thread.run_sync(self._before)
        if files is None:
            return
        for directory, account in (await trio.to_thread.run_sync(files.accounts)).items():
            await kept.keep_account(directory, account)
        if (issued := await trio.to_thread.run_sync(files.certificate)) is not None:
            await kept.keep_certificate(issued)
            self._log.info("certificate.brought_along", names=list(issued.facts.names))

    async def _stay(self, lease: Lease, leading: trio.CancelScope) -> None:
        while True:
            await trio.sleep(RENEW_SECONDS)
            try:
                held = await self._store.write(
                    partial(task_leases.renew, lease=lease, now=self._now(), millis=LEASE_MILLIS)
                )
            except StoreError:  # what needs it finds out
                continue
            if not held:
                leading.cancel()

    def _now(self) -> int:
        return round(self._clock() * 1000)
