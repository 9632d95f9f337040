"""Tables of the terminal, side by side: one style, and one heading for one thing."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from server.cli import terminal

CLI = Path(terminal.__file__).parent
TABLES = {
    "audit": [("when", "what", "outcome", "who", "program", "from", "why")],
    "calls": [("when", "tool", "outcome", "took", "who", "program", "why")],
    "keys": [("key", "for", "state", "since", "kept until")],
    "ledger": [
        ("number", "when", "what", "amount", "from", "to", "note"),
        ("account", "balance", "held"),
    ],
    "mcp": [("name", "server", "logged in")],
    "pending": [("program", "computer, as claimed", "from", "server", "asked at", "ends in")],
    "plans": [("id", "name", "plan", "since", "ends in")],
    "status": [("logged in at", "name", "state"), ("logged in at", "state")],
    "unsettled": [("payment", "state", "since", "amount", "payer", "tries", "next look", "ends in", "why")],
    "users": [("name", "role", "state", "logins", "last seen", "ends in")],
    "whoami": [("logged in at", "you are", "state", "scope")],
}
# What other words there are for what has one already.
OTHER_WORDS = {
    "client",
    "reason",
    "problem",
    "expires",
    "runs out in",
    "last used",
    "ID",
    "by way of",
    "address",
    "ip",
}


DRAWING = ("terminal.table", "terminal.show_table")


def headings_in(file: Path) -> list[tuple[str, ...]]:
    """Of each table that the module draws, in its order."""
    tree = ast.parse(file.read_text("utf-8"))
    constants: dict[str, ast.expr] = {}
    for node in tree.body:
        target = node.target if isinstance(node, ast.AnnAssign) else None
        if isinstance(node, ast.Assign):
            target = node.targets[0]
        if (
            isinstance(node, ast.Assign | ast.AnnAssign)
            and isinstance(target, ast.Name)
            and node.value is not None
        ):
            constants[target.id] = node.value
    found: list[tuple[str, ...]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in DRAWING:
            first = node.args[0]
            written = constants[first.id] if isinstance(first, ast.Name) else first
            headings = ast.literal_eval(written)
            if headings not in found:
                found.append(headings)
    return found


def test_every_table_has_its_headings_in_the_one_style() -> None:
    drawn = {file.stem: headings for file in sorted(CLI.rglob("*.py")) if (headings := headings_in(file))}
    assert {name: sorted(each) for name, each in drawn.items()} == {
        name: sorted(each) for name, each in TABLES.items()
    }
    words = {heading for tables in TABLES.values() for table in tables for heading in table}
    assert all(word == word.lower() for word in words)
    assert not words & OTHER_WORDS


def test_a_row_that_is_wider_than_the_terminal_stands_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("bob", "owner", "-", "20 days"), ("somebody with a name", "person", "11:04, 8 seconds ago", "-")]
    headings = ("name", "role", "last seen", "ends in")
    monkeypatch.setattr(terminal, "width", lambda stream: 40)
    assert terminal.table(headings, rows) == [
        "name bob",
        "  role owner · ends in 20 days",
        "name somebody with a name",
        "  role person",
        "  last seen 11:04, 8 seconds ago",
    ]
    assert terminal.table(headings, rows, as_wide_as_it_is=True)[1].startswith("bob    ")


def test_headings_are_dim_on_a_terminal_and_columns_are_aligned_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [("a", "1"), ("long one", "2")]
    assert terminal.table(("name", "count"), rows) == ["name      count", "a         1", "long one  2"]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    head, *rest = terminal.table(("name", "count"), rows)
    assert head == "\x1b[2mname\x1b[0m      \x1b[2mcount\x1b[0m"
    assert rest == ["a         1", "long one  2"]
