"""What a parent and its workers say to each other: the names of all questions and news, and what goes with them as values."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from server.admin.control import Command
from server.lib.log.logger import Logger
from server.lib.log.prometheus_text import MetricFamily

# What a parent asks one of its workers, and is answered:
# a command of somebody at the machine (`ForwardedCommand`); what came of it (`CommandAnswer`).
COMMAND: Final = "command"
# To read the settings again, and whether certificates as well (true or false); what it has to say of them (`list[SaidLine]`).
RELOAD: Final = "reload"
# What it counts (nothing is said with it); `list[MetricFamily]`.
METRICS: Final = "metrics"
# Whether it can serve (nothing is said with it); `Readiness`.
READINESS: Final = "readiness"

# What a worker asks its parent, and is answered:
# what all of them say to one of METRICS, READINESS and WORKERS, by its name; `Gathered`.
GATHER: Final = "gather"
# How they stand: the parent knows, and asks nobody. Only with GATHER.
WORKERS: Final = "workers"

# News of a parent, with nothing that is said with it and without an answer: to end when its calls have ended, and to end at once.
DRAIN: Final = "drain"
END: Final = "end"

# News of a worker, without an answer: that it serves (`StartedWorker`), and that it cannot start (`WorkerRefusal`), which is its last word;
READY: Final = "ready"
REFUSAL: Final = "refusal"
# and that its event loop goes round (nothing is said with it), so often.
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


def said_once(said: Mapping[int, Sequence[SaidLine]], log: Logger) -> None:
    """What came of reading the settings again, in the one log: what all workers say of it is said once. Where only some say it,
    by which."""
    found: dict[bytes, tuple[SaidLine, list[int]]] = {}
    for number, lines in said.items():
        for line in lines:
            found.setdefault(msgspec.json.encode(line, order="sorted"), (line, []))[1].append(number)
    for line, numbers in found.values():
        fields = line.fields if len(numbers) == len(said) else {**line.fields, "workers": numbers}
        {"debug": log.debug, "info": log.info, "warning": log.warning}.get(line.level, log.error)(
            line.event, **fields
        )
