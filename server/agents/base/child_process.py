"""A process of somebody else's program that works for us: started with a pipe to it and one from it, listened to, and ended
together with all that it started.

The process is in a session of its own, so Ctrl-C in our terminal reaches us alone. Its standard output and error are one stream
of lines for the log, which are never interpreted. This module knows neither what is said over the pipes
(server/agents/python/agent_process.py) nor what the process gets to see of our environment (child_environment.py).
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import trio

from server.agents.base.program_start import start
from server.lib.log.logger import Logger
from server.lib.process_pipes import PipeReader, PipeWriter

GRACE_SECONDS: Final = 3.0  # to end by itself once its input has ended
TERM_SECONDS: Final = 2.0  # and once it was told to
KILLED_SECONDS: Final = 2.0  # the kernel takes a moment; a process that hangs in it can take for ever
LINE_BYTES: Final = 8 * 1024
PIPE_BYTES: Final = 64 * 1024
# A traceback fits in; a loop that prints does not fill the disk.
LINES_PER_SECOND: Final = 100
LAST_LINES: Final = 5
SHOWN_CHARACTERS: Final = 500


class LogAllowance:
    """The bound of what is written down of an agent's words: one for all of its processes that run beside each other."""

    def __init__(self, log: Logger, name: str, clock: Callable[[], float]) -> None:
        self._log = log
        self._name = name
        self._clock = clock
        self._since = clock()
        self._said = 0

    def say(self, line: str) -> None:
        if self._clock() - self._since >= 1:
            self.report()
            self._since, self._said = self._clock(), 0
        self._said += 1
        if self._said <= LINES_PER_SECOND:
            self._log.info("agent.said", agent=self._name, line=line)

    def report(self) -> None:
        """Tell how much was left out."""
        if self._said > LINES_PER_SECOND:
            self._log.warning("agent.says_too_much", agent=self._name, lines=self._said - LINES_PER_SECOND)
            self._said = LINES_PER_SECOND


class Speech:
    """The words that a child prints, on their way into the log: whole lines, bounded in length and number."""

    def __init__(self, allowance: LogAllowance) -> None:
        self.last: Final = deque[str](maxlen=LAST_LINES)
        self._allowance = allowance
        self._held = bytearray()
        self._too_long = False

    def feed(self, data: bytes | bytearray) -> None:
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._hold(line)
            self._say()
        self._hold(rest)

    def end(self) -> None:
        if self._held:
            self._say()
        self._allowance.report()

    def _hold(self, data: bytes | bytearray) -> None:
        room = LINE_BYTES - len(self._held)
        self._held += data[:room]
        self._too_long = self._too_long or len(data) > room

    def _say(self) -> None:
        text = self._held.decode("utf-8", "replace").rstrip("\r") + ("…" if self._too_long else "")
        self._held.clear()
        self._too_long = False
        line = text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)
        if not line.strip():
            return
        if told := line.strip(" ^~"):  # a traceback points at things
            self.last.append(told[:SHOWN_CHARACTERS])
        self._allowance.say(line)


