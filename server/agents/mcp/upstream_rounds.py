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

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, Final, cast

import msgspec
from msgspec import Raw

from server.agents.base.backend import AgentRequest
from server.agents.mcp.suspended_requests import SuspendedRequests
from server.agents.mcp.suspension_ticket import TICKET_KEY
from server.client.mcp_session.upstream_link import NO_HEADERS, Link
from server.client.mcp_session.upstream_messages import EMPTY, UpstreamFailure, UpstreamRefusal, members
from server.client.mcp_session.upstream_questions import kind_of, question_of
from server.client.mcp_session.upstream_tasks import TASK
from server.mcp.call_failures import BackendError, Paused
from server.mcp.call_outlet import Outlet
from server.mcp.call_questions import Question

# As many as the clients of ours are asked at most.
ROUNDS: Final = 10
QUESTIONS: Final = 16
KEY_CHARACTERS: Final = 100
STATE_CHARACTERS: Final = 32 * 1024

# A call is made again after somebody has opened a page, but not for ever.
PAGES: Final = 3
PAGE_FIRST: Final = -32042
NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
NO_QUESTIONS: Final[Mapping[str, Question]] = MappingProxyType({})

ROUND: Final = "round"


class _Kind(msgspec.Struct, rename="camel"):
    result_type: str = "complete"
    input_requests: Raw = EMPTY
    request_state: str | None = None


class OpenRound(msgspec.Struct, frozen=True):
    """The questions of an upstream before it goes on. Kept as a checkpoint while the caller is asked."""

    number: int
    questions: Mapping[str, Mapping[str, Any]]  # method and params, by the upstream's keys
    names: Mapping[str, str]  # the upstream's key → ours
    state: str | None

    def named(self) -> Mapping[str, tuple[str, Question]]:
        """Return our key → the upstream's, and the question."""
        found: dict[str, tuple[str, Question]] = {}
        for key, asked in self.questions.items():
            question = question_of(
                str(asked.get("method")), cast("Mapping[str, Any]", asked.get("params") or {})
            )
            if question is None:
                raise BackendError("the upstream asks what no client can be asked")
            found[self.names[key]] = (key, question)
        return found


_decode_kind: Final = msgspec.json.Decoder(_Kind).decode


async def use(
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
) -> Raw:
    """Return the result, which may be that there is a task. Raises `UpstreamRefusal`, `BackendError`, and whatever `outlet` raises."""
    if link.agreement.modern:
        return await _in_rounds(link, method, params, call, outlet, questions, headers, tasks)
    for attempt in range(1, PAGES + 1):
        try:
            return await _waiting(link, method, params, call, outlet, parking, headers, tasks)
        except UpstreamRefusal as refusal:
            pages = _pages(refusal, attempt) if "elicitation" in questions else NO_QUESTIONS
            if not pages or attempt == PAGES:
                raise
        # Somebody has to do something on a page first; whoever has opened it is taken at their word, once.
        answers = await outlet.ask(pages)
        if any(answer.get("action") != "accept" for answer in answers.values()):
            raise UpstreamFailure("wants its caller to open a page first, and nobody did")
    raise AssertionError("the last attempt returns or raises")


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
    ticket = _resumed(call, TICKET_KEY)
    if isinstance(ticket, str):
        if (elsewhere := parking.at_another_node(ticket)) is not None:
            return await elsewhere.go_on(ticket, call.subject, outlet)
        running = parking.take(ticket, call.subject)
        running.put_again()
    elif not call.can:
        return await link.request(method, params, call=call, outlet=outlet, headers=headers, tasks=tasks)
    else:
        running = await link.begin(method, params, call, headers=headers, tasks=tasks)
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


