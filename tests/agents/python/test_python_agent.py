"""A Python agent as its owner writes it, through the package that it imports and an interpreter of its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

from server.agents.base.backend import (
    Completing,
    NoSuchResource,
    PromptGet,
    ProtocolFailure,
    ResourceRead,
    ToolCall,
)
from server.agents.base.catalog import Source
from server.mcp.call_failures import BackendError, CannotAsk, NotAnswered, Paused
from server.mcp.call_outlet import LogMessage, Progress
from server.mcp.call_questions import Question
from tests.agents.python.python_pair import REAL, Caller, at_work, soon, text_of
from tests.interaction.agents import house

AGENT = '''
import asyncio, os, threading, time
from ostiary import (
    Context, NotFound, ProtocolError, ToolFailure, add_tool, completion, prompt, resource, tool, updated,
)

print("loaded")

@tool
def greet(name: str) -> str:
    """Greets somebody."""
    return f"Hello, {name}!"

@tool
async def count(to: int, ctx: Context) -> dict:
    for done in range(to):
        await ctx.progress(done, to)
    await ctx.info({"counted": to})
    return {"to": to}

@tool
async def who(ctx: Context) -> str:
    answer = await ctx.elicit("Who?", {"type": "object", "properties": {"name": {"type": "string"}}})
    return f"{answer.action}: {answer.content}"

@tool
def fail(how: str) -> str:
    if how == "protocol":
        raise ProtocolError("gone", 1404, {"at": 1})
    if how == "tool":
        raise ToolFailure("not today")
    if how == "crash":
        os.abort()
    raise ValueError("a secret of the author's")

@tool(deadline=0.2)
async def slow() -> str:
    updated("test://slow-began")
    try:
        await asyncio.sleep(1000)
    finally:
        updated("test://slow-ended")

@tool(task="by_hand")
async def later(ctx: Context) -> str:
    await ctx.checkpoint({"step": 1})
    return f"{await ctx.become_task()} after {ctx.resumed}"

@tool
def learn(name: str) -> str:
    add_tool(lambda: name, name=name)
    return "learnt"

@tool
def pid() -> str:
    return str(os.getpid())

@resource("test://{id}")
def item(id: str) -> str:
    if id == "9":
        raise NotFound(id)
    return f"item {id}"

@prompt
def review(code: str) -> str:
    """Reviews code."""
    return f"Review {code}"

@completion("review", "code")
def complete_code(value: str) -> list:
    return [each for each in ("python", "perl") if each.startswith(value)]
'''
WHO: dict[str, Any] = {"subject": "user-1", "call_id": "call-7"}


async def test_a_decorated_function_is_a_tool(tmp_path: Path) -> None:
    async with at_work(tmp_path, AGENT, shim=REAL) as work:
        tools = {tool.name: tool for tool in work.backend.tools()}
        assert tools["greet"].description == "Greets somebody."
        assert await work.say("greet", name="Ada") == "Hello, Ada!"
        await soon(lambda: [event["line"] for event in work.log.of("agent.said")] == ["loaded"])


async def test_a_function_tells_asks_and_keeps(tmp_path: Path) -> None:
    async def answer(_: Mapping[str, Question]) -> Mapping[str, Mapping[str, Any]]:
        return {key: {"action": "accept", "content": {"name": "Ada"}} for key in _}

    async with at_work(tmp_path, AGENT, shim=REAL) as work:
        caller = Caller(answer, becomes_task=True)
        able: dict[str, Any] = {
            "can": frozenset({"elicitation"}),
            "wants_progress": True,
            "log_level": "info",
            "resumed": "x",
            **WHO,
        }
        call = ToolCall(tool="count", arguments={"to": 3}, **able)
        assert (await work.backend.call(call, caller)).structured == {"to": 3}
        assert [event for event in caller.events if isinstance(event, Progress)][-1].total == 3
        assert [event.data for event in caller.events if isinstance(event, LogMessage)] == [{"counted": 3}]
        asked = await work.backend.call(ToolCall(tool="who", arguments={}, **able), caller)
        assert text_of(asked) == "accept: {'name': 'Ada'}"
        later = await work.backend.call(ToolCall(tool="later", arguments={}, **able), caller)
        assert text_of(later) == "True after x"
        assert caller.kept == [{"step": 1}]


async def test_who_cannot_be_asked_or_is_asked_later_gets_exactly_that(tmp_path: Path) -> None:
    given = CannotAsk("no forms here", {"elicitation": {}})

    async def refuse(_: Mapping[str, Question]) -> Mapping[str, Mapping[str, Any]]:
        raise given

    async def pause(_: Mapping[str, Question]) -> Mapping[str, Mapping[str, Any]]:
        raise Paused

    call = ToolCall(tool="who", arguments={}, can=frozenset({"elicitation"}), **WHO)
    async with at_work(tmp_path, AGENT, shim=REAL, calls_at_once=1) as work:
        with pytest.raises(CannotAsk) as raised:
            await work.backend.call(call, Caller(refuse))
        assert raised.value is given
        for _ in range(3):  # each gives its place back
            with pytest.raises(Paused):
                await work.backend.call(call, Caller(pause))
        assert await work.say("greet", name="Ada") == "Hello, Ada!"


async def test_what_goes_wrong_in_a_function_is_told_as_what_it_is(tmp_path: Path) -> None:
    async with at_work(tmp_path, AGENT, shim=REAL) as work:
        failed = await work.call("fail", how="tool")
        assert (failed.is_error, text_of(failed)) == (True, "not today")
        with pytest.raises(ProtocolFailure) as raised:
            await work.call("fail", how="protocol")
        assert (raised.value.code, raised.value.data) == (1404, {"at": 1})
        before = await work.say("pid")
        with pytest.raises(BackendError, match="SIGABRT"):
            await work.call("fail", how="crash")
        assert await work.say("pid") != before


async def test_a_late_function_is_cancelled(tmp_path: Path) -> None:
    async with at_work(tmp_path, AGENT, shim=REAL) as work:
        assert work.backend.deadline("slow") == 0.2  # which is for whoever calls it to keep

        async def keep() -> None:
            await soon(lambda: "test://slow-began" in work.updated)
            late.cancel()

        with trio.CancelScope() as late:
            work.nursery.start_soon(keep)
            await work.call("slow")
        assert late.cancelled_caught
        await soon(lambda: "test://slow-ended" in work.updated)


async def test_resources_prompts_and_completions_come_from_functions(tmp_path: Path) -> None:
    async with at_work(tmp_path, AGENT, shim=REAL) as work:
        backend = work.backend
        (template,) = backend.resource_templates()
        read: dict[str, Any] = {"template": template.uri_template, **WHO}
        (contents,) = await backend.read(
            ResourceRead(uri="test://1", arguments={"id": "1"}, **read), Caller()
        )
        assert (contents.uri, contents.text) == ("test://1", "item 1")
        with pytest.raises(NoSuchResource):
            await backend.read(ResourceRead(uri="test://9", arguments={"id": "9"}, **read), Caller())
        (prompt,) = backend.prompts()
        got = await backend.get_prompt(
            PromptGet(prompt=prompt.name, arguments={"code": "x"}, **WHO), Caller()
        )
        assert len(got.messages) == 1
        assert ("prompt", "review") in backend.completes()
        asked = Completing(ref="prompt", name="review", argument="code", value="py", **WHO)
        assert (await backend.complete(asked)).values == ["python"]


LIBRARY = """
from enum import Enum
from typing import Literal
from ostiary import NotFound, prompt, resource

