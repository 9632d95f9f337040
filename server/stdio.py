"""MCP with one client over a pair of pipes: a message a line each way, requests side by side, one writer.

    line → message → classify → run → line

Each request says itself that it is modern; every other one belongs to the one handshake of the process. The same core as
over HTTP runs both. Where lines come from and go to is whoever calls `Conversation.run`'s; what the parts are and when it
is all over, app_stdio.py's. Spec: basic/transports/stdio (2026-07-28), basic/transports (2025-11-25 and before).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, contextmanager, nullcontext
from typing import Final

import msgspec
import trio

from auth.model import Principal
from server.caller import Line
from server.client.lines import Read, TooLong, Write, read_lines
from server.exchange import Exchange, Lent, Outcome
from server.mcp.errors import InvalidRequest, TooManySessions
from server.mcp.inbound import Rejection, Route, Taken, check_batch, classify_item, classify_line
from server.mcp.messages import Batch, Notification, RequestId, Response, decode
from server.mcp.params import CallToolParams, InitializeParams
from server.mcp.results import encode_error, encode_notification
from server.mcp.versions import LATEST
from server.sessions import Session, Sessions

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

_CANCELLED: Final = "notifications/cancelled"


class _Cancelled(msgspec.Struct, rename="camel"):
    request_id: RequestId


_decode_cancelled: Final = msgspec.json.Decoder(_Cancelled).decode


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


class _Running:
    """A request, from its line until it has an answer."""

    __slots__ = ("cancelled", "exchange", "scope")

    def __init__(self, exchange: Exchange) -> None:
        self.exchange: Final = exchange
        self.scope: Final = trio.CancelScope()
        self.cancelled = False  # by the client, who is then not answered

    def cancel(self) -> None:
        self.cancelled = True
        self.scope.cancel()


class _PlainLine:
    """Implements `Line`: all requests share the one pipe, which needs no signs of life and cannot be let go of."""

    def __init__(self, outbox: Outbox) -> None:
        self.send: Final = outbox.say

    async def ping(self) -> None:
        """A pipe does not break because nobody speaks."""

    async def release(self) -> None:
        """There is no other way by which the answer could be fetched."""


class Conversation:
    """`boot_id` makes the ids of calls different from those of every other process. `widened`: batches in every revision of
    the handshake era."""

    def __init__(
        self,
        lent: Lent,
        sessions: Sessions,
        principal: Principal,
        *,
        boot_id: str,
        max_line: int,
        drain_seconds: float,
        widened: bool = False,
    ) -> None:
        self._lent = lent
        self._sessions = sessions
        self._principal = principal
        self._boot_id = boot_id
        self._max_line = max_line
        self._drain_seconds = drain_seconds
        self._widened = widened
        self._outbox = Outbox()
        self._line: Line = _PlainLine(self._outbox)
        self._session: Session | None = None  # from an accepted `initialize` on
        self._running: dict[RequestId, _Running] = {}
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
                async with trio.open_nursery() as requests:
                    await self._read_in(read, requests, stopping)
                    self._end_what_waits()
                    working.deadline = trio.current_time() + self._drain_seconds
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
            running.exchange.end()
        if self._session is not None:
            self._sessions.end(self._session)

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
        if isinstance(verdict, Rejection):
            return await self._refuse(verdict)
        if isinstance(verdict, Taken):
            return self._hear(verdict.message)
        return await self._take_request(verdict, requests)

    def _hear(self, message: Notification | Response) -> None:
        if isinstance(message, Response):
            if self._session is not None:
                self._session.answer(message)
            return
        if message.method == _CANCELLED:
            self._cancel(message)
        if self._session is not None:
            self._session.note(message)

    def _cancel(self, notification: Notification) -> None:
        """What names no request that runs is ignored: it may have crossed the answer."""
        try:
            named = _decode_cancelled(notification.params).request_id
        except (msgspec.DecodeError, RecursionError):
            return
        if running := self._running.get(named):
            running.cancel()

    async def _take_request(self, route: Route, requests: trio.Nursery) -> None:
        if route.id in self._running:
            return await self._refuse(_in_use(route))
        if route.method.params is InitializeParams:
            return await self._initialize(route, requests)
        if self._returns_at_once(route):
            return await self._outbox.say((await self._exchange(route).run(self._line)).body)
        if not await self._makes_room():
            error = TooManySessions(f"{MAX_HELD} requests are held already: wait for one, or cancel it")
            return await self._refuse(Rejection(error, route.id, route.revision))
        requests.start_soon(self._listen if route.method.streams else self._answer, self._registered(route))
        return None

    async def _initialize(self, route: Route, requests: trio.Nursery) -> None:
        """Before the next line is read, since that one means something else then."""
        if self._session is not None or not isinstance(route.params, InitializeParams):
            error = InvalidRequest("initialize was answered already")
            return await self._refuse(Rejection(error, route.id, route.revision))
        session = self._sessions.create(self._principal, "", route.revision, route.params)
        outcome = await self._exchange(route).run(self._line)
        if outcome.error is None:
            self._session = session
            requests.start_soon(self._pass_on, session)
            self._lent.log.info("session.began", client=session.client, version=route.revision.version)
        else:
            self._sessions.end(session)
        return await self._outbox.say(outcome.body)

    async def _take_batch(self, batch: Batch, requests: trio.Nursery) -> None:
        revision = LATEST if self._session is None else self._session.revision
        checked = check_batch(batch, revision, widened=self._widened)
        if isinstance(checked, Rejection):
            return await self._refuse(checked)
        items: list[bytes | _Running] = []
        for item in batch.items:
            verdict = classify_item(item, revision)
            if isinstance(verdict, Taken):
                self._hear(verdict.message)
                continue
            if isinstance(verdict, Route) and verdict.id in self._running:
                verdict = _in_use(verdict)
            items.append(self._registered(verdict) if isinstance(verdict, Route) else _encoded(verdict))
        if await self._makes_room():
            requests.start_soon(self._answer_all, items)
            return None
        for running in items:
            if isinstance(running, _Running):
                del self._running[running.exchange.id]
        error = TooManySessions(f"{MAX_HELD} requests are held already: wait for one, or cancel it")
        return await self._refuse(Rejection(error, None, revision))

    # ── what is done ─────────────────────────────────────────────────────────────────────────────────────────────

    def _returns_at_once(self, route: Route) -> bool:
        if not route.method.waits:
            return True
        return isinstance(route.params, CallToolParams) and self._lent.calls.quick(route.params.name)

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

    async def _answer(self, running: _Running) -> None:
        with self._held():
            outcome = await self._outcome(running, self._places)
            if outcome is not None:
                await self._outbox.say(outcome.body)

    async def _answer_all(self, items: Sequence[bytes | _Running]) -> None:
        """One line with the answers in the order of the requests, which run side by side."""
        answers: list[bytes | None] = [None] * len(items)

        async def answer(place: int, running: _Running) -> None:
            outcome = await self._outcome(running, nullcontext())
            answers[place] = None if outcome is None else outcome.body

        with self._held():
            async with self._places, trio.open_nursery() as nursery:
                for place, item in enumerate(items):
                    if isinstance(item, bytes):
                        answers[place] = item
                    else:
                        nursery.start_soon(answer, place, item)
            given = [answer for answer in answers if answer is not None]
            if given:
                await self._outbox.say(b"[%s]" % b",".join(given))

    async def _listen(self, running: _Running) -> None:
        """A subscription that we end has its result, and then is cancelled: the spec asks for either in different places, and
        a client that knows one of them ignores the other (basic/patterns/subscriptions, basic/patterns/cancellation)."""
        with self._held():
            outcome = await self._outcome(running, nullcontext())
            if outcome is None:
                return
            await self._outbox.say(outcome.body)
            if outcome.error is None:
                await self._outbox.say(encode_notification(_CANCELLED, {"requestId": running.exchange.id}))

    async def _outcome(self, running: _Running, place: AbstractAsyncContextManager[object]) -> Outcome | None:
        """None: the client has cancelled it. Its id is free again before it is answered, because the client may use it as soon
        as it has read the answer."""
        outcome: Outcome | None = None
        try:
            with running.scope:
                async with place:
                    outcome = await running.exchange.run(self._line)
        finally:
            del self._running[running.exchange.id]
        return None if running.cancelled else outcome

    def _registered(self, route: Route) -> _Running:
        running = self._running[route.id] = _Running(self._exchange(route))
        return running

    def _exchange(self, route: Route) -> Exchange:
        self._begun += 1
        return Exchange(
            route,
            self._principal,
            self._lent,
            headers=None,
            call_id=f"{self._boot_id}-{self._begun:x}",
            still_allowed=_always,
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


async def _always() -> bool:
    """Who was given the pipes may use them."""
    return True
