"""Certificates as kept in the database that several nodes share, for the one of them that gets certificates now: implements
`KeepsCertificates`. Once another one has taken that over, nothing of it is written any more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
import trio

from server.certificates import certificate_rows as rows
from server.certificates.certificate_order import PROOF_SECONDS
from server.certificates.certificate_rows import AcmeRow, AcmeVault, SharedProofs, SharedState
from server.certificates.certificate_state import CertificateState
from server.certificates.kept_certificates import (
    CERTIFICATE_BYTES,
    CannotKeep,
    IssuedCertificate,
    KeptAccount,
    KeptOrder,
    KeptRest,
    KeptRevocation,
    certificate_in,
    certificate_text,
)
from server.certificates.name_proofs import ShownProof
from server.store.jobs import Store, StoreDb, StoreError
from server.store.task_leases import Lease

# Each name may take so long, and nobody has more of them than this.
PROOFS_MILLIS: Final = round(PROOF_SECONDS * 1000) * 5
# A node that is alive and does not show a proof by then may be met by the authority all the same; then the attempt is made again.
SHOWN_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.1

T = TypeVar("T")


class NotOurs(CannotKeep):
    """A refusal, because another node gets certificates now."""

    def __init__(self) -> None:
        super().__init__("another node gets the certificate now", hint="it is done there")


class SharedKept:
    """The records of the node with the lease. `heard`: the version of the wish that was carried out last; `lost` is told once the lease is."""

    def __init__(
        self,
        store: Store,
        vault: AcmeVault,
        lease: Lease,
        *,
        node: str,
        clock: Callable[[], int],
        lost: Callable[[], None],
        heard: int = 0,
    ) -> None:
        self.heard = heard
        self._store = store
        self._vault = vault
        self._lease = lease
        self._node = node
        self._clock = clock
        self._lost = lost
        self._revocations: dict[str, KeptRevocation] = {}

    async def account(self, directory: str) -> KeptAccount | None:
        return await self._read(account_row(directory), KeptAccount)

    async def keep_account(self, directory: str, account: KeptAccount) -> None:
        await self._keep({account_row(directory): account})

    async def certificate(self) -> IssuedCertificate | None:
        row = await self._row(rows.CERTIFICATE)
        return None if row is None else issued_in(row, self._vault)

    async def keep_certificate(self, issued: IssuedCertificate) -> None:
        text = certificate_text(issued)
        if len(text) > CERTIFICATE_BYTES:
            raise CannotKeep(f"the chain of the certificate has more than {CERTIFICATE_BYTES // 1024} KiB")
        await self._put({rows.CERTIFICATE: self._vault.seal(rows.CERTIFICATE, text)})

    async def order(self) -> KeptOrder | None:
        return await self._read(rows.ORDER, KeptOrder)

    async def keep_order(self, order: KeptOrder | None) -> None:
        await self._keep({rows.ORDER: order})

    async def revocations(self) -> tuple[KeptRevocation, ...]:
        found = await self._store_read(partial(rows.of_kind, prefix=rows.REVOCATION))
        self._revocations = {row.what: self._vault.read(row, KeptRevocation) for row in found}
        return tuple(self._revocations.values())

    async def keep_revocations(self, revocations: Sequence[KeptRevocation]) -> None:
        """Keep these in place of those that were read; one that another node has added since stays."""
        kept = {rows.name_of(each): each for each in revocations}
        fresh = {what: each for what, each in kept.items() if self._revocations.get(what) != each}
        await self._keep(fresh, gone=[what for what in self._revocations if what not in kept])
        self._revocations = kept

    async def rest(self) -> KeptRest | None:
        return await self._read(rows.REST, KeptRest)

    async def keep_rest(self, rest: KeptRest | None) -> None:
        await self._keep({rows.REST: rest})

    async def attempting(self, state: CertificateState) -> bool:
        wish = await self._say(state)
        asked, self.heard = wish > self.heard, wish
        return asked

    async def attempted(self, state: CertificateState) -> bool:
        return await self._say(state) > self.heard

    async def show(self, shown: Sequence[ShownProof]) -> None:
        """Show these until all nodes that are alive do, or have had the time for it."""
        until = self._clock() + PROOFS_MILLIS
        version = await self._keep({rows.PROOFS: SharedProofs(shown=tuple(shown), until=until)})
        if not shown:
            return
        missing = partial(rows.not_showing, boot_id=self._lease.owner, proofs=version)
        with trio.move_on_after(SHOWN_SECONDS):
            while True:
                if not await self._store_read(missing):
                    return
                await trio.sleep(_LOOK_SECONDS)

    async def _say(self, state: CertificateState) -> int:
        told = SharedState(
            node=self._node,
            doing=state.doing,
            attempts=state.attempts,
            renews_at=state.renews_at,
            trouble=state.trouble,
            ahead_seconds=state.ahead_seconds,
            revoking=state.revoking,
            heard=self.heard,
        )
        sealed = self._vault.seal(rows.STATE, msgspec.json.encode(told))
        return self._ours(await self._write(partial(rows.say, sealed=sealed)))

    async def _row(self, what: str) -> AcmeRow | None:
        return await self._store_read(partial(rows.get, what=what))

    async def _read(self, what: str, shape: type[T]) -> T | None:
        row = await self._row(what)
        return None if row is None or self._vault.open(row) == b"null" else self._vault.read(row, shape)

    async def _keep(self, values: dict[str, Any], *, gone: Sequence[str] = ()) -> int:
        sealed = {what: self._vault.seal(what, msgspec.json.encode(value)) for what, value in values.items()}
        return await self._put(sealed, gone=gone)

    async def _put(self, sealed: dict[str, str], *, gone: Sequence[str] = ()) -> int:
        return self._ours(await self._write(partial(rows.put, sealed=sealed, gone=gone)))

    async def _write(self, job: Callable[..., int | None]) -> int | None:
        return await asked(self._store.write(partial(job, lease=self._lease, now=self._clock())))

    async def _store_read(self, job: Callable[[StoreDb], T]) -> T:
        return await asked(self._store.read(job))

    def _ours(self, version: int | None) -> int:
        if version is None:
            self._lost()
            raise NotOurs
        return version


def issued_in(row: AcmeRow, vault: AcmeVault) -> IssuedCertificate:
    """Open a certificate. Raise `CannotKeep`."""
    try:
        return certificate_in(vault.open(row))
    except ValueError:
        raise rows.damaged(row.what) from None


async def asked(operation: Awaitable[T]) -> T:
    """Await the database. Raise `CannotKeep` where it cannot be used."""
    try:
        return await operation
    except StoreError as problem:
        why = f"the database cannot be used for certificates now: {problem}"
        raise CannotKeep(why, hint=problem.hint) from problem


def account_row(directory: str) -> str:
    return rows.ACCOUNT + hashlib.sha256(directory.encode()).hexdigest()
