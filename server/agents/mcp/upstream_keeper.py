"""The keeper of one upstream: connects, reads what it offers, reads that again when it has changed, and connects again when it is gone.

An upstream that is down is no reason not to start: what it offers appears when it comes. An offer stays in the lists when
the upstream goes, and whoever calls it meanwhile is told so.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import trio

from server.agents.base.backend import AgentRequest, Trouble
from server.agents.base.child_environment import ChildEnvironment
from server.agents.base.child_process import start_child
from server.agents.mcp.given_addresses import Withheld
from server.agents.mcp.mcp_settings import McpConfig
from server.agents.mcp.offer_guard import OfferGuard, UpstreamLists
from server.agents.mcp.offer_lists import read_lists
from server.agents.mcp.offered_names import NO_NAMED_LISTS, NamedLists, chosen
from server.agents.mcp.offered_pages import has_pages, read_pages, undecided, with_named_pages
from server.agents.mcp.suspended_requests import SuspendedRequests
from server.client.mcp_session.caller_links import CallerLinks, either, nothing, nothing_of
from server.client.mcp_session.credential_wire import CredentialWire, HttpServerPlace
from server.client.mcp_session.http_opening import agreed_over_http
from server.client.mcp_session.http_sse_2024 import SseStream
from server.client.mcp_session.line_streams import LineStream, dial
from server.client.mcp_session.message_channel import open_channel
from server.client.mcp_session.session_link import HANDSHAKE_FIRST, Link, ServerNews
from server.client.mcp_session.session_messages import (
    NoMcpServer,
    ServerAway,
    ServerFailure,
    ServerGone,
    ServerRefusal,
)
from server.client.mcp_session.session_request import Credential, SessionRequest
from server.client.mcp_session.streamable_http import HttpLink
from server.lib.log.logger import Logger
from server.lib.shortened import short_name
from server.mcp.call_failures import BackendError
from server.mcp.carried_extensions import carried

if TYPE_CHECKING:
    from server.agents.mcp.remote_suspended import RemoteSuspended

FIRST_DELAY_SECONDS: Final = 0.5
# After so many connections in vain it is taken that the server does not speak the handshake era first.
UNGREETED: Final = 2
LONGEST_DELAY_SECONDS: Final = 30.0
HEALTHY_SECONDS: Final = 60.0
# Somebody who calls makes it try at once, but not more often than this.
AT_LEAST_SECONDS: Final = 0.5
PATIENCE_SECONDS: Final = 5.0
# An upstream that changes its lists all the time is read this often.
RELIST_SECONDS: Final = 1.0
# One that does not say when they change.
RELIST_UNTOLD_SECONDS: Final = 300.0
LISTS: Final = ("tools", "prompts", "resources")
# Nor is it read more often for the sake of those who call what is not in its lists.
RELIST_MISSED_SECONDS: Final = 10.0
RESOURCES_FOLLOWED: Final = 256
TROUBLE_CHARACTERS: Final = 1000


class Upstream:
    """`run` is for one task, `link` for any."""

    def __init__(
        self,
        config: McpConfig,
        *,
        credential: Credential,
        guard: OfferGuard,
        environment: Mapping[str, str],
        name: str,
        log: Logger,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        parked: RemoteSuspended | None = None,
    ) -> None:
        """Keep the parts. Raises `ValueError` for settings that turn out not to work."""
        if config.working_dir and not Path(config.working_dir).expanduser().is_dir():
            raise ValueError(f"there is no directory {config.working_dir}")
        self.lists = NO_NAMED_LISTS
        self.parking: Final = SuspendedRequests(elsewhere=parked)
        self.followed: dict[str, None] = {}  # resources that somebody listens for
        self._config = config
        self._credential = credential
        self._guard = guard
        self._environment = environment
        self._name = name
        self._log = log
        self._clock = clock
        self._most = config.message_kib * 1024
        self._where = HttpServerPlace(
            url=config.url, connections=config.max_connections, ca_file=config.ca_file, most=self._most
        )
        self._link: Link | None = None
        self._callers_trouble: Trouble | None = None  # the last of theirs could not be begun
        self._trouble: Trouble | None = Trouble("is not connected yet", clock(), kind="begins")
        self._told = ""  # what callers are told meanwhile
        self._arrived = trio.Event()
        self._tried = trio.Event()  # for the first time
        self._wanted = trio.Event()
        self._relist = trio.Event()
        self._read_at = float("-inf")
        self._era: str = config.era
        self._ungreeted = (
            0  # connections of callers of the handshake era that began with it in vain, one after the other
        )
        self._passed = frozenset[str](config.questions) | frozenset(config.extensions)
        self.extensions: Mapping[str, Mapping[str, Any]] = {}  # those that it has, as it was last there
        # The connections of one caller each; None where one serves all: callers have sessions of their own in it, or share what it keeps.
        self.callers: CallerLinks | None = None
        self._callers: CallerLinks | None = None
        self._engaged: dict[str, int] = {}  # callers with tasks there, and how many
        self._offered: UpstreamLists | None = None  # as it was last said
        self.withheld = Withheld(UpstreamLists(), UpstreamLists())
        self._changed: Callable[[], None] = nothing
        self._updated: Callable[[str, str], None] = nothing_of
        guard.watch(self._judge_again)
        if config.url:
            CredentialWire(
                self._where, credential, log, name
            )  # so that a bad address or CA file is known now

    async def run(
        self,
        changed: Callable[[], None],
        updated: Callable[[str, str], None],
        *,
        task_status: trio.TaskStatus[None],
    ) -> None:
        """Keep the connection. `updated` is told of a resource that changed, and for which caller alone (`apart`), if it is one's."""
        self._changed, self._updated = changed, updated
        async with trio.open_nursery() as nursery:
            self._callers = CallerLinks(
                partial(self._open, nursery),
                nursery,
                news=self._news,
                most=self._config.callers_at_once,
                name=self._name,
                log=self._log,
                there=self.link,
                begun=self._callers_began,
                engaged=self._engaged,
                shown=bool(self._config.url),
            )
            self._keep_apart(self._config.share == "caller" and not self._config.url)
            nursery.start_soon(self.parking.run)
            nursery.start_soon(self._keep, nursery)
            if self._config.connect == "start":
                with trio.move_on_after(self._config.start_seconds):
                    await self._tried.wait()
            task_status.started()

    @property
    def left_out(self) -> Sequence[str]:
        return () if self._offered is None else self._offered.left_out

    @property
    def trouble(self) -> Trouble | None:
        return self._trouble or self._callers_trouble

    def link_nowait(self) -> Link | None:
        link = self._link
        return None if link is None or link.ended.is_set() else link

    async def link(self) -> Link:
        """Return the connection. Raises `ServerFailure` where there is none, and none to be had soon."""
        with trio.move_on_after(PATIENCE_SECONDS):
            while (link := self.link_nowait()) is None:
                self._wanted.set()
                await self._arrived.wait()
            return link
        raise ServerAway(self._told or "cannot be reached")

    def own_link(self, call: AgentRequest) -> Link | None:
        """Return the connection on which something of this caller's alone may be; None where what there is, is everybody's."""
        return self._session_link(call) if self.callers is None else self.callers.known(call)

    def is_apart(self, call: AgentRequest) -> bool:
        """Return whether this caller has a connection of its own, or a session on ours."""
        return self.callers is not None or self._session_link(call) is not None

    async def link_of(self, call: AgentRequest) -> Link:
        """Return the connection on which the caller's own requests go. Raises `BackendError`."""
        if self.callers is not None:
            return await self.callers.of(call)
        return self._session_link(call) or await self.link()

    def _session_link(self, call: AgentRequest) -> HttpLink | None:
        link = self.link_nowait()
        if link is not None and link.in_sessions is not None and call.handshake:
            link = link.in_sessions
        return link if isinstance(link, HttpLink) and link.has_sessions else None

    def _keep_apart(self, apart: bool) -> None:
        self.callers = self._callers if apart else None

    def _callers_began(self, problem: BackendError | None) -> None:
        """Take note of whether a caller's connection could be begun; what is the caller's own doing says nothing of the server."""
        if problem is None:
            self._callers_trouble = None
        elif isinstance(problem, ServerFailure) and self._trouble is None and not self._config.url:
            words = f"serves no caller: {problem}{problem.more}"[:TROUBLE_CHARACTERS]
            known = self._callers_trouble
            since = self._clock() if known is None else known.since
            self._callers_trouble = Trouble(words=words, since=since)

    def part(self, apart: str) -> None:
        """Let go of what there is for a session of a caller's client, which has ended."""
        if self.callers is not None:
            self.callers.part(apart)
        elif isinstance(link := self.link_nowait(), HttpLink):
            link.part(apart)

    @contextmanager
    def engaging(self, call: AgentRequest) -> Generator[None]:
        """Keep the caller's place there, also while no request of theirs is under way."""
        key = call.apart
        self._engaged[key] = self._engaged.get(key, 0) + 1
        try:
            yield
        finally:
            self._engaged[key] -= 1
            if not self._engaged[key]:
                del self._engaged[key]

    def remember_followed(self, uri: str) -> None:
        while len(self.followed) >= RESOURCES_FOLLOWED:
            del self.followed[next(iter(self.followed))]
        self.followed[uri] = None

    def try_again(self) -> None:
        """Connect and read again: something has changed since the last try, as when somebody logged in."""
        self._wanted.set()
        self._relist.set()

    def read_again(self) -> None:
        """Read the lists again, which are not what it does."""
        self._relist.set()

    def missed(self) -> None:
        """Read the lists again where the server would not say that they have changed: somebody calls what is not in them."""
        link = self.link_nowait()
        told = link is None or link.agreement.has("tools", "listChanged")
        if not told and trio.current_time() - self._read_at >= RELIST_MISSED_SECONDS:
            self._relist.set()

    def refuse(self, error: ServerFailure) -> None:
        """Log that a call found it otherwise than it was."""
        self._log.warning("upstream.failed", agent=self._name, reason=f"{error}{error.more}"[:500])

    # ── one connection after the other ──

    async def _keep(self, nursery: trio.Nursery) -> None:
        delay = FIRST_DELAY_SECONDS
        while True:
            begun = trio.current_time()
            try:
                problem = await self._once(nursery)
            except Exception:  # a mistake of ours with one upstream is none of the others'
                self._log.exception("upstream.crashed", agent=self._name)
                problem = ServerFailure("cannot be used: the log says why")
            self._lost(problem)
            if trio.current_time() - begun >= HEALTHY_SECONDS:
                delay = FIRST_DELAY_SECONDS
            self._wanted = trio.Event()
            with trio.move_on_after(delay):
                await trio.sleep(AT_LEAST_SECONDS)
                await self._wanted.wait()
            delay = min(2 * delay, LONGEST_DELAY_SECONDS)

    async def _once(self, nursery: trio.Nursery) -> ServerFailure:
        """Connect, use the connection until it is gone, and return what it ended with."""
        tells = self._news("")
        self._relist = trio.Event()
        try:
            async with self._open(nursery, tells) as link:
                return await self._use(link)
        except BackendError as error:
            return _failure(error)

    async def _use(self, link: Link) -> ServerFailure:
        await self._read(link)
        self._link = link
        self._log.info(
            "upstream.connected",
            agent=self._name,
            server=link.agreement.server,
            version=link.revisions,
            tools=len(self.lists.tools),
        )
        self._trouble = None
        self._arrived.set()
        self._arrived = trio.Event()
        self._tried.set()
        await self._follow_again(link)
        agreed = link.agreement
        told = all(agreed.has(kind, "listChanged") for kind in LISTS if agreed.has(kind))
        untold = float("inf") if told and agreed.capabilities else RELIST_UNTOLD_SECONDS
        try:
            while not link.ended.is_set():
                with trio.move_on_after(untold):
                    await either(link.ended, self._relist)
                if link.ended.is_set():
                    break
                self._relist = trio.Event()
                await self._read(link)
                with trio.move_on_after(RELIST_SECONDS):
                    await link.ended.wait()
        finally:
            self._link = None
        return ServerGone(link.reason, more=link.more)

    async def _follow_again(self, link: Link) -> None:
        for uri in list(self.followed):
            try:
                await link.follow_resource(uri)
            except ServerRefusal:
                continue  # it is read all the same

    async def _read(self, link: Link) -> None:
        self._read_at = trio.current_time()
        if self._config.era == "auto":
            await link.agree_on_sessions()
        try:
            with trio.fail_after(self._config.start_seconds):
                offered = await read_lists(
                    link, entries=self._config.max_entries, name=self._name, log=self._log
                )
        except trio.TooSlowError:
            raise ServerGone(f"did not say what it has within {self._config.start_seconds:g} s") from None
        except ServerRefusal as refusal:
            raise NoMcpServer(f"refuses to say what it has: {refusal}") from None
        offered = await self._with_pages(link, offered)
        self._offered = offered
        declared = link.agreement.capabilities.get("extensions")
        self.extensions = carried(declared, self._config.extensions)
        self._take(offered)

    async def _with_pages(self, link: Link, offered: UpstreamLists) -> UpstreamLists:
        """Return the lists with the pages of what is offered, and what of these their owner has not decided about."""
        self.pages_ask = ()
        offered = chosen(offered, self._config)
        if not link.agreement.has("resources") or not has_pages(offered):
            return offered
        offered = with_named_pages(offered)
        if self._guard.pins_pages:
            offered = await read_pages(link, offered, seconds=self._config.start_seconds)
        if self._config.page_hosts is None:
            self.pages_ask = undecided(offered)
        return offered

    def _judge_again(self) -> None:
        if self._offered is not None:
            self._take(self._offered)

    def _take(self, offered: UpstreamLists) -> None:
        # Nobody need look at what is not offered anyway.
        allowed = self._guard.allowed(chosen(offered, self._config))
        self.withheld = Withheld(offered, allowed)
        lists = NamedLists.of(allowed, self._config)
        if lists == self.lists:
            return
        self.lists = lists
        self._changed()

    def _news(self, apart: str) -> ServerNews:
        """Return who hears what is said unasked on the connection of one caller; "": on our own."""
        return ServerNews(lists=self._lists_changed, resource=lambda uri: self._updated(uri, apart))

    def _lists_changed(self) -> None:
        self._relist.set()

    def _lost(self, problem: ServerFailure) -> None:
        self._told = str(problem)
        words = f"{problem}{problem.more}"[:TROUBLE_CHARACTERS]
        known = self._trouble
        if known is None or not self._tried.is_set():
            self._log.info(
                "upstream.lost", agent=self._name, reason=words
            )  # a warning is said of every agent that fails
            self._trouble = Trouble(words=words, since=self._clock())
        elif known.words != words:
            self._log.info("upstream.still_lost", agent=self._name, reason=words)
            self._trouble = Trouble(words=words, since=known.since)
        self._tried.set()

    # ── by which wire ──

    @asynccontextmanager
    async def _open(
        self, nursery: trio.Nursery, tells: ServerNews, call: SessionRequest | None = None
    ) -> AsyncGenerator[Link]:
        """Open a connection for the caller of `call`; None: for ourselves."""
        if self._config.url and call is not None:
            async with self._open_sse(tells, call) as link:
                yield link
            return
        if self._config.url:
            async with self._open_http(tells, nursery) as link:
                yield link
            return
        if call is None:
            self._ungreeted = 0
        stream = self._start(call) if self._config.command else await dial(self._config.tcp, self._most)
        # Most programs take the era of whoever speaks first for that of all that comes by the same pipe: so here it is its caller's.
        greets = (
            call is not None and call.handshake and self._config.era == "auto" and self._ungreeted < UNGREETED
        )
        agreed = False
        try:
            async with self._channel(stream, tells, HANDSHAKE_FIRST if greets else self._era, call) as link:
                agreed = True
                yield link
        finally:
            # Some servers end when the first that they hear is of the other era.
            if greets:
                self._ungreeted = 0 if agreed else self._ungreeted + 1
            elif self._config.era == "auto":
                self._era = "auto" if agreed or self._era == "handshake" else "handshake"

    @asynccontextmanager
    async def _open_http(self, tells: ServerNews, nursery: trio.Nursery) -> AsyncGenerator[Link]:
        wire = CredentialWire(self._where, self._credential, self._log, self._name)
        try:
            link = HttpLink(
                wire,
                tells,
                nursery,
                questions=self._passed,
                name=self._name,
                log=self._log,
                engaged=self._engaged,
                theirs=self._news,
            )
            old = partial(self._open_sse, tells, None)
            async with agreed_over_http(
                link, self._config.era, self._config.start_seconds, old, listens=True
            ) as found:
                self._keep_apart(found is not link)  # a session is a caller's, or it is the stream
                yield found
        finally:
            await wire.aclose()

    @asynccontextmanager
    async def _open_sse(self, tells: ServerNews, call: SessionRequest | None) -> AsyncGenerator[Link]:
        wire = CredentialWire(self._where, self._credential, self._log, self._name)
        try:
            async with self._channel(SseStream(wire, call), tells, "handshake", call) as link:
                yield link
        finally:
            await wire.aclose()

    @asynccontextmanager
    async def _channel(
        self, stream: LineStream | SseStream, tells: ServerNews, era: str, call: SessionRequest | None
    ) -> AsyncGenerator[Link]:
        async with open_channel(
            stream,
            tells,
            era=era,
            seconds=self._config.start_seconds,
            questions=self._passed,
            name=self._name,
            log=self._log,
            of=None if call is None else call.can,
            able=None if call is None else call.session_can,
        ) as link:
            yield link

    def _start(self, call: SessionRequest | None) -> LineStream:
        command, environment = list(self._config.command), self._environment
        if self.callers is not None and isinstance(environment, ChildEnvironment):
            environment = environment.with_caller(caller_name(call))
        try:
            child = start_child(
                lambda reading, writing: command,
                environment,
                name=self._name,
                log=self._log,
                standard=True,
                working_dir=self._config.working_dir,
            )
        except OSError as error:
            raise ServerAway(f"cannot be started: {short_name(command[0])}: {error.strerror}") from error
        return LineStream(child, self._most)


def caller_name(call: SessionRequest | None) -> str:
    """Name the caller of a child to it: a person, or another with a login, by a digest that stays the same, a caller without by one that is
    never used again. The child that serves no caller is told "nobody"."""
    if call is None:
        return "nobody"
    caller = call.caller
    if caller is None or not caller.identified:
        return secrets.token_hex(16)
    person = caller.subject if caller.kind == "user" else caller.user
    named = ["", person] if person else [caller.kind, caller.subject]
    return hashlib.sha256(msgspec.json.encode(named)).hexdigest()[:32]


def _failure(error: BackendError) -> ServerFailure:
    """Return the failure of the upstream; that of a credential is one, for it cannot be used without."""
    return error if isinstance(error, ServerFailure) else ServerGone(f"cannot be used: {error}")
