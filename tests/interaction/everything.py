"""A back-end with a little of everything, for rules that hold whatever the agent is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from server.agents.base.backend import Completing, Feature, NoSuchResource, PromptGet, ResourceRead, ToolCall
from server.agents.base.catalog import Source
from server.mcp.call_outlet import LogMessage, Outlet, Progress
from server.mcp.messages import (
    Prompt,
    PromptArgument,
    PromptMessage,
    Resource,
    ResourceContents,
    ResourceTemplate,
    TextContent,
    Tool,
    ToolExecution,
)
from server.mcp.result_encoding import CompletionResult, PromptResult, ToolResult
from server.mcp.terms import CallTerms
from tests.interaction.agents import ANYTHING, Agent, Work, says
from tests.interaction.session_house import asks

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
STEPS = 3


class Everything(Agent):
    """Tools as given, and a library."""

    features: frozenset[Feature] = frozenset({"subscribe", "logging"})

    def resources(self) -> Sequence[Resource]:
        return [
            Resource(uri="test://one", name="one", title="One"),
            Resource(uri="test://empty", name="empty"),
            Resource(uri="test://asks", name="asks"),
        ]

    def resource_templates(self) -> Sequence[ResourceTemplate]:
        return [ResourceTemplate(uri_template="test://numbers/{n}", name="numbers", title="Numbers")]

    def prompts(self) -> Sequence[Prompt]:
        name = PromptArgument(name="name", required=True)
        return [Prompt(name="greet", title="Greet", arguments=[name]), Prompt(name="asks")]

    def completes(self) -> frozenset[tuple[str, str]]:
        return frozenset({("prompt", "greet"), ("resource", "test://numbers/{n}")})

    async def read(self, read: ResourceRead, outlet: Outlet) -> Sequence[ResourceContents]:
        if read.uri == "test://asks":
            await asks(ToolCall(tool="asks", arguments={}, subject="", call_id=""), outlet)
        if read.template is not None and not read.arguments["n"].isdigit():
            raise NoSuchResource("there is no such number")
        if read.uri == "test://empty":
            return []
        return [ResourceContents(uri=read.uri, mime_type="text/plain", text="content")]

    async def get_prompt(self, get: PromptGet, outlet: Outlet) -> PromptResult:
        if get.prompt == "asks":
            await asks(ToolCall(tool="asks", arguments={}, subject="", call_id=""), outlet)
        return PromptResult(
            messages=[PromptMessage(role="user", content=TextContent(text=f"{get.arguments}"))]
        )

    async def complete(self, asked: Completing) -> CompletionResult:
        if asked.known:
            return CompletionResult(values=[f"{name}={value}" for name, value in asked.known.items()])
        return CompletionResult(values=[f"{asked.value}{n}" for n in range(150)])


async def plain(call: ToolCall, outlet: Outlet) -> ToolResult:
    return says("done")


async def structured(call: ToolCall, outlet: Outlet) -> ToolResult:
    return ToolResult(content=(), structured={"n": 7})


async def fails(call: ToolCall, outlet: Outlet) -> ToolResult:
    return ToolResult(content=(TextContent(text="no luck today"),), is_error=True)


async def crashes(call: ToolCall, outlet: Outlet) -> ToolResult:
    raise RuntimeError("the password is hunter2")


async def steps(call: ToolCall, outlet: Outlet) -> ToolResult:
    """Each step is the last one so far: that is never too soon to be sent. Steps back are not progress."""
    for step in range(1, STEPS + 1):
        await outlet.emit(Progress(progress=step, total=step))
        await outlet.emit(Progress(progress=step - 1, total=0))
    return says("done")


async def logs(call: ToolCall, outlet: Outlet) -> ToolResult:
    for level in ("debug", "info", "warning", "error"):
        await outlet.emit(LogMessage(level=level, data=level))
    return says("done")


TOOLS: dict[str, Work] = {
    "plain": plain,
    "structured": structured,
    "fails": fails,
    "crashes": crashes,
    "steps": steps,
    "logs": logs,
    "asks": asks,
}
LISTED = {
    "plain": Tool(name="plain", title="Plain", input_schema=NUMBER | {"required": []}),
    "structured": Tool(name="structured", input_schema=ANYTHING, output_schema=NUMBER),
}


def everything(
    *, terms: CallTerms | None = None, listed: dict[str, Tool] | None = None, **work: Work
) -> Source:
    """`work` is put beside the usual tools, in front."""
    backend: Any = Everything(work | TOOLS, LISTED | (listed or {}))
    if terms is None:
        return Source(name="everything", backend=backend)
    return Source(name="everything", backend=backend, terms=terms)


def task_tool(name: str, support: Any, **more: Any) -> dict[str, Tool]:
    """How a tool is listed that can be a task."""
    execution = ToolExecution(task_support=support, **more)
    return {name: Tool(name=name, input_schema=ANYTHING, execution=execution)}
