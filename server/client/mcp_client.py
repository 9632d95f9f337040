"""The terminal's way to use one MCP server: its lists, its tools and its resources, with results and failures as people are shown them.

Era, session and wire are mcp_session's; opened_clients.py opens them. A server may ask back while a tool runs if `call` is given somebody who
answers. Tasks are declared where a tool cannot be called otherwise. Nothing else is: this client cannot be sampled, so a server has
no reason to try.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import msgspec
import trio
from msgspec import Raw

from server.client.client_errors import BadAnswer, CallRefused, Unreachable
from server.client.mcp_answers import always_a_task, bad_answer, info_of, needs_task, paying, task_id_of, told
from server.client.mcp_session.followed_tasks import cancel_task, follow_task
from server.client.mcp_session.list_pages import list_pages
from server.client.mcp_session.question_rounds import RoundBounds, after_pages, in_rounds
from server.client.mcp_session.session_link import NO_HEADERS, Link
from server.client.mcp_session.session_messages import ServerRefusal, members
from server.client.mcp_session.streamable_http import name_header
from server.client.seller_terms import NamelessEntry
from server.client.server_questions import MAX_QUESTIONS, Answerer, Mode, read_questions
from server.lib.counted import counted
from server.lib.json_objects import decode_object
from server.lib.oauth_client.addresses import host_of
from server.mcp.call_failures import BackendError
from server.mcp.call_outlet import LogLevel, LogMessage, NullOutlet, Outlet, Progress
from server.mcp.call_questions import Question
from server.mcp.request_headers import parameter_headers
from server.mcp.tool_names import WHOLE_LIST

if TYPE_CHECKING:
    from server.payments.buyer.payer import PaidCall

DEFAULT_SECONDS: Final = 30.0
FAREWELL_SECONDS: Final = 2.0
# A tool that asks more often asks for ever. A state goes back as it came, and nobody else keeps it.
MOST: Final = RoundBounds(questions=MAX_QUESTIONS, state=1024 * 1024, renames=False)
# The questions that may be passed on to a person.
QUESTIONS: Final = frozenset({"elicitation"})
NO_MODES: Final = frozenset[Mode]()

TellProgress = Callable[[float, float | None, str], None]
Answer: TypeAlias = Callable[[Mapping[str, Question]], Awaitable[Mapping[str, Mapping[str, Any]]]]


class TerminalRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request of the one person at a terminal: a `SessionRequest`."""

    can: frozenset[str] = frozenset()
    wants_progress: bool = False
    subject: str = ""
    sharer: str = ""
    apart: str = ""
    handshake: bool = False
    session_can: None = None
    caller: None = None
    log_level: LogLevel | None = None

    def bare(self) -> TerminalRequest:
        return QUIET

    def quiet(self) -> TerminalRequest:
        return QUIET

    def later(self) -> None:
        return None


QUIET: Final = TerminalRequest()


class CallOutlet(NullOutlet):
    """An outlet to somebody who is told of progress and answers questions; the time that this takes is not the server's."""

    def __init__(self, tell: TellProgress | None, answer: Answer, seconds: float) -> None:
        """Keep the parts. `seconds`: how long the server is waited for, in `patience`, the scope of the wait that is under way."""
        super().__init__("nobody is asked in this way")
        self._tell = tell
        self._answer = answer
        self._seconds = seconds
        self.patience = trio.CancelScope()
        self._open = 0
        self._turn = trio.Lock()

    async def emit(self, event: Progress | LogMessage) -> None:
        if isinstance(event, Progress) and self._tell is not None:
            self._tell(event.progress, event.total, event.message or "")

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Mapping[str, Any]]:
        self._open += 1
        self.patience.deadline = math.inf
        try:
            async with self._turn:  # a screen has room for one
                return await self._answer(questions)
        finally:
            self._open -= 1
            if not self._open:
                self.patience.deadline = trio.current_time() + self._seconds


