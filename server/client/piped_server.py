"""A server that is started for this, and spoken to over its pipes: the same as `RemoteEndpoint` is over HTTP.

One request at a time. What is written and read are lines; who the server is and what it is asked is mcp_client.py's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from subprocess import PIPE
from typing import Any, Final

import msgspec
import trio

from server.client.client_errors import BadAnswer, Unreachable
from server.client.json_rpc import MAX_ANSWER, MAX_EVENTS, OnMessage, RpcReply, ignore
from server.client.stdio_lines import CHUNK, LineSplitter, TooLong
from server.lib.json_objects import decode_object

# Agents let go of what they hold; afterwards it is ended.
FAREWELL_SECONDS: Final = 10.0


class PipedEndpoint:
    """Implements `RpcEndpoint`."""

    def __init__(self, process: trio.Process, name: str) -> None:
        self.url: Final = f"stdio://{name}"
        self.nameless: Final = False
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin = process.stdin
        self._stdout = process.stdout
        self._splitter = LineSplitter(limit=MAX_ANSWER)
        self._lines: deque[bytes | TooLong] = deque()
        self._turn = trio.Lock()

    async def post(
        self,
        message: Mapping[str, Any],
        *,
        headers: Mapping[str, str],
        silence_seconds: float,
        on_message: OnMessage = ignore,
    ) -> RpcReply:
        """Whoever waits for an answer and is cancelled lets it come to nobody. Raises `Unreachable`, `BadAnswer`."""
        del headers, silence_seconds  # of HTTP; how long it may take is the caller's to say
        async with self._turn:
            try:
                await self._stdin.send_all(msgspec.json.encode(message) + b"\n")
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                raise self._gone() from None
            if "id" not in message:
                return RpcReply(status=202, session_id=None, message=None)
            for _ in range(MAX_EVENTS):
                found = await self._next()
                if found.get("id") == message["id"] and "method" not in found:
                    return RpcReply(status=200, session_id=None, message=found)
                await on_message(found)
        raise BadAnswer(f"the server said more than {MAX_EVENTS} things before its answer")

    async def delete(self, *, headers: Mapping[str, str], silence_seconds: float) -> None:
        """There are no sessions that could be ended: the pipe is one."""

    async def _next(self) -> dict[str, Any]:
        while True:
            while self._lines:
                line = self._lines.popleft()
                if isinstance(line, TooLong):
                    raise BadAnswer(f"the server's answer is larger than {MAX_ANSWER // 1024 // 1024} MiB")
                if (found := decode_object(line)) is not None:
                    return found
            try:
                chunk = await self._stdout.receive_some(CHUNK)
            except trio.BrokenResourceError:
                chunk = b""
            if not chunk:
                raise self._gone()
            self._lines.extend(self._splitter.feed(bytes(chunk)))

    def _gone(self) -> Unreachable:
        return Unreachable("the server could not be started, or has ended", hint="what it says is above")


@asynccontextmanager
async def started(command: Sequence[str], name: str) -> AsyncGenerator[PipedEndpoint, None]:
    """The program, which speaks MCP over its pipes, for as long as the block runs. It says on our stderr what it says."""
    try:
        process = await trio.lowlevel.open_process(list(command), stdin=PIPE, stdout=PIPE)
    except OSError as error:
        why = (error.strerror or "unknown error").lower()
        raise Unreachable(f"{command[0]} cannot be started: {why}") from None
    try:
        yield PipedEndpoint(process, name)
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        with trio.CancelScope(shield=True):
            await process.stdin.aclose()
            with trio.move_on_after(FAREWELL_SECONDS):
                await process.wait()
            if process.returncode is None:
                process.kill()
                await process.wait()
            await process.stdout.aclose()
