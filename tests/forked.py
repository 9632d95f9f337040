"""The program without a start of Python for each command and server: one process imports it all, and forks for each. A script can be
run so, too: one around the program, or one of `tests/peers`, whose interpreter has a process that imports what the script imports.

What a command reads, says and answers is as it is in a process of its own; how a process of its own starts is tested by those that start one.
Its command line and first environment, as `/proc` shows them, are those of the process that forks.
"""

from __future__ import annotations

import ast
import atexit
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

_BEGUN: Final = struct.Struct("i")  # the process
_ENDED: Final = struct.Struct("id")  # exit code as `subprocess` has it, and the seconds of work
_REQUEST: Final = b"run"
_STARTED: Final = Path(__file__).resolve()  # by its path: other interpreters do not know our packages
_ELSEWHERE: Final = "server.agents.python.shim"  # runs in processes of its own


class Ran(NamedTuple):
    code: int
    stdout: bytes
    stderr: bytes


class CommandStillRuns(Exception):
    """It took longer than it was given, and is gone now."""


# ── who wants a command run ──────────────────────────────────────────────────────────────────────────────────────────


class ForkServer:
    """It ends with whoever started it: its end of the connection does."""

    def __init__(self, python: str) -> None:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                (python, "-P", str(_STARTED), str(theirs.fileno())),
                env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8"},
                cwd="/",
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
            )
        atexit.register(self._end)

    def _end(self) -> None:
        self._ours.close()
        self._process.wait()

    def start(
        self,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str],
        folder: Path,
        files: tuple[int, int, int],
        script: Path | None,
    ) -> Forked:
        """Begin a command, with these files as its standard ones. May be called from any thread."""
        wanted = None if script is None else str(script)
        asked = json.dumps([wanted, list(arguments), dict(environment), str(folder)]).encode()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, _file(asked) as request:
            socket.send_fds(self._ours, [_REQUEST], [request.fileno(), *files, theirs.fileno()])
        return Forked(arguments, ours)


class Forked:
    """A process that the fork server began, handled as a `subprocess.Popen` is. It is killed when nobody has this any more."""

    def __init__(self, arguments: Sequence[str], told: socket.socket) -> None:
        self.args = list(arguments)
        self.returncode: int | None = None
        self._told = told
        (self.pid,) = _BEGUN.unpack(told.recv(_BEGUN.size))

    def wait(self, timeout: float | None = None) -> int:
        """Raises `subprocess.TimeoutExpired`."""
        if self.returncode is None:
            self._told.settimeout(timeout)
            try:
                answer = self._told.recv(_ENDED.size)
            except TimeoutError:
                raise subprocess.TimeoutExpired(self.args, timeout or 0) from None
            self.returncode, seconds = _ENDED.unpack(answer)
            WORK.append(seconds)
            self._told.close()
        assert self.returncode is not None
        return self.returncode

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._told], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


WORK: Final[list[float]] = []  # the seconds of work of each process that has ended
_LOCK: Final = threading.Lock()
_SERVERS: Final[dict[str, ForkServer]] = {}  # by the interpreter


def start(
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str],
    folder: Path,
    files: tuple[int, int, int],
    python: str = sys.executable,
    script: Path | None = None,
) -> Forked:
    """Begin a command of the program, or the script."""
    with _LOCK:
        if python not in _SERVERS:
            _SERVERS[python] = ForkServer(python)
    return _SERVERS[python].start(
        arguments, environment=environment, folder=folder, files=files, script=script
    )


def run(
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str],
    folder: Path,
    stdin: bytes = b"",
    seconds: float,
    python: str = sys.executable,
    script: Path | None = None,
) -> Ran:
    """One command to its end. Raises `CommandStillRuns`. May be called from any thread."""
    with _file(stdin) as read, _file() as said, _file() as told:
        files = (read.fileno(), said.fileno(), told.fileno())
        forked = start(
            arguments, environment=environment, folder=folder, files=files, python=python, script=script
        )
        try:
            code = forked.wait(seconds)
        except subprocess.TimeoutExpired:
            forked.kill()
            raise CommandStillRuns(f"{list(arguments)}: {_content(said)!r} {_content(told)!r}") from None
        return Ran(code, _content(said), _content(told))


def _file(content: bytes = b"") -> IO[bytes]:
    found = os.fdopen(os.memfd_create("command"), "w+b")
    found.write(content)
    found.seek(0)
    return found


