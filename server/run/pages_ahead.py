"""The pages, loaded in a thread when somebody asks for the first, or before: as soon as a person is about to ask.

That is when the server is started at a terminal, when somebody at the machine makes a link that leads to a page, and when a program
begins to log in, which sends its person to one (`public_router`). Their framework costs a start 80 ms and 10 MB, and a server may run for
weeks without showing a page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import trio

from server.admin.control import Handler
from server.lib.log.logger import Logger
from server.transport.http.handler import App, Receive, Scope, Send

# Commands of the admin socket whose answer is such a link.
MAKE_LINKS: Final = frozenset({"claim", "invite"})


class LazyPages:
    """An ASGI application that is made once, when its first request comes or is expected."""

    def __init__(self, make: Callable[[], App], log: Logger) -> None:
        self._make = make
        self._log = log
        self._made: App | None = None
        self._making = trio.Lock()
        self._expected = trio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._made or await self._load()
        await app(scope, receive, send)

    def expect(self) -> None:
        """Have the pages loaded: somebody will ask for one."""
        self._expected.set()

    def heeding(self, commands: Mapping[str, Handler]) -> Mapping[str, Handler]:
        """Return the commands; those that make links say that somebody will ask for a page."""
        return {
            name: self._expecting(handler) if name in MAKE_LINKS else handler
            for name, handler in commands.items()
        }

    async def run(self) -> None:
        await self._expected.wait()
        try:
            await self._load()
        except Exception:  # whoever asks for a page is told so, and the rest is served
            self._log.exception("site.not_loaded")

    async def _load(self) -> App:
        async with self._making:
            if self._made is None:
                self._made = await trio.to_thread.run_sync(self._make)
            return self._made

    def _expecting(self, handler: Handler) -> Handler:
        async def handle(arguments: Mapping[str, Any], actor: str) -> Any:
            self.expect()
            return await handler(arguments, actor)

        return handle
