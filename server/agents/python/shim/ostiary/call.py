"""One call while it runs: the function with its arguments and context, in the loop or in a thread, and how it ends.

The class is also the `Line` under the context. Everything here runs in the loop's thread, but `wait` and what it is
called from, and `_in_thread`: a sync function's answer goes out from its own thread, so that nobody has to be woken for it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import inspect
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping
from functools import partial
from typing import Any, Protocol, TypeVar, cast

from . import answers
from .caller import State, States
from .content import Progress
from .context import Context, SyncContext, progress_event
from .errors import Cancelled, CannotAsk, NotAnswered
from .events import Final, come_of, is_event
from .failures import CANCELLED, event_of
from .function import Function
from .lifespans import Lifespans
from .questions import Question
from .registry import Registry
from .surround import Surrounded
from .uses import refusal_of
from .work import Shape, Work, work_of
from .workers import Job, Rest, Workers

T = TypeVar("T")
Json = dict[str, Any]

_CAUGHT = (Exception, asyncio.CancelledError, Cancelled, SystemExit, KeyboardInterrupt)
# What is closed behind a plain function that was cancelled holds its thread no longer than this.
CLOSE_SECONDS = 10.0
# What a function mostly returns: nothing that has to be run.
_PLAIN = frozenset((str, dict, list, type(None), int, float, bool))


class Home(Protocol):
    """What all calls of a child share."""

    registry: Registry
    loop: asyncio.AbstractEventLoop
    workers: Workers
    states: States
    lifespans: Lifespans
    thread: int

    def send(self, event: Json) -> None: ...

    async def drain(self) -> None: ...

    def soon(self, action: Callable[[], None]) -> None:
        """In the loop."""
        ...

    def finish(self, call: Call, event: Json) -> None:
        """From any thread. A call ends once, with the first of them."""
        ...


class Call:
    def __init__(self, message: Json, home: Home) -> None:
        context: Json = message.get("context") or {}
        self.id: int = message["id"]
        self.subject: str = context.get("subject") or ""
        self.call_id: str = context.get("call_id") or ""
        self.can: frozenset[str] = frozenset(context.get("can") or ())
        self.resumed: Any = context.get("resumed")
        self.facts: Mapping[str, Any] = context.get("caller") or {}
        self.headers: Mapping[str, str] = context.get("headers") or {}
        self._state: State | None = None
        self._module = ""  # of its function
        self.wants_progress = bool(context.get("progress"))
        self.level: str | None = context.get("level")
        self.cancelled = False
        self.begun = False
        self.over = False
        self._message = message
        self.kind: str = message["kind"]
        self._home = home
        self._asked = 0
        self._keys: set[str] = set()
        self._replies: dict[int, asyncio.Future[Json]] = {}
        self._blocked: set[concurrent.futures.Future[Any]] = set()
        self._shown = 0.0  # the last progress
        self.task: asyncio.Task[None] | None = None  # of an async function
        self._job: Job | None = None  # of any other

    def start(self) -> None:
        """In the loop's thread. An async function begins with the loop's next turn, any other as soon as a thread has time."""
        try:
            work = work_of(self._home.registry, self._message)
            function, arguments, shape = work.function, work.arguments, work.shape
            if function is None:
                self._home.finish(self, {"event": "final", "result": shape(arguments)})
                return
        except _CAUGHT as error:
            self._home.finish(self, self._failed(error))
            return
        if work.hooks or function.provided:
            self._start_surrounded(function, work)
            return
        if function.context is not None:
            self._module = function.module
            arguments[function.context] = Context(self) if function.is_async else SyncContext(self)
        begin = partial(function.call, **arguments)
        if function.is_async:
            self._go_on(begin, shape)
        else:
            self._begin_in_thread(begin, shape)

    def _start_surrounded(self, function: Function, work: Work) -> None:
        self._module = function.module
        surrounded = Surrounded(
            self, function, work.arguments, work.shape, tool=work.tool, tags=work.tags, hooks=work.hooks
        )
        if surrounded.in_loop:
            self._go_on(surrounded.run_in_loop, _shaped_already)
        else:
            self._begin_in_thread(surrounded.run_here, _shaped_already)

    def _begin_in_thread(self, begin: Callable[[], Any], shape: Shape) -> None:
        in_its_context: Any = contextvars.copy_context().run
        self._job = self._home.workers.submit(partial(in_its_context, self._in_thread, begin, shape))

    def cancel(self) -> None:
        """In the loop's thread. A sync function is not waited for, an async one is."""
        self.cancelled = True
        for blocked in list(self._blocked):
            blocked.cancel()
        if self._job is not None:
            self._home.workers.abandon(self._job)
            self._home.finish(self, CANCELLED)
        elif self.task is not None and self.begun:
            # One that is cancelled before its first step would end without a word.
            self.task.cancel()

    def reply(self, message: Json) -> None:
        """Of the server, to a request of ours."""
        waiting = self._replies.get(message.get("ask", 0))
        if waiting is None or waiting.done():
            return
        if message["do"] == "not_used":
            waiting.set_exception(refusal_of(message))
        elif message["do"] == "refuse":
            kind = NotAnswered if message.get("asked") else CannotAsk
            waiting.set_exception(kind(message.get("reason") or "the client cannot be asked"))
        else:
            waiting.set_result(message)

    # The line under the context.

    @property
    def state(self) -> State:
        if self._state is None:
            self._state = self._home.states.of(self.facts.get("session", ""))
        return self._state

    async def emit(self, event: Json) -> None:
        if self.over:
            raise RuntimeError("this call is over: its context cannot be used any more")
        if self.cancelled:
            return  # an async function that cleans up
        if event["event"] == "progress":
            self._shown = event["progress"]
        self._home.send({**event, "id": self.id})
        await self._home.drain()
        # So that a function which only reports can be cancelled, and lets others run.
        await asyncio.sleep(0)

    async def request(self, event: Json) -> Json:
        if self.cancelled:
            raise asyncio.CancelledError
        self._asked += 1
        number = self._asked
        reply: asyncio.Future[Json] = self._home.loop.create_future()
        self._replies[number] = reply
        try:
            await self.emit({**event, "ask": number})
            return await reply
        finally:
            del self._replies[number]

    async def ask(self, questions: Mapping[str, Question[Any]]) -> Json:
        for key in questions:
            if key in self._keys:
                raise ValueError(
                    f"the key {key!r} has been asked for in this call: give each question its own"
                )
        self._keys.update(questions)
        wire = {key: question.wire() for key, question in questions.items()}
        reply = await self.request({"event": "ask", "questions": wire})
        return {key: question.read(reply["answers"][key]) for key, question in questions.items()}

    def next_key(self) -> str:
        number = 1
        while f"ask-{number}" in self._keys:
            number += 1
        return f"ask-{number}"

    def wait(self, awaitable: Coroutine[Any, Any, T]) -> T:
        if self.cancelled or threading.get_ident() == self._home.thread:
            awaitable.close()
            if self.cancelled:
                raise Cancelled
            raise RuntimeError(
                "this context blocks: an async function takes `Context`, and awaits its methods"
            )
        future = asyncio.run_coroutine_threadsafe(awaitable, self._home.loop)
        self._blocked.add(future)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise Cancelled from None
        finally:
            self._blocked.discard(future)

    def wait_for_use(self, awaitable: Coroutine[Any, Any, T]) -> T:
        with self._home.workers.lent():
            return self.wait(awaitable)

    # What runs around a function that is not alone (surround.py).

    @property
    def lifespans(self) -> Lifespans:
        return self._home.lifespans

    @property
    def lifespan(self) -> Any:
        return self._home.lifespans.of(self._module)

    async def whole(self, value: Any) -> Any:
        if inspect.isawaitable(value):
            value = await value
        if inspect.isasyncgen(value):
            value = await self._collected(cast("AsyncGenerator[Any, Any]", value))
        return value

    def whole_here(self, value: Any) -> Any:
        if inspect.isgenerator(value):
            value = self._gathered(cast("Generator[Any, None, Any]", value))
        if inspect.isawaitable(value) or inspect.isasyncgen(value):
            value = self.wait(self.whole(value))
        return value

    def wait_at_the_end(self, awaitable: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(awaitable, self._home.loop).result(CLOSE_SECONDS)

    async def in_thread(self, work: Callable[[], T]) -> T:
        future: asyncio.Future[T] = self._home.loop.create_future()

        def run() -> Rest:
            if self.cancelled:
                return None
            try:
                settle = partial(_settle, future, work())
            except BaseException as error:
                settle = partial(_settle, future, None, error)
            return partial(self._home.soon, settle)

        in_its_context: Any = contextvars.copy_context().run
        job = self._home.workers.submit(partial(in_its_context, run))
        try:
            return await future
        except asyncio.CancelledError:
            self._home.workers.abandon(job)
            raise

    # Running the function.

    def _go_on(self, begin: Callable[[], Any], shape: Shape) -> None:
        """In the loop."""
        if not self.over:
            self._job = None
            self.task = self._home.loop.create_task(self._in_loop(begin, shape))

    async def _in_loop(self, begin: Callable[[], Any], shape: Shape) -> None:
        self.begun = True
        event = CANCELLED
        if not self.cancelled:
            try:
                await self._home.drain()  # nothing is made that could not be sent
                event = {"event": "final", "result": await self._settled(begin(), shape)}
            except _CAUGHT as error:  # none of them may end the child
                if not self.cancelled:
                    event = self._failed(error)
        if not self.cancelled:
            with contextlib.suppress(asyncio.CancelledError):
                await self._home.drain()
        self._home.finish(self, CANCELLED if self.cancelled else event)

    async def _settled(self, value: Any, shape: Shape) -> Json:
        return shape(await self.whole(value))

    def _failed(self, error: BaseException) -> Json:
        return event_of(
            error, self.kind, call_id=self.call_id, shown=self._home.registry.defaults.show_errors
        )

    def _in_thread(self, begin: Callable[[], Any], shape: Shape) -> Rest:
        """Shaping is done here too: large answers take their time."""
        if self.cancelled:  # whoever did that has told it
            return None
        try:
            value = begin()
            if type(value) not in _PLAIN:
                if inspect.isgenerator(value):
                    value = self._gathered(cast("Generator[Any, None, Any]", value))
                if inspect.isawaitable(value) or inspect.isasyncgen(value):
                    # A plain function may hand back something to be awaited after all.
                    return partial(self._home.soon, partial(self._go_on, lambda: value, shape))
            event = {"event": "final", "result": shape(value)}
        except BaseException as error:
            if self.cancelled:
                return None
            event = self._failed(error)
        return partial(self._home.finish, self, event)

    async def _collected(self, generator: AsyncGenerator[Any, Any]) -> Any:
        collector = answers.Collector()
        came: Any = None
        try:
            while not collector.ended:
                try:
                    value = await generator.asend(came)
                except StopAsyncIteration:
                    break
                came = None
                if is_event(value):
                    came = await come_of(value, Context(self), self._shown)
                    if isinstance(came, Final):
                        return came.result
                    continue
                collector.take(value)
                if not collector.ended:
                    await self._show(value)
        finally:
            await generator.aclose()
        return collector.answer()

    def _gathered(self, generator: Generator[Any, None, Any]) -> Any:
        collector = answers.Collector()
        try:
            while not collector.ended:
                if self.cancelled:
                    raise Cancelled
                try:
                    value = next(generator)
                except StopIteration as stop:
                    collector.end(stop.value)
                    break
                collector.take(value)
                if self.wants_progress:
                    self.wait(self._show(value))
        finally:
            generator.close()
        return collector.answer()

    async def _show(self, value: Any) -> None:
        if not self.wants_progress:
            return
        if isinstance(value, Progress):
            await self.emit(progress_event(value.progress, value.total, value.message))
        elif isinstance(value, str):
            await self.emit(
                {"event": "progress", "progress": self._shown + 1, "message": value, "joins": True}
            )


def _shaped_already(value: Any) -> Json:
    return value


def _settle(future: asyncio.Future[Any], value: Any, error: BaseException | None = None) -> None:
    """In the loop."""
    if future.done():
        return
    if error is None:
        future.set_result(value)
    elif isinstance(error, StopIteration):
        future.set_exception(RuntimeError("the function raised StopIteration"))
    else:
        future.set_exception(error)
