"""Two nodes that say several things to each other about one matter, as long as both are there: a stream, a request that is followed.

Whoever begins names the talk in a letter of its own kind; from then on both say what belongs to it under that name, which only they know.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final, Generic, TypeVar

import trio

from server.store.node_messages.node_messages import NodeMessage, NodeMessages

T = TypeVar("T")

# How soon it is noticed that the other node is gone, which is known after ten seconds itself.
PEER_LOOK_SECONDS: Final = 1.0
_NAME_BYTES: Final = 18


class NodeConversations(Generic[T]):
    """Of one process and one kind of letter. What is said is a `T`."""

    def __init__(
        self, letters: NodeMessages, kind: str, decode: Callable[[bytes], T], *, unread: int
    ) -> None:
        """`unread`: what waits in each for whoever listens. What comes beyond it is lost."""
        self._letters = letters
        self._kind = kind
        self._decode = decode
        self._unread = unread
        self._open: dict[str, NodeConversation[T]] = {}
        letters.hear(kind, self._hear, self._open.__contains__)

    @contextmanager
    def begin(self, node: str | None = None) -> Generator[NodeConversation[T]]:
        """Without a `node`, whoever speaks first is the other one."""
        with self._take_part(secrets.token_urlsafe(_NAME_BYTES), node) as talk:
            yield talk

    @contextmanager
    def join(self, name: str, node: str) -> Generator[NodeConversation[T]]:
        """One that `node` has begun."""
        with self._take_part(name, node) as talk:
            yield talk

    @contextmanager
    def _take_part(self, name: str, node: str | None) -> Generator[NodeConversation[T]]:
        hear, said = trio.open_memory_channel[T](self._unread)
        talk = self._open[name] = NodeConversation(self._letters, self._kind, name, node, hear, said)
        try:
            yield talk
        finally:
            del self._open[name]

    def _hear(self, letter: NodeMessage) -> None:
        talk = self._open[letter.topic]
        if talk.node is None:
            talk.node = letter.node
        if talk.node == letter.node:
            talk.hear(self._decode(letter.body))


class NodeConversation(Generic[T]):
    def __init__(
        self,
        letters: NodeMessages,
        kind: str,
        name: str,
        node: str | None,
        hear: trio.MemorySendChannel[T],
        said: trio.MemoryReceiveChannel[T],
    ) -> None:
        self.name: Final = name
        self.node = node  # the other one
        self._letters = letters
        self._kind = kind
        self._hear = hear
        self._said = said

    def say(self, body: bytes, *, caller: str | None = None) -> bool:
        """False: it is not said, for want of room."""
        return self._letters.send(self._kind, self.name, body, caller=caller)

    def hear(self, said: T) -> None:
        try:
            self._hear.send_nowait(said)
        except trio.WouldBlock:
            return

    async def next(self) -> T | None:
        """What the other node says next. None: it is gone."""
        while True:
            with trio.move_on_after(PEER_LOOK_SECONDS):
                return await self._said.receive()
            if self.node is not None and not self._letters.is_alive(self.node):
                return None
