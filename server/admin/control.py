"""The admin socket: what somebody at the machine may do to the running server (approve, list, revoke, claim …).

A Unix socket, 0600, that admits the service's own uid and root, by what the kernel says of the peer. One JSON line in, one out.
The commands themselves are a table that `app` hands in; this file only carries them. Both ends are here: the server's, and `ask`,
the blocking client for the command line (which has no event loop yet).

After an update the two ends may be of different versions until the server is restarted. Each answer carries the server's, and what
the other end does not know is told as such, here for all commands. A command whose arguments take on another meaning gets another
name: a server that overlooks an argument would do something else than was asked for.
"""

from __future__ import annotations

import hashlib
import os
import socket
import stat
import struct
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any, Final

import msgspec
import trio

from server import __version__, paths
from server.observe.log import Logger

# A command with its arguments; an answer may be a long list, and has its own bound.
LINE_BYTES: Final = 64 * 1024
ANSWER_BYTES: Final = 8 * 1024 * 1024
DEADLINE_SECONDS: Final = 15.0
MAX_AT_ONCE: Final = 16
# Of one user, those that are asked which of them is meant.
MOST_SERVERS: Final = 16
LOOK_SECONDS: Final = 2.0
ACCEPT_AGAIN_SECONDS: Final = 0.2
# Names of sockets end after 103 bytes or more, by system; that of a directory made for one is 24 bytes, and a slash.
ADDRESS_BYTES: Final = 100
TEMP_BYTES: Final = 60
ADDRESS_FILE: Final = "control.path"  # in the data directory: where the socket is
_UNKNOWN: Final = "knows no command"  # how a server that does not say its version refuses one


