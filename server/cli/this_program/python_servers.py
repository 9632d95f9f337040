"""Python files that are MCP servers by themselves, written with FastMCP or the Python SDK: known by their text, and started as they are.

Nothing of such a file runs in this process.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from shlex import join
from shutil import which
from typing import Final, Literal, NamedTuple

from server.agents.python.find_interpreter import ENVIRONMENTS
from server.cli import terminal

# As much of a file is looked at, and so many folders above it.
LOOKED_AT: Final = 1024 * 1024
FOLDERS: Final = 8
PROJECT: Final = ("pyproject.toml", "uv.lock", ".git")
# An interpreter that does not say by then whether it has a library has none.
LOOK_SECONDS: Final = 20.0
HAS_LIBRARY: Final = "import importlib.util as u, sys; sys.exit(u.find_spec(sys.argv[1]) is None)"

# Dependencies that stand in the file itself, which uv installs (PEP 723).
_INLINE: Final = re.compile(r"^# /// script\s*$", re.MULTILINE)
# What such a library has for programs that are no servers.
_CLIENT: Final = frozenset({"Client", "ClientGroup", "client"})
_SERVER_OF_SDK: Final = frozenset({"server", "stdio_server", "ServerSession"})
_RUN: Final = frozenset({"run", "run_async"})
_HTTP: Final = frozenset(
    {
        "run_http_async", "run_sse_async", "run_streamable_http_async", "http_app", "sse_app", "streamable_http_app",
    }
)  # fmt: skip

Library = Literal["fastmcp", "mcp"]


class WrittenServer(NamedTuple):
    """A file that is a server. `starts`: as a program it serves; `over_http`: not over its pipes."""

    path: Path
    library: Library
    starts: bool
    over_http: bool
    inline: bool


def read_server(path: Path) -> WrittenServer | None:
    """Tell what a file is by its text; None for one that is no server of another library, or has something of ours."""
    try:
        with path.open("rb") as file:
            text = file.read(LOOKED_AT).decode("utf-8", "replace")
        tree = ast.parse(text)
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    nodes = list(ast.walk(tree))
    named = {library for node in nodes for library in _imported(node)}
    if not named or "ostiary" in named:
        return None
    calls = [node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    return WrittenServer(
        path=path,
        library="fastmcp" if "fastmcp" in named else "mcp",
        starts=any(_starts(statement) for statement in tree.body),
        over_http=any(_is_http(call) for call in calls),
        inline=_INLINE.search(text) is not None,
    )


def command_of(written: WrittenServer) -> tuple[str, ...]:
    """Return how it is started so that it serves over its pipes. Raise `Misuse` with the line to type where that is not known."""
    path, library = written.path, written.library
    as_written = written.starts and not written.over_http
    if library == "mcp" and not as_written:
        if written.over_http:
            hint = "start it, and then: ostiary serve --upstream http://127.0.0.1:8000/mcp"
            raise terminal.Misuse(f"{path} is an MCP server that serves over HTTP by itself", hint=hint)
        hint = 'end it with `if __name__ == "__main__":` and a call of its run()'
        raise terminal.Misuse(f"{path} is an MCP server that is not started", hint=hint)
    file = str(path.expanduser().absolute())
    arguments = (
        (file,) if as_written else ("-m", "fastmcp.cli", "run", file, "--transport", "stdio", "--no-banner")
    )
    if written.inline:
        if as_written and which("uv") is not None:
            return ("uv", "run", "--script", *arguments)
        raise _no_interpreter(written, "its dependencies stand in it, which uv installs", as_written)
    python = next(_interpreters(path, library), None)
    if python is None:
        raise _no_interpreter(written, f"no Python was found that has {library}", as_written)
    return (*python, *arguments)


def _no_interpreter(written: WrittenServer, why: str, as_written: bool) -> terminal.Misuse:
    run = ["python"] if as_written else ["fastmcp", "run"]
    if which("uv") is None:
        return terminal.Misuse(
            f"{written.path} is an MCP server, and {why}",
            hint=f"ostiary serve -- /path/to/{join([*run, str(written.path)])}",
        )
    line = ["uv", "run", *([] if written.inline and as_written else ["--with", written.library]), *run]
    return terminal.Misuse(
        f"{written.path} is an MCP server, and {why}",
        hint=f"ostiary serve -- {join([*line, str(written.path)])}",
    )


def _interpreters(path: Path, library: Library) -> Iterator[Sequence[str]]:
    """Yield the commands of Pythons that have the library: of the project, by uv, of the environment that is active, of the machine."""
    tried: set[str] = set()

    def fit(python: str | None) -> bool:
        if python is None or python in tried:
            return False
        tried.add(python)
        return _has(python, library)

    folders = list(_folders(path))
    for folder in folders:
        for environment in ENVIRONMENTS:
            if fit(python := which(str(folder / environment / "bin" / "python"))):
                yield (str(python),)
    locked = next((folder for folder in folders if (folder / "uv.lock").is_file()), None)
    if locked is not None and which("uv") is not None:
        yield ("uv", "run", "--project", str(locked), "python")
    active = os.environ.get("VIRTUAL_ENV")
    for python in (
        which(str(Path(active) / "bin" / "python")) if active else None,
        which("python3"),
        which("python"),
    ):
        if fit(python):
            yield (str(python),)


def _folders(path: Path) -> Iterator[Path]:
    """Yield the folder of a file and those above it, up to that of its project."""
    file = path.expanduser().absolute()
    for folder in islice(file.parents, FOLDERS):
        yield folder
        if any((folder / each).exists() for each in PROJECT):
            return


def _has(python: str, library: Library) -> bool:
    from server.agents.base.child_environment import child_environment

    try:
        found = subprocess.run(
            [python, "-c", HAS_LIBRARY, library],
            env=child_environment(()),
            cwd="/",  # no file beside the server is taken for the library
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=LOOK_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return found.returncode == 0


def _imported(node: ast.AST) -> Iterator[str]:
    """Yield "ostiary", "fastmcp" and "mcp" for what a server is made with, or is ours."""
    if isinstance(node, ast.Import):
        for each in node.names:
            yield from _library(each.name, ())
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        yield from _library(node.module, [each.name for each in node.names])


def _library(module: str, names: Sequence[str]) -> Iterator[str]:
    first, _, rest = module.partition(".")
    if first == "ostiary":
        yield first
    elif first == "fastmcp":
        is_client = rest.startswith("client") or (not rest and names and _CLIENT.issuperset(names))
        if not is_client:
            yield first
    elif first == "mcp" and (rest.split(".")[0] == "server" or _SERVER_OF_SDK.intersection(names)):
        yield first


def _starts(statement: ast.stmt) -> bool:
    """Say whether a statement of the file's own makes it serve: the usual `if`, or a call of `run`."""
    if isinstance(statement, ast.If):
        named = (node for node in ast.walk(statement.test) if isinstance(node, ast.Name))
        return any(node.id == "__name__" for node in named)
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _RUN


def _is_http(call: ast.Call) -> bool:
    """Say whether a call serves over HTTP, as far as it is written there."""
    assert isinstance(call.func, ast.Attribute)
    if call.func.attr in _HTTP:
        return True
    if call.func.attr not in _RUN:
        return False
    given = [each.value for each in call.keywords if each.arg == "transport"] + call.args[:1]
    return any(
        isinstance(each, ast.Constant) and isinstance(each.value, str) and each.value != "stdio"
        for each in given
    )
