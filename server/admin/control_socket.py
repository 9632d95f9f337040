"""The admin socket, at the server: a Unix socket, 0600, that admits the service's own uid and root, by what the kernel says of the peer, but
no program that a server started.

One JSON line in, one out. The commands themselves are a table that `app` hands in; this file only carries them.
"""

from __future__ import annotations

import os
import socket
import stat
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Final

import msgspec
import trio

from server import __version__
from server.admin.control import (
    ADDRESS_FILE,
    DEADLINE_SECONDS,
    LINE_BYTES,
    Command,
    CommandAnswer,
    CommandRefused,
    Handler,
    ListPage,
)
from server.admin.process_descent import SocketPeer, peer_of
from server.lib import paths
from server.lib.log.logger import Logger
from server.lib.own_files import make_directory, make_file, open_to_others

MAX_AT_ONCE: Final = 16
ACCEPT_AGAIN_SECONDS: Final = 0.2
# To say that a command took too long; who asked waits five seconds longer than the command may take.
FAREWELL_SECONDS: Final = 2.0
# Names of sockets end after 103 bytes or more, by system; that of a directory made for one is 24 bytes, and a slash.
ADDRESS_BYTES: Final = 100
TEMP_BYTES: Final = 60

_LATE: Final = CommandAnswer(
    ok=False,
    late=True,
    error=f"the server did not answer within {DEADLINE_SECONDS:g} seconds",
    hint="whether it was done is not known: look before you ask again",
)

Answer = Callable[[Command, str], Awaitable[CommandAnswer]]  # to a command of that actor; raises nothing


class ControlCounters(msgspec.Struct):
    """What happens at the socket, since the start."""

    accept_errors: int = 0


def choose_address(data_dir: Path) -> Path:
    """Where the socket goes: the runtime directory if there is one, else beside the data. Where that name is too long, a directory
    is made for it in the system's temporary one. Its name cannot be foreseen, or anybody could lay something in its place."""
    address = paths.control_folder(data_dir) / "control"
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
    with open(make_file(pointer), "w", encoding="utf-8") as file:
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
    make_directory(address.parent)
    # Not through a link: in the system's temporary directory anybody can lay one.
    status = address.parent.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or open_to_others(status):
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
    converse: Callable[[trio.SocketStream, SocketPeer | None], Awaitable[None]],
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
        # Now, and not when its turn comes: its number may be another's by then.
        peer = _peer_of(connected)
        conversations.start_soon(converse, trio.SocketStream(connected), peer)


def _peer_of(connected: trio.socket.SocketType) -> SocketPeer | None:
    try:
        return peer_of(connected)
    except OSError:
        return None


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
    peer: SocketPeer | None,
    answering: Answer,
    log: Logger,
    slots: trio.CapacityLimiter,
) -> None:
    """One question, one answer. Nothing that happens here may end the listener."""
    async with slots, stream:
        try:
            answer: CommandAnswer | None = None
            with trio.move_on_after(DEADLINE_SECONDS) as doing:
                if peer is None or peer.uid not in (os.getuid(), 0):
                    log.warning("control.refused", uid=None if peer is None else peer.uid)
                    answer = CommandAnswer(
                        ok=False, error="this socket is for the user who runs the server, and root"
                    )
                elif peer.descends:
                    log.warning("control.refused", uid=peer.uid, why="started by this server")
                    answer = CommandAnswer(
                        ok=False,
                        error="a program that the server started may not act as its owner",
                        hint="run the command in a terminal of your own",
                    )
                elif peer.confined:
                    log.warning("control.refused", uid=peer.uid, why="may get no new privileges")
                    answer = CommandAnswer(
                        ok=False,
                        error="a program that may get no new privileges may be one that a server started, and not its owner",
                        hint="run the command in a terminal of your own, outside of a sandbox",
                    )
                else:
                    line = await _read_line(stream)
                    if line is None:  # somebody looked whether anybody is here
                        return
                    answer = await _answer(line, answering, peer.uid)
                await _send(stream, answer)
            # One that was being sent is not begun anew in the middle.
            if doing.cancelled_caught and answer is None:
                log.warning("control.late", seconds=DEADLINE_SECONDS)
                with trio.move_on_after(FAREWELL_SECONDS):
                    await _send(stream, _LATE)
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
            log.debug("control.peer_gone")


async def _send(stream: trio.SocketStream, answer: CommandAnswer) -> None:
    signed = msgspec.structs.replace(answer, version=__version__)
    await stream.send_all(msgspec.json.encode(signed, enc_hook=str) + b"\n")


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
