"""The questions that a server asks before it carries out a request, and the request sent again with what they came to: rounds of questions
in the stateless era (2026-07-28 basic/patterns/mrtr), pages to be opened first in the handshake era (2025-11-25 client/elicitation,
"URL elicitation required").
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any, Final, cast

import msgspec
from msgspec import Raw

from server.client.mcp_session.handshake_questions import KEY_CHARACTERS, kind_of, question_of
from server.client.mcp_session.session_messages import EMPTY, ServerFailure, ServerRefusal, members
from server.mcp.call_failures import BackendError
from server.mcp.call_outlet import Outlet
from server.mcp.call_questions import Question

# A request that asks once more each time is ended by this, should no deadline end it before.
ROUNDS: Final = 64
QUESTIONS: Final = 16  # at once
STATE_CHARACTERS: Final = 32 * 1024

# A request is made again after somebody has opened a page, but not for ever.
PAGES: Final = 3
PAGE_FIRST: Final = -32042
NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
NO_QUESTIONS: Final[Mapping[str, Question]] = MappingProxyType({})

ROUND: Final = "round"


class RoundBounds(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of what a server may ask about one request."""

    rounds: int = ROUNDS
    questions: int = QUESTIONS  # at once
    state: int = STATE_CHARACTERS
    # Whether a key stands for one question for as long as the request lasts, and so may be another than the server's.
    renames: bool = True


class _Kind(msgspec.Struct, rename="camel"):
    result_type: str = "complete"
    input_requests: Raw = EMPTY
    request_state: str | None = None


class OpenRound(msgspec.Struct, frozen=True):
    """The questions of a server before it goes on. Kept as a checkpoint while the caller is asked."""

    number: int
    questions: Mapping[str, Mapping[str, Any]]  # method and params, by the server's keys
    names: Mapping[str, str]  # the server's key → ours
    state: str | None

    def named(self) -> Mapping[str, tuple[str, Question]]:
        """Return our key → the server's, and the question."""
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


async def in_rounds(
    request: Callable[[Mapping[str, Any]], Awaitable[Raw]],
    params: Mapping[str, Any],
    outlet: Outlet,
    *,
    questions: Collection[str],
    most: RoundBounds,
    waiting: OpenRound | None = None,
) -> Raw:
    """Return the result of a request of the stateless era, which may be that there is a task. `request` sends it once; `waiting`: the round that
    was open when this request was left. Raises `ServerFailure`, and whatever `request` and `outlet` raise."""
    number = 0 if waiting is None else waiting.number
    taken: dict[str, Mapping[str, Any]] = {}  # our keys, and what they stand for in this call
    while True:
        # Only what belongs to the last answer goes along, and a state exactly as it came.
        raw = await request(params if waiting is None else {**params, **await _answered(waiting, outlet)})
        try:
            kind = _decode_kind(raw)
        except (ValueError, RecursionError):
            raise ServerFailure("answered with a result that is none") from None
        if kind.result_type != "input_required":
            return raw
        number += 1
        if number > most.rounds:
            raise ServerFailure(f"asks its caller more than {most.rounds} times")
        waiting = _read_round(number, kind, questions, most, taken)
        await outlet.checkpoint({ROUND: msgspec.to_builtins(waiting)})


async def after_pages(
    request: Callable[[], Awaitable[Raw]], outlet: Outlet, *, questions: Collection[str]
) -> Raw:
    """Return the result of a request of the handshake era, made again when pages were opened that its server wants opened first. Raises as
    `in_rounds`, and `ServerRefusal`."""
    for attempt in range(1, PAGES + 1):
        try:
            return await request()
        except ServerRefusal as refusal:
            pages = _pages(refusal, attempt) if "elicitation" in questions else NO_QUESTIONS
            if not pages or attempt == PAGES:
                raise
        # Somebody has to do something on a page first; whoever has opened it is taken at their word, once.
        answers = await outlet.ask(pages)
        if any(answer.get("action") != "accept" for answer in answers.values()):
            raise ServerFailure("wants its caller to open a page first, and nobody did")
    raise AssertionError("the last attempt returns or raises")


async def _answered(waiting: OpenRound, outlet: Outlet) -> Mapping[str, Any]:
    """Return what a request is sent again with."""
    again: dict[str, Any] = {} if waiting.state is None else {"requestState": waiting.state}
    named = waiting.named()
    if named:
        answers = await outlet.ask({ours: question for ours, (_, question) in named.items()})
        again["inputResponses"] = {theirs: answers[ours] for ours, (theirs, _) in named.items()}
    return again


def _read_round(
    number: int,
    kind: _Kind,
    allowed: Collection[str],
    most: RoundBounds,
    taken: dict[str, Mapping[str, Any]],
) -> OpenRound:
    requests = members(kind.input_requests)
    state = kind.request_state
    if len(requests) > most.questions or (state is not None and len(state) > most.state):
        raise ServerFailure("asks for more at once than can be answered")
    if not requests and state is None:
        raise ServerFailure("wants an answer, and asks no question")
    for asked in requests.values():
        if not isinstance(asked, Mapping):
            raise ServerFailure("asks a question that is none")
        kind_asked = kind_of(str(cast("Mapping[str, Any]", asked).get("method")))
        if kind_asked not in allowed:
            raise ServerFailure("asks what it was not told that it may")
    names = {key: key for key in requests}
    if most.renames:
        # A client is told the server's own keys, but one key may stand for one question only as long as the call lasts.
        for place, (key, asked) in enumerate(requests.items(), 1):
            name = key if 0 < len(key) <= KEY_CHARACTERS else f"upstream-{place}"
            names[key] = name if taken.setdefault(name, asked) == asked else f"{name}-{number}"
    return OpenRound(number, requests, names, state)


def _pages(refusal: ServerRefusal, attempt: int) -> Mapping[str, Question]:
    """Return the pages that a server of 2025-11-25 wants its caller to open first (client/elicitation, "URL elicitation required")."""
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
