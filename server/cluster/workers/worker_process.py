"""A worker as a process: this program again, with the sockets of its parent and nothing else of it.

A worker is started as a program of its own and not forked: of a process with threads a fork has locks that nobody opens.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import trio

from server.cluster.workers.one_log import pass_on
from server.cluster.workers.worker_channel import Answering, IncomingMessages, WorkerChannel
from server.cluster.workers.worker_handover import VARIABLE, HandedOver, hand_over
from server.lib.log.log_lines import Lines


class ChildProcess:
    """Implements `WorkerProcess`."""

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
