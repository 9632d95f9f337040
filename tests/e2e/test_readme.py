"""The README's walk-through, followed to the letter: the commands of each block, in a terminal of its own."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from programs import ROOT, SOURCE, USER_CODE, WAIT_SECONDS, Program

pytestmark = pytest.mark.slow


def blocks() -> dict[str, list[str]]:
    """Name of a marked block → its command lines, without what is said beside them."""
    readme = (ROOT / "README.md").read_text("utf-8")
    found = re.findall(r"<!-- walk-through: (\w+) -->\n```sh\n(.*?)```", readme, re.DOTALL)
    return {name: [re.sub(r"\s+#.*", "", line) for line in text.splitlines() if line] for name, text in found}


def typed(line: str, program: Program, answer: str = "") -> str:
    """One line as a person types it in the checkout; what it puts on stdout."""
    done = subprocess.run(
        ("bash", "-c", line),
        cwd=ROOT,
        env=program.environment(),
        input=answer,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_walk_through_ends_with_a_tools_answer(home: Path) -> None:
    terminals = blocks()
    assert list(terminals) == ["server", "client", "approve", "call"]
    program = Program(command=SOURCE, home=home)
    (serve,), (login,) = terminals["server"], terminals["client"]
    with program.starting(command=("bash", "-c", f"exec {serve}"), folder=ROOT) as server:
        server.await_words(r"Listening on http://127\.0\.0\.1:8420\b")
        with program.starting(command=("bash", "-c", f"exec {login}"), folder=ROOT) as waiting:
            code = waiting.await_words(USER_CODE)[0]
            for line in terminals["approve"]:
                typed(line.replace("CODE", code), program, answer="y\n")
            assert waiting.wait() == 0, waiting.said()
        *_, last = [typed(line, program) for line in terminals["call"]]
        assert last == "hello\n"
        assert server.end() == 0
