"""The audit trail while the server runs: begun with the key of the database, and its head written down outside of it.

The head goes into the file (`store/audit_head.py`) after so many rows or seconds, and at the end; now and then, and at the end, into
the log as well, where whoever can write here cannot take it back. No decision waits for any of that.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import trio

from auth import audit
from auth.values.db import Db
from server.endpoint.opening import now_millis, subkeys
from server.observe.decisions import log_decisions
from server.observe.log import Logger
from server.store import keyfile, meta
from server.store.audit_head import HeadFile, HeadLost
from server.store.home import DataDirectory
from server.store.jobs import AuditedStore, CannotOpen, Position, StoreError
from server.store.keyfile import MasterKey

# What a kill and a cut together may take without a break: rows of so many seconds, or so many rows and those of a second.
HEAD_SECONDS: Final = 10.0
HEAD_ROWS: Final = 1_000
LOOK_SECONDS: Final = 1.0
LOGGED_EVERY_SECONDS: Final = 3600.0
SETTLED_EVERY_SECONDS: Final = 60.0
# As much of a MAC as `ostiary verify --expect` wants.
LOGGED_DIGITS: Final = 16
# A disk that does not answer holds up the end no longer.
END_SECONDS: Final = 5.0
BEGINNING: Final = Position(seq=0, mac="")


class TrailHead:
    """Where the trail ends, as it was written down last."""

    def __init__(self, store: AuditedStore, file: HeadFile, log: Logger) -> None:
        self.file = file
        self._store = store
        self._log = log
        self._written: Position | None = None
        self._logged: Position | None = None
        self._failed = False

    async def run(self, *, sleep: Callable[[float], Awaitable[None]] = trio.sleep) -> None:
        """Until cancelled."""
        since_written = since_logged = since_settled = 0.0
        try:
            while True:
                await sleep(LOOK_SECONDS)
                since_written, since_logged = since_written + LOOK_SECONDS, since_logged + LOOK_SECONDS
                if since_written >= HEAD_SECONDS or self._behind() >= HEAD_ROWS:
                    since_written = 0.0
                    await self.write()
                since_settled += LOOK_SECONDS
                if since_settled >= SETTLED_EVERY_SECONDS:
                    since_settled = 0.0
                    await self._settle()
                if since_logged >= LOGGED_EVERY_SECONDS:
                    since_logged = 0.0
                    self.tell()
        finally:
            self.tell()

    async def write(self) -> None:
        """What the store has committed; a refusal of the disk is logged once, and tried again next time."""
        head = self._store.audit_head()
        if head is None or head == self._written:
            return
        try:
            await trio.to_thread.run_sync(self.file.write, head, abandon_on_cancel=True)
        except OSError as error:
            if not self._failed:
                self._log.warning("audit.head_not_written", reason=error.strerror or str(error))
            self._failed = True
        else:
            self._written, self._failed = head, False

    def committed(self) -> Position | None:
        return self._store.audit_head()

    def tell(self) -> None:
        head = self._store.audit_head()
        if head is not None and head != self._logged:
            self._log.info("audit.head", head=f"{head.seq}:{head.mac[:LOGGED_DIGITS]}")
            self._logged = head

    async def _settle(self) -> None:
        """Refusals of a flood that has ended were counted only: say how many they were."""
        now = now_millis()
        try:
            if not await self._store.read(partial(audit.is_settled, now=now)):
                await self._store.write(partial(audit.settle, now=now))
        except StoreError as error:
            self._log.warning("audit.not_settled", reason=str(error))

    def _behind(self) -> int:
        head = self._store.audit_head()
        return 0 if head is None or self._written is None else head.seq - self._written.seq


async def begin(home: DataDirectory, store: AuditedStore, key: MasterKey, log: Logger) -> TrailHead:
    """Bind the database to its key, and compare the end of its trail with what was written down. From here on decisions are logged.

    Raises `CannotOpen`.
    """
    secret = subkeys(key)(audit.KEY_PURPOSE)
    file = HeadFile(home.audit_head, secret)
    is_new = await store.read(partial(meta.get, key=meta.KEY_FINGERPRINT)) is None
    if is_new and not file.path.exists():
        # Before the database, so that a kill in between leaves no database without it.
        try:
            file.write(BEGINNING)
        except OSError as error:
            raise CannotOpen(f"cannot write {file.path}: {error.strerror}") from error
    heads, lost = (), ""
    try:
        heads = file.read()
    except HeadLost as problem:
        lost = str(problem)
    store.on_audit(log_decisions(log))
    store.chain_audit(secret, heads)
    await store.write(partial(keyfile.bind_key, fingerprint=key.fingerprint))
    if lost:
        await store.write(partial(_head_lost, reason=lost, now=now_millis()))
    trail = TrailHead(store, file, log)
    await trail.write()
    return trail


@asynccontextmanager
async def kept(
    home: DataDirectory, store: AuditedStore, key: MasterKey, log: Logger
) -> AsyncGenerator[TrailHead]:
    """The trail, begun; on leaving its head is written down once more."""
    trail = await begin(home, store, key, log)
    try:
        yield trail
    finally:
        with trio.move_on_after(END_SECONDS, shield=True):
            await trail.write()


def _head_lost(db: Db, *, reason: str, now: int) -> None:
    audit.record(db, at=now, event="audit.head_lost", actor="local:start", outcome="refused", reason=reason)
