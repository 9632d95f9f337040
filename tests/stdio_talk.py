"""A client at the other end of a conversation over stdio, in memory, and an agent that has one of everything."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import trio

from auth.values.identity_model import Principal, PrincipalKind
from server.agents.base.backend import AgentRequest, Completing, Feature, PromptGet, ResourceRead, ToolCall
from server.agents.base.catalog import Source
from server.calls.sessions.sessions import Sessions
from server.mcp.call_outlet import LogMessage, Outlet, Progress
from server.mcp.messages import (
    Prompt,
    PromptArgument,
    PromptMessage,
    Resource,
    ResourceContents,
    ResourceTemplate,
    TextContent,
)
from server.mcp.result_encoding import CompletionResult, PromptResult, ToolResult
from server.transport.stdio.stdio_conversation import PipeConversation
from tests.interaction.agents import Agent, House, house, says
from tests.interaction.session_house import asks
from tests.pair import META

LOCAL = Principal(kind=PrincipalKind.LOCAL, subject="local:1000")
LINE_BYTES = 100_000
DRAIN_SECONDS = 10.0
ELICITS = {"elicitation": {}}
# More than anything here takes by itself, counted on the clock that jumps.
PATIENCE_SECONDS = 60


@dataclass
class Everything(Agent):
    """Tools, and a shelf with a resource, a template and a prompt."""

    features: frozenset[Feature] = frozenset({"subscribe", "logging"})
    begun: int = 0
    stopped: int = 0
    go_on: trio.Event = field(default_factory=trio.Event)

    def __post_init__(self) -> None:
        async def hangs(_call: AgentRequest, _outlet: Outlet) -> ToolResult:
            self.begun += 1
            try:
                await self.go_on.wait()
            except trio.Cancelled:
                self.stopped += 1
                raise
            return says("gone on")

        self.work |= {"echo": echo, "reports": reports, "logs": logs, "asks": asks, "hangs": hangs}

    def resources(self) -> list[Resource]:
        return [Resource(uri="test://one", name="one")]

    def resource_templates(self) -> list[ResourceTemplate]:
        return [ResourceTemplate(uri_template="test://at/{place}", name="at")]

    def prompts(self) -> list[Prompt]:
        return [Prompt(name="greet", arguments=[PromptArgument(name="whom", required=True)])]

    def completes(self) -> frozenset[tuple[str, str]]:
        return frozenset({("prompt", "greet")})

    async def read(self, read: ResourceRead, outlet: Outlet) -> list[ResourceContents]:
        return [ResourceContents(uri=read.uri, text=f"read {read.uri}")]

    async def get_prompt(self, get: PromptGet, outlet: Outlet) -> PromptResult:
        text = TextContent(text=f"hello {get.arguments['whom']}")
        return PromptResult(messages=[PromptMessage(role="user", content=text)])

    async def complete(self, asked: Completing) -> CompletionResult:
        return CompletionResult(values=[asked.value + "ella"])


async def echo(call: ToolCall, _outlet: Outlet) -> ToolResult:
    return says(str(call.arguments.get("text")))


async def reports(_call: ToolCall, outlet: Outlet) -> ToolResult:
    for step in (1, 2):
        await outlet.emit(Progress(progress=step, total=2))
        await trio.sleep(1)
    return says("done")


async def logs(_call: ToolCall, outlet: Outlet) -> ToolResult:
    for level in ("debug", "warning"):
        await outlet.emit(LogMessage(level=level, data=level))
    return says("logged")


@dataclass
class Client:
    house: House
    sessions: Sessions
    stopping: trio.Event
    over: trio.Event
    _say: trio.MemorySendChannel[bytes]
    _said: trio.MemoryReceiveChannel[bytes]

    async def put(self, raw: bytes) -> None:
        """Bytes into the pipe."""
        await self._say.send(raw)

    async def say(self, *messages: Any) -> None:
        await self.put(b"".join(json.dumps(message).encode() + b"\n" for message in messages))

    async def hear(self) -> Any:
        with trio.fail_after(PATIENCE_SECONDS):
            return json.loads(await self._said.receive())

    async def hear_until(self, request_id: Any) -> list[Any]:
        """Everything up to the answer to that request."""
        heard: list[Any] = []
        while not heard or heard[-1].get("id") != request_id or "method" in heard[-1]:
            heard.append(await self.hear())
        return heard

    async def rest(self) -> list[Any]:
        """Everything until the end."""
        with trio.fail_after(PATIENCE_SECONDS):
            return [json.loads(line) async for line in self._said]

    async def answers(self, *messages: Any) -> Any:
        """What is answered to the last of them, which is a request."""
        await self.say(*messages)
        return (await self.hear_until(messages[-1]["id"]))[-1]

    async def result(self, message: Any) -> Any:
        answer = await self.answers(message)
        assert "result" in answer, answer
        return answer["result"]

    async def shake_hands(self, version: str = "2025-11-25", capabilities: Any = None) -> Any:
        params = {
            "protocolVersion": version,
            "capabilities": capabilities or {},
            "clientInfo": {"name": "t", "version": "1"},
        }
        result = await self.result(legacy("initialize", params, id="hands"))
        await self.say(note("initialized"))
        return result

    async def hang_up(self) -> None:
        await self._say.aclose()


def legacy(method: str, params: Any = None, *, id: Any = 1) -> dict[str, Any]:  # noqa: A002
    """One that introduces itself says what else it has to."""
    if method == "initialize":
        params = {"capabilities": {}, "clientInfo": {"name": "talk", "version": "1"}, **(params or {})}
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params or {}}


def modern(method: str, params: Any = None, *, id: Any = 1, can: Any = None, **meta: Any) -> dict[str, Any]:  # noqa: A002
    added = {**META, "io.modelcontextprotocol/clientCapabilities": can or {}, **meta}
    return legacy(method, {**(params or {}), "_meta": added}, id=id)


def note(name: str, params: Any = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": f"notifications/{name}", "params": params or {}}


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"name": tool, "arguments": arguments}


@asynccontextmanager
async def talking(
    *sources: Source, widened: bool = False, reads: bool = True, **how: Any
) -> AsyncGenerator[Client]:
    """`reads` False: the client has closed the end that we write to."""
    sessions = Sessions()
    made = house(*(sources or (shelf(Everything({})),)), sessions=sessions, **how)
    say, said_to_us = trio.open_memory_channel[bytes](0)
    we_say, said = trio.open_memory_channel[bytes](0)

    async def read() -> bytes:
        try:
            return await said_to_us.receive()
        except trio.EndOfChannel:
            return b""

    async def write(lines: bytes) -> None:
        if not reads:
            raise BrokenPipeError
        for line in lines.split(b"\n"):
            await we_say.send(line)

    client = Client(made, sessions, trio.Event(), trio.Event(), say, said)
    conversation = PipeConversation(
        made.endpoint,
        sessions,
        LOCAL,
        boot_id="boot",
        max_line=LINE_BYTES,
        drain_seconds=DRAIN_SECONDS,
        widened=widened,
    )

    async def run() -> None:
        async with we_say:
            await conversation.run(read, write, stopping=client.stopping)
        client.over.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        yield client
        nursery.cancel_scope.cancel()
    for channel in (say, said_to_us, we_say, said):
        channel.close()


def shelf(backend: Agent) -> Source:
    return Source(name="agent", backend=backend)


def texts(results: Sequence[Any]) -> list[str]:
    return [result["content"][0]["text"] for result in results]
