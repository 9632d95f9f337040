"""Log events as JSON lines or for a terminal. One logger is made here and handed on; nothing is configured globally, except
that foreign loggers are kept quiet: Authlib's print tokens at debug level.

Redaction here is the last net, not the rule: callers do not pass secrets in the first place.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Generator, MutableMapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, Literal, TextIO, cast

import msgspec
import structlog
from structlog.typing import FilteringBoundLogger, Processor

LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}

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


# Lines that may wait for the next flush; a busy server fills this in some hundredths of a second.
LINES_HELD: Final = 512
FLUSHED_EVERY_SECONDS: Final = 0.1

_ENCODER: Final = msgspec.json.Encoder(enc_hook=repr)


def make_logger(
    *,
    level: Literal["debug", "info", "warning", "error"],
    style: Literal["auto", "json", "console"],
    stream: TextIO | None = None,
    lines: Lines | None = None,
) -> FilteringBoundLogger:
    """`lines` must be those of `stream`; without them every line is written at once."""
    out = stream or sys.stderr
    console = style == "console" or (style == "auto" and out.isatty())
    if console:
        processors = [*_for_people(structlog.dev.ConsoleRenderer(colors=out.isatty())), _end_line]
    else:
        processors = [_json_line]
    logger = structlog.wrap_logger(
        lines or Lines(out),
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        context_class=dict,
    )
    # Bound once: an unbound one is put together again at every event.
    return cast("FilteringBoundLogger", logger.bind())


def _for_people(renderer: Processor) -> list[Processor]:
    formatting = structlog.processors
    return [formatting.add_log_level, _stamp, redact, formatting.format_exc_info, _scrub_traceback, renderer]


def quieten_foreign_loggers(log: FilteringBoundLogger) -> None:
    """Send what libraries log at warning and above to ours, and nothing below it, whatever level we run at."""
    root = logging.getLogger()
    root.handlers[:] = [_Forward(log)]
    root.setLevel(logging.WARNING)
    for name in ("authlib", "hypercorn", "quart", "httpx2", "httpcore2", "trio"):
        logging.getLogger(name).setLevel(logging.WARNING)


class _Forward(logging.Handler):
    def __init__(self, log: FilteringBoundLogger) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        report = self._log.error if record.levelno >= logging.ERROR else self._log.warning
        report(
            "library.reported",
            library=record.name,
            said=_scrub(record.getMessage()),
            exc_info=record.exc_info,
        )


class Lines:
    """Where lines go: whole ones, in order. A line that nobody can take (whoever read the log has gone, its disk is full) is
    dropped: callers are served all the same.

    While somebody promises to call `flush` (`held`), ordinary lines wait for it, because at thousands of calls a second the
    writing costs more than the rest of a line. Whatever is a warning or worse is written at once, with all that came before.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._waiting: list[str] = []
        self._held = False

    @contextmanager
    def held(self) -> Generator[None]:
        self._held = True
        try:
            yield
        finally:
            self._held = False
            self.flush()

    def flush(self) -> None:
        lines, self._waiting = self._waiting, []
        if lines:
            with suppress(OSError):
                self._out.write("".join(lines))
                self._out.flush()

    def info(self, line: str) -> None:
        self._waiting.append(line)
        if not self._held or len(self._waiting) >= LINES_HELD:
            self.flush()

    def warning(self, line: str) -> None:
        self._waiting.append(line)
        self.flush()

    debug = info
    error = critical = exception = msg = warning


def _end_line(_: object, __: str, line: Any) -> str:
    return f"{line}\n"


def _stamp(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    event["at"] = _written(time.time_ns() // 1_000_000)
    return event


@lru_cache(maxsize=4)  # many lines fall into one millisecond
def _written(millis: int) -> str:
    return datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="milliseconds")


def redact(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    if not SECRET_NAMES.isdisjoint(event):
        for name in SECRET_NAMES.intersection(event):
            event[name] = "***"
    return event


def _scrub_traceback(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    if "exception" in event:
        event["exception"] = _scrub(event["exception"])
    return event


def _scrub(text: str) -> str:
    return SECRET_SHAPES.sub("***", text)


def _json_line(logger: object, level: str, event: MutableMapping[str, Any]) -> str:
    """All steps in one function: every call of every tool writes a line, and each step of its own costs as much as the writing."""
    redact(logger, level, event)
    if "exc_info" in event:
        _scrub_traceback(
            logger, level, structlog.processors.format_exc_info(cast("Any", logger), level, event)
        )
    event["level"] = level
    return _ENCODER.encode(_stamp(logger, level, event)).decode() + "\n"
