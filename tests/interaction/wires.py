"""A client of any era over either wire, so that one test says what holds on all of them. Everything is in memory."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import trio
import trio.testing

from server.agents.base.catalog import Source
from server.calls.servers.endpoint import Endpoint
from server.calls.sessions.sessions import Sessions
from server.calls.sessions.subscriptions import task_topic
from server.calls.tasks.task_engine import Tasks
from tests.interaction.agents import USER, House
from tests.interaction.clients import Client
from tests.interaction.everything import everything
from tests.interaction.pipe_client import PipeClient, pipe
from tests.interaction.session_house import living
from tests.interaction.task_engine import engine
from tests.interaction.web_client import WebClient
from tests.pair import talk
from tests.requirements import Cell


@asynccontextmanager
async def client(
    cell: Cell,
    *sources: Source,
    capabilities: Mapping[str, Any] | None = None,
    handshake: bool = True,
    initialized: bool = True,
    tasks: bool = False,
    wasmagent: bool = False,
    batches: bool = False,
    **how: Any,
) -> AsyncGenerator[Client]:
    """A client that has, in the handshake era, agreed on the cell's revision. Over HTTP it is logged in as `USER`. Without
    sources the server has `everything`; `tasks` adds an engine that keeps them in memory. `wasmagent` and `batches` are
    switches for old clients."""
    async with AsyncExitStack() as stack:
        engines: list[Tasks] = []
        changed: list[Callable[[str], None]] = []
        endpoints: dict[str, Endpoint] = {}
        if tasks:
            how["tasks"] = await stack.enter_async_context(
                engine(engines, changed, endpoints, wasmagent=wasmagent)
            )
        how.setdefault("tokens", {"t": USER})
        sessions = Sessions()
        made = (
            await stack.enter_async_context(living(*(sources or (everything(),)), sessions=sessions, **how))
        ).house
        endpoints["main"] = made.endpoint
        if made.tokens is not None:
            made.pair.headers = {"authorization": "Bearer t"}
        nursery = await stack.enter_async_context(trio.open_nursery())
        stack.callback(nursery.cancel_scope.cancel)
        changed.append(lambda task_id: made.subscriptions.publish(task_topic(task_id)))
        for keeper in engines:
            await nursery.start(keeper.run)
        declared = {} if capabilities is None else capabilities
        endpoint: Any = made.mcp
        endpoint._batches_widened = batches
        one: Client
        if cell.transport == "http":
            one = await _web(cell, made, declared, handshake=handshake, initialized=initialized)
        else:
            one = pipe(cell, made, sessions, declared, widened=batches)
            nursery.start_soon(one.run)
            if handshake and not cell.modern:
                await _shake_hands(one, initialized=initialized)
        yield one


async def _web(
    cell: Cell, made: House, capabilities: Mapping[str, Any], *, handshake: bool, initialized: bool
) -> WebClient:
    one = WebClient(cell, made, capabilities)
    if handshake and not cell.modern:
        one.talk = await talk(
            made.pair, version=cell.version, capabilities=capabilities, initialized=initialized
        )
        one.welcome = one.talk.welcome.json["result"]
    return one


async def _shake_hands(one: PipeClient, *, initialized: bool) -> None:
    params = {
        "protocolVersion": one.cell.version,
        "capabilities": one.capabilities,
        "clientInfo": {"name": "pipe", "version": "1"},
    }
    one.welcome = (await one.ask("initialize", params)).result
    if initialized:
        await one.note("notifications/initialized")
        await trio.testing.wait_all_tasks_blocked()  # it has been read
