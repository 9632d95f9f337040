"""The pages are loaded before somebody asks for the first: as soon as a person is about to, and not before, for they take much memory.

That is when the server is started at a terminal, when somebody at the machine makes a link that leads to a page, and when a program
begins to log in, which sends its person to one (`public_router`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import trio

from server.admin.control import Handler
from server.lib.log.logger import Logger

# Commands of the admin socket whose answer is such a link.
MAKE_LINKS: Final = frozenset({"claim", "invite"})


class PagesAhead:
    def __init__(self, load: Callable[[], Awaitable[object]], log: Logger) -> None:
        self._load = load
        self._log = log
        self._expected = trio.Event()

    def expect(self) -> None:
        """Somebody will ask for a page."""
        self._expected.set()

    def heeding(self, commands: Mapping[str, Handler]) -> Mapping[str, Handler]:
        """The same commands; those that make links say that somebody will."""
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

    def _expecting(self, handler: Handler) -> Handler:
        async def handle(arguments: Mapping[str, Any], actor: str) -> Any:
            self.expect()
            return await handler(arguments, actor)

        return handle
