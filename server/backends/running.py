"""One call that runs in an agent's process, from the server's side: what it says waits here for its caller's task, and that
task follows it to its end.

The reader of the process never waits for a caller: each call has a queue of its own, and one that nobody empties loses its
oldest progress. Questions, checkpoints and the end are never lost; a call that piles those up breaks the protocol.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import msgspec
import trio

from server.backends.base import BackendError, CannotAsk, Message, Outlet, Progress
from server.backends.lines import (
    Answers,
    Asked,
    Became,
    BecomesTask,
    CallEvent,
    Checkpointed,
    ClosesStream,
    Do,
    Done,
    Failed,
    Finished,
    Progressed,
    Refuse,
    Said,
)
from server.backends.replies import failure

# More progress than this, unread, is news to nobody.
PROGRESS_WAITING: Final = 64
PROGRESS_BYTES: Final = 2 * 1024 * 1024
# A function that asks this many things at once has lost its way.
REQUESTS_WAITING: Final = 32
REQUEST_BYTES: Final = 16 * 1024 * 1024


class _Raised(msgspec.Struct, frozen=True):
    """It ends with this: nothing more will come, or something other than answers came out of asking."""

    error: Exception


_Waiting: TypeAlias = CallEvent | _Raised
Send: TypeAlias = Callable[[Do], Awaitable[None]]


class Turn:
    """A call's place among those that an agent runs at once. It is given up while its caller is asked, which may take days."""

    def __init__(self, places: trio.Semaphore) -> None:
        """The place is taken."""
        self._places = places
        self._taken = True
        self._over = False
        self._questions = 0

    def rest(self) -> None:
        """A question is put."""
        self._questions += 1
        self._leave()

    async def go_on(self) -> None:
        """It is answered: returns when there is a place again."""
        self._questions -= 1
        if self._questions or self._taken or self._over:
            return
        await self._places.acquire()
        self._taken = True
        if self._over:
            self._leave()

    def end(self) -> None:
        self._over = True
        self._leave()

    def _leave(self) -> None:
        if self._taken:
            self._taken = False
            self._places.release()


class Running:
    """`follow` is for one task; `put` never waits."""

    def __init__(self, number: int, turn: Turn) -> None:
        self.id: Final = number
        self.turn: Final = turn
        self.over = False  # the process has said its last about this call
        self.given_up_at: float | None = None  # on trio's clock; nobody waits for it any longer
        self._failed = False
        self._news: deque[tuple[_Waiting, int]] = deque()
        self._arrived = trio.Event()
        self._progress = _Load()
        self._requests = _Load()
        self._refusal: CannotAsk | None = None

    def fail(self, error: BackendError) -> bool:
        """Ends it for its caller; False if it has been before."""
        if self._failed or self.given_up_at is not None:
            return False
        self._failed = True
        self._add(_Raised(error), 0)
        return True

    def put(self, event: CallEvent, size: int) -> bool:
        """False: the call says more than anybody could keep."""
        if self._failed or self.given_up_at is not None:
            return True
        match event:
            case Progressed() | Said():
                if size > PROGRESS_BYTES:
                    return True
                self._progress.add(size)
                while self._progress.exceeds(PROGRESS_WAITING, PROGRESS_BYTES):
                    self._drop_oldest()
            case Asked() | Checkpointed() | BecomesTask() | ClosesStream():
                self._requests.add(size)
                if self._requests.exceeds(REQUESTS_WAITING, REQUEST_BYTES):
                    return False
            case Finished() | Failed():
                pass
        self._add(event, size)
        return True

    def give_up(self) -> None:
        """Nobody follows it any more. Its number stays taken until the process has said its last about it."""
        self.given_up_at = trio.current_time()
        self._news.clear()

    async def follow(self, outlet: Outlet, send: Send) -> Finished:
        """Pass on what the call says until it has ended well. Raises `BackendError` where it did not, and whatever comes out
        of `outlet`, such as `Paused`."""
        outcome: Finished | Exception
        async with trio.open_nursery() as asking:
            # Caught, because it would leave a nursery as a group; what the nursery's tasks raise comes as `_Raised`.
            try:
                outcome = await self._to_its_end(outlet, send, asking)
            except Exception as error:
                outcome = error
            asking.cancel_scope.cancel()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def _to_its_end(self, outlet: Outlet, send: Send, asking: trio.Nursery) -> Finished:
        """`asking` is the call's own: a question is put beside it, for a function may end while one is open."""
        while True:
            event, size = await self._next()
            match event:
                case Progressed():
                    await outlet.emit(
                        Progress(progress=event.progress, total=event.total, message=event.message)
                    )
                case Said():
                    await outlet.emit(Message(level=event.level, data=event.data, logger=event.logger))
                case Asked():
                    asking.start_soon(self._ask, event, size, outlet, send)
                case Checkpointed():
                    await outlet.checkpoint(event.data)
                    await send(Done(id=self.id, ask=event.ask))
                case BecomesTask():
                    await send(Became(id=self.id, ask=event.ask, task=await outlet.become_task()))
                case ClosesStream():
                    await outlet.close_stream()
                case Finished():
                    return event
                case Failed():
                    raise failure(event, self._refusal)
                case _Raised():
                    raise event.error

    async def _ask(self, asked: Asked, size: int, outlet: Outlet, send: Send) -> None:
        try:
            try:
                self.turn.rest()
                try:
                    answers = await outlet.ask(asked.questions)
                finally:
                    await self.turn.go_on()
            except CannotAsk as error:
                self._refusal = error
                await send(Refuse(id=self.id, ask=asked.ask, reason=str(error)))
            else:
                await send(Answers(id=self.id, ask=asked.ask, answers=answers))
        except Exception as error:  # Paused, for one: the call ends with it
            self._add(_Raised(error), 0)
        finally:
            self._requests.remove(size)

    async def _next(self) -> tuple[_Waiting, int]:
        while not self._news:
            self._arrived = trio.Event()
            await self._arrived.wait()
        event, size = self._news.popleft()
        match event:
            case Progressed() | Said():
                self._progress.remove(size)
            case Checkpointed() | BecomesTask() | ClosesStream():
                self._requests.remove(size)
            case _:  # a question counts until it is answered
                pass
        return event, size

    def _add(self, event: _Waiting, size: int) -> None:
        self._news.append((event, size))
        self._arrived.set()

    def _drop_oldest(self) -> None:
        for position, (event, size) in enumerate(self._news):
            if isinstance(event, Progressed | Said):
                del self._news[position]
                self._progress.remove(size)
                return


class _Load:
    def __init__(self) -> None:
        self._count = self._bytes = 0

    def add(self, size: int) -> None:
        self._count, self._bytes = self._count + 1, self._bytes + size

    def remove(self, size: int) -> None:
        self._count, self._bytes = self._count - 1, self._bytes - size

    def exceeds(self, count: int, size: int) -> bool:
        return self._count > count or self._bytes > size
