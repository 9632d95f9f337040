"""What is said of a call that something stands in front of: to its caller, in the log, and in the audit trail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from server.calls.policy.policy_log import What
from server.calls.policy.tool_policy import ToolPolicy
from server.calls.request import Request
from server.mcp.messages import TextContent
from server.mcp.method_params import CallToolParams
from server.mcp.result_encoding import ToolResult

# For programs: why a call was not made, by which rule, and when it may be made.
POLICY: Final = "io.ostiary/policy"
# After which a call that could not be counted or written down may be made again.
NOT_COUNTED_SECONDS: Final = 5
NO_ARGUMENTS: Final[Mapping[str, Any]] = {}


class CallNotMade(Exception):
    """Found out on the way: this is the answer."""

    def __init__(self, answer: ToolResult, outcome: str = "denied") -> None:
        self.answer = answer
        self.outcome = outcome


def refused(reason: str, text: str, *, rule: str = "", **more: object) -> ToolResult:
    facts: dict[str, object] = {"reason": reason, **({"rule": rule} if rule else {}), **more}
    return ToolResult(content=(TextContent(text=text),), is_error=True, meta={POLICY: facts})


def not_counted(text: str, *, rule: str = "") -> CallNotMade:
    return CallNotMade(refused("not_counted", text, rule=rule, retryAfter=NOT_COUNTED_SECONDS))


async def tell(
    request: Request, policy: ToolPolicy, what: What, *, kept: bool, rule: str = "", **more: object
) -> None:
    """`kept`: in the audit trail as well."""
    whole = policy.whole
    whole.desk.say(
        what,
        request.principal,
        server=whole.server,
        tool=policy.tool,
        call_id=request.call_id,
        **({"rule": rule} if rule else {}),
        **more,
    )
    if kept:
        await whole.desk.write_down(what, request.principal, server=whole.server, tool=policy.tool, rule=rule)


def take_instead(request: Request, arguments: dict[str, Any]) -> None:
    """From now on these are its arguments. It is still known by those that came."""
    if request.asked_with is None:
        request.asked_with = arguments_of(request)
    params: CallToolParams = request.route.params  # type: ignore[assignment]
    changed = msgspec.structs.replace(params, arguments=arguments)
    request.route = msgspec.structs.replace(request.route, params=changed)


def arguments_of(request: Request) -> Mapping[str, Any]:
    params: CallToolParams = request.route.params  # type: ignore[assignment]
    return params.arguments or NO_ARGUMENTS
