"""What code that has something to say is handed. Who writes it down, and how, is in structured_log.py."""

from __future__ import annotations

from typing import Protocol


class Logger(Protocol):
    """An event is a name with a dot ("tool.called"), its fields are values: no sentences, no secrets, no bodies.

    `exception` is an error that shows the exception which is being handled. `exc_info` shows one as well: an exception, the
    triple of `sys.exc_info()`, or True for the one that is being handled.

    """

    def debug(self, event: str, **fields: object) -> None: ...

    def info(self, event: str, **fields: object) -> None: ...

    def warning(self, event: str, **fields: object) -> None: ...

    def error(self, event: str, **fields: object) -> None: ...

    def exception(self, event: str, **fields: object) -> None: ...


def is_for_people(log: Logger) -> bool:
    """Whether a person reads it at a terminal, and wants to know by name who did what."""
    return getattr(log, "for_people", False) is True
