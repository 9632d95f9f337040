"""A walk through a document, followed to the letter: what its marked blocks say is typed, in pseudo-terminals, and what they show is seen there."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from programs import ROOT, USER_CODE, WAIT_SECONDS, Program, until

# The first command of all may have to make the runtime environment.
FIRST_SECONDS = 300.0

BLOCK = re.compile(
    r"<!-- walk-through: (\w+) -->\n(?:```sh\n(?P<typed>.*?)```\n)?(?:(?:<!-- shown -->\n)?```text\n(?P<shown>.*?)```)?",
    re.DOTALL,
)
# What a line shows before the program's name: a path to it, or what runs it (`uv run`).
STARTED = r"(?:[^\s;]+\ )*?(?:[^\s;]*/)?"


@dataclass(kw_only=True)
class Block:
    """What a document says to type, and what it says will be seen, in the terminal or on a page."""

    lines: list[str]
    shown: list[str]


@dataclass(kw_only=True)
class Terminal:
    """A pseudo-terminal with one command in it. A person sees stdout and stderr as one."""

    process: subprocess.Popen[bytes]
    master: int
    pieces: list[bytes] = field(default_factory=list[bytes])

    def read_on(self) -> None:
        with suppress(OSError):  # the command has ended, and with it the other side
            while piece := os.read(self.master, 4096):
                self.pieces.append(piece)

    def seen(self) -> str:
        return b"".join(self.pieces).decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")

    def await_words(self, pattern: str | re.Pattern[str], seconds: float = WAIT_SECONDS) -> re.Match[str]:
        def look() -> re.Match[str] | None:
            ended = self.process.poll() is not None
            found = re.search(pattern, self.seen())
            assert found or not ended, f"it ended with {self.process.returncode} and said:\n{self.seen()}"
            return found

        return until(f"{pattern!r} in a terminal that shows:\n{self.seen()}", look, seconds)

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def wait(self) -> int:
        return self.process.wait(WAIT_SECONDS)


@contextmanager
def terminal(line: str, program: Program, port: int, columns: int = 140) -> Generator[Terminal]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    process = subprocess.Popen(
        ("bash", "-c", line),
        cwd=ROOT,
        env=program.environment(OSTIARY_PORT=str(port), OSTIARY_DATA_DIR=str(program.data_dir)),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    screen = Terminal(process=process, master=master)
    reader = threading.Thread(target=screen.read_on)
    reader.start()
    try:
        yield screen
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)  # its own session, so only what it started
        try:
            process.wait(WAIT_SECONDS)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            reader.join(WAIT_SECONDS)
            os.close(master)


def blocks(document: str, ports: Mapping[str, int]) -> dict[str, Block]:
    """What is marked in the document, with other ports in place of those that it names."""
    text = (ROOT / document).read_text("utf-8")
    for written, port in ports.items():
        text = text.replace(written, str(port))
    return {
        found[1]: Block(lines=(found["typed"] or "").splitlines(), shown=(found["shown"] or "").splitlines())
        for found in BLOCK.finditer(text)
    }


def check_shown(block: Block, seen: str) -> None:
    """Every line that the document shows was seen, in this order. A code stands for any code, … for anything."""
    place = 0
    for line in filter(None, block.shown):
        found = re.compile(_pattern(line) + r"\s*$", re.MULTILINE).search(seen, place)
        assert found, f"the document shows the line\n{line}\nbut the terminal shows:\n{seen}"
        place = found.end()


def check_page(block: Block, page: str, code: str) -> None:
    """The same for a page, where lines are broken and set out otherwise, and the code is the one of the terminal."""
    words, place = " ".join(page.split()), 0
    for line in filter(None, block.shown):
        pattern = _pattern(" ".join(line.split())).replace(USER_CODE.pattern, re.escape(code))
        found = re.compile(pattern).search(words, place)
        assert found, f"the document shows the line\n{line}\nbut the page shows:\n{page}"
        place = found.end()


def _pattern(line: str) -> str:
    """… is something; before the program's name it is how the program is started, which may be nothing but its name."""
    words = re.escape(USER_CODE.sub("CODE", line)).replace("CODE", USER_CODE.pattern)
    return words.replace(r"…ostiary\ ", rf"{STARTED}ostiary\ ").replace("…", ".+?")
