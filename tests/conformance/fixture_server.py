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
    """Settings of a server with one Python file as its agent."""
    return _write(folder, kind="python", file=str(agent_file), python=sys.executable)


def _write(folder: Path, **agent: str | list[str]) -> Path:
    """Texts and lists of texts are the same in JSON and TOML."""
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
                *(f"{name} = {json.dumps(value)}" for name, value in agent.items()),
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


@contextmanager
def passing_on(home: Path, url: str, era: str, command: Sequence[str] = SOURCE) -> Generator[Server]:
    """A server that has the one at `url` as its only agent, and speaks to it as `era` says."""
    program = Program(command=command, home=home)
    asks = ["elicitation", "sampling", "roots"]
    settings = _write(home, kind="mcp", url=url, era=era, trust="always", questions=asks)
    with program.serving("--config", str(settings)) as server:
        yield server
