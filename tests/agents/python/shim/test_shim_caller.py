"""What a function knows of its caller, remembers of a conversation, and uses of its own server; the same for async and sync functions."""

from __future__ import annotations

from typing import Any

import pytest
from shim_child import Child, Serve

TOOLS = """
from __future__ import annotations
from typing import Any
from ostiary import *

@tool
ASYNC def who(ctx: CONTEXT) -> dict:
    claims = ctx.claims
    return {
        "client": [ctx.client.name, ctx.client.version, sorted(ctx.client.capabilities)],
        "scopes": sorted(ctx.scopes), "headers": dict(ctx.headers), "session": ctx.session_id, "request": ctx.request_id,
        "claims": [claims.subject, claims.kind, claims.person, claims.program, claims.client_id],
    }

@tool
ASYNC def count(ctx: CONTEXT) -> int:
    ctx.state["n"] = ctx.state.get("n", 0) + 1
    return ctx.state["n"]

@tool
ASYNC def fill(ctx: CONTEXT) -> Any:
    for number in range(257):
        ctx.state[str(number)] = number

@tool
ASYNC def forget(ctx: CONTEXT) -> list:
    ctx.state["a"] = 1
    names = list(ctx.state)
    del ctx.state["a"]
    return [" ".join(names), str(len(ctx.state)), str(ctx.lifespan)]

@tool
ASYNC def calls(ctx: CONTEXT) -> str:
    answer = AWAIT ctx.call_tool("other", {"n": 1})
    return f"{answer.text} {answer.structured} {len(answer.content)}"

@tool
ASYNC def rescues(ctx: CONTEXT) -> str:
    found = []
    for number in range(3):
        try:
            AWAIT ctx.call_tool("other")
        except (ToolFailure, CannotUse, NotFound) as error:
            found.append(f"{type(error).__name__} {error}")
    return "; ".join(found)

@tool
ASYNC def reads(ctx: CONTEXT) -> str:
    text, data = AWAIT ctx.read_resource("test://x")
    return f"{text.uri} {text.mime_type} {text.text} {text.data!r} {data.text} {data.data!r}"

@tool
ASYNC def prompts(ctx: CONTEXT) -> Any:
    return AWAIT ctx.get_prompt("ask", {"topic": "tea"})
"""
CALLER = {
    "kind": "user",
    "person": "Ada",
    "program": "laptop",
    "client_id": "c-1",
    "scopes": ["mcp:tools", "admin"],
    "client_name": "claude",
    "client_version": "1.2",
    "session": "s-1",
}


@pytest.fixture(params=["async", "sync"])
def child(request: pytest.FixtureRequest, serve: Serve) -> Child:
    if request.param == "async":
        return serve(TOOLS.replace("ASYNC", "async").replace("AWAIT", "await").replace("CONTEXT", "Context"))
    return serve(
        TOOLS.replace("ASYNC ", "").replace("AWAIT ", "").replace("CONTEXT", "SyncContext"), "--threads", "1"
    )


def reply(child: Child, call: int, do: str, **fields: Any) -> dict[str, Any]:
    asked = child.hear()
    assert (asked["event"], asked["id"]) == ("use", call), asked
    child.tell({"do": do, "id": call, "ask": asked["ask"], **fields})
    return {name: asked[name] for name in ("what", "name", "arguments")}


def test_a_function_knows_who_calls(child: Child) -> None:
    told = child.call("who", caller=CALLER, headers={"traceparent": "00-1"}, can=["roots"])
    assert told["structuredContent"] == {
        "client": ["claude", "1.2", ["roots"]],
        "scopes": ["admin", "mcp:tools"],
        "headers": {"traceparent": "00-1"},
        "session": "s-1",
        "request": "c1",
        "claims": ["ada", "user", "Ada", "laptop", "c-1"],
    }


def test_of_a_caller_of_whom_nothing_is_told_it_knows_nothing(child: Child) -> None:
    assert child.call("who")["structuredContent"] == {
        "client": ["", "", []],
        "scopes": [],
        "headers": {},
        "session": None,
        "request": "c1",
        "claims": ["ada", "", "", "", None],
    }


def test_a_conversation_is_remembered_and_others_are_not_mixed_up_with_it(child: Child) -> None:
    def count(session: str) -> str:
        return child.text("count", caller={"session": session})

    assert [count("a"), count("a"), count("b"), count("a")] == ["1", "2", "1", "3"]
    assert [count(""), count("")] == ["1", "1"]  # nobody knows whose they are


