"""Python files that are MCP servers by themselves: what tells them, how each is started, and what is said where that is not known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from server.cli.terminal import Misuse
from server.cli.this_program import python_servers
from server.cli.this_program.python_servers import command_of, read_server

FASTMCP = "from fastmcp import FastMCP\nmcp = FastMCP('x')\n"
SDK = "from mcp.server.fastmcp import FastMCP\nmcp = FastMCP('x')\n"
STARTS = "if __name__ == '__main__':\n    mcp.run({0})\n"
INLINE = "# /// script\n# dependencies = ['fastmcp']\n# ///\n"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Return how a folder on a machine is made: which of its Pythons have the library, and whether there is uv."""
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    project, tools = tmp_path / "project", tmp_path / "bin"
    (project / "src").mkdir(parents=True)
    tools.mkdir()
    (project / "pyproject.toml").write_text("", "utf-8")
    monkeypatch.setenv("PATH", str(tools))

    def program(path: Path, status: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\nexit {status}\n", "utf-8")
        path.chmod(0o755)

    def make(
        text: str, *, having: tuple[str, ...] = (), lacking: tuple[str, ...] = (), uv: bool = False
    ) -> Path:
        for status, names in ((0, having), (1, lacking)):
            for name in names:
                program(tools / name if "/" not in name else tmp_path / name, status)
        if uv:
            program(tools / "uv", 0)
        file = project / "src" / "server.py"
        file.write_text(text, "utf-8")
        return file

    return make


def started(file: Path) -> list[str]:
    written = read_server(file)
    assert written is not None
    root = file.parents[2]
    return [each.replace(f"{root}/", "") for each in command_of(written)]


@pytest.mark.parametrize(
    ("text", "library"),
    [
        (FASTMCP, "fastmcp"),
        ("import fastmcp\n", "fastmcp"),
        ("from fastmcp.server import FastMCP\n", "fastmcp"),
        (SDK, "mcp"),
        ("from mcp.server import MCPServer\n", "mcp"),
        ("from mcp import stdio_server\n", "mcp"),
        ("def make():\n    from fastmcp import FastMCP\n", "fastmcp"),
        ("from fastmcp import Client\n", None),
        ("from fastmcp.client import Client\n", None),
        ("from mcp import ClientSession\n", None),
        ("from .fastmcp import FastMCP\n", None),
        ("import os\n# from fastmcp import FastMCP\n", None),
        (FASTMCP + "from ostiary import tool\n", None),
        ("from fastmcp import (\n", None),
        ("", None),
    ],
)
def test_a_file_is_known_by_what_it_imports(tmp_path: Path, text: str, library: str | None) -> None:
    (tmp_path / "server.py").write_text(text, "utf-8")
    found = read_server(tmp_path / "server.py")
    assert (None if found is None else found.library) == library


RUN = ["-m", "fastmcp.cli", "run", "project/src/server.py", "--transport", "stdio", "--no-banner"]


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        (FASTMCP + STARTS.format(""), ["project/src/server.py"]),
        (FASTMCP + STARTS.format("'stdio'"), ["project/src/server.py"]),
        (FASTMCP + "mcp.run()\n", ["project/src/server.py"]),
        (
            FASTMCP + "import asyncio\nif __name__ == '__main__':\n    asyncio.run(mcp.run_async())\n",
            ["project/src/server.py"],
        ),
        (SDK + STARTS.format("transport='stdio'"), ["project/src/server.py"]),
        (FASTMCP + STARTS.format("transport='http', port=9000"), RUN),
        (FASTMCP + "app = mcp.http_app()\n", RUN),
        (FASTMCP, RUN),
    ],
)
def test_it_is_started_so_that_it_serves_over_its_pipes(
    machine: Callable[..., Path], text: str, arguments: list[str]
) -> None:
    file = machine(text, having=("python3",))
    assert started(file) == ["bin/python3", *arguments]


@pytest.mark.parametrize(
    ("having", "lacking", "uv", "python"),
    [
        (("python3", "project/.venv/bin/python"), (), True, ["project/.venv/bin/python"]),
        (
            ("python3", "project/src/venv/bin/python", "project/.venv/bin/python"),
            (),
            False,
            ["project/src/venv/bin/python"],
        ),
        (("python3",), ("project/.venv/bin/python",), False, ["bin/python3"]),
        (("python",), ("python3",), False, ["bin/python"]),
        (("elsewhere/.venv/bin/python", ".venv/bin/python", "python3"), (), False, ["bin/python3"]),
    ],
)
def test_the_interpreter_is_the_first_that_has_the_library(
    machine: Callable[..., Path],
    having: tuple[str, ...],
    lacking: tuple[str, ...],
    uv: bool,
    python: list[str],
) -> None:
    file = machine(FASTMCP + STARTS.format(""), having=having, lacking=lacking, uv=uv)
    assert started(file) == [*python, "project/src/server.py"]


def test_a_locked_project_is_run_by_uv(machine: Callable[..., Path]) -> None:
    file = machine(FASTMCP + STARTS.format(""), lacking=("python3",), uv=True)
    (file.parents[1] / "uv.lock").touch()
    assert started(file) == ["uv", "run", "--project", "project", "python", "project/src/server.py"]


def test_the_environment_that_is_active_comes_before_the_machines_python(
    machine: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = machine(FASTMCP + STARTS.format(""), having=("active/bin/python", "python3"))
    monkeypatch.setenv("VIRTUAL_ENV", str(file.parents[2] / "active"))
    assert started(file)[0] == "active/bin/python"


def test_a_script_with_its_dependencies_in_it_is_run_by_uv(machine: Callable[..., Path]) -> None:
    file = machine(INLINE + FASTMCP + STARTS.format(""), having=("python3",), uv=True)
    assert started(file) == ["uv", "run", "--script", "project/src/server.py"]


@pytest.mark.parametrize(
    ("text", "uv", "told", "hint"),
    [
        (
            SDK + STARTS.format("'sse'"),
            False,
            "serves over HTTP by itself",
            "ostiary serve --upstream http://127.0.0.1:8000/mcp",
        ),
        (SDK, False, "is not started", "a call of its run()"),
        (
            FASTMCP + STARTS.format(""),
            False,
            "no Python was found that has fastmcp",
            "serve -- /path/to/python ",
        ),
        (
            FASTMCP + STARTS.format(""),
            True,
            "no Python was found that has fastmcp",
            "serve -- uv run --with fastmcp python ",
        ),
        (
            FASTMCP,
            True,
            "no Python was found that has fastmcp",
            "serve -- uv run --with fastmcp fastmcp run ",
        ),
        (INLINE + FASTMCP + STARTS.format(""), False, "which uv installs", "serve -- /path/to/python "),
    ],
)
def test_where_it_is_not_known_how_the_line_to_type_is_said(
    machine: Callable[..., Path], text: str, uv: bool, told: str, hint: str
) -> None:
    written = read_server(machine(text, lacking=("python3",), uv=uv))
    assert written is not None
    with pytest.raises(Misuse) as caught:
        command_of(written)
    assert told in str(caught.value) and hint in (caught.value.hint or "")


def test_a_python_that_does_not_answer_has_no_library(machine: Callable[..., Path]) -> None:
    file = machine(FASTMCP, having=("python3",))
    assert not python_servers._has(str(file.parents[2] / "bin" / "nothing"), "fastmcp")
