"""What a node tells the others that share its database, and hears from them: rows that all of them read in order, each once.

    somebody waits here for what came there → send → a row → look, at every other node → whoever listens for that kind

A letter is about something that another node may have in memory: a question, a request that runs, somebody who listens. What must not be
lost has a row of its own, and a letter only wakes whoever looks at that. Nothing is written while no other node is alive, and a node
that could not read for as long as letters are kept says so (`on_missed`). Who is alive, and when to look, is for the store's feed to know.

While nodes are replaced the next version is among those that write: what this one does not know, a kind or what is said in one, it passes over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from functools import partial
from typing import Final

import msgspec
import trio

from server.lib.log.logger import Logger
from server.lib.rates.rates import rate
from server.lib.rates.usage_table import RateTable
from server.lib.sealing import NotSealedHere, Sealer
from server.lib.shortened import short_reason
from server.store.jobs import Store, StoreBroken, StoreDb, StoreError
from server.store.node_messages import node_message_rows as rows
from server.store.node_messages.node_message_rows import NodeMessageRow, SealedNodeMessage

KEY_PURPOSE: Final = "letters"
# An image that a client's model was shown may go along with an answer. What is larger is told in words.
MAX_BODY: Final = 1024 * 1024
# As long as a letter is worth anything: whoever waits has been answered by then, or looks again by itself.
KEPT_MS: Final = 60_000
_SWEPT_EVERY_MS: Final = 5_000
# What could not be written by then is given up: nobody counts on it any more.
GIVEN_UP_SECONDS: Final = 10.0
# What happens often, and means the same however often it does, is told so often at most.
SOON_SECONDS: Final = 0.25
_PAUSE_SECONDS: Final = 0.2

# A letter is one, and each 16 KiB of it one more. A caller may cause so many in a second, and so many at once; a node writes so many for
# all its callers together, and, whatever those cause, as many of its own.
_UNIT_BYTES: Final = 16 * 1024
OF_CALLER: Final = rate(32, 1, burst=192)
OF_NODE: Final = rate(256, 1, burst=1024)
_CALLERS, _OWN = "callers", "own"
# In memory until they are written.
MAX_WAITING: Final = 1024
MAX_WAITING_BYTES: Final = 8 * 1024 * 1024
_WRITTEN_AT_ONCE: Final = 100
_READ_AT_ONCE: Final = 500


class NodeMessage(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    topic: str
    body: bytes
    node: str  # that wrote it


class _Waiting(msgspec.Struct, frozen=True):
    kind: str
    topic: str
    body: bytes
    until: float


Listener = Callable[[NodeMessage], None]
Concerns = Callable[[str], bool]


def _all(_topic: str) -> bool:
    return True


class NodeMessages:
    """Of one process. `run` writes; whoever knows that there may be something new calls `look`."""

    def __init__(
        self,
        store: Store,
        *,
        node: str,
        key: bytes,
        clock: Callable[[], int],
        entropy: Callable[[int], bytes],
        others: Callable[[], Collection[str]],
        log: Logger,
    ) -> None:
        """`node`: this one's boot id. `others`: those of all others that are alive."""
        self.node: Final = node
        self.written = 0  # for metrics
        self.heard = 0
        self.dropped = 0  # for want of room, or of a store
        self._store = store
        self._sealer = Sealer(key, entropy)
        self._clock = clock
        self._others = others
        self._log = log
        self._of_caller = RateTable(OF_CALLER)
        self._of_node = RateTable(OF_NODE)
        self._listeners: dict[str, list[tuple[Listener, Concerns]]] = {}
        self._on_missed: list[Callable[[], None]] = []
        self._on_company: list[Callable[[], None]] = []
        self._known = frozenset[str]()  # of the others, at the last look
        self._urgent = deque[_Waiting]()
        self._bytes = 0
        self._soon: dict[tuple[str, str, bytes], None] = {}
        self._soon_due = 0.0
        self._not_understood: set[str] = set()  # kinds of which that was said already
        self._wake = trio.Event()
        self._read_to: int | None = None
        self._read_at = 0
        self._looking = trio.Lock()
        self._swept_at = 0

    # ── to others ────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def alone(self) -> bool:
        """Nobody else would read it."""
        return not self._others()

    def is_alive(self, node: str) -> bool:
        """Another node."""
        return node in self._others()

    @property
    def others(self) -> frozenset[str]:
        """All other nodes that are alive."""
        return frozenset(self._others())

    def send(self, kind: str, topic: str, body: bytes = b"", *, caller: str | None = None) -> bool:
        """Never waits. False: it is not sent, because nobody is there or `caller`, who caused it, has caused too many."""
        if not self._others():
            return False
        if len(body) > MAX_BODY or not self._has_room(len(body), caller):
            self._drop(kind)
            return False
        self._urgent.append(_Waiting(kind, topic, body, trio.current_time() + GIVEN_UP_SECONDS))
        self._bytes += len(body)
        self._wake.set()
        return True

    def send_soon(self, kind: str, topic: str, body: bytes = b"") -> None:
        """The same for what means no more if it is said twice: within a moment, and once however often it happened."""
        if not self._others():
            return None
        if len(self._soon) >= MAX_WAITING or len(body) > rows.SMALL_BYTES:
            return self._drop(kind)
        self._soon[kind, topic, body] = None
        self._wake.set()
        return None

    def as_job(self, kind: str, topic: str) -> Callable[[StoreDb], None]:
        """Says it in a transaction of somebody else's: what is true only if that is committed."""
        letter = self._sealed(_Waiting(kind, topic, b"", 0.0))
        return partial(rows.put, messages=[letter], node=self.node, now=self._clock(), before=None)

    def _has_room(self, size: int, caller: str | None) -> bool:
        if len(self._urgent) >= MAX_WAITING or self._bytes + size > MAX_WAITING_BYTES:
            return False
        units = 1 + size // _UNIT_BYTES
        if caller is None:
            return not any(self._of_node.use(_OWN) for _ in range(units))
        return not any(self._of_caller.use(caller) or self._of_node.use(_CALLERS) for _ in range(units))

    def _drop(self, kind: str) -> None:
        if not self.dropped % 1000:  # under a flood the log is not to be another
            self._log.warning("letter.dropped", kind=kind, dropped=self.dropped + 1)
        self.dropped += 1

    async def run(self) -> None:
        """For ever: what is to be sent is written."""
        while True:
            if not self._urgent and not self._soon:
                await self._wake.wait()
            self._wake = trio.Event()
            if not self._urgent:
                with trio.move_on_at(self._soon_due):
                    await self._wake.wait()
            await self._write(self._next())

    def _next(self) -> list[_Waiting]:
        now, found, size = trio.current_time(), list[_Waiting](), 0
        if self._soon and now >= self._soon_due:
            self._soon_due = now + SOON_SECONDS
            while self._soon and len(found) < _WRITTEN_AT_ONCE:
                found.append(_Waiting(*self._soon.popitem()[0], now + GIVEN_UP_SECONDS))
        while self._urgent and len(found) < _WRITTEN_AT_ONCE and size <= MAX_BODY:
            letter = self._urgent.popleft()
            self._bytes -= len(letter.body)
            size += len(letter.body)
            found.append(letter)
        return found

    async def _write(self, letters: list[_Waiting]) -> None:
        sealed, in_doubt = {each: self._sealed(each) for each in letters}, False
        while letters:
            now = self._clock()
            swept = now - self._swept_at >= _SWEPT_EVERY_MS
            job = partial(
                rows.put,
                messages=[sealed[each] for each in letters],
                node=self.node,
                now=now,
                before=now - KEPT_MS if swept else None,
                in_doubt=in_doubt,
            )
            try:
                await self._store.write(job)
            except StoreError as problem:
                in_doubt |= isinstance(problem, StoreBroken)
                self._log.warning("letter.not_written", reason=short_reason(problem), letters=len(letters))
            else:
                self._swept_at = now if swept else self._swept_at
                self.written += len(letters)
                return
            await trio.sleep(_PAUSE_SECONDS)
            kept = [each for each in letters if each.until > trio.current_time()]
            self.dropped += len(letters) - len(kept)
            letters = kept

    # ── from others ──────────────────────────────────────────────────────────────────────────────────────────────────

    def hear(self, kind: str, listener: Listener, concerns: Concerns = _all) -> None:
        """`listener` must not wait. It is told of topics that concern it, and of no letter of this node's."""
        self._listeners.setdefault(kind, []).append((listener, concerns))

    def on_missed(self, listener: Callable[[], None]) -> None:
        """There were letters that this node can read no more."""
        self._on_missed.append(listener)

    def on_company(self, listener: Callable[[], None]) -> None:
        """There is another node that was not there before, and has heard nothing yet."""
        self._on_company.append(listener)

    async def begin(self) -> None:
        """What others have said until now is not for this node. Raises `StoreUnavailable`."""
        self._read_to, self._read_at = await self._store.read(rows.newest), self._clock()

    async def look(self) -> None:
        """Whatever is new is heard when this returns. Raises `StoreUnavailable`."""
        async with self._looking:
            if self._read_to is None:
                await self.begin()
            others = frozenset(self._others())
            if not others <= self._known:
                for listener in self._on_company:
                    listener()
            self._known, more = others, True
            while more:
                seq = self._read_to or 0
                found = await self._store.read(partial(rows.after, seq=seq, limit=_READ_AT_ONCE))
                now = self._clock()
                if now - self._read_at > KEPT_MS:
                    self._tell_missed()
                self._read_at = now
                for row in found:
                    if row.node != self.node:
                        await self._hand_over(row)
                    self._read_to = row.seq
                if not found:
                    await self._look_whether_behind()
                more = len(found) == _READ_AT_ONCE

    async def _look_whether_behind(self) -> None:
        """A database that took over may have lost the last letters: it goes on with lower numbers than were read here."""
        newest = await self._store.read(rows.newest)
        if 0 < newest < (self._read_to or 0):
            self._tell_missed()
            self._read_to = newest

    async def _hand_over(self, row: NodeMessageRow) -> None:
        listeners = [
            listener for listener, concerns in self._listeners.get(row.kind, ()) if concerns(row.topic)
        ]
        if not listeners:
            return
        sealed = row.sealed
        if sealed is None:
            sealed = await self._store.read(partial(rows.whole, seq=row.seq))
        body = None if sealed is None else self._opened(row, sealed)
        if body is None:
            return
        self.heard += 1
        letter = NodeMessage(kind=row.kind, topic=row.topic, body=body, node=row.node)
        for listener in listeners:
            self.tell(letter, listener)

    def tell(self, letter: NodeMessage, listener: Listener) -> None:
        """Now, or when whoever put it aside is ready for it. Never fails."""
        try:
            listener(letter)
        except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
            self._pass_over(letter, problem)
        except Exception:  # whatever it is, what others wrote is read on
            self._log.exception("letter.not_heard", kind=letter.kind)

    def _pass_over(self, letter: NodeMessage, problem: Exception) -> None:
        """Said once of each kind: a newer version may write very many of them."""
        if letter.kind not in self._not_understood:
            self._not_understood.add(letter.kind)
            self._log.warning(
                "letter.not_understood",
                kind=letter.kind,
                node=letter.node,
                reason=short_reason(problem),
                hint="it is of a node of another version, and is passed over",
            )

    def _tell_missed(self) -> None:
        self._log.warning("letter.missed", hint="the database could not be read for a while")
        for listener in self._on_missed:
            listener()

    # ── sealed ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _sealed(self, letter: _Waiting) -> SealedNodeMessage:
        sealed = self._sealer.seal(letter.body, _bound_to(self.node, letter.kind, letter.topic))
        return SealedNodeMessage(node=self.node, kind=letter.kind, topic=letter.topic, sealed=sealed)

    def _opened(self, row: NodeMessageRow, sealed: bytes) -> bytes | None:
        try:
            return self._sealer.open(sealed, _bound_to(row.node, row.kind, row.topic))
        except NotSealedHere:  # somebody else wrote it, or a node with another key
            self._log.error("letter.forged", kind=row.kind, node=row.node)
            return None


def _bound_to(node: str, kind: str, topic: str) -> bytes:
    return msgspec.json.encode([KEY_PURPOSE, node, kind, topic])
