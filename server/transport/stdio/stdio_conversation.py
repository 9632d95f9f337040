"""MCP with one client over a pair of pipes: a message a line each way, requests side by side, one writer.

    line → message → classify → run → line

Each request says itself that it is modern; every other one belongs to the one handshake of the process. The same core as
over HTTP runs both. Where lines come from and go to is whoever calls `PipeConversation.run`'s; what the parts are and when it
is all over, app_stdio.py's. Spec: basic/transports/stdio (2026-07-28), basic/transports (2025-11-25 and before).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, contextmanager, nullcontext
from typing import Final

import trio

from auth.values.identity_model import Principal
from server.calls.caller_outlet import Line
from server.calls.dispatch import (
    answer_batch,
    begin_session,
    make_request,
    refused,
    run,
    settle_again,
    take_batch,
)
from server.calls.request import Outcome, Request
from server.calls.servers.endpoint import Endpoint
from server.calls.sessions.cancellable_requests import CANCELLED, RunningRequest, cancelled_by
from server.calls.sessions.session import Session
from server.calls.sessions.sessions import Sessions
from server.client.stdio_lines import Read, TooLong, Write, read_lines
from server.mcp.errors import InvalidRequest, ServerStopping, TooManySessions
from server.mcp.inbound_messages import Acknowledged, Rejection, Route, check_batch, classify_line
from server.mcp.messages import Batch, Notification, RequestId, ResponseMessage, decode
from server.mcp.method_params import InitializeParams
from server.mcp.older_versions import as_older
from server.mcp.result_encoding import encode_error, encode_notification
from server.mcp.versions import LATEST

# Requests that run at once: as many as one session may have over HTTP.
MAX_RUNNING: Final = 64
# Requests in memory: those that run, as many subscriptions, which take no place, and as many that wait for one.
MAX_HELD: Final = 3 * MAX_RUNNING
# Nothing is read while there is no room; but the answers and cancellations for which everything may be waiting come by the
# same way. So when nothing has ended for this long, what there is no room for is refused, and the line is read again.
ROOM_SECONDS: Final = 5.0
# Lines that wait at the same time are written at once, up to what a pipe holds.
WRITTEN_AT_ONCE: Final = 64 * 1024
# When all is over the last lines still go out, if anybody takes them.
FAREWELL_SECONDS: Final = 2.0
# And the answers to what the drain has cut off.
LAST_WORD_SECONDS: Final = 1.0


class Outbox:
    """What is said, in the order in which it is said, as whole lines: cancelling whoever says something says all or nothing."""

    def __init__(self) -> None:
        self._say, self._said = trio.open_memory_channel[bytes](0)

    async def say(self, message: bytes) -> None:
        """As slowly as the client reads."""
        await self._say.send(message)

    def close(self) -> None:
        self._say.close()

    async def run(self, write: Write) -> None:
        """Until it is closed. What writing raises passes through."""
        async with self._said:
            async for message in self._said:
                lines, size = [message], len(message)
                while size < WRITTEN_AT_ONCE:
                    try:
                        message = self._said.receive_nowait()
                    except (trio.WouldBlock, trio.EndOfChannel):
                        break
                    lines.append(message)
                    size += len(message)
                await write(b"\n".join(lines))


class _Held(RunningRequest):
    """A request, from its line until it has an answer."""

    __slots__ = ("request",)

    def __init__(self, request: Request) -> None:
        super().__init__()
        self.request: Final = request


class _PlainLine:
    """Implements `Line`: all requests share the one pipe, which needs no signs of life and cannot be let go of."""

    def __init__(self, outbox: Outbox) -> None:
        self.send: Final = outbox.say

    async def ping(self) -> None:
        """A pipe does not break because nobody speaks."""

    async def release(self) -> None:
        """There is no other way by which the answer could be fetched."""


class PipeConversation:
    """`boot_id` makes the ids of calls different from those of every other process. `widened`: batches in every revision of
    the handshake era."""

    def __init__(
        self,
        endpoint: Endpoint,
        sessions: Sessions,
        principal: Principal,
        *,
        boot_id: str,
        max_line: int,
        drain_seconds: float,
        widened: bool = False,
    ) -> None:
        self._endpoint = endpoint
        self._sessions = sessions
        self._principal = principal
        self._boot_id = boot_id
        self._max_line = max_line
        self._drain_seconds = drain_seconds
        self._widened = widened
        self._outbox = Outbox()
        self._line: Line = _PlainLine(self._outbox)
        self._session: Session | None = None  # from an accepted `initialize` on
        self._running: dict[RequestId, _Held] = {}
        self._places = trio.Semaphore(MAX_RUNNING)
        self._room = trio.Semaphore(MAX_HELD)
        self._stuck = False  # there is no room, and nothing has ended for `ROOM_SECONDS`
        self._begun = 0

    async def run(self, read: Read, write: Write, *, stopping: trio.Event) -> None:
        """Until the client has closed its end, or `stopping` is set; afterwards it is set in any case. Then what runs has
        `drain_seconds` to end. A client that takes nothing any more ends it at once."""
        async with trio.open_nursery() as writing:

            async def write_out() -> None:
                try:
                    await self._outbox.run(write)
                except BrokenPipeError:
                    writing.cancel_scope.cancel()

            writing.start_soon(write_out)
            with trio.CancelScope() as working:
                async with trio.open_nursery() as drain:
                    async with trio.open_nursery() as requests:
                        await self._read_in(read, requests, stopping)
                        self._end_what_waits()
                        drain.start_soon(self._cut_off, trio.current_time() + self._drain_seconds)
                        working.deadline = trio.current_time() + self._drain_seconds + LAST_WORD_SECONDS
                    drain.cancel_scope.cancel()
            self._outbox.close()
            writing.cancel_scope.deadline = trio.current_time() + FAREWELL_SECONDS

    # ── what comes in ────────────────────────────────────────────────────────────────────────────────────────────

    async def _read_in(self, read: Read, requests: trio.Nursery, stopping: trio.Event) -> None:
        with trio.CancelScope() as reading:

            async def stop() -> None:
                await stopping.wait()
                reading.cancel()

            requests.start_soon(stop)
            async with aclosing(read_lines(read, limit=self._max_line)) as lines:
                async for line in lines:
                    await self._take_line(line, requests)
        stopping.set()

    def _end_what_waits(self) -> None:
        """Nobody will answer a question or cancel a subscription any more. Calls run to their end."""
        for running in self._running.values():
            running.request.end()
        if self._session is not None:
            self._sessions.put_away(self._session)

    async def _cut_off(self, moment: float) -> None:
        """What runs then is told so, if anybody still reads."""
        await trio.sleep_until(moment)
        for running in list(self._running.values()):
            running.cut_off()

    async def _take_line(self, line: bytes | TooLong, requests: trio.Nursery) -> None:
        agreed = None if self._session is None else self._session.revision
        if isinstance(line, TooLong):
            error = InvalidRequest(f"a message holds at most {self._max_line} bytes")
            return await self._refuse(Rejection(error, None, agreed or LATEST))
        if not line.strip():
            return None
        message = decode(line)
        del line  # a subscription may last for days
        if isinstance(message, Batch):
            return await self._take_batch(message, requests)
        verdict = classify_line(message, agreed)
        if self._endpoint.pretends is not None:
            verdict = as_older(verdict, self._endpoint.pretends)
        if isinstance(verdict, Rejection):
            return await self._refuse(verdict)
        if isinstance(verdict, Acknowledged):
            return self._hear(verdict.message)
        return await self._take_request(verdict, requests)

    def _hear(self, message: Notification | ResponseMessage) -> None:
        if isinstance(message, ResponseMessage):
            if self._session is not None:
                self._session.answer(message)
            return
        named = cancelled_by(message)
        # What names no request that runs is ignored: it may have crossed the answer.
        if named is not None and (running := self._running.get(named)):
            running.cancel()
        if self._session is not None:
            self._session.note(message)

    async def _take_request(self, route: Route, requests: trio.Nursery) -> None:
        if route.id in self._running:
            return await self._refuse(_in_use(route))
        if route.method.params is InitializeParams:
            return await self._initialize(route, requests)
        request = self._request(route)
        if request.at_once:
            return await self._outbox.say((await run(request, self._line)).body)
        if not await self._makes_room():
            error = TooManySessions(f"{MAX_HELD} requests are held already: wait for one, or cancel it")
            return await self._refuse(Rejection(error, route.id, route.revision))
        requests.start_soon(self._listen if route.method.streams else self._answer, self._registered(request))
        return None

    async def _initialize(self, route: Route, requests: trio.Nursery) -> None:
        """Before the next line is read, since that one means something else then."""
        if self._session is not None:
            error = InvalidRequest("initialize was answered already")
            return await self._refuse(Rejection(error, route.id, route.revision))
        session, outcome = await begin_session(self._request(route), self._sessions, "")
        if session is not None:
            self._session = session
            requests.start_soon(self._pass_on, session)
        return await self._outbox.say(outcome.body)

    async def _take_batch(self, batch: Batch, requests: trio.Nursery) -> None:
        revision = LATEST if self._session is None else self._session.revision
        checked = check_batch(batch, revision, widened=self._widened)
        if isinstance(checked, Rejection):
            return await self._refuse(checked)
        items = take_batch(batch, revision, hear=self._hear, take=self._take_item)
        if await self._makes_room():
            requests.start_soon(self._answer_all, items)
            return None
        for running in items:
            if isinstance(running, _Held):
                del self._running[running.request.id]
        error = TooManySessions(f"{MAX_HELD} requests are held already: wait for one, or cancel it")
        return await self._refuse(Rejection(error, None, revision))

    # ── what is done ─────────────────────────────────────────────────────────────────────────────────────────────

    async def _makes_room(self) -> bool:
        """Whether one more request is held from now on. Waits for it, as long as there is something to hope for."""
        with trio.move_on_after(0 if self._stuck else ROOM_SECONDS):
            await self._room.acquire()
            return True
        self._stuck = True
        return False

    @contextmanager
    def _held(self) -> Generator[None]:
        try:
            yield
        finally:
            self._stuck = False
            self._room.release()

    async def _answer(self, running: _Held) -> None:
        with self._held():
            outcome = await self._outcome(running, self._places)
            if outcome is not None:
                await self._outbox.say(outcome.body)

    async def _answer_all(self, items: Sequence[bytes | _Held]) -> None:
        """One line with all answers."""
        with self._held():
            async with self._places:
                outcome = await answer_batch(items, lambda running: self._outcome(running, nullcontext()))
            if outcome is not None:
                await self._outbox.say(outcome.body)

    async def _listen(self, running: _Held) -> None:
        """A subscription that we end has its result, and then is cancelled: the spec asks for either in different places, and
        a client that knows one of them ignores the other (basic/patterns/subscriptions, basic/patterns/cancellation)."""
        with self._held():
            outcome = await self._outcome(running, nullcontext())
            if outcome is None:
                return
            await self._outbox.say(outcome.body)
            if outcome.error is None:
                await self._outbox.say(encode_notification(CANCELLED, {"requestId": running.request.id}))

    async def _outcome(self, running: _Held, place: AbstractAsyncContextManager[object]) -> Outcome | None:
        """None: the client has cancelled it. Its id is free again before it is answered, because the client may use it as soon
        as it has read the answer."""
        outcome: Outcome | None = None
        try:
            with running.scope:
                async with place:
                    settle_again(running.request)  # it may have waited long for its place
                    outcome = await run(running.request, self._line)
        finally:
            del self._running[running.request.id]
        return None if running.cancelled else outcome or refused(running.request, ServerStopping())

    def _registered(self, request: Request) -> _Held:
        running = self._running[request.id] = _Held(request)
        return running

    def _take_item(self, route: Route, _place: int) -> _Held | Rejection:
        return _in_use(route) if route.id in self._running else self._registered(self._request(route))

    def _request(self, route: Route) -> Request:
        self._begun += 1
        return make_request(
            self._endpoint,
            self._principal,
            route,
            f"{self._boot_id}-{self._begun:x}",
            session=None if route.revision.modern else self._session,
        )

    # ── what goes out ────────────────────────────────────────────────────────────────────────────────────────────

    async def _refuse(self, rejection: Rejection) -> None:
        await self._outbox.say(_encoded(rejection))

    async def _pass_on(self, session: Session) -> None:
        """What belongs to no request, until the session ends."""
        with session.unsolicited.read() as reader:
            while (event := await reader.next()) is not None:
                await self._outbox.say(event.message)


def _in_use(route: Route) -> Rejection:
    return Rejection(InvalidRequest("a request with this id is running already"), route.id, route.revision)


def _encoded(rejection: Rejection) -> bytes:
    return encode_error(rejection.id, rejection.error, rejection.revision)
