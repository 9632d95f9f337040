"""Calls whose client has gone before it had the answer, and that run on for nobody: in the handshake era a broken connection cancels nothing.

Its client will make the call again, and that would run the tool twice. So the next call of the same caller, tool and arguments is taken for
what it is, waits for the first and has its answer; no other is, for two calls that are the same and arrive are two calls. Nothing of this is
looked at while no call is adrift. Where there is a key, or `dedupe`, idempotency_stage.py knows better.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec
import trio

from server.calls.agent_use import perform
from server.calls.request import Request
from server.calls.rights.standing import Standing
from server.mcp.method_params import CallToolParams
from server.mcp.result_encoding import ToolResult
from server.store.idempotency.abandoned_answers import MOST, MOST_OF_CALLER, AbandonedCall, forget
from server.store.idempotency.call_keys import REPLAYED, NotComparable, canonical
from server.store.idempotency.idempotent_calls import MARGIN_SECONDS


def set_adrift(request: Request) -> None:
    """Its client has left without the answer."""
    name = _name_of(request)
    if name is None or request.adrift is not None:
        return
    adrift = request.endpoint.adrift
    forget(adrift)
    caller = request.principal.key()
    if len(adrift) >= MOST or sum(one.caller == caller for one in adrift.values()) >= MOST_OF_CALLER:
        return
    call = adrift[name] = request.adrift = AbandonedCall(caller)
    request.endpoint.log.info(
        "tool.adrift", tool=request.tool and request.tool.tool.name, request=request.call_id
    )
    if request.answer is not None:
        call.end(request.answer)


async def join_adrift(request: Request) -> ToolResult | None:
    """The answer of the same call that went adrift. None: there is none, so make this one."""
    adrift = request.endpoint.adrift
    forget(adrift)
    tool, name = request.tool, _name_of(request)
    found = None if name is None else adrift.get(name)
    if tool is None or name is None or found is None or found.taken:
        return None
    found.taken = True
    try:
        with trio.move_on_after(max(tool.terms.deadline_seconds - MARGIN_SECONDS, 1.0)):
            await found.over.wait()
        answer = found.answer
    finally:
        found.taken = False
    if answer is None:
        return None
    if adrift.get(name) is found:
        del adrift[name]
    given = msgspec.structs.replace(answer, meta={**(answer.meta or {}), REPLAYED: True})

    async def give(_outlet: object) -> tuple[ToolResult, str]:
        return given, "replayed"

    return await perform(request, tool.tool.name, tool.terms, request.standing, give)


def _name_of(request: Request) -> bytes | None:
    """What makes it the same call. None: one that is not joined, because nobody can tell that its caller is the same, or the till does."""
    tool, principal = request.tool, request.principal
    if tool is None or request.priced or request.once or not principal.identified:
        return None
    if request.standing is not Standing.ALLOWED:
        return None
    params: CallToolParams = request.route.params  # type: ignore[assignment]
    arguments: Mapping[str, Any] = (
        params.arguments if request.asked_with is None else request.asked_with
    ) or {}
    try:
        return hashlib.sha256(canonical([principal.key(), tool.tool.name, arguments])).digest()
    except NotComparable:
        return None
