"""`kind = "mock"`: a whole server of a document. And the mock of single tools, in the place of those that an agent has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta

from server.agents.base.backend import (
    BadArguments,
    Completing,
    Feature,
    NoSuchResource,
    PromptGet,
    ResourceRead,
    ToolCall,
)
from server.agents.mock.mock_document import (
    MockDocument,
    MockPrompt,
    MockResource,
    MockTemplate,
    Scenario,
    fill,
    fill_json,
    offered,
    read_mock,
)
from server.agents.mock.scenario_play import MockedTool, unplayable
from server.agents.python.offer import LONGEST_SECONDS
from server.mcp.call_outlet import Outlet
from server.mcp.messages import (
    Implementation,
    Prompt,
    PromptArgument,
    PromptMessage,
    Resource,
    ResourceContents,
    ResourceTemplate,
    TextContent,
    Tool,
)
from server.mcp.result_encoding import CompletionResult, PromptResult, ToolResult

LOGS: Final[frozenset[Feature]] = frozenset({"logging"})


class MockConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[server.agent]]` with `kind = "mock"`."""

    file: Annotated[
        str, Meta(min_length=1, max_length=4096, description='the path of a mock, e.g. "weather.json"')
    ]
    deadline_seconds: Annotated[float, Meta(gt=0, le=LONGEST_SECONDS, description="seconds up to 86400")] = (
        60.0
    )


class MockBackend:
    """A `Backend`, a `LibraryBackend`, `DeclaresFeatures` where a scenario logs, and `TellsServerInfo` by its name."""

    def __init__(self, document: MockDocument) -> None:
        """Keep the parts of a document that was checked."""
        tools = [tool for tool in document.tools if tool.enabled]
        self._tools = [offered(tool) for tool in tools]
        self._played = {tool.name: MockedTool(tool) for tool in tools}
        self._resources = {resource.uri: resource for resource in document.resources}
        self._templates = {template.uri_template: template for template in document.resource_templates}
        self._prompts = {prompt.name: prompt for prompt in document.prompts}
        self._introduction = Implementation(name=document.name, version=document.version)
        scenarios = (scenario for tool in tools for scenario in tool.scenarios)
        self.features: Final[frozenset[Feature]] = LOGS if any(map(_logs, scenarios)) else frozenset()

    def introduction(self) -> Implementation:
        return self._introduction

    def tools(self) -> Sequence[Tool]:
        return self._tools

    async def call(self, call: ToolCall, outlet: Outlet) -> ToolResult:
        tool = self._played.get(call.tool)
        if tool is None:
            raise unplayable(call.tool)
        return await tool.play(call, outlet)

    async def aclose(self) -> None:
        """Do nothing: nothing is held."""

    # ── what is read and filled in ──

    def resources(self) -> Sequence[Resource]:
        return [Resource(**_fields(each, Resource)) for each in self._resources.values()]

    def resource_templates(self) -> Sequence[ResourceTemplate]:
        return [ResourceTemplate(**_fields(each, ResourceTemplate)) for each in self._templates.values()]

    def prompts(self) -> Sequence[Prompt]:
        return [_offered_prompt(each) for each in self._prompts.values()]

    def completes(self) -> frozenset[tuple[str, str]]:
        return frozenset()

    async def read(self, read: ResourceRead, outlet: Outlet) -> Sequence[ResourceContents]:
        resource = self._resources.get(read.uri)
        if resource is not None:
            return [_contents(resource, read.uri, {})]
        template = self._templates.get(read.template or "")
        if template is None:
            raise NoSuchResource
        return [_contents(template, read.uri, read.arguments)]

    async def get_prompt(self, get: PromptGet, outlet: Outlet) -> PromptResult:
        prompt = self._prompts.get(get.prompt)
        if prompt is None:
            raise BadArguments(f"the mock has no prompt {get.prompt}")
        arguments = () if prompt.arguments is UNSET else prompt.arguments
        missing = [
            each.name for each in arguments if each.required is True and each.name not in get.arguments
        ]
        if missing:
            raise BadArguments(f"{missing[0]}: is required")
        values = {each.name: each.default for each in arguments if each.default is not UNSET}
        values |= get.arguments
        messages = () if prompt.messages is UNSET else prompt.messages
        if prompt.text is not UNSET:
            messages = (PromptMessage(role="user", content=TextContent(text=prompt.text)), *messages)
        description = None if prompt.description is UNSET else prompt.description
        return PromptResult(messages=[_filled(each, values) for each in messages], description=description)

    async def complete(self, asked: Completing) -> CompletionResult:
        return CompletionResult(values=())


def open_mock(file: str) -> MockBackend:
    """Open a mock. Raises `BadMock`."""
    return MockBackend(read_mock(Path(file).expanduser()))


def _fields(given: msgspec.Struct, kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {name: getattr(given, name) for name in kind.__struct_fields__}


def _offered_prompt(prompt: MockPrompt) -> Prompt:
    fields = _fields(prompt, Prompt)
    if prompt.arguments is not UNSET:
        fields["arguments"] = [PromptArgument(**_fields(each, PromptArgument)) for each in prompt.arguments]
    return Prompt(**fields)


def _contents(given: MockResource | MockTemplate, uri: str, values: Mapping[str, str]) -> ResourceContents:
    kind = given.mime_type
    if isinstance(given, MockResource) and given.blob is not UNSET:
        return ResourceContents(uri=uri, mime_type=kind, blob=given.blob)
    if given.json is not UNSET:
        text = msgspec.json.encode(fill_json(given.json, values)).decode()
        return ResourceContents(uri=uri, mime_type=kind or "application/json", text=text)
    text = "" if given.text is UNSET else fill(given.text, values)
    return ResourceContents(uri=uri, mime_type=kind or "text/plain", text=text)


def _filled(message: PromptMessage, values: Mapping[str, str]) -> PromptMessage:
    if not isinstance(message.content, TextContent):
        return message
    content = msgspec.structs.replace(message.content, text=fill(message.content.text, values))
    return msgspec.structs.replace(message, content=content)


def _logs(scenario: Scenario) -> bool:
    return any(step.log is not UNSET for step in scenario.steps) or any(map(_logs, scenario.then))