class McpClient:
    """The client of one server, over a link that is agreed on. Methods raise `ClientError`s and may be cancelled at any time."""

    def __init__(self, link: Link, url: str, *, nameless: NamelessEntry | None = None) -> None:
        self.server: Final = info_of(link.agreement)
        self._link = link
        self._url = url
        self._nameless = nameless

    @property
    def nameless(self) -> bool:
        """True for a client that came in to pay, without a login."""
        return self._nameless is not None and self._nameless.taken

    async def tools(self) -> list[dict[str, Any]]:
        """Return the whole catalogue, page by page, also of a server of ours that would rather have it searched."""
        return await self.listed("tools/list", "tools", "name")

    async def listed(self, method: str, kind: str, named_by: str) -> list[dict[str, Any]]:
        """Return a list of the server's, page by page: `kind` is its key in the result, `named_by` the one that each entry has."""
        found: list[dict[str, Any]] = []

        async def ask(params: Mapping[str, Any]) -> Raw:
            return await self._raw(method, {**params, "_meta": WHOLE_LIST})

        with self._told(method):
            async for page in list_pages(ask, method, kind):
                found.extend(members(entry) for entry in page)
        return [entry for entry in found if isinstance(entry.get(named_by), str)]

    async def call(
        self,
        tool: Mapping[str, Any],
        arguments: Mapping[str, Any],
        *,
        progress: TellProgress | None = None,
        seconds: float,
        answerer: Answerer | None = None,
        paid: PaidCall | None = None,
    ) -> dict[str, Any]:
        """Return the tool's result, also one with `isError`. `tool` is an entry of `tools()`. `seconds` is for each answer of the
        server; how long `answerer` takes does not count. Without `paid` a result that asks for payment is the result; with it,
        raises what `paid` raises."""
        name = str(tool["name"])
        modern = self._link.agreement.modern
        headers: Mapping[str, str] = NO_HEADERS
        if modern:
            headers = {**name_header(name), **parameter_headers(tool.get("inputSchema"), arguments)}
        whole: dict[str, Any] = {"name": name, "arguments": dict(arguments)}
        # An older server is asked for a task; a newer one decides, for clients that say that they know tasks.
        whole |= {"task": {}} if not modern and always_a_task(tool) else {}
        can = abilities(NO_MODES if answerer is None else answerer.modes)
        pages = QUESTIONS if "elicitation.url" in can else frozenset[str]()
        call = TerminalRequest(can=can, wants_progress=progress is not None)
        outlet = CallOutlet(progress, partial(self._answers, name, answerer), seconds)
        tasks = False

        async def exchange(params: Mapping[str, Any]) -> Raw:
            nonlocal tasks
            asked = params if paid is None or not paid.meta else {**params, "_meta": dict(paid.meta)}
            send = partial(
                self._raw,
                "tools/call",
                asked,
                seconds,
                headers=headers,
                call=call,
                outlet=outlet,
                tasks=tasks,
            )
            try:
                with self._told("tools/call"):
                    return await (send() if modern else after_pages(send, outlet, questions=pages))
            except CallRefused as error:
                if not needs_task(error) or tasks:
                    raise
            tasks = True
            return await exchange(params)

        async def request(params: Mapping[str, Any]) -> Raw:
            return await (exchange(params) if paid is None else paying(partial(exchange, params), paid))

        if paid is not None:
            await paid.begin()
        while True:
            with self._told("tools/call"):
                raw = await (
                    in_rounds(request, whole, outlet, questions=QUESTIONS, most=MOST)
                    if modern
                    else request(whole)
                )
            result = members(raw)
            if (task_id := task_id_of(result)) is None:
                if result.get("resultType", "complete") != "complete":
                    raise BadAnswer(f"{host_of(self._url)} answered with an unknown kind of result")
                return result
            ended = await self._task_result(task_id, call, outlet, seconds)
            if paid is None or not await paid.again(ended):
                return ended

    async def _task_result(
        self, task_id: str, call: TerminalRequest, outlet: CallOutlet, seconds: float
    ) -> dict[str, Any]:
        """Return the result of a task, also one with `isError`. A task whose result is not waited for any more is cancelled."""

        async def wait(link: Link, params: Mapping[str, Any], line: Outlet) -> Raw:
            return await link.request("tasks/result", params, call=call, outlet=line)

        over = False
        try:
            with trio.move_on_after(seconds) as outlet.patience, self._told("tools/call"):
                raw = await follow_task(task_id, call, outlet, self._linked, wait)
                over = True
                if not bytes(raw).startswith(b"{"):
                    raise BadAnswer("the task ended without a result")
                return members(raw)
            raise self._too_slow(seconds)
        except CallRefused:
            over = True
            raise
        finally:
            if not over:
                with trio.move_on_after(FAREWELL_SECONDS, shield=True):
                    with suppress(BackendError, ServerRefusal):
                        await cancel_task(task_id, call, self._linked)

    @asynccontextmanager
    async def _linked(self) -> AsyncGenerator[Link]:
        yield self._link

    async def _answers(
        self, name: str, answerer: Answerer | None, questions: Mapping[str, Question]
    ) -> Mapping[str, Mapping[str, Any]]:
        """Return what is said to the questions of a server."""
        if answerer is None:
            raise BadAnswer(
                f"{name} has a question, though nobody was there to be asked",
                hint="call it on a terminal, or give --answer FIELD=VALUE",
            )
        return await answerer(self.server, read_questions(questions, answerer.modes))

    async def contents(self, uri: str) -> list[dict[str, Any]]:
        """Read a resource; return nothing where there is no such thing (MCP, "Reading Resources")."""
        try:
            headers = name_header(uri) if self._link.agreement.modern else NO_HEADERS
            with self._told("resources/read"):
                raw = await self._raw("resources/read", {"uri": uri}, headers=headers)
        except CallRefused:
            return []
        contents = members(raw).get("contents")
        return [
            cast("dict[str, Any]", each)
            for each in (cast("list[Any]", contents) if isinstance(contents, list) else [])
            if isinstance(each, dict)
        ]

    async def document(self, uri: str) -> dict[str, Any] | None:
        """Read a resource that is one JSON object; None where there is no such thing."""
        contents = await self.contents(uri)
        text = contents[0].get("text") if contents else None
        return decode_object(text) if isinstance(text, str) else None

    async def _raw(
        self,
        method: str,
        params: Mapping[str, Any],
        seconds: float = DEFAULT_SECONDS,
        *,
        headers: Mapping[str, str] = NO_HEADERS,
        call: TerminalRequest = QUIET,
        outlet: CallOutlet | None = None,
        tasks: bool = False,
    ) -> Raw:
        """Return the result of one request, an object."""
        with trio.move_on_after(seconds) as patience:
            if outlet is not None:
                outlet.patience = patience
            raw = await self._link.request(
                method, params, call=call, outlet=outlet, headers=headers, tasks=tasks
            )
            if not bytes(raw).startswith(b"{"):
                raise bad_answer(self._url, f"answers {method} with no result")
            return raw
        raise self._too_slow(seconds)

    def _told(self, method: str) -> AbstractContextManager[None]:
        return told(self._url, method)

    def _too_slow(self, seconds: float) -> Unreachable:
        return Unreachable(
            f"{host_of(self._url)} gave no result within {counted(seconds, 'second')}",
            hint="allow more with --timeout",
        )


def abilities(modes: frozenset[Mode]) -> frozenset[str]:
    """Return what somebody can be asked who answers in these ways, in the words of `ABILITIES`."""
    return frozenset("elicitation" if mode == "form" else "elicitation.url" for mode in modes)