async def _in_rounds(
    link: Link,
    method: str,
    params: Mapping[str, Any],
    call: AgentRequest,
    outlet: Outlet,
    questions: Collection[str],
    headers: Mapping[str, str],
    tasks: bool,
) -> Raw:
    waiting = None if call.resumed is None else _open_round(call)
    number = 0 if waiting is None else waiting.number
    taken: dict[str, Mapping[str, Any]] = {}  # our keys, and what they stand for in this call
    while True:
        told = params if waiting is None else {**params, **await _answered(waiting, outlet)}
        raw = await link.request(method, told, call=call, outlet=outlet, headers=headers, tasks=tasks)
        try:
            kind = _decode_kind(raw)
        except (ValueError, RecursionError):
            raise UpstreamFailure("answered with a result that is none") from None
        if kind.result_type != "input_required":
            return raw
        number += 1
        if number > ROUNDS:
            raise UpstreamFailure(f"asks its caller more than {ROUNDS} times")
        waiting = _read_round(number, kind, questions, taken)
        await outlet.checkpoint({ROUND: msgspec.to_builtins(waiting)})


async def _answered(waiting: OpenRound, outlet: Outlet) -> Mapping[str, Any]:
    """Return what a request is sent again with."""
    again: dict[str, Any] = {} if waiting.state is None else {"requestState": waiting.state}
    named = waiting.named()
    if named:
        answers = await outlet.ask({ours: question for ours, (_, question) in named.items()})
        again["inputResponses"] = {theirs: answers[ours] for ours, (theirs, _) in named.items()}
    return again


def _read_round(
    number: int, kind: _Kind, allowed: Collection[str], taken: dict[str, Mapping[str, Any]]
) -> OpenRound:
    requests = members(kind.input_requests)
    state = kind.request_state
    if len(requests) > QUESTIONS or (state is not None and len(state) > STATE_CHARACTERS):
        raise UpstreamFailure("asks for more at once than can be answered")
    if not requests and state is None:
        raise UpstreamFailure("wants an answer, and asks no question")
    for asked in requests.values():
        if not isinstance(asked, Mapping):
            raise UpstreamFailure("asks a question that is none")
        kind_asked = kind_of(str(cast("Mapping[str, Any]", asked).get("method")))
        if kind_asked not in allowed:
            raise UpstreamFailure("asks what it was not told that it may")
    # A client is told the upstream's own keys, but one key may stand for one question only as long as the call lasts.
    names: dict[str, str] = {}
    for place, (key, asked) in enumerate(requests.items(), 1):
        name = key if 0 < len(key) <= KEY_CHARACTERS else f"upstream-{place}"
        names[key] = name if taken.setdefault(name, asked) == asked else f"{name}-{number}"
    return OpenRound(number, requests, names, state)


def _pages(refusal: UpstreamRefusal, attempt: int) -> Mapping[str, Question]:
    """Return the pages that an upstream of 2025-11-25 wants its caller to open first (client/elicitation, "URL elicitation required")."""
    listed: object = None if refusal.data is None else refusal.data.get("elicitations")
    if refusal.code != PAGE_FIRST or not isinstance(listed, list):
        return NO_QUESTIONS
    found: dict[str, Question] = {}
    for place, each in enumerate(cast("list[Any]", listed)[:QUESTIONS], 1):
        given = cast("Mapping[str, Any]", each) if isinstance(each, Mapping) else NOTHING
        params = {"mode": "url", "message": given.get("message"), "url": given.get("url")}
        question = question_of("elicitation/create", params)
        if question is not None:
            found[f"page-{attempt}-{place}"] = question
    return found


def kept_task(call: AgentRequest) -> str | None:
    """Return the task of an earlier run of this very call."""
    task_id = _resumed(call, TASK)
    return task_id if isinstance(task_id, str) else None


def _open_round(call: AgentRequest) -> OpenRound | None:
    kept = _resumed(call, ROUND)
    return None if kept is None else msgspec.convert(kept, OpenRound)


def _resumed(call: AgentRequest, key: str) -> Any:
    kept = call.resumed
    return cast("Mapping[str, Any]", kept).get(key) if isinstance(kept, Mapping) else None
