"""The README's walk-through, followed to the letter: each marked block in a terminal of its own, as a newcomer types it.

Only the port is another, because 8420 may be taken, and what the README shows must be what the terminal shows.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import termios
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from programs import ROOT, USER_CODE, WAIT_SECONDS, Program, until

pytestmark = pytest.mark.slow

PORT = "8420"
# The first command of all may have to make the runtime environment.
FIRST_SECONDS = 300.0

BLOCK = re.compile(
    r"<!-- walk-through: (\w+) -->\n```sh\n(?P<typed>.*?)```\n(?:<!-- shown -->\n```text\n(?P<shown>.*?)```)?",
    re.DOTALL,
)


@dataclass(kw_only=True)
class Block:
    """What the README says to type, and what it says will be seen."""

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
def terminal(line: str, program: Program, port: int) -> Generator[Terminal]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 140, 0, 0))
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


def blocks(port: int) -> dict[str, Block]:
    text = (ROOT / "README.md").read_text("utf-8").replace(PORT, str(port))
    return {
        found[1]: Block(lines=found["typed"].splitlines(), shown=(found["shown"] or "").splitlines())
        for found in BLOCK.finditer(text)
    }


def check_shown(block: Block, seen: str) -> None:
    """Every line that the README shows was seen, in this order. A code stands for any code, … for anything."""
    place = 0
    for line in filter(None, block.shown):
        pattern = re.escape(USER_CODE.sub("CODE", line)).replace("CODE", USER_CODE.pattern).replace("…", ".+")
        found = re.compile(pattern + r"\s*$", re.MULTILINE).search(seen, place)
        assert found, f"the README shows the line\n{line}\nbut the terminal shows:\n{seen}"
        place = found.end()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_the_walk_through_ends_with_a_tools_answer(home: Path) -> None:
    port = free_port()
    steps = blocks(port)
    assert list(steps) == ["server", "login", "approve", "call"]
    program = Program(command=(), home=home)
    (serve,), (login,), (approve,) = (steps[name].lines for name in ("server", "login", "approve"))
    with terminal(serve, program, port) as server:
        server.await_words(rf"call http://127\.0\.0\.1:{port}/mcp echo", FIRST_SECONDS)
        check_shown(steps["server"], server.seen())
        with terminal(login, program, port) as waiting:
            code = waiting.await_words(USER_CODE)[0]
            with terminal(approve.replace("CODE", code), program, port) as owner:
                owner.await_words(re.escape("let it in [y/N]:"))
                owner.type("y\n")
                owner.await_words("approved")
                assert owner.wait() == 0
            check_shown(steps["approve"], owner.seen())
            assert waiting.wait() == 0, waiting.seen()
        check_shown(steps["login"], waiting.seen())
        assert "logged in" in waiting.seen()
        seen = ""
        for line in steps["call"].lines:
            with terminal(line, program, port) as caller:
                assert caller.wait() == 0, caller.seen()
            seen += caller.seen()
        check_shown(steps["call"], seen)
        assert seen.endswith("\nhello\n")
        server.type("\x03")
        assert server.wait() == 0, server.seen()
