"""One request while it runs, on any wire: what its handler is lent, and what comes of it.

Implements `server.mcp.handlers.Call`. Who calls and what is called is settled before; writing the answer is the wire's.
What a running call can say to its caller is caller.py's; a call that becomes a task, tasks/desk.py's.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET
from structlog.typing import FilteringBoundLogger

from auth.model import Principal, PrincipalKind
from server.backends.base import BackendError, CannotAsk, LogLevel, Outlet, Paused
from server.caller import LEVELS, SILENT, Ask, CallerLine, Line
from server.calls import Asked, Calls, told
from server.feeds import OpenFeed, check_bounds, wanted
from server.library import Library, Reader
from server.mcp import tasks as task_faces
from server.mcp.cursors import Cursors
from server.mcp.errors import (
    BackendFailed,
    BadParams,
    InternalError,
    McpError,
    MethodNotFound,
    MissingCapability,
    UnknownResource,
)
from server.mcp.handlers import Item, Kind
from server.mcp.inbound import Headers, Route
from server.mcp.messages import Prompt, RequestId, Resource, ResourceTemplate, TextContent, Tool
from server.mcp.params import (
    CallToolParams,
    CompleteParams,
    GetPromptParams,
    Level,
    ListenFilter,
    ListParams,
    PromptReference,
    ReadResourceParams,
    Resumable,
)
from server.mcp.questions import Question, abilities, for_revision
from server.mcp.results import (
    Completed,
    InputRequired,
    Offers,
    PromptResult,
    ReadResult,
    Server,
    Shaped,
    ToolResult,
    encode_error,
    encode_notification,
    encode_result,
)
from server.mcp.rounds import FRESH, Binding, Open, Replay, Rounds
from server.sessions import Session, Sessions
from server.store.jobs import StoreUnavailable
from server.subscriptions import Subscription, Subscriptions, task_topic
from server.tasks.desk import Desk, Tasking, declares_tasks

T = TypeVar("T")

NOTHING_ASKED: Final = frozenset[str]()


class Lent(msgspec.Struct, frozen=True, kw_only=True):
    """What every request of one server uses."""

    name: str  # the server's, in the configuration
    server: Server
    calls: Calls
    library: Library
    subscriptions: Subscriptions
    sessions: Sessions | None  # None: requests of the handshake era are each answered by themselves
    tasking: Tasking | None  # None: nothing becomes a task
    rounds: Rounds
    cursors: Cursors
    page_size: int
    log: FilteringBoundLogger


class Outcome(msgspec.Struct, frozen=True):
    """The bytes of the answer, and the error in it, if it is one: the status is the table's to say."""

    body: bytes
    error: McpError | None = None


