"""A running task's line to the world: what its tool tells, asks and wants kept goes into the store, and answers come from there.

`TaskAttempt` is the line of a call that may yet become a task: until then everything goes to the request that waits for it.
A question has one name for the whole life of a call. Run again, the call asks the same questions in the same order, so they
get the same names, and what was answered once is not asked again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import msgspec
import trio

from server.calls.tasks.sealed_tasks import SealedTasks
from server.calls.tasks.task_events import FLUSH_EVERY, Events
from server.calls.tasks.task_order import MAX_CHECKPOINT_BYTES, MAX_KEY, MAX_QUESTIONS
from server.mcp.call_failures import BackendError, CannotAsk
from server.mcp.call_outlet import LogMessage, Outlet, Progress
from server.mcp.call_questions import BadQuestion, Question, check_question, missing, problem
from server.store.jobs import JobTooSlow, StoreUnavailable
from server.store.task_leases import Lease

Answer: TypeAlias = Mapping[str, Any]
Named: TypeAlias = Mapping[
    str, tuple[str, Question]
]  # the tool's key → the question's name, and the question


class Bell:
    """Take `rung`, look, and wait for it: what happens after the look rings it."""

    def __init__(self) -> None:
        self.rung = trio.Event()

    def ring(self) -> None:
        self.rung.set()
        self.rung = trio.Event()


class QuestionNames:
    """The names that are taken, and what was answered under them."""

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self._taken = set[str]()
        self.answers = dict(answers)

    def name(self, questions: Mapping[str, Question]) -> Named:
        if len(self._taken) + len(questions) > MAX_QUESTIONS:
            raise BackendError(f"a call may ask {MAX_QUESTIONS} questions at most")
        if any(not 0 < len(key) <= MAX_KEY for key in questions):
            raise BackendError(f"the key of a question has 1 to {MAX_KEY} characters")
        for question in questions.values():
            try:
                check_question(question)
            except BadQuestion as error:
                raise BackendError(str(error)) from error
        return {key: (self._take(key, question), question) for key, question in questions.items()}

    def _take(self, key: str, question: Question) -> str:
        name, number = key, 1
        while name in self._taken or not self._fits(name, question):
            number += 1
            name = f"{key}-{number}"
        self._taken.add(name)
        return name

    def _fits(self, name: str, question: Question) -> bool:
        """A call that is run again and asks something else by the same key does not get the old answer."""
        answer = self.answers.get(name)
        return answer is None or problem(question, answer) is None


class TaskOutlet:
    """`lost` is called when the task turns out to be another's, or over: it stops the work, and nothing is written."""

    def __init__(
        self,
        ledger: SealedTasks,
        lease: Lease,
        *,
        can: frozenset[str],
        asked: QuestionNames,
        events: Events,
        checkpointed: bool,
        announce: Callable[[], None],
        lost: Callable[[], None],
    ) -> None:
        self.lease = lease
        self.events = events
        self._ledger = ledger
        self._can = can
        self._asked = asked
        self._checkpointed = checkpointed
        self._waits = False
        self._announce = announce
        self._lost = lost
        self._bell = Bell()

    @property
    def can_be_run_again(self) -> bool:
        """Whether nothing is lost or done twice if it is: it only waits for answers, or has a checkpoint."""
        return self._waits or self._checkpointed

    def wake(self) -> None:
        """Something about the task has changed from outside: perhaps it was answered."""
        self._bell.ring()

    async def emit(self, event: Progress | LogMessage) -> None:
        self.events.add(event, at=self._ledger.clock())
        if self.events.unsaved >= FLUSH_EVERY:
            await self.flush()

    async def flush(self) -> None:
        """What is unsaved of the events. A store that cannot take them now gets them with the next ones."""
        unsaved = self.events.unsaved
        if not unsaved:
            return
        parts = self._parts()
        try:
            held = await self._ledger.note(self.lease, message=self.events.message, parts=parts)
        except (StoreUnavailable, JobTooSlow):
            self.events.unsaved += unsaved
            return
        if not held:
            self._lost()

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Answer]:
        return await self.ask_named(self._asked.name(questions))

    async def ask_named(self, named: Named) -> Mapping[str, Answer]:
        known = self._asked.answers
        open_ones = {name: question for name, question in named.values() if name not in known}
        if open_ones:
            if lacking := missing(open_ones, self._can):
                raise CannotAsk("the caller's client does not offer what this needs to ask", lacking)
            known.update(await self._wait_for_answers(open_ones))
        return {key: known[name] for key, (name, _) in named.items()}

    async def _wait_for_answers(self, questions: Mapping[str, Question]) -> Mapping[str, Answer]:
        encoded = {name: msgspec.json.encode(question) for name, question in questions.items()}
        message = self.events.message
        if not await self._ledger.ask(self.lease, encoded, message=message, parts=self._parts()):
            return await self._stop()
        self._waits = True
        self._announce()
        while True:
            rung = self._bell.rung  # before looking, so that no ring is missed
            answers = await self._ledger.answers_to(self.lease, list(questions))
            if answers is None:
                return await self._stop()
            if len(answers) == len(questions):
                break
            await rung.wait()
        # From here on the tool acts on what it was told, so it is not run again by itself if it is interrupted.
        self._waits = False
        await self._note({}, replays=self._checkpointed)
        return answers

    async def checkpoint(self, data: Any) -> None:
        encoded = msgspec.json.encode(data)
        if len(encoded) > MAX_CHECKPOINT_BYTES:
            raise BackendError(f"a checkpoint may have {MAX_CHECKPOINT_BYTES} bytes at most")
        await self._note({"checkpoint": encoded}, replays=True, anew=True)
        self._checkpointed = True

    async def become_task(self) -> bool:
        return True

    async def close_stream(self) -> None:
        """Nobody waits on one."""

    async def _note(self, parts: Mapping[str, bytes], *, replays: bool, anew: bool = False) -> None:
        parts = {**parts, **self._parts()}
        message = self.events.message
        held = await self._ledger.insist(
            lambda: self._ledger.note(self.lease, message=message, parts=parts, replays=replays, anew=anew)
        )
        if not held:
            await self._stop()

    def _parts(self) -> Mapping[str, bytes]:
        """The events, if they are not kept yet; they are taken for kept from now on."""
        if not self.events.unsaved:
            return {}
        self.events.unsaved = 0
        return {"events": self.events.encoded()}

    async def _stop(self) -> Any:
        self._lost()
        await trio.sleep_forever()  # which is over at once: what runs here has just been cancelled


