"""An agent whose tools do what tasks are for: they take long, ask, fail, and remember. Served by test_tasks_*.py.

Whatever a test has to know or decide is a file in `notes`, beside a copy of this one: what the tools note, and which may go on.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from ostiary import Context, ProtocolError, SyncContext, ToolFailure, elicitation, tool

NOTES = Path(__file__).parent / "notes"


def note(text: str) -> None:
    with (NOTES / "said").open("a") as said:
        said.write(f"{text}\n")


async def may_go_on(name: str) -> None:
    while not (NOTES / f"{name}.go").exists():
        await asyncio.sleep(0.02)


def form(field: str) -> dict[str, Any]:
    return {"type": "object", "properties": {field: {"type": "string"}}, "required": [field]}


async def sleep(name: str, ctx: Context) -> str:
    note(f"{name} begins")
    await ctx.progress(1, 2, f"{name} falls asleep")
    try:
        await may_go_on(name)
    except asyncio.CancelledError:
        note(f"{name} is stopped")
        raise
    note(f"{name} ends")
    return f"{name} slept well"


@tool(task="optional")
async def sleepy(name: str, ctx: Context) -> str:
    return await sleep(name, ctx)


@tool(task="required")
async def must(name: str, ctx: Context) -> str:
    return await sleep(name, ctx)


@tool(task="optional")
def snore(name: str, ctx: SyncContext) -> str:
    note(f"{name} begins")
    try:
        while True:
            time.sleep(0.02)
            ctx.progress(time.monotonic())
    finally:
        note(f"{name} is stopped")


@tool(task="optional")
async def quick(name: str) -> str:
    return f"{name} is done"


@tool(task="optional")
async def curious(name: str, ctx: Context) -> str:
    note(f"{name} begins")
    answer = await ctx.elicit("Which colour?", form("colour"), key="colour")
    note(f"{name} was answered")
    return f"{name}: {answer.content['colour'] if answer.content else answer.action}"


@tool(task="optional")
async def curious_twice(name: str, ctx: Context) -> str:
    asked = {
        "animal": elicitation("Which animal?", form("animal")),
        "colour": elicitation("Which colour?", form("colour")),
    }
    found = await ctx.ask(asked)
    return f"{name}: {found['colour'].content['colour']} {found['animal'].content['animal']}"


@tool(task="optional")
async def unlucky(name: str) -> str:
    raise ToolFailure(f"{name} has no luck")


@tool(task="optional")
async def refuses(name: str) -> str:
    raise ProtocolError(f"{name} may not", 4711)


@tool(task="by_hand")
async def considers(name: str, ctx: Context) -> str:
    """Asks before it becomes a task, where it is asked to."""
    if name.startswith("asks"):
        answer = await ctx.elicit("Which colour?", form("colour"), key="colour")
        name = f"{name}, {answer.content['colour'] if answer.content else answer.action}"
    became = await ctx.become_task()
    note(f"{name} {'is a task' if became else 'is none'}")
    if became:
        await may_go_on(name)
    return f"{name}, as a task" if became else f"{name}, while you waited"


@tool(task="optional")
async def steps(name: str, ctx: Context) -> str:
    """Three steps, the second of which is not taken before it may."""
    first = ctx.resumed["done"] if ctx.resumed else 0
    for step in range(first, 3):
        if step == 1:
            await may_go_on(name)
        note(f"{name} step {step}")
        await ctx.progress(step + 1, 3, f"{name} took step {step}")
        await ctx.checkpoint({"done": step + 1})
        note(f"{name} kept step {step}")
    return f"{name} began at {first}"
