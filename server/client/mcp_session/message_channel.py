"""One stream of messages that all requests to a server share: a child's pipes, a TCP connection, or the two halves of the HTTP
transport of 2024-11-05. Answers come in any order; the reader never waits for a caller.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import trio
from msgspec import Raw

from server.client.mcp_session.agreement import (
    Agreement,
    discover_params,
    initialize_params,
    modern_params,
    read_discovered,
    read_initialized,
)
from server.client.mcp_session.following import follow
from server.client.mcp_session.incoming_messages import cancelled_params, lower
from server.client.mcp_session.line_streams import MessageStream
from server.client.mcp_session.sent_requests import SentRequest
from server.client.mcp_session.session_link import HANDSHAKE_FIRST, Link, ReadResources, ServerNews
from server.client.mcp_session.session_messages import (
    Answered,
    Asked,
    NoMcpServer,
    ServerAway,
    ServerFailure,
    ServerGone,
    ServerRefusal,
    Told,
    answered_in,
    notification_message,
    outcome,
    read_message,
    request_message,
    too_large,
)
from server.client.mcp_session.session_request import SessionRequest
from server.lib.bare_nursery import bare_nursery
from server.lib.line_peer import CutLine
from server.lib.log.logger import Logger
from server.mcp.call_failures import BackendError
from server.mcp.call_outlet import LogLevel, NullOutlet, Outlet

if TYPE_CHECKING:
    from server.mcp.messages import Resource

# A server of the handshake era may not answer what it does not know: after this it is begun with by handshake as well.
SILENCE_SECONDS: Final = 3.0
FAREWELL_SECONDS: Final = 1.0
# Lines that are no messages: programs print, and one that prints without end is not listened to.
GARBAGE_LINES: Final = 10_000

_NOBODY: Final = NullOutlet("nobody can be asked for this")


class ChannelLink(Link):
    """The link over one stream, made by `open_channel`."""

    def __init__(
        self,
        stream: MessageStream,
        tells: ServerNews,
        *,
        questions: frozenset[str],
        in_session: frozenset[str] | None,
        name: str,
        log: Logger,
        of: frozenset[str] | None = None,
        able: frozenset[str] | None = None,
    ) -> None:
        """Keep the parts. `of`: what the client of the one caller says of itself whose connection it is; None: it is everybody's. `able`: what that client can be asked; None: not known."""
        super().__init__(tells, questions=questions, in_session=in_session, name=name, log=log)
        self.failure: BackendError | None = None
        self._stream = stream
        self._whose = of
        self._able = able
        self._level: LogLevel | None = None
        self._garbage = 0
        self._listening: SentRequest | None = None

    # ── from the first message to the last ──

    async def run(self) -> None:
        """Read until there is nothing to be read any more."""
        try:
            while True:
                for line in await self._stream.receive():
                    if type(line) is CutLine:
                        self._take_cut(line)
                    else:
                        self._take(line)
        except ServerFailure as error:
            self.failure = error
            self.reason, self.more = str(error), error.more
        except BackendError as error:  # of the caller's credential
            self.failure = error
            self.reason = f"cannot be used: {error}"
        finally:
            self._let_go()

    async def agree(self, era: str) -> None:
        """Settle the era. Raises `BackendError`, and `ServerRefusal`."""
        agreed = await self._greet_if_heard() if era == HANDSHAKE_FIRST else None
        if agreed is None and era != "handshake":
            agreed = await self._discover(impatient=era == "auto")
        if agreed is None and era == "stateless":
            raise NoMcpServer("does not speak the stateless era of MCP")
        agreed = agreed or await self._greet()
        self.agreement = agreed
        if agreed.modern:
            await self._listen_anew()
        else:
            await self._stream.send(notification_message("notifications/initialized", {}))

    async def _discover(self, *, impatient: bool) -> Agreement | None:
        """Return what was agreed on in the stateless era; None where there it answers nothing that is of use."""
        running = self._start(None)
        try:
            await self._stream.send(
                request_message(running.number, "server/discover", discover_params(self._questions))
            )
            with trio.move_on_after(SILENCE_SECONDS if impatient else float("inf")):
                return await self._discovered(running)
            return await self._discover_or_greet(running)
        finally:
            self._forget(running)

    async def _discovered(self, running: SentRequest) -> Agreement | None:
        try:
            return read_discovered(await follow(running, _NOBODY, self._reply))
        except ServerRefusal as refusal:
            return read_discovered(refusal)

    async def _greet(self) -> Agreement:
        """Begin by handshake, which the protocol does not let anybody cancel."""
        running = self._start(None)
        params = initialize_params(self._in_session, of=self._whose, able=self._able)
        try:
            if self.ended.is_set():
                raise self._gone(ServerAway)
            # Without `_meta` of the stateless era, in which this is no method: the Go SDK refuses it then.
            await self._stream.send(request_message(running.number, "initialize", params))
            return read_initialized(await follow(running, _NOBODY, self._reply))
        finally:
            self._forget(running)

    async def _greet_if_heard(self) -> Agreement | None:
        try:
            return await self._greet()
        except (ServerRefusal, NoMcpServer):
            return None

    async def _discover_or_greet(self, running: SentRequest) -> Agreement:
        """Return what is agreed on first. The question before stays open beside the handshake: a server that is slow to start answers it as
        well, and its silence says something only once it has answered anything."""
        agreed: list[Agreement] = []
        problems: list[BackendError | ServerRefusal] = []
        async with trio.open_nursery() as asking:

            async def take(asked: Callable[[], Awaitable[Agreement | None]]) -> None:
                try:
                    found = await asked()
                except (BackendError, ServerRefusal) as problem:
                    problems.append(problem)
                else:
                    if found is None:
                        return
                    agreed.append(found)
                asking.cancel_scope.deadline = trio.current_time() + (0 if agreed else SILENCE_SECONDS)

            asking.start_soon(take, partial(self._discovered, running))
            asking.start_soon(take, self._greet)
        if agreed:
            return agreed[0]
        raise problems[0].with_traceback(None)

    async def _listen_anew(self) -> None:
        """Ask to be told of changes. Another subscription takes the place of one that names other resources."""
        asked: dict[str, Any] = {
            f"{kind}ListChanged": True
            for kind in ("tools", "prompts", "resources")
            if self.agreement.has(kind, "listChanged")
        }
        if self._followed:
            asked["resourceSubscriptions"] = list(self._followed)
        if not asked:
            return
        before, self._listening = self._listening, self._start(None)
        params = modern_params({"notifications": asked}, None, questions=frozenset(), tasks=False, token=None)
        await self._stream.send(request_message(self._listening.number, "subscriptions/listen", params))
        if before is not None:
            await self.give_up(before)

    async def end(self) -> None:
        """Do nothing: the stream is the session, and is closed by whoever opened it."""

    # ── requests ──

    @property
    def busy(self) -> bool:
        return len(self._running) > (self._listening is not None)

    async def _answer(self, running: SentRequest, outlet: Outlet | None) -> Raw:
        await self._begin(running)
        return await follow(running, outlet or _NOBODY, self._reply)

    async def give_up(self, running: SentRequest) -> None:
        if running.outcome is not None or running.number not in self._running:
            return
        self._forget(running)
        message = notification_message("notifications/cancelled", cancelled_params(running.number))
        if not self._stream.send_nowait(message):
            with trio.move_on_after(FAREWELL_SECONDS, shield=True):
                await self._stream.send(message)

    async def own_resources(self, asked: SessionRequest, read: ReadResources) -> Sequence[Resource]:
        return await read(self, asked)

    async def _begin(self, running: SentRequest) -> None:
        sent = False
        try:
            if self.ended.is_set():
                raise self._gone(ServerAway)
            await self._set_level(running.call)
            message = self._message_of(running)
            if not self._stream.send_nowait(message):
                await self._stream.send(message)
            sent = True
        finally:
            if not sent:
                self._forget(running)

    async def _set_level(self, call: SessionRequest | None) -> None:
        """Lower the level of the session, which is the lowest that any caller wants. Each is told from its own on."""
        wanted = None if call is None else call.log_level
        if wanted is None or self.agreement.modern or not self.agreement.has("logging"):
            return
        if lower(wanted, self._level):
            self._level = wanted
            try:
                await self.request("logging/setLevel", {"level": wanted})
            except ServerRefusal:
                return  # it says what it says

    def _forget(self, running: SentRequest) -> None:
        if self._running.pop(running.number, None) is not None:
            self._hearing.ended(running)

    async def _reply(self, running: SentRequest, message: bytes) -> None:
        await self._stream.send(message)

    # ── what it says ──

    def _take(self, line: bytes) -> None:
        message = read_message(line)
        match message:
            case Answered(number):
                running = self._running.get(number) if type(number) is int else None
                if running is not None:  # None: it was given up, or there never was such a request
                    self._forget(running)
                    running.end(outcome(message))
            case Told():
                self._hearing.told(message, len(line), None, shared=True)
            case Asked():
                answer = self._hearing.asked(message, None, followed=True, shared=True)
                if answer is not None:
                    self._stream.send_nowait(answer)  # one that does not listen is not waited for
            case _:
                self._take_garbage()

    def _take_cut(self, line: CutLine) -> None:
        """Fail the request whose answer is too long, and no other."""
        running = self._running.get(number) if (number := answered_in(line)) is not None else None
        if running is None:
            self._take_garbage()
            return
        self._forget(running)
        running.end(too_large(self._stream.most))

    def _take_garbage(self) -> None:
        self._garbage += 1
        if self._garbage == 1:
            self._log.warning("upstream.garbage", agent=self._name)
        if self._garbage > GARBAGE_LINES:
            raise ServerGone("says what is no message of the protocol")

    def _let_go(self) -> None:
        self.ended.set()
        for running in list(self._running.values()):
            self._forget(running)
            running.end(self._gone())

    def _gone(self, kind: type[ServerGone] = ServerGone) -> BackendError:
        """Say why there is no answer: a caller who has to log in reads where."""
        failure = self.failure
        if failure is None or isinstance(failure, ServerFailure):
            return kind(self.reason, more=self.more)
        return failure.with_traceback(None)


@asynccontextmanager
async def open_channel(
    stream: MessageStream,
    tells: ServerNews,
    *,
    era: str,
    seconds: float,
    questions: frozenset[str],
    name: str,
    log: Logger,
    in_session: frozenset[str] | None = None,
    of: frozenset[str] | None = None,
    able: frozenset[str] | None = None,
) -> AsyncGenerator[ChannelLink]:
    """Give a link that is agreed on. `of`, `able`: as for `ChannelLink`. Raises `BackendError` where that takes too long, or comes to nothing."""
    link = ChannelLink(
        stream,
        tells,
        questions=questions,
        in_session=in_session,
        name=name,
        log=log,
        of=of,
        able=able,
    )
    try:
        async with bare_nursery() as nursery:
            nursery.start_soon(stream.run)
            nursery.start_soon(link.run)
            try:
                with trio.fail_after(seconds):
                    await link.agree(era)
            except trio.TooSlowError:
                raise ServerGone(f"did not answer within {seconds:g} s") from None
            except ServerRefusal as refusal:
                raise NoMcpServer(f"refused to begin: {refusal}") from None
            except BackendError as error:
                raise link.failure or error from None
            yield link
    finally:
        await stream.aclose()