def test_what_is_remembered_is_bounded(child: Child) -> None:
    first = child.text("count", caller={"session": "first"})
    assert first == "1"
    for number in range(1000):
        child.text("count", caller={"session": f"s{number}"})
    assert child.text("count", caller={"session": "first"}) == "1"  # forgotten
    assert child.text("count", caller={"session": "s999"}) == "2"
    message = child.end(child.start("fill"))["message"]
    assert message == "ValueError: the state of one conversation holds no more than 256 names"
    texts = [block["text"] for block in child.call("forget")["content"]]
    assert texts == ["a", "0", "None"]


def test_a_function_calls_another_tool_of_the_server(child: Child) -> None:
    call = child.start("calls")
    result = {"content": [{"type": "text", "text": "yes"}], "structuredContent": {"n": 2}, "isError": False}
    assert reply(child, call, "used", result=result) == {
        "what": "tool",
        "name": "other",
        "arguments": {"n": 1},
    }
    assert child.end(call)["result"]["content"][0]["text"] == "yes {'n': 2} 1"


def test_what_another_tool_says_of_its_failure_reaches_the_model_unless_it_is_caught(child: Child) -> None:
    call = child.start("calls")
    reply(child, call, "used", result={"content": [{"type": "text", "text": "no tea"}], "isError": True})
    assert child.end(call)["result"] == {"content": [{"type": "text", "text": "no tea"}], "isError": True}
    call = child.start("calls")
    reply(child, call, "not_used", reason="it is not for you")
    assert child.end(call)["result"] == {
        "content": [{"type": "text", "text": "it is not for you"}],
        "isError": True,
    }
    call = child.start("calls")
    reply(child, call, "not_used", reason="no such tool", missing=True)
    ended = child.end(call)
    assert (ended["kind"], ended["message"]) == ("failed", "no such tool")
    call = child.start("rescues")
    reply(child, call, "used", result={"content": [{"type": "text", "text": "no tea"}], "isError": True})
    reply(child, call, "not_used", reason="it is not for you", missing=False)
    reply(child, call, "not_used", reason="no such tool", missing=True)
    text = child.end(call)["result"]["content"][0]["text"]
    assert text == "ToolFailure no tea; CannotUse it is not for you; NotFound no such tool"


def test_a_function_reads_and_fills_in(child: Child) -> None:
    call = child.start("reads")
    parts = [
        {"uri": "test://x", "mimeType": "text/plain", "text": "é"},
        {"uri": "test://x", "mimeType": "a/b", "blob": "AAE="},
    ]
    assert reply(child, call, "used", result={"contents": parts})["what"] == "resource"
    text = child.end(call)["result"]["content"][0]["text"]
    assert text == r"test://x text/plain é b'\xc3\xa9' None b'\x00\x01'"
    call = child.start("prompts")
    messages = [{"role": "user", "content": {"type": "text", "text": "about tea"}}]
    assert reply(child, call, "used", result={"messages": messages})["arguments"] == {"topic": "tea"}
    assert child.end(call)["result"]["structuredContent"] == {"result": messages}


def test_a_plain_function_that_waits_for_another_leaves_its_thread_to_it(serve: Serve) -> None:
    child = serve(
        TOOLS.replace("ASYNC ", "").replace("AWAIT ", "").replace("CONTEXT", "SyncContext"), "--threads", "1"
    )
    outer = child.start("calls")
    asked = child.hear()
    assert child.text("count") == "1"  # in a second thread, though there is to be one
    child.tell({"do": "used", "id": outer, "ask": asked["ask"], "result": {"content": []}})
    assert child.end(outer)["event"] == "final"


def test_only_functions_that_ask_are_told_who_calls(serve: Serve, children: Any, tmp_path: Any) -> None:
    file = tmp_path / "curious.py"
    file.write_text(
        "from ostiary import *\n@tool\ndef no(): ...\n@tool\ndef yes(ctx): ...\n@tool\nasync def also(c: Context): ...\n",
        "utf-8",
    )
    tools = children.enter_context(Child(file)).hear()["catalog"]["tools"]
    assert [tool.get("wantsCaller") for tool in tools] == [None, True, True]
