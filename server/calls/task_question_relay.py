"""How a task's questions come to a client of 2025-11-25: by tasks/result, or, if nobody calls that, by the session's own stream.

A client should call tasks/result when it sees that its task waits for input, and there it is asked (task_methods.py). One that does not would
never hear of the question; so after a while it is put to it in the session that began the task. Each way is told when the
other has the answer. Spec: basic/utilities/tasks "Input Required Status", basic/transports "Listening for Messages from the Server"
(2025-11-25).
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from typing import Final

import trio

from server.calls.caller_outlet import Answers
from server.calls.question_routes import asks_in_session
from server.calls.sessions.session import Session
from server.calls.tasks.task_engine import Tasks
from server.calls.tasks.task_order import Owner
from server.mcp.call_failures import BackendError
from server.mcp.call_questions import Question
from server.mcp.errors import BackendFailed, McpError, UnknownTask
from server.mcp.task_faces import Snapshot, related
from server.store.jobs import StoreUnavailable

# Twice what clients are told to wait before they look again: whoever means to call tasks/result has done so.
PATIENCE_SECONDS: Final = 2.0


async def put(
    engine: Tasks,
    owner: Owner,
    task_id: str,
    names: Collection[str],
    ask: Callable[[], Awaitable[Answers]],
    *,
    unless: Callable[[], bool] = lambda: False,
) -> Answers | None:
    """What `ask` returns or raises. None: it was cancelled, because none of these questions is open any more, or because
    `unless` says so, which is asked when something happens to the task."""
    answers: Answers | None = None
    problem: list[Exception] = []
    async with trio.open_nursery() as nursery:

        async def watch() -> None:
            try:
                await engine.wait_until(
                    task_id, owner, lambda task: unless() or task.questions.keys().isdisjoint(names)
                )
            except UnknownTask:
                pass  # forgotten: nobody needs the answers
            except (BackendFailed, StoreUnavailable):
                return  # not known; whoever is asked may still answer
            nursery.cancel_scope.cancel()

        nursery.start_soon(watch)
        try:
            answers = await ask()
        except Exception as error:  # outside the nursery, which would make a group of it
            problem.append(error)
        nursery.cancel_scope.cancel()
    if problem:
        raise problem.pop()
    return answers


class TaskQuestionRelay:
    """For one task, from its making."""

    def __init__(self, engine: Tasks, owner: Owner, session: Session, task: Snapshot) -> None:
        self._engine = engine
        self._owner = owner
        self._session = session
        self._task_id = task.id
        self._seconds = task.ttl_ms / 1000
        self._put = frozenset[str]()  # and not withdrawn: no question is put twice

    async def run(self) -> None:
        """Until the task is over, its session ends, or the server is about to stop."""
        with self._session.errand(), trio.move_on_after(self._seconds):
            try:
                while (questions := await self._unfetched()) is not None:
                    await self._ask(questions)
            except (McpError, StoreUnavailable):
                return  # the server stops, or the task is forgotten; what it asks, tasks/result will say

    async def _unfetched(self) -> Mapping[str, Question] | None:
        """Questions that nobody has fetched for a while, when somebody listens. None: the task is over."""
        while not (await self._wait(self._is_due)).over:
            await self._be_patient()
            task = await self._engine.get(self._task_id, self._owner)
            if self._is_due(task):
                return self._new(task)
        return None

    async def _be_patient(self) -> None:
        """Until somebody has had the time to fetch them, and the client listens; or until they are not due any more."""
        problem: list[Exception] = []
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                try:
                    await self._wait(lambda task: not self._is_due(task))
                except (McpError, StoreUnavailable) as error:
                    problem.append(error)
                nursery.cancel_scope.cancel()

            nursery.start_soon(watch)
            await trio.sleep(PATIENCE_SECONDS)
            await self._session.wait_heard()
            nursery.cancel_scope.cancel()
        if problem:
            raise problem.pop()

    async def _wait(self, done: Callable[[Snapshot], bool]) -> Snapshot:
        """Changes by this process, where the task runs, wake it: it need not look by itself."""
        return await self._engine.wait_until(self._task_id, self._owner, done, look_seconds=math.inf)

    def _is_due(self, task: Snapshot) -> bool:
        return bool(self._new(task)) and not self._fetched()

    def _new(self, task: Snapshot) -> Mapping[str, Question]:
        return {name: question for name, question in task.questions.items() if name not in self._put}

    def _fetched(self) -> bool:
        return self._engine.fetched(self._task_id)

    async def _ask(self, questions: Mapping[str, Question]) -> None:
        """What was withdrawn may be put again; who refused is not asked here again."""
        ask = asks_in_session(self._session, self._session.send, related(self._task_id))
        answers: Answers | None = {}
        with suppress(BackendError):  # the task goes on waiting
            answers = await put(
                self._engine,
                self._owner,
                self._task_id,
                questions,
                lambda: ask(questions),
                unless=self._fetched,
            )
        if answers is not None:
            self._put |= questions.keys()
            await self._engine.answer(self._task_id, self._owner, answers)
