"""The voice of the command line: results on stdout, talk on stderr, lower case without a full stop, next steps as `hint:`.

Exit codes: 0 done, 1 failed, 2 misused, 78 failed and will again until somebody mends it, 130 stopped by Ctrl-C. Nothing heavy is imported here, because `--help` passes
through. This file knows only the manner. Whatever came from a server goes through
`clean` before a terminal sees it, or is JSON with escapes (lib/log/visible_text.py).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from shlex import quote
from shutil import get_terminal_size
from typing import Any, Final, TextIO, TypeVar, cast

import click

from server import __version__
from server.lib.log.terminal_columns import STYLING, cells, cut
from server.lib.log.visible_text import clean, escaped

T = TypeVar("T")

NAME: Final = "ostiary"
EXIT_FAILED: Final = 1
EXIT_MISUSED: Final = 2
EXIT_NEVER: Final = 78  # sysexits.h: EX_CONFIG
EXIT_INTERRUPTED: Final = 130
EXIT_TERMINATED: Final = 143
EXIT_BROKEN_PIPE: Final = 141

json_option: Final = click.option("--json", "as_json", is_flag=True, help="print the result as JSON")
yes_option: Final = click.option("--yes", "-y", is_flag=True, help="do not ask back")


def _version(ctx: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        out(f"ostiary {__version__}")
        ctx.exit()


version_option: Final = click.option(
    "-V",
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_version,
    help="name this version",
)


class CliError(Exception):
    """A command failed, and this is what to say: one sentence, and perhaps what to do next."""

    def __init__(self, message: str, *, hint: str | None = None, exit_code: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.hint = hint
        self.exit_code = exit_code


def exit_code_of(error: object) -> int:
    """Return the exit code that says whether trying again may help, as far as what went wrong says so."""
    return EXIT_NEVER if getattr(error, "lasting", False) else EXIT_FAILED


class Misuse(CliError):
    """The command was called in a way that cannot work (exit 2)."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint, exit_code=EXIT_MISUSED)


class Interrupted(Exception):
    """A signal asked us to stop, and we did."""

    def __init__(self, exit_code: int) -> None:
        super().__init__()
        self.exit_code = exit_code


# ---- saying ----------------------------------------------------------------------------------------------------------


def out(text: str = "") -> None:
    """Write a line of the result."""
    _write(sys.stdout, text)


def out_json(value: object) -> None:
    import json

    utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    out(escaped(json.dumps(value, indent=2, ensure_ascii=not utf8), keep="\n"))


def shows(
    show: Callable[[Any], object], *, nothing: str = "", hint: str = ""
) -> Callable[[Callable[..., object]], Callable[..., None]]:
    """Have a command show what it returns: as JSON with --json, else by `show`, or by saying that there is `nothing`."""

    def decorate(answer: Callable[..., object]) -> Callable[..., None]:
        @wraps(answer)
        def command(*, as_json: bool, **options: Any) -> None:
            reply = answer(**options)
            if as_json:
                out_json(reply)
            elif reply or not nothing:
                show(reply)
            else:
                say(nothing)
                if hint:
                    say_hint(hint)

        return json_option(command)

    return decorate


def say(text: str = "") -> None:
    """Write a line of talk."""
    _write(sys.stderr, text)
    sys.stderr.flush()


def _write(stream: TextIO, text: str) -> None:
    """Write a line with its end at once: where nothing is buffered, a line of the log could come between the two."""
    stream.write(f"{_for(stream, text)}\n")


def _for(stream: TextIO, text: str) -> str:
    """Clean text as the last net, not the rule: of all that steers a terminal, only our own styles reach one."""
    if text.isprintable() or not is_terminal(stream):
        return text
    parts = re.split(f"({STYLING.pattern})", text)  # every second one is a style
    return "".join(part if at % 2 else clean(part, keep_lines=True) for at, part in enumerate(parts))


def error(message: str, *, hint: str | None = None) -> None:
    first, *rest = wrapped(f"error: {clean(message)}", sys.stderr)
    say(paint("error:", "red", sys.stderr) + first.removeprefix("error:"))
    for line in rest:
        say(line)
    if hint:
        say_hint(hint)


def say_hint(text: str) -> None:
    say(f"{paint('hint:', 'cyan', sys.stderr)} {clean(as_started(text))}")


def tell(text: str) -> None:
    """Say a sentence of talk, broken between words. Commands and links are for `say`: they are there to be copied whole."""
    for line in wrapped(text, sys.stderr):
        say(line)


def agreed(question: str, *, yes: bool, hint: str = "--yes goes ahead") -> bool:
    """Ask whether to go on. Raise `Misuse` where the question comes to an end of input instead of a person."""
    if yes:
        return True
    try:
        return confirmed(question)
    except click.Abort:
        if is_terminal(sys.stdin):
            raise
        say()
        raise Misuse("nobody is here to be asked", hint=hint) from None


