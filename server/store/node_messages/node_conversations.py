"""Talks of two nodes about one matter, as long as both are there: a stream, a request that is followed.

The node that begins names the talk in a letter of its own kind; from then on both send under that name, which only they know.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Final, Generic, TypeVar

import trio

from server.store.node_messages.node_messages import NodeMessage, NodeMessages

T = TypeVar("T")

# How soon it is noticed that the other node is gone, which is known after ten seconds itself.
PEER_LOOK_SECONDS: Final = 1.0
_NAME_BYTES: Final = 18


class NodeConversations(Generic[T]):
    """The talks of one process in one kind of letter, whose content is a `T`."""

    def __init__(
        self, letters: NodeMessages, kind: str, decode: Callable[[bytes], T], *, unread: int
    ) -> None:
        """Begin without talks. `unread` letters wait in each; more are lost."""
        self._letters = letters
        self._kind = kind
        self._decode = decode
        self._unread = unread
        self._open: dict[str, NodeConversation[T]] = {}
        letters.hear(kind, self._hear, self._open.__contains__)

    def begin(self, node: str | None = None) -> AbstractContextManager[NodeConversation[T]]:
        """Begin a talk. Without a `node`, whoever speaks first is the other one."""
        return self.join(secrets.token_urlsafe(_NAME_BYTES), node)

    @contextmanager
    def join(self, name: str, node: str | None) -> Generator[NodeConversation[T]]:
        """Take part in a talk that `node` has begun."""
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
        """Send a letter. False: there was no room."""
        return self._letters.send(self._kind, self.name, body, caller=caller)

    def hear(self, said: T) -> None:
        try:
            self._hear.send_nowait(said)
        except trio.WouldBlock:
            return

    async def next(self) -> T | None:
        """Wait for the other node's next letter; None if it is gone."""
        while True:
            with trio.move_on_after(PEER_LOOK_SECONDS):
                return await self._said.receive()
            if self.node is not None and not self._letters.is_alive(self.node):
                return None
