"""One use of an upstream, from the request to the result that is final: with the rounds of questions that the stateless era makes of
it, and with the wait of the handshake era kept alive where our own caller is of the stateless one.

    caller       upstream     how a question goes
    ──────────   ──────────   ───────────────────────────────────────────────────────────────────────────────────────
    stateless    stateless    its answer is asked of the caller in the same way; what it wants back goes into our state
    handshake    stateless    the caller's client is asked on its stream, then the request is sent again
    handshake    handshake    the upstream waits while the caller's client is asked
    stateless    handshake    the upstream waits, parked, until the caller's client has come back (suspended_requests.py)
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Mapping
from functools import partial
from typing import Any, Final, cast

import msgspec
from msgspec import Raw

from server.agents.base.backend import AgentRequest
from server.agents.mcp.suspended_requests import SuspendedRequests
from server.agents.mcp.suspension_ticket import TICKET_KEY
from server.client.mcp_session.followed_tasks import HANDSHAKE, TASK
from server.client.mcp_session.question_rounds import ROUND, OpenRound, RoundBounds, after_pages, in_rounds
from server.client.mcp_session.sent_requests import SentRequest
from server.client.mcp_session.session_link import NO_HEADERS, Link
from server.mcp.call_failures import Paused
from server.mcp.call_outlet import Outlet

MOST: Final = RoundBounds()


def use(
    link: Link,
    method: str,
    params: Mapping[str, Any],
    call: AgentRequest,
    outlet: Outlet,
    *,
    parking: SuspendedRequests,
    questions: Collection[str],
    headers: Mapping[str, str] = NO_HEADERS,
    tasks: bool = False,
) -> Awaitable[Raw]:
    """Return the result, which may be that there is a task. Raises `ServerRefusal`, `BackendError`, and whatever `outlet` raises."""
    if call.resumed is not None and isinstance(ticket := _resumed(call, TICKET_KEY), str):
        return after_pages(partial(_come_back, ticket, call, outlet, parking), outlet, questions=questions)
    request = partial(link.request, method, call=call, outlet=outlet, headers=headers, tasks=tasks)
    if link.agreement.modern:
        waiting = None if call.resumed is None else _open_round(call)
        return in_rounds(request, params, outlet, questions=questions, most=MOST, waiting=waiting)
    wait = partial(request, params)
    if call.can:
        wait = partial(_waiting, link, method, params, call, outlet, parking, headers, tasks)
    return after_pages(wait, outlet, questions=questions)


async def _waiting(
    link: Link,
    method: str,
    params: Mapping[str, Any],
    call: AgentRequest,
    outlet: Outlet,
    parking: SuspendedRequests,
    headers: Mapping[str, str],
    tasks: bool,
) -> Raw:
    """Make the request in the handshake era, in which the upstream waits for answers."""
    running = await link.begin(method, params, call, headers=headers, tasks=tasks)
    return await _followed(link, running, outlet, parking)


async def _come_back(ticket: str, call: AgentRequest, outlet: Outlet, parking: SuspendedRequests) -> Raw:
    """Go on with a request that waits, on the connection and in the era that it was made in."""
    if (elsewhere := parking.at_another_node(ticket)) is not None:
        return await elsewhere.go_on(ticket, call.subject, outlet)
    link, running = parking.take_up(ticket, call.subject)
    running.put_again()
    return await _followed(link, running, outlet, parking)


async def _followed(link: Link, running: SentRequest, outlet: Outlet, parking: SuspendedRequests) -> Raw:
    """Follow a request to its end, or until it has to wait for its caller to come back."""
    parked = False
    try:
        return await link.follow(running, outlet)
    except Paused:
        if running.outcome is None:
            ticket = parking.park(link, running)
            parked = True
            await outlet.checkpoint({TICKET_KEY: ticket})
        raise
    finally:
        if not parked:
            await link.give_up(running)


def kept_task(call: AgentRequest) -> str | None:
    """Return the task of an earlier run of this very call."""
    task_id = _resumed(call, TASK)
    return task_id if isinstance(task_id, str) else None


def task_checkpoint(task_id: str, *, handshake: bool) -> Mapping[str, Any]:
    """Return what is kept of a call that became a task there, in the handshake era or the other."""
    return {TASK: task_id, HANDSHAKE: True} if handshake else {TASK: task_id}


def by_handshake(call: AgentRequest) -> bool:
    """Return whether a call goes by the handshake era where its upstream speaks both: one that was begun is carried on in its own."""
    if call.resumed is None:
        return call.handshake
    if kept_task(call) is not None:
        return _resumed(call, HANDSHAKE) is True  # an older version had one era, and did not say which
    return call.handshake and _resumed(call, ROUND) is None


def _open_round(call: AgentRequest) -> OpenRound | None:
    kept = _resumed(call, ROUND)
    return None if kept is None else msgspec.convert(kept, OpenRound)


def _resumed(call: AgentRequest, key: str) -> Any:
    kept = call.resumed
    return cast("Mapping[str, Any]", kept).get(key) if isinstance(kept, Mapping) else None