def agree_or_end(question: str, *, yes: bool, otherwise: str, hint: str = "") -> None:
    """Go on if somebody agrees; say what was not done and end the command, as one that failed, if not."""
    if not agreed(question, yes=yes):
        say(otherwise)
        if hint:
            say_hint(hint)
        raise click.exceptions.Exit(EXIT_FAILED)


def confirmed(question: str) -> bool:
    """Ask for yes or no; nothing is no. Raise `click.Abort`."""
    while True:
        typed = click.prompt(f"{question} [y/N]", default="", show_default=False, err=True).strip().lower()
        if typed in ("", "n", "no", "y", "yes"):
            return typed.startswith("y")
        say("y or n?")


def as_started(text: str) -> str:
    """Return `text` with our commands as they have to be typed: spelled as this program was started (a checkout runs it from `scripts/`), and
    told which server is meant where this one was."""
    if "ostiary " not in text:
        return text
    from server.cli.hints import for_the_same, meant_here

    text = for_the_same(text, meant_here())
    started = program()
    return text if started == NAME else _COMMAND.sub(f"{started} ".replace("\\", r"\\"), text)


def program() -> str:
    """Return what was typed to start this program: its name, where that is found by it, else the way to it."""
    named = os.environ.get("OSTIARY_PROGRAM")
    way = named or sys.argv[0]
    if os.path.basename(way) != NAME or os.sep not in way:
        return named or NAME
    from shutil import which

    found = which(NAME)
    try:
        return NAME if found is not None and os.path.samefile(found, way) else named or quote(way)
    except OSError:
        return named or NAME


def program_anywhere() -> str:
    """Return the same for another terminal, which may stand in another directory."""
    typed = program()
    if os.sep not in typed or quote(typed) != typed:
        return typed
    path = os.path.abspath(typed)
    return from_home(path) if quote(path) == path else quote(path)


def from_home(path: str) -> str:
    """Write an absolute path as people do."""
    home = os.path.expanduser("~").rstrip(os.sep)
    return f"~{path[len(home) :]}" if path.startswith(home + os.sep) else path


# ---- looking ---------------------------------------------------------------------------------------------------------

_COMMAND: Final = re.compile(r"(?<![\w./-])ostiary (?=[a-z]|--)")
_SGR: Final[Mapping[str, str]] = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "cyan": "36",
}


def is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except (ValueError, AttributeError):  # closed, by us or by whoever started us
        return False


def paint(text: str, style: str, stream: TextIO) -> str:
    """Return `text` in a style, where the stream is a terminal and nobody asked for plain text (no-color.org)."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not is_terminal(stream):
        return text
    return f"\x1b[{_SGR[style]}m{text}\x1b[0m"


def on_black(text: str, stream: TextIO) -> str:
    """Return `text` white on black, whatever the terminal's own colours are; without colours as it is."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not is_terminal(stream)
    return text if plain else f"\x1b[97;40m{text}\x1b[0m"


def can_draw(stream: TextIO) -> bool:
    """Return whether boxes, ticks and block characters can be used on this stream."""
    return (stream.encoding or "").lower().replace("-", "").startswith("utf")


def width(stream: TextIO, *, otherwise: int = 10_000) -> int:
    """Return how many columns there are to fill; a pipe is never cut."""
    if not is_terminal(stream):
        return otherwise
    try:  # of this very stream: stdout may be a pipe while stderr is not
        columns = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        columns = 0
    return max(columns or get_terminal_size((80, 24)).columns, 20)


def wrapped(text: str, stream: TextIO, *, left: int = 0) -> list[str]:
    """Break `text` into lines that fit a terminal beside `left` columns; for a pipe in one."""
    from textwrap import wrap

    room = max(width(stream) - left, 20)
    return wrap(text, room, break_long_words=False, break_on_hyphens=False) or [""]


def columns(rows: Sequence[Sequence[str]], *, gap: str = "  ") -> list[str]:
    """Draw rows as lines with aligned columns; the last column is not padded."""
    if not rows:
        return []
    widths = [max(cells(row[index]) for row in rows) for index in range(len(rows[0]))]
    return [
        gap.join(
            cell if index == len(row) - 1 else cell + " " * (widths[index] - cells(cell))
            for index, cell in enumerate(row)
        ).rstrip()
        for row in rows
    ]


def table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], *, as_wide_as_it_is: bool = False
) -> list[str]:
    """Draw rows below what their columns hold; in a terminal that is too narrow for it each row by itself. One thing has one heading in all
    tables: `server`, `program`, `from` (an address), `when` (a time), `since`, `ends in`, `why`."""
    listed = list(rows)
    lines = columns([[paint(heading, "dim", sys.stdout) for heading in headings], *listed])
    room = width(sys.stdout)
    if as_wide_as_it_is or max(map(cells, lines)) <= room:
        return lines
    return [line for row in listed for line in _by_itself(headings, row, room)]


