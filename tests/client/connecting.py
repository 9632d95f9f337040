"""A client of the fake server that is held open by a task of its own, so that a test says when it begins and ends."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager as Opening

import trio

from server.client.mcp_client import McpClient
from server.client.server_questions import Mode


class Connect:
    """Opens the client of the fake, logged in, for as long as the test lasts or until `leave`."""

    def __init__(
        self, open_client: Callable[[frozenset[Mode]], Opening[McpClient]], nursery: trio.Nursery
    ) -> None:
        self._open = open_client
        self._nursery = nursery
        self._over = trio.Event()
        self._left = trio.Event()

    async def __call__(self, *modes: Mode) -> McpClient:
        return await self._nursery.start(self._hold, frozenset(modes))

    async def _hold(self, modes: frozenset[Mode], *, task_status: trio.TaskStatus[McpClient]) -> None:
        async with self._open(modes) as mcp:
            task_status.started(mcp)
            await self._over.wait()
        self._left.set()

    async def leave(self) -> None:
        self._over.set()
        await self._left.wait()
