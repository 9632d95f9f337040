"""How a task's call is carried out: by the same page as every other call, only that nobody waits on a line."""

from __future__ import annotations

from collections.abc import Mapping

from server.backends.base import Outlet
from server.calls import Asked
from server.mcp.errors import BackendFailed
from server.mcp.tasks import Completed, Ending
from server.offering import Offering
from server.tasks.order import Order


async def perform(offerings: Mapping[str, Offering], order: Order, outlet: Outlet) -> Ending:
    """Raises what a call raises, and `Paused` if the outlet does."""
    offering = offerings.get(order.server)
    if offering is None:
        raise BackendFailed(f"the server {order.server} is not served any more")
    asked = Asked(
        order.principal.principal(),
        order.tool,
        order.arguments,
        order.call_id,
        outlet=outlet,
        can=order.can,
        resumed=order.resumed,
        wants_progress=True,
        log_level="debug",
        unhurried=True,
    )
    return Completed(await offering.calls.call(asked))
