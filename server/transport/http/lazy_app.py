"""An ASGI application that is made when its first request comes, or is expected, in a thread, so that nobody else waits for it.

The pages' framework costs a start 80 ms and 10 MB, and a server may run for weeks without showing a page.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from server.transport.http.handler import App, Receive, Scope, Send


class LazyApp:
    def __init__(self, make: Callable[[], App]) -> None:
        self._make = make
        self._made: App | None = None
        self._making = trio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._made or await self.made()
        await app(scope, receive, send)

    async def made(self) -> App:
        async with self._making:
            if self._made is None:
                self._made = await trio.to_thread.run_sync(self._make)
            return self._made
