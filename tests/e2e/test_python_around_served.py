"""What is around the functions of a Python file, through a server: who calls, what is remembered, opened, provided and used besides."""

from __future__ import annotations

import secrets
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from mcp_calls import call_tool
from programs import SOURCE, Program, Server, until
from task_clients import Ended, Extension, Wire

AGENT = """
    from pathlib import Path
    from typing import Annotated, Any
    from ostiary import *

    defaults(coerce=True)
    include("other.py", prefix="x")

    @lifespan
    async def opened():
        with open("tmp/opened.log", "a") as log: log.write("opened\\n")
        yield {"rate": 2}
        with open("tmp/opened.log", "a") as log: log.write("closed\\n")

    def rate(ctx: Context) -> int:
        return ctx.lifespan["rate"]

    @around
    async def only_friends(call: ToolUse, proceed):
        if call.tool == "friends" and call.context.claims.person == "other":
            raise ToolFailure("friends only")
        return await proceed()

    @tool(structured=True, tags={"public"})
    def convert(amount: int, rate: Annotated[int, Provide(rate)]) -> int:
        return amount * rate

    @tool(tags="public")
    async def who(ctx: Context) -> dict:
        return {
            "client": ctx.client.name, "version": ctx.client.version, "scopes": sorted(ctx.scopes), "headers": dict(ctx.headers),
            "kind": ctx.claims.kind, "program": ctx.claims.program, "session": ctx.session_id, "all": repr(vars(ctx._line)),
        }

    @tool(tags={"public"})
    def count(ctx: SyncContext) -> int:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        return ctx.state["n"]

    @tool(tags={"public"})
    def crash() -> str:
        raise ValueError("s3cret of the author's")

    @tool(tags={"public"})
    async def asks(ctx: Context) -> str:
        return str(await ctx.elicit("?", str))

    @tool(tags={"public"})
    async def use(what: str, ctx: Context) -> Any:
        try:
            answer = await ctx.call_tool(what, {})
        except (NotFound, CannotUse, ToolFailure) as error:
            return f"{type(error).__name__}: {error}"
        return answer.text

    @tool(tags={"public"})
    def deeper(ctx: SyncContext) -> str:
        return "." + ctx.call_tool("deeper").text

    @tool(tags={"public"})
    async def many(ctx: Context) -> str:
        import asyncio
        return "".join([each.text for each in await asyncio.gather(*(ctx.call_tool("leaf") for _ in range(20)))])

    @tool(tags={"public"})
    def leaf(ctx: SyncContext) -> str:
        return ctx.read_resource("notes://x")[0].text

    @tool(tags={"public"})
    async def prompted(ctx: Context) -> str:
        return (await ctx.get_prompt("ask", {"topic": "tea"}))[0]["content"]["text"]

    @tool(tags={"public"}, task="optional")
    async def later(name: str, ctx: Context) -> str:
        return (await ctx.call_tool(name)).text + f" for {ctx.claims.program}"

    @tool(tags={"public"})
    async def named(name: str, ctx: Context) -> str:
        ctx.state[name] = True
        return f"{ctx.client.name} {ctx.client.version} {len(ctx.state)} {'roots' in ctx.client.capabilities}"

    @tool(tags={"public"})
    def danger() -> str: return "boom"

    @tool(tags={"draft", "public"})
    def draft() -> str: return "no"

    @tool
    def untagged() -> str: return "no"

    @resource("notes://x", tags={"public"})
    def note() -> str: return "n"

    @prompt(tags={"public"})
    def ask(topic: str) -> str: return f"about {topic}"
"""
OTHER = """
    from ostiary import tool

    @tool(tags={"public"})
    def hello() -> str:
        return "from the other file"
"""
SETTINGS = """
    [[server]]
    accepts = ["login", "api-key"]
    tokens = [
        { name = "full", token = "env:FULL", scope = "mcp" },
        { name = "careful", token = "env:CAREFUL", scope = "mcp", tools = "all,-danger" },
    ]
    [[server.agent]]
    kind = "python"
    file = "agent.py"
    threads = 2
    calls_at_once = 4
    include_tags = ["public"]
    exclude_tags = ["draft"]
    pass_headers = ["TraceParent"]
"""
Call = Callable[..., dict[str, Any]]


