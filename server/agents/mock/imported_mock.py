"""A mock of what a server offers, of what it answered to a call, and of both, when it is looked at again.

The entries are somebody else's: of each is taken what MCP has for it, and what cannot be offered is left out by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
_OF_CONTENT: Final = ("text", "blob", "mimeType")
_META: Final = "_meta"  # says what is so there, such as a price


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """The offer of a server, as it came. `contents` are of its resources."""

    name: str = ""
    version: str = ""
    protocol_version: str = ""
    tools: Sequence[Mapping[str, Any]] = ()
    resources: Sequence[Mapping[str, Any]] = ()
    contents: Mapping[str, Mapping[str, Any]] = {}
    templates: Sequence[Mapping[str, Any]] = ()
    prompts: Sequence[Mapping[str, Any]] = ()


def imported(listing: Listing) -> tuple[MockDocument, Sequence[str]]:
    """Return a mock of it, and what was left out, each with the reason."""
    left_out: list[str] = []
    document = MockDocument(
        name=listing.name, version=listing.version, protocol_version=listing.protocol_version
    )
    resources: list[Mapping[str, Any]] = []
    for each in listing.resources:
        content = listing.contents.get(each["uri"], {})
        resources.append({**each, **{key: content[key] for key in _OF_CONTENT if key in content}})
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


def merged(before: MockDocument, now: MockDocument) -> tuple[MockDocument, Sequence[str]]:
    """Return everything as it is `now`, with the answers that were written `before`, and the names of what is there no
    longer, which stays."""
    tools, gone_tools = _joined(
        "tool", "name", before.tools, now.tools,
        lambda new, old: replace(new, scenarios=old.scenarios, enabled=old.enabled),
    )  # fmt: skip
    resources, gone_resources = _joined(
        "resource", "uri", before.resources, now.resources, lambda new, old: new
    )
    templates, gone_templates = _joined(
        "resource template", "uri_template", before.resource_templates, now.resource_templates,
        lambda new, old: replace(new, text=old.text, json=old.json),
    )  # fmt: skip
    prompts, gone_prompts = _joined(
        "prompt", "name", before.prompts, now.prompts,
        lambda new, old: replace(
            new, text=old.text, messages=old.messages, arguments=_with_defaults(new, old)
        ),
    )  # fmt: skip
    document = replace(
        now,
        name=before.name or now.name,
        tools=tools,
        resources=resources,
        resource_templates=templates,
        prompts=prompts,
    )
    return document, [*gone_tools, *gone_resources, *gone_templates, *gone_prompts]


def _joined(
    kind: str, key: str, before: Sequence[T], now: Sequence[T], answered: Callable[[T, T], T]
) -> tuple[tuple[T, ...], Sequence[str]]:
    """Return what there is now, each with its answers of before, then what is gone; and the names of that."""
    left = {getattr(each, key): each for each in before}
    found = [
        each if (old := left.pop(getattr(each, key), None)) is None else answered(each, old) for each in now
    ]
    return (*found, *left.values()), [f"{kind} {name}" for name in left]


def _with_defaults(now: MockPrompt, before: MockPrompt) -> Any:
    if now.arguments is UNSET:
        return UNSET
    old = {} if before.arguments is UNSET else {each.name: each.default for each in before.arguments}
    return tuple(replace(each, default=old.get(each.name, UNSET)) for each in now.arguments)


def recorded(
    document: MockDocument, tool: MockTool, arguments: Mapping[str, Any], result: Mapping[str, Any]
) -> MockDocument:
    """Add a scenario for exactly these arguments. One that was there for them makes way. Raises `BadMock`."""
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
    """Return whether it would be taken for a comparison."""
    keys = cast("dict[str, Any]", value).keys() if isinstance(value, dict) else ()
    return bool(keys) and OPERATORS.issuperset(keys)


def copied(document: MockDocument, name: str) -> MockDocument:
    return replace(document, name=name) if name else document
