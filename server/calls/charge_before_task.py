"""Calls that become tasks and cost something: begun at the till before there is a task. For all others nothing of the till is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from server.agents.base.catalog import ToolEntry
from server.calls.request import Request
from server.calls.servers.endpoint import Endpoint
from server.calls.tasks.task_order import TaskOrder
from server.mcp.result_encoding import ToolResult


async def charge_ahead(request: Request, tool: ToolEntry) -> ToolResult | None:
    """So that a refusal is given at once. What is returned is the answer already: of a refusal, or of the same call made before.
    None: the task may be made, and `charged` goes on with it there. What stands in front of a tool comes before the till, so such a
    call begins there when it is made."""
    if not request.priced or tool.policy is not None:
        return None
    from server.calls.payment_stage import begin_ahead

    return await begin_ahead(request, tool)


async def let_go_ahead(request: Request) -> None:
    """There will be no task. Nothing, once it runs."""
    if request.charge is not None:
        from server.calls.payment_stage import release_ahead

        await release_ahead(request)


def brought_by(request: Request) -> dict[str, Any]:
    """What goes into the order of a task."""
    if not request.priced:
        return {}
    from server.calls.payment_from_request import what_it_brings

    return what_it_brings(request)


def told_of_payment(request: Request, failed: ToolResult) -> ToolResult:
    """A call that did not come to its end, for a caller who paid for it beforehand."""
    if request.in_vain is None:
        return failed
    from server.calls.payment_stage import with_payment_in_vain

    return with_payment_in_vain(request.in_vain, failed)


async def let_go_of(endpoints: Mapping[str, Endpoint], order: TaskOrder) -> None:
    """It is not performed: whoever made it was shut out before it had begun. Never raises what the store raises."""
    endpoint = endpoints.get(order.server)
    till = None if endpoint is None or order.charge is None else endpoint.till
    begun = None if till is None or order.charge is None else till.take_over(order.charge)
    if till is not None and begun is not None:
        await till.release(begun)
