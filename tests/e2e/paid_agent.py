"""An agent whose tools are sold: they count how often they run, wait to be let go on, fail, and ask. Served by test_paid_*.py.

What a test has to know or decide is a file in `notes`, beside a copy of this one.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from ostiary import Context, SyncContext, ToolFailure, tool

NOTES = Path(__file__).parent / "notes"
FORM = {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}


def note(text: str) -> None:
    with (NOTES / "said").open("a") as said:
        said.write(f"{text}\n")


def runs(name: str) -> int:
    """How often it was called with this name, this time included."""
    note(f"{name} runs")
    return (NOTES / "said").read_text().splitlines().count(f"{name} runs")


async def may_go_on(name: str) -> None:
    while not (NOTES / f"{name}.go").exists():
        await asyncio.sleep(0.01)


async def waits(name: str) -> str:
    run = runs(name)
    try:
        await may_go_on(name)
    except asyncio.CancelledError:
        note(f"{name} is stopped")
        raise
    return f"{name} was run {run}"


@tool(price="$0.01")
def sold(name: str) -> str:
    return f"{name} was run {runs(name)}"


@tool(price="$0.01")
def other(name: str) -> str:
    return f"{name} was run {runs(name)}"


@tool(price="$0.01")
async def held(name: str) -> str:
    return await waits(name)


@tool(price="$0.01", annotations={"idempotentHint": True})
async def held_harmless(name: str) -> str:
    return await waits(name)


@tool(price="$0.01")
async def held_ahead(name: str) -> str:
    return await waits(name)


@tool(price="$0.01", task="optional")
async def waited_for(name: str) -> str:
    return await waits(name)


@tool(price="$0.01")
def unlucky(name: str) -> str:
    runs(name)
    raise ToolFailure(f"{name} has no luck")


@tool(price="$0.01")
def ahead(name: str) -> str:
    """Paid for before it runs; it fails as long as there is no file that lets it do better."""
    run = runs(name)
    if not (NOTES / f"{name}.go").exists():
        raise ToolFailure(f"{name} has no luck yet")
    return f"{name} was run {run}"


@tool(price="$0.01")
async def curious(name: str, ctx: Context) -> str:
    run = runs(name)
    answer = await ctx.elicit("Which colour?", FORM, key="colour")
    return f"{name} was run {run}: {answer.content['colour'] if answer.content else answer.action}"


@tool(price="$0.01")
async def curious_ahead(name: str, ctx: Context) -> str:
    found: list[str] = []
    for key in ("one", "two", "three", "four", "five"):
        answer = await ctx.elicit(f"Which colour is {key}?", FORM, key=key)
        found.append(answer.content["colour"] if answer.content else answer.action)
    return f"{name}: {' '.join(found)}"


@tool(price="$0.01")
def told(name: str, ctx: SyncContext) -> str:
    run = runs(name)
    ctx.progress(1, 2, "halfway")
    return f"{name} was run {run}"


@tool(price="$0.01")
def remembered(name: str) -> str:
    return f"{name} was run {runs(name)}"


@tool(price="$0.01")
def large(name: str) -> str:
    """More than lies in a socket that nobody reads."""
    return f"{name} was run {runs(name)}" + " " * 7_500_000
