"""A worker as a process: this program again, with the sockets of its parent and nothing else of it.

A worker is started as a program of its own and not forked: of a process with threads a fork has locks that nobody opens.
"""

from __future__ import annotations

import codecs
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import trio

from server.cluster.workers.worker_channel import Answering, IncomingMessages, WorkerChannel
from server.cluster.workers.worker_handover import VARIABLE, HandedOver, hand_over
from server.lib.log.log_lines import Lines

_PIECE_BYTES: Final = 65_536
# A line that goes on beyond this is written in several.
LINE_CHARACTERS: Final = 65_536


class ChildProcess:
    """A worker that was started."""

    def __init__(self, process: trio.Process, sock: socket.socket, lines: Lines) -> None:
        self._process = process
        self._sock = sock
        self._lines = lines

    @property
    def pid(self) -> int:
        return self._process.pid

    async def wait(self) -> int:
        return await self._process.wait()

    async def pass_on_its_log(self) -> None:
        pipe = self._process.stderr
        assert pipe is not None  # as it was started
        async with pipe:
            await pass_on(pipe, self._lines)

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.Signals(number))

    def connect(
        self,
        *,
        answering: Mapping[str, Answering],
        hearing: Mapping[str, IncomingMessages],
        failed: Callable[[str], None],
    ) -> WorkerChannel:
        return WorkerChannel(self._sock, answering=answering, hearing=hearing, failed=failed)


class Children:
    """Starts them. `command` is this program with what it was told; `handed` makes what a worker gets, of its number and whether it is
    the first process of that number."""

    def __init__(
        self,
        command: Sequence[str],
        handed: Callable[[int, bool], HandedOver],
        lines: Lines,
        *,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._command = command
        self._handed = handed
        self._lines = lines
        self._environment = os.environ if environment is None else environment

    async def start(self, number: int, first: bool) -> ChildProcess:
        handed = self._handed(number, first)
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                hand_over(ours, handed)
                process = await trio.lowlevel.open_process(
                    self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    pass_fds=(theirs.fileno(), *handed.descriptors),
                    env={**self._environment, VARIABLE: str(theirs.fileno())},
                    # What the terminal tells all of its programs, the parent passes on.
                    process_group=0,
                )
        except BaseException:
            ours.close()
            raise
        return ChildProcess(process, ours, self._lines)


async def pass_on(pipe: trio.abc.ReceiveStream, lines: Lines, *, encoding: str = "utf-8") -> None:
    """Pass on what comes through a pipe until all who write into it have closed it; then what is left, with an end of line of ours.

    A worker never waits for whoever reads the log: its pipe is always read, and what nobody takes is dropped and counted.
    """
    decoder = codecs.getincrementaldecoder(encoding)("backslashreplace")
    left = ""
    try:
        while piece := await pipe.receive_some(_PIECE_BYTES):
            *whole, left = (left + decoder.decode(piece)).split("\n")
            while len(left) > LINE_CHARACTERS:
                whole.append(left[:LINE_CHARACTERS])
                left = left[LINE_CHARACTERS:]
            _write(whole, lines)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass
    finally:
        if left := left + decoder.decode(b"", final=True):
            _write([left], lines)


def _write(whole: list[str], lines: Lines) -> None:
    """Write lines at once: whoever wrote them waited already for others to go with them."""
    *first, last = whole or [None]
    for line in first:
        lines.info(f"{line}\n")
    if last is not None:
        lines.warning(f"{last}\n")
