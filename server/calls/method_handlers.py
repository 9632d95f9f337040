"""A handler for each row of `server.mcp.method_table`, and the one ladder from what it returns or raises to an answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from msgspec import UNSET

from server.calls import list_methods, task_methods
from server.calls.caller_tasks import CallerTasks
from server.calls.prompt_methods import complete, get_prompt
from server.calls.request import Outcome, Request
from server.calls.resource_methods import read_resource, subscribe, unsubscribe
from server.calls.skill_methods import get_skill, list_skills
from server.calls.subscriptions_listen import listen
from server.calls.tools_call import agent_away, call_tool
from server.mcp.errors import AgentAway, BackendFailed, InternalError, McpError
from server.mcp.result_encoding import Result, encode_error, encode_result
from server.store.jobs import StoreUnavailable

Handler: TypeAlias = Callable[[Request], Awaitable[Result]]


def _at_desk(do: Callable[[Any, CallerTasks], Awaitable[Result]]) -> Handler:
    async def handle(request: Request) -> Result:
        return await do(request.route.params, CallerTasks(request))

    return handle


HANDLERS: Final[Mapping[str, Handler]] = MappingProxyType(
    {
        "initialize": list_methods.initialize,
        "ping": list_methods.ping,
        "server/discover": list_methods.discover,
        "tools/list": list_methods.list_tools,
        "tools/call": call_tool,
        "resources/list": list_methods.list_resources,
        "resources/templates/list": list_methods.list_templates,
        "resources/read": read_resource,
        "resources/subscribe": subscribe,
        "resources/unsubscribe": unsubscribe,
        "prompts/list": list_methods.list_prompts,
        "prompts/get": get_prompt,
        "skills/list": list_skills,
        "skills/get": get_skill,
        "completion/complete": complete,
        "logging/setLevel": list_methods.set_level,
        "subscriptions/listen": listen,
        "tasks/get": _at_desk(task_methods.get_task),
        "tasks/update": _at_desk(task_methods.update_task),
        "tasks/cancel": _at_desk(task_methods.cancel_task),
        "tasks/result": _at_desk(task_methods.task_result),
        "tasks/list": _at_desk(task_methods.list_tasks),
        "tasks/create": _at_desk(task_methods.create_task),
        "tasks/respond": _at_desk(task_methods.respond_to_task),
    }
)


async def answer(request: Request) -> Outcome:
    """Return the answer, whatever happens: errors are answers too. Cancelling it stops the work."""
    if request.endpoint.tracing is not None and request.trace is None:
        from server.calls.request_spans import traced_answer

        return await traced_answer(request, request.endpoint.tracing, answer)
    route = request.route
    method = route.method
    try:
        if method.feature is not None or method.session:
            list_methods.check_offered(request)
        if route.problem is not None:
            raise route.problem
        if route.params.meta.log_level is not UNSET:
            request.log_level()
        try:
            result = await HANDLERS[method.name](request)
        except AgentAway as error:
            result = agent_away(method, error)
        body = encode_result(route.id, result, route.revision, request.endpoint.identity)
        if request.record is not None:
            request.record.answered = len(body)
        return Outcome(body, when_written=request.when_written, settled=request.settled)
    except McpError as error:
        return Outcome(encode_error(route.id, error, route.revision), error.as_value())
    except StoreUnavailable as problem:  # only tasks need it
        request.endpoint.log.warning("store.unavailable", method=method.name, reason=str(problem))
        error = BackendFailed(f"tasks are not available: {problem}")
        return Outcome(encode_error(route.id, error, route.revision), error)
    except Exception:
        request.endpoint.log.exception("mcp.crashed", method=method.name, request=request.call_id)
        error = InternalError(request.call_id)
        return Outcome(encode_error(route.id, error, route.revision), error)
