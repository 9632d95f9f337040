"""What an author's file says of prices: with a tool, or as a function that is asked about a call."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest
from shim_child import Child, Serve

PRICE = "io.ostiary/price"

FILE = """
    from decimal import Decimal
    from ostiary import Context, ToolFailure, price, tool

    @tool(price="$0.01", meta={"a": 1})
    def look_up(word: str) -> str:
        return word

    @tool
    def render(pages: int = 3, colour: bool = False) -> str:
        return "done"

    @price("render")
    def of_render(pages: int) -> Decimal:
        return Decimal("0.002") * pages

    @price
    def say(what: str):
        return {"int": 2, "text": "$0.5", "free": "free", "float": 0.1, "none": None, "minus": -1, "fine": Decimal("0.0000001"),
                "zeros": Decimal("1.500000000"), "big": Decimal("1E+3"), "bool": True, "words": "cheap"}[what]

    @price
    async def slow(ctx: Context) -> str:
        await ctx.elicit("How much?", {"type": "object", "properties": {}})
        return "$1"

    @price
    def fails() -> str:
        raise ToolFailure("the market is closed")
"""


def ask(child: Child, function: str, tool: str = "", **arguments: Any) -> dict[str, Any]:
    return child.end(child.send("price", None, name=function, tool=tool, arguments=arguments))


def start(tmp_path: Path, text: str) -> dict[str, Any]:
    file = tmp_path / "agent.py"
    file.write_text(text, "utf-8")
    with Child(file) as child:
        return child.hear()


def test_what_a_tool_costs_is_in_its_meta(tmp_path: Path) -> None:
    first = start(tmp_path, textwrap.dedent(FILE))
    meta = {tool["name"]: tool.get("_meta") for tool in first["catalog"]["tools"]}
    assert meta == {
        "look_up": {"a": 1, PRICE: "$0.01"},
        "render": {PRICE: {"function": "of_render"}},
    }


def test_the_function_is_asked_about_the_arguments_that_it_takes(serve: Serve) -> None:
    child = serve(FILE)
    assert ask(child, "of_render", "render", pages=7, colour=True)["result"] == {"price": "0.014"}
    # what the caller left out is what the tool makes of it
    assert ask(child, "of_render", "render")["result"] == {"price": "0.006"}
    missing = ask(child, "of_render")
    assert (missing["event"], missing["kind"]) == ("error", "bad_arguments")
    wrong = ask(child, "of_render", "render", pages="many")
    assert wrong["kind"] == "bad_arguments" and "pages" in wrong["message"]


@pytest.mark.parametrize(
    ("what", "said"),
    [("int", "2"), ("text", "$0.5"), ("free", "free"), ("zeros", "1.5"), ("big", "1000")],
)
def test_an_amount_is_exact(serve: Serve, what: str, said: str) -> None:
    assert ask(serve(FILE), "say", what=what)["result"] == {"price": said}


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("float", "a float"),
        ("none", "NoneType is no price"),
        ("bool", "bool is no price"),
        ("minus", "-1 is no price"),
        ("fine", "at most six digits"),
        ("words", 'like "$0.02"'),
    ],
)
def test_what_is_no_amount_fails(serve: Serve, what: str, why: str) -> None:
    event = ask(serve(FILE), "say", what=what)
    assert (event["event"], event["kind"]) == ("error", "failed")
    assert why in event["message"]


def test_a_function_that_fails_has_said_no_price_and_one_that_is_gone_neither(serve: Serve) -> None:
    child = serve(FILE)
    assert ask(child, "fails") == {
        "event": "error",
        "kind": "failed",
        "message": "the market is closed",
        "id": 1,
    }
    gone = ask(child, "gone")
    assert gone["event"] == "error" and "no price function" in gone["message"]


def test_a_file_without_decorated_tools_does_not_offer_its_price_functions(tmp_path: Path) -> None:
    text = "from ostiary import price\ndef render(): ...\n@price('render')\ndef cost(): return '$1'\n"
    tools = start(tmp_path, text)["catalog"]["tools"]
    assert [tool["name"] for tool in tools] == ["render"]
    assert tools[0]["_meta"] == {PRICE: {"function": "cost"}}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("@tool(price=0.01)\ndef f(): ...", "a float"),
        ("@tool(price='1 cent')\ndef f(): ...", "is written like"),
        ("@tool(price='$1', meta={'io.ostiary/price': '$2'})\ndef f(): ...", "price= already"),
        ("@tool\ndef f(): ...\n@price('g')\ndef p(): ...", "there is no tool 'g'"),
        ("@tool(price='$1')\ndef f(): ...\n@price('f')\ndef p(): ...", "'f' has a price already"),
        ("@tool\ndef f(): ...\n@price('f')\ndef p(): ...\n@price('f')\ndef q(): ...", "'f' has a price function already"),
        ("@tool\ndef f(): ...\n@price\ndef p(): ...\n@price\ndef p(): ...", "the price p()"),
        ("@tool\ndef f(): ...\n@price('f')\ndef p(): yield 1", "it says one amount"),
    ],
)  # fmt: skip
def test_a_price_that_cannot_be_meant_is_no_agent(tmp_path: Path, text: str, why: str) -> None:
    first = start(tmp_path, "from ostiary import price, tool\n" + text + "\n")
    assert first["event"] == "broken"
    assert why in first["error"], first["error"]