@pytest.fixture
def ostiary(home: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    program = Program(command=SOURCE, home=home)
    (home / "agent.py").write_text(dedent(AGENT), "utf-8")
    (home / "other.py").write_text(dedent(OTHER), "utf-8")
    (home / "ostiary.toml").write_text(dedent(SETTINGS), "utf-8")
    tokens = {"FULL": secrets.token_hex(32), "CAREFUL": secrets.token_hex(32)}
    environment = program.environment
    monkeypatch.setattr(program, "environment", lambda: environment(**tokens))
    return program


def calls_as(program: Program, server: Server, name: str) -> Call:
    bearer = {
        "Authorization": f"Bearer {program.environment()[name]}",
        "Cookie": "c=s3cret",
        "TraceParent": "00-1",
    }

    def call(tool: str, meta: dict[str, Any] | None = None, **arguments: Any) -> dict[str, Any]:
        return call_tool(server.endpoint, tool, arguments, meta, more=bearer)

    return call


def text_of(result: dict[str, Any]) -> str:
    return "".join(block["text"] for block in result["content"])


def test_a_file_knows_its_caller_and_what_else_there_is_but_no_more_than_the_caller_may(
    ostiary: Program,
) -> None:
    with ostiary.serving() as server:
        full, careful = (calls_as(ostiary, server, name) for name in ("FULL", "CAREFUL"))

        # Who calls: never a token, and of the headers only what was named.
        info = {"io.modelcontextprotocol/clientInfo": {"name": "probe\n", "version": "1.2"}}
        told = full("who", info)["structuredContent"]
        assert (told["client"], told["version"], told["program"]) == ("probe", "1.2", "full")
        assert told["scopes"]
        assert told["headers"] == {"traceparent": "00-1"}
        assert ostiary.environment()["FULL"] not in str(told)
        assert "s3cret" not in str(told)
        assert told["session"] == full("who")["structuredContent"]["session"]
        assert told["session"] != careful("who")["structuredContent"]["session"]

        # What is remembered is each caller's own.
        assert [text_of(call("count")) for call in (full, full, careful, full)] == ["1", "2", "1", "3"]

        # What is provided is no argument, and a text is taken for the number it says.
        assert full("convert", amount="21")["structuredContent"] == {"result": 42}
        assert full("convert", amount="2.5")["isError"]
        assert full("convert", amount=1, rate=9)["isError"]

        # An exception's text stays in the log.
        assert "s3cret" not in text_of(full("crash"))
        server.await_words("s3cret of the author's")

        # Other tools, with the caller's own rights.
        use_full, use_careful = partial(full, "use"), partial(careful, "use")
        assert text_of(use_full(what="danger")) == "boom"
        assert text_of(use_careful(what="danger")).startswith("NotFound: ")
        for hidden in ("draft", "untagged", "nothing"):
            assert text_of(use_full(what=hidden)).startswith("NotFound: "), hidden
        assert text_of(use_full(what="x_hello")) == "from the other file"
        assert text_of(use_full(what="convert")).startswith("ToolFailure: Invalid arguments.")
        assert text_of(use_full(what="asks")).startswith("CannotUse: ")
        assert text_of(full("prompted")) == "about tea"

        # Deep enough, and wide enough for more than has a place or a thread.
        deep = full("deeper")
        assert deep["isError"]
        assert text_of(deep) == "calls inside of calls go no deeper than 4"
        assert text_of(full("many")) == "n" * 20

        # What is opened is closed behind the last call of a process that was exchanged, and at the end.
        log = ostiary.home / "tmp" / "opened.log"
        assert log.read_text() == "opened\n"
        (ostiary.home / "other.py").write_text(
            dedent(OTHER.replace("from the other", "from another")), "utf-8"
        )
        server.await_words("agent.reloaded")
        until("the old process to close", lambda: log.read_text() == "opened\nopened\nclosed\n" or None)
        assert text_of(use_full(what="x_hello")) == "from another file"
        assert server.end(signal.SIGTERM) == 0
        assert log.read_text() == "opened\nopened\nclosed\nclosed\n"


def test_a_lifespan_that_cannot_begin_keeps_the_server_from_starting_or_the_old_one_at_work(
    ostiary: Program,
) -> None:
    file = ostiary.home / "agent.py"
    with ostiary.serving() as server:
        call = calls_as(ostiary, server, "FULL")
        file.write_text(
            file.read_text().replace(
                'with open("tmp/opened.log", "a") as log: log.write("opened\\n")', "1 / 0"
            ),
            "utf-8",
        )
        server.await_words("agent.not_reloaded")
        server.await_words("ZeroDivisionError: division by zero")
        assert text_of(call("use", what="x_hello")) == "from the other file"
    done = ostiary.run("serve", "--port", "0", "--data-dir", str(ostiary.data_dir), code=1)
    assert "ZeroDivisionError: division by zero" in done.stderr


def test_a_task_uses_what_its_caller_may_and_a_session_is_remembered_by_itself(ostiary: Program) -> None:
    with ostiary.serving() as server:
        tokens = {name: ostiary.environment()[name] for name in ("FULL", "CAREFUL")}
        full, careful = (Extension(Wire(url=server.endpoint, token=tokens[name])) for name in tokens)
        assert full.end(full.begin("later", "danger")) == Ended("completed", "boom for full")
        refused = careful.end(careful.begin("later", "danger"))
        assert "danger" in refused.text
        assert "boom" not in refused.text

        one, two = (
            Wire(url=server.endpoint, token=tokens["FULL"], version="2025-11-25", capabilities={"roots": {}})
            for _ in range(2)
        )
        for wire in (one, two):
            wire.begin_session()
        told = [
            text_of(wire.call("named", name).result) for wire, name in ((one, "a"), (one, "b"), (two, "a"))
        ]
        assert told == ["tests 1 1 True", "tests 1 2 True", "tests 1 1 True"]
        for wire in (one, two, full.wire, careful.wire):
            wire.close()
