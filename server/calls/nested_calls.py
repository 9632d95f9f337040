"""The uses that a running call makes of its own server: a tool, a resource, a prompt, by the same way as if its caller asked for it, with that
caller's rights, limits and records. The deadline of the call around it bounds it.

Not by this way: questions, because the caller has not seen what asks; tools with a price, because nobody agreed to pay. Uses
inside of uses end at a depth.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

from server.agents.base.backend import NoSuchResource, UseKind
from server.calls.prompt_methods import get_prompt
from server.calls.request import NO_ABILITIES, Request
from server.calls.resource_methods import read_resource
from server.calls.tools_call import call_tool, settle_tool
from server.mcp.call_failures import BackendError
from server.mcp.errors import McpError, UnknownPrompt, UnknownResource, UnknownTool
from server.mcp.further_members import flat
from server.mcp.inbound_messages import Route
from server.mcp.method_params import CallToolParams, GetPromptParams, Params, ReadResourceParams
from server.mcp.method_table import METHODS
from server.mcp.result_encoding import PromptResult, ReadResourceResult, ToolResult, members_of
from server.mcp.versions import LATEST

# Deeper than anybody builds on purpose.
MOST_DEPTH: Final = 4
# In one call, on all levels together: a loop that does not end ends here.
MOST_USES: Final = 1000
_METHOD: Final[Mapping[UseKind, str]] = {
    "tool": "tools/call",
    "resource": "resources/read",
    "prompt": "prompts/get",
}


async def use(request: Request, what: UseKind, name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields of the result. Raises `NoSuchResource` where there is none of that name for this caller, and `BackendError`."""
    if request.depth >= MOST_DEPTH:
        raise BackendError(f"calls inside of calls go no deeper than {MOST_DEPTH}")
    outermost = request if request.outermost is None else request.outermost
    if outermost.used_inside >= MOST_USES:
        raise BackendError(f"a call uses no more than {MOST_USES} others")
    outermost.used_inside += 1
    request.used += 1
    inside = _inside(request, what, name, arguments)
    try:
        match what:
            case "tool":
                return await _tool(inside, name)
            case "resource":
                return await _resource(inside)
            case "prompt":
                return await _prompt(inside)
    except (UnknownTool, UnknownResource, UnknownPrompt) as error:
        raise NoSuchResource(str(error)) from error
    except McpError as error:
        raise BackendError(str(error)) from error


def _inside(request: Request, what: UseKind, name: str, arguments: Mapping[str, Any]) -> Request:
    return Request(
        endpoint=request.endpoint,
        principal=request.principal,
        route=Route(
            METHODS[_METHOD[what]],
            request.id,
            _params(what, name, arguments),
            LATEST,
            None,
            len(msgspec.json.encode(arguments)),
        ),
        call_id=f"{request.call_id}.{request.used}",
        known_abilities=NO_ABILITIES,
        unhurried=False,
        address=request.address,
        known_apart=request.apart,
        handshake=request.handshake,
        inner=request.inner,
        traceparent=request.traceparent,
        depth=request.depth + 1,
        outermost=request if request.outermost is None else request.outermost,
    )


def _params(what: UseKind, name: str, arguments: Mapping[str, Any]) -> Params:
    match what:
        case "tool":
            return CallToolParams(name=name, arguments=dict(arguments))
        case "resource":
            return ReadResourceParams(uri=name)
        case "prompt":
            if not all(isinstance(value, str) for value in arguments.values()):
                raise BackendError("arguments of a prompt are texts")
            return GetPromptParams(name=name, arguments=cast("dict[str, str]", dict(arguments)))


async def _tool(request: Request, name: str) -> Mapping[str, Any]:
    settle_tool(request, name)
    if request.priced:
        raise BackendError(f"the tool {name} has a price, which only its caller can agree to")
    result = await call_tool(request)
    if not isinstance(result, ToolResult):
        raise BackendError(f"the tool {name} does not answer at once, or asks its caller something")
    return members_of(result)


async def _resource(request: Request) -> Mapping[str, Any]:
    result = await read_resource(request)
    if not isinstance(result, ReadResourceResult):
        raise BackendError("the resource asks its caller something")
    return {"contents": [flat(each) for each in result.contents]}


async def _prompt(request: Request) -> Mapping[str, Any]:
    result = await get_prompt(request)
    if not isinstance(result, PromptResult):
        raise BackendError("the prompt asks its caller something")
    return {"messages": [{"role": each.role, "content": flat(each.content)} for each in result.messages]}