class TaskAttempt:
    """The line of a call that its request waits for, and of the task that it may become. `make` tries to make one.
    `can_as_task`: what may be asked once it is a task. What can be asked only then makes it one."""

    def __init__(
        self,
        line: Outlet,
        *,
        asked: QuestionNames,
        events: Events,
        resumed: Any,
        can_as_task: frozenset[str],
        clock: Callable[[], int],
        make: Callable[[TaskAttempt], Awaitable[TaskOutlet | None]],
    ) -> None:
        self.asked = asked
        self.events = events
        self.checkpointed = resumed
        self.task: TaskOutlet | None = None
        self._line: Outlet | None = line  # let go of when nobody waits at its other end
        self._can_as_task = can_as_task
        self._clock = clock
        # None: the work has ended. Whoever makes a task of the work knows it, and it knows this: they would hold each other.
        self._make: Callable[[TaskAttempt], Awaitable[TaskOutlet | None]] | None = make
        self._making = trio.Lock()
        self._asking = set[trio.CancelScope]()
        self._bell = Bell()  # rings when one of them has ended

    async def emit(self, event: Progress | LogMessage) -> None:
        if self.task is not None:
            await self.task.emit(event)
            return
        self.events.add(event, at=self._clock())
        if self._line is not None:
            await self._line.emit(event)

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Answer]:
        named = self.asked.name(questions)
        if self._line is not None:
            with trio.CancelScope() as scope:  # should it become a task meanwhile, the task asks
                self._asking.add(scope)
                try:
                    answers = await self._line.ask(questions)
                    self.asked.answers.update({named[key][0]: answer for key, answer in answers.items()})
                    return answers
                except CannotAsk:
                    if missing(questions, self._can_as_task):
                        raise
                finally:
                    self._asking.discard(scope)
                    self._bell.ring()
            if self.task is None and not await self.become_task():
                raise CannotAsk("the caller cannot be asked, and there is no room for a task now")
        assert self.task is not None
        return await self.task.ask_named(named)

    async def checkpoint(self, data: Any) -> None:
        async with self._making:
            if self._line is not None:
                await self._line.checkpoint(data)
                self.checkpointed = data
                return
        assert self.task is not None
        await self.task.checkpoint(data)

    async def become_task(self) -> bool:
        async with self._making:
            if self.task is None and self._make is not None:
                self.task = await self._make(self)
                if self.task is not None:
                    self._line = None
                    await self._withdraw()
        return self.task is not None

    async def _withdraw(self) -> None:
        """What was asked on the line is asked by the task now, and the client is told so while it still listens there."""
        for scope in self._asking:
            scope.cancel()
        while self._asking:
            await self._bell.rung.wait()

    async def close_stream(self) -> None:
        if self._line is not None:
            await self._line.close_stream()

    async def end(self) -> None:
        """The work has ended: it becomes a task no more. A task that is just being made is made first."""
        async with self._making:
            self._make = None