def show_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    for line in table(headings, rows):
        out(line)


def _by_itself(headings: Sequence[str], row: Sequence[str], room: int) -> list[str]:
    """Draw what a row begins with, and below it what the other columns hold, each named, as many on a line as fit."""
    first, *further = row
    between = " · " if can_draw(sys.stdout) else "; "
    lines = [cut(f"{paint(headings[0], 'dim', sys.stdout)} {first}", room)]
    line = ""
    for heading, cell in zip(headings[1:], further, strict=True):
        if not cell or cell == "-":
            continue
        told = f"{paint(heading, 'dim', sys.stdout)} {cell}"
        if line and cells(line) + cells(between) + cells(told) > room:
            lines.append(cut(line, room))
            line = ""
        line = f"{line}{between}{told}" if line else f"  {told}"
    return [*lines, cut(line, room)] if line else lines


def facts(pairs: Iterable[tuple[str, str]]) -> None:
    """Write a short record, one fact a line."""
    for line in record(pairs, sys.stdout):
        out(line)


def record(pairs: Iterable[tuple[str, str]], stream: TextIO) -> list[str]:
    """Draw names and what they stand for, below each other; on a terminal broken between words, in the values' column."""
    named = list(pairs)
    left = max((cells(name) for name, _ in named), default=0) + 2
    rows: list[tuple[str, str]] = []
    for name, value in named:
        first, *rest = wrapped(value, stream, left=left)
        rows += [(paint(name, "dim", stream), first), *(("", line) for line in rest)]
    return columns(rows)


def either(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


def duration(seconds: float) -> str:
    """Write a rough duration for people: the largest unit that says enough."""
    whole = max(0, int(seconds))
    for unit, size in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if whole >= size * 2 or (whole >= size and unit != "minute"):
            count = whole // size
            return f"{count} {unit}{'' if count == 1 else 's'}"
    return f"{whole} second{'' if whole == 1 else 's'}"


def size(count: int) -> str:
    """Write bytes for people."""
    for unit, bytes_each in (("GiB", 1024**3), ("MiB", 1024**2)):
        if count >= bytes_each:
            return f"{count / bytes_each:.1f} {unit}"
    return f"{count // 1024} KiB"


class StatusLine:
    """One line on stderr that is drawn over and over, on a terminal only; nothing of it stays."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._live = is_terminal(self._stream) and os.environ.get("TERM") != "dumb"
        self._shown = False
        self._passing = False  # what is shown may be drawn over
        self._held = 0

    @property
    def live(self) -> bool:
        return self._live

    @property
    def free(self) -> bool:
        """The freedom of the line: no progress stands there, and nobody is asked anything."""
        return not self._held and (self._passing or not self._shown)

    @contextmanager
    def held(self) -> Generator[None]:
        """Leave the terminal to somebody else: nothing is drawn meanwhile."""
        self.clear()
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1

    def show(self, text: str, *, passing: bool = False) -> None:
        if self._live and not self._held:
            self._passing = passing
            self._stream.write(
                f"\r\x1b[K{paint(cut(clean(text), width(self._stream) - 1), 'dim', self._stream)}"
            )
            self._stream.flush()
            self._shown = True

    def clear(self) -> None:
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._shown = False


# ---- running ---------------------------------------------------------------------------------------------------------


def run_async(main: Callable[[], Awaitable[T]]) -> T:
    """Run `main` under trio. Ctrl-C and SIGTERM cancel it, so that what it shields is finished and what it holds is let
    go; then `Interrupted` is raised. A single error comes out bare, not in a group."""
    import signal

    import trio

    async def watched() -> T:
        stopped_by: list[int] = []
        result: list[T] = []

        async def watch(*, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
            with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                task_status.started()
                async for number in signals:
                    stopped_by.append(number)
                    nursery.cancel_scope.cancel()
                    return

        async with trio.open_nursery() as nursery:
            await nursery.start(watch)
            result.append(await main())
            nursery.cancel_scope.cancel()
        if not result:
            raise Interrupted(EXIT_TERMINATED if stopped_by == [signal.SIGTERM] else EXIT_INTERRUPTED)
        return result[0]

    try:
        return trio.run(watched)
    except BaseExceptionGroup as group:
        raise _bare(group) from None


def _bare(error: BaseException) -> BaseException:
    if not isinstance(error, BaseExceptionGroup):
        return error
    group = cast("BaseExceptionGroup[BaseException]", error)
    return _bare(group.exceptions[0]) if len(group.exceptions) == 1 else group