class Child:
    """A process of `start_child` or `start_program`. Somebody must `listen` to it, or it stands still with a full pipe, and
    must `aclose` it."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        input: PipeWriter,  # noqa: A002
        output: PipeReader,
        voice: trio.lowlevel.FdStream,
        speech: Speech,
        over: Callable[[int], None] | None = None,
    ) -> None:
        """Take over the process. `over` is told of its end while its number is nobody else's yet."""
        self.input: Final = input  # what it reads
        self.output: Final = output  # what it writes
        self.pid: Final = process.pid
        self._process = process
        self._voice = voice
        self._speech = speech
        self._tell_over = over
        self._over = False

    async def listen(self) -> None:
        """Listen until neither it nor anything that it started can say any more."""
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for data in self._voice:
                self._speech.feed(data)
        self._speech.end()

    @property
    def last_lines(self) -> Sequence[str]:
        return tuple(self._speech.last)

    def last_words(self) -> str:
        """Return the end of a sentence that tells of a failure; empty where it said nothing."""
        return "; it said: " + " / ".join(self._speech.last) if self._speech.last else ""

    async def ended(self) -> str:
        """Wait for its end, and tell of it in a few words. For one task at a time."""
        return how_it_ended(await self.exit_code())

    async def aclose(self, grace: float = GRACE_SECONDS) -> None:
        """Ask it to end, by the end of its input, after `grace` by SIGTERM, then make it; and with it whatever it started.
        This takes some seconds at most, and cannot be cancelled."""
        with trio.CancelScope(shield=True):
            await self.input.aclose()
            for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, TERM_SECONDS)):
                with trio.move_on_after(seconds):
                    await self._exit()
                    break
                self._signal(number)
            with trio.move_on_after(KILLED_SECONDS):
                await self.exit_code()
            await self.output.aclose()
            self._listen_once_more()
            await self._voice.aclose()

    def _listen_once_more(self) -> None:
        """Take what it said last, which nobody has read where the listener was ended before: a pipe's worth at most."""
        with suppress(OSError):
            self._speech.feed(os.read(self._voice.fileno(), PIPE_BYTES))
        self._speech.end()

    def _signal(self, number: signal.Signals) -> None:
        """Send a signal to all in its group. Until it has been reaped, nobody else can bear the group's id."""
        if not self._over:
            with suppress(ProcessLookupError, PermissionError):  # macOS says the latter of a zombie
                os.killpg(self.pid, number)

    async def exit_code(self) -> int:
        """Wait for its end, and return its exit status, or minus the number of its signal."""
        await self._exit()
        self._signal(signal.SIGKILL)  # what it started ends with it
        if not self._over and self._tell_over is not None:
            self._tell_over(self.pid)
        self._over = True
        return self._process.wait()

    async def _exit(self) -> None:
        """Wait until it has ended; where the system lets us wait for that alone, it is not reaped yet."""
        if self._process.returncode is not None:
            return
        try:
            descriptor = os.pidfd_open(self.pid)
        except (AttributeError, OSError):  # not Linux, or an old one
            await trio.to_thread.run_sync(self._process.wait, abandon_on_cancel=True)
            return
        try:
            await trio.lowlevel.wait_readable(descriptor)
        finally:
            os.close(descriptor)


def how_it_ended(code: int) -> str:
    if code >= 0:
        return f"exit status {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


def start_child(
    command: Callable[[int, int], Sequence[str | bytes]],
    environment: Mapping[str, str],
    *,
    name: str,
    log: Logger,
    standard: bool = False,
    working_dir: str = "",
) -> Child:
    """Start a child. `command` is given the numbers of the descriptors that the child reads and writes; `standard`: they are its
    standard input and output, and only its standard error is for the log. Raises `OSError`.

    Blocks for the milliseconds that a fork takes."""
    return _start(
        command,
        environment,
        LogAllowance(log, name, trio.current_time),
        folder=Path(working_dir).expanduser() if working_dir else None,
        standard=standard,
    )


def start_program(
    command: Sequence[str | bytes],
    environment: Mapping[str, str],
    *,
    folder: str,
    listens: bool,
    allowance: LogAllowance,
    over: Callable[[int], None],
) -> Child:
    """Start a program that reads and writes its standard streams, in `folder`; only its standard error is for the log. One that does
    not listen finds nothing there, and no pipe: some take a pipe for something to read. Raises `OSError`; blocks as above."""
    return _start(
        lambda _, __: command,
        environment,
        allowance,
        folder=folder,
        standard=True,
        listens=listens,
        over=over,
    )


def _start(
    command: Callable[[int, int], Sequence[str | bytes]],
    environment: Mapping[str, str],
    allowance: LogAllowance,
    *,
    folder: Path | str | None,
    standard: bool,
    listens: bool = True,
    over: Callable[[int], None] | None = None,
) -> Child:
    with ExitStack() as theirs, ExitStack() as on_failure:
        reading, our_input = _pipe(theirs, on_failure, ours="writing")
        our_output, writing = _pipe(theirs, on_failure, ours="reading")
        our_ear, voice = _pipe(theirs, on_failure, ours="reading")
        process = start(
            command(reading, writing),
            environment,
            stdin=reading if standard and listens else subprocess.DEVNULL,
            stdout=writing if standard else voice,
            stderr=voice,
            pass_fds=() if standard else (reading, writing),
            cwd=folder,
            start_new_session=True,
        )
        on_failure.pop_all()
    return Child(
        process,
        PipeWriter(our_input),
        PipeReader(our_output),
        trio.lowlevel.FdStream(our_ear),
        Speech(allowance),
        over,
    )


def _pipe(theirs: ExitStack, on_failure: ExitStack, *, ours: str) -> tuple[int, int]:
    reading, writing = os.pipe()
    mine, other = (reading, writing) if ours == "reading" else (writing, reading)
    theirs.callback(os.close, other)
    on_failure.callback(os.close, mine)
    return reading, writing
