"""The lists of an upstream, read as a stranger's: page by page, bounded, and without entries that could not be offered on.

One entry that is wrong is left out and named in the log; the others are offered all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final, TypeVar

import msgspec
import trio
from msgspec import UNSET, Raw

from server.agents.base.backend import Feature
from server.agents.mcp.asked_prices import AskedPrice, asked_price
from server.agents.mcp.forwarded_meta import passed_on
from server.agents.mcp.offer_guard import BY_HAND, UpstreamLists
from server.agents.mcp.upstream_introduction import checked_icons, introduction_of
from server.client.mcp_session.agreement import Agreement
from server.client.mcp_session.list_pages import ListTooLong, list_pages
from server.client.mcp_session.session_link import Link
from server.client.mcp_session.session_messages import METHOD_NOT_FOUND, NoMcpServer, ServerRefusal
from server.client.mcp_session.session_request import SessionRequest
from server.lib.log.logger import Logger
from server.lib.shortened import short_name, short_reason
from server.mcp.further_members import further_members
from server.mcp.messages import Prompt, Resource, ResourceTemplate, Tool
from server.mcp.schema import BadTool, ToolSchema
from server.mcp.uri_template import BadTemplate, UriTemplate

T = TypeVar("T", Tool, Resource, ResourceTemplate, Prompt)

LIST_BYTES: Final = 4 * 1024 * 1024  # of one kind
DESCRIPTION_CHARACTERS: Final = 16 * 1024
NAME_CHARACTERS: Final = 256
URI_CHARACTERS: Final = 2048
FURTHER_BYTES: Final = 16 * 1024  # of one tool's members that are not known here
# For what there is for one caller alone: whoever lists what there is waits for it.
OWN_SECONDS: Final = 3.0
# What an upstream has to declare for each.
FEATURES: Final[Mapping[Feature, tuple[str, ...]]] = {
    "resources": ("resources",),
    "prompts": ("prompts",),
    "completions": ("completions",),
    "subscribe": ("resources", "subscribe"),
    "logging": ("logging",),
}
SHOWN: Final = 5  # entries that the log names
NO_TASKS: Final[Mapping[str, str]] = MappingProxyType({})


class _LeftOut(Exception):
    """The reason why an entry cannot be offered."""


_decode_known: Final = msgspec.json.Decoder(Tool).decode
_decode_resource: Final = msgspec.json.Decoder(Resource).decode
_decode_template: Final = msgspec.json.Decoder(ResourceTemplate).decode
_decode_prompt: Final = msgspec.json.Decoder(Prompt).decode


class _Reader:
    """The reader of one upstream's lists. `left_out`: what it has and cannot be offered, and why."""

    def __init__(
        self, link: Link, entries: int, name: str, log: Logger, call: SessionRequest | None = None
    ) -> None:
        self._link = link
        self._entries = entries
        self._name = name
        self._log = log
        self._call = call
        self.left_out: list[str] = []

    async def all(self, method: str, kind: str) -> list[Raw]:
        """Return the entries of a list, or the first of them where there are too many."""
        found: list[Raw] = []

        async def ask(params: Mapping[str, Any]) -> Raw:
            return await self._link.request(method, params, call=self._call)

        try:
            async for page in list_pages(ask, method, kind, entries=self._entries, size=LIST_BYTES):
                found += page
        except ListTooLong:
            self._leave_out(
                kind,
                [
                    f"all but the first {len(found)} of {method}: max_entries is {self._entries}, and {LIST_BYTES // 1024} KiB"
                ],
            )
        except ServerRefusal as refusal:
            if refusal.code != METHOD_NOT_FOUND:
                raise NoMcpServer(f"refuses {method}: {refusal}") from None
        return found

    def checked(
        self, kind: str, raw: Sequence[Raw], decode: Callable[[Raw], T], key: str, check: Callable[[T], T]
    ) -> list[T]:
        """Decode and check each; leave out what is wrong."""
        found: dict[str, T] = {}
        out: list[str] = []
        for each in raw:
            called = "?"
            try:
                entry = decode(each)
                called = getattr(entry, key)
                if called in found:
                    raise _LeftOut("it is there twice")
                found[called] = check(entry)
            except (ValueError, RecursionError, _LeftOut) as error:
                out.append(f"{kind} {short_name(called)}: {short_reason(error)}")
        if out:
            self._leave_out(kind, out)
        return list(found.values())

    def _leave_out(self, kind: str, out: Sequence[str]) -> None:
        self._log.warning(
            "upstream.left_out", agent=self._name, kind=kind, count=len(out), which=list(out[:SHOWN])
        )
        self.left_out += out