class Exchange:
    """`still_allowed` asks again whether the caller may be here; only a subscription outlives the first answer to that.
    `can_ask`: what is sent to the client of the session meanwhile comes to it."""

    __slots__ = (
        "_can_ask",
        "_ending",
        "_lent",
        "_line",
        "_still_allowed",
        "_subscription",
        "call_id",
        "headers",
        "principal",
        "route",
        "session",
    )

    def __init__(
        self,
        route: Route,
        principal: Principal,
        lent: Lent,
        *,
        headers: Headers | None,
        call_id: str,
        still_allowed: Callable[[], Awaitable[bool]],
        session: Session | None = None,
        can_ask: bool = True,
    ) -> None:
        self.route = route
        self.principal = principal
        self.headers = headers  # None: a wire without headers
        self.call_id = call_id
        self.session = session
        self._can_ask = can_ask
        self._lent = lent
        self._still_allowed = still_allowed
        self._line: Line = SILENT
        self._subscription: Subscription | None = None
        self._ending = False

    @property
    def id(self) -> RequestId:
        return self.route.id

    async def run(self, line: Line = SILENT) -> Outcome:
        """The answer, whatever happens: errors are answers too. `line` takes what is sent before it. Cancelling it stops
        the work."""
        self._line = line
        route = self.route
        try:
            if route.method.feature is not None or route.method.session:
                self._check_offered()
            if route.problem is not None:
                raise route.problem
            if route.params.meta.log_level is not UNSET:
                self._log_level()
            result = await route.method.handler(route.params, self)
            return Outcome(encode_result(route.id, result, route.revision, self._lent.server))
        except McpError as error:
            return Outcome(encode_error(route.id, error, route.revision), error)
        except StoreUnavailable as problem:  # only tasks need it
            self._lent.log.warning("store.unavailable", method=route.method.name, reason=str(problem))
            error = BackendFailed(f"tasks are not available: {problem}")
            return Outcome(encode_error(route.id, error, route.revision), error)
        except Exception:
            self._lent.log.exception("mcp.crashed", method=route.method.name, request=self.call_id)
            error = InternalError(self.call_id)
            return Outcome(encode_error(route.id, error, route.revision), error)

    def end(self) -> None:
        """The server is going away: a subscription ends, with its result. Calls run to theirs."""
        self._ending = True
        if self._subscription is not None:
            self._subscription.end()

    # ── what the server has ──────────────────────────────────────────────────────────────────────────────────────

    @property
    def offers(self) -> Offers:
        lent, modern = self._lent, self.route.revision.modern
        library = lent.library.exists
        tasking = lent.tasking
        face = None if tasking is None else tasking.face(self.route.revision)
        return Offers(
            resources=lent.library.has_resources,
            prompts=library,
            completions=library,
            logging=library and (modern or lent.sessions is not None),
            tasks=face is not None,
            wasmagent=face is task_faces.Face.WASMAGENT,
            task_list=self._identified,
            changes=modern or lent.sessions is not None,
        )

    def page(self, kind: Kind, cursor: str | None) -> tuple[Sequence[Item], str | None]:
        items: Sequence[Item]
        match kind:
            case "tools":
                tools, tasking = self._lent.calls.tools(self.principal), self._lent.tasking
                items = tools if tasking is None else tasking.listed(tools, self.route.revision)
            case "resources":
                items = self._lent.library.resources(self.principal)
            case "resourceTemplates":
                items = self._lent.library.templates(self.principal)
            case "prompts":
                items = self._lent.library.prompts(self.principal)
        return self._lent.cursors.cut(kind, items, _key_of, cursor, self._lent.page_size)

    def _check_offered(self) -> None:
        """Raises `MethodNotFound`. A list of what is not offered is empty to clients of the handshake era: they ask whatever
        was declared, and an error there is shown to people."""
        method, revision = self.route.method, self.route.revision
        if method.session and self.session is None:
            raise MethodNotFound(method.name)
        if method.feature is None or (method.params is ListParams and not revision.modern):
            return
        if not getattr(self.offers, method.feature):
            raise MethodNotFound(method.name)

    # ── calling, reading, filling in ─────────────────────────────────────────────────────────────────────────────

    async def call_tool(self, params: CallToolParams) -> ToolResult | Shaped | InputRequired:
        calls, arguments = self._lent.calls, params.arguments or {}
        headers = self.headers if self.route.revision.modern else None
        # A state that comes with the request is looked at even where nothing is asked: a forged one is never taken.
        if calls.quick(params.name) and params.request_state is UNSET:
            return await calls.call(Asked(self.principal, params.name, arguments, self.call_id, headers))

        async def call(line: CallerLine, replay: Replay | None) -> ToolResult | Shaped:
            asked = Asked(
                self.principal,
                params.name,
                arguments,
                self.call_id,
                headers,
                line,
                self._can,
                None if replay is None else replay.resumed,
                params.meta.progress_token is not UNSET,
                self._log_level(),
            )
            tasking = self._lent.tasking
            if tasking is None:
                return await calls.call(asked)
            return await tasking.call(asked, line, self.desk, params)

        try:
            return await self._resumable(params, {"name": params.name, "arguments": arguments}, call)
        except MissingCapability as error:
            if self.route.revision.modern:
                raise
            # The handshake era has no such error: what it settled there cannot be mended by sending more with the request.
            return ToolResult(content=(TextContent(text=str(error)),), is_error=True)

    async def read_resource(self, params: ReadResourceParams) -> ReadResult | InputRequired:
        async def read(line: CallerLine, replay: Replay | None) -> ReadResult:
            reader = self._reader(params, line, replay)
            return ReadResult(await self._lent.library.read(reader, params.uri))

        return await self._resumable(params, {"uri": params.uri}, read)

    async def get_prompt(self, params: GetPromptParams) -> PromptResult | InputRequired:
        arguments = params.arguments or {}

        async def get(line: CallerLine, replay: Replay | None) -> PromptResult:
            reader = self._reader(params, line, replay)
            final = await self._lent.library.get_prompt(reader, params.name, arguments)
            return PromptResult(final.messages, final.description)

        return await self._resumable(params, {"name": params.name, "arguments": arguments}, get)

    async def complete(self, params: CompleteParams) -> Completed:
        library, argument = self._lent.library, params.argument
        entry = (
            library.completed_prompt(self.principal, params.ref.name, argument.name)
            if isinstance(params.ref, PromptReference)
            else library.completed_template(self.principal, params.ref.uri, argument.name)
        )
        known = {} if params.context is None else params.context.arguments or {}
        reader = Reader(principal=self.principal, call_id=self.call_id)
        found = await library.complete(reader, entry, argument.name, argument.value, known)
        return Completed(found.values, found.total, found.has_more)

    async def _resumable(
        self,
        params: Resumable,
        salient: Mapping[str, Any],
        run: Callable[[CallerLine, Replay | None], Awaitable[T]],
    ) -> T | InputRequired:
        """Run what may have to ask its caller. In the stateless era the answers come with the request when it is sent again,
        and what was asked before is answered at once; in a session the call waits for them."""
        if not self.route.revision.modern:
            session = self.session
            ask = None if session is None or not self._can_ask else _asks_in(session, self._line)
            return await run(self._caller_line(params, ask), None)
        binding = Binding(
            server=self._lent.name,
            kind=self.principal.kind.value,
            subject=self.principal.subject,
            client_id=self.principal.client_id,
            method=self.route.method.name,
            salient=salient,
        )
        state, given = params.request_state, params.input_responses
        opened = FRESH if state is UNSET else self._lent.rounds.open(binding, state)
        replay = Replay(opened, None if given is UNSET else given)
        line = self._caller_line(params, partial(_asks_again, replay, self._can))
        try:
            return await run(line, replay)
        except Paused:
            if line.saved is not None:
                replay.checkpoint(line.saved)
            worded = {key: for_revision(asked, self.route.revision) for key, asked in replay.open.items()}
            return InputRequired(worded, self._lent.rounds.seal(binding, replay.pause()))

    def _caller_line(self, params: Resumable, ask: Ask | None) -> CallerLine:
        token = params.meta.progress_token
        return CallerLine(
            self._line,
            self.route.revision,
            can=self._can,
            ask=ask,
            token=None if token is UNSET or self._line is SILENT else token,
            level=self._log_level,
        )

    def _reader(self, params: Resumable, line: Outlet, replay: Replay | None) -> Reader:
        return Reader(
            principal=self.principal,
            call_id=self.call_id,
            outlet=line,
            can=self._can,
            resumed=None if replay is None else replay.resumed,
            wants_progress=params.meta.progress_token is not UNSET,
            log_level=self._log_level(),
        )

    @property
    def _can(self) -> frozenset[str]:
        if not self.route.revision.modern:
            return NOTHING_ASKED if self.session is None else self.session.can
        declared = self.route.params.meta.client_capabilities
        return NOTHING_ASKED if declared is UNSET else abilities(declared, self.route.revision)

    def _log_level(self) -> LogLevel | None:
        """From which level on the caller wants log messages. Raises `BadParams` for one that does not exist."""
        if not self.route.revision.modern:
            return None if self.session is None or self._line is SILENT else self.session.log_level
        level = self.route.params.meta.log_level
        if level is UNSET:
            return None
        if level not in LEVELS:
            raise BadParams(f"no such log level; use one of {', '.join(LEVELS)}")
        return None if self._line is SILENT else level

    # ── telling and being told ───────────────────────────────────────────────────────────────────────────────────

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        await self._line.send(encode_notification(method, params))

    async def ask(
        self, questions: Mapping[str, Question], meta: Mapping[str, Any]
    ) -> Mapping[str, Mapping[str, Any]]:
        """Ask the client on this request's stream (tasks/result of 2025-11-25). Raises `MissingCapability`, `BackendFailed`."""
        if self.session is None or not self._can_ask:
            raise MissingCapability(
                {}, "the client cannot be asked on this line: it needs a session and a stream"
            )
        try:
            return await _asks_in(self.session, self._line, meta)(questions)
        except BackendError as error:
            # Refused, or not answered: what the client did is no fault of ours.
            raise told(error) from error

    def set_log_level(self, level: Level) -> None:
        if self.session is not None:
            self.session.log_level = level

    def watch(self, uri: str) -> None:
        if not self._lent.library.readable(self.principal, uri):
            raise UnknownResource(uri)
        if self.session is not None:
            self.session.watch(uri)

    def unwatch(self, uri: str) -> None:
        if self.session is not None:
            self.session.watched.discard(uri)

    @asynccontextmanager
    async def listen(self, asked: ListenFilter) -> AsyncGenerator[OpenFeed]:
        lent = self._lent
        check_bounds(asked)
        desk = self.desk
        task_ids = None
        if asked.task_ids is not UNSET and desk.face is not None:
            task_ids = await desk.own(asked.task_ids)
        found = wanted(
            asked,
            library=lent.library.exists,
            resources=lent.library.has_resources,
            readable=lambda uri: lent.library.readable(self.principal, uri),
            task_ids=task_ids,
        )
        # Callers without a login are all one subject, so a cap for each would be a cap for all of them.
        caller = f"{self.principal.kind.value}:{self.principal.subject}" if self._identified else None
        with lent.subscriptions.open(caller, found.topics) as subscription:
            self._subscription = subscription
            for task_id in task_ids or ():  # how each stands now: it may have changed since it was looked up
                subscription.offer(task_topic(task_id))
            if self._ending:
                subscription.end()
            yield OpenFeed(
                subscription,
                found.honoured,
                still_allowed=self._still_allowed,
                ping=self._line.ping,
                tell_task=self.desk.tell,
            )

    @property
    def desk(self) -> Desk:
        """Where this caller sees to its tasks."""
        declared = self.route.params.meta.client_capabilities
        return Desk(
            self._lent.tasking,
            self.principal,
            self.route.revision,
            call_id=self.call_id,
            can=self._can,
            declared=declared is not UNSET and declares_tasks(declared),
        )

    @property
    def _identified(self) -> bool:
        return self.principal.kind not in (PrincipalKind.ANONYMOUS, PrincipalKind.PAYER)


async def _asks_again(
    replay: Replay, can: frozenset[str], questions: Mapping[str, Question]
) -> Mapping[str, Mapping[str, Any]]:
    found = replay.ask(questions, can)
    if not isinstance(found, Open):
        return found
    if found.required:
        raise CannotAsk("the caller's client does not offer what this needs to ask", found.required)
    raise Paused


def _asks_in(session: Session, line: Line, meta: Mapping[str, Any] | None = None) -> Ask:
    async def ask(questions: Mapping[str, Question]) -> Mapping[str, Mapping[str, Any]]:
        worded = {
            key: for_revision(question, session.revision, elicitation_id=secrets.token_urlsafe(16))
            for key, question in questions.items()
        }
        return await session.ask(line.send, worded, meta=meta)

    return ask


def _key_of(item: Tool | Resource | ResourceTemplate | Prompt) -> str:
    if isinstance(item, Resource):
        return item.uri
    return item.uri_template if isinstance(item, ResourceTemplate) else item.name