def _content(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()


# ── who runs them ────────────────────────────────────────────────────────────────────────────────────────────────────


class _Child(NamedTuple):
    pid: int
    told: socket.socket  # whoever waits; its end there is closed when nobody waits any more


class _Asked(NamedTuple):
    script: str | None  # the program, where there is none
    arguments: Sequence[str]
    environment: Mapping[str, str]
    folder: str


def _serve(control: socket.socket) -> None:
    children: dict[int, _Child] = {}  # by the descriptor of the process
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is control:
                    received, files, _, _ = socket.recv_fds(control, len(_REQUEST), 5)
                    if not received:
                        for child in children.values():
                            os.kill(child.pid, signal.SIGKILL)
                        return
                    with open(files[0], "rb", closefd=False) as request:  # a descriptor
                        asked = _Asked(*json.load(request))
                    _import_for(asked.script)
                    child = _fork(asked, files)
                    watched = os.pidfd_open(child.pid)
                    children[watched] = child
                    selector.register(watched, selectors.EVENT_READ)
                    selector.register(child.told, selectors.EVENT_READ, watched)
                elif isinstance(key.fileobj, int) and (child := children.pop(key.fileobj, None)) is not None:
                    selector.unregister(key.fileobj)
                    os.close(key.fileobj)
                    with suppress(KeyError):
                        selector.unregister(child.told)
                    _, status, used = os.wait4(child.pid, 0)
                    seconds = used.ru_utime + used.ru_stime
                    with suppress(BrokenPipeError):
                        child.told.sendall(_ENDED.pack(os.waitstatus_to_exitcode(status), seconds))
                    child.told.close()
                elif key.data in children:  # nobody waits any more
                    selector.unregister(key.fileobj)
                    os.kill(children[key.data].pid, signal.SIGKILL)


@cache
def _import_for(script: str | None) -> None:
    """All of the program, and what the script imports."""
    names = [] if script is None else list(_imported_by(Path(script)))
    if script is None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for package in ("server", "auth"):
                for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
                    if not module.name.endswith("__main__") and not module.name.startswith(_ELSEWHERE):
                        importlib.import_module(module.name)
    elif any(name.startswith("server.") for name in names):  # a script around the program
        _import_for(None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:
            with suppress(ImportError):  # the script says so itself
                importlib.import_module(name)
    gc.collect()
    gc.freeze()
    assert threading.active_count() == 1, "a fork keeps one thread"


def _imported_by(script: Path) -> Iterator[str]:
    for each in ast.walk(ast.parse(script.read_bytes())):
        if isinstance(each, ast.Import):
            yield from (alias.name for alias in each.names)
        elif isinstance(each, ast.ImportFrom) and each.module is not None:
            yield each.module


def _fork(asked: _Asked, files: Sequence[int]) -> _Child:
    pid = os.fork()
    if not pid:
        code = 1
        try:
            code = _command(asked, files)
        except BaseException:
            traceback.print_exc()
        finally:
            with suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)
    for each in files[:4]:
        os.close(each)
    told = socket.socket(fileno=files[4])
    with suppress(BrokenPipeError):
        told.sendall(_BEGUN.pack(pid))
    return _Child(pid, told)


def _command(asked: _Asked, files: Sequence[int]) -> int:
    for number, each in enumerate(files[1:4]):
        os.dup2(each, number)
    os.closerange(3, 1024)
    os.environ.clear()
    os.environ.update(asked.environment)
    os.chdir(asked.folder)
    unbuffered = bool(asked.environment.get("PYTHONUNBUFFERED"))
    sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
    sys.stdout = _output(1, "surrogateescape", unbuffered)
    sys.stderr = _output(2, "backslashreplace", True)
    if (action := asked.environment.get("PYTHONWARNINGS")) in ("error", "ignore"):
        warnings.simplefilter(action)
    try:
        if asked.script is None:
            _run_program(asked.arguments)
        else:
            sys.argv = [asked.script, *asked.arguments]
            sys.path.insert(0, str(Path(asked.script).parent))
            runpy.run_path(asked.script, run_name="__main__")
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return error.code or 0
        print(error.code, file=sys.stderr)
        return 1
    return 0


def _run_program(arguments: Sequence[str]) -> None:
    sys.argv = [
        str(Path(importlib.import_module("server").__file__ or "").with_name("__main__.py")),
        *arguments,
    ]
    from server.__main__ import main

    main()


def _output(number: int, errors: str, by_line: bool) -> Any:
    return open(number, "w", encoding="utf-8", errors=errors, closefd=False, buffering=1 if by_line else -1)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
