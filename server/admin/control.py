"""What somebody at the machine may do to the running server (approve, list, revoke, claim …): what is asked and answered, and `ask`, the
blocking client for the command line, which has no event loop. The server's end is in `control_socket.py`.

After an update the two ends may be of different versions until the server is restarted. Each answer carries the server's, and what
the other end does not know is told as such, here for all commands. A command whose arguments take on another meaning gets another
name: a server that overlooks an argument would do something else than was asked for.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from server import __version__
from server.lib import paths

# A command with its arguments; an answer may be a long list, and has its own bound.
LINE_BYTES: Final = 64 * 1024
ANSWER_BYTES: Final = 8 * 1024 * 1024
DEADLINE_SECONDS: Final = 15.0
# Of one user, those that are asked which of them is meant.
MOST_SERVERS: Final = 16
LOOK_SECONDS: Final = 2.0
ADDRESS_FILE: Final = "control.path"  # in the data directory: where the socket is
# Somebody listens there, and as many as may wait do.
_NO_PLACE_FREE: Final = (BlockingIOError, TimeoutError)
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
    late: bool = False  # it was not done in time: whether it will have been, nobody knows
    go_on: Any = None  # of a list that goes on: what `at` of the question for its next page is


class ListPage(msgspec.Struct, frozen=True, kw_only=True):
    """What a command answers that lists: some of the rows. Whoever asks gets all of them, page by page."""

    rows: list[Any]
    go_on: Any = None  # None: that was all


class CommandRefused(Exception):
    """A command could not be done; the text and the hint are for the person who typed it."""

    def __init__(self, error: str, hint: str = "") -> None:
        super().__init__(error)
        self.hint = hint


class NotRunning(CommandRefused):
    """There is no server on that directory."""


class CommandNotAnswered(CommandRefused):
    """A server is there, and did not answer in time: what it would say is not known, and is no "no"."""


Handler = Callable[[Mapping[str, Any], str], Awaitable[Any]]  # arguments, actor ("local:<uid>") → result


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
        if _is_ours(data_dir):
            raise CommandRefused(
                f"this program may not open {data_dir}: the server started it, or something else keeps it out",
                "run the command in a terminal of your own",
            ) from error
        raise CommandRefused(
            f"{data_dir} belongs to another user", "run this as the user who runs the server"
        ) from error
    except OSError as error:
        raise not_running from error
    return _ask_at(address, name, arguments, not_running)


def _is_ours(data_dir: Path) -> bool:
    try:
        return data_dir.stat().st_uid == os.getuid()
    except OSError:
        return False


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
        except _NO_PLACE_FREE:
            return True
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
        except _NO_PLACE_FREE as error:
            raise CommandNotAnswered(
                "the server is busy: too many commands wait for it", "ask again in a moment, and see its log"
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
            raise CommandNotAnswered("the server did not answer", "see its log") from error
    if answer.unknown or (not answer.version and _UNKNOWN in answer.error):
        raise differ(answer.version, f"it knows no command {name!r}")
    if answer.late:
        raise CommandNotAnswered(answer.error, answer.hint)
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
