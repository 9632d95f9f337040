"""A log line for the eyes: level, event, then the fields in the order of their names. Loaded where a person reads the log.

[info     ] tool.called                    at=2026-07-28T09:00:00.000+00:00 ms=1.5 tool=echo
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from server.observe.visible import escaped

LEVEL_WIDTH: Final = 9
EVENT_WIDTH: Final = 30  # longer ones push their fields to the right
# A text with one of these is quoted, or nobody could tell where it ends.
_QUOTED: Final = frozenset(" =\"'")
LINES: Final = "\n\t"  # of a traceback


class Paint(msgspec.Struct, frozen=True, kw_only=True):
    """What is written before each part, and after it."""

    levels: Mapping[str, str]
    event: str
    name: str
    value: str
    reset: str


PLAIN: Final = Paint(levels=MappingProxyType({}), event="", name="", value="", reset="")
COLOURED: Final = Paint(
    levels=MappingProxyType(
        {
            "debug": "\033[32m\033[1m",
            "info": "\033[32m\033[1m",
            "warning": "\033[33m\033[1m",
            "error": "\033[31m\033[1m",
        }
    ),
    event="\033[1m",
    name="\033[36m",
    value="\033[35m",
    reset="\033[0m",
)


def line(level: str, event: str, fields: Mapping[str, object], exception: str | None, paint: Paint) -> str:
    reset = paint.reset
    parts = [
        f"[{paint.levels.get(level, '')}{level.ljust(LEVEL_WIDTH)}{reset}]",
        f"{paint.event}{event.ljust(EVENT_WIDTH)}{reset}",
        *(f"{paint.name}{name}{reset}={paint.value}{_shown(fields[name])}{reset}" for name in sorted(fields)),
    ]
    text = " ".join(parts)
    return f"{text}\n" if exception is None else f"{text}\n{escaped(exception, keep=LINES)}\n"


def _shown(value: object) -> str:
    if isinstance(value, str) and value.isprintable() and _QUOTED.isdisjoint(value):
        return value
    # What `repr` makes of a text steers nothing, but what it makes of other things their own code decides.
    return escaped(repr(value))
