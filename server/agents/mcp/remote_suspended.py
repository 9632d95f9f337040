"""Requests at an upstream that wait at one node while their caller comes back to another: the node that has them follows them, and the
node that the caller came to asks it, passes on what is told, and answers.

    where the caller is                              where the request waits
    ───────────────────                              ───────────────────────
    take: the ticket, and whose it is         →      it is followed again
    what was answered, or that it pauses      ←→     what the upstream asks; what it tells meanwhile
    the result, or that it is parked again    ←      the end

Letters both ways (server/store/node_messages). Where either node dies, the other knows it when everybody does: the caller is told to make the call again,
as after a restart, and the upstream that its request was given up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeAlias

import msgspec
import trio
from msgspec import Raw

from server.agents.mcp.suspension_ticket import GONE, TICKET_KEY
from server.client.mcp_session.sent_requests import SentRequest
from server.client.mcp_session.session_link import Link
from server.client.mcp_session.session_messages import ServerRefusal
from server.lib.log.logger import Logger
from server.mcp.call_failures import BackendError, CannotAsk, NotAnswered, Paused
from server.mcp.call_outlet import LogMessage, Outlet, Progress
from server.mcp.call_questions import Question
from server.store.node_messages.node_conversations import NodeConversation, NodeConversations
from server.store.node_messages.node_messages import MAX_BODY, NodeMessage, NodeMessages

TAKE: Final = "parked"
SAID: Final = "parked-said"
TOO_LARGE: Final = f"it is larger than the {MAX_BODY // 1024:,} KiB that go from one node to another"
# What is told of progress meanwhile: more often than this, the newest is enough.
PROGRESS_SECONDS: Final = 0.25
# Calls that are followed for other nodes at once, and what waits of one: whoever does not keep up misses progress.
FOLLOWED: Final = 256
_UNREAD: Final = 256


class _Take(msgspec.Struct, frozen=True):
    ticket: str
    subject: str
    talk: str


class _Asked(msgspec.Struct, tag="asked"):
    number: int
    questions: dict[str, Question]


class _Told(msgspec.Struct, tag="told"):
    event: Progress | LogMessage


class _SuspendedAgain(msgspec.Struct, tag="parked"):
    pass


class _Result(msgspec.Struct, tag="result"):
    result: Raw


class _Refused(msgspec.Struct, tag="refused"):
    code: int
    text: str
    data: dict[str, Any] | None


class _Failed(msgspec.Struct, tag="failed"):
    text: str
    required: dict[str, Any] | None = None  # nobody could be asked, who would have to declare this


class _Answered(msgspec.Struct, tag="answered"):
    number: int
    answers: dict[str, dict[str, Any]]


class _NotAnswered(msgspec.Struct, tag="not-answered"):
    number: int
    text: str
    required: dict[str, Any] | None


class _Pauses(msgspec.Struct, tag="pauses"):
    number: int


class _Leaves(msgspec.Struct, tag="leaves"):
    pass


_Said: TypeAlias = (
    _Asked
    | _Told
    | _SuspendedAgain
    | _Result
    | _Refused
    | _Failed
    | _Answered
    | _NotAnswered
    | _Pauses
    | _Leaves
)
_Reply: TypeAlias = _Answered | _NotAnswered | _Pauses
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(_Said).decode
_decode_take: Final = msgspec.json.Decoder(_Take).decode


class SuspendingPlace(Protocol):
    """What is asked of suspended_requests.py."""

    def take_up(self, ticket: str, subject: str) -> tuple[Link, SentRequest]:
        """Raises `BackendError` where it is gone."""
        ...

    def put_back(self, ticket: str, link: Link, running: SentRequest) -> None: ...


class RemoteSuspended:
    """Of one process. `run` follows what waits here for callers who came to other nodes."""

    def __init__(self, letters: NodeMessages, log: Logger) -> None:
        self._letters = letters
        self._log = log
        self._here: dict[str, SuspendingPlace] = {}  # by the topics of tickets
        self._talks = NodeConversations[_Said](letters, SAID, _decode, unread=_UNREAD)
        self._taken, self._takes = trio.open_memory_channel[tuple[_Take, str]](FOLLOWED)
        letters.hear(TAKE, self._hear_take, lambda topic: topic.startswith(letters.node))

    # ── tickets ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def name(self, ticket: str) -> str:
        """It tells where the call waits."""
        return f"{self._letters.node}.{ticket}"

    def has(self, ticket: str) -> bool:
        """Whether the call waits at another node, which lives."""
        return self._letters.is_alive(ticket.partition(".")[0])

    def keep(self, ticket: str, place: SuspendingPlace) -> None:
        self._here[_topic(ticket)] = place

    def drop(self, ticket: str) -> None:
        self._here.pop(_topic(ticket), None)

    # ── where the caller is ──────────────────────────────────────────────────────────────────────────────────────────

    async def go_on(self, ticket: str, subject: str, outlet: Outlet) -> Raw:
        """The result. Raises what following the call would raise."""
        over = False
        with self._talks.begin(ticket.partition(".")[0]) as talk:
            take = _encode(_Take(ticket, subject, talk.name))
            if not self._letters.send(TAKE, _topic(ticket), take, caller=subject):
                raise BackendError(GONE)
            try:
                while True:
                    event = await talk.next()
                    match event:
                        case _Asked():
                            _say(talk, await _ask(outlet, event), subject)
                        case _Told():
                            await outlet.emit(event.event)
                        case None | _SuspendedAgain() | _Result() | _Refused() | _Failed():
                            over = True
                            if isinstance(event, _SuspendedAgain):
                                await outlet.checkpoint({TICKET_KEY: ticket})
                            return _ended(event)
                        case _:
                            pass
            finally:
                if not over:
                    _say(talk, _Leaves(), subject)

    # ── where the request waits ──────────────────────────────────────────────────────────────────────────────────────

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            async for take, node in self._takes:
                nursery.start_soon(self._follow, take, node)

    def _hear_take(self, letter: NodeMessage) -> None:
        try:
            self._taken.send_nowait((_decode_take(letter.body), letter.node))
        except trio.WouldBlock:
            self._log.warning("upstream.not_followed", reason="too many calls are followed for other nodes")

    async def _follow(self, take: _Take, node: str) -> None:
        with self._talks.join(take.talk, node) as talk:
            place = self._here.get(_topic(take.ticket))
            try:
                if place is None:
                    raise BackendError(GONE)
                link, running = place.take_up(take.ticket, take.subject)
            except BackendError as error:
                return _say(talk, _Failed(str(error)), take.subject)
            line = _FarOutlet(lambda event: _say(talk, event, take.subject))
            parked = False
            try:
                running.put_again()
                ended = await self._followed(link, running, line, talk)
                if isinstance(ended, _SuspendedAgain):
                    place.put_back(take.ticket, link, running)
                    parked = True
                if ended is not None:
                    _say(talk, ended, take.subject)
            finally:
                if not parked:
                    await link.give_up(running)
        return None

    async def _followed(
        self, link: Link, running: SentRequest, line: _FarOutlet, talk: NodeConversation[_Said]
    ) -> _Said | None:
        """How it ended. None: nobody is there any more who wants to know."""
        ended: list[_Said] = []
        async with trio.open_nursery() as nursery:

            async def listen() -> None:
                while (said := await talk.next()) is not None and not isinstance(said, _Leaves):
                    line.hear(said)
                nursery.cancel_scope.cancel()

            nursery.start_soon(listen)
            try:
                ended.append(_Result(await link.follow(running, line)))
            except Paused:
                # It may have ended in the same moment.
                ended.append(_SuspendedAgain() if running.outcome is None else _Failed(GONE))
            except ServerRefusal as refusal:
                data = None if refusal.data is None else dict(refusal.data)
                ended.append(_Refused(refusal.code, str(refusal), data))
            except BackendError as error:
                required = dict(error.required) if isinstance(error, CannotAsk) else None
                ended.append(_Failed(str(error), required))
            except Exception:  # whatever it is, other calls are followed on
                self._log.exception("upstream.not_followed")
                ended.append(_Failed(GONE))
            nursery.cancel_scope.cancel()
        return ended[0] if ended else None


class _FarOutlet:
    """An `Outlet` whose caller is at another node."""

    def __init__(self, say: Callable[[_Said], None]) -> None:
        self._say = say
        self._number = 0
        self._open: dict[int, tuple[trio.Event, list[_Reply]]] = {}
        self._told_at = float("-inf")

    def hear(self, said: _Said) -> None:
        if isinstance(said, _Answered | _NotAnswered | _Pauses) and said.number in self._open:
            there, found = self._open[said.number]
            found.append(said)
            there.set()

    async def emit(self, event: Progress | LogMessage) -> None:
        now = trio.current_time()
        if isinstance(event, Progress) and now - self._told_at < PROGRESS_SECONDS:
            return
        self._told_at = now
        self._say(_Told(event))

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Mapping[str, Any]]:
        self._number += 1
        number = self._number
        there, found = self._open[number] = (trio.Event(), list[_Reply]())
        try:
            self._say(_Asked(number, dict(questions)))
            await there.wait()
        finally:
            del self._open[number]
        match found[0]:
            case _Answered() as said:
                return said.answers
            case _NotAnswered() as said:
                if said.required is None:
                    raise NotAnswered(said.text)
                raise CannotAsk(said.text, said.required)
            case _Pauses():
                raise Paused

    async def checkpoint(self, data: Any) -> None:
        """Where its caller is, that is seen to."""

    async def become_task(self) -> bool:
        return False

    async def close_stream(self) -> None:
        """There is none here."""


def _say(talk: NodeConversation[_Said], said: _Said, subject: str) -> None:
    body = _encode(said)
    if len(body) > MAX_BODY:
        match said:
            case _Answered():
                body = _encode(_NotAnswered(said.number, f"an answer was given, but {TOO_LARGE}", None))
            case _:
                body = _encode(_Failed(f"the upstream has answered, but {TOO_LARGE}: make the call again"))
    talk.say(body, caller=subject)


async def _ask(outlet: Outlet, asked: _Asked) -> _Reply:
    try:
        answers = await outlet.ask(asked.questions)
    except Paused:
        return _Pauses(asked.number)
    except BackendError as error:
        required = dict(error.required) if isinstance(error, CannotAsk) else None
        return _NotAnswered(asked.number, str(error), required)
    return _Answered(asked.number, {key: dict(answer) for key, answer in answers.items()})


def _ended(event: _SuspendedAgain | _Result | _Refused | _Failed | None) -> Raw:
    match event:
        case _Result():
            return event.result
        case _SuspendedAgain():
            raise Paused
        case _Refused():
            raise ServerRefusal(event.code, event.text, event.data)
        case _Failed():
            if event.required is not None:
                raise CannotAsk(event.text, event.required)
            raise BackendError(event.text)
        case None:
            raise BackendError(GONE)


def _topic(ticket: str) -> str:
    """The node, and what of the rest whoever reads the database may see."""
    return f"{ticket.partition('.')[0]}.{hashlib.sha256(ticket.encode()).hexdigest()}"
