"""An answer over HTTP: one message, or a stream of them with the answer among them; and the rest of a stream that broke off, where
its server said how to come back for it (2025-11-25). Messages are handed to `take` as they came.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Final, TypeAlias, TypeVar

import msgspec
import trio

from server.client.mcp_session.http_wire import (
    ERROR_BYTES,
    EVENTS,
    HttpWire,
    SessionGone,
    has_no_endpoint,
    is_passing,
    is_stream,
    lines_of,
)
from server.client.mcp_session.session_messages import (
    METHOD_NOT_FOUND,
    NoMcpServer,
    ServerGone,
    ServerRefusal,
    too_large,
)
from server.client.mcp_session.session_request import SessionRequest
from server.lib.http_client.failures import FetchFailed
from server.lib.http_client.fetch import UpstreamAnswer
from server.lib.server_sent_events import EventDecoder, EventTooLarge
from server.mcp.call_failures import BackendError, Unanswered

T = TypeVar("T")

# The end of a stream comes right behind its answer; whoever lets us wait longer gets another connection the next time.
STREAM_END_SECONDS: Final = 0.02
# How often in a row a stream is come back to that brings nothing new, and how often it may fail to open: some two minutes.
RESUMED_AT_MOST: Final = 100
RESUME_TRIES: Final = 8
# Before a stream is opened again, unless the server named a time; doubled each time that nothing new came.
FIRST_WAIT_SECONDS: Final = 1.0
SHORTEST_WAIT_SECONDS: Final = 0.1
LONGEST_WAIT_SECONDS: Final = 30.0

# A message → the result, if it is the answer. Raises the refusal, if it is that.
Take: TypeAlias = Callable[[bytes], Awaitable[T | None]]
# The stream that goes on as these lines say.
GoOn: TypeAlias = Callable[[bytes], AbstractAsyncContextManager[UpstreamAnswer]]
Sleep: TypeAlias = Callable[[float], Awaitable[object]]


class StreamPlace(msgspec.Struct):
    """The position up to which a stream was read, over all its connections."""

    last_id: str | None = None
    retry_millis: int | None = None
    idle: int = 0  # connections in a row that brought nothing new

    def move(self, decoder: EventDecoder, *, heard: bool = False) -> None:
        """Note where a connection ended. `heard`: it brought something all the same, whose place its server does not say."""
        self.idle = 0 if heard or decoder.last_id not in (None, self.last_id) else self.idle + 1
        self.last_id = decoder.last_id or self.last_id
        if decoder.retry_millis is not None:
            self.retry_millis = decoder.retry_millis

    @property
    def lines(self) -> bytes:
        """The header that says where to go on; empty where the server gave none that could be sent."""
        last = self.last_id
        return lines_of({"Last-Event-ID": last}) if last and last.isascii() and last.isprintable() else b""

    @property
    def pause(self) -> float:
        """The seconds to wait before the stream is opened again."""
        wished = FIRST_WAIT_SECONDS if self.retry_millis is None else self.retry_millis / 1000
        backed_off = FIRST_WAIT_SECONDS * 2 ** min(self.idle, 16) if self.idle else SHORTEST_WAIT_SECONDS
        return min(max(wished, backed_off), LONGEST_WAIT_SECONDS)


async def answer_of(
    answer: UpstreamAnswer,
    wire: HttpWire,
    take: Take[T],
    go_on: GoOn | None = None,
    *,
    in_session: bool = False,
    sleep: Sleep = trio.sleep,
) -> T:
    """Return the result. Raises `ServerRefusal`, what `wire` makes of a bad status, and `SessionGone` where it was `in_session`."""
    status = answer.status
    if status >= 300:
        problem = wire.problem(answer, await answer.beginning(ERROR_BYTES))
        if status == 404 and in_session and not _is_missing_method(problem):
            raise SessionGone
        raise problem
    if answer.media_type != EVENTS:
        found = await take(await answer.read(wire.most))
        if found is None:
            raise NoMcpServer(f"answers with status {status} and no result")
        return found
    decoder = EventDecoder(limit=wire.most)
    try:
        found = await heard(answer, decoder, take)
    except FetchFailed:
        if go_on is None or decoder.last_id is None:
            raise
        found = None
    if found is not None:
        await answer.finish(STREAM_END_SECONDS)
        return found
    place = StreamPlace()
    place.move(decoder)
    return await _rest(place, wire, take, go_on, sleep)


async def first_answer(answer: UpstreamAnswer, wire: HttpWire, take: Take[T]) -> T:
    """Return the answer to `initialize`. Raises as `answer_of`; `NoMcpServer` where there is nothing that takes messages."""
    if has_no_endpoint(answer.status):
        problem = wire.problem(answer, await answer.beginning(ERROR_BYTES))
        if not isinstance(problem, ServerRefusal):
            raise NoMcpServer(f"has no MCP endpoint there (status {answer.status})")
        raise problem
    return await answer_of(answer, wire, take)


async def heard(answer: UpstreamAnswer, decoder: EventDecoder, take: Take[T]) -> T | None:
    """Read until the answer has come; None: the stream ended before."""
    try:
        while chunk := await answer.part():
            for data in decoder.feed(chunk):
                found = await take(data)
                if found is not None:
                    return found
    except EventTooLarge as error:
        raise too_large(decoder.limit) from error
    return None


async def _rest(place: StreamPlace, wire: HttpWire, take: Take[T], go_on: GoOn | None, sleep: Sleep) -> T:
    """Fetch the rest of an answer, over as many connections as it takes. Whatever fails: the request was sent, and may have been carried out."""
    gone = "ended the answer before the result"
    trouble: Exception | None = None
    failures = 0
    while go_on and place.lines and place.idle < RESUMED_AT_MOST and failures < RESUME_TRIES:
        await sleep(place.pause)
        decoder = EventDecoder(limit=wire.most)
        try:
            async with go_on(place.lines) as answer:
                if is_stream(answer):
                    failures = 0
                    found = await heard(answer, decoder, take)
                    if found is not None:
                        return found
                elif is_passing(answer.status):
                    failures += 1
                    trouble = wire.problem(answer)
                else:  # nobody can say what became of the call
                    failures, trouble = RESUME_TRIES, None
        except Unanswered as error:
            failures += 1
            trouble = error
        place.move(decoder)
    raise ServerGone(gone if trouble is None else f"{gone}, and then {trouble}") from trouble


async def listen(
    wire: HttpWire,
    head: bytes,
    take: Take[T],
    *,
    in_session: bool,
    missed: Callable[[Exception | None], None],
    call: SessionRequest | None = None,
    opened: Callable[[], None] = lambda: None,
    sleep: Sleep = trio.sleep,
) -> bool:
    """Read what a server of the handshake era says unasked, on a GET. Return True if it has lost the session, False if it offers no such stream.
    `call`: in whose session; None: ours. `opened`: the stream is there. `missed`: a stream ended, for this reason if there is one, and is about to be opened again."""
    place, was_open = StreamPlace(), False
    while True:
        decoder = EventDecoder(limit=wire.most)
        trouble: Exception | None = None
        messages, begun = 0, trio.current_time()

        async def counted(message: bytes) -> T | None:
            nonlocal messages
            messages += 1
            return await take(message)

        try:
            async with wire.attend(head + place.lines, call) as answer:
                if is_stream(answer):
                    was_open = True
                    opened()
                    await heard(answer, decoder, counted)
                elif is_passing(answer.status):
                    trouble = wire.problem(answer)
                else:
                    # Never opened: 404 is another way to say that there is no such stream.
                    return answer.status == 404 and was_open and in_session
        except Unanswered as error:
            trouble = error
        lasted = trio.current_time() - begun > LONGEST_WAIT_SECONDS
        place.move(decoder, heard=messages > 0 or (lasted and trouble is None))
        await sleep(place.pause)
        missed(trouble)


def _is_missing_method(problem: BackendError | ServerRefusal) -> bool:
    """Return whether this says that there is no such method: some servers use the status of a lost session for it."""
    return isinstance(problem, ServerRefusal) and problem.code == METHOD_NOT_FOUND
