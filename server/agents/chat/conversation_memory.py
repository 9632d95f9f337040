"""The memory of conversations, for agents that remember nothing themselves, in this process only; shared_memory.py brings
in what was said at others.

Bounded in every direction: turns and bytes of a conversation, conversations of a caller and of all, bytes of all, and idle
time. The oldest go first, a caller's own before anybody else's, never one that a call is using. Calls of one conversation take
turns; calls of different ones know nothing of each other.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager

import msgspec
import trio

from server.lib.http_client.failures import DeadlinePassed
from server.mcp.call_failures import BackendError

Key = tuple[str, str]  # subject, session id

# All conversations together. A full one of the default size is 256 KiB.
MEMORY_BYTES = 64 * 1024 * 1024
# Calls in one conversation: the one that runs and those behind it. More is a loop gone wrong, not a talk.
CALLS_AT_ONCE = 8


class MemoryLimits(msgspec.Struct, frozen=True, kw_only=True):
    sessions: int
    sessions_per_subject: int
    turns: int
    conversation_bytes: int
    idle_seconds: float
    total_bytes: int = MEMORY_BYTES


class ChatTurn(msgspec.Struct, frozen=True):
    said: str
    answered: str

    @property
    def size(self) -> int:
        return len(self.said.encode()) + len(self.answered.encode())


class ChatHistory:
    """The exchanges of one conversation. A call that uses it holds `lock`."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self.lock = trio.Lock()
        self.calls = 0  # holding or awaiting the lock
        self.used_at = 0.0
        self.version = 0  # which of those that all processes share this is; 0: none
        self.size = 0
        self._exchanges: deque[ChatTurn] = deque()

    @property
    def exchanges(self) -> Sequence[ChatTurn]:
        return tuple(self._exchanges)

    def forget(self) -> None:
        self._exchanges.clear()
        self.size = 0

    def add(self, exchange: ChatTurn, limits: MemoryLimits) -> int:
        """Add an exchange, and return by how many bytes the conversation grew. The oldest are forgotten until the rest fits;
        an exchange that is too large by itself is not kept at all."""
        before = self.size
        self._exchanges.append(exchange)
        self.size += exchange.size
        while self._exchanges and (
            len(self._exchanges) > limits.turns or self.size > limits.conversation_bytes
        ):
            self.size -= self._exchanges.popleft().size
        return self.size - before


class Memory:
    def __init__(self, limits: MemoryLimits, *, clock: Callable[[], float] = trio.current_time) -> None:
        self.limits = limits
        self._clock = clock
        self._kept: OrderedDict[Key, ChatHistory] = OrderedDict()  # the one used last is last
        self._owners = Counter[str]()  # how many of them each subject has
        self._size = 0

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def size(self) -> int:
        return self._size

    @asynccontextmanager
    async def turn(self, subject: str, session_id: str, *, deadline: float) -> AsyncGenerator[ChatHistory]:
        """Enter the conversation, alone. Raises `DeadlinePassed` when its turn does not come before `deadline` (on trio's clock),
        and `BackendError` where no more can be taken on."""
        conversation = self._enter((subject, session_id))
        try:
            await _acquire(conversation.lock, deadline)
            try:
                yield conversation
            finally:
                conversation.lock.release()
        finally:
            self._leave(conversation)

    def add(self, conversation: ChatHistory, said: str, answered: str) -> None:
        """Add an exchange, within the conversation's turn."""
        self._size += conversation.add(ChatTurn(said, answered), self.limits)
        while self._size > self.limits.total_bytes and (oldest := self._oldest()) is not None:
            self._drop(oldest)

    def replace(self, conversation: ChatHistory, exchanges: Sequence[ChatTurn], *, version: int) -> None:
        """Put what is known elsewhere in the place of what was said, within the conversation's turn."""
        self._size -= conversation.size
        conversation.forget()
        conversation.version = version
        for exchange in exchanges:
            self.add(conversation, exchange.said, exchange.answered)

    def _enter(self, key: Key) -> ChatHistory:
        now = self._clock()
        while (oldest := self._oldest()) is not None and now - oldest.used_at > self.limits.idle_seconds:
            self._drop(oldest)
        conversation = self._kept.get(key)
        if conversation is None:
            self._make_room(key[0])
            conversation = self._kept[key] = ChatHistory(key)
            self._owners[key[0]] += 1
        elif conversation.calls >= CALLS_AT_ONCE:
            raise BackendError(
                f"this session_id is busy: {conversation.calls} calls are waiting for their turn"
            )
        conversation.calls += 1
        self._touch(conversation, now)
        return conversation

    def _leave(self, conversation: ChatHistory) -> None:
        conversation.calls -= 1
        self._touch(conversation, self._clock())
        if not conversation.calls and not conversation.exchanges:  # nothing came of it
            self._drop(conversation)

    def _make_room(self, subject: str) -> None:
        own = self._owners[subject]
        if own >= self.limits.sessions_per_subject:
            if (oldest := self._oldest(subject)) is None:
                raise BackendError(f"you have {own} conversations running at once, which is the limit")
            self._drop(oldest)
        elif len(self._kept) >= self.limits.sessions:
            if (oldest := self._oldest()) is None:
                raise BackendError("too many conversations are running at once; try again later")
            self._drop(oldest)

    def _oldest(self, subject: str | None = None) -> ChatHistory | None:
        """Return the conversation that was used least lately, of the subject or of all; None where calls use all of them."""
        for conversation in self._kept.values():
            if not conversation.calls and subject in (None, conversation.key[0]):
                return conversation
        return None

    def _touch(self, conversation: ChatHistory, now: float) -> None:
        conversation.used_at = now
        self._kept.move_to_end(conversation.key)

    def _drop(self, conversation: ChatHistory) -> None:
        subject = conversation.key[0]
        self._owners[subject] -= 1
        if not self._owners[subject]:
            del self._owners[subject]
        del self._kept[conversation.key]
        self._size -= conversation.size


async def _acquire(lock: trio.Lock, deadline: float) -> None:
    """Acquire the lock, without waiting where nobody else has it. Raises `DeadlinePassed`."""
    try:
        lock.acquire_nowait()
    except trio.WouldBlock:
        with trio.CancelScope(deadline=deadline) as wait:
            await lock.acquire()
        if wait.cancelled_caught:
            raise DeadlinePassed from None
