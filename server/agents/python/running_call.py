"""A call that runs in an agent's process, from the server's side: what it says waits here for its caller's task, and that task
follows it to its end.

The reader of the process never waits for a caller: each call has a queue of its own, and one that nobody empties loses its
oldest progress; pieces of a text are joined. Questions, checkpoints and the end are never lost; a call that piles those up
breaks the protocol.

Most calls say nothing but their answer. So there is no event, lock or nursery until one is needed: whoever brings news wakes
the caller's task itself, and only a question that is open while the call goes on has a task beside it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import msgspec
import trio

from server.agents.base.agent_turns import SharedPlace
from server.agents.base.backend import NoSuchResource, Origin
from server.agents.python.agent_lines import (
    Answers,
    Became,
    BecomesTask,
    CallEvent,
    CallFailed,
    Checkpointed,
    ClosesStream,
    Do,
    Done,
    Finished,
    NotUsed,
    Progressed,
    QuestionRefused,
    ToolNotice,
    ToolQuestion,
    Used,
    UsesAnother,
)
from server.agents.python.call_endings import failure
from server.lib.rates.fair_turns import Turns
from server.mcp.call_failures import BackendError, CannotAsk, NotAnswered
from server.mcp.call_outlet import LogMessage, Outlet, Progress

# More progress than this, unread, is news to nobody.
PROGRESS_WAITING: Final = 64
PROGRESS_BYTES: Final = 2 * 1024 * 1024
# What waits of a text is joined up to this: as much as is worth copying for one more piece.
JOINED_BYTES: Final = 64 * 1024
# A function that asks this many things at once has lost its way.
REQUESTS_WAITING: Final = 32
REQUEST_BYTES: Final = 16 * 1024 * 1024


class _Raised(msgspec.Struct, frozen=True):
    """The error that it ends with: nothing more will come, or something other than answers came out of asking."""

    error: Exception


_Waiting: TypeAlias = CallEvent | _Raised
Send: TypeAlias = Callable[[Do], Awaitable[None]]


class AgentTurn(SharedPlace):
    """A call's place among those that an agent runs at once: given up while its caller is asked, which may take days."""

    def __init__(self, turns: Turns, sharer: str, *, over: bool) -> None:
        """Begin with the place, unless the call is over."""
        super().__init__(turns, sharer, taken=not over)
        self._over = over
        self._questions = 0

    def rest(self) -> None:
        """Leave the place, for a question is put."""
        self._questions += 1
        self.leave()

    async def go_on(self) -> None:
        """Wait for a place again, as a question is answered."""
        self._questions -= 1
        if self._questions or self._over:
            return
        await self.take()
        if self._over:
            self.leave()

    def end(self) -> None:
        self._over = True
        self.leave()


class _Asking(msgspec.Struct, frozen=True):
    nursery: trio.Nursery
    turn: AgentTurn


