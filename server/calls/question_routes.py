"""The line to a caller of what may have to ask, and the ways by which its questions go.

In a session they go out as requests of the server on the stream of the call, and the call waits. In the stateless era nobody waits:
the call ends with its questions, is sent again with the answers, and runs again from its start; what was asked before is answered
at once. Spec: basic/patterns/mrtr (2026-07-28), basic/lifecycle (2025-11-25).
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import trio
from msgspec import UNSET

from server.calls.agent_use import told
from server.calls.caller_outlet import SILENT, Answers, Ask, CallerLine
from server.calls.progress_updates import PacedProgress
from server.calls.request import Request
from server.calls.sessions.outstanding import Send
from server.calls.sessions.session import Session
from server.mcp.call_failures import BackendError, CannotAsk, Paused
from server.mcp.call_questions import Question, for_revision
from server.mcp.carried_extensions import QUESTION_KEYS
from server.mcp.errors import MissingCapability
from server.mcp.method_params import Resumable
from server.mcp.result_encoding import InputRequiredResult
from server.mcp.stateless_rounds import FRESH, Binding, Open, Replay

T = TypeVar("T")


async def resumable(
    request: Request,
    params: Resumable,
    salient: Mapping[str, Any],
    run: Callable[[CallerLine, Any], Awaitable[T]],
) -> T | InputRequiredResult:
    """Run a request that may ask its caller. `run` is given the line to the caller, and the last checkpoint of an earlier run of this very
    request. `salient` is the part of the parameters that makes it the same request."""
    if not request.route.revision.modern:
        session = request.session
        ask = (
            None
            if session is None or not request.hears_questions
            else asks_in_session(session, request.line.send)
        )
        line = _line_of(request, params, ask, _never)
        return await (run(line, None) if line.progress is None else _in_pace(line, line.progress, None, run))
    rounds = _Rerun(request, params, salient)
    line = _line_of(request, params, rounds.ask, rounds.repeats)
    try:
        if line.progress is None:
            return await run(line, rounds.resumed)
        return await _in_pace(line, line.progress, rounds.resumed, run)
    except Paused:
        return rounds.pause(line.saved)


async def _in_pace(
    line: CallerLine, progress: PacedProgress, resumed: Any, run: Callable[[CallerLine, Any], Awaitable[T]]
) -> T:
    """Run it beside a task that tells the progress which came too soon. Whatever is left of that comes before the outcome."""
    outcome = list[T]()
    problem = list[Exception]()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(progress.run)
        try:
            outcome.append(await run(line, resumed))
        except Exception as error:  # outside the nursery, which would make a group of it
            problem.append(error)
        progress.end()
    await progress.flush()
    if problem:
        raise problem.pop()
    return outcome.pop()


async def ask_in_session(
    request: Request, questions: Mapping[str, Question], meta: Mapping[str, Any]
) -> Answers:
    """Put questions to the client, on the stream of this request, with this `_meta`. Raises `MissingCapability`, `BackendFailed`."""
    if request.session is None or not request.hears_questions:
        raise MissingCapability(
            {}, "the client cannot be asked on this line: it needs a session and a stream"
        )
    try:
        return await asks_in_session(request.session, request.line.send, meta)(questions)
    except BackendError as error:
        # Refused, or not answered: what the client did is no fault of ours.
        raise told(error) from error


def _never() -> bool:
    return False


def _line_of(request: Request, params: Resumable, ask: Ask | None, repeats: Callable[[], bool]) -> CallerLine:
    token = params.meta.progress_token
    return CallerLine(
        request.line,
        request.route.revision,
        can=request.can,
        ask=ask,
        token=None if token is UNSET or request.line is SILENT else token,
        level=request.log_level,
        repeats=repeats,
    )


def asks_in_session(session: Session, send: Send, meta: Mapping[str, Any] | None = None) -> Ask:
    """Return the way to put questions to the client of a session, through `send`."""

    async def ask(questions: Mapping[str, Question]) -> Answers:
        worded = {
            key: for_revision(question, session.revision, elicitation_id=secrets.token_urlsafe(16))
            for key, question in questions.items()
        }
        if QUESTION_KEYS in session.can:
            worded = {key: _with_key(key, question) for key, question in worded.items()}
        return await session.ask(send, worded, meta=meta)

    return ask


def _with_key(key: str, question: Question) -> Question:
    meta = {**question.params.get("_meta", {}), QUESTION_KEYS: key}
    return Question(method=question.method, params={**question.params, "_meta": meta})


class _Rerun:
    """A request of the stateless era. Most ask nothing, so nothing is made ready for questions before there is one."""

    def __init__(self, request: Request, params: Resumable, salient: Mapping[str, Any]) -> None:
        """Open the state that came along. Raises `BadState`: a state that comes along is looked at even where nothing is asked, so that a forged one is never
        taken."""
        self._request = request
        self._salient = salient
        self._replay: Replay | None = None
        if params.request_state is not UNSET or params.input_responses is not UNSET:
            state, given = params.request_state, params.input_responses
            opened = FRESH if state is UNSET else request.endpoint.rounds.open(self._binding, state)
            self._replay = Replay(opened, None if given is UNSET else given)

    @property
    def resumed(self) -> Any:
        return None if self._replay is None else self._replay.resumed

    def repeats(self) -> bool:
        """Return whether the run has not come to where the one before it stopped: there are answers that it has not asked for."""
        return self._replay is not None and self._replay.has_more_answers

    async def ask(self, questions: Mapping[str, Question]) -> Answers:
        replay = self._replay = self._replay or Replay()
        found = replay.ask(questions, self._request.can)
        if not isinstance(found, Open):
            return found
        if found.required:
            raise CannotAsk("the caller's client does not offer what this needs to ask", found.required)
        raise Paused

    def pause(self, saved: Any) -> InputRequiredResult:
        replay, revision = self._replay or Replay(), self._request.revision
        if saved is not None:
            replay.checkpoint(saved)
        worded = {key: for_revision(asked, revision) for key, asked in replay.open.items()}
        return InputRequiredResult(worded, self._request.endpoint.rounds.seal(self._binding, replay.pause()))

    @property
    def _binding(self) -> Binding:
        request = self._request
        return Binding(
            server=request.endpoint.name,
            kind=request.principal.kind.value,
            subject=request.principal.subject,
            client_id=request.principal.client_id,
            method=request.route.method.name,
            salient=self._salient,
        )
