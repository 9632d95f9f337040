"""Who sits before a login in the tests: keeps what is shown, and does with a link what a browser would."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
import trio

from server.client.client_errors import ClientError
from server.lib.oauth_client.device_authorization import DeviceCode


async def follow(link: str) -> list[httpx2.Response]:
    """A browser: every page on the way, the last one where the redirects end."""
    async with httpx2.AsyncClient(follow_redirects=True, trust_env=False, timeout=60) as browser:
        page = await browser.get(link)
        return [*page.history, page]


@dataclass
class Screen:
    """`browse` is what happens when a link is shown; None, nothing does."""

    browse: Callable[[str], Awaitable[Any]] | None = follow
    codes: list[DeviceCode] = field(default_factory=list[DeviceCode])
    links: list[str] = field(default_factory=list[str])
    pages: list[Any] = field(default_factory=list[Any])  # what browsing came to
    paste: Callable[[str], str] | None = None
    shown: trio.Event = field(default_factory=trio.Event)

    def trouble(self, error: ClientError) -> None:
        raise AssertionError(error)

    @asynccontextmanager
    async def code(self, code: DeviceCode) -> AsyncGenerator[None, None]:
        self.codes.append(code)
        self.shown.set()
        yield

    @asynccontextmanager
    async def link(
        self, link: str, seconds: float, paste: Callable[[str], str]
    ) -> AsyncGenerator[None, None]:
        self.links.append(link)
        self.paste = paste
        self.shown.set()
        error: ClientError | None = None
        async with trio.open_nursery() as nursery:
            if self.browse is not None:
                nursery.start_soon(self._look, self.browse, link)
            try:
                yield
            except ClientError as found:
                error = found
        if error is not None:
            raise error

    async def _look(self, browse: Callable[[str], Awaitable[Any]], link: str) -> None:
        self.pages.append(await browse(link))
