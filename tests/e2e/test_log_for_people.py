"""The log as whoever stands at the terminal reads it: who was let in, which call failed, for whom and why."""

from __future__ import annotations

import re

import pytest
from programs import Program

pytestmark = pytest.mark.slow

BROKEN = """import ostiary


@ostiary.tool
def look(where: str) -> str:
    "Looks somewhere."
    raise ostiary.ToolFailure(f"there is nothing at {where}")
"""
TIME = r"^\d\d:\d\d:\d\d  "


@pytest.fixture
def program(program: Program) -> Program:
    (program.home / "look.py").write_text(BROKEN, "utf-8")
    (program.home / "o.toml").write_text(
        '[[server]]\nname = "main"\n[[server.agent]]\nkind = "demo"\n[[server.agent]]\nkind = "python"\nfile = "look.py"\n',
        "utf-8",
    )
    program.alone = True
    return program


def test_the_log_names_people_and_programs_and_says_why_without_an_id(program: Program) -> None:
    settings = ("--config", str(program.home / "o.toml"), "--log-format", "console", "--log-level", "info")
    with program.serving(*settings) as server:
        program.log_in(server)
        program.run("call", server.endpoint, "echo", "text=hello")
        program.run("call", server.endpoint, "look", "where=home", code=1)
        server.await_words("there is nothing at home")
        server.await_words(r"is logged in")
        said = server.said()
    for expected in (
        r"  serving http://127\.0\.0\.1:\d+$",
        # Neither a terminal nor a claim: what is left to do.
        r"! nobody has claimed this server yet; on this machine, `ostiary claim --data-dir \S+` shows the link that makes it yours$",
        r"● ostiary \S+ on \S+ asks to be let in, from 127\.0\.0\.1$",
        r"● \S+ \(at the machine\) let in ostiary \S+ on \S+, which asked from 127\.0\.0\.1$",
        r"● ostiary \S+ on \S+ is logged in$",
        r"✓ echo +\d+(\.\d)? ms  owner · Ostiary in a terminal$",
        r"✗ look +\d+(\.\d)? ms  owner · Ostiary in a terminal +there is nothing at home$",
    ):
        assert re.search(TIME + expected, said, re.MULTILINE), (expected, said)
    assert not re.search(r"usr_|gr_|dev_|GET |POST ", said), said


def test_a_mistake_in_an_agents_file_is_told_once_and_in_one_line(program: Program) -> None:
    (program.home / "look.py").write_text("import ostiary\n\n\ndef look(\n", "utf-8")
    for style in ("console", "json"):
        done = program.run(
            "serve", "--port", "0", "--config", str(program.home / "o.toml"), "--data-dir", str(program.data_dir),
            "--log-format", style, code=1,
        )  # fmt: skip
        assert done.stderr.count("was never closed") == 1
        assert "look.py:4: SyntaxError: '(' was never closed" in done.stderr
        assert "Traceback" not in done.stderr


def test_verbose_shows_ids(program: Program) -> None:
    with program.serving("--auth", "none", "--log-format", "console", "--log-level", "info", "-v") as server:
        program.run("call", server.endpoint, "echo", "text=hello")
        server.await_words(r"✓ echo .*  anonymous  \(tool.called\) principal=anonymous request=\S+\n")
