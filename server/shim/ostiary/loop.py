"""The loop: reads what the server wants, runs the calls, and stops cleanly. It is asyncio's, and the author's async
functions run on it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from .call import Call
from .failures import CANCELLED, event_of, log
from .pipe import Incoming, LineTooLong, Outgoing, encoded
from .registry import Registry, current
from .workers import Workers

Json = dict[str, Any]

# For `finally` blocks of what is cancelled at the end. The server waits longer before it kills.
GRACE_SECONDS = 2.0
FLUSH_SECONDS = 1.0


class Loop:
    def __init__(self, registry: Registry, threads: int, files: Callable[[], list[str]]) -> None:
        self.registry = registry
        self.workers = Workers(threads)
        self.thread = threading.get_ident()
        self._files = files
        self._calls: dict[int, tuple[Call, asyncio.Task[None]]] = {}
        self._catalog_is_due = False

    async def run(
        self,
        receive: int,
        send: int,
        started: Callable[[Callable[[], None]], None],
        stopping: Callable[[], None],
    ) -> None:
        """Until the server says stop or goes away. `started` is lent a function that stops it, from any thread;
        `stopping` is called before those who still run are cancelled."""
        current.set(self.registry)
        self.loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._incoming = Incoming(receive)
        self._outgoing = Outgoing(self.loop, send, self._stopping.set)
        self.registry.changed = lambda: self._now(self._changed)
        self.registry.updated = lambda uri: self._now(partial(self._updated, str(uri)))
        self.loop.add_reader(receive, self._read)
        started(partial(self._soon, self._stopping.set))
        try:
            await self._stopping.wait()
        finally:
            stopping()
            self.loop.remove_reader(receive)
            await self._end()
            self.registry.changed = self.registry.updated = None
            self._outgoing.close(FLUSH_SECONDS)

    def send(self, event: Json) -> None:
        """Raises `ValueError` at an event that cannot be sent."""
        self._outgoing.write(encoded(event))

    async def drain(self) -> None:
        await self._outgoing.drain()

    async def _end(self) -> None:
        tasks = [task for _, task in self._calls.values()]
        for identity in list(self._calls):
            self._cancel({"id": identity})
        if tasks:
            await asyncio.wait(tasks, timeout=GRACE_SECONDS)

    def _now(self, action: Callable[[], None]) -> None:
        """In the loop's thread: at once if this is it, so that what an async function does is told before its answer."""
        if threading.get_ident() == self.thread:
            action()
        else:
            self._soon(action)

    def _soon(self, action: Callable[[], None]) -> None:
        """From any thread or signal handler. Nothing, once the loop has ended."""
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(action)

    def _read(self) -> None:
        try:
            lines = self._incoming.read()
            if lines is None:
                self._stopping.set()
                return
            for line in lines:
                self._handle(json.loads(line))
        except (ValueError, KeyError, LineTooLong) as error:
            # Not a fault of any call: the two sides do not speak the same language.
            log(error)
            self._stopping.set()

    def _handle(self, message: Json) -> None:
        do = message["do"]
        if do == "call":
            call = Call(message, self)
            self._calls[call.id] = (call, self.loop.create_task(self._run(call)))
        elif do == "ping":
            self.send({"event": "pong"})
        elif do == "stop":
            self._stopping.set()
        elif do == "cancel":
            self._cancel(message)
        elif message["id"] in self._calls:  # else the call has ended in the meantime
            self._calls[message["id"]][0].reply(message)

    def _cancel(self, message: Json) -> None:
        call, task = self._calls.get(message["id"], (None, None))
        if call is not None and task is not None and not call.over:
            call.cancel()
            # A task that is cancelled before its first step would end without a word.
            if call.begun:
                task.cancel()

    async def _run(self, call: Call) -> None:
        try:
            self._finish(call, await call.run())
            await self._outgoing.drain()
        except asyncio.CancelledError:
            # While its last line waits for room; or else an author's function has got at this task.
            self._finish(call, CANCELLED)
        finally:
            self._calls.pop(call.id, None)

    def _finish(self, call: Call, event: Json) -> None:
        if call.over:
            return
        call.over = True
        if self._catalog_is_due:
            self._send_catalog()  # whoever has this answer will list again
        try:
            self.send({**event, "id": call.id})
        except (ValueError, TypeError, RecursionError) as error:
            self.send({**event_of(error, call.kind), "id": call.id})

    def _updated(self, uri: str) -> None:
        self.send({"event": "updated", "uri": uri})

    def _changed(self) -> None:
        if not self._catalog_is_due:
            self._catalog_is_due = True
            self.loop.call_soon(self._send_catalog)

    def _send_catalog(self) -> None:
        if not self._catalog_is_due:
            return
        self._catalog_is_due = False
        try:
            self.send({"event": "catalog", "catalog": self.registry.catalog(), "files": self._files()})
        except ValueError as error:
            log(error)
