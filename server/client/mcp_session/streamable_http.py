"""A server over Streamable HTTP: each request is an exchange of its own, answered with JSON or a stream of events.

In the stateless era leaving is cancelling, and what changes is heard on a subscription. In the handshake era there is a session,
which is begun anew where the server has lost it; cancelling is said, and what changes comes on a GET. Spec:
basic/transports/streamable-http (2026-07-28), basic/transports (2025-11-25).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import trio
from msgspec import Raw

from server.client.mcp_session.agreement import (
    Agreement,
    discover_params,
    initialize_params,
    read_discovered,
    read_initialized,
)
from server.client.mcp_session.http_answers import Take, answer_of
from server.client.mcp_session.http_changes import HttpChanges
from server.client.mcp_session.http_sessions import (
    FAREWELL_SECONDS,
    HttpSession,
    HttpSessions,
    say_in,
    shake_hands,
)
from server.client.mcp_session.http_wire import HttpWire, NotReached, lines_of
from server.client.mcp_session.incoming_messages import IncomingMessages, cancelled_params, lower
from server.client.mcp_session.sent_requests import SentRequest
from server.client.mcp_session.session_link import UNHEARD, Link, ReadResources, ServerNews
from server.client.mcp_session.session_messages import (
    INVALID_PARAMS,
    Answered,
    Asked,
    NoMcpServer,
    ServerGone,
    ServerRefusal,
    Told,
    notification_message,
    outcome,
    read_message,
    refusal_message,
    request_message,
)
from server.client.mcp_session.session_news import SessionNews
from server.client.mcp_session.session_request import SessionRequest
from server.lib.log.logger import Logger
from server.mcp.call_failures import BackendError
from server.mcp.call_outlet import LogLevel, Outlet
from server.mcp.request_headers import header_value
from server.mcp.versions import LATEST

if TYPE_CHECKING:
    from server.mcp.messages import Resource

NAME_HEADER: Final = "Mcp-Name"
HEADS_KEPT: Final = 512
# An answer to `initialize` from a server that has answered in the stateless era already.
SESSIONS_SECONDS: Final = 5.0
INITIALIZED: Final = notification_message("notifications/initialized", {})


class HttpLink(Link):
    """The link over Streamable HTTP: `agree`, then `run` for as long as it is used."""

    def __init__(
        self,
        wire: HttpWire,
        tells: ServerNews,
        nursery: trio.Nursery | None,
        *,
        questions: frozenset[str],
        name: str,
        log: Logger,
        engaged: Container[str] = (),
        theirs: Callable[[str], ServerNews] = lambda _: UNHEARD,
        in_session: frozenset[str] | None = None,
        beside: HttpLink | None = None,
    ) -> None:
        """Keep the parts. In `nursery` run requests that are begun (`begin`); None where none are. `questions` and `in_session`: as for `Link`.
        `engaged`: as for `HttpSessions`. `theirs`: who hears what is said in the session of one caller, who is named as `apart`. `beside`: the link to the same server that this one ends with."""
        super().__init__(tells, questions=questions, in_session=in_session, name=name, log=log)
        self._wire = wire
        self._nursery = nursery
        self._engaged = engaged
        self._theirs = theirs
        self._main: Link = beside or self
        self.ended = self._main.ended
        self._sessions_settled = beside is not None
        self._scopes: dict[int, trio.CancelScope] = {}
        self._news = SessionNews(
            wire,
            nursery,
            hearing=self._hearing_in,
            running=self._running,
            followed=self._scopes,
            sessions=lambda: self._sessions,
        )
        self._sessions = HttpSessions(
            wire, self._greet, engaged=engaged, attend=self._news.attend, over=self._over
        )
        self._changes = HttpChanges(
            wire,
            tells,
            take=lambda number: self._taker(number, None),
            number=lambda: next(self._numbers),
            name=name,
            log=log,
        )

    # ── from the first request to the last ──

    async def agree(self, era: str) -> None:
        """Settle the era. Raises `BackendError`, `NoMcpServer` where there is nothing that answers a POST."""
        agreed = None if era == "handshake" else await self._discover()
        if agreed is not None:
            self.agreement = agreed
            self._sessions.own.agreed(LATEST.version)
            return
        if era == "stateless":
            raise NoMcpServer("does not speak the stateless era of MCP")
        self.agreement = await self._sessions.begin(self._greet)

    async def agree_on_sessions(self) -> None:
        if self._sessions_settled or not self.agreement.modern:
            return
        found = HttpLink(
            self._wire,
            self._tells,
            self._nursery,
            questions=self._questions,
            name=self._name,
            log=self._log,
            engaged=self._engaged,
            theirs=self._theirs,
            in_session=self._in_session,
            beside=self,
        )
        with trio.move_on_after(SESSIONS_SECONDS):
            try:
                await found.agree("handshake")
            except NoMcpServer:
                self._sessions_settled = True
                return
            except BackendError:  # perhaps it answers the next time
                return
            self._sessions_settled = True
            # One that keeps nothing between two requests cannot ask in between either: the stateless era does more there.
            if found.has_sessions:
                self.in_sessions = found

    @property
    def has_sessions(self) -> bool:
        """True if the server hands out session ids."""
        return self._sessions.own.id is not None

    async def run(self) -> None:
        """Listen for what changes; end when there is nothing to listen to."""
        await self._changes.run(self.agreement, lambda: self._sessions.own, self._renew_own, self._followed)

    async def end(self) -> None:
        """End the sessions. A caller that waits for the next connection is told by `ended`."""
        self.ended.set()
        await self._sessions.end()
        if self.in_sessions is not None:
            await self.in_sessions.end()

    def part(self, apart: str) -> None:
        """End the session of a caller whose client has ended its own."""
        if self._nursery is not None:
            self._nursery.start_soon(self._sessions.part, apart)
        if isinstance(self.in_sessions, HttpLink):
            self.in_sessions.part(apart)

    async def _renew_own(self, lost: HttpSession) -> None:
        if await self._sessions.renew(lost, None):
            self._renewed()

    def _renewed(self) -> None:
        """Ask of our own session, which is another now, whatever was asked of the one before."""
        self._tells.lists()
        if self._followed and self._nursery is not None:
            followed = list(self._followed)
            self._followed.clear()
            self._nursery.start_soon(self._follow_again, followed, None)

    async def _greet(self, session: HttpSession) -> Agreement:
        """Begin a session of the handshake era."""
        number = next(self._numbers)
        whose = session.call
        of, able = (None, None) if whose is None else (whose.can, whose.session_can)
        message = request_message(number, "initialize", initialize_params(self._in_session, of=of, able=able))
        try:
            result = await shake_hands(self._wire, session, message, self._taker(number, None))
        except ServerRefusal as refusal:
            raise NoMcpServer(f"refused to begin: {refusal}") from None
        agreed = read_initialized(result)
        session.agreed(agreed.version)
        await say_in(self._wire, session, INITIALIZED, session.call)
        return agreed

    async def _discover(self) -> Agreement | None:
        number = next(self._numbers)
        message = request_message(number, "server/discover", discover_params(self._questions))
        headers = lines_of({"MCP-Protocol-Version": LATEST.version, "Mcp-Method": "server/discover"})
        async with self._wire.post(message, headers, None) as answer:
            if answer.status in (403, 429) or answer.status >= 500:
                raise self._wire.problem(answer)
            try:
                return read_discovered(await answer_of(answer, self._wire, self._taker(number, None)))
            except ServerRefusal as refusal:
                return read_discovered(refusal, not_found=answer.status == 404)
            except BackendError as error:
                if answer.status < 300 and not isinstance(error, NoMcpServer):
                    raise
                return None  # the handshake will tell

    # ── requests ──

    async def _begin(self, running: SentRequest) -> None:
        scope = self._scopes[running.number] = trio.CancelScope()

        async def carry_out() -> None:
            with scope:
                try:
                    running.end(await self._answer(running, None))
                except (BackendError, ServerRefusal) as error:
                    running.end(error)
                finally:
                    del self._scopes[running.number]
                    self._running.pop(running.number, None)
                    running.end(ServerGone("is being stopped"))
                    if running.open and self._nursery is not None:
                        self._nursery.start_soon(self._refuse_open, running)

        assert self._nursery is not None
        self._nursery.start_soon(carry_out)

    async def give_up(self, running: SentRequest) -> None:
        scope = self._scopes.get(running.number)
        self._running.pop(running.number, None)
        if scope is not None and running.outcome is None:
            scope.cancel()
            await self._say_cancelled(running)

    async def _refuse_open(self, running: SentRequest) -> None:
        """Answer what was asked in the course of a request that is over: whoever asked on the stream of the session may wait for it still."""
        asked, running.open = running.open, {}
        for each in asked:
            message = refusal_message(
                each, INVALID_PARAMS, "the request in whose course this was asked is over"
            )
            with suppress(BackendError):
                await self._reply(running, message)

    async def follow_resource(self, uri: str, asked: SessionRequest | None = None) -> None:
        session = None if asked is None or self.agreement.modern else await self._sessions.of(asked)
        if asked is None or session is None or session.call is None:
            await super().follow_resource(uri)
            return
        await self._news.attend(session, asked, wanted=True)
        await self._follow_among(session.followed, uri, asked.quiet())

    def _over(self, session: HttpSession, call: SessionRequest | None) -> None:
        self._news.end(session)
        if call is not None and session.followed and self._nursery is not None:
            self._nursery.start_soon(self._follow_again, list(session.followed), call.quiet())

    async def _follow_again(self, uris: Sequence[str], call: SessionRequest | None) -> None:
        for uri in uris:
            if self.ended.is_set():
                return
            with suppress(BackendError, ServerRefusal):  # it is read all the same
                await self.follow_resource(uri, call)

    def _hearing_in(self, session: HttpSession) -> IncomingMessages:
        """Return what hears a caller's session: of a list that changes there, theirs is read anew as well."""
        theirs = self._theirs(session.apart)

        def lists() -> None:
            session.resources = None
            theirs.lists()

        tells = ServerNews(lists=lists, resource=theirs.resource)
        return IncomingMessages(
            self._running, tells, questions=self._in_session, name=self._name, log=self._log
        )

    async def _listen_anew(self) -> None:
        self._changes.ask_anew()

    async def own_resources(self, asked: SessionRequest, read: ReadResources) -> Sequence[Resource]:
        """List what there is in the caller's session. A list is good until the caller makes another request."""
        session = None if self.agreement.modern else self._sessions.known(asked)
        if session is None:
            return ()
        if session.resources is None or session.resources[0] != session.begun:
            found = await read(self, asked)
            session.resources = (session.begun, found)
        return session.resources[1]

    async def _answer(self, running: SentRequest, outlet: Outlet | None) -> Raw:
        number, call, headers = running.number, running.call, running.headers
        modern = self.agreement.modern
        if not modern and call is not None:
            if outlet is not None and call.can:
                # It may ask on its stream, and its caller may not wait there.
                await self._begin(running)
                return await self.follow(running, outlet)
            if call.log_level is not None:
                await self._set_level(call, call.log_level)
        message = self._message_of(running)
        # In the handshake era no header names the request; a payment goes along in either.
        lines = head_of(running.method, headers) if modern else lines_of(headers) if headers else b""
        take = partial(self._take, number, running, outlet)
        try:
            if modern:
                read = partial(answer_of, wire=self._wire, take=take)
                return await self._wire.ask(message, self._sessions.own.head + lines, call, read)
            return await self._sessions.ask(message, lines, call, take, renewed=self._renewed)
        except trio.Cancelled:
            if number not in self._scopes:
                await self._say_cancelled(running)
            raise
        except NotReached as error:
            if not error.busy:
                self._main.reason = str(error)
                self.ended.set()
            raise
        except ServerRefusal as refusal:
            if running.refused is not None:
                raise running.refused from None
            raise refusal from None

    def _taker(self, number: int, running: SentRequest | None, outlet: Outlet | None = None) -> Take[Raw]:
        return partial(self._take, number, running, outlet)

    async def _take(
        self, number: int, running: SentRequest | None, outlet: Outlet | None, data: bytes
    ) -> Raw | None:
        """Return the result, if the message is the answer. Raises the refusal if it is that."""
        message = read_message(data)
        match message:
            case Answered(given):
                if given != number and not (given is None and message.error is not None):
                    return None
                found = outcome(message)
                if isinstance(found, ServerRefusal):
                    raise found
                return found
            case Told():
                tells = None
                if running is not None and running.call is not None and self.has_sessions:
                    tells = self._theirs(running.call.apart)
                self._hearing.told(message, len(data), running, shared=False, tells=tells)
                if running is not None and outlet is not None:
                    for event in running.taken():
                        await outlet.emit(event)
            case Asked():
                followed = running is not None and running.number in self._scopes
                answer = self._hearing.asked(message, running, followed=followed, shared=False)
                if answer is not None:
                    await self._sessions.say(answer, None if running is None else running.call)
            case _:
                pass
        return None

    async def _set_level(self, call: SessionRequest, wanted: LogLevel) -> None:
        session = await self._sessions.of(call)
        if not self.agreement.has("logging"):
            return
        if session.unheard and call.later() is not None:
            await self._news.attend(session, call, wanted=True)
        if not lower(wanted, session.level):
            return
        session.level = wanted
        try:
            await self.request("logging/setLevel", {"level": wanted}, call=call.quiet())
        except ServerRefusal:
            return

    async def _reply(self, running: SentRequest, message: bytes) -> None:
        await self._sessions.say(message, running.call)

    async def _say_cancelled(self, running: SentRequest) -> None:
        """Say that a request is cancelled. In the stateless era leaving has said it."""
        if self.agreement.modern:
            return
        message = notification_message("notifications/cancelled", cancelled_params(running.number))
        with trio.move_on_after(FAREWELL_SECONDS, shield=True):
            try:
                session = self._sessions.own if running.call is None else self._sessions.known(running.call)
                await say_in(self._wire, session or self._sessions.own, message, running.call)
            except BackendError:
                return


def head_of(method: str, headers: Mapping[str, str]) -> bytes:
    """Return the lines that say what a request of the stateless era is about. Its name is the same for many; arguments that are
    repeated in headers are not."""
    if len(headers) == (NAME_HEADER in headers):
        return _named_head(method, headers.get(NAME_HEADER))
    return lines_of({"Mcp-Method": method, **headers})


@lru_cache(maxsize=HEADS_KEPT)
def _named_head(method: str, name: str | None) -> bytes:
    return lines_of({"Mcp-Method": method} | ({} if name is None else {NAME_HEADER: name}))


@lru_cache(maxsize=HEADS_KEPT)
def name_header(name: str) -> Mapping[str, str]:
    """Return the header that names what a request of the stateless era is about."""
    return MappingProxyType({NAME_HEADER: header_value(name)})
