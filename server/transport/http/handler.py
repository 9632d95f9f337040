"""What the connection layer and what answers a request have to do with each other: the words in which they speak.

A connection finds a `Handler` by the head of a request and gives it the `Cycle` of each request with that head (request_cycle.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Protocol, TypeAlias

import trio

from .disconnect_watch import DisconnectWatch

Address: TypeAlias = tuple[str, int]
Pairs: TypeAlias = tuple[tuple[bytes, bytes], ...]  # header fields
Scope: TypeAlias = dict[str, Any]
Message: TypeAlias = Mapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Any]]
Send: TypeAlias = Callable[[Any], Awaitable[None]]
App: TypeAlias = Callable[[Any, Receive, Send], Awaitable[None]]  # ASGI 3


class Cycle(Protocol):
    """One request and its response. Whatever writes raises `Disconnected` when the peer is gone."""

    @property
    def request_id(self) -> str: ...

    @property
    def client(self) -> Address | None:
        """Who calls, as far as it can be told."""
        ...

    @property
    def status(self) -> int:
        """Of the response; 0 until there is one."""
        ...

    @property
    def now(self) -> float:
        """On trio's clock; may be late by a tick of the reaper."""
        ...

    # Said in place of an answer that the server does not wait for at the end of its drain; None: it has none.
    last_word: Callable[[], Awaitable[None]] | None

    @property
    def draining(self) -> trio.Event:
        """The server is about to go."""
        ...

    def arrived(self) -> bytes | None:
        """The whole body, if it is here already; then `receive` has nothing of it any more."""
        ...

    async def receive(self) -> Mapping[str, Any]:
        """As ASGI has it: a piece of the body, or that the peer has left. Raises `RequestRefused` for a body that breaks the rules."""
        ...

    async def wait_gone(self) -> None:
        """Returns when the peer has left."""
        ...

    def has_left(self) -> bool:
        """Whether the peer is known to have left, without waiting for it."""
        ...

    async def answer(self, status: int, headers: Pairs, body: bytes) -> None:
        """The whole response. `headers` say nothing of its length."""
        ...

    async def start(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """The head of a response whose body comes in pieces."""
        ...

    async def piece(self, body: bytes, *, more: bool, yields: bool = True) -> None:
        """Waits for as long as the peer does not read."""
        ...

    def abandon(self) -> None:
        """There is nobody to answer: what answers is cancelled, and the connection ends."""
        ...

    def attend(self, companion: DisconnectWatch) -> None:
        """It is to go with this request, if that lasts."""
        ...

    async def part(self, companion: DisconnectWatch) -> None:
        """The request is over."""
        ...

    def when_heard_of(self, call: Callable[[], None] | None) -> None:
        """Call it when the peer sends another request: it has the answer to this one."""
        ...

    def at_drain(self, end: Callable[[], None]) -> None:
        """Call it when the server is about to go, which may be now."""
        ...


class Handler(Protocol):
    """What answers every request with one head, from one kind of peer: what can be found out from these was found out when it
    was made. Nothing in it belongs to one request."""

    @property
    def client(self) -> Address | None:
        """Who calls, where a proxy has said so; else None."""
        ...

    async def answer(self, cycle: Cycle, /) -> None:
        """One of them."""
        ...

    def done(self, cycle: Cycle, seconds: float, /) -> None:
        """It was answered, or came to nothing (`status` 0). Must not raise."""
        ...


# By what a head says, as an ASGI scope without what belongs to one request.
Resolve: TypeAlias = Callable[[Scope], Handler]
