"""The membership of this process among those on its database: it says that it lives, and hears who does not any more
(`store/node_rows.py`). Where the rows are in a file it is alone, and says so once.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio

from server import __version__
from server.calls.servers.server_opening import now_millis
from server.lib.log.logger import Logger
from server.store import node_rows
from server.store.jobs import Store, StoreDb, StoreError
from server.store.node_rows import ALIVE_MILLIS, BEAT_SECONDS, PATIENCE_SECONDS, Beat, MemberNode, NodeSaid

# Before the others may take it for dead it lets go of what they would take over.
LAPSES_SECONDS: Final = ALIVE_MILLIS / 1000 - 1.0
# Leases and times of rows are by each one's own clock.
CLOCK_DIFFERS_MILLIS: Final = 5_000
# Who fell silent is counted after somebody came or went, and now and then, because after a day nobody speaks of them any more.
SILENT_COUNTED_SECONDS: Final = 600.0
_KERNEL_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


class Membership:
    def __init__(
        self,
        store: Store,
        node: MemberNode,
        log: Logger,
        *,
        alone: bool,
        clock: Callable[[], float] = trio.current_time,
    ) -> None:
        self.node: Final = node
        self.alone: Final = alone
        self.alive: tuple[MemberNode, ...] = (node,)
        self.lapsed = False  # it could not say in time that it lives
        self.silent = 0  # of the others: ended without a word, and neither back nor replaced
        self.clock_off_seconds = 0.0  # how far this machine's clock is at least from the database's
        # How it is, which it says with each beat; settled by whoever knows. Must not wait, nor fail.
        self.describe: Callable[[], NodeSaid] = NodeSaid
        # Somebody is there who was not. Must not wait.
        self.on_company: Final[list[Callable[[], None]]] = []
        # Somebody is gone: what they left is there to be taken over. Must not wait.
        self.on_loss: Final[list[Callable[[], None]]] = []
        # It may be taken for dead: what runs under a lease ends. Must not wait.
        self.on_lapse: Final[list[Callable[[], None]]] = []
        self._store = store
        self._log = log
        self._clock = clock
        self._said_at = clock()
        self._patient_until = self._said_at + PATIENCE_SECONDS
        self._due = trio.Event()  # it is to say so before its time
        self._silent = False
        self._counted_at: float | None = None  # how many fell silent; None: that may be another number now
        self._clock_differs = False

    @property
    def others(self) -> tuple[MemberNode, ...]:
        return tuple(node for node in self.alive if node.boot_id != self.node.boot_id)

    def told(self) -> Mapping[str, Any]:
        """Return the node and the others, for whoever is at the machine."""
        return {
            "name": self.node.name,
            "address": self.node.address,
            "boot_id": self.node.boot_id,
            "lapsed": self.lapsed,
            "others": [
                {name: getattr(node, name) for name in ("name", "address", "version", "started_at")}
                for node in self.others
            ],
        }

    def words(self) -> str:
        """Return the note for /readyz; "" where nobody else could be there."""
        if self.alone:
            return ""
        count = len(self.others)
        return f"node {self.node.name}, {count} other{'' if count == 1 else 's'} alive"

    async def enter(self) -> None:
        """Enter. Raises `StoreError`."""
        asked_at = self._clock()
        job = node_rows.enter_alone if self.alone else node_rows.enter
        self.alive = (await self._store.write(partial(job, node=self.node))).alive
        self._said_at = asked_at

    async def run(self, *, sleep: Callable[[float], Awaitable[None]] = trio.sleep) -> None:
        """Say that this process lives, until cancelled."""
        if self.alone:
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch, sleep)
            self.look_now()  # the start may have taken long
            while True:
                await self._until_due(sleep)
                await self.beat()

    def look_now(self) -> None:
        """Say how this one is, and see who is there, without waiting for the time: somebody came or went, or this one is another now."""
        self._due.set()

    async def _until_due(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        async with trio.open_nursery() as nursery:

            async def in_time() -> None:
                await sleep(BEAT_SECONDS)
                nursery.cancel_scope.cancel()

            nursery.start_soon(in_time)
            await self._due.wait()
            nursery.cancel_scope.cancel()
        # What happens from here on is another reason.
        self._due = trio.Event()

    async def beat(self) -> None:
        asked_at, before = self._clock(), now_millis()
        counts = self._counted_at is None or asked_at >= self._counted_at + SILENT_COUNTED_SECONDS
        job = partial(
            node_rows.beat,
            node=self.node,
            said=self.describe(),
            buries=asked_at >= self._patient_until,
            counts_silent=counts,
        )
        try:
            found = await self._store.write(job)
        except StoreError as problem:
            if not self._silent:
                self._log.warning("node.silent", reason=str(problem))
            self._silent = True
            return
        self._silent = False
        self._said_at = asked_at
        if found.was_late:
            self._patient_until = self._clock() + PATIENCE_SECONDS
        if found.was_dead:
            self._log.warning("node.was_taken_for_dead", hint="the others may have taken over what it had")
            self._lapse()  # it may have slept, which not every clock counts
        self.lapsed = False
        if found.at:  # it was told, for somebody was there
            self._look_at_clock(found.at, before, now_millis())
        if found.silent is not None:
            self.silent, self._counted_at = found.silent, asked_at
        self._hear(found)

    async def leave(self, goodbye: Callable[[StoreDb], None] | None = None) -> None:
        """Leave: what could not be given back is the others' at once. `goodbye` is a job of the same transaction."""

        def job(db: StoreDb) -> None:
            node_rows.leave(db, self.node)
            if goodbye is not None:
                goodbye(db)

        if not self.alone:
            try:
                await self._store.write(job)
            except StoreError as problem:
                self._log.warning("node.not_left", reason=str(problem))

    def _hear(self, found: Beat) -> None:
        known, self.alive = self.alive, found.alive
        here = {node.boot_id for node in found.alive}
        gone = [node for node in known if node.boot_id not in here]
        for node in gone:
            self._log.info("node.gone", node=node.name, boot=node.boot_id)
        before = {node.boot_id for node in known}
        came = [node for node in found.alive if node.boot_id not in before]
        if gone or came:
            self._counted_at = None
        for node in came:
            self._log.info("node.came", node=node.name, boot=node.boot_id, version=node.version)
        for listener in (*(self.on_loss if gone else ()), *(self.on_company if came else ())):
            listener()

    def _look_at_clock(self, theirs: int, before: int, after: int) -> None:
        """Compare the clock of the database server with this one's, read before and after it."""
        off = max(before - theirs, theirs - after)
        self.clock_off_seconds = max(0, off) / 1000
        if off > CLOCK_DIFFERS_MILLIS and not self._clock_differs:
            self._log.warning(
                "node.clock_differs",
                seconds=round(off / 1000),
                hint="set the clocks of both machines by the network",
            )
        self._clock_differs = off > CLOCK_DIFFERS_MILLIS

    async def _watch(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        while True:
            left = self._said_at + LAPSES_SECONDS - self._clock()
            if left > 0:
                await sleep(left)
                continue
            if not self.lapsed:
                self._log.warning("node.lapsed", hint="it lets go of what others may take over")
                self._lapse()
            await sleep(BEAT_SECONDS)

    def _lapse(self) -> None:
        if not self.lapsed:
            self.lapsed = True
            for listener in self.on_lapse:
                listener()


def this_node(boot_id: str, data_dir: Path, *, address: str, worker: int = 0) -> MemberNode:
    """Return this process as a node. `worker` is its number, where several processes share the directory."""
    return MemberNode(
        boot_id=boot_id,
        name=f"{os.uname().nodename}:{os.getpid()}",
        home=home_of(data_dir, worker),
        address=address,
        version=__version__,
        started_at=now_millis(),
        place=home_of(data_dir),
        worker=worker,
    )


def home_of(data_dir: Path, worker: int = 0) -> str:
    """Return a text for a directory, and a worker's number in it, which is another after the machine was started again.

    The holder of the lock knows that nobody else is at work there, and a worker that nobody else has its number.
    """
    try:
        boot = _KERNEL_BOOT.read_text("ascii").strip()
    except OSError:  # not Linux: then nobody is known to be gone before their time is over
        boot = os.urandom(16).hex()
    found = data_dir.stat()
    return hashlib.sha256(f"{boot} {found.st_dev} {found.st_ino} {worker}".encode()).hexdigest()[:32]
