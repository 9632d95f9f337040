"""The rest of a stream that broke off, for a client that comes back to another node than the one that has it.

    where the client is        →  which event it got last       every node looks for it
    every other node           →  that it has nothing of it
    where the stream is        →  its events, some at a time    and the next ones when those were taken
                               →  that it has ended, or that its client reads it elsewhere by now

Letters both ways (server/store/node_messages). Whoever reads is as slow as the client: the sender of the stream waits for it as it would for a
connection of its own. What is too large for a letter is not sent: the connection ends, and the client comes again, sooner or later there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeAlias

import msgspec
import trio
from msgspec import Raw

from server.calls.sessions.ended_sessions import topic_of
from server.calls.sessions.event_log import Event, EventStream, StreamNotKnown, StreamReader
from server.calls.sessions.session import Session
from server.lib.log.logger import Logger
from server.store.node_messages.node_conversations import NodeConversation, NodeConversations
from server.store.node_messages.node_messages import MAX_BODY, NodeMessage, NodeMessages

WANTED: Final = "stream"
SAID: Final = "stream-said"
NOT_HERE: Final = "stream-not-here"
# Nodes answer within milliseconds. While one that is alive has not, nobody knows whether the stream is kept: its client comes again.
FIND_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 0.5  # for nodes that die meanwhile
BATCH_BYTES: Final = 256 * 1024
# Streams that are read from other nodes at once.
FOLLOWED: Final = 1024
# Nobody sends so much of one before it is taken.
_UNREAD: Final = 16


class _Wanted(msgspec.Struct, frozen=True):
    event_id: str
    talk: str


class _Events(msgspec.Struct, tag="events"):
    events: list[tuple[str, Raw]]


class _Begins(msgspec.Struct, tag="begins"):
    pass


class _Ends(msgspec.Struct, tag="ends"):
    more: bool  # there may be more, for who comes back


class _Taken(msgspec.Struct, tag="taken"):
    pass


class _Leaves(msgspec.Struct, tag="leaves"):
    pass


_Said: TypeAlias = _Events | _Begins | _Ends | _Taken | _Leaves
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(_Said).decode
_decode_wanted: Final = msgspec.json.Decoder(_Wanted).decode


class FarReader:
    """Read like a `StreamReader`."""

    def __init__(self, talk: NodeConversation[_Said]) -> None:
        self.left = False
        self.at_end = False
        self._talk = talk
        self._events = deque[Event]()
        self._owes = False  # what was sent has been read

    async def next(self) -> Event | None:
        while not self._events:
            if self._owes:
                self._owes = False
                self._talk.say(_encode(_Taken()))
            match await self._talk.next():
                case _Events(events):
                    self._events.extend(Event(name, bytes(message)) for name, message in events)
                    self._owes = True
                case _Ends(more):
                    self.left, self.at_end = more, True
                    return None
                case None:
                    self.left = True
                    return None
                case _:
                    pass
        return self._events.popleft()


class FarStreams:
    """Of one process. `run` reads for other nodes what is here."""

    def __init__(self, letters: NodeMessages, find: Callable[[str], Session | None], log: Logger) -> None:
        """`find`: the session of that topic, if it is here."""
        self._letters = letters
        self._find = find
        self._log = log
        self._talks = NodeConversations[_Said](letters, SAID, _decode, unread=_UNREAD)
        self._wanted, self._wants = trio.open_memory_channel[tuple[Session, EventStream, int, str, str]](
            FOLLOWED
        )
        self._denials: dict[str, _Denials] = {}  # of streams that are looked for, by the names of their talks
        letters.hear(WANTED, self._hear_wanted)
        letters.hear(NOT_HERE, self._hear_not_here, self._denials.__contains__)

    # ── where the client is ──────────────────────────────────────────────────────────────────────────────────────────

    @asynccontextmanager
    async def read(self, session: Session, event_id: str) -> AsyncGenerator[FarReader | None]:
        """None: no node has what comes after that event. Raises `StreamNotKnown`."""
        with self._talks.begin() as talk:
            reader = FarReader(talk) if await self._is_found(talk, session, event_id) else None
            try:
                yield reader
            finally:
                if reader is not None and not reader.at_end:
                    talk.say(_encode(_Leaves()))

    async def _is_found(self, talk: NodeConversation[_Said], session: Session, event_id: str) -> bool:
        """Whether some node has it. Raises `StreamNotKnown`."""
        if self._letters.alone:
            return False
        found: list[bool] = []
        wanted = _encode(_Wanted(event_id, talk.name))
        denials = self._denials[talk.name] = _Denials()
        try:
            if self._letters.send(WANTED, topic_of(session.id), wanted, caller=session.caller):
                with trio.move_on_after(FIND_SECONDS):
                    async with trio.open_nursery() as either:

                        async def hear() -> None:
                            found.append(isinstance(await talk.next(), _Begins))
                            either.cancel_scope.cancel()

                        either.start_soon(hear)
                        await denials.wait_for_all(self._letters)
                        found.append(False)
                        either.cancel_scope.cancel()
        finally:
            del self._denials[talk.name]
        if not found:
            raise StreamNotKnown
        return found[0]

    def _hear_not_here(self, letter: NodeMessage) -> None:
        self._denials[letter.topic].add(letter.node)

    # ── where the stream is ──────────────────────────────────────────────────────────────────────────────────────────

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            async for session, stream, after, talk, node in self._wants:
                nursery.start_soon(self._pass_on, session, stream, after, talk, node)

    def _hear_wanted(self, letter: NodeMessage) -> None:
        session, wanted = self._find(letter.topic), _decode_wanted(letter.body)
        found = None if session is None else session.log.find_here(wanted.event_id)
        if session is None or found is None:
            self._letters.send(NOT_HERE, wanted.talk)
            return
        try:
            self._wanted.send_nowait((session, *found, wanted.talk, letter.node))
        except trio.WouldBlock:
            self._log.warning("stream.not_passed_on", reason="too many streams are read at other nodes")

    async def _pass_on(self, session: Session, stream: EventStream, after: int, name: str, node: str) -> None:
        taken = trio.Event()
        with self._talks.join(name, node) as talk:
            async with trio.open_nursery() as nursery:

                async def listen() -> None:
                    """Until the other node needs no more, or is gone."""
                    while isinstance(await talk.next(), _Taken):
                        taken.set()
                    nursery.cancel_scope.cancel()

                nursery.start_soon(listen)
                talk.say(_encode(_Begins()))
                with session.stream_open(), stream.read(after) as reader:
                    while (events := await _batch(stream, reader)) is not None:
                        taken = trio.Event()
                        if not talk.say(_encode(_Events(events))):
                            talk.say(_encode(_Ends(more=True)))
                            break
                        await taken.wait()
                    else:
                        talk.say(_encode(_Ends(more=reader.left)))
                nursery.cancel_scope.cancel()


class _Denials:
    """The nodes that have nothing of one stream."""

    def __init__(self) -> None:
        self._nodes = set[str]()
        self._more = trio.Event()

    def add(self, node: str) -> None:
        self._nodes.add(node)
        self._more.set()

    async def wait_for_all(self, letters: NodeMessages) -> None:
        while letters.others - self._nodes:
            self._more = trio.Event()
            with trio.move_on_after(_LOOK_SECONDS):
                await self._more.wait()


async def _batch(stream: EventStream, reader: StreamReader) -> list[tuple[str, Raw]] | None:
    """What is there, some of it. None: it has ended, or is read by somebody else."""
    event, size, found = await reader.next(), 0, list[tuple[str, Raw]]()
    while event is not None:
        found.append((event.id, Raw(event.message)))
        size += len(event.message)
        coming = stream.event_after(reader.handed)
        if size > BATCH_BYTES or coming is None or size + len(coming[1]) > MAX_BODY // 2:
            break
        event = await reader.next()
    return found or None
