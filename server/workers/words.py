"""What a parent and its workers say to each other, as values."""

from __future__ import annotations

import signal
from typing import Any, Final

import msgspec

from server.admin.control import Command
from server.observe.exposition import MetricFamily

# What all are asked together, for one of them to tell it on.
METRICS: Final = "metrics"
READINESS: Final = "readiness"
# How they stand: the parent knows, and asks nobody.
WORKERS: Final = "workers"
# That its event loop goes round.
BEAT: Final = "beat"
BEAT_SECONDS: Final = 5.0


class WorkerRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why it cannot start, for the person who started the server."""

    problem: str
    hint: str = ""
    details: tuple[str, ...] = ()
    lasting: bool = False


class SaidLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line for the log that the parent writes, once for all that say the same."""

    level: str
    event: str
    fields: dict[str, Any] = {}


class ForwardedCommand(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody at the machine typed; the parent has looked at who that is."""

    command: Command
    actor: str


class WorkerSeen(msgspec.Struct, frozen=True, kw_only=True):
    """How one of them stands, for whoever looks."""

    worker: int
    state: str  # starting, serving, waiting (to be started again) or ended
    pid: int | None = None
    since: int | None = None  # when it was started, in milliseconds
    restarts: int = 0
    ended: str = ""  # how it ended the last time


class Gathered(msgspec.Struct, frozen=True, kw_only=True):
    """What the workers answered to one question, by their numbers, and how they stand."""

    answers: dict[int, msgspec.Raw]
    workers: list[WorkerSeen]
    of_the_parent: list[MetricFamily] = []


def how_it_ended(code: int) -> str:
    """Of `returncode`: negative is the number of a signal."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
