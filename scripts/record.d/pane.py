"""A terminal that nobody looks at: a shell in tmux, what is typed there, and the screen as lines of styled text."""

from __future__ import annotations

import re
import shlex
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

WAIT_SECONDS = 60.0
LOOK_SECONDS = 0.02
PROMPT = "$ "

SGR = re.compile(r"\x1b\[([\d;]*)m")
COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")


class Style(NamedTuple):
    """How a stretch of text looks; no colour is that of the terminal."""

    colour: str = ""
    bold: bool = False
    dim: bool = False

    def after(self, numbers: str) -> Style:
        """With the numbers of one escape sequence (ECMA-48 §8.3.117) taken in; backgrounds and the rest change nothing here."""
        style = self
        for number in (int(each or 0) for each in numbers.split(";")):
            if number == 0:
                style = Style()
            elif number in (1, 2):
                style = style._replace(bold=style.bold or number == 1, dim=style.dim or number == 2)
            elif number == 22:
                style = style._replace(bold=False, dim=False)
            elif 30 <= number <= 37 or 90 <= number <= 97:
                style = style._replace(colour=COLOURS[number % 10])
            elif number == 39:
                style = style._replace(colour="")
        return style


class Stretch(NamedTuple):
    """Text of one style, and the column where it begins."""

    column: int
    text: str
    style: Style


Row = tuple[Stretch, ...]


class Shown(NamedTuple):
    """What a terminal shows, with the column and row of its cursor."""

    rows: tuple[Row, ...]
    cursor: tuple[int, int]

    def words(self) -> str:
        lines: list[str] = []
        for row in self.rows:
            line = ""
            for stretch in row:
                line = line.ljust(stretch.column) + stretch.text
            lines.append(line.rstrip())
        return "\n".join(lines).rstrip()


def rows_of(captured: str) -> tuple[Row, ...]:
    """The lines of `tmux capture-pane -e`. A style goes on over the end of a line."""
    style, rows = Style(), list[Row]()
    for line in captured.split("\n"):
        row, column = list[Stretch](), 0
        pieces = SGR.split(line)
        for place, piece in enumerate(pieces):
            if place % 2:
                style = style.after(piece)
            elif piece:
                text = piece.rstrip() if place == len(pieces) - 1 else piece
                lead = len(text) - len(text.lstrip())
                if text.strip():
                    row.append(Stretch(column + lead, text[lead:], style))
                column += len(piece)
        rows.append(tuple(row))
    while rows and not rows[-1]:
        rows.pop()
    return tuple(rows)


class Panes:
    """A tmux of its own, with its socket in `folder`, until `close`."""

    def __init__(self, folder: Path) -> None:
        self._tmux = ("tmux", "-S", str(folder / "tmux"), "-f", "/dev/null")

    def tmux(self, *words: str) -> str:
        ran = subprocess.run((*self._tmux, *words), capture_output=True, check=True, text=True)
        return ran.stdout

    def open(
        self, name: str, size: tuple[int, int], folder: Path, environment: Mapping[str, str], tidy: Tidy
    ) -> Pane:
        words = ("env", "-i", *(f"{key}={value}" for key, value in environment.items()), f"PS1={PROMPT}")
        shell = shlex.join((*words, "bash", "--norc", "--noprofile"))
        columns, lines = size
        self.tmux(
            *("new-session", "-d", "-s", name, "-x", str(columns), "-y", str(lines), "-c", str(folder), shell)
        )
        pane = Pane(self, name, tidy)
        pane.await_words(r"^\$")
        return pane

    def close(self) -> None:
        subprocess.run((*self._tmux, "kill-server"), capture_output=True, check=False)


# What a screen says in place of what this machine, this hour or chance put there.
Tidy = Callable[[str], str]


class Pane:
    def __init__(self, panes: Panes, name: str, tidy: Tidy) -> None:
        self._panes = panes
        self._name = name
        self._tidy = tidy

    def screen(self) -> Shown:
        cursor = self._panes.tmux("display-message", "-p", "-t", self._name, "#{cursor_x} #{cursor_y}")
        column, line = (int(each) for each in cursor.split())
        captured = self._panes.tmux("capture-pane", "-e", "-p", "-t", self._name)
        return Shown(rows_of(self._tidy(captured)), (column, line))

    def raw(self) -> str:
        """As it is, for whoever has to go on with what it says."""
        return self._panes.tmux("capture-pane", "-p", "-J", "-t", self._name)

    def await_words(self, pattern: str) -> re.Match[str]:
        until = time.monotonic() + WAIT_SECONDS
        while (found := re.search(pattern, self.raw(), re.MULTILINE)) is None:
            if time.monotonic() > until:
                raise SystemExit(f"error: {pattern} did not appear; the terminal shows:\n{self.raw()}")
            time.sleep(LOOK_SECONDS)
        return found

    def press(self, character: str) -> None:
        """One key; back once the screen shows it."""
        before = self.screen()
        self._panes.tmux("send-keys", "-t", self._name, "-l", character)
        until = time.monotonic() + WAIT_SECONDS
        while self.screen() == before:
            if time.monotonic() > until:
                raise SystemExit(f"error: {character!r} is not shown; the terminal shows:\n{self.raw()}")
            time.sleep(LOOK_SECONDS)

    def enter(self) -> None:
        self._panes.tmux("send-keys", "-t", self._name, "Enter")

    def interrupt(self) -> None:
        self._panes.tmux("send-keys", "-t", self._name, "C-c")
