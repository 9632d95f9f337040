"""`ostiary tools URL [TOOL]`: what a server can do, as a table; or one tool with its arguments."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from shlex import quote
from typing import Any, Final, cast

import click

from server.cli import terminal
from server.cli.terminal import clean, json_option, out, paint

PRICE: Final = "io.ostiary/price"
NAMELESS: Final = "nobody is logged in here: this is what is sold without a login"


@click.command("tools")
@click.argument("words", nargs=-1, metavar="[URL] [TOOL]")
@json_option
def command(words: tuple[str, ...], as_json: bool) -> None:
    """List the tools of the MCP server at URL, or show one TOOL with its arguments. Without a URL: those of the server that you
    are logged in to, or were last."""
    from server.cli.use import target, which_server

    typed, rest = which_server.split(words, least=0)
    if len(rest) > 1:
        raise terminal.Misuse(f"one tool at a time: {clean(' '.join(rest))}", hint="ostiary tools [URL] TOOL")
    tool = rest[0] if rest else None
    address = which_server.of(typed, tcp=True)

    async def main() -> list[dict[str, Any]]:
        nonlocal nameless
        # Looking costs nothing, also where nobody is let in who has no login and would not pay.
        async with target.connected(address.url, pays=True) as mcp:
            tools = await mcp.tools()
            nameless = mcp.nameless
            return tools

    nameless = False
    found = terminal.run_async(main)
    if nameless:
        terminal.say(NAMELESS)
    if tool is not None:
        one = pick(found, tool, address.url, typed=typed, nameless=nameless)
        terminal.out_json(one) if as_json else _show_one(one, typed, nameless=nameless)
    elif as_json:
        terminal.out_json({"url": address.url, "tools": found})
    else:
        _show_all(found, typed, nameless=nameless)


def pick(
    tools: list[dict[str, Any]], name: str, url: str, *, typed: str | None = None, nameless: bool = False
) -> dict[str, Any]:
    """Return the tool of that name; where there is none, hint at the nearest names. `typed`: for the server, where that is not its address.
    `nameless`: these are sold without a login."""
    typed = url if typed is None else typed
    for tool in tools:
        if tool["name"] == name:
            return tool
    if nameless:
        raise terminal.CliError(
            f"{url} sells no tool {name} without a login",
            hint=f"ostiary login {quote(url)} shows all that it has",
        )
    from difflib import get_close_matches

    near = get_close_matches(name, [str(tool["name"]) for tool in tools], n=1)
    raise terminal.CliError(
        f"{url} has no tool {name}",
        hint=f"did you mean {quote(near[0])}?"
        if near
        else " ".join(["ostiary tools", *([quote(typed)] if typed else [])]),
    )


def _show_all(tools: list[dict[str, Any]], typed: str, *, nameless: bool = False) -> None:
    from server.client.typed_arguments import names

    if not tools:
        terminal.say("this server has no tools, or none that you may see")
        return
    priced = any(price_of(tool) for tool in tools)
    rows = [
        (
            paint(clean(str(tool["name"])), "bold", sys.stdout),
            clean(" ".join(key if required else f"[{key}]" for key, required in names(tool))),
            *([clean(price_of(tool))] if priced else []),
            _summary(tool),
        )
        for tool in tools
    ]
    for line in terminal.columns(rows):
        out(terminal.cut(line, terminal.width(sys.stdout)))
    terminal.say_hint(_example(tools[0], typed, nameless=nameless))


def price_of(tool: Mapping[str, Any], *, whole: bool = False) -> str:
    """Return what a tool says that it costs, as far as the first semicolon, or wholly; nothing where it does not say."""
    meta = tool.get("_meta")
    said = cast("dict[str, Any]", meta).get(PRICE) if isinstance(meta, dict) else None
    words = cast("dict[str, Any]", said).get("words") if isinstance(said, dict) else None
    if not isinstance(words, str):
        return ""
    return words if whole else words.partition("; ")[0].partition(": ")[0].removesuffix(" a call")


def _summary(tool: Mapping[str, Any]) -> str:
    """Return the first sentence of what the tool says about itself."""
    for key in ("description", "title"):
        text = tool.get(key)
        if isinstance(text, str) and text.strip():
            return clean(re.split(r"(?<=\w)\.(?:\s|$)", text.strip().splitlines()[0], maxsplit=1)[0])
    return ""


def _show_one(tool: Mapping[str, Any], typed: str, *, nameless: bool = False) -> None:
    from server.client.typed_arguments import describe, names, type_name

    out(paint(clean(str(tool["name"])), "bold", sys.stdout))
    description = tool.get("description")
    if isinstance(description, str) and description.strip():
        out(clean(description.strip(), keep_lines=True))
    if price := price_of(tool, whole=True):
        out(f"costs {clean(price)}")
    keys = names(tool)
    if keys:
        out()
    rows = [
        (
            f"  {clean(key)}",
            clean(type_name(tool, key)),
            "required" if required else "optional",
            clean(describe(tool, key)),
        )
        for key, required in keys
    ]
    for line in terminal.columns(rows):
        out(line)
    terminal.say_hint(_example(tool, typed, nameless=nameless))


def _example(tool: Mapping[str, Any], typed: str, *, nameless: bool) -> str:
    """Write a call with everything that the tool requires, of the server as it was typed."""
    from server.client.typed_arguments import names

    return " ".join(
        [
            "ostiary call --pay" if nameless else "ostiary call",
            *([quote(typed)] if typed else []),
            quote(str(tool["name"])),
            *(f"{quote(key)}=…" for key, required in names(tool) if required),
        ]
    )
