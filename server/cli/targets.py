"""What `ostiary serve TARGET` serves without any settings: one server, with what TARGET is as its only agent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from server.cli import terminal

if TYPE_CHECKING:
    from server.settings.shapes import ServerConfig

TITLE: Final = 100


class Target(NamedTuple):
    server: ServerConfig
    line: str = ""  # for people and programs that look for it on stderr
    max_body_kib: int | None = None  # where more has to fit into a line than usual


def target_of(written: str) -> Target:
    """Raises `CliError`."""
    path = Path(written)
    if path.suffix.lower() == ".py":
        return _python(path)
    raise terminal.Misuse(f"{written} is nothing that can be served by itself", hint="a Python file")


def _python(path: Path) -> Target:
    from server.settings.reading import agent_shape
    from server.settings.shapes import ServerConfig

    if not path.expanduser().is_file():
        raise terminal.CliError(f"there is no file {path}")
    agent = agent_shape("python")(file=str(path.expanduser().absolute()))
    return Target(ServerConfig(name="main", title=path.stem[:TITLE], agents=(agent,)))
