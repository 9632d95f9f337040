"""What a Python file is told of who calls, and what it uses of its server, at the server's end of the line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trio

from server.agents.base.backend import AskedBy, NoSuchResource, ToolCall, UseKind
from server.mcp.call_failures import BackendError
from tests.agents.python.python_pair import REAL, Caller, at_work, text_of

AGENT = """
from ostiary import *

@tool
async def who(ctx: Context) -> dict:
    return {"person": ctx.claims.person, "headers": dict(ctx.headers)}

@tool
def incurious() -> str:
    return "done"

@tool
async def uses(ctx: Context, times: int = 1) -> str:
    import asyncio
    async def once(n):
        try:
            return (await ctx.call_tool(f"t{n}", {"n": n})).text
        except (CannotUse, NotFound) as error:
            return f"{type(error).__name__} {error}"
    return ", ".join(await asyncio.gather(*(once(n) for n in range(times))))

@tool
def gives_up(ctx: SyncContext) -> str:
    return ctx.call_tool("never").text

@tool(tags={"a", "b"})
def tagged() -> str: return "ab"

@tool(tags={"c"})
def other() -> str: return "c"

@resource("test://c", tags={"c"})
def read() -> str: return "c"

@prompt(tags={"a"})
def ask() -> str: return "a"
"""


@dataclass
class House:
    """An `Origin` whose tools are a table."""

    tools: Mapping[str, Any] = field(default_factory=dict[str, Any])
    asked: list[str] = field(default_factory=list[str])
    under_way: int = 0
    most: int = 0
    cancelled: int = 0
    traceparent: str | None = None
    without_tasks: bool = False

    @property
    def apart(self) -> str:
        return "user-1"

    def asked_by(self) -> AskedBy:
        self.asked.append("who")
        return AskedBy(person="Ada")

    def later(self) -> None:
        return None

    def header(self, name: bytes) -> str | None:
        return {b"traceparent": "00-1"}.get(name)

    async def use(self, what: UseKind, name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await trio.lowlevel.checkpoint()
            if name == "never":
                await trio.sleep_forever()
            found = self.tools.get(name)
            if found is None:
                raise NoSuchResource(f"no {what} {name}")
            if isinstance(found, Exception):
                raise found
            return {"content": [{"type": "text", "text": f"{found} {arguments}"}]}
        except trio.Cancelled:
            self.cancelled += 1
            raise
        finally:
            self.under_way -= 1


def call_of(tool: str, house: House | None, **arguments: Any) -> ToolCall:
    return ToolCall(tool=tool, arguments=arguments, subject="user-1", call_id="call-7", origin=house)


async def test_only_a_function_that_asks_is_told_who_calls(tmp_path: Path) -> None:
    house = House()
    async with at_work(tmp_path, AGENT, shim=REAL, pass_headers=["TraceParent", "X-Other"]) as work:
        assert text_of(await work.backend.call(call_of("incurious", house), Caller())) == "done"
        assert house.asked == []
        told = await work.backend.call(call_of("who", house), Caller())
        assert told.structured == {"person": "Ada", "headers": {"traceparent": "00-1"}}


async def test_what_it_uses_comes_back_as_what_it_is(tmp_path: Path) -> None:
    house = House({"t0": "zero", "t1": BackendError("not for you")})
    async with at_work(tmp_path, AGENT, shim=REAL) as work:
        text = text_of(await work.backend.call(call_of("uses", house, times=3), Caller()))
        assert text == "zero {'n': 0}, CannotUse not for you, NotFound no tool t2"


async def test_without_anybody_behind_it_a_call_uses_nothing(tmp_path: Path) -> None:
    async with at_work(tmp_path, AGENT, shim=REAL) as work:
        text = text_of(await work.backend.call(call_of("uses", None), Caller()))
        assert text == "CannotUse this call can use nothing else of the server"


async def test_what_a_call_uses_ends_with_it(tmp_path: Path) -> None:
    house = House()
    async with at_work(tmp_path, AGENT, shim=REAL, calls_at_once=1) as work:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(work.backend.call, call_of("gives_up", house), Caller())
            while not house.under_way:
                await trio.sleep(0.01)
            # It has left its place, so that what it uses may have it.
            assert await work.say("incurious") == "done"
            nursery.cancel_scope.cancel()
        assert (house.under_way, house.cancelled) == (0, 1)
        assert await work.say("incurious") == "done"


@pytest.mark.parametrize(
    ("settings", "tools", "rest"),
    [
        ({"include_tags": ["a"]}, ["tagged"], ["ask"]),
        ({"include_tags": ["a", "c"], "exclude_tags": ["b"]}, ["other"], ["test://c", "ask"]),
        ({"exclude_tags": ["c"]}, ["who", "incurious", "uses", "gives_up", "tagged"], ["ask"]),
    ],
)
async def test_the_settings_say_by_tags_what_is_offered(
    tmp_path: Path, settings: dict[str, Any], tools: list[str], rest: list[str]
) -> None:
    async with at_work(tmp_path, AGENT, shim=REAL, **settings) as work:
        assert [tool.name for tool in work.backend.tools()] == tools
        found = [each.uri for each in work.backend.resources()]
        assert [*found, *(each.name for each in work.backend.prompts())] == rest
