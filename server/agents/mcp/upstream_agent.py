"""A back-end that is somebody else's MCP server: its tools, resources and prompts are offered on, and each use of them is passed on."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
import trio
from msgspec import UNSET, Raw

from server.agents.base.backend import (
    AgentRequest,
    Announce,
    AnswerLost,
    Claim,
    Completing,
    Feature,
    PriceAsked,
    PromptGet,
    ResourceRead,
    ToolCall,
    ToolCrashed,
    Trouble,
    Unreached,
    Watched,
)
from server.agents.mcp import upstream_results
from server.agents.mcp.asked_prices import UPSTREAM_PRICE, MarkUp, most_for, read_mark_up
from server.agents.mcp.forwarded_meta import CarriedMeta
from server.agents.mcp.given_addresses import GivenAddresses, leads_astray, named_in, scheme_of
from server.agents.mcp.mcp_settings import McpConfig
from server.agents.mcp.offer_guard import OfferGuard
from server.agents.mcp.offer_lists import read_resources
from server.agents.mcp.offered_names import NamedLists, bounds_of, is_called
from server.agents.mcp.offered_pages import page_of
from server.agents.mcp.question_source import QuestionSource, SourcedOutlet
from server.agents.mcp.resource_addresses import UpstreamAddresses
from server.agents.mcp.upstream_credentials import AccountNeeded
from server.agents.mcp.upstream_keeper import Upstream
from server.agents.mcp.upstream_rounds import by_handshake, kept_task, task_checkpoint, use
from server.client.mcp_session.followed_tasks import cancel_task, created, follow_task, wants_tasks
from server.client.mcp_session.session_link import NO_HEADERS, Link
from server.client.mcp_session.session_messages import (
    Fate,
    ServerAway,
    ServerFailure,
    ServerGone,
    ServerRefusal,
)
from server.client.mcp_session.session_request import Credential
from server.client.mcp_session.streamable_http import name_header
from server.lib.log.logger import Logger
from server.lib.money.amounts import shown
from server.lib.oauth_client import addresses
from server.lib.rates.fair_turns import NoTurn, Turns
from server.lib.short_waits import is_cancelled
from server.mcp.app_pages import is_page
from server.mcp.call_failures import BackendError, Busy, CannotAsk
from server.mcp.call_outlet import NullOutlet, Outlet
from server.mcp.call_questions import Question
from server.mcp.messages import (
    EmbeddedResource,
    Implementation,
    Prompt,
    Resource,
    ResourceContents,
    ResourceLink,
    ResourceTemplate,
    Tool,
)
from server.mcp.request_headers import parameter_headers
from server.mcp.result_encoding import CompletionResult, PromptResult, ToolResult
from server.mcp.task_faces import REQUIRED_CAPABILITY, needs_tasks
from server.payments.buyer.outlays import GivenReceipt

if TYPE_CHECKING:
    from server.agents.mcp.buying import Buyer
    from server.agents.mcp.remote_suspended import RemoteSuspended

FOLLOWED_WAITING: Final = 64
FOLLOWED_AT_ONCE: Final = 8  # of those that it is asked to tell of
GIVEN_UP_WAITING: Final = 256
CANCEL_SECONDS: Final = 15.0
LET_GO_SECONDS: Final = 2.0
TASK_TTL_MS: Final = 24 * 3_600_000
ACCOUNT: Final = "io.ostiary/account"  # the key of our own question, which no upstream uses
NO_META: Final[Mapping[str, Any]] = MappingProxyType({})
NO_FUNCTIONS: Final = frozenset[str]()
PRICE_FUNCTIONS: Final = frozenset({UPSTREAM_PRICE})
NOBODY: Final = NullOutlet("nobody can be asked what a call costs them")

# What a caller is told of a call that failed there.
FATES: Final[Mapping[Fate, type[BackendError]]] = MappingProxyType(
    {"not made": Unreached, "unknown": AnswerLost, "too large": ToolCrashed, "answered": BackendError}
)

TellReceipt: TypeAlias = Callable[[GivenReceipt], Awaitable[None]]
MakeBuyer: TypeAlias = Callable[[str, Callable[[], None]], "Buyer"]


class McpBackend:
    """A `Backend`, a `LibraryBackend`, `Active`, `Watched`, `TellsStartupError`, `TellsWhenBusy`, `Foreign`, `Withholding`, `Instructing`, `Elsewhere`, `SecondNames`, `Following`, `Unlisted`, `Neighbour`, `KeepsSessions` and `PersonalLibrary`: it offers
    nothing until its upstream is there."""

    def __init__(
        self,
        config: McpConfig,
        *,
        credential: Credential,
        guard: OfferGuard,
        environment: Mapping[str, str],
        name: str,
        log: Logger,
        buying: MakeBuyer | None = None,
        tell_receipt: TellReceipt | None = None,
        parked: RemoteSuspended | None = None,
    ) -> None:
        """Keep the parts. `environment` is what a child process gets to see, `name` is for the log. `buying`: who pays for its calls, given where
        they are made and whom to tell that its prices have risen. `tell_receipt`: the books, of each payment for a call. `parked`: callers may
        come back to another node. Raises `ValueError` for settings that turn out not to work."""
        self._upstream = Upstream(
            config,
            credential=credential,
            guard=guard,
            environment=environment,
            name=name,
            log=log,
            parked=parked,
        )
        self._questions = frozenset(config.questions)
        self._source = QuestionSource(config, name=name, log=log)
        self._read_resources = partial(read_resources, entries=config.max_entries, name=name, log=log)
        self._called = f"the upstream {config.id}" if config.id else "the upstream"
        self._addresses = UpstreamAddresses(config.id)
        self._bounds = bounds_of(config)
        self._turns = Turns(config.calls_at_once)
        self._give_up, self._given_up = trio.open_memory_channel[tuple[str, ToolCall]](GIVEN_UP_WAITING)
        self._excused = False
        self._calls = 0
        self._tasks_only = set[str]()  # tools that their server refuses to call as anything else
        self._carried = CarriedMeta(config.meta)
        self._mark_up = _mark_up(config.mark_up)
        self._buyer = None if buying is None else buying(config.url or config.what, self._upstream.read_again)
        self._tell_receipt = tell_receipt
        self._issuer = addresses.origin(config.url) if config.url else ""
        self._config = config
        self._guard = guard
        self._credential = credential
        self._given = GivenAddresses()
        self._follow, self._followed = trio.open_memory_channel[tuple[str, AgentRequest | None]](
            FOLLOWED_WAITING
        )

    async def run(self, announce: Announce, *, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow_resources)
            nursery.start_soon(self._cancel_tasks)
            await nursery.start(self._run_upstream, announce)
            task_status.started()

    def trouble(self) -> Trouble | None:
        """Return the first fault, beginning with those that its owner can do something about."""
        credential, guard = self._credential, self._guard
        if isinstance(credential, Watched) and (found := credential.trouble()) is not None:
            return found
        if (found := self._upstream.trouble) is not None:
            return found
        return guard.trouble() if isinstance(guard, Watched) else None

    @property
    def busy(self) -> bool:
        # Calls that follow a task have no place; what is read, and prompts, are no calls.
        return self._calls > 0 or self._turns.free < self._config.calls_at_once

    def absent(self) -> str | None:
        credential = self._credential
        if self._excused:  # it was not there before either
            return None
        wants_login = isinstance(credential, Watched) and credential.trouble() is not None
        trouble = self._upstream.trouble
        if trouble is None or wants_login or self._config.connect == "lazy":
            return None
        return f'{trouble.words} (with connect = "lazy" it need not be there yet)'

    def succeed(self, other: McpBackend) -> None:
        """Take the place of another: what somebody listens for there is listened for here."""
        for uri in other._upstream.followed:
            self._upstream.remember_followed(uri)
        ours, theirs = self._config, other._config
        same = (ours.url, ours.command, ours.tcp) == (theirs.url, theirs.command, theirs.tcp)
        if same:
            self._given = other._given
        self._excused = same and other._upstream.trouble is not None

    @property
    def speaks_for(self) -> str:
        return self._called

    def withheld(self, tool: str) -> str | None:
        return self._guard.withheld(lambda theirs: is_called(tool, theirs, self._config))

    def missed(self, tool: str) -> None:
        if self._config.prefix != "always" or tool.startswith(self._config.front):
            self._upstream.missed()

    @property
    def checks_arguments(self) -> bool:
        return self._config.arguments == "upstream"

    @property
    def revision(self) -> str:
        """The revisions of MCP that are spoken with it, joined by a comma; empty while there is no connection."""
        link = self._upstream.link_nowait()
        return "" if link is None else link.revisions

    @property
    def pages_ask(self) -> Sequence[str]:
        """The wishes of its pages that are not met as long as their owner has said nothing of them."""
        return self._upstream.pages_ask

    def left_out(self) -> Sequence[str]:
        return self._upstream.left_out

    def called_by_page(self, name: str) -> str | None:
        return self._upstream.lists.page_names.get(name)

    def extensions(self) -> Mapping[str, Mapping[str, Any]]:
        return self._upstream.extensions

    def try_again(self) -> None:
        self._upstream.try_again()

    def introduction(self) -> Implementation | None:
        return self._upstream.lists.introduction

    def instructions(self) -> str:
        return self._upstream.lists.instructions

    def tools(self) -> Sequence[Tool]:
        return self._upstream.lists.tools

    def resources(self) -> Sequence[Resource]:
        return self._upstream.lists.resources

    def resource_templates(self) -> Sequence[ResourceTemplate]:
        return self._upstream.lists.resource_templates

    def prompts(self) -> Sequence[Prompt]:
        return self._upstream.lists.prompts

    @property
    def features(self) -> frozenset[Feature]:
        return self._upstream.lists.features

    def session_ended(self, apart: str) -> None:
        self._upstream.part(apart)

    async def resources_of(self, asked: AgentRequest) -> Sequence[Resource]:
        link = self._upstream.own_link(asked)
        if link is None:
            return ()
        try:
            found = await link.own_resources(asked, self._read_resources)
        except (BackendError, ServerRefusal):
            return ()
        known = {each.uri for each in self._upstream.lists.resources}
        theirs = self._guard.resources_allowed(found)
        ours = [self._bounds.of(self._addresses.resource(each)) for each in theirs]
        return [each for each in ours if each.uri not in known]

    def completes(self) -> frozenset[tuple[str, str]]:
        known = self._upstream.lists.completes
        others = {
            (kind, other)
            for kind, name in known
            if kind == "resource" and (other := self._addresses.other(name)) is not None
        }
        return known | others

    def elsewhere(self, address: str) -> str | None:
        return self._addresses.other(address)

    @property
    def gives_way(self) -> bool:
        return self._config.gives_way

    def second_name(self, what: str, name: str, /) -> str:
        return self._upstream.lists.seconds[what][name]

    def owns(self, address: str) -> bool:
        return self._addresses.owns(address)

    def beside(self, anothers: Callable[[str], bool]) -> None:
        self._addresses.anothers = anothers

    def follow(self, uri: str, asked: AgentRequest | None = None) -> None:
        uri = self._addresses.theirs(uri)
        if asked is None or not self._upstream.is_apart(asked):
            asked = None
            if uri in self._upstream.followed:
                return
            self._upstream.remember_followed(uri)
        with suppress(trio.WouldBlock):  # then it is followed with the next connection
            self._follow.send_nowait((uri, asked))

    def claim(self, uri: str, asked: AgentRequest) -> Claim | None:
        lists, theirs = self._upstream.lists, self._addresses.theirs(uri)
        accepted = lists.tools or lists.prompts or lists.resources or lists.resource_templates
        if "resources" not in lists.features or not accepted or self._upstream.withheld.has(theirs):
            return None
        if leads_astray(uri):
            return None
        if is_page(uri) and uri not in lists.pages:
            return None  # a page is drawn beside a tool that was accepted with it, or not at all
        if theirs != uri or self._given.has(asked, uri):
            return "given"
        return "alike" if scheme_of(uri) in lists.schemes else "possible"

    async def call(self, call: ToolCall, outlet: Outlet) -> ToolResult:
        try:
            return await self._call(call, outlet)
        except AccountNeeded as needed:
            if "elicitation.url" not in call.can:
                raise
            page = {"mode": "url", "message": needed.message, "url": needed.url}
            question = Question(method="elicitation/create", params=page)
            answers = await outlet.ask({ACCOUNT: question})
            if answers[ACCOUNT].get("action") != "accept" or not await needed.connected():
                raise
        return await self._call(call, outlet)

    async def _call(self, call: ToolCall, outlet: Outlet) -> ToolResult:
        outlet = SourcedOutlet(outlet, self._source)
        lists = self._upstream.lists
        theirs = lists.tool_names.get(call.tool)
        if theirs is None:
            raise BackendError(f"{self._called} does not offer this tool any more")
        buyer = self._buyer
        self._calls += 1
        try:
            if buyer is None:
                raw = await self._answer(call, theirs, lists, outlet, NO_META, NO_HEADERS)
            else:
                send = partial(self._answer, call, theirs, lists, outlet)
                listed, mark_up = lists.prices.get(call.tool), self._mark_up
                most = None if mark_up is None else most_for(call, listed, mark_up)
                raw = await buyer.buy(call, theirs, send, most)
            if self._tell_receipt is not None and (receipt := upstream_results.signed_receipt(raw)):
                await self._tell_receipt(
                    GivenReceipt(
                        text=receipt,
                        issuer=self._issuer,
                        upstream=self._config.id,
                        tool=call.tool,
                        call_id=call.call_id,
                        caller=call.caller,
                    )
                )
            result = self._addresses.tool_result(upstream_results.tool_result(raw))
            linked, said = False, result.meta is not None
            for block in result.content:
                linked = linked or isinstance(block, ResourceLink | EmbeddedResource)
                said = said or block.meta is not UNSET
            if linked:
                self._given.note(call, named_in(result.content))
            return self._bounds.result(result) if linked or said else result
        except ServerFailure as failure:
            raise self._told(failure) from failure
        except ServerRefusal as refusal:
            raise upstream_results.error_of(refusal, about="tool") from refusal
        finally:
            self._calls -= 1

    async def _answer(
        self,
        call: ToolCall,
        theirs: str,
        lists: NamedLists,
        outlet: Outlet,
        meta: Mapping[str, Any],
        paid: Mapping[str, str],
    ) -> Raw:
        """Return the final result. `meta` and `paid` go along, in `_meta` and in headers."""
        task_id = None if call.resumed is None else kept_task(call)
        if task_id is not None:
            return await self._as_task(task_id, call, outlet)
        # Every call comes by here, and a block around it would cost more than what is in it.
        link = await self._take_link(call)
        try:
            modern = link.agreement.modern
            tasks = lists.tasks if modern else lists.session_tasks
            raw = await self._begin(link, call, theirs, lists, tasks.get(call.tool), outlet, meta, paid)
            if call.tool in tasks:
                task_id = created(raw, modern=modern)
        finally:
            self._turns.give_back(call.sharer)
        if task_id is None:
            return raw
        begun = msgspec.structs.replace(call, resumed=task_checkpoint(task_id, handshake=not modern))
        return await self._as_task(task_id, begun, outlet, fresh=True)

    @property
    def price_functions(self) -> frozenset[str]:
        return NO_FUNCTIONS if self._mark_up is None else PRICE_FUNCTIONS

    async def price(self, asked: PriceAsked) -> str:
        """Ask what a call costs: where that depends on the call, the upstream says so when it is called without a payment."""
        lists, buyer, mark_up = self._upstream.lists, self._buyer, self._mark_up
        theirs = lists.tool_names.get(asked.tool)
        if theirs is None or buyer is None or mark_up is None or asked.tool not in lists.prices:
            raise BackendError(f"{self._called} does not say what this costs")
        call = ToolCall(
            tool=asked.tool,
            arguments=asked.arguments,
            subject=asked.subject,
            sharer=asked.sharer,
            call_id=asked.call_id,
            caller=asked.caller,
            handshake=asked.handshake,
        )
        try:
            amount = await buyer.ask(call, theirs, partial(self._answer, call, theirs, lists, NOBODY))
        except ServerFailure as failure:
            raise self._told(failure) from failure
        return shown(mark_up.on(amount))

    async def read(self, read: ResourceRead, outlet: Outlet) -> Sequence[ResourceContents]:
        outlet = SourcedOutlet(outlet, self._source)
        theirs = self._addresses.theirs(read.uri)
        async with self._turn(read, "resource") as link:
            headers = name_header(theirs) if link.agreement.modern else NO_HEADERS
            params = self._with_meta({"uri": theirs}, read)
            raw = await self._use(link, "resources/read", params, read, outlet, headers)
            contents = upstream_results.contents(raw)
            if is_page(theirs):
                self._check_page(theirs, contents)
            ours = [self._bounds.of(each) for each in self._addresses.contents(contents, read.uri)]
            self._given.note(read, [each.uri for each in ours])
            return ours

    def _check_page(self, theirs: str, contents: Sequence[ResourceContents]) -> None:
        """Check that a page is the one that was accepted. Raises `BackendError`."""
        if not self._guard.pins_pages:
            return
        try:
            refused = self._guard.page_refused(page_of(theirs, contents))
        except ValueError as problem:
            refused = f"the page of {self._called} cannot be shown: {problem}"
        if refused is not None:
            self._upstream.read_again()
            raise BackendError(refused)

    async def get_prompt(self, get: PromptGet, outlet: Outlet) -> PromptResult:
        outlet = SourcedOutlet(outlet, self._source)
        theirs = self._upstream.lists.prompt_names.get(get.prompt)
        if theirs is None:
            raise BackendError(f"{self._called} does not offer this prompt any more")
        params = self._with_meta({"name": theirs, "arguments": get.arguments}, get)
        async with self._turn(get, "prompt") as link:
            headers = name_header(theirs) if link.agreement.modern else NO_HEADERS
            raw = await self._use(link, "prompts/get", params, get, outlet, headers)
            result = self._addresses.prompt_result(upstream_results.prompt_result(raw))
            self._given.note(get, named_in([each.content for each in result.messages]))
            return self._bounds.prompt(result)

    async def complete(self, asked: Completing) -> CompletionResult:
        if asked.ref == "prompt":
            names = self._upstream.lists.prompt_names
            ref = {"type": "ref/prompt", "name": names.get(asked.name, asked.name)}
        else:
            ref = {"type": "ref/resource", "uri": self._addresses.theirs(asked.name)}
        params: dict[str, Any] = {"ref": ref, "argument": {"name": asked.argument, "value": asked.value}}
        if asked.known:
            params["context"] = {"arguments": asked.known}
        async with self._turn(asked, "prompt") as link:
            return upstream_results.completion(await link.request("completion/complete", params, call=asked))

    async def aclose(self) -> None:
        """Do nothing: nothing is held beyond `run`."""

    def _with_meta(self, params: dict[str, Any], call: AgentRequest) -> Mapping[str, Any]:
        traceparent = None if call.origin is None else call.origin.traceparent
        carried = self._carried.of(call.came, traceparent)
        return params if carried is None else {**params, "_meta": carried}

    async def _begin(
        self,
        link: Link,
        call: ToolCall,
        theirs: str,
        lists: NamedLists,
        support: str | None,
        outlet: Outlet,
        meta: Mapping[str, Any],
        paid: Mapping[str, str],
    ) -> Raw:
        params: dict[str, Any] = {"name": theirs, "arguments": call.arguments}
        traceparent = None if call.origin is None else call.origin.traceparent
        if (call.came is not None or traceparent is not None) and (
            carried := self._carried.of(call.came, traceparent)
        ) is not None:
            meta = {**carried, **meta}
        if meta:
            params["_meta"] = meta
        # Whoever waits for the answer is best served without a task, if its author leaves that open.
        as_task = support is not None and (
            call.unhurried or support == "required" or call.tool in self._tasks_only
        )
        if as_task and _without_tasks(call):
            if support == "required":  # it would be refused there as well
                raise CannotAsk(needs_tasks(call.tool), REQUIRED_CAPABILITY)
            as_task = False  # whether it is always one still is for the server to say
        headers = paid
        if link.agreement.modern:
            headers = {**name_header(theirs), **paid} if paid else name_header(theirs)
            schema = lists.input_schemas.get(call.tool)
            if schema is not None:  # some arguments are repeated in headers
                headers = {**headers, **parameter_headers(schema, call.arguments)}
        elif as_task:
            params["task"] = {"ttl": TASK_TTL_MS}
        try:
            return await use(
                link,
                "tools/call",
                params,
                call,
                outlet,
                parking=self._upstream.parking,
                questions=self._questions,
                headers=headers,
                tasks=as_task,
            )
        except ServerRefusal as refusal:
            if as_task or support is None or not wants_tasks(refusal):
                raise
            if _without_tasks(call):
                raise CannotAsk(needs_tasks(call.tool), REQUIRED_CAPABILITY) from refusal
        # In the stateless era only a refusal says that a tool is always a task. Nothing was done yet.
        self._tasks_only.add(call.tool)
        return await self._begin(link, call, theirs, lists, support, outlet, meta, paid)

    async def _as_task(self, task_id: str, call: ToolCall, outlet: Outlet, *, fresh: bool = False) -> Raw:
        async def wait(link: Link, params: Mapping[str, Any], line: Outlet) -> Raw:
            return await self._use(link, "tasks/result", params, call, line, NO_HEADERS)

        kept = task_checkpoint(task_id, handshake=by_handshake(call))
        try:
            if fresh:
                await outlet.checkpoint(kept)
                await outlet.become_task()
            with self._upstream.engaging(call):
                link = partial(self._task_link, call)
                return await follow_task(task_id, call, outlet, link, wait, kept=kept)
        except ServerFailure as failure:
            if failure.fate == "not made":  # what was not is a question about the task
                failure.fate = "unknown"
            raise
        except trio.Cancelled:
            with suppress(trio.WouldBlock):  # it ends there by itself some time
                self._give_up.send_nowait((task_id, call))
            raise

    async def _use(
        self,
        link: Link,
        method: str,
        params: Mapping[str, Any],
        call: AgentRequest,
        outlet: Outlet,
        headers: Mapping[str, str],
    ) -> Raw:
        return await use(
            link,
            method,
            params,
            call,
            outlet,
            parking=self._upstream.parking,
            questions=self._questions,
            headers=headers,
        )

    @asynccontextmanager
    async def _turn(self, call: AgentRequest, about: str) -> AsyncGenerator[Link]:
        """Give a connection, and raise its failures as callers are told them."""
        try:
            async with self._link(call) as link:
                yield link
        except ServerFailure as failure:
            raise self._told(failure) from failure
        except ServerRefusal as refusal:
            raise upstream_results.error_of(refusal, about=about) from refusal

    def _told(self, failure: ServerFailure) -> BackendError:
        self._upstream.refuse(failure)
        return FATES[failure.fate](f"{self._called} {failure}")

    @asynccontextmanager
    async def _link(self, call: AgentRequest) -> AsyncGenerator[Link]:
        link = await self._take_link(call)
        try:
            yield link
        finally:
            self._turns.give_back(call.sharer)

    @asynccontextmanager
    async def _task_link(self, call: ToolCall) -> AsyncGenerator[Link]:
        """Give a connection of the era that the task of this call was begun in. Raises `ServerGone` where there is none now."""
        async with self._link(call) as link:
            if link.agreement.modern and by_handshake(call):
                raise ServerGone("begins no session now, and this task was begun in one")
            yield link

    async def _take_link(self, call: AgentRequest) -> Link:
        """Take a connection and one of the places of calls, which is to be given back. Raises `Busy` and `ServerFailure`."""
        # What nobody waits for any more is not begun.
        if is_cancelled():
            await trio.lowlevel.checkpoint()
        if not self._turns.take_nowait(call.sharer):
            try:
                await self._turns.take(call.sharer, unhurried=call.unhurried)
            except NoTurn as error:
                raise Busy(str(error)) from error
        try:
            if (callers := self._upstream.callers) is not None:
                return await callers.of(call)
            link = self._upstream.link_nowait() or await self._upstream.link()
            sessions = link.in_sessions
            return link if sessions is None or not by_handshake(call) else sessions
        except ServerGone as gone:
            self._turns.give_back(call.sharer)
            raise ServerAway(str(gone), more=gone.more) from gone
        except BaseException:
            self._turns.give_back(call.sharer)
            raise

    async def _run_upstream(self, announce: Announce, *, task_status: trio.TaskStatus[None]) -> None:
        def updated(uri: str, apart: str = "") -> None:
            for each in (self._addresses.ours(uri), self._addresses.other(uri)):
                if each is not None and apart:
                    announce.own_resource(each, apart)
                elif each is not None:
                    announce.resource(each)

        await self._upstream.run(announce.lists, updated, task_status=task_status)

    async def _cancel_tasks(self) -> None:
        async with trio.open_nursery() as nursery:
            async for task_id, call in self._given_up:
                nursery.start_soon(self._cancel_task, task_id, call)

    async def _cancel_task(self, task_id: str, call: ToolCall) -> None:
        """Cancel a task once it is clear that its call is given up: a server that is only being stopped asks for it again."""
        await trio.sleep(LET_GO_SECONDS)
        engaging = self._upstream.engaging(call)
        with engaging, trio.move_on_after(CANCEL_SECONDS), suppress(BackendError, ServerRefusal):
            await cancel_task(task_id, call, partial(self._task_link, call))

    async def _follow_resources(self) -> None:
        async def work() -> None:
            async for uri, asked in self._followed:
                await self._follow_resource(uri, asked)

        async with trio.open_nursery() as nursery:
            for _ in range(FOLLOWED_AT_ONCE):
                nursery.start_soon(work)

    async def _follow_resource(self, uri: str, asked: AgentRequest | None) -> None:
        # As in `follow`; and a server that does not answer is waited for no longer.
        with trio.move_on_after(CANCEL_SECONDS), suppress(BackendError, ServerRefusal):
            link = await (self._upstream.link() if asked is None else self._upstream.link_of(asked))
            agreed = link.agreement
            if asked is not None and not agreed.modern and not agreed.has("resources", "subscribe"):
                # It tells of changes in the other era alone, in which ours may listen.
                asked, link = None, await self._upstream.link()
                self._upstream.remember_followed(uri)
            await link.follow_resource(uri, asked)


def _without_tasks(call: ToolCall) -> bool:
    return call.origin is not None and call.origin.without_tasks


def _mark_up(written: str) -> MarkUp | None:
    return read_mark_up(written) if written else None
