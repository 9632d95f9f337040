"""On which line of the settings each of them stands (server/settings/setting_lines.py)."""

from __future__ import annotations

import random
import tomllib
from typing import Any, cast

import pytest

from server.settings.setting_lines import line_of, lines_of
from server.settings.settings_template import commented_configuration

TEXT = (
    '''# a comment
port = 8420   # another
host = "a # no comment"
"quoted key" = 'x'
dotted.name = 1

[limits]
caller = """
[server]
port = 1
"""

[[server]]
name = "main"
aliases = [
  "/a/mcp",  # one
  "/b/mcp",
]
groups = { echo = { price = "$1" }, "odd.name" = { hidden = true } }

[server.tools.add]
price = '''
    + "'''\nkey = 2\n'''"
    + """

[[server.agent]]
kind = "demo"
[[server.agent]]
kind = "chat"
headers = {}


[[server]]
[[server.agent]]
kind = "python"
"""
)


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("port", 2),
        ("host", 3),
        ("quoted key", 4),
        ("dotted.name", 5),
        ("limits", 7),
        ("limits.caller", 8),
        ("server[1]", 13),
        ("server[1].name", 14),
        ("server[1].aliases[2]", 17),
        ("server[1].groups.echo.price", 19),
        ("server[1].groups.odd.name.hidden", 19),
        ("server[1].tools.add.price", 22),
        ("server[1].agent[1].kind", 27),
        ("server[1].agent[2].kind", 29),
        ("server[2].agent[1].kind", 35),
        # What is missing stands where it should be.
        ("server[2].agent[1].file", 34),
        ("server[2].name", 33),
        ("server[1].agent[3]", 26),
        ("nothing", 0),
        ("OSTIARY_PORT", 0),
        ("--port", 0),
    ],
)
def test_a_setting_has_the_line_on_which_it_stands_or_that_of_its_table(place: str, line: int) -> None:
    assert line_of(lines_of(TEXT), place) == line


def places(value: Any, place: str = "") -> list[str]:
    if isinstance(value, dict):
        parts = cast("dict[str, Any]", value).items()
        return [place, *(each for name, part in parts for each in places(part, f"{place}.{name}".strip(".")))]
    if isinstance(value, list):
        parts = enumerate(cast("list[Any]", value), 1)
        return [place, *(each for at, part in parts for each in places(part, f"{place}[{at}]"))]
    return [place]


@pytest.mark.parametrize("text", [TEXT, commented_configuration()], ids=["hard", "template"])
def test_every_setting_is_found(text: str) -> None:
    found = lines_of(text)
    assert [place for place in places(tomllib.loads(text)) if place and place not in found] == []


def test_what_is_no_toml_is_no_trouble() -> None:
    picked = random.Random(7)
    for _ in range(300):
        at = picked.randrange(len(TEXT))
        lines_of(TEXT[:at])
        lines_of(TEXT[:at] + picked.choice("[]{}\"'=\n.#\\") + TEXT[at:])
    assert lines_of("a = " + "[" * 5_000) == {"a": 1} | {f"a{'[1]' * n}": 1 for n in range(1, 62)}
