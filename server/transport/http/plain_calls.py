"""`POST /{server}/call/{tool}`: a call by plain HTTP, arguments in, result out, for those who speak no MCP.

The call is the one that comes over MCP: known to the same callers, checked, charged and recorded alike. Only the answer is HTTP's own:
200 with the result, 422 where the tool itself failed, and for everything else the status that says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType, field

from auth.values.identity_model import PrincipalKind
from server.calls.caller_outlet import Line
from server.calls.dispatch import gate_of, make_request, too_many_running
from server.calls.request import Request
from server.calls.rights.visitors import VISITOR
from server.calls.servers.endpoint import Endpoint
from server.calls.tools_call import INVALID_ARGUMENTS, TOOL_CALL, call_tool
from server.mcp.errors import (
    WIRE,
    AgentError,
    AgentReplaced,
    AgentTooSlow,
    AgentUnreached,
    AnswerNotHeard,
    BackendFailed,
    BadParams,
    BadState,
    InsufficientScope,
    InternalError,
    InvalidArguments,
    McpError,
    MissingCapability,
    TooManyTasks,
    UnknownTool,
)
from server.mcp.inbound_messages import Route
from server.mcp.messages import Content
from server.mcp.method_params import CallToolParams
from server.mcp.result_encoding import ToolResult
from server.mcp.versions import LATEST
from server.store.idempotency.call_keys import IDEMPOTENT, REPEAT, REPLAYED
from server.store.jobs import StoreUnavailable
from server.transport.http.entry import Threshold
from server.transport.http.handler import Pairs, Scope
from server.transport.http.inline_reply import answer_in_place
from server.transport.http.mcp_request import RETRY_LATER, RETRY_SOON
from server.transport.http.plain_requests import NOT_STORED, PRIVATE, PlainHandler, PlainRequest, wrong_verb

# What JSON-RPC says with 200 and a code, HTTP has a status for.
STATUS: Final[Mapping[type[McpError], int]] = MappingProxyType(
    {
        UnknownTool: 404,
        BadParams: 400,
        BadState: 400,
        InvalidArguments: 400,
        MissingCapability: 422,
        AgentError: 422,
        TooManyTasks: 429,
        InternalError: 500,
        BackendFailed: 502,
        AgentReplaced: 503,
        AgentUnreached: 502,
        AnswerNotHeard: 502,
        AgentTooSlow: 504,
    }
)
NOT_NOW: Final = "this cannot be written down right now, so nothing was done: try again in a moment"
# Of calls that are not made again, or with a key that is none; of all others it is 409.
REPEAT_STATUS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "invalid_idempotency_key": 400,
        "invalid_arguments": 400,
        "too_many_keys": 429,
        "temporarily_unavailable": 503,
    }
)
_NOT_HERE: Final = "this tool asks its caller, or answers later: it is to be called over MCP"


class CallAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    content: Sequence[Content]
    structured_content: Any = UNSET
    is_error: bool = False
    meta: Mapping[str, Any] | UnsetType = field(default=UNSET, name="_meta")
    # Of one that was paid for beforehand, and has failed.
    paid: bool | UnsetType = UNSET
    retries_left: int | UnsetType = field(default=UNSET, name="retries_left")


_encode: Final = msgspec.json.Encoder().encode


class ToolCalls:
    """The tools of one server, each at an address of its own below `prefix`."""

    def __init__(self, endpoint: Endpoint, threshold: Threshold, prefix: str) -> None:
        self._endpoint = endpoint
        self._threshold = threshold
        self._prefix = prefix

    def resolve(self, scope: Scope) -> PlainHandler:
        tool = scope["path"].removeprefix(self._prefix)
        return PlainHandler(self._threshold, scope, partial(self._serve, tool), tool, visitors=True)

    async def _serve(self, tool: str, visit: PlainRequest) -> None:
        request = self._request(tool, visit, {})
        if request.tool is None:
            if visit.principal.kind is PrincipalKind.PAYER and not visit.principal.identified:
                other = await visit.plain_head.as_visitor(visit)
                if other is not None and self._request(tool, other, {}).tool is not None:
                    return await self._answer_visitor(tool, other)
                return await visit.plain_head.ask_login(visit)
            if visit.principal.subject == VISITOR.subject:
                return await visit.plain_head.ask_login(visit)
            return await visit.plain.say(404, "not_found", str(UnknownTool(tool)))
        if visit.head.verb != "POST":
            return await wrong_verb(visit, tool)
        arguments = await visit.json_object()
        if arguments is None:
            return None
        request = self._request(tool, visit, arguments)
        reply = visit.reply
        result = await answer_in_place(
            partial(_call, request),
            reply,
            visit.cycle,
            cancels=True,
            last_word=partial(reply.tell_stopping, None),
        )
        return await self._answer(request, visit, result)

    async def _answer_visitor(self, tool: str, visit: PlainRequest) -> None:
        try:
            await self._serve(tool, visit)
        finally:
            if visit.load is not None:
                visit.load.let_go()

    def _request(self, tool: str, visit: PlainRequest, arguments: Mapping[str, Any]) -> Request:
        params = CallToolParams(name=tool, arguments=dict(arguments))
        request = make_request(
            self._endpoint,
            visit.principal,
            Route(
                TOOL_CALL, visit.request_id, params, LATEST, None, len(_encode(arguments)) if arguments else 0
            ),
            visit.request_id,
            still_allowed=visit.still_allowed,
            address=visit.address,
            load=visit.load,
        )
        request.payment, request.idempotency_key = visit.payment, visit.idempotency_key
        if visit.idempotency_key is not None and request.tool is not None and not request.priced:
            request.repeats = True
        return request

    async def _answer(
        self, request: Request, visit: PlainRequest, result: ToolResult | McpError | StoreUnavailable
    ) -> None:
        """Send the answer; from then on the caller has been told."""
        lost = request.when_written is not None and visit.cycle.has_left()
        await self._give(request, visit, result)
        if visit.plain.written and not lost and request.when_written is not None:
            visit.cycle.when_heard_of(request.when_written())

    async def _give(
        self, request: Request, visit: PlainRequest, result: ToolResult | McpError | StoreUnavailable
    ) -> None:
        if request.unpaid is not None:
            if request.unpaid.refusal.status == 401:
                return await visit.plain_head.ask_login(visit)
            return await visit.plain.demand(request.unpaid, version=visit.payment_version)
        if isinstance(result, McpError):
            return await self._fail(request, visit, result)
        if isinstance(result, StoreUnavailable):
            return await visit.plain.say(503, "temporarily_unavailable", NOT_NOW, RETRY_LATER)
        meta = result.meta or {}
        if (problems := meta.get(INVALID_ARGUMENTS)) is not None:
            return await visit.plain.say(400, "invalid_arguments", _text(result), problems=problems)
        if result.is_error and (kept := meta.get(REPEAT)) is not None:
            return await self._not_made_again(request, visit, result, kept["reason"])
        if result.is_error and request.retry_after is not None:
            later = ((b"retry-after", b"%d" % request.retry_after),)
            return await visit.plain.say(429, "too_many_requests", _text(result), later)
        extra: Pairs = (IDEMPOTENT,) if REPLAYED in meta else ()
        if request.priced:
            from server.transport.http.payment_required import paid_pairs

            extra = paid_pairs(meta, visit.payment_version)
        answer = CallAnswer(
            content=result.content,
            structured_content=result.structured,
            is_error=result.is_error,
            meta=meta or UNSET,
            **_in_vain(request),
        )
        body = _encode(answer)
        if request.record is not None:
            request.record.answered = len(body)
        kind = PRIVATE if request.priced and not result.is_error else NOT_STORED
        return await visit.plain.give(422 if result.is_error else 200, body, (*kind, *extra))

    async def _not_made_again(
        self, request: Request, visit: PlainRequest, result: ToolResult, reason: str
    ) -> None:
        """Answer a repeat, or a call that cannot be known to be none."""
        seconds = request.retry_after
        later: Pairs = () if seconds is None else ((b"retry-after", b"%d" % seconds),)
        await visit.plain.say(REPEAT_STATUS.get(reason, 409), reason, _text(result), later)

    async def _fail(self, request: Request, visit: PlainRequest, error: McpError) -> None:
        if isinstance(error, InsufficientScope):
            head = visit.head
            refusal = head.threshold.doorkeeper.forbid(error.scopes, error.missing, head.shown(visit.address))
            return await visit.head.turn_away(visit.reply, refusal)
        status = STATUS.get(type(error)) or WIRE[type(error)].modern
        more: dict[str, Any] = dict(error.data or {}) if isinstance(error, InvalidArguments) else {}
        extra: Pairs = RETRY_LATER if status == 503 else RETRY_SOON if status == 429 else ()
        more |= _in_vain(request)
        if request.in_vain is not None and request.in_vain.settlement is not None:
            from server.transport.http.payment_required import receipt_pairs

            extra = (*extra, *receipt_pairs(request.in_vain.settlement, visit.payment_version))
        word = (
            "server_error" if status >= 500 else "too_many_requests" if status == 429 else "invalid_request"
        )
        return await visit.plain.say(status, word, str(error), extra, **more)


async def _call(request: Request, line: Line) -> ToolResult | McpError | StoreUnavailable:
    """Make the call. Errors are answers too; cancellation stops the work."""
    request.line = line
    log = request.endpoint.log
    if (gate := gate_of(request)) is not None and not gate.begin(request.sharer):
        return too_many_running(gate)
    try:
        result = await call_tool(request)
    except McpError as error:
        return error.as_value()
    except StoreUnavailable as problem:
        log.warning("store.unavailable", method="call", reason=str(problem))
        return problem
    except Exception:
        log.exception("http.crashed", request=request.call_id)
        return InternalError(request.call_id)
    finally:
        if gate is not None:
            gate.end(request.sharer)
    return result if isinstance(result, ToolResult) else MissingCapability({}, _NOT_HERE)


def _in_vain(request: Request) -> dict[str, Any]:
    """Return the body about a call that was paid for beforehand, and has failed."""
    return {} if request.in_vain is None else {"paid": True, "retries_left": request.in_vain.tries}


def _text(result: ToolResult) -> str:
    return "\n".join(
        text for block in result.content if isinstance(text := getattr(block, "text", None), str)
    )
