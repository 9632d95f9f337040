"""A server that is started for this, and spoken to over its pipes. Its standard error goes to ours."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import trio

from server.client.client_errors import Unreachable
from server.client.mcp_client import McpClient
from server.client.mcp_session.line_streams import LineStream
from server.client.mcp_session.session_messages import ServerFailure
from server.client.opened_clients import client_over_lines
from server.lib.process_pipes import PipeReader, PipeWriter

# Agents let go of what they hold; afterwards the server is ended.
FAREWELL_SECONDS: Final = 10.0


class StartedPeer:
    """A started program as a `Peer`."""

    def __init__(self, process: trio.Process, writing: int, reading: int) -> None:
        self._process = process
        self.input: Final = PipeWriter(writing)
        self.output: Final = PipeReader(reading)

    async def listen(self) -> None:
        """Return at once: the program says nothing besides."""

    async def ended(self) -> str:
        return f"it ended with {await self._process.wait()}"

    def last_words(self) -> str:
        return ""

    async def aclose(self) -> None:
        """Let the program end by itself, then end it."""
        with trio.CancelScope(shield=True):
            await self.input.aclose()
            with trio.move_on_after(FAREWELL_SECONDS):
                await self._process.wait()
            if self._process.returncode is None:
                self._process.kill()
                await self._process.wait()
            await self.output.aclose()


@asynccontextmanager
async def started(command: Sequence[str], name: str) -> AsyncGenerator[McpClient]:
    """Start a program that speaks MCP over its pipes, for as long as the block lasts."""
    try:
        async with client_over_lines(LineStream(await _start(command)), f"stdio://{name}") as mcp:
            yield mcp
    except ServerFailure as failure:
        raise Unreachable(
            f"the server could not be started: it {failure}", hint="what it says is above"
        ) from None


async def _start(command: Sequence[str]) -> StartedPeer:
    theirs_in, ours_in = os.pipe()
    ours_out, theirs_out = os.pipe()
    try:
        process = await trio.lowlevel.open_process(list(command), stdin=theirs_in, stdout=theirs_out)
    except BaseException as error:
        os.close(ours_in)
        os.close(ours_out)
        if isinstance(error, OSError):
            why = (error.strerror or "unknown error").lower()
            raise Unreachable(f"{command[0]} cannot be started: {why}") from None
        raise
    finally:
        os.close(theirs_in)
        os.close(theirs_out)
    return StartedPeer(process, ours_in, ours_out)
