"""The connection with one server, whatever the wire: what it can be asked to do, and who is told what it says unasked."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import trio
from msgspec import Raw

from server.client.mcp_session.agreement import Agreement, handshake_params, modern_params
from server.client.mcp_session.following import follow
from server.client.mcp_session.handshake_questions import abilities_for
from server.client.mcp_session.incoming_messages import UNHEARD, IncomingMessages, ServerNews
from server.client.mcp_session.sent_requests import SentRequest
from server.client.mcp_session.session_messages import MESSAGE_BYTES, NOTHING, request_message
from server.client.mcp_session.session_request import SessionRequest
from server.lib.log.logger import Logger
from server.mcp.call_failures import BackendError
from server.mcp.call_outlet import Outlet

if TYPE_CHECKING:
    from server.mcp.messages import Resource

__all__ = ["HANDSHAKE_FIRST", "NO_HEADERS", "UNHEARD", "Link", "ReadResources", "ServerNews"]

# An era to agree on: the handshake era, or the other one where that is not spoken.
HANDSHAKE_FIRST: Final = "handshake-first"
RESOURCES_FOLLOWED: Final = 256
NO_HEADERS: Final[Mapping[str, str]] = NOTHING


class Link(ABC):
    """The connection, and what is agreed on, until it has `ended`. Requests raise `ServerRefusal` for an error that the server answers
    with, `BackendError` where no answer came, and whatever comes out of the outlet."""

    def __init__(
        self,
        tells: ServerNews,
        *,
        questions: frozenset[str],
        in_session: frozenset[str] | None,
        name: str,
        log: Logger,
    ) -> None:
        """Keep the parts. `questions`: the kinds that may be asked, and the names of extensions that go through; `in_session`: what somebody can
        do in the handshake era, in the words of `ABILITIES` and of extensions; None: all."""
        self.agreement = Agreement(version="", modern=True, capabilities={})
        self.ended: trio.Event = trio.Event()  # there will be no more answers
        # The same connection in the handshake era, where this one is of the stateless era and its server keeps sessions besides.
        self.in_sessions: Link | None = None
        self.reason = "is being stopped"  # continues a sentence about the server
        self.more = ""  # for its owner
        self._tells = tells
        self._questions = questions
        self._in_session: Final = abilities_for(questions) if in_session is None else in_session
        self._name = name
        self._log = log
        self._numbers = itertools.count(1)
        self._running: dict[int, SentRequest] = {}
        self._hearing = IncomingMessages(self._running, tells, questions=self._in_session, name=name, log=log)
        self._followed: dict[str, None] = {}

    @property
    def busy(self) -> bool:
        """True if any request is under way."""
        return bool(self._running)

    @property
    def revisions(self) -> str:
        """The revisions of MCP that are agreed on, as they are shown."""
        versions = [self.agreement.version]
        if self.in_sessions is not None:
            versions.append(self.in_sessions.agreement.version)
        return ", ".join(versions)

    @property
    def follows(self) -> bool:
        """True if somebody is to be told of a change."""
        return bool(self._followed)

    @abstractmethod
    async def agree(self, era: str) -> None:
        """Settle the era. Raises `BackendError`, and `ServerRefusal`."""

    async def agree_on_sessions(self) -> None:
        """Settle the handshake era besides, where the server keeps sessions in it. Once that is done, there is nothing to do."""
        return

    @abstractmethod
    async def end(self) -> None:
        """End what was begun there, without making anybody wait for it."""

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        call: SessionRequest | None = None,
        outlet: Outlet | None = None,
        headers: Mapping[str, str] = NO_HEADERS,
        tasks: bool = False,
    ) -> Raw:
        """Make one request and return its answer. For a caller that can be asked, `begin` and `follow` are the two steps of it. `headers`
        go along over HTTP; `tasks`: the answer may be a task."""
        running = self._start(call, method, params, headers, tasks)
        try:
            return await self._answer(running, outlet)
        finally:
            await self.give_up(running)

    async def begin(
        self,
        method: str,
        params: Mapping[str, Any],
        call: SessionRequest,
        *,
        headers: Mapping[str, str] = NO_HEADERS,
        tasks: bool = False,
    ) -> SentRequest:
        """Begin a request that goes on while nobody follows it, until it is given up."""
        running = self._start(call, method, params, headers, tasks)
        await self._begin(running)
        return running

    async def follow(self, running: SentRequest, outlet: Outlet) -> Raw:
        return await follow(running, outlet, self._reply)

    @abstractmethod
    async def give_up(self, running: SentRequest) -> None:
        """Give up a request whose answer nobody wants. This takes a second at most, and cannot be cancelled."""

    @abstractmethod
    async def own_resources(self, asked: SessionRequest, read: ReadResources) -> Sequence[Resource]:
        """List what there is for this caller, where something may be there for nobody else. Raises what `read` raises."""

    async def follow_resource(self, uri: str, asked: SessionRequest | None = None) -> None:
        """Ask to be told when a resource changes. `asked`: who wants that, where it is one caller."""
        await self._follow_among(self._followed, uri, None)

    async def _follow_among(self, followed: dict[str, None], uri: str, call: SessionRequest | None) -> None:
        if uri in followed:
            return
        while len(followed) >= RESOURCES_FOLLOWED:
            oldest = next(iter(followed))
            del followed[oldest]
            if not self.agreement.modern:
                await self.request("resources/unsubscribe", {"uri": oldest}, call=call)
        followed[uri] = None
        if self.agreement.modern:
            await self._listen_anew()
        elif self.agreement.has("resources", "subscribe"):
            await self.request("resources/subscribe", {"uri": uri}, call=call)

    @abstractmethod
    async def _answer(self, running: SentRequest, outlet: Outlet | None) -> Raw:
        """Send a request, and return its answer."""

    @abstractmethod
    async def _begin(self, running: SentRequest) -> None:
        """Send a request whose answer is followed, or have it sent."""

    @abstractmethod
    async def _reply(self, running: SentRequest, message: bytes) -> None:
        """Answer a question that belongs to this request."""

    @abstractmethod
    async def _listen_anew(self) -> None:
        """Ask in the stateless era to be told of all that is followed now."""

    def _start(
        self,
        call: SessionRequest | None,
        method: str = "",
        params: Mapping[str, Any] = NOTHING,
        headers: Mapping[str, str] = NO_HEADERS,
        tasks: bool = False,
    ) -> SentRequest:
        running = SentRequest(next(self._numbers), call, method, params, headers, tasks)
        self._running[running.number] = running
        return running

    def _message_of(self, running: SentRequest) -> bytes:
        """Write a request in the way of the era. Raises `BackendError` for one that is too large."""
        number, call = running.number, running.call
        token = number if call is not None and call.wants_progress else None
        if self.agreement.modern:
            told: Mapping[str, Any] = modern_params(
                running.params, call, questions=self._questions, tasks=running.tasks, token=token
            )
        else:
            told = handshake_params(running.params, token)
        try:
            message = request_message(number, running.method, told)
        except RecursionError:
            raise BackendError("this is nested more deeply than can be passed on") from None
        if len(message) > MESSAGE_BYTES:
            raise BackendError("this is more than can be passed on at once")
        return message


# Reads the resources that are there for whoever makes this request.
ReadResources: TypeAlias = Callable[[Link, SessionRequest], Awaitable[Sequence["Resource"]]]
