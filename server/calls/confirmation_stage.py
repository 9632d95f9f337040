"""A call that has to be shown before it is made: what it says of that, the six reasons why it is not made, and previews for those that
follow. Ids of previews are server/calls/policy/confirmed_calls.py's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

import msgspec

from auth.values.identity_model import PrincipalKind
from server.agents.base.catalog import ToolEntry
from server.calls.policy.confirmed_calls import ConfirmedTool, GivenConfirmation, PreviewId, Unconfirmed
from server.calls.policy.tool_policy import ToolPolicy
from server.calls.policy_messages import CallNotMade, arguments_of, not_counted, refused, take_instead, tell
from server.calls.request import Request
from server.mcp.call_failures import Paused
from server.mcp.call_outlet import Outlet
from server.mcp.messages import TextContent
from server.mcp.result_encoding import ToolResult
from server.store.jobs import StoreUnavailable

# For programs: the id of what was shown, for which tool it is, and how long it is good.
PREVIEW: Final = "io.ostiary/preview"

Answer: TypeAlias = tuple[ToolResult, str]

_MACHINES: Final = frozenset({PrincipalKind.API_KEY, PrincipalKind.CLIENT})
# Nothing was done, as far as the tool says, or it was not asked.
_NOT_DONE: Final = frozenset({"error", "invalid", "unpaid", "busy"})


class _Burnt(msgspec.Struct, frozen=True):
    """By this call, and by nothing that comes again."""

    preview: PreviewId
    call_id: str


def taken_off(request: Request, policy: ToolPolicy) -> GivenConfirmation | None:
    """What the call says of its confirmation, which is no argument of the tool's from here on."""
    if policy.confirmed is None:
        return None
    given = policy.confirmed.taken(arguments_of(request))
    take_instead(request, given.arguments)
    return given


async def confirmed(
    request: Request,
    policy: ToolPolicy,
    given: GivenConfirmation | None,
    outlet: Outlet,
    run: Callable[[Outlet], Awaitable[Answer]],
) -> Answer:
    """What `run` answers, if the call was shown and is confirmed. Raises `CallNotMade`, and what `run` raises."""
    confirms = policy.confirmed
    if confirms is None or given is None:
        return await run(outlet)
    burnt = await _burnt(request, policy, confirms, given)
    try:
        answer, outcome = await run(outlet)
    except Paused:  # it will come again
        await _unburn(policy, burnt)
        raise
    if outcome in _NOT_DONE:
        await _unburn(policy, burnt)
    return answer, outcome


def with_previews(request: Request, policy: ToolPolicy, answer: ToolResult, outcome: str) -> ToolResult:
    """With an id for each tool whose calls this answer shows."""
    if not policy.shows or answer.is_error or outcome not in ("ok", "replayed"):
        return answer
    whole, facts, words = policy.whole, list[dict[str, Any]](), list[TextContent]()
    for tool in policy.shows:
        minutes = whole.minutes(tool)
        issued = whole.previews.issue(request.principal.key(), tool, arguments_of(request), minutes)
        facts.append({"tool": tool, "previewId": issued, "expiresInSeconds": minutes * 60})
        text = (
            f"To do it: call {tool} with exactly these arguments, preview_id {issued} and confirm true,"
            f" within {minutes} minutes."
        )
        words.append(TextContent(text=text))
    return msgspec.structs.replace(
        answer,
        content=(*answer.content, *words),
        meta={**(answer.meta or {}), PREVIEW: facts[0] if len(facts) == 1 else facts},
    )


async def _burnt(
    request: Request, policy: ToolPolicy, confirms: ConfirmedTool, given: GivenConfirmation
) -> _Burnt | None:
    """None: it is not to be unburned whatever comes of the call. Raises `CallNotMade`."""
    whole, principal = policy.whole, request.principal
    if not confirms.config.keys and principal.kind in _MACHINES:
        raise await _unconfirmed(request, policy, confirms, "tool_disabled")
    if not given.preview_id:
        shows_itself = not confirms.config.preview and not given.confirms
        raise await _unconfirmed(
            request, policy, confirms, "confirmation_required" if shows_itself else "preview_required"
        )
    arguments = arguments_of(request)
    found = whole.previews.read(given.preview_id, principal.key(), policy.tool, arguments)
    if not isinstance(found, PreviewId):
        raise await _unconfirmed(request, policy, confirms, found)
    if not given.confirms:
        raise await _unconfirmed(request, policy, confirms, "confirmation_required", given.preview_id)
    bought_by = _bought_by(request)
    by = bought_by or (request.call_id,)
    try:
        burn = await whole.previews.burn(found, *by)
    except StoreUnavailable as problem:
        whole.desk.log.warning("policy.not_burned", tool=policy.tool, reason=str(problem))
        text = "This call was not made, because it cannot be written down right now that it was confirmed: call it again in a few seconds."
        raise not_counted(text) from problem
    if burn == "used":
        raise await _unconfirmed(request, policy, confirms, "preview_stale")
    if burn == "again":
        request.confirmed_again = bool(bought_by)
        return None
    await tell(request, policy, "confirmed", kept=True)
    return None if bought_by else _Burnt(found, request.call_id)


def _bought_by(request: Request) -> tuple[str, ...]:
    """What the till knows the same call by when it comes again; nothing for a call that cannot come again. Such a call may be made until it
    is done, and is given its answer after that."""
    if not request.priced:
        return ()
    from server.calls.payment_from_request import known_by

    return known_by(request)


async def made_before(request: Request, tool: ToolEntry) -> CallNotMade:
    """For a call that comes again and that nobody knows by what it brings."""
    policy: ToolPolicy = tool.policy  # type: ignore[assignment]
    assert policy.confirmed is not None
    return await _unconfirmed(request, policy, policy.confirmed, "preview_stale")


async def _unconfirmed(
    request: Request, policy: ToolPolicy, confirms: ConfirmedTool, reason: Unconfirmed, preview_id: str = ""
) -> CallNotMade:
    arguments = arguments_of(request)
    text = f"This call was not made. {confirms.how_to_go_on(reason)}"
    facts: dict[str, Any] = {}
    if reason == "confirmation_required":
        minutes = confirms.config.minutes
        if not preview_id:
            preview_id = policy.whole.previews.issue(request.principal.key(), policy.tool, arguments, minutes)
            facts["expiresInSeconds"] = minutes * 60
        facts["previewId"] = preview_id
        text = f"{confirms.preview(arguments)}\n\n{text}\n{confirms.preview_id}: {preview_id}"
    await tell(request, policy, "unconfirmed", kept=False, reason=reason)
    return CallNotMade(refused(reason, text, **facts), "unconfirmed")


async def _unburn(policy: ToolPolicy, burnt: _Burnt | None) -> None:
    if burnt is None:
        return
    try:
        await policy.whole.previews.unburn(burnt.preview, burnt.call_id)
    except StoreUnavailable as problem:  # it has to be shown once more
        policy.whole.desk.log.warning("policy.not_burned", tool=policy.tool, reason=str(problem))
