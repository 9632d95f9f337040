"""What a function says to its caller and asks of it, on the line: the same for async and sync functions."""

from __future__ import annotations

from typing import Any

import pytest
from shim_child import Child, Serve

TOOLS = """
from __future__ import annotations
import datetime as dt, enum
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Optional, TypedDict
from ostiary import *

class Size(enum.Enum):
    S = "small"
    L = "large"

@dataclass
class Order:
    name: Annotated[str, Param("Your name", min_length=1)]
    size: Size
    count: int = 1
    day: Optional[dt.date] = None
    extras: list[Literal["milk", "sugar"]] = None

class Login(TypedDict):
    user: str

@dataclass
class Nested:
    order: Order

FORM = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}

@tool
ASYNC def report(ctx: CONTEXT) -> str:
    AWAIT ctx.progress(0.5, 1, "half")
    AWAIT ctx.info({"a": dt.date(2026, 1, 2)})
    AWAIT ctx.debug("hidden")
    AWAIT ctx.log("error", "bad", logger="me")
    AWAIT ctx.close_stream()
    return f"{ctx.subject} {ctx.call_id} {ctx.can('roots')} {ctx.cancelled}"

@tool
ASYNC def by_name(ctx, context: str = "c") -> str:
    AWAIT ctx.progress(1)
    return context

@tool
ASYNC def order(ctx: CONTEXT) -> Any:
    answer = AWAIT ctx.elicit("What would you like?", Order)
    return repr(answer.content) if answer.accepted else answer.action

@tool
ASYNC def three(ctx: CONTEXT) -> Any:
    first = AWAIT ctx.elicit("How many?", int)
    second = AWAIT ctx.elicit("Who?", Login, key="login")
    third = AWAIT ctx.elicit("Sure?", FORM)
    page = AWAIT ctx.elicit_url("Sign in", "https://example.org/")
    return repr([first.content, second.content, third.content, page.action])

@tool
ASYNC def model(ctx: CONTEXT) -> Any:
    said = AWAIT ctx.sample("Capital?", max_tokens=100, system_prompt="Be short", temperature=0)
    folders = AWAIT ctx.roots()
    return f"{said.text} {said.model} {said.stop_reason} {folders[0].uri}"

@tool
ASYNC def at_once(ctx: CONTEXT) -> Any:
    answers = AWAIT ctx.ask({
        "who": elicitation("Who?", str),
        "what": sampling([user("a"), assistant("b")], max_tokens=5),
        "where": roots(),
        "page": elicitation_url("Look", "https://example.org/"),
    })
    return repr([answers["who"].content, answers["what"].text, len(answers["where"]), answers["page"].accepted])

@tool
ASYNC def twice(ctx: CONTEXT) -> Any:
    AWAIT ctx.elicit("One", str, key="k")
    AWAIT ctx.elicit("Two", str, key="k")

@tool
ASYNC def rescue(ctx: CONTEXT) -> Any:
    try:
        AWAIT ctx.elicit("?", str)
    except CannotAsk as error:
        return f"without: {error}"

@tool
ASYNC def nested(ctx: CONTEXT) -> Any:
    AWAIT ctx.elicit("?", Nested)

@tool
ASYNC def steps(ctx: CONTEXT) -> Any:
    done = ctx.resumed or []
    AWAIT ctx.checkpoint([*done, len(done)])
    task = AWAIT ctx.become_task()
    return f"{done} {task}"

@tool
ASYNC def wrong_progress(ctx: CONTEXT) -> Any:
    AWAIT ctx.progress("half")

kept = []
@tool
ASYNC def keep(ctx: CONTEXT) -> Any:
    kept.append(ctx)

@tool
ASYNC def reuse() -> Any:
    AWAIT kept[0].close_stream()
"""


@pytest.fixture(params=["async", "sync"])
def child(request: pytest.FixtureRequest, serve: Serve) -> Child:
    if request.param == "async":
        return serve(TOOLS.replace("ASYNC", "async").replace("AWAIT", "await").replace("CONTEXT", "Context"))
    return serve(TOOLS.replace("ASYNC ", "").replace("AWAIT ", "").replace("CONTEXT", "SyncContext"))


def answer(child: Child, call: int, **answers: Any) -> dict[str, Any]:
    """Waits for the question with these keys, answers it, and returns what was asked."""
    asked = child.hear()
    assert asked["event"] == "ask", asked
    assert list(asked["questions"]) == list(answers)
    child.tell({"do": "answer", "id": call, "ask": asked["ask"], "answers": answers})
    return asked["questions"]


