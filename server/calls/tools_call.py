"""`tools/call`: a call that is answered with its result, with questions, or with a task.

Every use of an agent goes through agent_use.py; messages and questions meanwhile are question_routes.py's; the engine of tasks is
server/calls/tasks. Spec: server/tools "Error Handling" (2026-07-28): a tool's own failure and wrong arguments are results that the model
can read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from typing import Any, Final, cast

import msgspec
import trio
from msgspec import UNSET

from auth.values.identity_model import PrincipalKind
from server.agents.base.backend import Foreign, ToolCall, ToolCrashed
from server.agents.base.catalog import ToolEntry
from server.agents.base.outlets import HeldOutlet
from server.calls.agent_use import perform
from server.calls.caller_outlet import CallerLine
from server.calls.charge_before_task import brought_by, charge_ahead, let_go_ahead, told_of_payment
from server.calls.question_routes import resumable
from server.calls.request import Inner, Request
from server.calls.rights.standing import Standing, insufficient
from server.calls.servers.endpoint import Endpoint, TaskRules
from server.calls.task_question_relay import TaskQuestionRelay
from server.calls.tasks.task_order import TaskOrder, Who, owner_of
from server.calls.tasks.task_outlet import TaskAttempt
from server.lib.shortened import short_name
from server.mcp.call_failures import BackendError, Busy
from server.mcp.call_outlet import Outlet
from server.mcp.carried_extensions import draws_pages
from server.mcp.errors import (
    AgentAway,
    AgentError,
    AgentTooSlow,
    BackendFailed,
    BadParams,
    InsufficientScope,
    InvalidArguments,
    McpError,
    MissingCapability,
    TooManyTasks,
    UnknownTool,
)
from server.mcp.inbound_messages import Route
from server.mcp.messages import TextContent
from server.mcp.method_params import CallToolParams
from server.mcp.method_table import METHODS, Method
from server.mcp.result_encoding import InputRequiredResult, RawResult, ToolResult, as_text
from server.mcp.schema import ArgumentProblem
from server.mcp.task_faces import (
    AtOnce,
    ByHand,
    Ending,
    Face,
    Snapshot,
    TaskCompleted,
    TaskFailed,
    TaskRefusal,
    created,
    manner,
)
from server.mcp.versions import LATEST
from server.store.idempotency.call_keys import IDEMPOTENCY_HEADER
from server.store.jobs import StoreBroken, StoreUnavailable

# Where a result lists which arguments were wrong, for programs; its text says the same for models.
INVALID_ARGUMENTS: Final = "io.ostiary/invalidArguments"
NO_ARGUMENTS: Final[Mapping[str, Any]] = {}

TOOL_CALL: Final = METHODS["tools/call"]

# A task that a restart interrupted may be there before its agent is.
AWAITED_SECONDS: Final = 15 * 60.0
AWAITED_PAUSE_SECONDS: Final = 1.0


def agent_away(method: Method, error: AgentAway) -> ToolResult:
    """Tell the model, whom an error does not reach, whether to try again. Raises the error for any other request than a call."""
    if method is not TOOL_CALL:
        raise error
    return _failed(error.advice)


async def call_tool(request: Request) -> ToolResult | RawResult | InputRequiredResult:
    params: CallToolParams = request.route.params  # type: ignore[assignment]
    tool = request.tool
    if tool is None:
        raise _missing(request, params.name)
    if tool.terms.coerces and params.arguments:
        params = _coerced(request, tool, params)
    if request.repeats:
        from server.calls.idempotency_stage import call_once

        return await call_once(request, tool, call_tool)
    limits = request.endpoint.limits
    if limits is not None and limits.bounds is not None and not request.counted:
        from server.calls.limit_stage import call_within

        return await call_within(request, params.name, call_tool, misfit=INVALID_ARGUMENTS)
    try:
        # A state that comes with the request is looked at even where nothing is asked: a forged one is never taken.
        if tool.terms.quick and params.request_state is UNSET and not request.priced and tool.policy is None:
            return await perform(
                request, params.name, tool.terms, request.standing, partial(_run, request, tool, None)
            )
        if request.endpoint.adrift:
            from server.calls.abandoned_calls import join_adrift

            request.answer = await join_adrift(request)
            if request.answer is not None:
                return request.answer
        salient = {"name": params.name, "arguments": params.arguments or NO_ARGUMENTS}
        result = request.answer = await resumable(
            request, params, salient, partial(_use_or_order, request, tool)
        )
        if request.unpaid is not None and request.pays_by_extension:
            from server.calls.payment_stage import as_extension

            return as_extension(request, result)
        return result
    except MissingCapability as error:
        if request.revision.modern:
            raise
        # The handshake era has no such error: what it settled there cannot be mended by sending more with the request.
        return _failed(str(error))
    except InsufficientScope as error:
        if request.endpoint.step_ups.may_ask(request.principal, error.missing):
            raise
        return _failed(
            f"Not allowed: this tool {error}, which was asked for and not granted. It will be asked for again in a while;"
            " whoever logs this program in anew and grants it can use the tool at once."
        )
    finally:
        if request.adrift is not None:
            request.adrift.end(request.answer)


def _coerced(request: Request, tool: ToolEntry, params: CallToolParams) -> CallToolParams:
    """Return the params with arguments that the schema wants, as far as texts say them; before anything else looks at them, and once."""
    from server.mcp.lenient_arguments import coerced

    arguments = cast("dict[str, Any]", params.arguments)
    if not tool.schema.problems(arguments):
        return params
    taken = msgspec.structs.replace(params, arguments=coerced(tool.tool.input_schema, arguments))
    request.route = msgspec.structs.replace(request.route, params=taken)
    return taken


async def carry_out(
    endpoints: Mapping[str, Endpoint], order: TaskOrder, outlet: Outlet, *, inner: Inner | None = None
) -> Ending:
    """Run what was ordered as a task, by the same page as every other call, only that nobody waits on a line. Raises what a call
    raises, and `Paused` if the outlet does."""
    endpoint = endpoints.get(order.server)
    if endpoint is None:
        raise BackendFailed(f"the server {order.server} is not served any more")
    request = Request(
        endpoint=endpoint,
        principal=order.principal.principal(),
        route=Route(
            TOOL_CALL,
            order.call_id,
            CallToolParams(name=order.tool, arguments=dict(order.arguments)),
            LATEST,
            None,
            len(msgspec.json.encode(order.arguments)),
        ),
        call_id=order.call_id,
        unhurried=True,
        known_abilities=order.can,
        charge=order.charge,
        payment=order.payment,
        idempotency_key=order.idempotency_key,
        address=order.address,
        known_apart=order.apart or None,
        handshake=order.handshake,
        traceparent=order.traceparent,
        inner=inner,
    )
    settle_tool(request, order.tool)
    try:
        with trio.move_on_after(AWAITED_SECONDS):
            while request.tool is None and endpoint.catalog.awaits_more:
                await trio.sleep(AWAITED_PAUSE_SECONDS)
                settle_tool(request, order.tool)
        if request.tool is None:
            raise _missing(request, order.tool)
        result = await _use(request, request.tool, outlet, order.resumed)
        if request.record is not None:
            request.record.answered = len(msgspec.json.encode(result))
    except McpError as error:
        error.reached = request.reached
        raise
    finally:
        if request.record is not None and isinstance(outlet, TaskAttempt):
            request.record.is_task = outlet.task is not None
        await let_go_ahead(request)  # nothing, if it came as far as the till
    return TaskCompleted(result, when_kept=request.when_written, call=request)


def _missing(request: Request, name: str) -> UnknownTool:
    """Return the error of a tool that is not there. If it waits for its owner to look at it, that is said; not to strangers, and to nobody who may know
    of some tools alone."""
    request.endpoint.catalog.missed(name)
    principal = request.principal
    told = principal.kind is not PrincipalKind.PAYER and not principal.tools
    return UnknownTool(name, (request.endpoint.catalog.withheld(name) or "") if told else "")


def settle_tool(request: Request, name: str) -> None:
    """Settle which tool the request names, and how its caller stands to it. A tool that it must not know of is not found."""
    endpoint = request.endpoint
    request.tool, request.standing, request.priced, request.repeats = None, Standing.HIDDEN, False, False
    tool = endpoint.catalog.tools.get(name) or endpoint.tool_called(name)
    if tool is not None and not (tool.for_pages and not _from_page(request)):
        request.standing = endpoint.rights.standing(request.principal, tool)
        if request.standing is not Standing.HIDDEN:
            request.tool = tool
            if tool.tool.name != name:
                _rename(request, name, tool.tool.name)
            request.priced = tool.price is not None and endpoint.till is not None
            # What costs something is known again by the till.
            request.repeats = not request.priced and (
                tool.terms.dedupe_seconds > 0
                or request.route.params.meta.idempotency_key is not UNSET
                or (request.headers is not None and IDEMPOTENCY_HEADER in request.headers)
            )


def _from_page(request: Request) -> bool:
    """Return whether a page may have made the request: no search for tools has, and no client that draws none."""
    return draws_pages(request.can) and not request.searched


def _rename(request: Request, called: str, now: str) -> None:
    """Make the request a call of the tool as it is named here now, in everything that is decided or kept."""
    endpoint, program = request.endpoint, request.principal.program
    params = msgspec.structs.replace(cast("CallToolParams", request.route.params), name=now)
    request.route = msgspec.structs.replace(request.route, params=params)
    old = endpoint.old_names.now(called, endpoint.catalog.tools)
    if old is not None and endpoint.old_names.note(called, now, program):
        endpoint.log.info(
            "tool.called_by_old_name", server=endpoint.name, tool=now, old=short_name(called), program=program
        )


def order_of(request: Request, resumed: Any = None) -> TaskOrder:
    """Return the call as a task is given it. Raises what calling the tool would raise before the agent is asked."""
    params: CallToolParams = request.route.params  # type: ignore[assignment]
    return TaskOrder(
        server=request.endpoint.name,
        tool=params.name,
        arguments=params.arguments or NO_ARGUMENTS,
        principal=Who.of(request.principal),
        call_id=request.call_id,
        can=request.can,
        resumed=resumed,
        traceparent=request.traceparent,
        apart=request.apart,
        handshake=request.handshake,
        **brought_by(request),
    )


def refusal_of(request: Request, tool: ToolEntry, *, as_error: bool = False) -> ToolResult | None:
    """Return what a call would say before its agent is asked: for what becomes a task, since a refusal is better given at once. Raises
    as the call does; a result is one that tells of wrong arguments, unless that is to be an error."""
    if request.standing is Standing.GRANTABLE:
        raise insufficient(request.principal, tool.terms)
    params: CallToolParams = request.route.params  # type: ignore[assignment]
    return _misfit(request, tool, params.arguments or NO_ARGUMENTS, as_error=as_error)


# ── run it now ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def _use(request: Request, tool: ToolEntry, outlet: Outlet, resumed: Any = None) -> ToolResult:
    try:
        return await perform(
            request,
            tool.tool.name,
            tool.terms,
            request.standing,
            partial(
                _run_governed if tool.policy is not None else _run_priced if request.priced else _run,
                request,
                tool,
                resumed,
            ),
            outlet,
        )
    except AgentTooSlow:
        return told_of_payment(request, too_slow(tool))


async def _run_governed(
    request: Request, tool: ToolEntry, resumed: Any, outlet: Outlet
) -> tuple[ToolResult, str]:
    """Run the tool past the policy that stands in front of it. Wrong arguments are told first."""
    from server.calls.policy_stage import governed

    params: CallToolParams = request.route.params  # type: ignore[assignment]
    if misfit := _misfit(request, tool, params.arguments or NO_ARGUMENTS):
        return misfit, "invalid"
    run = partial(_run_priced if request.priced else _run_overseen, request, tool, resumed)
    return await governed(request, tool, outlet, run, partial(_misfit, request, tool))


async def _run_overseen(
    request: Request, tool: ToolEntry, resumed: Any, outlet: Outlet
) -> tuple[ToolResult, str]:
    """Run the tool, and change what it says and answers as the policy wants."""
    from server.calls.policy_stage import overseen

    return await overseen(request, tool, outlet, partial(_run, request, tool, resumed))


async def _run_priced(
    request: Request, tool: ToolEntry, resumed: Any, outlet: Outlet
) -> tuple[ToolResult, str]:
    """Run the tool for money. Wrong arguments cost nothing."""
    from server.calls.payment_stage import charged

    params: CallToolParams = request.route.params  # type: ignore[assignment]
    arguments = params.arguments or NO_ARGUMENTS
    if misfit := _misfit(request, tool, arguments):
        return misfit, "invalid"
    till = request.endpoint.till
    assert till is not None

    def run(withheld: bool) -> Awaitable[tuple[ToolResult, str]]:
        answer = _run if tool.policy is None else _run_overseen
        return answer(request, tool, resumed, HeldOutlet(outlet) if withheld else outlet)

    return await charged(request, tool, till, arguments, run)


async def _run(request: Request, tool: ToolEntry, resumed: Any, outlet: Outlet) -> tuple[ToolResult, str]:
    params: CallToolParams = request.route.params  # type: ignore[assignment]
    arguments = params.arguments or NO_ARGUMENTS
    if (tool.schema.mirrored or (not tool.terms.unchecked and tool.schema.problems(arguments))) and (
        misfit := _misfit(request, tool, arguments)
    ):
        return misfit, "invalid"
    hears = request.unhurried
    call = (
        ToolCall(
            tool=params.name,
            arguments=arguments,
            subject=request.principal.subject,
            call_id=request.call_id,
            caller=request.principal,
            origin=request,
            sold=request.sold,
            sold_as_said=request.sold_as_said,
        )
        if tool.terms.quick
        else ToolCall(
            tool=params.name,
            arguments=arguments,
            subject=request.principal.subject,
            sharer=request.sharer,
            call_id=request.call_id,
            can=request.can,
            resumed=resumed,
            wants_progress=hears or request.wants_progress,
            log_level="debug" if hears else request.log_level(),
            unhurried=request.unhurried,
            handshake=request.handshake,
            session_can=None if request.session is None else request.session.can,
            caller=request.principal,
            came=request.route.came,
            origin=request,
            sold=request.sold,
            sold_as_said=request.sold_as_said,
        )
    )
    request.reached = True
    try:
        tracing = request.endpoint.tracing
        if tracing is None:
            answer = await tool.backend.call(call, outlet)
        else:
            from server.calls.request_spans import traced_use

            answer = await traced_use(request, tracing, tool, call, outlet)
    except ToolCrashed as error:
        return _failed(str(error)), "error"
    except Busy as error:
        from server.calls.limit_stage import no_turn

        return no_turn(request, params.name, error), "busy"
    if answer.is_error:
        return answer, "error"
    if tool.schema.promises and not tool.schema.conforms(answer.structured):
        if isinstance(
            tool.backend, Foreign
        ):  # somebody else's mistake, and nothing of ours to be looked into
            raise BackendError(f"the answer of {params.name} is not what its outputSchema promises")
        raise TypeError(f"the answer of {params.name} is not what its outputSchema promises")
    if not answer.content and answer.structured is not UNSET:
        answer = msgspec.structs.replace(answer, content=(TextContent(text=as_text(answer.structured)),))
    return answer, "ok"


def _misfit(
    request: Request, tool: ToolEntry, arguments: Mapping[str, Any], *, as_error: bool = False
) -> ToolResult | None:
    """Return what is wrong with the arguments. Raises `HeaderMismatch` and, where it is to be an error, `InvalidArguments`."""
    schema = tool.schema
    if schema.mirrored and request.headers is not None and request.revision.modern and not request.rewritten:
        schema.check_headers(arguments, request.headers)
    if tool.terms.unchecked or not (problems := schema.problems(arguments)):
        return None
    text = _listed(problems)
    if as_error or request.endpoint.refuses_invalid:
        raise InvalidArguments(text, problems)
    return ToolResult(content=(TextContent(text=text),), is_error=True, meta={INVALID_ARGUMENTS: problems})


def _listed(problems: Sequence[ArgumentProblem]) -> str:
    lines = [f"{problem.field or 'arguments'}: {problem.reason}" for problem in problems]
    return "Invalid arguments.\n" + "\n".join(lines)


def too_slow(tool: ToolEntry) -> ToolResult:
    return _failed(f"{AgentTooSlow(tool.tool.name, tool.terms.deadline_seconds)}, and was stopped.")


def _failed(text: str) -> ToolResult:
    return ToolResult(content=(TextContent(text=text),), is_error=True)


# ── or as a task ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _use_or_order(
    request: Request, tool: ToolEntry, line: CallerLine, resumed: Any
) -> Awaitable[ToolResult | RawResult]:
    rules = request.endpoint.tasks
    face = None if rules is None else request.endpoint.task_face(request.route.revision)
    if face is None or rules is None:
        return _use(request, tool, line, resumed)
    return _use_or_order_as(face, rules, request, tool, line, resumed)


async def _use_or_order_as(
    face: Face, rules: TaskRules, request: Request, tool: ToolEntry, line: CallerLine, resumed: Any
) -> ToolResult | RawResult:
    wish = cast("CallToolParams", request.route.params).task
    if face is Face.CORE:
        _check_wish(wish)
    how = manner(
        face,
        tool.tool.execution,
        tool=tool.tool.name,
        declared=request.declares_tasks,
        asked=isinstance(wish, dict),
        sync_timeout_seconds=rules.sync_timeout_seconds,
    )
    match how:
        case TaskRefusal(error):
            raise error
        case AtOnce(or_waits):
            return await _order_at_once(
                request, tool, rules, face, line, resumed, ttl_ms=_wished_ttl(wish), or_waits=or_waits
            )
        case ByHand(after_seconds):
            return await _order_by_hand(
                request, tool, rules, face, line, resumed, after_seconds=after_seconds
            )
        case _:
            return await _use(request, tool, line, resumed)


async def _order_at_once(
    request: Request,
    tool: ToolEntry,
    rules: TaskRules,
    face: Face,
    line: CallerLine,
    resumed: Any,
    *,
    ttl_ms: int | None,
    or_waits: bool,
) -> ToolResult | RawResult:
    # Who asked for a task on the core face waits for one, and takes no result in its place.
    if (refusal := refusal_of(request, tool, as_error=face is Face.CORE)) is not None:
        return refusal
    if (answer := await charge_ahead(request, tool)) is not None:
        return answer
    try:
        task = await start_task(request, rules, face, ttl_ms, resumed)
    except (TooManyTasks, StoreUnavailable) as problem:
        if not or_waits or isinstance(problem, StoreBroken):  # there may be a task of it
            await let_go_ahead(request)
            raise
        return await _use(request, tool, line, resumed)
    except BaseException:
        await let_go_ahead(request)
        raise
    if face is Face.CORE and request.session is not None and request.can:
        owner = owner_of(request.principal, request.endpoint.name)
        rules.couriers.start(TaskQuestionRelay(rules.engine, owner, request.session, task).run)
    return created(face, task)


async def _order_by_hand(
    request: Request,
    tool: ToolEntry,
    rules: TaskRules,
    face: Face,
    line: CallerLine,
    resumed: Any,
    *,
    after_seconds: float | None,
) -> ToolResult | RawResult:
    if (refusal := refusal_of(request, tool)) is not None:
        return refusal
    if (answer := await charge_ahead(request, tool)) is not None:
        return answer
    found: Snapshot | TaskCompleted | TaskFailed | None = None
    request.reached = True  # as far as anybody knows who does not hear how it went
    # What bounds a task is its time to live; until it is one, somebody waits.
    try:
        with trio.move_on_after(tool.terms.deadline_seconds):
            found = await rules.engine.attempt(
                order_of(request, resumed),
                line,
                owner=owner_of(request.principal, request.endpoint.name),
                face=face,
                after_seconds=after_seconds,
                ttl_ms=rules.ttl_ms,
                load=request.load,
            )
    except McpError as error:
        request.reached = error.reached
        raise
    finally:
        await let_go_ahead(request)
    match found:
        case Snapshot():
            return created(face, found)
        case TaskCompleted(result, when_kept, call):
            request.when_written = when_kept
            _as_it_went(request, call)
            return result
        case TaskFailed(code, message, data):
            raise AgentError(code, message, data)
        case None:
            return too_slow(tool)


def _as_it_went(request: Request, call: Request) -> None:
    """Copy what became of the call that was made of a request: others keep, count or tell it."""
    request.reached, request.unmade = call.reached, call.unmade
    request.retry_after, request.unpaid = call.retry_after, call.unpaid


async def start_task(
    request: Request, rules: TaskRules, face: Face, ttl_ms: int | None, resumed: Any = None
) -> Snapshot:
    """Start a task of the request. Raises `TooManyTasks`, `StoreUnavailable`."""
    return await rules.engine.start(
        order_of(request, resumed),
        owner=owner_of(request.principal, request.endpoint.name),
        face=face,
        ttl_ms=min(ttl_ms or rules.ttl_ms, rules.ttl_ms),
        load=request.load,
    )


def _check_wish(wish: Any) -> None:
    """Check `params.task`, where it means something. Raises `BadParams`."""
    if wish is UNSET or wish is None:
        return
    if not isinstance(wish, Mapping):
        raise BadParams("task must be an object")
    ttl = cast("Mapping[str, Any]", wish).get("ttl")
    if ttl is not None and (isinstance(ttl, bool) or not isinstance(ttl, int | float) or ttl < 0):
        raise BadParams("task.ttl must be a number of milliseconds, 0 or more")


def _wished_ttl(wish: Any) -> int | None:
    ttl = cast("Mapping[str, Any]", wish).get("ttl") if isinstance(wish, Mapping) else None
    return ttl if isinstance(ttl, int) and not isinstance(ttl, bool) and ttl > 0 else None
