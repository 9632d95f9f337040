"""Letters between this process and the others on its database: who is there, when to look, and what is to be seen of it.

Loaded only where there may be others.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

import trio

from server.calls.servers.agent_factory import Subkey
from server.calls.servers.server_opening import now_millis
from server.lib.log.logger import Logger
from server.lib.log.metrics import Metrics
from server.lib.shortened import short_reason
from server.run.node_membership import Membership
from server.store.jobs import Store, StoreDb, StoreError
from server.store.node_messages.node_messages import KEY_PURPOSE, NodeMessages

# That this node came or goes: whoever hears of it looks who is there, and does not wait until it is time to.
NODES: Final = "nodes"
# The store's feed says when there is something; whether somebody new is there is looked for as often as it can be known.
LOOK_SECONDS: Final = 2.0


class NodeMessageLoop:
    """`run` is for the whole life of the process."""

    def __init__(
        self, store: Store, membership: Membership, subkey: Subkey, log: Logger, metrics: Metrics
    ) -> None:
        self._membership = membership
        self._known = membership.alive
        self._others = self._ids()
        self._log = log
        self._wake = trio.Event()
        self.letters: Final = NodeMessages(
            store,
            node=membership.node.boot_id,
            key=subkey(KEY_PURPOSE),
            clock=now_millis,
            entropy=os.urandom,
            others=self._alive,
            log=log,
        )
        store.on_letters(self._ring)
        letters = self.letters
        letters.hear(NODES, lambda _: membership.look_now())
        # Whoever is new has to be told what the others listen for.
        membership.on_company.append(self._ring)
        metrics.counter("letters_written", "What this node told the others", lambda: letters.written)
        metrics.counter("letters_heard", "What the others told it, and concerned it", lambda: letters.heard)
        metrics.counter(
            "letters_dropped",
            "What could not be told: too much at once, or the database was away",
            lambda: letters.dropped,
        )

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.letters.run)
            greeted = False
            while True:
                try:
                    await self.letters.look()
                    if not greeted:
                        greeted = True
                        self.letters.send(NODES, self.letters.node)
                except StoreError as problem:  # it is said by whoever else needs the store
                    self._log.debug("letter.not_read", reason=short_reason(problem))
                with trio.move_on_after(LOOK_SECONDS):
                    await self._wake.wait()
                self._wake = trio.Event()

    def goodbye(self) -> Callable[[StoreDb], None]:
        """A job, for the transaction in which this node leaves."""
        return self.letters.as_job(NODES, self.letters.node)

    def _ring(self) -> None:
        self._wake.set()

    def _alive(self) -> frozenset[str]:
        if self._membership.alive is not self._known:
            self._known = self._membership.alive
            self._others = self._ids()
        return self._others

    def _ids(self) -> frozenset[str]:
        return frozenset(node.boot_id for node in self._membership.others)
