"""Calls of somebody who tries a tool out in a browser: the same requests as every other program's, by the same page.

Who may, and as whom, is tryout_pages.py's to find out. A call here can be asked something, and is sent again with the answers, as a client of the
stateless era does it. It never becomes a task: nobody would come back for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import msgspec
import trio
from msgspec import UNSET

from auth.values.identity_model import Principal
from server.calls.caller_outlet import SILENT
from server.calls.dispatch import make_request, run
from server.calls.request import Outcome, Request
from server.calls.rights.standing import Standing
from server.calls.servers.endpoint import Endpoint
from server.mcp.inbound_messages import Route
from server.mcp.method_params import CallToolParams, ListParams, Params, RequestMeta
from server.mcp.method_table import METHODS
from server.mcp.versions import LATEST

# Whoever looks at an empty page for longer believes that it hangs. A program waits as long as it likes.
TRY_SECONDS: Final = 120.0
# As the protocol names what a client can be asked.
_CAPABILITIES: Final[dict[str, Any]] = {"elicitation": {"form": {}, "url": {}}}


class TryRound(msgspec.Struct, frozen=True, kw_only=True):
    """What goes along when a call is sent again: the state as it came, and the answers."""

    state: str
    answers: Mapping[str, Any]


class TryAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """`result` as a client would get it, or else `problem` in words. `seconds`: how long it took."""

    result: Mapping[str, Any] | None = None
    problem: str = ""
    seconds: float = 0.0


class TryPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the tools that somebody may call, as clients see them."""

    tools: Sequence[Mapping[str, Any]]
    after: str | None  # where the next one begins; None: that was all


async def offered(
    endpoint: Endpoint, principal: Principal, call_id: str, cursor: str | None
) -> TryPage | None:
    """None: there is no such page."""
    request = _request(
        endpoint,
        principal,
        "tools/list",
        ListParams(cursor=cursor, meta=RequestMeta(discovery="list")),
        call_id,
        "",
    )
    result: dict[str, Any] | None = _decoded(await run(request, SILENT)).get("result")
    if result is None:
        return None
    # What is listed and would be refused is of no use to somebody whom nobody can ask for more.
    tools = [tool for tool in result.get("tools", []) if stands(endpoint, principal, str(tool["name"]))]
    return TryPage(tools=tools, after=result.get("nextCursor"))


def tool(endpoint: Endpoint, principal: Principal, name: str) -> Mapping[str, Any] | None:
    """As clients see it; None if there is none that this caller may call."""
    if not stands(endpoint, principal, name):
        return None
    return cast("dict[str, Any]", msgspec.json.decode(msgspec.json.encode(endpoint.catalog.tools[name].tool)))


def stands(endpoint: Endpoint, principal: Principal, name: str) -> bool:
    entry = endpoint.catalog.tools.get(name)
    return entry is not None and endpoint.rights.standing(principal, entry) is Standing.ALLOWED


def changes(endpoint: Endpoint, name: str) -> bool:
    """Whether a call may change something, whatever it costs."""
    entry = endpoint.catalog.tools.get(name)
    return entry is None or entry.terms.tier != "read"


def only_reads(endpoint: Endpoint, name: str) -> bool:
    """Whether a call changes nothing and costs nothing."""
    entry = endpoint.catalog.tools.get(name)
    return entry is not None and entry.terms.tier == "read" and (entry.price is None or endpoint.till is None)


async def call(
    endpoint: Endpoint,
    principal: Principal,
    name: str,
    arguments: Mapping[str, Any],
    *,
    call_id: str,
    address: str,
    once: str,
    again: TryRound | None = None,
) -> TryAnswer:
    """`once` is of one form: what costs something is charged once for it, however often it is sent."""
    limits = endpoint.limits
    if limits is not None and (wait := _too_often(endpoint, principal, address)):
        seconds = f"{wait} second{'' if wait == 1 else 's'}"
        return TryAnswer(problem=f"Too many calls. You can call again in {seconds}.")
    params = CallToolParams(
        meta=RequestMeta(client_capabilities=_CAPABILITIES),
        name=name,
        arguments=dict(arguments),
        request_state=UNSET if again is None else again.state,
        input_responses=UNSET if again is None else dict(again.answers),
    )
    request = _request(endpoint, principal, "tools/call", params, call_id, address)
    if request.standing is not Standing.ALLOWED:
        return TryAnswer(problem="There is no such tool here, or none that you may call.")
    if request.priced:
        bound = msgspec.json.encode([once, name, arguments], order="sorted")
        request.idempotency_key = hashlib.sha256(bound).hexdigest()
    began = trio.current_time()
    with trio.move_on_after(TRY_SECONDS):
        outcome = await run(request, SILENT)
        if (heard := outcome.written()) is not None:
            heard()
        answer, seconds = _decoded(outcome), trio.current_time() - began
        if "error" in answer:
            return TryAnswer(problem=str(answer["error"].get("message", "")), seconds=seconds)
        return TryAnswer(result=answer.get("result", {}), seconds=seconds)
    return TryAnswer(
        problem=f"It took longer than {TRY_SECONDS:g} seconds, and was stopped. A program can wait longer.",
        seconds=TRY_SECONDS,
    )


def _too_often(endpoint: Endpoint, principal: Principal, address: str) -> int:
    assert endpoint.limits is not None
    gate = endpoint.limits.gate
    site = gate.site_of(address)
    if site and (wait := gate.knock(site)):
        return gate.turned_back(site, wait)
    return gate.recognise(principal, site) if site or gate.counts_all else 0


def _request(
    endpoint: Endpoint, principal: Principal, method: str, params: Params, call_id: str, address: str
) -> Request:
    size = len(msgspec.json.encode(params.arguments)) if isinstance(params, CallToolParams) else 0
    route = Route(METHODS[method], call_id, params, LATEST, None, size)
    return make_request(endpoint, principal, route, call_id, address=address)


def _decoded(outcome: Outcome) -> dict[str, Any]:
    return cast("dict[str, Any]", msgspec.json.decode(outcome.body))