async def read_lists(link: Link, *, entries: int, name: str, log: Logger) -> UpstreamLists:
    """Read all lists, `entries` of each at most; bounded in size, not in time. Raises `BackendError` where there are none that could be read."""
    reader = _Reader(link, entries, name, log)
    agreed = link.agreement
    tools: list[Raw] = []
    resources: list[Raw] = []
    templates: list[Raw] = []
    prompts: list[Raw] = []
    if agreed.has("tools") or not agreed.capabilities:
        tools = await reader.all("tools/list", "tools")
    if agreed.has("resources"):
        resources = await reader.all("resources/list", "resources")
        templates = await reader.all("resources/templates/list", "resourceTemplates")
    if agreed.has("prompts"):
        prompts = await reader.all("prompts/list", "prompts")

    supported: dict[str, str] = {}
    prices: dict[str, AskedPrice] = {}

    def tool_of(tool: Tool) -> Tool:
        clean = _tool(tool)
        if (price := asked_price(tool.meta)) is not None:
            prices[tool.name] = price
        support = _task_support(tool, agreed)
        if support == "forbidden":
            return clean
        supported[tool.name] = support
        return msgspec.structs.replace(clean, execution=BY_HAND)

    return UpstreamLists(
        tools=reader.checked("tool", tools, _decode_tool, "name", tool_of),
        tasks=supported,
        session_tasks=await _session_tasks(link.in_sessions, entries, name, log),
        modern=agreed.modern,
        resources=reader.checked("resource", resources, _decode_resource, "uri", _resource),
        resource_templates=reader.checked("template", templates, _decode_template, "uri_template", _template),
        prompts=reader.checked("prompt", prompts, _decode_prompt, "name", _prompt),
        features=frozenset(feature for feature, path in FEATURES.items() if agreed.has(*path)),
        instructions=agreed.instructions,
        introduction=introduction_of(agreed.info),
        prices=prices,
        left_out=reader.left_out,
    )


async def read_resources(
    link: Link, asked: SessionRequest, *, entries: int, name: str, log: Logger
) -> Sequence[Resource]:
    """List the resources that there are for this caller; none where it takes too long to say. Raises `BackendError`."""
    if not link.agreement.has("resources"):
        return ()
    reader = _Reader(link, entries, name, log, asked.quiet())
    with trio.move_on_after(OWN_SECONDS):
        raw = await reader.all("resources/list", "resources")
        return reader.checked("resource", raw, _decode_resource, "uri", _resource)
    return ()


def _tool(tool: Tool) -> Tool:
    _check_name(tool.name)
    if tool.further is not UNSET and len(msgspec.json.encode(tool.further)) > FURTHER_BYTES:
        names = ", ".join(map(short_name, list(tool.further)[:SHOWN]))
        raise _LeftOut(f"its members {names} take more than {FURTHER_BYTES // 1024} KiB")
    schema = dict(tool.input_schema)
    schema.setdefault("type", "object")  # some leave it out, and mean it
    clean = msgspec.structs.replace(
        tool,
        description=_description(tool.description),
        icons=checked_icons(tool.icons),
        input_schema=schema,
        execution=UNSET,
        meta=passed_on(tool.meta) or UNSET,
    )
    try:
        # By a name that is one: its name here is settled later (offered_names.py).
        ToolSchema(msgspec.structs.replace(clean, name="tool"))
    except BadTool as error:
        raise _LeftOut(str(error).removeprefix("the tool tool: ")) from error
    return clean


def _decode_tool(raw: Raw) -> Tool:
    """Read a tool, with those of its members that are not known here. Raises `ValueError`."""
    further = further_members(msgspec.json.decode(raw), Tool)
    return msgspec.structs.replace(_decode_known(raw), further=further or UNSET)


def _task_support(tool: Tool, agreed: Agreement) -> str:
    """Return whether a tool can be called as a task. In the stateless era the server decides with each call."""
    if not agreed.has_tasks:
        return "forbidden"
    if agreed.modern:
        return "optional"
    return "forbidden" if tool.execution is UNSET else tool.execution.task_support


async def _session_tasks(link: Link | None, entries: int, name: str, log: Logger) -> Mapping[str, str]:
    """Return which tools can be called as tasks in the sessions of a server whose lists are read in the other era."""
    if link is None or not link.agreement.has_tasks:
        return NO_TASKS
    found: dict[str, str] = {}
    for raw in await _Reader(link, entries, name, log).all("tools/list", "tools"):
        with suppress(ValueError, RecursionError):
            tool = _decode_tool(raw)
            if (support := _task_support(tool, link.agreement)) != "forbidden":
                found[tool.name] = support
    return found


def _resource(resource: Resource) -> Resource:
    _check_name(resource.uri, URI_CHARACTERS)
    return msgspec.structs.replace(
        resource,
        description=_description(resource.description),
        icons=checked_icons(resource.icons),
        meta=passed_on(resource.meta) or UNSET,
    )


def _template(template: ResourceTemplate) -> ResourceTemplate:
    _check_name(template.uri_template, URI_CHARACTERS)
    try:
        UriTemplate(template.uri_template, wildcards=True)
    except BadTemplate as error:
        raise _LeftOut(str(error)) from error
    return msgspec.structs.replace(
        template,
        description=_description(template.description),
        icons=checked_icons(template.icons),
        meta=passed_on(template.meta) or UNSET,
    )


def _prompt(prompt: Prompt) -> Prompt:
    _check_name(prompt.name)
    return msgspec.structs.replace(
        prompt,
        description=_description(prompt.description),
        icons=checked_icons(prompt.icons),
        meta=passed_on(prompt.meta) or UNSET,
    )


def _check_name(name: str, longest: int = NAME_CHARACTERS) -> None:
    if not name or len(name) > longest or not name.isprintable():
        raise _LeftOut(f"its name is empty, not printable, or longer than {longest} characters")


def _description(text: Any) -> Any:
    return text[:DESCRIPTION_CHARACTERS] if isinstance(text, str) else text
