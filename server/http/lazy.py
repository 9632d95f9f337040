"""An ASGI application that is made when its first request comes, in a thread, so that nobody else waits for it.

The pages' framework costs a start 80 ms and 10 MB, and a server may run for weeks without showing a page.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from server.http.handler import App, Receive, Scope, Send


class LazyApp:
    def __init__(self, make: Callable[[], App]) -> None:
        self._make = make
        self._made: App | None = None
        self._making = trio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._made is None:
            async with self._making:
                if self._made is None:
                    self._made = await trio.to_thread.run_sync(self._make)
        await self._made(scope, receive, send)