def accepted(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


def final_text(child: Child, call: int) -> str:
    event = child.end(call)
    assert event["event"] == "final", event
    return event["result"]["content"][0]["text"]


def test_progress_and_messages_that_the_caller_wants_are_sent_in_order(child: Child) -> None:
    call = child.start("report", progress=True, level="info", can=["roots"])
    assert child.hear() == {"event": "progress", "id": call, "progress": 0.5, "total": 1, "message": "half"}
    assert child.hear() == {"event": "message", "id": call, "level": "info", "data": {"a": "2026-01-02"}}
    assert child.hear() == {"event": "message", "id": call, "level": "error", "data": "bad", "logger": "me"}
    assert child.hear() == {"event": "close_stream", "id": call}
    assert final_text(child, call) == "ada c1 True False"


def test_what_the_caller_does_not_want_is_not_sent(child: Child) -> None:
    call = child.start("report")
    assert child.hear()["event"] == "close_stream"
    assert final_text(child, call) == "ada c1 False False"


def test_the_context_is_found_by_its_name_where_it_has_no_hint(child: Child) -> None:
    call = child.start("by_name", {"context": "mine"}, progress=True)
    assert child.hear()["progress"] == 1
    assert final_text(child, call) == "mine"


def test_a_form_is_made_of_a_type_and_its_answer_becomes_one(child: Child) -> None:
    call = child.start("order")
    content = {"name": "Ada", "size": "large", "day": "2026-01-02", "extras": ["milk"]}
    asked = answer(child, call, **{"ask-1": accepted(**content)})["ask-1"]
    assert asked == {
        "method": "elicitation/create",
        "params": {
            "message": "What would you like?",
            "requestedSchema": {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "description": "Your name", "minLength": 1},
                    "size": {"type": "string", "enum": ["small", "large"]},
                    "count": {"type": "integer", "default": 1},
                    "day": {"type": "string", "format": "date"},
                    "extras": {"type": "array", "items": {"type": "string", "enum": ["milk", "sugar"]}},
                },
                "required": ["name", "size"],
            },
        },
    }
    assert final_text(child, call) == (
        "Order(name='Ada', size=<Size.L: 'large'>, count=1, day=datetime.date(2026, 1, 2), extras=['milk'])"
    )


def test_what_a_client_adds_to_a_form_is_left_out(child: Child) -> None:
    call = child.start("order")
    answer(child, call, **{"ask-1": accepted(name="Ada", size="large", theme="dark")})
    assert final_text(child, call).startswith("Order(name='Ada'")


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_who_does_not_accept_gives_no_content(child: Child, action: str) -> None:
    call = child.start("order")
    answer(child, call, **{"ask-1": {"action": action}})
    assert final_text(child, call) == action


def test_an_answer_that_does_not_become_the_type_fails_the_tool_with_the_reason(child: Child) -> None:
    call = child.start("order")
    answer(child, call, **{"ask-1": accepted(name="Ada", size="small", day="someday")})
    assert final_text(child, call) == "the answer does not fit: day: not a date"


def test_questions_are_named_by_their_order_unless_they_have_a_key(child: Child) -> None:
    call = child.start("three")
    asked = answer(child, call, **{"ask-1": accepted(value=3)})["ask-1"]
    assert asked["params"]["requestedSchema"] == {
        "type": "object", "properties": {"value": {"type": "integer"}}, "required": ["value"],
    }  # fmt: skip
    answer(child, call, login=accepted(user="ada"))
    answer(child, call, **{"ask-2": accepted(ok=True)})
    page = answer(child, call, **{"ask-3": {"action": "accept"}})["ask-3"]
    assert page["params"] == {"mode": "url", "message": "Sign in", "url": "https://example.org/"}
    assert final_text(child, call) == "[3, {'user': 'ada'}, {'ok': True}, 'accept']"


def test_the_client_s_model_and_roots_are_asked(child: Child) -> None:
    call = child.start("model")
    content = {"type": "text", "text": "Paris"}
    sampled = {"role": "assistant", "content": content, "model": "m", "stopReason": "endTurn"}
    asked = answer(child, call, **{"ask-1": sampled})["ask-1"]
    assert asked == {
        "method": "sampling/createMessage",
        "params": {
            "messages": [{"role": "user", "content": {"type": "text", "text": "Capital?"}}],
            "maxTokens": 100,
            "systemPrompt": "Be short",
            "temperature": 0,
        },
    }
    listed = answer(child, call, **{"ask-2": {"roots": [{"uri": "file:///a", "name": "A"}]}})["ask-2"]
    assert listed == {"method": "roots/list", "params": {}}
    assert final_text(child, call) == "Paris m endTurn file:///a"