class Command(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    arguments: dict[str, Any] = {}


class CommandAnswer(msgspec.Struct, frozen=True, kw_only=True):
    ok: bool
    result: Any = None
    error: str = ""
    hint: str = ""
    version: str = ""  # the server's; empty from one that does not say
    unknown: bool = False  # there is no such command
    go_on: Any = None  # of a list that goes on: what `at` of the question for its next page is


class ListPage(msgspec.Struct, frozen=True, kw_only=True):
    """What a command answers that lists: some of the rows. Whoever asks gets all of them, page by page."""

    rows: list[Any]
    go_on: Any = None  # None: that was all


class ControlCounters(msgspec.Struct):
    """What happens at the socket, since the start."""

    accept_errors: int = 0


class CommandRefused(Exception):
    """A command could not be done; the text and the hint are for the person who typed it."""

    def __init__(self, error: str, hint: str = "") -> None:
        super().__init__(error)
        self.hint = hint


class NotRunning(CommandRefused):
    """There is no server on that directory."""


Handler = Callable[[Mapping[str, Any], str], Awaitable[Any]]  # arguments, actor ("local:<uid>") → result
Answer = Callable[[Command, str], Awaitable[CommandAnswer]]  # to a command of that actor; raises nothing


def choose_address(data_dir: Path) -> Path:
    """Where the socket goes: the runtime directory if there is one, else beside the data. Where that name is too long, a directory
    is made for it in the system's temporary one. Its name cannot be foreseen, or anybody could lay something in its place."""
    tag = hashlib.sha256(os.fsencode(data_dir.resolve())).hexdigest()[:12]
    home = paths.runtime_home()
    address = (home / f"ostiary-{tag}" / "control") if home else data_dir / "control"
    if len(os.fsencode(address)) <= ADDRESS_BYTES:
        return address
    system = tempfile.gettempdir()
    return (
        Path(tempfile.mkdtemp(prefix=_made_here(), dir=system if len(system) <= TEMP_BYTES else "/tmp"))
        / "control"
    )


def _made_here() -> str:
    """How directories begin that were made for a socket alone."""
    return f"ostiary-{os.getuid()}-"


def _take_away(address: Path) -> None:
    """A socket that nobody listens at, and the directory that was made for it."""
    with suppress(OSError):
        address.unlink(missing_ok=True)
        if address.parent.name.startswith(_made_here()):
            address.parent.rmdir()


def _take_away_dead(pointer: Path) -> None:
    """What a server that was killed left elsewhere. A copied data directory names the socket of one that lives."""
    with suppress(OSError, UnicodeDecodeError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        address = Path(pointer.read_text("utf-8").strip())
        try:
            sock.connect(str(address))
        except ConnectionRefusedError:
            _take_away(address)


def _write_pointer(pointer: Path, address: Path) -> None:
    pointer.unlink(missing_ok=True)
    with open(os.open(pointer, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(str(address))


async def serve(
    data_dir: Path,
    make_commands: Callable[[], Mapping[str, Handler]],
    log: Logger,
    counters: ControlCounters | None = None,
    *,
    task_status: trio.TaskStatus[Path] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Answer until cancelled. `make_commands` is called in a thread, when the first command comes. The data directory's lock is held by the caller, so a socket found in the way is a dead one."""
    table = CommandTable(make_commands)

    async def answer(command: Command, actor: str) -> CommandAnswer:
        return await carry_out(command, actor, await table.commands(), log)

    await serve_commands(data_dir, answer, log, counters, task_status=task_status)


async def serve_commands(
    data_dir: Path,
    answer: Answer,
    log: Logger,
    counters: ControlCounters | None = None,
    *,
    task_status: trio.TaskStatus[Path] = trio.TASK_STATUS_IGNORED,
) -> None:
    """The same, whoever carries them out."""
    pointer = data_dir / ADDRESS_FILE
    _take_away_dead(pointer)
    address = choose_address(data_dir)
    address.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Not through a link: in the system's temporary directory anybody can lay one.
    status = address.parent.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise CommandRefused(
            f"{address.parent} is not private to this user",
            f"chmod 700 {quote(str(address.parent))}, or remove it",
        )
    address.unlink(missing_ok=True)
    listener = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        await listener.bind(str(address))
        os.chmod(address, 0o600)
        listener.listen(MAX_AT_ONCE)
        _write_pointer(pointer, address)
        task_status.started(address)
        slots = trio.CapacityLimiter(MAX_AT_ONCE)
        converse = partial(_converse, answering=answer, log=log, slots=slots)
        async with trio.open_nursery() as conversations:
            await _accept(listener, converse, conversations, log, counters or ControlCounters())
    finally:
        listener.close()
        _take_away(address)


async def _accept(
    listener: trio.socket.SocketType,
    converse: Callable[[trio.SocketStream], Awaitable[None]],
    conversations: trio.Nursery,
    log: Logger,
    counters: ControlCounters,
) -> None:
    """For ever. While the process is out of descriptors, it tries again now and then, and says so once."""
    failing = False
    while True:
        try:
            connected, _ = await listener.accept()
        except OSError as error:
            counters.accept_errors += 1
            if not failing:
                log.error("control.accept_failed", error=error.strerror)
            failing = True
            await trio.sleep(ACCEPT_AGAIN_SECONDS)
            continue
        failing = False
        conversations.start_soon(converse, trio.SocketStream(connected))


class CommandTable:
    """The commands, once somebody has given one: a server may run for weeks without."""

    def __init__(self, make: Callable[[], Mapping[str, Handler]]) -> None:
        self._make = make
        self._made: Mapping[str, Handler] | None = None
        self._making = trio.Lock()

    async def commands(self) -> Mapping[str, Handler]:
        async with self._making:
            if self._made is None:
                self._made = await trio.to_thread.run_sync(self._make)
            return self._made


async def _converse(
    stream: trio.SocketStream,
    answering: Answer,
    log: Logger,
    slots: trio.CapacityLimiter,
) -> None:
    """One question, one answer. Nothing that happens here may end the listener."""
    async with slots, stream:
        try:
            with trio.move_on_after(DEADLINE_SECONDS):
                uid = _peer_uid(stream.socket)
                if uid not in (os.getuid(), 0):
                    log.warning("control.refused", uid=uid)
                    answer = CommandAnswer(
                        ok=False, error="this socket is for the user who runs the server, and root"
                    )
                else:
                    line = await _read_line(stream)
                    if line is None:  # somebody looked whether anybody is here
                        return
                    answer = await _answer(line, answering, uid)
                signed = msgspec.structs.replace(answer, version=__version__)
                await stream.send_all(msgspec.json.encode(signed, enc_hook=str) + b"\n")
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
            log.debug("control.peer_gone")


async def _answer(line: bytes, answering: Answer, uid: int) -> CommandAnswer:
    try:
        command = msgspec.json.decode(line, type=Command)
    except (msgspec.MsgspecError, RecursionError):
        return CommandAnswer(ok=False, error="not a command")
    return await answering(command, f"local:{uid}")


async def carry_out(
    command: Command, actor: str, commands: Mapping[str, Handler], log: Logger
) -> CommandAnswer:
    handler = commands.get(command.name)
    if handler is None:
        return CommandAnswer(ok=False, unknown=True, error=f"this server knows no command {command.name!r}")
    try:
        result = await handler(command.arguments, actor)
        if isinstance(result, ListPage):
            return CommandAnswer(ok=True, result=result.rows, go_on=result.go_on)
        return CommandAnswer(ok=True, result=result)
    except CommandRefused as refusal:
        return CommandAnswer(ok=False, error=str(refusal), hint=refusal.hint)
    except Exception:
        log.exception("control.failed", command=command.name)
        return CommandAnswer(ok=False, error="internal error", hint="the server's log has the details")


async def _read_line(stream: trio.SocketStream) -> bytes | None:
    """None: it was hung up without a byte."""
    data = b""
    while b"\n" not in data and len(data) <= LINE_BYTES:
        more = await stream.receive_some(LINE_BYTES)
        if not more:
            break
        data += more
    return data.partition(b"\n")[0] if data else None


def _peer_uid(sock: trio.socket.SocketType) -> int:
    if sys.platform == "linux":
        raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return int(struct.unpack("3i", raw)[1])
    raw = sock.getsockopt(0, 0x001, 76)  # macOS: SOL_LOCAL, LOCAL_PEERCRED → struct xucred {version, uid, …}
    return int(struct.unpack_from("=II", raw)[1])


def ask(data_dir: Path, name: str, arguments: Mapping[str, Any] | None = None) -> CommandAnswer:
    """Put one command to the server that holds this data directory; of a list, all pages. Raises `CommandRefused`, also when
    none is running."""
    arguments = dict(arguments or {})
    answer = _ask(data_dir, name, arguments)
    if answer.go_on is None:
        return answer
    rows: list[Any] = list(answer.result)
    while answer.go_on is not None:
        answer = _ask(data_dir, name, {**arguments, "at": answer.go_on})
        rows += answer.result
    return msgspec.structs.replace(answer, result=rows)


def _ask(data_dir: Path, name: str, arguments: Mapping[str, Any]) -> CommandAnswer:
    not_running = NotRunning(
        f"no server is running on {data_dir}",
        "start one with `ostiary serve`, or name its directory: --data-dir",
    )
    try:
        address = (data_dir / ADDRESS_FILE).read_text("utf-8").strip()
    except PermissionError as error:
        raise CommandRefused(
            f"{data_dir} belongs to another user", "run this as the user who runs the server"
        ) from error
    except OSError as error:
        raise not_running from error
    return _ask_at(address, name, arguments, not_running)


def servers_here() -> list[str]:
    """Sockets in the runtime directory of this user at which a server listens."""
    home = paths.runtime_home()
    found = [] if home is None else sorted(str(each) for each in home.glob("ostiary-*/control"))
    return [each for each in found[:MOST_SERVERS] if _listens(each)]


def ask_at(address: str, name: str) -> CommandAnswer:
    """Put one command to the server at one of `servers_here`. Raises `CommandRefused`."""
    return _ask_at(address, name, {}, NotRunning(f"no server listens at {address}"))


def runs_on(data_dir: Path) -> bool:
    """Whether a server holds this directory. It is asked nothing."""
    try:
        return _listens((data_dir / ADDRESS_FILE).read_text("utf-8").strip())
    except (OSError, UnicodeDecodeError):
        return False


def _listens(address: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(LOOK_SECONDS)
        try:
            sock.connect(address)
        except OSError:
            return False
        return True


def _ask_at(address: str, name: str, arguments: Mapping[str, Any], not_running: NotRunning) -> CommandAnswer:
    question = msgspec.json.encode(Command(name=name, arguments=dict(arguments))) + b"\n"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(DEADLINE_SECONDS + 5)
        try:
            sock.connect(address)
        except PermissionError as error:
            raise CommandRefused(
                "this socket belongs to another user", "run this as the user who runs the server"
            ) from error
        except OSError as error:
            raise not_running from error
        try:
            sock.sendall(question)
            data = b""
            while not data.endswith(b"\n") and len(data) <= ANSWER_BYTES and (more := sock.recv(65536)):
                data += more
            answer = msgspec.json.decode(data, type=CommandAnswer)
        except (OSError, msgspec.MsgspecError) as error:
            raise CommandRefused("the server did not answer", "see its log") from error
    if answer.unknown or (not answer.version and _UNKNOWN in answer.error):
        raise differ(answer.version, f"it knows no command {name!r}")
    if not answer.ok:
        other = "" if answer.version == __version__ else _versions(answer.version)
        raise CommandRefused(answer.error, answer.hint or other)
    return answer


def differ(version: str, what: str) -> CommandRefused:
    """The two ends do not fit: `version` is the server's, `what` is how that was noticed."""
    return CommandRefused(
        f"{_versions(version)}: {what}",
        "restart the server with this file, or run the one that it was started from",
    )


def _versions(version: str) -> str:
    """The server's beside ours."""
    if version == __version__:
        return f"the running server is another build of {__version__} than this command line"
    theirs = version or "from before versions were compared"
    return f"the running server is {theirs}, this command line {__version__}"
