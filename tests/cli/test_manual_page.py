from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from server import __version__
from server.cli import COMMANDS, SECTIONS, run
from server.cli.this_program.outline import CommandOutline, SectionOutline, program, sections
from server.cli.this_program.roff import manual


@pytest.fixture(scope="module")
def groups() -> tuple[SectionOutline, ...]:
    return sections()


@pytest.fixture(scope="module")
def page(groups: tuple[SectionOutline, ...]) -> str:
    return manual(groups, program(groups))


def as_read(line: str) -> str:
    """What stands there once the page is set."""
    for escaped, read in (
        (r"\&", ""), (r"\fB", ""), (r"\fI", ""), (r"\fR", ""), (r"\(aq", "'"), (r"\(ga", "`"), (r"\(dq", '"'), (r"\-", "-"), (r"\e", "\\"),
    ):  # fmt: skip
        line = line.replace(escaped, read)
    return line


def test_the_manual_has_every_command_and_every_option_with_what_help_says_of_it(
    groups: tuple[SectionOutline, ...], page: str
) -> None:
    lines = [as_read(line) for line in page.splitlines()]
    assert lines[0] == f'.TH OSTIARY 1 "" "ostiary {__version__}" "User Commands"'
    assert [group.title for group in groups] == list(SECTIONS)
    commands: list[CommandOutline] = [
        each for group in groups for top in group.commands for each in top.all()
    ]
    assert {each.words[0] for each in commands} == set(COMMANDS)
    for each in commands:
        begins = lines.index(f'.SS "ostiary {" ".join(each.words)}"')
        rest = lines[begins + 1 :]
        end = next((at for at, line in enumerate(rest) if line.startswith((".SS", ".SH"))), len(rest))
        told = rest[:end]
        for option in each.options:
            at = told.index(option.shown)
            assert told[at - 1] == ".TP"
            assert told[at + 1] == option.help


def test_no_line_of_text_is_taken_for_a_request(page: str) -> None:
    requests = {re.split(r"[ \"]", line)[0] for line in page.splitlines() if line.startswith((".", "'"))}
    assert requests <= {".TH", ".nh", ".ad", ".SH", ".SS", ".PP", ".TP", ".RS", ".RE", ".nf", ".fi", ".B"}


@pytest.mark.skipif(shutil.which("groff") is None, reason="nothing here sets manual pages")
def test_the_manual_is_set_without_a_warning(page: str) -> None:
    done = subprocess.run(
        ["groff", "-man", "-ww", "-k", "-Tutf8", "-rLL=100n"],
        input=page.encode(),
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert done.stderr.decode() == ""
    seen = re.sub(r"\x1b\[[\d;]*m|.\x08", "", done.stdout.decode())
    assert "ostiary - a door in front of an agent" in " ".join(seen.split())
    assert "--access-token-minutes" in seen


def test_into_a_pipe_the_source_is_printed(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["man"]) == 0
    assert capsys.readouterr() == (page, "")
