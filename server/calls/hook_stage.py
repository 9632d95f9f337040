"""A call that the owner's own code looks at: before it is made, and again when it is answered. The words that may be said there are
server/calls/policy/hooks.py's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import UNSET

from server.agents.base.catalog import ToolEntry
from server.calls.policy.hooks import OUT_OF_ORDER, Hook, HookCaller, HookFailed
from server.calls.policy.rule_decisions import DENIED, claimed_name, program_id_of
from server.calls.policy.tool_policy import ToolPolicy
from server.calls.policy_messages import CallNotMade, arguments_of, refused, take_instead, tell
from server.calls.request import Request
from server.lib.log.structured_log import scrubbed
from server.mcp.errors import McpError
from server.mcp.messages import TextContent
from server.mcp.result_encoding import ToolResult, as_text, members_of

REASON_CHARACTERS: Final = 1000  # of what is kept of a hook's own words
Misfit: TypeAlias = Callable[[Mapping[str, Any]], ToolResult | None]


async def looked_at(
    request: Request, tool: ToolEntry, policy: ToolPolicy, hook: Hook, misfit: Misfit
) -> ToolResult | None:
    """Ask the hook, and return its answer where that stands for the tool's. Its arguments are the request's from now on. Raises `CallNotMade`."""
    try:
        said = await hook.ask(_call_of(request, policy, hook), _caller_of(request))
        if said.result is not None:
            result = _conforming(tool, said.result)
            await tell(request, policy, "hook_substituted", kept=False)
            return result
        if said.arguments is not None and said.arguments != arguments_of(request):
            _rewrite(request, said.arguments, misfit)
            await tell(request, policy, "hook_changed", kept=False)
    except HookFailed as error:
        await _tell_of_failure(request, policy, hook, error)
        refusal = refused("out_of_order", f"This call was not made: {OUT_OF_ORDER}")
        raise CallNotMade(refusal, "refused") from error
    if said.decision == "deny":
        await tell(request, policy, "hook_denied", kept=True)
        text = f"This call was not made: {said.reason or DENIED}"
        raise CallNotMade(refused("denied", text))
    return None


async def looked_at_again(
    request: Request, tool: ToolEntry, policy: ToolPolicy, hook: Hook, answer: ToolResult, outcome: str
) -> tuple[ToolResult, str]:
    given = members_of(answer)
    try:
        said = await hook.ask({**_call_of(request, policy, hook), "result": given}, _caller_of(request))
        if said.result is not None:
            result = _conforming(tool, said.result)
            await tell(request, policy, "hook_substituted", kept=False)
            # "error" says that the tool has failed, so that the call may be made again: which is not the hook's to say.
            return result, ("ok" if not result.is_error else "error" if answer.is_error else "refused")
    except HookFailed as error:
        await _tell_of_failure(request, policy, hook, error)
        text = f"This call was made, but its answer is withheld: {OUT_OF_ORDER}"
        return refused("out_of_order", text), "refused"
    if said.decision == "deny":
        await tell(request, policy, "hook_denied", kept=True)
        text = f"This call was made, but its answer is withheld: {said.reason or DENIED}"
        return refused("withheld", text), "denied"
    return answer, outcome


def _call_of(request: Request, policy: ToolPolicy, hook: Hook) -> dict[str, Any]:
    """Return what a hook is told: never a token."""
    principal = request.principal
    caller = {
        "kind": principal.kind.value,
        "person": principal.person or principal.subject,
        "program": principal.known_as[0] if principal.known_as else "",
        "program_id": program_id_of(principal),
        "claims_to_be": claimed_name(principal),
        "scopes": sorted(principal.scopes),
    }
    return {
        "hook": hook.place,
        "server": policy.whole.server,
        "tool": policy.tool,
        "arguments": arguments_of(request),
        "caller": caller,
        "call": request.call_id,
    }


def _caller_of(request: Request) -> HookCaller:
    return HookCaller(request.principal.subject, request.sharer, request.call_id)


def _conforming(tool: ToolEntry, result: ToolResult) -> ToolResult:
    """Return a result that is what the tool promises. Raises `HookFailed`."""
    if not result.is_error and tool.schema.promises and not tool.schema.conforms(result.structured):
        raise HookFailed("its result is not what the outputSchema of the tool promises")
    if not result.content and result.structured is not UNSET:
        return msgspec.structs.replace(result, content=(TextContent(text=as_text(result.structured)),))
    return result


def _rewrite(request: Request, arguments: dict[str, Any], misfit: Misfit) -> None:
    """Take the hook's arguments in place of the caller's. Raises `HookFailed` where they are not what the tool takes."""
    request.rewritten = True
    try:
        fits = misfit(arguments) is None
    except McpError:
        fits = False
    if not fits:
        raise HookFailed("the arguments that it gave do not fit the schema of the tool")
    request.unhooked = arguments_of(request)
    take_instead(request, arguments)


async def _tell_of_failure(request: Request, policy: ToolPolicy, hook: Hook, error: HookFailed) -> None:
    """Tell the owner alone why a hook failed: its words are its author's."""
    hook.blame(error)
    await tell(request, policy, "hook_failed", kept=True, reason=scrubbed(str(error)[:REASON_CHARACTERS]))
