"""The interface of a logger. structured_log.py implements it."""

from __future__ import annotations

from typing import Final, Protocol


class Logger(Protocol):
    """A logger of events: a dotted name ("tool.called"), and values as fields; no sentences, no secrets, no bodies.

    `exception` logs at the level of errors, with the exception that is being handled. Each method accepts the field `exc_info`: an
    exception, the triple of `sys.exc_info()`, or True for the exception that is being handled.
    """

    def debug(self, event: str, **fields: object) -> None: ...

    def info(self, event: str, **fields: object) -> None: ...

    def warning(self, event: str, **fields: object) -> None: ...

    def error(self, event: str, **fields: object) -> None: ...

    def exception(self, event: str, **fields: object) -> None: ...


class Unlogged:
    """A log that nobody keeps."""

    def debug(self, event: str, **fields: object) -> None:
        """Drop the event."""

    info = warning = error = exception = debug


UNLOGGED: Final = Unlogged()


def is_for_people(log: Logger) -> bool:
    """Return whether a person reads this log at a terminal, so that events should name who did what."""
    return getattr(log, "for_people", False) is True
