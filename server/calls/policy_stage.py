"""A call of a tool that something stands in front of: rules, hooks, a budget, a confirmation; and afterwards what looks at its answer.

    rules → a hook → rules again, if it changed the arguments → the budget → the person, where a rule says "ask" → confirmed? → the tool
                                                                                             … → a hook → redaction → the answer

Whatever refuses says so in a result that a model can act on. For tools of which nothing is said nothing of this is loaded. What is decided
is server/calls/policy's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
import trio

from server.agents.base.catalog import ToolEntry
from server.calls import confirmation_stage
from server.calls.hook_stage import Misfit, looked_at, looked_at_again
from server.calls.policy.confirmation_questions import consent_key, consents, question_of
from server.calls.policy.redaction import RedactingOutlet, Redactor, Unredactable
from server.calls.policy.rule_decisions import PolicyDecision, decide, facts_of
from server.calls.policy.tool_policy import ToolPolicy
from server.calls.policy_messages import CallNotMade, arguments_of, not_counted, refused, tell
from server.calls.request import Request
from server.mcp.call_failures import BackendError, CannotAsk, NotAnswered, Paused
from server.mcp.call_outlet import Outlet
from server.mcp.call_questions import Question
from server.mcp.errors import McpError
from server.mcp.result_encoding import ToolResult
from server.store.jobs import StoreUnavailable
from server.store.limits.tool_limits import used_up
from server.store.limits.usage_meters import Raised

T = TypeVar("T")

Answer: TypeAlias = tuple[ToolResult, str]
RunTool: TypeAlias = Callable[[Outlet], Awaitable[Answer]]

# To write down that somebody left.
LEAVING_SECONDS: Final = 2
# A call that ended so took nothing of a budget.
_CAME_TO_NOTHING: Final = frozenset({"invalid", "unpaid", "replayed", "busy"})
# The tool itself has answered.
_ANSWERED: Final = frozenset({"ok", "error"})
_WITHHELD: Final = "This call was made, but its answer is withheld: it holds what may not be shown, and cannot be shown without that."


async def governed(request: Request, tool: ToolEntry, outlet: Outlet, run: RunTool, misfit: Misfit) -> Answer:
    """The answer, and the word for what came of it. Raises what `run` raises."""
    policy: ToolPolicy = tool.policy  # type: ignore[assignment]
    try:
        given = confirmation_stage.taken_off(request, policy)
        decision = await _ruled(request, policy)
        if policy.before is not None:
            substitute = await looked_at(request, tool, policy, policy.before, misfit)
            if substitute is not None:
                outcome = "error" if substitute.is_error else "ok"
                return await _redacted(request, tool, policy, substitute, outcome)
            if request.rewritten:
                decision = await _ruled(request, policy)
        taken = await _taken(request, policy, decision)
        try:
            if decision.verdict == "ask":
                await _asked(request, policy, decision, outlet, taken)
            answer, outcome = await confirmation_stage.confirmed(request, policy, given, outlet, run)
        except (Paused, CallNotMade):
            await _put_back(policy, taken)
            raise
        if outcome in _CAME_TO_NOTHING:
            await _put_back(policy, taken)
        if outcome == "replayed":  # kept by the till, when other things may have been hidden
            answer, outcome = await _redacted(request, tool, policy, answer, outcome)
        return confirmation_stage.with_previews(request, policy, answer, outcome), outcome
    except CallNotMade as found:
        request.unmade = True
        return found.answer, found.outcome


async def overseen(request: Request, tool: ToolEntry, outlet: Outlet, run: RunTool) -> Answer:
    """What the tool answers, as its caller may see it: before it is charged for, kept or signed."""
    policy: ToolPolicy = tool.policy  # type: ignore[assignment]
    redactor = policy.redactor
    answer, outcome = await (run(outlet) if redactor is None else looked_through(redactor, outlet, run))
    if policy.after is not None and outcome in _ANSWERED:
        answer, outcome = await looked_at_again(request, tool, policy, policy.after, answer, outcome)
    return await _redacted(request, tool, policy, answer, outcome)


async def given_now(
    request: Request, tool: ToolEntry, give: Callable[[Outlet], Awaitable[tuple[Any, str]]], outlet: Outlet
) -> tuple[Any, str]:
    """An answer that was kept: by the rules, and without what may not be shown, as these are now. Nobody is asked again, no hook looks at
    it again, and nothing is counted."""
    policy: ToolPolicy = tool.policy  # type: ignore[assignment]
    confirmation_stage.taken_off(request, policy)
    try:
        await _ruled(request, policy)
    except CallNotMade as found:
        request.unmade = True
        return found.answer, found.outcome
    redactor = policy.redactor
    answer, outcome = await (give(outlet) if redactor is None else looked_through(redactor, outlet, give))
    if not isinstance(answer, ToolResult):
        return answer, outcome
    return await _redacted(request, tool, policy, answer, outcome)


def read_through(
    policy: Any, run: Callable[[Outlet], Awaitable[tuple[T, str]]]
) -> Callable[[Outlet], Awaitable[tuple[T, str]]]:
    """`run` of a resource, a prompt or a completion, without what may not be shown."""
    redactor: Redactor | None = policy.redactor
    if redactor is None:
        return run

    async def clear(outlet: Outlet) -> tuple[T, str]:
        answer, outcome = await looked_through(redactor, outlet, run)
        try:
            return await redactor.library(answer), outcome
        except Unredactable as error:
            raise BackendError("what the agent answered cannot be shown") from error

    return clear


async def looked_through(redactor: Redactor, outlet: Outlet, run: Callable[[Outlet], Awaitable[T]]) -> T:
    """What is said on the way, and why it failed. Raises what `run` raises, in other words perhaps."""
    try:
        return await run(RedactingOutlet(outlet, redactor))
    except (BackendError, McpError) as error:
        try:
            await redactor.error(error)
        except Unredactable:
            raise BackendError("the agent failed") from None
        raise


async def _redacted(
    request: Request, tool: ToolEntry, policy: ToolPolicy, answer: ToolResult, outcome: str
) -> Answer:
    if policy.redactor is None:
        return answer, outcome
    try:
        clear = await policy.redactor.result(answer)
    except Unredactable:
        return refused("withheld", _WITHHELD), "refused"
    if list(clear.content) == list(answer.content) and clear.structured == answer.structured:
        return clear, outcome
    await tell(request, policy, "redacted", kept=False)
    if not clear.is_error and tool.schema.promises and not tool.schema.conforms(clear.structured):
        return refused("withheld", _WITHHELD), "refused"
    return clear, outcome


# ── what the rules say ───────────────────────────────────────────────────────────────────────────────────────────────


async def _ruled(request: Request, policy: ToolPolicy) -> PolicyDecision:
    """What is to be done, which is not to deny. Raises `CallNotMade`."""
    decision = decide(policy.rules, facts_of(request.principal, policy.tool, arguments_of(request)))
    if decision.verdict == "allow":
        return decision
    if policy.whole.mode != "enforce":
        what = "would_deny" if decision.verdict == "deny" else "would_ask"
        await tell(request, policy, what, rule=decision.rule, kept=policy.whole.mode == "audit")
        return msgspec.structs.replace(decision, verdict="allow")
    if decision.verdict == "deny":
        await tell(request, policy, "denied", rule=decision.rule, kept=True)
        text = f"This call was not made: {decision.reason}. Calling it again in the same way does not help."
        raise CallNotMade(refused("denied", text, rule=decision.rule))
    return decision


# ── how many ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _taken(request: Request, policy: ToolPolicy, decision: PolicyDecision) -> Raised | None:
    """Raises `CallNotMade`."""
    whole = policy.whole
    if not decision.max_calls or whole.mode == "dry_run":
        return None
    session = request.session.id if decision.per_session and request.session is not None else ""
    caller = whole.desk.budgets.callers.name(request.sharer, known=request.principal.identified)
    subject = whole.budget_of(decision.rule, caller, session)
    try:
        taken = await whole.desk.budgets.take(subject, decision.max_calls)
    except StoreUnavailable as problem:
        whole.desk.log.warning("policy.not_counted", tool=policy.tool, reason=str(problem))
        if whole.mode == "audit":
            return None
        text = (
            "This call was not made, because it cannot be counted right now: call it again in a few seconds."
        )
        raise not_counted(text, rule=decision.rule) from problem
    if isinstance(taken, Raised):
        return taken
    if whole.mode == "audit":
        await tell(request, policy, "would_exceed", rule=decision.rule, kept=True)
        return None
    await tell(request, policy, "over_budget", rule=decision.rule, kept=True)
    request.retry_after = taken
    which = "of this session" if session else "a day"
    text = (
        f"This call was not made: the {used_up(decision.max_calls, f'{which} that you may make here', taken)};"
        " calling again before that does not help."
    )
    if decision.reason:
        text = f"{text} {decision.reason}"
    raise CallNotMade(refused("over_budget", text, rule=decision.rule, retryAfter=taken))


async def _put_back(policy: ToolPolicy, taken: Raised | None) -> None:
    if taken is None:
        return
    try:
        await policy.whole.desk.budgets.put_back(taken)
    except StoreUnavailable as problem:  # its caller has one call less
        policy.whole.desk.log.warning("policy.not_counted", tool=policy.tool, reason=str(problem))


# ── whether somebody agrees ──────────────────────────────────────────────────────────────────────────────────────────


async def _asked(
    request: Request, policy: ToolPolicy, decision: PolicyDecision, outlet: Outlet, taken: Raised | None
) -> None:
    """Until somebody agrees. Raises as `_agreed`. Whoever leaves meanwhile has used up nothing."""
    try:
        await _agreed(request, policy, decision, outlet)
    except (Paused, CallNotMade):
        raise
    except BaseException:
        with trio.move_on_after(LEAVING_SECONDS, shield=True):
            await _put_back(policy, taken)
        raise


async def _agreed(request: Request, policy: ToolPolicy, decision: PolicyDecision, outlet: Outlet) -> None:
    """The person behind the caller is asked. Whoever cannot be asked has not agreed. Raises `CallNotMade`, and `Paused`."""
    arguments = arguments_of(request)
    key = consent_key(policy.tool, arguments)
    question = Question(
        method="elicitation/create", params=question_of(policy.tool, arguments, decision.reason)
    )
    agreed: bool | None = None
    try:
        agreed = consents((await outlet.ask({key: question})).get(key))
    except CannotAsk as error:
        await tell(request, policy, "not_asked", rule=decision.rule, kept=True)
        text = (
            f"This call was not made: {decision.reason}, and nobody can be asked through this client. Somebody has to make it"
            " through a client that can put questions to them (elicitation)."
        )
        raise CallNotMade(refused("not_asked", text, rule=decision.rule)) from error
    except NotAnswered:
        pass  # as if it had been closed
    if agreed:
        await tell(request, policy, "accepted", rule=decision.rule, kept=True)
        return
    if agreed is None:
        await tell(request, policy, "not_asked", rule=decision.rule, kept=True)
        text = (
            f"This call was not made: {decision.reason}, and the question was closed without an answer. Call again when somebody"
            " is there to answer it."
        )
        raise CallNotMade(refused("not_asked", text, rule=decision.rule))
    await tell(request, policy, "declined", rule=decision.rule, kept=True)
    text = (
        "This call was not made: the person who was asked did not agree to it. Do not ask again for the same."
    )
    raise CallNotMade(refused("declined", text, rule=decision.rule))
