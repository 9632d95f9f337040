"""A log line for the eyes: when, a mark, what happened, and of a call how long it took, whose it was and why it failed. Loaded where a
person reads the log.

    10:28:23  ✓ ask_model            4 ms  vera · ostiary
    10:28:24  ✗ ask_model            2 ms  vera · ostiary  agent answered 500: upstream exploded
    10:28:07  ● vera let in ostiary on vm, which asked from 127.0.0.1
    10:28:55  ! main[2] has ended: exit status 3

What events mean in words is in log_sentences.py. A line is cut to a terminal's width, but not why a call failed: that has a line of its own
where it does not fit. Ids, and whatever else an event has, come last and only for whoever wants everything.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from shutil import get_terminal_size
from types import MappingProxyType
from typing import Final, TextIO

import msgspec

from server.lib.log.log_sentences import IDENTITY, IDS, REFUSED, sentence_of, shown
from server.lib.log.terminal_columns import cells, cut, padded
from server.lib.log.visible_text import clean, escaped

CALLS: Final = frozenset({"tool.called", "library.used"})
REQUEST: Final = "http.request"
# Of a call: the columns of its name, of its milliseconds, and of whoever called. Longer ones push the rest to the right.
NAME_WIDTH: Final = 16
TIME_WIDTH: Final = 7
WHO_WIDTH: Final = 22
INDENT: Final = " " * 12
LEAST_WIDTH: Final = 40
WORKER_WIDTH: Final = 2
SLOW_MS: Final = 10_000
# A text with one of these is quoted, or nobody could tell where it ends.
_QUOTED: Final = frozenset(" =\"'")
LINES: Final = "\n\t"  # of a traceback

# outcome of a call → its mark; any other is a failure
_OUTCOMES: Final = MappingProxyType({"ok": "well", "replayed": "well", "asked": "asked", "cancelled": "left"})
_LEVELS: Final = MappingProxyType({"warning": "odd", "error": "failed", "debug": "left"})
_COLOURS: Final = MappingProxyType(
    {"well": "32", "failed": "31", "odd": "33", "asked": "36", "left": "2", "decided": "36", "plain": "0"}
)
_MARKS: Final = MappingProxyType(
    {"well": "✓", "failed": "✗", "odd": "!", "asked": "?", "left": "–", "decided": "●", "plain": " "}
)
_ASCII: Final = MappingProxyType(
    {"well": "+", "failed": "x", "odd": "!", "asked": "?", "left": "-", "decided": "*", "plain": " "}
)


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """How lines are drawn on one stream."""

    coloured: bool = False
    marks: Mapping[str, str] = _MARKS
    width: Callable[[], int | None] = lambda: None  # None: however long it becomes
    everything: bool = False  # ids as well
    worker: str = ""  # whose lines these are, where several processes write

    def paint(self, text: str, style: str) -> str:
        return f"\033[{style}m{text}\033[0m" if self.coloured and text else text


def look_of(out: TextIO, *, everything: bool, worker: int | None = None) -> Look:
    on_terminal = out.isatty()
    draws = (out.encoding or "utf-8").lower().replace("-", "").startswith("utf")
    return Look(
        coloured=on_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb",
        marks=_MARKS if draws else _ASCII,
        width=(lambda: _columns(out)) if on_terminal and not everything else lambda: None,
        everything=everything,
        worker="" if worker is None else str(worker or "").rjust(WORKER_WIDTH) + "  ",
    )


def _columns(out: TextIO) -> int:
    try:
        found = os.get_terminal_size(out.fileno()).columns
    except (OSError, ValueError):
        found = 0
    return max(found or get_terminal_size((80, 24)).columns, LEAST_WIDTH)


def line(level: str, event: str, fields: Mapping[str, object], exception: str | None, look: Look) -> str:
    """One line, with its end; more of them where there is a traceback, or a reason that does not fit."""
    told, why, used = (_call if event in CALLS else _event)(level, event, fields, look)
    text = f"{look.paint(time.strftime('%H:%M:%S'), '2')}  {look.paint(look.worker, '2')}{told}"
    # What an agent prints may be a traceback, and that ends in why.
    width = None if event == "agent.said" else look.width()
    if look.everything:
        named = {name: value for name, value in fields.items() if name not in used and value is not None}
        rest = " ".join((f"({event})", *(f"{name}={_shown(named[name])}" for name in sorted(named))))
        text = f"{text}{'  ' if why else ''}{why}  {look.paint(rest, '2')}"
    elif why and (width is None or cells(text) + cells(why) + 2 <= width):
        text = f"{text}  {why}"
    elif why and width is not None:
        text = f"{text.rstrip()}\n{cut(INDENT + why, width)}"
    if width is not None:
        first, *more = text.split("\n")
        text = "\n".join((cut(first, width), *more))
    trace = fields.get("traceback") if exception is None else exception
    text = f"{text.rstrip()}\n"
    return f"{text}{escaped(trace.rstrip(), keep=LINES)}\n" if isinstance(trace, str) else text


def _call(
    level: str, event: str, fields: Mapping[str, object], look: Look
) -> tuple[str, str, frozenset[str]]:
    outcome, ms = fields.get("outcome"), fields.get("ms", 0.0)
    name = fields.get("tool") or f"{fields.get('method')} {fields.get('name')}"
    kind = _OUTCOMES.get(str(outcome), "failed")
    person, program = fields.get("person") or fields.get("principal"), fields.get("program")
    who = clean(" · ".join(str(each) for each in (person, program) if each))
    why = clean(str(fields.get("reason") or ""))
    if not why and kind != "well":
        why = {"asked": "asks back", "left": "its caller has left"}.get(kind, str(outcome))
    parts = (
        look.paint(look.marks[kind], _COLOURS[kind]),
        f" {padded(clean(str(name)), NAME_WIDTH)}  {_took(ms).rjust(TIME_WIDTH)}  ",
        padded(who, WHO_WIDTH) if why else who,
    )
    used = frozenset({"tool", "method", "name", "outcome", "ms", "person", "program", "reason"})
    return "".join(parts), look.paint(why, _COLOURS["failed"]) if kind == "failed" else why, used


def _event(
    level: str, event: str, fields: Mapping[str, object], look: Look
) -> tuple[str, str, frozenset[str]]:
    words, used = sentence_of(event, fields)
    kind = _LEVELS.get(level, "plain")
    if event.startswith(IDENTITY) and kind in ("plain", "left"):
        kind = "odd" if fields.get("outcome") == REFUSED else "decided"
    if not used and not look.everything:
        rest = sorted(name for name in fields if name not in IDS and name != "traceback")
        words = " ".join((words, *(f"{name}={_shown(fields[name])}" for name in rest)))
    told = f"{look.paint(look.marks[kind], _COLOURS[kind])} {clean(words)}"
    return told, "", used | frozenset({"traceback"})


def _took(ms: object) -> str:
    if not isinstance(ms, int | float):
        return ""
    if ms >= SLOW_MS:
        return f"{ms / 1000:.0f} s"
    return f"{ms:.0f} ms" if ms >= 1 else f"{ms:.1f} ms"


def _shown(value: object) -> str:
    if isinstance(value, str) and value.isprintable() and _QUOTED.isdisjoint(value):
        return value
    # What `repr` makes of a text steers nothing, but what it makes of other things their own code decides.
    return escaped(shown(value) if isinstance(value, float) else repr(value))
