"""An agent that is a Python file or module of its owner's: its functions are tools, resources and prompts.

Its process is one of the owner's own interpreter, because the executable holds none but its own modules, and because what goes
wrong there must not go wrong here. The package that it imports is in `server/agents/python/shim`; the lines that the two
exchange are in agent_lines.py, the process that works is in agent_process.py, and how it is kept at work in process_keeper.py.
Here: a call on its way there and back. Settings: python_settings.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar, cast

import trio
from msgspec import UNSET, Raw

from server.agents.base.backend import (
    AgentRequest,
    Announce,
    Completing,
    Feature,
    PriceAsked,
    PromptGet,
    ResourceRead,
    ToolCall,
    Trouble,
)
from server.agents.base.child_process import start_child
from server.agents.python import agent_lines, call_endings
from server.agents.python.find_interpreter import find_interpreter
from server.agents.python.interpreter import check_interpreter
from server.agents.python.offer import AgentOffer
from server.agents.python.process_keeper import Keeper
from server.agents.python.python_settings import PythonConfig
from server.lib.line_peer import Peer
from server.lib.log.logger import Logger
from server.mcp.app_pages import pages_in
from server.mcp.call_outlet import NullOutlet, Outlet
from server.mcp.carried_extensions import APPS, USUAL
from server.mcp.messages import Prompt, Resource, ResourceContents, ResourceTemplate, Tool
from server.mcp.result_encoding import CompletionResult, PromptResult, ToolResult

SHIM: Final = Path(__file__).parent / "shim"
_Make: TypeAlias = Callable[
    ..., agent_lines.DoCall
]  # wants the `context` of the call, and its number as `id`


# Where the package that files import puts the tags of what it offers.
TAGS: Final = "io.ostiary/tags"
LOGS: Final[frozenset[Feature]] = frozenset({"logging"})
LISTENED_TO: Final[frozenset[Feature]] = frozenset({"logging", "subscribe"})
_Offered = TypeVar("_Offered", Tool, Resource, ResourceTemplate, Prompt)


def tags_of(offered: Tool | Resource | ResourceTemplate | Prompt) -> frozenset[str]:
    tags: Any = () if offered.meta is UNSET else offered.meta.get(TAGS)
    items = cast("list[Any]", tags) if isinstance(tags, list) else ()
    return frozenset(each for each in items if isinstance(each, str))


class PythonBackend:
    """A `Backend`, a `Library`, `DeclaresFeatures`, `HasDeadlines`, `CoercesArguments`, `Pricing`, `Watched` and `Active`: it offers nothing
    until it runs."""

    def __init__(
        self,
        config: PythonConfig,
        *,
        environment: Mapping[str, str],
        name: str,
        log: Logger,
        shim: Path = SHIM,
    ) -> None:
        """Find the file and the interpreter. `environment` is what the process gets to see, `name` is for the log.

        Raises `ValueError` for settings that turn out not to work."""
        file = Path(config.file).expanduser().absolute() if config.file else None
        if file is not None and not file.is_file():
            raise ValueError(f"there is no file {file}")
        self._config = config
        self._headers = tuple(name.lower() for name in config.pass_headers)
        self._environment = environment
        self._python = ""
        watched = (str(file),) if file else ()
        if config.in_process:
            from server.agents.python.inprocess import start_thread

            start = partial(start_thread, file, config.module, threads=config.threads, shim=shim)
        else:
            self._python = find_interpreter(config.python, file.parent if file else Path.cwd())
            start = self._starter(file, name, log, shim)
        self._keeper = Keeper(
            start,
            # What is loaded into this very process stays what it was.
            watched=watched if config.reload and not config.in_process else None,
            # A thread of ours cannot be ended, and neither can those of its functions.
            exchanged_when_stuck=not config.in_process,
            calls_at_once=config.calls_at_once,
            start_seconds=config.start_seconds,
            longest_call=lambda offer: max((config.deadline_seconds, *offer.deadlines.values())),
            name=name,
            log=log,
        )

    async def run(self, announce: Announce, *, task_status: trio.TaskStatus[None]) -> None:
        """Keep a process at work. Raises `BackendError` where the agent cannot be loaded."""
        if self._python:
            await check_interpreter(self._python, self._environment)
        await self._keeper.run(announce.lists, announce.resource, task_status=task_status)

    @property
    def features(self) -> frozenset[Feature]:
        """Any function may write to its caller's log, and say that a resource has changed."""
        offer = self._offer
        return LISTENED_TO if offer.resources or offer.resource_templates else LOGS

    def tools(self) -> Sequence[Tool]:
        return self._tagged(self._offer.tools)

    def resources(self) -> Sequence[Resource]:
        return self._tagged(self._offer.resources)

    def resource_templates(self) -> Sequence[ResourceTemplate]:
        return self._tagged(self._offer.resource_templates)

    def prompts(self) -> Sequence[Prompt]:
        return self._tagged(self._offer.prompts)

    def extensions(self) -> Mapping[str, Mapping[str, Any]]:
        """Return that it has pages, if it has."""
        named = (tool.meta for tool in self._offer.tools if tool.meta is not UNSET)
        return {APPS: USUAL[APPS]} if any(any(pages_in(meta)) for meta in named) else {}

    def completes(self) -> frozenset[tuple[str, str]]:
        return self._offer.completes

    def coerces(self, tool: str) -> bool:
        return tool in self._offer.lenient

    def deadline(self, tool: str) -> float | None:
        return self._offer.deadlines.get(tool)

    async def call(self, call: ToolCall, outlet: Outlet) -> ToolResult:
        make = partial(
            agent_lines.CallTool,
            context=agent_lines.curious_context_of(call, self._headers)
            if call.tool in self._keeper.offer.curious
            else agent_lines.context_of(call),
            name=call.tool,
            arguments=call.arguments,
        )
        worker = self._keeper.worker_nowait() or await self._keeper.worker()
        finished = await worker.call(
            make, outlet, sharer=call.sharer, unhurried=call.unhurried, origin=call.origin
        )
        return call_endings.tool_answer(finished.result)

    async def read(self, read: ResourceRead, outlet: Outlet) -> Sequence[ResourceContents]:
        make = partial(
            agent_lines.ReadResource, uri=read.uri, template=read.template, arguments=read.arguments
        )
        return call_endings.contents(await self._ask(make, read, outlet))

    async def get_prompt(self, get: PromptGet, outlet: Outlet) -> PromptResult:
        make = partial(agent_lines.GetPrompt, name=get.prompt, arguments=get.arguments)
        return call_endings.prompt(await self._ask(make, get, outlet))

    async def complete(self, asked: Completing) -> CompletionResult:
        make = partial(
            agent_lines.Complete,
            ref=asked.ref,
            name=asked.name,
            argument=asked.argument,
            value=asked.value,
            known=asked.known,
        )
        nobody = NullOutlet("nobody can be asked for the sake of a completion")
        return call_endings.completion(await self._ask(make, asked, nobody))

    @property
    def price_functions(self) -> frozenset[str]:
        return self._offer.price_functions

    async def price(self, asked: PriceAsked) -> str:
        make = partial(agent_lines.AskPrice, name=asked.function, tool=asked.tool, arguments=asked.arguments)
        nobody = NullOutlet("nobody can be asked for the sake of a price")
        return call_endings.said_price(await self._ask(make, asked, nobody))

    def trouble(self) -> Trouble | None:
        return self._keeper.trouble.found

    async def aclose(self) -> None:
        """Do nothing: nothing is held beyond `run`."""

    @property
    def busy(self) -> bool:
        return self._keeper.busy

    def _tagged(self, offered: Sequence[_Offered]) -> Sequence[_Offered]:
        """Return those that the settings leave, by their tags."""
        wanted, unwanted = self._config.include_tags, self._config.exclude_tags
        if not wanted and not unwanted:
            return offered
        return [
            each
            for each in offered
            if (not wanted or not tags_of(each).isdisjoint(wanted)) and tags_of(each).isdisjoint(unwanted)
        ]

    @property
    def _offer(self) -> AgentOffer:
        return self._keeper.offer

    async def _ask(self, make: _Make, asked: AgentRequest, outlet: Outlet) -> Raw:
        """Return the result. Raises `BackendError`, and whatever comes out of `outlet`."""
        make = partial(make, context=agent_lines.curious_context_of(asked, self._headers))
        worker = self._keeper.worker_nowait() or await self._keeper.worker()
        return (await worker.call(make, outlet, sharer=asked.sharer, origin=asked.origin)).result

    def _starter(self, file: Path | None, name: str, log: Logger, shim: Path) -> Callable[[], Peer]:
        what = ("--file", str(file)) if file else ("--module", self._config.module)
        threads = str(self._config.threads)

        def command(reading: int, writing: int) -> Sequence[str]:
            # UTF-8, whatever the locale is; and what it prints is in the log at once.
            python = (self._python, "-u", "-X", "utf8", str(shim / "run.py"))
            return (*python, *what, "--threads", threads, "--fds", f"{reading},{writing}")

        return partial(start_child, command, self._environment, name=name, log=log)