def test_several_questions_are_asked_at_once(child: Child) -> None:
    call = child.start("at_once")
    asked = answer(
        child,
        call,
        who=accepted(value="Ada"),
        what={"role": "assistant", "content": [{"type": "text", "text": "x"}, {"type": "text", "text": "y"}]},
        where={"roots": []},
        page={"action": "decline"},
    )
    assert [message["role"] for message in asked["what"]["params"]["messages"]] == ["user", "assistant"]
    assert final_text(child, call) == "['Ada', 'xy', 0, False]"


def test_a_key_is_asked_for_once(child: Child) -> None:
    call = child.start("twice")
    answer(child, call, k=accepted(value="a"))
    assert child.end(call)["message"].startswith("ValueError: the key 'k' has been asked for in this call")


def test_a_client_that_cannot_be_asked_is_an_error_the_function_may_handle(child: Child) -> None:
    for tool, expected in (("rescue", "without: it lacks elicitation"), ("order", None)):
        call = child.start(tool)
        asked = child.hear()
        child.tell({"do": "refuse", "id": call, "ask": asked["ask"], "reason": "it lacks elicitation"})
        if expected:
            assert final_text(child, call) == expected
        else:
            assert child.end(call) == {
                "event": "error", "kind": "refused", "message": "it lacks elicitation", "id": call,
            }  # fmt: skip


def test_a_form_that_cannot_be_is_refused_with_the_field(child: Child) -> None:
    event = child.end(child.start("nested"))
    assert event["message"] == (
        "Misuse: a form asks for text, numbers, booleans and choices: the field 'order' is none of these"
    )


def test_a_checkpoint_returns_when_it_is_kept_and_a_later_run_finds_it(child: Child) -> None:
    call = child.start("steps", resumed=[0])
    saved = child.hear()
    assert (saved["event"], saved["data"]) == ("checkpoint", [0, 1])
    child.tell({"do": "done", "id": call, "ask": saved["ask"]})
    become = child.hear()
    assert become["event"] == "become_task"
    assert become["ask"] != saved["ask"]
    child.tell({"do": "became", "id": call, "ask": become["ask"], "task": True})
    assert final_text(child, call) == "[0] True"


def test_progress_is_told_in_numbers(child: Child) -> None:
    event = child.end(child.start("wrong_progress", progress=True))
    assert event["message"] == "TypeError: progress is told in numbers, not 'half'"


def test_a_context_is_of_no_use_after_its_call(child: Child) -> None:
    child.call("keep")
    event = child.end(child.start("reuse"))
    assert event["message"] == "RuntimeError: this call is over: its context cannot be used any more"


def test_a_plain_decorator_around_an_async_function_leaves_it_async(serve: Serve) -> None:
    child = serve("""
        import functools
        from ostiary import Context, tool
        def traced(function):
            @functools.wraps(function)
            def inner(*args, **kwargs):
                return function(*args, **kwargs)
            return inner
        @tool
        @traced
        async def work(n: int, ctx: Context) -> int:
            await ctx.progress(n)
            return n
        tool(name="partial")(functools.partial(work, n=4))
        class Adder:
            "Adds."
            def __call__(self, a: int) -> int:
                return a + 1
        tool(Adder())
        tool(name="late")(lambda: work(5, Nobody()))
        class Nobody:
            async def progress(self, n): ...
    """)
    call = child.start("work", {"n": 3}, progress=True)
    assert child.hear()["progress"] == 3
    assert final_text(child, call) == "3"
    assert child.text("partial") == "4"
    assert child.text("Adder", {"a": 1}) == "2"
    assert child.text("late") == "5"


def test_the_blocking_context_in_the_loop_is_refused_instead_of_waiting_for_itself(serve: Serve) -> None:
    child = serve("""
        from ostiary import SyncContext, tool
        contexts = []
        import threading
        go = threading.Event()
        @tool
        def hold(ctx: SyncContext):
            contexts.append(ctx)
            go.wait(60)
        @tool
        async def misuse():
            while not contexts:
                import asyncio
                await asyncio.sleep(0)
            try:
                contexts[0].close_stream()
            finally:
                go.set()
    """)
    held, misused = child.start("hold"), child.start("misuse")
    ends = {event["id"]: event for event in (child.hear(), child.hear())}  # two calls, which end in any order
    assert ends[misused]["message"].startswith("RuntimeError: this context blocks")
    assert ends[held]["event"] == "final"


def test_failures_inside_a_task_group_are_what_their_author_raised(serve: Serve) -> None:
    child = serve("""
        import asyncio
        from ostiary import ToolFailure, tool
        async def fail(): raise ToolFailure("from within")
        @tool
        async def work():
            async with asyncio.TaskGroup() as group:
                group.create_task(fail())
    """)
    assert child.call("work") == {"content": [{"type": "text", "text": "from within"}], "isError": True}
