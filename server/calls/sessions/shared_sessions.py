"""Sessions that several nodes have: what comes to one of them and is meant for another goes there, and what all must know, all are told.

A letter each (server/store/node_messages), to whoever has the session; what a node must know that takes it up later has a row (session_rows.py), written
behind whoever waits. Ids of requests of ours name the node that asks, and show that they were made here: what answers to nothing goes nowhere.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial
from typing import Final, Protocol, TypeAlias

import msgspec
import trio
from msgspec import Raw

from auth.values.identity_model import Millis
from server.calls.sessions import session_rows as rows
from server.calls.sessions.ended_sessions import EndedSessions, topic_of
from server.calls.sessions.remote_streams import FarStreams
from server.calls.sessions.session import DEFAULT_LEVEL, EventSource, Session
from server.calls.sessions.session_rows import FactsChange
from server.lib.log.logger import Logger
from server.lib.sealing import NotSealedHere, Sealer
from server.lib.shortened import short_reason
from server.mcp.call_outlet import LogLevel
from server.mcp.messages import RequestId, ResponseMessage
from server.store.jobs import Store, StoreError
from server.store.node_messages.node_messages import MAX_BODY, NodeMessage, NodeMessages

KEY_PURPOSE: Final = "shared-sessions"
ABOUT: Final = "session"
ENDED: Final = "session-ended"
TOO_LARGE: Final = f"the answer came to another node than the one that asked, and is larger than the {MAX_BODY // 1024:,} KiB that go from one to another"
# What a client asked for is answered when every node can know of it, or after so long.
WRITTEN_SECONDS: Final = 2.0
_PAUSE_SECONDS: Final = 1.0
_AT_ONCE: Final = 100
# Of sessions with a row, the ones that are in use say so again.
_REFRESH_SECONDS: Final = 20 * 60.0
# Sessions that are looked up at the same time, and what is kept of the letters for each: its caller may cause no more in that time.
_EXPECTED: Final = 1024
_EXPECTED_LETTERS: Final = 512
# Ids of another node's requests that were answered here: whoever answers twice is late.
_REMEMBERED: Final = 64
_NODE_CHARACTERS: Final = 8
_NAMED: Final = re.compile(r"server-(\d{1,9})-([0-9a-f]{8})-([0-9a-f]{8})-([0-9a-f]{16})", re.ASCII).fullmatch


class SessionFacts(msgspec.Struct, frozen=True, kw_only=True):
    ended_until: Millis | None
    log_level: LogLevel | None
    reader: str | None  # another node
    watched: frozenset[str]


_NOTHING: Final = Raw(b"null")


class _Answered(msgspec.Struct, tag="answered"):
    id: str
    result: Raw = _NOTHING
    error: Raw = _NOTHING
    why: str | None = None  # there is no answer


class _Cancelled(msgspec.Struct, tag="cancelled"):
    id: RequestId


class _Ready(msgspec.Struct, tag="ready"):
    pass


class _Said(msgspec.Struct, tag="said"):
    message: Raw
    changed: str | None = None  # what it tells of, if that is a change


class _Watches(msgspec.Struct, tag="watches"):
    uri: str
    on: bool


class _Leveled(msgspec.Struct, tag="level"):
    level: LogLevel


class _Reads(msgspec.Struct, tag="reads"):
    on: bool


_News: TypeAlias = _Answered | _Cancelled | _Ready | _Said | _Watches | _Leveled | _Reads
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(_News).decode


class SessionsHere(Protocol):
    """What is asked of sessions.py: those of one server at this node."""

    def put_away(self, session: Session) -> None: ...

    def watches_elsewhere(self, session: Session, uri: str, on: bool) -> None: ...


class _Expected:
    """A session that is being looked up: what is said of it meanwhile."""

    __slots__ = ("letters", "requests")

    def __init__(self) -> None:
        self.letters: list[NodeMessage] = []
        self.requests = 0  # that wait for it


class SharedSessions:
    """Of all servers of a process. Implements `OtherNodes`. `run` writes what later nodes must know."""

    def __init__(
        self,
        letters: NodeMessages,
        ended: EndedSessions,
        store: Store,
        *,
        key: bytes,
        per_caller: int,
        clock: Callable[[], Millis],
        entropy: Callable[[int], bytes],
        log: Logger,
    ) -> None:
        """`per_caller`: sessions that one caller may have, at all servers together."""
        self._letters = letters
        self._per_caller = per_caller
        self._ended = ended
        self._store = store
        self._sealer = Sealer(hashlib.sha256(key + b"rows").digest(), entropy)
        self._key = hashlib.sha256(key + b"ids").digest()
        self._clock = clock
        self._log = log
        self._here: dict[str, tuple[Session, SessionsHere]] = {}
        self._answered: dict[str, dict[str, None]] = {}
        self._expected: dict[str, _Expected] = {}
        self._unwritten: dict[str, FactsChange] = {}
        self._noted = 0
        self._written = 0  # of what was noted, so much has its rows, or will have none
        self._flushed = trio.Event()
        self._doubted = False  # some of those that are here may have been ended
        self._wake = trio.Event()
        self._streams = FarStreams(letters, self._at, log)
        letters.hear(ABOUT, self._hear, lambda topic: topic in self._here or topic in self._expected)
        letters.hear(ENDED, self._hear_end)
        letters.on_company(self._share_all)
        letters.on_missed(self._doubt)

    def came(self, session: Session, sessions: SessionsHere) -> None:
        """What was said of it since it was looked up, it hears when it knows what was found."""
        topic = topic_of(session.id)
        self._here[topic] = (session, sessions)

    def catch_up(self, session: Session) -> None:
        expected = self._expected.pop(topic_of(session.id), None)
        for letter in () if expected is None else expected.letters:
            self._letters.tell(letter, self._hear)

    def _at(self, topic: str) -> Session | None:
        found = self._here.get(topic)
        return None if found is None else found[0]

    def went(self, session: Session) -> None:
        topic = topic_of(session.id)
        self._here.pop(topic, None)
        self._answered.pop(topic, None)

    # ── what other nodes are told ────────────────────────────────────────────────────────────────────────────────────

    def name_request(self, session: Session, count: int) -> str:
        node, life = self._letters.node[:_NODE_CHARACTERS], session.log.life
        return f"server-{count}-{node}-{life}-{self._mark(session, count, node, life)}"

    def is_alive(self, node: str) -> bool:
        return self._letters.is_alive(node)

    def answered(self, session: Session, response: ResponseMessage) -> None:
        request_id = response.id
        if not isinstance(request_id, str) or not self._asked_elsewhere(session, request_id):
            return
        topic = topic_of(session.id)
        before = self._answered.setdefault(topic, {})
        if request_id in before:
            return
        news = _Answered(request_id, response.result or _NOTHING, response.error or _NOTHING)
        if len(body := _encode(news)) > MAX_BODY:
            body = _encode(_Answered(request_id, why=TOO_LARGE))
        if not self._letters.send(ABOUT, topic, body, caller=session.caller):
            return  # its client may answer once more
        before[request_id] = None
        if len(before) > _REMEMBERED:
            del before[next(iter(before))]

    def _asked_elsewhere(self, session: Session, request_id: str) -> bool:
        match = _NAMED(request_id)
        if match is None or match[2] == self._letters.node[:_NODE_CHARACTERS]:
            return False
        mark = self._mark(session, int(match[1]), match[2], match[3])
        return hmac.compare_digest(mark, match[4])

    def _mark(self, session: Session, count: int, node: str, life: str) -> str:
        about = f"{session.id}|{count}|{node}|{life}".encode()
        return hmac.new(self._key, about, hashlib.sha256).hexdigest()[:16]

    def cancelled(self, session: Session, request_id: RequestId) -> None:
        self._tell(session, _Cancelled(request_id))

    def ready(self, session: Session) -> None:
        self._tell(session, _Ready())

    def say(self, session: Session, message: bytes) -> None:
        self._tell(session, _Said(Raw(message)))

    def tell_changed(self, session: Session, kind: str, message: bytes) -> None:
        self._tell(session, _Said(Raw(message), kind))

    def watches(self, session: Session, uri: str, on: bool) -> None:
        self._tell(session, _Watches(uri, on))
        self._note(session, watches={_hash(uri): self._seal(topic_of(session.id), uri) if on else None})

    def leveled(self, session: Session) -> None:
        self._tell(session, _Leveled(session.log_level))
        self._note(session, log_level=session.log_level)

    def reads(self, session: Session, on: bool) -> None:
        self._tell(session, _Reads(on))
        self._note(session, reads=on)

    def read_stream(self, session: Session, event_id: str) -> AbstractAsyncContextManager[EventSource | None]:
        return self._streams.read(session, event_id)

    def ended(self, session_id: str, expires_at: Millis) -> None:
        topic = topic_of(session_id)
        self._letters.send(ENDED, topic, _encode(expires_at))
        if not self._letters.alone:
            self._unwritten[topic] = FactsChange(id_hash=topic, caller="", over=True)
            self._wake.set()

    def _tell(self, session: Session, news: _News) -> None:
        if not self._letters.alone:
            self._letters.send(ABOUT, topic_of(session.id), _encode(news), caller=session.caller)

    # ── what they tell ───────────────────────────────────────────────────────────────────────────────────────────────

    def _hear(self, letter: NodeMessage) -> None:
        found = self._here.get(letter.topic)
        if found is None:
            expected = self._expected.get(letter.topic)
            if expected is not None and len(expected.letters) < _EXPECTED_LETTERS:
                expected.letters.append(letter)
            return
        session, sessions = found
        news: _News = _decode(letter.body)
        match news:
            case _Answered():
                session.settle(_answer(news) if news.why is None else news.why, news.id)
            case _Cancelled():
                session.cancel(news.id)
            case _Ready():
                session.is_ready()
            case _Said():
                self._hear_said(session, news)
            case _Watches():
                sessions.watches_elsewhere(session, news.uri, news.on)
            case _Leveled():
                session.log_level = news.level
            case _Reads():
                if news.on or session.reader == letter.node:
                    session.read_at(letter.node if news.on else None)

    def _hear_said(self, session: Session, news: _Said) -> None:
        message = bytes(news.message)
        if news.changed is not None:
            session.changed(news.changed, message)
        elif session.unsolicited.attended:  # else it is for another node
            session.unsolicited.append(message)

    def _hear_end(self, letter: NodeMessage) -> None:
        self._ended.know(letter.topic, msgspec.json.decode(letter.body, type=int))
        found = self._here.get(letter.topic)
        if found is not None:
            session, sessions = found
            sessions.put_away(session)

    # ── rows ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def expecting(self, session_id: str) -> Generator[None]:
        """What others say of it meanwhile is kept, and heard when it is here (`catch_up`)."""
        topic = topic_of(session_id)
        expected = self._expected.get(topic) or _Expected()
        if len(self._expected) < _EXPECTED:
            self._expected[topic] = expected
        expected.requests += 1
        try:
            yield
        finally:
            expected.requests -= 1
            if not expected.requests and self._expected.get(topic) is expected:
                del self._expected[topic]

    async def look_up(self, session_id: str) -> SessionFacts:
        """Raises `StoreUnavailable`."""
        topic = topic_of(session_id)
        row = await self._store.read(partial(rows.look_up, id_hash=topic, now=self._clock()))
        reader = row.reader if row.reader is not None and self.is_alive(row.reader) else None
        return SessionFacts(
            ended_until=row.ended_until,
            log_level=_level(row.log_level),
            reader=reader,
            watched=frozenset(
                uri for sealed in row.watches if (uri := self._open(topic, sealed)) is not None
            ),
        )

    def _note(
        self,
        session: Session,
        *,
        log_level: str | None = None,
        reads: bool | None = None,
        watches: dict[str, bytes | None] | None = None,
    ) -> None:
        """To be written soon: with other nodes there may be more of them later."""
        if self._letters.alone:
            return
        topic = topic_of(session.id)
        before = self._unwritten.get(topic) or FactsChange(id_hash=topic, caller=session.caller)
        if before.over:
            return
        self._unwritten[topic] = FactsChange(
            id_hash=topic,
            caller=session.caller,
            log_level=log_level or before.log_level,
            reads=before.reads if reads is None else reads,
            watches={**before.watches, **(watches or {})},
        )
        self._noted += 1
        self._wake.set()

    async def written(self) -> None:
        """What was noted until now can be known at every node."""
        upto = self._noted
        with trio.move_on_after(WRITTEN_SECONDS):
            while self._written < upto:
                await self._flushed.wait()

    async def run(self) -> None:
        """For ever."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._streams.run)
            nursery.start_soon(self._keep_writing)

    async def _keep_writing(self) -> None:
        while True:
            with trio.move_on_after(_REFRESH_SECONDS):
                await self._wake.wait()
            if not self._wake.is_set():
                self._share_all(used=True)
            self._wake = trio.Event()
            if self._doubted:
                await self._put_away_ended()
            await self._write()

    def _doubt(self) -> None:
        self._doubted = True
        self._wake.set()

    async def _put_away_ended(self) -> None:
        try:
            await self._ended.load()
        except StoreError as problem:
            self._log.warning("session.not_looked_up", reason=short_reason(problem))
            await trio.sleep(_PAUSE_SECONDS)
            return self._wake.set()
        self._doubted = False
        for session, sessions in list(self._here.values()):
            if session.id in self._ended:
                sessions.put_away(session)
        return None

    def _share_all(self, *, used: bool = False) -> None:
        """`used`: of those alone that are in use."""
        for session, _ in list(self._here.values()):
            if session.busy or not used:
                self._share(session)

    def _share(self, session: Session) -> None:
        topic, read = topic_of(session.id), session.unsolicited.attended
        leveled = session.log_level != DEFAULT_LEVEL
        if not (session.watched or leveled or read):
            return
        watches: dict[str, bytes | None] = {_hash(uri): self._seal(topic, uri) for uri in session.watched}
        self._note(
            session,
            log_level=session.log_level if leveled else None,
            reads=True if read else None,
            watches=watches,
        )

    async def _write(self) -> None:
        while self._unwritten:
            upto = self._noted if len(self._unwritten) <= _AT_ONCE else self._written
            some = [self._unwritten.pop(topic) for topic in list(self._unwritten)[:_AT_ONCE]]
            job = partial(
                rows.write,
                changes=some,
                node=self._letters.node,
                per_caller=self._per_caller,
                now=self._clock(),
            )
            try:
                await self._store.write(job)
            except StoreError as problem:
                # What nodes know that are there is not lost; one that comes new does not learn of it.
                self._log.warning("session.not_shared", reason=short_reason(problem), sessions=len(some))
                await trio.sleep(_PAUSE_SECONDS)
            self._written = max(self._written, upto)
            self._flushed.set()
            self._flushed = trio.Event()

    def _seal(self, topic: str, uri: str) -> bytes:
        return self._sealer.seal(uri.encode(), topic.encode())

    def _open(self, topic: str, sealed: bytes) -> str | None:
        try:
            return self._sealer.open(sealed, topic.encode()).decode()
        except NotSealedHere:
            return None


def _level(name: str | None) -> LogLevel | None:
    """None as well for one that only a newer version knows."""
    try:
        return None if name is None else msgspec.convert(name, LogLevel)
    except msgspec.ValidationError:
        return None


def _answer(news: _Answered) -> ResponseMessage:
    refused = bytes(news.error) != b"null"
    return ResponseMessage(
        id=news.id, result=None if refused else news.result, error=news.error if refused else None
    )


def _hash(uri: str) -> str:
    return hashlib.sha256(uri.encode()).hexdigest()
