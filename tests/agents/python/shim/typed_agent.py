"""A file that uses all that stands around functions, with every type written: the type checker reads it with the tests, and it is served."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Annotated, Any

from ostiary import (
    Audio,
    CannotUse,
    Context,
    File,
    Image,
    NotFound,
    Proceed,
    Provide,
    State,
    SyncContext,
    ToolUse,
    around,
    before_call,
    defaults,
    lifespan,
    prompt,
    resource,
    tool,
)

defaults(structured=True)


class Db:
    pass


@lifespan
async def opened() -> AsyncIterator[Db]:
    yield Db()


async def connection(db: Annotated[Db, Provide(opened)]) -> AsyncIterator[int]:
    yield 1


@around
async def timed(call: ToolUse, proceed: Proceed) -> Any:
    call.arguments["x"] = 1
    return await proceed()


@before_call
def first(call: ToolUse) -> None:
    print(call.tool, call.tags, call.context.scopes)


@tool(tags={"a"}, version="1", structured=True, coerce=True, enabled=True)
async def one(n: int, c: Annotated[int, Provide(connection)], ctx: Context) -> str:
    answer = await ctx.call_tool("x", {"a": 1})
    parts = await ctx.read_resource("a://b")
    state: State = ctx.state
    state["x"] = 1
    who = ctx.claims.person + ctx.client.name + (ctx.session_id or "")
    return answer.text + (parts[0].text or "") + who + ctx.headers.get("a", "")


@tool
def two(ctx: SyncContext) -> list[Image | Audio | File]:
    with contextlib.suppress(NotFound, CannotUse):
        ctx.get_prompt("a", {"b": "c"})
    return [Image(path="a.png"), Audio(b""), File("x.pdf")]


@resource("a://b", tags="x")
def r() -> bytes:
    return b""


@prompt(version="1")
def p() -> str:
    return ""