class Size(Enum):
    S = "small"
    L = "large"

@prompt
def review(code: str, style: Literal["short", "long"] = "short") -> str:
    return f"Review {code}"

@resource("test://{id}/{size}")
def item(id: str, size: Size):
    if id == "none":
        return None
    if id == "bare":
        raise NotFound
    raise NotFound(f"{id} has written nothing" if id != "long" else "x" * 9000)
"""


async def test_the_choices_of_a_hint_reach_who_asks_for_them(tmp_path: Path) -> None:
    async with at_work(tmp_path, LIBRARY, shim=REAL) as work:
        pair = house(Source(name="main[1]", backend=work.backend)).pair

        async def complete(ref: dict[str, str], name: str, value: str) -> list[str]:
            asked = {"ref": ref, "argument": {"name": name, "value": value}}
            return (await pair.modern("completion/complete", asked)).json["result"]["completion"]["values"]

        prompt = {"type": "ref/prompt", "name": "review"}
        assert await complete(prompt, "style", "") == ["short", "long"]
        assert await complete(prompt, "style", "l") == ["long"]
        assert await complete(prompt, "code", "") == []
        template = {"type": "ref/resource", "uri": "test://{id}/{size}"}
        assert await complete(template, "size", "") == ["small", "large"]
        assert await complete(template, "id", "") == []


async def test_what_an_author_says_of_what_is_not_found_reaches_who_reads_it(tmp_path: Path) -> None:
    async with at_work(tmp_path, LIBRARY, shim=REAL) as work:
        pair = house(Source(name="main[1]", backend=work.backend)).pair

        async def error(uri: str) -> dict[str, Any]:
            return (await pair.modern("resources/read", {"uri": uri})).json["error"]

        assert await error("test://ada/small") == {
            "code": -32602,
            "message": "ada has written nothing",
            "data": {"uri": "test://ada/small"},
        }
        assert (await error("test://long/small"))["message"].startswith("xxx")
        assert len((await error("test://long/small"))["message"]) == 2000
        for uri in ("test://none/small", "test://bare/small", "elsewhere://x"):
            assert await error(uri) == {"code": -32602, "message": "resource not found", "data": {"uri": uri}}


async def test_a_tool_that_is_added_at_run_time_is_announced_and_can_be_called(tmp_path: Path) -> None:
    async with at_work(tmp_path, AGENT, shim=REAL) as work:
        assert await work.say("learn", name="dance") == "learnt"
        await soon(lambda: work.changes)
        assert await work.say("dance") == "dance"


async def test_an_edited_import_is_loaded_and_a_broken_one_is_not(tmp_path: Path) -> None:
    helper = tmp_path / "helper.py"
    helper.write_text("WORD = 'one'", "utf-8")
    agent = "import helper\ndef word() -> str:\n    return helper.WORD\n"
    async with at_work(tmp_path, agent, shim=REAL) as work:
        assert await work.say("word") == "one"
        helper.write_text("WORD = 'two, and longer'", "utf-8")
        await soon(lambda: work.log.of("agent.reloaded"))
        assert await work.say("word") == "two, and longer"
        helper.write_text("WORD = ", "utf-8")
        await soon(lambda: work.log.of("agent.not_reloaded"))
        assert "helper.py:1: SyntaxError" in work.log.of("agent.not_reloaded")[0]["reason"]
        assert await work.say("word") == "two, and longer"
        assert work.changes == 0


async def test_a_file_that_cannot_be_loaded_is_an_error_at_the_start(tmp_path: Path) -> None:
    with pytest.RaisesGroup(
        pytest.RaisesExc(BackendError, match="cannot be loaded: agent.py:1: .*no_such_thing"),
        flatten_subgroups=True,
    ):
        async with at_work(tmp_path, "import no_such_thing", shim=REAL):
            raise AssertionError("it must not start")


async def test_a_module_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "company").mkdir()
    async with at_work(
        tmp_path / "company", "def hello() -> str:\n    return 'hello'\n", shim=REAL, module="company.agent"
    ) as work:
        assert await work.say("hello") == "hello"


async def test_the_child_ends_when_nobody_is_left_to_hear_it(tmp_path: Path) -> None:
    async with at_work(tmp_path, AGENT, shim=REAL) as work:
        pid = int(await work.say("pid"))
    with trio.fail_after(60):
        await soon(lambda: not Path(f"/proc/{pid}").exists())


async def test_in_process_it_is_the_same_agent_in_a_thread(tmp_path: Path) -> None:
    import os

    async with at_work(tmp_path, AGENT, shim=REAL, name="threaded_agent.py", in_process=True) as work:
        assert await work.say("pid") == str(os.getpid())
        assert await work.say("greet", name="Ada") == "Hello, Ada!"
        with trio.move_on_after(0.2) as late:
            await work.call("slow")
        assert late.cancelled_caught


async def test_in_process_a_file_that_cannot_be_loaded_is_an_error_too(tmp_path: Path) -> None:
    with pytest.RaisesGroup(pytest.RaisesExc(BackendError, match="no_such_thing"), flatten_subgroups=True):
        async with at_work(tmp_path, "import no_such_thing", shim=REAL, in_process=True):
            raise AssertionError("it must not start")


async def test_every_text_that_a_generator_yields_is_shown(tmp_path: Path) -> None:
    script = """
    from ostiary import tool

    @tool
    def hurries():
        for number in range(300):
            yield f"{number},"

    @tool
    async def too():
        for number in range(300):
            yield f"{number},"
    """
    async with at_work(tmp_path, script, shim=REAL) as work:
        for name in ("hurries", "too"):
            caller = Caller()
            asked = ToolCall(tool=name, arguments={}, subject="u", call_id="c", wants_progress=True)
            answer = text_of(await work.backend.call(asked, caller))
            pieces = [event.message or "" for event in caller.events if isinstance(event, Progress)]
            assert "".join(pieces) == answer == "".join(f"{number}," for number in range(300))


async def test_a_function_whose_question_was_refused_may_go_on_without(tmp_path: Path) -> None:
    script = """
    from ostiary import CannotAsk, Context, NotAnswered, SyncContext, tool

    @tool
    async def copes(ctx: Context):
        try:
            return (await ctx.sample("Well?")).text
        except NotAnswered as error:
            return f"without: {error}"

    @tool
    def also(ctx: SyncContext):
        try:
            return str(ctx.roots())
        except CannotAsk as error:
            return f"without: {error}"

    @tool
    async def does_not(ctx: Context):
        return (await ctx.elicit("Well?", bool)).content
    """

    async def refuse(_: Mapping[str, Question]) -> Mapping[str, Mapping[str, Any]]:
        raise NotAnswered("the user rejected the request")

    able = frozenset({"sampling", "roots", "elicitation"})
    async with at_work(tmp_path, script, shim=REAL) as work:
        for name in ("copes", "also"):
            call = ToolCall(tool=name, arguments={}, can=able, **WHO)
            assert (
                text_of(await work.backend.call(call, Caller(refuse)))
                == "without: the user rejected the request"
            )
        call = ToolCall(tool="does_not", arguments={}, can=able, **WHO)
        with pytest.raises(NotAnswered, match="the user rejected the request"):
            await work.backend.call(call, Caller(refuse))
