"""A mock of what a server offers, of what it answered to a call, and of both, when it is looked at again.

What comes from there is somebody else's: of each entry is taken what MCP has for it, and what cannot be offered is left out by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from server.agents.mock.mock_document import (
    BadMock,
    MockDocument,
    MockPrompt,
    MockResource,
    MockTemplate,
    MockTool,
    Scenario,
    check_mock,
)
from server.agents.mock.scenario_conditions import OPERATORS, SCHEMA, When
from server.mcp.messages import Prompt, Resource, ResourceTemplate, Tool

T = TypeVar("T", bound=msgspec.Struct)
RESULT: Final = ("content", "structuredContent", "isError")
_META: Final = "_meta"  # says what is so there, such as a price


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """What a server says of itself, as it came. `contents` are of its resources."""

    name: str = ""
    version: str = ""
    protocol_version: str = ""
    tools: Sequence[Mapping[str, Any]] = ()
    resources: Sequence[Mapping[str, Any]] = ()
    contents: Mapping[str, Mapping[str, Any]] = {}
    templates: Sequence[Mapping[str, Any]] = ()
    prompts: Sequence[Mapping[str, Any]] = ()


def imported(listing: Listing) -> tuple[MockDocument, Sequence[str]]:
    """And what was left out, each with the reason."""
    left_out: list[str] = []
    document = MockDocument(
        name=listing.name, version=listing.version, protocol_version=listing.protocol_version
    )
    resources = [{**each, **_content(listing.contents.get(each["uri"]))} for each in listing.resources]
    for key, entries, shape, kind, more in (
        ("tools", listing.tools, MockTool, Tool, ()),
        ("resources", resources, MockResource, Resource, ("text", "blob")),
        ("resource_templates", listing.templates, MockTemplate, ResourceTemplate, ()),
        ("prompts", listing.prompts, MockPrompt, Prompt, ()),
    ):
        known = {field.encode_name for field in msgspec.structs.fields(kind)} - {_META} | set(more)
        found: list[Any] = []
        for entry in entries:
            try:
                made = msgspec.convert({name: entry[name] for name in known & entry.keys()}, shape)
                check_mock(replace(MockDocument(), **{key: (*found, made)}))
            except (msgspec.ValidationError, BadMock, RecursionError) as error:
                left_out.append(str(error)[:300])
            else:
                found.append(made)
        document = replace(document, **{key: tuple(found)})
    return document, left_out


def _content(content: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return (
        {}
        if content is None
        else {key: content[key] for key in ("text", "blob", "mimeType") if key in content}
    )


def merged(before: MockDocument, now: MockDocument) -> tuple[MockDocument, Sequence[str]]:
    """Everything as it is `now`, with the answers that were written `before`; and what is there no longer, which stays."""
    tools = {tool.name: tool for tool in before.tools}
    prompts = {prompt.name: prompt for prompt in before.prompts}
    templates = {template.uri_template: template for template in before.resource_templates}
    found = replace(
        now,
        name=before.name or now.name,
        tools=tuple(
            replace(tool, scenarios=old.scenarios, enabled=old.enabled)
            if (old := tools.pop(tool.name, None))
            else tool
            for tool in now.tools
        ),
        resource_templates=tuple(
            replace(each, text=old.text, json=old.json)
            if (old := templates.pop(each.uri_template, None))
            else each
            for each in now.resource_templates
        ),
        prompts=tuple(
            replace(each, text=old.text, messages=old.messages, arguments=_with_defaults(each, old))
            if (old := prompts.pop(each.name, None))
            else each
            for each in now.prompts
        ),
    )
    seen = {resource.uri for resource in now.resources}
    resources = {each.uri: each for each in before.resources if each.uri not in seen}
    gone = [
        *(f"tool {name}" for name in tools),
        *(f"resource {uri}" for uri in resources),
        *(f"resource template {uri}" for uri in templates),
        *(f"prompt {name}" for name in prompts),
    ]
    return replace(
        found,
        tools=(*found.tools, *tools.values()),
        resources=(*found.resources, *resources.values()),
        resource_templates=(*found.resource_templates, *templates.values()),
        prompts=(*found.prompts, *prompts.values()),
    ), gone


def _with_defaults(now: MockPrompt, before: MockPrompt) -> Any:
    if now.arguments is UNSET:
        return UNSET
    old = {} if before.arguments is UNSET else {each.name: each.default for each in before.arguments}
    return tuple(replace(each, default=old.get(each.name, UNSET)) for each in now.arguments)


def recorded(
    document: MockDocument, tool: MockTool, arguments: Mapping[str, Any], result: Mapping[str, Any]
) -> MockDocument:
    """With a scenario for exactly these arguments. One that was there for them makes way. Raises `BadMock`."""
    when = _exactly(arguments)
    scenario = Scenario(when=when, result={key: result[key] for key in RESULT if key in result})
    before = next((each for each in document.tools if each.name == tool.name), None)
    others = [each for each in ((before or tool).scenarios) if each.when != when]
    # Before whatever holds for all arguments, or it would never be played.
    place = next((at for at, each in enumerate(others) if each.when is UNSET or not each.when), len(others))
    new = replace(before or tool, scenarios=(*others[:place], scenario, *others[place:]))
    tools = (new,) if before is None else ()
    found = replace(document, tools=(*(new if each is before else each for each in document.tools), *tools))
    check_mock(found)
    return found


def _exactly(arguments: Mapping[str, Any]) -> When:
    plain = bool(arguments) and all(
        name and "." not in name and not _compares(arguments[name]) for name in arguments
    )
    return dict(arguments) if plain else {SCHEMA: {"const": dict(arguments)}}


def _compares(value: Any) -> bool:
    """Whether it would be taken for a comparison."""
    keys = cast("dict[str, Any]", value).keys() if isinstance(value, dict) else ()
    return bool(keys) and OPERATORS.issuperset(keys)


def copied(document: MockDocument, name: str) -> MockDocument:
    return replace(document, name=name) if name else document
