"""The audit trail while the server runs: begun with the key of the database, and its head written down outside of it.

The head goes into the file (`store/audit_head.py`) after so many rows or seconds, and at the end; now and then, and at the end, into
the log as well, where whoever can write here cannot take it back. No decision waits for any of that.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from operator import methodcaller
from typing import TYPE_CHECKING, Final, TypeAlias

import trio

from auth.audit import audit_trail
from auth.values.database import Db
from server.calls.servers.server_opening import now_millis, subkeys
from server.lib.log.logger import Logger, is_for_people
from server.run.logged_decisions import log_decisions
from server.store import keyfile, ledger_chain, meta_rows
from server.store.audit_chain import AuditChain
from server.store.audit_head import HeadFile, HeadLost
from server.store.chains import RowChain
from server.store.data_directory import DataDirectory
from server.store.jobs import BEGINNING, AuditedStore, CannotOpen, OnAudit, Position, StoreDb, StoreError
from server.store.keyfile import MasterKey
from server.store.ledger_chain import LedgerChain

if TYPE_CHECKING:
    from server.run.named_decisions import NamedDecisions

# What a kill and a cut together may take without a break: rows of so many seconds, or so many rows and those of a second.
HEAD_SECONDS: Final = 10.0
HEAD_ROWS: Final = 1_000
LOOK_SECONDS: Final = 1.0
LOGGED_EVERY_SECONDS: Final = 3600.0
SETTLED_EVERY_SECONDS: Final = 60.0
RIGHTS_ALTERED: Final = "rights.altered"
# As much of a MAC as `ostiary verify --expect` wants.
LOGGED_DIGITS: Final = 16
# A disk that does not answer holds up the end no longer.
END_SECONDS: Final = 5.0


# Of the trail and of the ledger: ends that each had once.
Known: TypeAlias = tuple[Sequence[Position], Sequence[Position]]


class WrittenHead:
    """The end of one chain, as it was written down last, and as this process last saw it."""

    def __init__(
        self, name: str, file: HeadFile, committed: Callable[[], Position | None], log: Logger
    ) -> None:
        self.file = file
        self.committed = committed
        self._name = name
        self._log = log
        self._written: Position | None = None
        self._seen: Position | None = None
        self._logged: Position | None = None
        self._failed = False

    @property
    def known(self) -> Sequence[Position]:
        """The known ends: each is in the chain for as long as nobody had a hand in it."""
        return [each for each in (self.committed(), self._seen) if each is not None]

    def see(self, end: Position | None) -> None:
        """Note an end that was compared with all that was `known`."""
        self._seen = end or self._seen

    async def write(self) -> None:
        """Write the head down. A refusal of the disk is logged once, and tried again next time."""
        head = max(self.known, key=lambda each: each.seq, default=None)
        if head is None or head == self._written:
            return
        try:
            await trio.to_thread.run_sync(self.file.write, head, abandon_on_cancel=True)
        except OSError as error:
            if not self._failed:
                self._log.warning(f"{self._name}.head_not_written", reason=error.strerror or str(error))
            self._failed = True
        else:
            self._written, self._failed = head, False

    def tell(self) -> None:
        head = self.committed()
        if head is not None and head != self._logged:
            self._log.info(f"{self._name}.head", head=f"{head.seq}:{head.mac[:LOGGED_DIGITS]}")
            self._logged = head

    @property
    def behind(self) -> int:
        head = self.committed()
        return 0 if head is None or self._written is None else head.seq - self._written.seq


class TrailHead:
    """The ends of the trail and of the ledger. `keeps`: of the processes of this machine, this one writes them down. `chains`: where
    others write as well, how to look where they have come to. Then each process compares where the chains ended, as far as it knows,
    with what is there: what nobody compares, somebody who can write to the database could take back."""

    def __init__(
        self,
        store: AuditedStore,
        audit: WrittenHead,
        ledger: WrittenHead,
        log: Logger,
        *,
        keeps: bool = True,
        chains: tuple[AuditChain, LedgerChain] | None = None,
    ) -> None:
        self.audit = audit
        self.ledger = ledger
        self._store = store
        self._log = log
        self._keeps = keeps
        self._chains = chains

    async def run(self, *, sleep: Callable[[float], Awaitable[None]] = trio.sleep) -> None:
        """Tell, write and compare until cancelled."""
        since_written = since_logged = since_settled = 0.0
        try:
            while True:
                await sleep(LOOK_SECONDS)
                since_written, since_logged = since_written + LOOK_SECONDS, since_logged + LOOK_SECONDS
                await self._tell_of_altered()
                if since_written >= HEAD_SECONDS or max(self.audit.behind, self.ledger.behind) >= HEAD_ROWS:
                    since_written = 0.0
                    await self.write()
                if not self._keeps:
                    continue
                since_settled += LOOK_SECONDS
                if since_settled >= SETTLED_EVERY_SECONDS:
                    since_settled = 0.0
                    await self._settle()
                if since_logged >= LOGGED_EVERY_SECONDS:
                    since_logged = 0.0
                    self.tell()
        finally:
            if self._keeps:
                self.tell()

    async def write(self) -> None:
        """Write the heads down; those from before stay as long as they cannot be compared with what is there now."""
        if self._chains is not None and not await self._compare(*self._chains):
            return
        if self._keeps:
            await self.audit.write()
            await self.ledger.write()

    async def _compare(self, audit: AuditChain, ledger: LedgerChain) -> bool:
        """Compare where the chains end by their records, which others have sealed as well. The trail says what they lack."""
        known = self.audit.known, self.ledger.known
        try:
            ends = await self._store.read(partial(_ends_of, audit=audit, ledger=ledger, known=known))
            if ends is None:
                await self._store.write(methodcaller("compare_heads", *known))
                ends = await self._store.read(partial(_ends_of, audit=audit, ledger=ledger))
        except StoreError:
            return False
        if ends is not None:
            self.audit.see(ends[0])
            self.ledger.see(ends[1])
        return True

    def tell(self) -> None:
        self.audit.tell()
        self.ledger.tell()

    async def _tell_of_altered(self) -> None:
        """Tell of rows that this process found not to be as they were sealed: they let nobody in."""
        for table, key in self._store.take_altered():
            with suppress(StoreError):  # it is in the rows still, for `ostiary verify`
                await self._store.write(partial(_row_altered, table=table, key=key, now=now_millis()))

    async def _settle(self) -> None:
        """Say how many refusals of a flood that has ended were only counted."""
        now = now_millis()
        try:
            if not await self._store.read(partial(audit_trail.is_settled, now=now)):
                await self._store.write(partial(audit_trail.settle, now=now))
        except StoreError as error:
            self._log.warning("audit.not_settled", reason=str(error))


async def begin(
    home: DataDirectory,
    store: AuditedStore,
    key: MasterKey,
    log: Logger,
    hear: OnAudit,
    *,
    keeps: bool = True,
    shared: bool = False,
) -> TrailHead:
    """Bind the database to its key, and compare the ends of its chains with what was written down. From here on `hear` is told of
    decisions.

    Raises `CannotOpen`.
    """
    subkey = subkeys(key)
    trail_key, ledger_key = subkey(audit_trail.KEY_PURPOSE), subkey(ledger_chain.KEY_PURPOSE)
    trail_file, ledger_file = HeadFile(home.audit_head, trail_key), HeadFile(home.ledger_head, ledger_key)
    # A database that was made before there was a ledger is bound to its key, and has none.
    for file, bound in ((trail_file, meta_rows.KEY_FINGERPRINT), (ledger_file, meta_rows.LEDGER_CHAIN)):
        if keeps and await store.read(partial(meta_rows.get, key=bound)) is None and not file.path.exists():
            _begin_file(file)
    heads, lost = _heads_of(trail_file)
    ledger_heads, ledger_lost = _heads_of(ledger_file)
    store.on_audit(hear)
    store.chain_audit(trail_key, heads)
    store.chain_ledger(ledger_key, ledger_heads)
    await store.write(partial(keyfile.bind_key, fingerprint=key.fingerprint))
    await store.write(methodcaller("begin_ledger"))
    for event, reason in (("audit.head_lost", lost), ("ledger.head_lost", ledger_lost)):
        if reason:
            await store.write(partial(_head_lost, event=event, reason=reason, now=now_millis()))
    trail = TrailHead(
        store,
        WrittenHead("audit", trail_file, store.audit_head, log),
        WrittenHead("ledger", ledger_file, store.ledger_head, log),
        log,
        keeps=keeps,
        chains=(AuditChain(trail_key), LedgerChain(ledger_key)) if shared else None,
    )
    await trail.write()
    return trail


def _begin_file(file: HeadFile) -> None:
    """Make the file before the database has its record: a kill in between leaves none without the file."""
    try:
        file.write(BEGINNING)
    except OSError as error:
        raise CannotOpen(f"cannot write {file.path}: {error.strerror}") from error


def _heads_of(file: HeadFile) -> tuple[Sequence[Position], str]:
    """Return its heads; or none, and why."""
    try:
        return file.read(), ""
    except HeadLost as problem:
        return (), str(problem)


@asynccontextmanager
async def kept(
    home: DataDirectory,
    store: AuditedStore,
    key: MasterKey,
    log: Logger,
    *,
    keeps: bool = True,
    shared: bool = False,
) -> AsyncGenerator[TrailHead]:
    """Keep the trail; on leaving its head is written down once more. `keeps`: by this process. `shared`: others write to it as well."""
    named = _named(store, log) if is_for_people(log) else None
    hear = log_decisions(log) if named is None else named.hear
    trail = await begin(home, store, key, log, hear, keeps=keeps, shared=shared)
    async with trio.open_nursery() as nursery:
        if named is not None:
            nursery.start_soon(named.run)
        try:
            yield trail
        finally:
            nursery.cancel_scope.cancel()
            with trio.move_on_after(END_SECONDS, shield=True):
                if named is not None:
                    await named.tell()
                await trail.write()


def _named(store: AuditedStore, log: Logger) -> NamedDecisions:
    from server.run.named_decisions import NamedDecisions

    return NamedDecisions(store, log)


def _ends_of(
    db: StoreDb, *, audit: AuditChain, ledger: LedgerChain, known: Known = ((), ())
) -> tuple[Position | None, Position | None] | None:
    """Return the ends of both chains; None if one lacks something that is known."""
    chains = (audit, known[0]), (ledger, known[1])
    if any(chain.holds(db, [head]) for chain, heads in chains for head in heads):
        return None
    return _end_of(audit, db), _end_of(ledger, db)


def _end_of(chain: RowChain, db: StoreDb) -> Position | None:
    """Return the end of a chain; None if its record is not as it was sealed, which the store tells when it writes there."""
    found = chain.record(db)
    return None if found is None else Position(seq=found.head, mac=found.head_mac)


def _row_altered(db: Db, *, table: str, key: str, now: int) -> None:
    reason = f"{table} {key} is not as it was sealed"
    audit_trail.record(
        db, at=now, event=RIGHTS_ALTERED, actor="local:store", outcome="refused", reason=reason
    )


def _head_lost(db: Db, *, event: str, reason: str, now: int) -> None:
    audit_trail.record(db, at=now, event=event, actor="local:start", outcome="refused", reason=reason)
