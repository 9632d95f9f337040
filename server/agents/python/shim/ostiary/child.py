"""The child process: its command line, its descriptors, its signals and its end."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import NamedTuple, NoReturn

from .registry import ONLY
from .serve import serve

# After this, whatever still runs is given up. Longer than the grace in loop.py, shorter than the server's patience.
LAST_SECONDS = 4.0
USAGE = "usage: run.py --fds IN,OUT (--file FILE | --module MODULE) [--threads N]"


class Options(NamedTuple):
    receive: int
    send: int
    file: str | None
    module: str | None
    threads: int


def main(arguments: list[str]) -> int:
    options = read_options(arguments)
    for fd in (options.receive, options.send):
        # Neither programs that the author starts nor their forks may hold or read the server's line.
        os.set_inheritable(fd, False)
    os.register_at_fork(after_in_child=lambda: _close(options.receive, options.send))
    # Ctrl-C in the server's terminal is the server's matter.
    signal.signal(signal.SIGINT, _ignore)
    return serve(
        options.receive,
        options.send,
        file=options.file,
        module=options.module,
        threads=options.threads,
        registry=ONLY,
        started=partial(_started, options.receive),
        stopping=_give_up_later,
    )


def read_options(arguments: list[str]) -> Options:
    given = dict(zip(arguments[::2], arguments[1::2]))
    unknown = set(given) - {"--fds", "--file", "--module", "--threads"}
    if len(arguments) % 2 or unknown or ("--file" in given) == ("--module" in given) or "--fds" not in given:
        _refuse(USAGE)
    try:
        receive, send = map(int, given["--fds"].split(","))
        threads = int(given.get("--threads", "8"))
    except ValueError:
        _refuse(USAGE)
    if threads < 1:
        _refuse(USAGE)
    return Options(receive, send, given.get("--file"), given.get("--module"), threads)


def _refuse(text: str) -> NoReturn:
    sys.stderr.write(text + "\n")
    raise SystemExit(2)


def _close(*fds: int) -> None:
    for fd in fds:
        with contextlib.suppress(OSError):
            os.close(fd)


def _started(receive: int, stop: Callable[[], None]) -> None:
    threading.Thread(target=_watch, args=(receive,), name="ostiary-lifeline", daemon=True).start()

    def terminate(number: int, frame: FrameType | None) -> None:
        stop()
        _give_up_later()  # an async function that blocks keeps the loop from stopping

    signal.signal(signal.SIGTERM, terminate)


def _ignore(number: int, frame: FrameType | None) -> None:
    """Not SIG_IGN, which programs that the author starts would inherit."""


def _give_up_later() -> None:
    """Threads that do not end, and whatever else holds the interpreter, get no longer than this."""
    timer = threading.Timer(LAST_SECONDS, os._exit, (0,))
    timer.daemon = True
    timer.start()


def _watch(fd: int) -> None:
    """The server's end of the pipe is closed when it dies. The loop sees that too, unless a function blocks it."""
    poll = select.poll()
    poll.register(fd, 0)
    poll.poll()
    _give_up_later()
