"""A back-end that is somebody else's MCP server: its tools, resources and prompts are offered on, and each use of them is passed on."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any, Final

import msgspec
import trio
from msgspec import Raw

from server.backends.base import (
    AgentRequest,
    Announce,
    BackendError,
    Completing,
    Outlet,
    PromptGet,
    ResourceRead,
    ToolCall,
    Trouble,
    Watched,
)
from server.backends.turns import SharedPlaces
from server.client.headers import parameter_headers
from server.gateway import results
from server.gateway.credentials import AccountNeeded, Credential
from server.gateway.guard import OfferGuard
from server.gateway.http import name_header
from server.gateway.link import NO_HEADERS, Link
from server.gateway.messages import UpstreamFailure, UpstreamRefusal
from server.gateway.names import NamedLists, theirs_of
from server.gateway.rounds import use
from server.gateway.settings import McpConfig
from server.gateway.tasks import TASK, cancel_task, created, follow_task, kept_task
from server.gateway.upstream import Upstream
from server.mcp.messages import Prompt, Resource, ResourceContents, ResourceTemplate, Tool
from server.mcp.questions import Question
from server.mcp.results import CompletionResult, PromptResult, ToolResult
from server.observe.log import Logger

FOLLOWED_WAITING: Final = 64
GIVEN_UP_WAITING: Final = 256
CANCEL_SECONDS: Final = 15.0
TASK_TTL_MS: Final = 24 * 3_600_000
ACCOUNT: Final = "io.ostiary/account"  # the key of our own question, which no upstream uses


class McpBackend:
    """A `Backend`, a `LibraryBackend`, `Active`, `Watched`, `Foreign`, `Withholding`, `Elsewhere` and `Following`: it offers nothing until its
    upstream is there."""

    def __init__(
        self,
        config: McpConfig,
        *,
        credential: Credential,
        guard: OfferGuard,
        environment: Mapping[str, str],
        name: str,
        log: Logger,
    ) -> None:
        """`environment` is what a child process gets to see, `name` is for the log. Raises `ValueError` for settings that turn
        out not to work."""
        self._upstream = Upstream(
            config, credential=credential, guard=guard, environment=environment, name=name, log=log
        )
        self._questions = frozenset(config.questions)
        self._called = f"the upstream {config.id}" if config.id else "the upstream"
        self._elsewhere = config.id.replace("_", "-") + "+" if config.id else ""
        self._places = SharedPlaces(config.calls_at_once)
        self._give_up, self._given_up = trio.open_memory_channel[tuple[str, ToolCall]](GIVEN_UP_WAITING)
        self._config = config
        self._guard = guard
        self._credential = credential
        self._follow, self._followed = trio.open_memory_channel[str](FOLLOWED_WAITING)

    async def run(self, announce: Announce, *, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow_resources)
            nursery.start_soon(self._cancel_tasks)
            await nursery.start(self._run_upstream, announce)
            task_status.started()

    def trouble(self) -> Trouble | None:
        """What its owner can do something about comes first."""
        credential, guard = self._credential, self._guard
        if isinstance(credential, Watched) and (found := credential.trouble()) is not None:
            return found
        if (found := self._upstream.trouble) is not None:
            return found
        return guard.trouble() if isinstance(guard, Watched) else None

    @property
    def speaks_for(self) -> str:
        return self._called

    def withheld(self, tool: str) -> str | None:
        theirs = theirs_of(tool, self._config)
        return None if theirs is None else self._guard.withheld(theirs)

    def try_again(self) -> None:
        self._upstream.try_again()

    def tools(self) -> Sequence[Tool]:
        return self._upstream.lists.tools

    def resources(self) -> Sequence[Resource]:
        return self._upstream.lists.resources

    def resource_templates(self) -> Sequence[ResourceTemplate]:
        return self._upstream.lists.resource_templates

    def prompts(self) -> Sequence[Prompt]:
        return self._upstream.lists.prompts

    def completes(self) -> frozenset[tuple[str, str]]:
        known = self._upstream.lists.completes
        return (
            known
            if not self._elsewhere
            else known | {(kind, self._elsewhere + name) for kind, name in known if kind == "resource"}
        )

    def elsewhere(self, address: str) -> str | None:
        return self._elsewhere + address if self._elsewhere else None

    def _theirs(self, address: str) -> str:
        """What was offered under another address (`elsewhere`) by their own."""
        return address.removeprefix(self._elsewhere) if self._elsewhere else address

    def follow(self, uri: str) -> None:
        uri = self._theirs(uri)
        if uri in self._upstream.followed:
            return
        self._upstream.remember_followed(uri)
        with suppress(trio.WouldBlock):  # then it is followed with the next connection
            self._follow.send_nowait(uri)

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
        lists = self._upstream.lists
        theirs = lists.tool_names.get(call.tool)
        if theirs is None:
            raise BackendError(f"{self._called} does not offer this tool any more")
        with self._in_words("tool"):
            task_id = kept_task(call)
            if task_id is None:
                async with self._link(call) as link:
                    raw = await self._begin(link, call, theirs, lists, outlet)
                    if call.tool in lists.tasks:
                        task_id = created(raw, modern=link.agreement.modern)
                if task_id is None:
                    return results.tool_result(raw)
            return results.tool_result(await self._as_task(task_id, call, outlet))

    async def read(self, read: ResourceRead, outlet: Outlet) -> Sequence[ResourceContents]:
        theirs = self._theirs(read.uri)
        async with self._turn(read, "resource") as link:
            headers = name_header(theirs) if link.agreement.modern else NO_HEADERS
            raw = await self._use(link, "resources/read", {"uri": theirs}, read, outlet, headers)
            found = results.contents(raw)
        if theirs == read.uri:
            return found
        return [msgspec.structs.replace(each, uri=read.uri) if each.uri == theirs else each for each in found]

    async def get_prompt(self, get: PromptGet, outlet: Outlet) -> PromptResult:
        theirs = self._upstream.lists.prompt_names.get(get.prompt)
        if theirs is None:
            raise BackendError(f"{self._called} does not offer this prompt any more")
        params: Mapping[str, Any] = {"name": theirs, "arguments": get.arguments}
        async with self._turn(get, "prompt") as link:
            headers = name_header(theirs) if link.agreement.modern else NO_HEADERS
            raw = await self._use(link, "prompts/get", params, get, outlet, headers)
            return results.prompt_result(raw)

    async def complete(self, asked: Completing) -> CompletionResult:
        if asked.ref == "prompt":
            names = self._upstream.lists.prompt_names
            ref = {"type": "ref/prompt", "name": names.get(asked.name, asked.name)}
        else:
            ref = {"type": "ref/resource", "uri": self._theirs(asked.name)}
        params: dict[str, Any] = {"ref": ref, "argument": {"name": asked.argument, "value": asked.value}}
        if asked.known:
            params["context"] = {"arguments": asked.known}
        async with self._turn(asked, "prompt") as link:
            return results.completion(await link.request("completion/complete", params, call=asked))

    async def aclose(self) -> None:
        """Nothing is held beyond `run`."""

    async def _begin(self, link: Link, call: ToolCall, theirs: str, lists: NamedLists, outlet: Outlet) -> Raw:
        params: dict[str, Any] = {"name": theirs, "arguments": call.arguments}
        support = lists.tasks.get(call.tool)
        headers = NO_HEADERS
        if link.agreement.modern:
            headers = name_header(theirs)
            schema = lists.input_schemas.get(call.tool)
            if schema is not None:  # some arguments are repeated in headers
                headers = {**headers, **parameter_headers(schema, call.arguments)}
        elif support == "required" or (support is not None and call.unhurried):
            params["task"] = {"ttl": TASK_TTL_MS}
        return await self._use(link, "tools/call", params, call, outlet, headers, tasks=support is not None)

    async def _as_task(self, task_id: str, call: ToolCall, outlet: Outlet) -> Raw:
        async def wait(link: Link, params: Mapping[str, Any], line: Outlet) -> Raw:
            return await self._use(link, "tasks/result", params, call, line, NO_HEADERS)

        try:
            if kept_task(call) is None:
                await outlet.checkpoint({TASK: task_id})
                await outlet.become_task()
            return await follow_task(task_id, call, outlet, partial(self._link, call), wait)
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
        *,
        tasks: bool = False,
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
            tasks=tasks,
        )

    @asynccontextmanager
    async def _turn(self, call: AgentRequest, about: str) -> AsyncGenerator[Link]:
        with self._in_words(about):
            async with self._link(call) as link:
                yield link

    @contextmanager
    def _in_words(self, about: str) -> Generator[None]:
        """What goes wrong, as callers are told it."""
        try:
            yield
        except UpstreamFailure as error:
            self._upstream.refuse(error)
            raise BackendError(f"{self._called} {error}") from error
        except UpstreamRefusal as refusal:
            raise results.error_of(refusal, about=about) from refusal

    @asynccontextmanager
    async def _link(self, call: AgentRequest) -> AsyncGenerator[Link]:
        """With a place among those that run at once."""
        # What nobody waits for any more is not begun.
        await trio.lowlevel.checkpoint_if_cancelled()
        async with self._places.taken(call.sharer, unhurried=call.unhurried):
            yield self._upstream.link_nowait() or await self._upstream.link()

    async def _run_upstream(self, announce: Announce, *, task_status: trio.TaskStatus[None]) -> None:
        def updated(uri: str) -> None:
            announce.resource(uri)
            if self._elsewhere:
                announce.resource(self._elsewhere + uri)

        await self._upstream.run(announce.lists, updated, task_status=task_status)

    async def _cancel_tasks(self) -> None:
        async with trio.open_nursery() as nursery:
            async for task_id, call in self._given_up:
                nursery.start_soon(self._cancel_task, task_id, call)

    async def _cancel_task(self, task_id: str, call: ToolCall) -> None:
        with trio.move_on_after(CANCEL_SECONDS), suppress(BackendError, UpstreamRefusal):
            await cancel_task(task_id, call, partial(self._link, call))

    async def _follow_resources(self) -> None:
        async for uri in self._followed:
            try:
                link = await self._upstream.link()
                await link.follow_resource(uri)
            except (BackendError, UpstreamRefusal):
                continue  # as in `follow`
