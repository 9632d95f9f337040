"""One call while it runs: the function with its arguments and context, in the loop or in a thread, and how it ends.

The class is also the `Line` under the context. Everything here runs in the loop's thread, but `wait` and what it is
called from.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import inspect
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping
from typing import Any, Protocol, TypeVar, cast

from . import answers
from .content import Progress
from .context import Context, SyncContext, progress_event
from .convert import options_of
from .errors import Cancelled, CannotAsk, NotFound, Unfit
from .failures import CANCELLED, event_of
from .function import Function
from .questions import Question
from .registry import Registry
from .workers import Workers

T = TypeVar("T")
Json = dict[str, Any]
Shape = Callable[[Any], Json]


class Home(Protocol):
    """What all calls of a child share."""

    registry: Registry
    loop: asyncio.AbstractEventLoop
    workers: Workers
    thread: int

    def send(self, event: Json) -> None: ...

    async def drain(self) -> None: ...


class Call:
    def __init__(self, message: Json, home: Home) -> None:
        context: Json = message.get("context") or {}
        self.id: int = message["id"]
        self.subject: str = context.get("subject") or ""
        self.call_id: str = context.get("call_id") or ""
        self.can: frozenset[str] = frozenset(context.get("can") or ())
        self.resumed: Any = context.get("resumed")
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

    async def run(self) -> Json:
        """The event that ends the call, without its id."""
        self.begun = True
        if self.cancelled:
            return CANCELLED
        try:
            event = {"event": "final", "result": await self._result()}
        except asyncio.CancelledError as error:
            event = CANCELLED if self.cancelled else event_of(error, self.kind)
        except (
            Exception,
            Cancelled,
            SystemExit,
            KeyboardInterrupt,
        ) as error:  # none of them may end the child
            event = CANCELLED if self.cancelled else event_of(error, self.kind)
        return CANCELLED if self.cancelled else event

    def cancel(self) -> None:
        """The task that runs the call is cancelled by whoever owns it."""
        self.cancelled = True
        for blocked in list(self._blocked):
            blocked.cancel()

    def reply(self, message: Json) -> None:
        """Of the server, to a request of ours."""
        waiting = self._replies.get(message.get("ask", 0))
        if waiting is None or waiting.done():
            return
        if message["do"] == "refuse":
            waiting.set_exception(CannotAsk(message.get("reason") or "the client cannot be asked"))
        else:
            waiting.set_result(message)

    # The line under the context.

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

    # The four kinds of call.

    async def _result(self) -> Json:
        kinds = {"tool": self._tool, "read": self._read, "prompt": self._prompt, "complete": self._complete}
        return await kinds[self.kind]()

    async def _tool(self) -> Json:
        tool = self._home.registry.tools.get(self._message["name"])
        if tool is None:
            raise NotFound(f"there is no tool {self._message['name']!r} any more")
        arguments = tool.arguments(self._message.get("arguments") or {})
        return await self._perform(
            tool.function, arguments, lambda value: answers.tool_result(value, tool.shape)
        )

    async def _read(self) -> Json:
        uri: str = self._message["uri"]
        resource = self._home.registry.resources.get(self._message.get("template") or uri)
        if resource is None:
            raise NotFound(f"there is no {uri}")
        arguments = resource.function.from_texts(self._message.get("arguments") or {})
        return await self._perform(
            resource.function, arguments, lambda value: answers.contents(value, uri, resource.mime_type)
        )

    async def _prompt(self) -> Json:
        prompt = self._home.registry.prompts.get(self._message["name"])
        if prompt is None:
            raise NotFound(f"there is no prompt {self._message['name']!r} any more")
        arguments = prompt.function.from_texts(self._message.get("arguments") or {})
        return await self._perform(
            prompt.function, arguments, lambda value: answers.prompt(value, prompt.description)
        )

    async def _complete(self) -> Json:
        name, argument, value = (self._message[word] for word in ("name", "argument", "value"))
        registry = self._home.registry
        completion = registry.completions.get((name, argument))
        if completion is not None:
            arguments = completion.arguments(value, self._message.get("known") or {})
            return await self._perform(completion.function, arguments, answers.completion)
        names = registry.arguments_of(name)
        if names is None or argument not in names:
            raise Unfit("unknown", argument)
        offer = registry.prompts.get(name) or registry.resources[name]
        hint = next((field.hint for field in offer.function.parameters if field.name == argument), Any)
        return answers.completion([text for _, text in options_of(hint) if text.startswith(value)])

    # Running the function.

    async def _perform(self, function: Function, arguments: Json, shape: Shape) -> Json:
        if function.context is not None:
            arguments[function.context] = Context(self) if function.is_async else SyncContext(self)
        if function.is_async:
            return await self._settled(function.call(**arguments), shape)
        return await self._in_thread(lambda: function.call(**arguments), shape)

    async def _settled(self, value: Any, shape: Shape) -> Json:
        if inspect.isawaitable(value):
            value = await value
        if inspect.isasyncgen(value):
            value = await self._collected(cast("AsyncGenerator[Any, None]", value))
        return shape(value)

    async def _in_thread(self, function: Callable[[], Any], shape: Shape) -> Json:
        loop = self._home.loop
        done: asyncio.Future[tuple[BaseException | None, Any]] = loop.create_future()

        def settle(error: BaseException | None, value: Any) -> None:
            if not done.done():
                done.set_result((error, value))

        def job() -> None:
            error: BaseException | None = None
            value: Any = None
            try:
                if not self.cancelled:
                    value = scope.run(self._blocking, function, shape)
            except BaseException as raised:  # raised again where the call is awaited
                error = raised
            with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits
                loop.call_soon_threadsafe(settle, error, value)

        scope = contextvars.copy_context()
        submitted = self._home.workers.submit(job)
        try:
            error, value = await done
        except asyncio.CancelledError:
            self._home.workers.abandon(submitted)
            raise
        if error is not None:
            raise error
        shaped, result = value
        # A plain function may hand back something to be awaited after all.
        return result if shaped else await self._settled(result, shape)

    def _blocking(self, function: Callable[[], Any], shape: Shape) -> tuple[bool, Any]:
        """In the thread. Shaping is done here too: large answers take their time."""
        value = function()
        if inspect.isgenerator(value):
            value = self._gathered(cast("Generator[Any, None, Any]", value))
        if inspect.isawaitable(value) or inspect.isasyncgen(value):
            return False, value
        return True, shape(value)

    async def _collected(self, generator: AsyncGenerator[Any, None]) -> Any:
        collector = answers.Collector()
        try:
            async for value in generator:
                collector.take(value)
                if collector.ended:
                    break
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
            await self.emit({"event": "progress", "progress": self._shown + 1, "message": value})
