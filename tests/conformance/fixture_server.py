"""The server that official peers are let loose on: Ostiary with the fixtures as its only agent, and no authorization.

Nothing of it is special: a settings file as anybody writes it, in a home of its own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.programs import SOURCE, Program, Server

FIXTURES = Path(__file__).parent / "fixtures.py"


def write_settings(folder: Path, agent_file: Path = FIXTURES) -> Path:
    """Settings of a server with one Python file as its agent. JSON strings are TOML strings."""
    settings = folder / "ostiary.toml"
    settings.write_text(
        "\n".join(
            (
                'auth = "none"',
                'host = "127.0.0.1"',
                "",
                "[[server]]",
                'name = "main"',
                'title = "Conformance fixtures"',
                "",
                "[[server.agent]]",
                'kind = "python"',
                f"file = {json.dumps(str(agent_file))}",
                f"python = {json.dumps(sys.executable)}",
                "",
            )
        ),
        "utf-8",
    )
    return settings


@contextmanager
def serving(home: Path, command: Sequence[str] = SOURCE, agent_file: Path = FIXTURES) -> Generator[Server]:
    """The server on a free port of this machine until the block ends; its log is in `home`."""
    program = Program(command=command, home=home)
    with program.serving("--config", str(write_settings(home, agent_file))) as server:
        yield server
