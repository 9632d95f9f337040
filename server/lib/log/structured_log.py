"""The logger, which writes log events as JSON lines or for people at a terminal.

One logger is made here and handed on (as logger.py's `Logger`). Nothing is configured globally, except that foreign loggers are kept
quiet: Authlib's print tokens at debug level.

Redaction here is the last net, not the rule: callers do not pass secrets in the first place.

Every call of every tool writes a line, so the path of a line is short: the function that is called, and `Lines.info` (log_lines.py).
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, Literal, TextIO, cast

import msgspec

from server.lib.log.log_lines import Lines
from server.lib.log.logger import Logger
from server.lib.log.visible_text import escaped

LEVELS: Final = ("debug", "info", "warning", "error")

# Values under these names never leave the process, whoever logs them.
SECRET_NAMES: Final = frozenset(
    {
        "authorization", "cookie", "token", "access_token", "refresh_token", "device_code", "user_code", "code", "secret",
        "client_secret", "passphrase", "password", "api_key", "assertion", "body", "form", "claim_url",
    }
)  # fmt: skip
# Things shaped like our credentials or a JWT, wherever they stand in a text (a foreign traceback, say).
SECRET_SHAPES: Final = re.compile(
    r"eyJ[\w-]{8,}\.[\w-]+\.[\w-]+|rt\d+\.[\w-]+\.\d+\.[\w-]+|(?i:bearer)\s+[\w.~+/=-]{8,}"
)


class _Said(msgspec.Struct, frozen=True, kw_only=True):
    """A `Logger` with one function per level, so that a level which is not wanted costs one call of an empty function."""

    debug: Callable[..., None]
    info: Callable[..., None]
    warning: Callable[..., None]
    error: Callable[..., None]
    exception: Callable[..., None]
    for_people: bool


def make_logger(
    *,
    level: Literal["debug", "info", "warning", "error"],
    style: Literal["auto", "json", "console"],
    stream: TextIO | None = None,
    lines: Lines | None = None,
    everything: bool = False,
    worker: int | None = None,
) -> Logger:
    """Make the logger of this process, which writes events of `level` and above to `stream` (stderr by default).

    `lines` must be those of `stream`, or lead there; without them every line is written at once. `everything`: people see ids, too.
    `worker`: which process writes these lines, where several write into one log; 0 for their parent.
    """
    out = stream or sys.stderr
    taken = lines or Lines(out)
    for_people = style == "console" or (style == "auto" and out.isatty())
    writes = (
        _for_people(out, level, everything=everything, worker=worker)
        if for_people
        else _of_worker(worker)
        if worker
        else _as_json
    )
    writers: dict[str, Callable[..., None]] = {}
    for name in LEVELS:
        if LEVELS.index(name) < LEVELS.index(level):
            writers[name] = _say_nothing
        else:
            writers[name] = writes(name, taken.info if name in ("debug", "info") else taken.warning)
    taken.words_for_lost = _words_for_lost(writes)
    return _Said(**writers, exception=_with_exception(writers["error"]), for_people=for_people)


def _say_nothing(event: str, **fields: object) -> None:
    pass


def _words_for_lost(
    writes: Callable[[str, Callable[[str], object]], Callable[..., None]],
) -> Callable[[int], str]:
    """Return a function that makes the line which says how many lines are missing.

    That line goes where they would have gone, past whatever dropped them.
    """

    def words(count: int) -> str:
        said: list[str] = []
        writes("warning", said.append)("log.dropped", count=count)
        return said[0]

    return words


def _with_exception(error: Callable[..., None]) -> Callable[..., None]:
    def exception(event: str, **fields: object) -> None:
        error(event, **{"exc_info": True, **fields})

    return exception


def _as_json(level: str, put: Callable[[str], object]) -> Callable[..., None]:
    encode, time_ns = msgspec.json.Encoder(enc_hook=repr).encode, time.time_ns
    stamp = (0, "")  # many lines fall into one millisecond

    def write(event: str, **fields: Any) -> None:
        nonlocal stamp
        if not SECRET_NAMES.isdisjoint(fields):
            redact(fields)
        fields["event"] = event
        if "exc_info" in fields and (exception := _exception(fields.pop("exc_info"))) is not None:
            fields["exception"] = exception
        fields["level"] = level
        millis = time_ns() // 1_000_000
        if stamp[0] != millis:
            stamp = (millis, _written(millis))
        fields["at"] = stamp[1]
        try:
            line = encode(fields).decode()
        except UnicodeEncodeError:
            # Half a character: a file's name may have one, and with it an error's text.
            line = json.dumps(fields, default=repr)
        put(f"{line}\n" if line.isprintable() else f"{escaped(line)}\n")

    return write


def _of_worker(worker: int) -> Callable[[str, Callable[[str], object]], Callable[..., None]]:
    def writes(level: str, put: Callable[[str], object]) -> Callable[..., None]:
        return partial(_as_json(level, put), worker=worker)

    return writes


def _for_people(
    out: TextIO, lowest: str, *, everything: bool, worker: int | None = None
) -> Callable[[str, Callable[[str], object]], Callable[..., None]]:
    from server.lib.log import console_log

    look, day = console_log.look_of(out, everything=everything, worker=worker), time.localtime()[:3]

    def writes(level: str, put: Callable[[str], object]) -> Callable[..., None]:
        def write(event: str, **fields: Any) -> None:
            nonlocal day
            # A request of a page has its line at level debug only.
            if event == console_log.REQUEST and lowest != "debug":
                return
            redact(fields)
            exception = _exception(fields.pop("exc_info", None))
            now = time.localtime()
            if now[:3] != day:
                day = now[:3]
                put(f"{time.strftime('%A, %d %B %Y', now)}\n")
            put(console_log.line(level, event, fields, exception, look))

        return write

    return writes


def redact(fields: dict[str, Any]) -> None:
    for name in SECRET_NAMES.intersection(fields):
        fields[name] = "***"


def _exception(exc_info: object) -> str | None:
    """Return the traceback of an exception, without anything that looks like a credential; None if there is no exception."""
    if isinstance(exc_info, BaseException):
        kind, error, trace = type(exc_info), exc_info, exc_info.__traceback__
    elif isinstance(exc_info, tuple):
        kind, error, trace = cast("Any", exc_info)
    else:
        kind, error, trace = sys.exc_info() if exc_info else (None, None, None)
    if error is None:
        return None
    return scrubbed("".join(traceback.format_exception(kind, error, trace)).removesuffix("\n"))


def _written(millis: int) -> str:
    return datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="milliseconds")


def quieten_foreign_loggers(log: Logger) -> None:
    """Send what libraries log at warning and above to `log`, and nothing below that, whatever level we run at."""
    root = logging.getLogger()
    root.handlers[:] = [_Forward(log)]
    root.setLevel(logging.WARNING)
    for name in ("authlib", "hypercorn", "quart", "trio"):
        logging.getLogger(name).setLevel(logging.WARNING)


class _Forward(logging.Handler):
    def __init__(self, log: Logger) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        report = self._log.error if record.levelno >= logging.ERROR else self._log.warning
        report(
            "library.reported",
            library=record.name,
            said=scrubbed(record.getMessage()),
            exc_info=record.exc_info,
        )


def scrubbed(text: str) -> str:
    """Return a text with `***` in place of everything that looks like a credential."""
    return SECRET_SHAPES.sub("***", text)