class AgentCall:
    """One call: `follow` is for one task; `put` never waits."""

    __slots__ = (
        "_failed", "_follower", "_news", "_progress", "_refusal", "_requests", "_sharer", "_turn", "_turns", "given_up_at",
        "id", "origin", "over",
    )  # fmt: skip

    def __init__(self, number: int, turns: Turns, sharer: str = "") -> None:
        """Begin with a place that is taken."""
        self.id = number
        self.origin: Origin | None = None  # in whose name it may use what else there is
        self._turns = turns
        self._sharer = sharer
        self._turn: AgentTurn | None = None  # once it has asked something
        self.over = False  # the process has said its last about this call
        self.given_up_at: float | None = None  # on trio's clock; nobody waits for it any longer
        self._failed = False
        self._news: deque[tuple[_Waiting, int]] = deque()
        self._follower: trio.lowlevel.Task | None = None  # while it sleeps until there is news
        self._progress = _Load()
        self._requests = _Load()
        self._refusal: CannotAsk | NotAnswered | None = None

    def end(self) -> None:
        """Leave its place: the process has said its last about it."""
        self.over = True
        self.origin = None
        if self._turn is None:
            self._turns.give_back(self._sharer)
        else:
            self._turn.end()

    def fail(self, error: BackendError) -> bool:
        """End it for its caller; return False if it has been before."""
        if self._failed or self.given_up_at is not None:
            return False
        self._failed = True
        self._add(_Raised(error), 0)
        return True

    def put(self, event: CallEvent, size: int) -> bool:
        """Take what the process says; return False where the call says more than anybody could keep."""
        if self._failed or self.given_up_at is not None:
            return True
        match event:
            case Finished() | CallFailed():
                pass
            case Progressed() | ToolNotice():
                if size > PROGRESS_BYTES:
                    return True
                if isinstance(event, Progressed) and event.joins:
                    event, size = self._joined(event, size)
                self._progress.add(size)
                while self._progress.exceeds(PROGRESS_WAITING, PROGRESS_BYTES):
                    self._drop_oldest()
            case ToolQuestion() | UsesAnother() | Checkpointed() | BecomesTask() | ClosesStream():
                self._requests.add(size)
                if self._requests.exceeds(REQUESTS_WAITING, REQUEST_BYTES):
                    return False
        self._add(event, size)
        return True

    def give_up(self) -> None:
        """Let nobody follow it any more. Its number stays taken until the process has said its last about it."""
        self.given_up_at = trio.current_time()
        self.origin = None  # and with it the request, which nobody waits for
        self._news.clear()

    async def follow(self, outlet: Outlet, send: Send, asking: _Asking | None = None) -> Finished:
        """Pass on what the call says until it has ended well. Raises `BackendError` where it did not, and whatever comes out
        of `outlet`, such as `Paused`. `asking`: a question has been put."""
        while True:
            if not self._news:
                self._follower = trio.lowlevel.current_task()
                await trio.lowlevel.wait_task_rescheduled(self._leave_follower)
                continue
            event, size = self._news.popleft()
            match event:
                case Finished():
                    return event
                case Progressed():
                    self._progress.remove(size)
                    await outlet.emit(
                        Progress(
                            progress=event.progress,
                            total=event.total,
                            message=event.message,
                            joins=event.joins,
                        )
                    )
                case ToolNotice():
                    self._progress.remove(size)
                    await outlet.emit(LogMessage(level=event.level, data=event.data, logger=event.logger))
                case ToolQuestion() | UsesAnother():  # counts until it is answered
                    if asking is None:
                        return await self._follow_asking(event, size, outlet, send)
                    asking.nursery.start_soon(self._ask, event, size, outlet, send, asking.turn)
                case Checkpointed():
                    self._requests.remove(size)
                    await outlet.checkpoint(event.data)
                    await send(Done(id=self.id, ask=event.ask))
                case BecomesTask():
                    self._requests.remove(size)
                    await send(Became(id=self.id, ask=event.ask, task=await outlet.become_task()))
                case ClosesStream():
                    self._requests.remove(size)
                    await outlet.close_stream()
                case CallFailed():
                    raise failure(event, self._take_refusal())
                case _Raised(error):
                    del event
                    try:
                        raise error
                    finally:
                        # Or it and this frame, and all that the call brought, would hold each other.
                        del error

    async def _follow_asking(
        self, question: ToolQuestion | UsesAnother, size: int, outlet: Outlet, send: Send
    ) -> Finished:
        """Follow it from the first question on, each of which is put beside the call, for a function may end while one is
        open."""
        outcome: Finished | Exception
        turn = self._turn = AgentTurn(self._turns, self._sharer, over=self.over)
        # The nursery is the call's own.
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._ask, question, size, outlet, send, turn)
            # Caught, because it would leave a nursery as a group; what the nursery's tasks raise comes as `_Raised`.
            try:
                outcome = await self.follow(outlet, send, _Asking(nursery, turn))
            except Exception as error:
                outcome = error
            nursery.cancel_scope.cancel()
        self._news.clear()  # nobody follows it any more
        if isinstance(outcome, Exception):
            try:
                raise outcome
            finally:
                del outcome  # as above
        return outcome

    async def _ask(
        self, asked: ToolQuestion | UsesAnother, size: int, outlet: Outlet, send: Send, turn: AgentTurn
    ) -> None:
        try:
            if isinstance(asked, UsesAnother):
                await send(await self._used(asked, turn))
                return
            try:
                turn.rest()
                try:
                    answers = await outlet.ask(asked.questions)
                finally:
                    await turn.go_on()
            except (CannotAsk, NotAnswered) as error:
                self._refusal = error.with_traceback(None)
                asked_in_vain = isinstance(error, NotAnswered)
                await send(QuestionRefused(id=self.id, ask=asked.ask, reason=str(error), asked=asked_in_vain))
            else:
                await send(Answers(id=self.id, ask=asked.ask, answers=answers))
        except Exception as error:  # Paused, for one: the call ends with it
            self._add(_Raised(error), 0)
        finally:
            self._requests.remove(size)

    async def _used(self, asked: UsesAnother, turn: AgentTurn) -> Do:
        """Use what it wants. Its place is left meanwhile: what it uses may be of the same agent."""
        if self.origin is None:
            return NotUsed(id=self.id, ask=asked.ask, reason="this call can use nothing else of the server")
        try:
            turn.rest()
            try:
                result = await self.origin.use(asked.what, asked.name, asked.arguments)
            finally:
                await turn.go_on()
        except NoSuchResource as error:
            return NotUsed(id=self.id, ask=asked.ask, reason=str(error), missing=True)
        except BackendError as error:
            return NotUsed(id=self.id, ask=asked.ask, reason=str(error))
        return Used(id=self.id, ask=asked.ask, result=result)

    def _take_refusal(self) -> CannotAsk | NotAnswered | None:
        refusal, self._refusal = self._refusal, None
        return refusal

    def _leave_follower(self, _: object) -> trio.lowlevel.Abort:
        """Forget the follower, which is cancelled, and woken by that."""
        self._follower = None
        return trio.lowlevel.Abort.SUCCEEDED

    def _add(self, event: _Waiting, size: int) -> None:
        self._news.append((event, size))
        follower = self._follower
        if follower is not None:
            self._follower = None  # a task is woken once
            trio.lowlevel.reschedule(follower)

    def _joined(self, event: Progressed, size: int) -> tuple[Progressed, int]:
        """Join it to the piece of text that waits right before it, which is taken away."""
        before, its_size = self._news[-1] if self._news else (None, 0)
        if not isinstance(before, Progressed) or not before.joins or its_size + size > JOINED_BYTES:
            return event, size
        self._news.pop()
        self._progress.remove(its_size)
        message = (before.message or "") + (event.message or "")
        return msgspec.structs.replace(event, message=message), its_size + size

    def _drop_oldest(self) -> None:
        """Drop the oldest progress; a piece of a text only if there is nothing else."""
        texts: list[int] = []
        for position, (event, _) in enumerate(self._news):
            if isinstance(event, ToolNotice) or (isinstance(event, Progressed) and not event.joins):
                break
            if isinstance(event, Progressed):
                texts.append(position)
        else:
            position = texts[0]
        self._progress.remove(self._news[position][1])
        del self._news[position]


class _Load(msgspec.Struct):
    count: int = 0
    size: int = 0

    def add(self, size: int) -> None:
        self.count, self.size = self.count + 1, self.size + size

    def remove(self, size: int) -> None:
        self.count, self.size = self.count - 1, self.size - size

    def exceeds(self, count: int, size: int) -> bool:
        return self.count > count or self.size > size
