"""`ostiary tools` where tools cost something."""

from __future__ import annotations

from typing import Any

import pytest

from server.cli.use import tools

URL = "http://door.example/mcp"
SCHEMA = {"type": "object"}


def tool(name: str, price: Any) -> dict[str, Any]:
    return {
        "name": name,
        "description": "does it",
        "inputSchema": SCHEMA,
        "_meta": {"io.ostiary/price": price},
    }


def test_a_column_says_what_a_call_costs(capsys: pytest.CaptureFixture[str]) -> None:
    found = [
        tool("look", {"words": "$0.01 a call; the first 3 successful calls cost nothing"}),
        tool("render", {"words": "priced by its arguments: 0.01 * pages dollars, at most $1.00"}),
        {"name": "echo", "description": "does it", "inputSchema": SCHEMA},
    ]
    tools._show_all(found, URL)  # pyright: ignore[reportPrivateUsage]
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["look", "$0.01", "does", "it"],
        ["render", "priced", "by", "its", "arguments", "does", "it"],
        ["echo", "does", "it"],
    ]


def test_one_tool_is_shown_with_all_that_is_said_of_its_price(capsys: pytest.CaptureFixture[str]) -> None:
    words = "$0.01 a call; the first 3 successful calls cost nothing"
    tools._show_one(tool("look", {"words": words}), URL)  # pyright: ignore[reportPrivateUsage]
    assert f"costs {words}\n" in capsys.readouterr().out


@pytest.mark.parametrize("price", ["$0.01", None, {}, {"words": 5}, [], {"words": None}])
def test_what_other_servers_put_there_does_not_matter(price: Any, capsys: pytest.CaptureFixture[str]) -> None:
    tools._show_all([tool("look", price)], URL)  # pyright: ignore[reportPrivateUsage]
    tools._show_one(tool("look", price), URL)  # pyright: ignore[reportPrivateUsage]
    assert "costs" not in capsys.readouterr().out


def test_nothing_of_a_price_steers_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    tools._show_all([tool("look", {"words": "\x1b[2J$0.01"})], URL)  # pyright: ignore[reportPrivateUsage]
    tools._show_one(tool("look", {"words": "\x1b[2J$0.01"}), URL)  # pyright: ignore[reportPrivateUsage]
    assert "\x1b" not in capsys.readouterr().out
