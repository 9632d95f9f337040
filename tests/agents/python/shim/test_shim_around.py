"""What is around a function: lifespan, providers, hooks, included files, and what a caller is told of an exception."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from shim_child import Child, Serve

LIFESPAN = """
    from typing import Annotated, Any
    from ostiary import *

    class Db:
        def __init__(self): self.open = True

    @lifespan
    async def opened():
        db = Db()
        print("opened", flush=True)
        try:
            yield db
        finally:
            db.open = False
            print("closed", flush=True)

    @tool
    async def by_context(ctx: Context) -> bool:
        return ctx.lifespan.open

    @tool
    def in_thread(ctx: SyncContext) -> bool:
        return ctx.lifespan.open

    @tool
    def by_provider(db: Annotated[Any, Provide(opened)]) -> bool:
        return db.open
"""


def test_what_a_file_opens_is_open_before_the_first_call_and_closed_at_the_end(serve: Serve) -> None:
    child = serve(LIFESPAN)
    assert [child.text(name) for name in ("by_context", "in_thread", "by_provider")] == ["true"] * 3
    child.hang_up()
    assert child.wait() == (0, "opened\nclosed\n")


@pytest.mark.parametrize(
    "text",
    [
        "@lifespan\ndef opened():\n    yield 7\n",
        "@lifespan\n@contextlib.contextmanager\ndef opened():\n    yield 7\n",
        "@lifespan\n@contextlib.asynccontextmanager\nasync def opened():\n    yield 7\n",
        "class Seven:\n    def __enter__(self): return 7\n    def __exit__(self, *_): pass\n@lifespan\ndef opened(): return Seven()\n",
    ],
    ids=["generator", "contextmanager", "asynccontextmanager", "object"],
)
def test_every_kind_of_manager_is_a_lifespan(serve: Serve, text: str) -> None:
    child = serve(
        f"import contextlib\nfrom ostiary import *\n{text}\n@tool\nasync def seven(ctx: Context) -> int:\n    return ctx.lifespan\n"
    )
    assert child.text("seven") == "7"


BROKEN = {
    "an error": (
        "@lifespan\nasync def opened():\n    raise OSError('no database')\n    yield\n",
        "agent.py:4: OSError: no database",
    ),
    "no yield": ("@lifespan\nasync def opened():\n    return 1\n", "the lifespan opened(): it yields once"),
    "a parameter": (
        "@lifespan\nasync def opened(server):\n    yield\n",
        "the lifespan opened(): it runs before anybody calls, and takes nothing",
    ),
    "two": (
        "@lifespan\ndef a():\n    yield\n@lifespan\ndef b():\n    yield\n",
        "the lifespan b(): a file has one lifespan",
    ),
    "a plain hook around": (
        "@around\ndef f(call, proceed): ...\n",
        "f() is to be an `async def f(call, proceed)`",
    ),
    "a provider as default": (
        "@tool\ndef f(x=Provide(print)): ...\n",
        "write x: Annotated[…, Provide(…)], without a default",
    ),
    "a provider that wants something": (
        "def p(y): ...\n@tool\ndef f(x: Annotated[int, Provide(p)]): ...\n",
        "the tool f(), 'x' is provided by p(): nobody fills y",
    ),
    "itself": ("include('agent.py')\n", "agent.py is included by what it includes"),
    "a missing file": ("include('gone.py')\n", "agent.py:2: FileNotFoundError"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_cannot_begin_is_told_like_an_error_of_the_file(
    tmp_path: Path, children: ExitStack, what: str
) -> None:
    text, words = BROKEN[what]
    file = tmp_path / "agent.py"
    file.write_text(
        f"from typing import Annotated; from ostiary import *\n{text}\n@tool\ndef t(): ...\n", "utf-8"
    )
    child = children.enter_context(Child(file))
    broken = child.hear()
    assert broken["event"] == "broken"
    assert words in broken["error"]
    assert str(file) in broken["files"]
    assert child.wait()[0] == 1


def test_what_was_open_is_closed_when_the_next_cannot_be(tmp_path: Path, children: ExitStack) -> None:
    (tmp_path / "other.py").write_text(
        "from ostiary import *\n@lifespan\ndef first():\n    print('open')\n    yield\n    print('closed')\n@tool\ndef t(): ...\n",
        "utf-8",
    )
    file = tmp_path / "agent.py"
    file.write_text(
        "from ostiary import *\ninclude('other.py')\n@lifespan\nasync def second():\n    1 / 0\n    yield\n",
        "utf-8",
    )
    child = children.enter_context(Child(file))
    assert child.hear()["error"] == "agent.py:5: ZeroDivisionError: division by zero"
    assert child.wait()[1].startswith("open\nclosed\n")


PROVIDED = """
    import asyncio, contextlib, threading
    from typing import Annotated, Any
    from ostiary import *

    log = []

    def plain(): log.append("plain"); return 1

    async def later(one: Annotated[int, Provide(plain)]):
        await asyncio.sleep(0)
        log.append("later")
        return one + 1

    def generator(two: Annotated[int, Provide(later)]):
        log.append("in")
        try:
            yield two + 1
        except ValueError:
            log.append("saw it")
            raise
        finally:
            log.append(f"out {threading.get_ident() == threads[-1]}")

    threads = []

    async def async_generator(ctx: Context):
        log.append("async in")
        yield ctx.subject
        log.append("async out")

    @contextlib.asynccontextmanager
    async def manager():
        yield "managed"

    Three = Annotated[int, Provide(generator)]
    One = Annotated[int, Provide(plain)]

    @tool
    ASYNC def all_of_them(a: int, three: Three, one: One, who: Annotated[str, Provide(async_generator)], m: Annotated[str, Provide(manager)]) -> str:
        threads.append(threading.get_ident())
        return f"{a} {one} {three} {who} {m}"

    @tool
    ASYNC def fails(three: Three):
        threads.append(threading.get_ident())
        raise ValueError("x")

    @tool
    ASYNC def streams(three: Three):
        threads.append(threading.get_ident())
        yield "a"
        log.append("between")
        yield "b"

    @tool
    ASYNC def anything(three: Three, **rest):
        threads.append(threading.get_ident())
        return f"{three} {sorted(rest)}"

    @prompt
    ASYNC def asks(one: One, topic: str):
        return f"{one} {topic}"

    @tool
    def logged() -> list:
        found, log[:] = list(log), []
        return [" ".join(found)]
"""


@pytest.fixture(params=["async", "sync"])
def provided(request: pytest.FixtureRequest, serve: Serve) -> Child:
    return serve(PROVIDED.replace("ASYNC ", "async " if request.param == "async" else ""))


def test_what_is_provided_is_no_argument_is_made_once_and_cleaned_up(provided: Child) -> None:
    assert provided.text("all_of_them", {"a": 9}) == "9 1 3 ada managed"
    assert provided.text("logged") == "plain later in async in async out out True"
    assert provided.text("streams") == "ab"
    assert provided.text("logged") == "plain later in between out True"


def test_what_is_provided_sees_why_the_function_failed(provided: Child) -> None:
    assert provided.end(provided.start("fails"))["message"].startswith("ValueError: what went wrong is in")
    assert provided.text("logged") == "plain later in saw it out True"


def test_nobody_sends_what_is_provided(provided: Child) -> None:
    assert provided.text("anything", {"x": 1}) == "3 ['x']"
    assert provided.call("anything", {"three": 99})["isError"]
    refused = provided.call("all_of_them", {"a": 1, "three": 5})
    assert refused["isError"]
    prompt = provided.end(provided.send("prompt", name="asks", arguments={"topic": "tea"}))
    assert prompt["result"]["messages"][0]["content"]["text"] == "1 tea"


def test_what_is_provided_is_not_in_the_schema(tmp_path: Path, children: ExitStack) -> None:
    file = tmp_path / "agent.py"
    file.write_text(
        "from typing import Annotated\nfrom ostiary import *\ndef p(ctx): return 1\ndef q(): return 2\n"
        "@tool\ndef f(a: int, b: Annotated[int, Provide(p)]): ...\n@tool\ndef g(b: Annotated[int, Provide(q)]): ...\n",
        "utf-8",
    )
    f, g = children.enter_context(Child(file)).hear()["catalog"]["tools"]
    assert list(f["inputSchema"]["properties"]) == ["a"]
    assert f["wantsCaller"] is True  # for its provider takes the context
    assert "properties" not in g["inputSchema"]
    assert "wantsCaller" not in g


def test_a_provider_of_a_cancelled_plain_tool_is_cleaned_up(serve: Serve) -> None:
    child = serve("""
        import threading
        from typing import Annotated
        from ostiary import *

        gone, ended = threading.Event(), threading.Event()

        async def opened():
            try:
                yield 1
            finally:
                ended.set()

        @tool
        def waits(ctx: SyncContext, x: Annotated[int, Provide(opened)]):
            try:
                while True:
                    ctx.progress(1)
            finally:
                gone.set()

        @tool
        def look() -> bool:
            return gone.wait(60) and ended.wait(60)
    """)
    call = child.start("waits", progress=True)
    assert child.hear()["event"] == "progress"
    child.tell({"do": "cancel", "id": call})
    while (event := child.hear())["event"] == "progress":
        pass
    assert (event["id"], event["kind"]) == (call, "cancelled")
    assert child.text("look") == "true"


HOOKS = """
    import threading
    from typing import Any
    from ostiary import *

    seen = []

    @around
    async def outer(call: ToolUse, proceed):
        seen.append(f"outer {call.tool}")
        try:
            value = await proceed()
        except ValueError as error:
            return f"caught {error}"
        seen.append("after")
        return f"<{value}>" if isinstance(value, str) and call.tool != "logged" else value

    @before_call
    def strip(call: ToolUse):
        seen.append("before")
        if "name" in call.arguments:
            call.arguments["name"] = call.arguments["name"].strip()

    @before_call
    async def guard(call: ToolUse):
        if "admin" in call.tags and "admin" not in call.context.scopes:
            raise ToolFailure(f"not for {call.context.subject}")

    @around
    async def twice(call: ToolUse, proceed):
        if call.tool == "count":
            await proceed()
        return await proceed()

    times = []

    @tool
    ASYNC def hello(name: str) -> str:
        return f"Hello, {name}!"

    @tool(tags={"admin"})
    ASYNC def erase() -> str:
        return "gone"

    @tool
    ASYNC def fails() -> str:
        raise ValueError("why")

    @tool
    ASYNC def count() -> str:
        times.append(1)
        return str(len(times))

    @tool
    ASYNC def streams():
        yield "a"
        yield "b"

    @resource("test://x")
    def x(): return "x"

    @tool
    def logged() -> str:
        return " ".join(seen)
"""


@pytest.fixture(params=["async", "sync"])
def hooked(request: pytest.FixtureRequest, serve: Serve) -> Child:
    return serve(HOOKS.replace("ASYNC ", "async " if request.param == "async" else ""))


def test_hooks_run_around_each_call_in_their_order(hooked: Child) -> None:
    assert hooked.text("hello", {"name": " Ada "}) == "<Hello, Ada!>"
    assert hooked.text("logged") == "outer hello before after outer logged before"
    assert hooked.text("fails") == "caught why"
    assert hooked.text("count") == "<2>"
    hooked.end(hooked.send("read", uri="test://x", template=None, arguments={}))
    assert "x" not in hooked.text("logged").split()


def test_a_hook_refuses_in_its_own_words(hooked: Child) -> None:
    assert hooked.call("erase") == {"content": [{"type": "text", "text": "not for ada"}], "isError": True}
    assert hooked.text("erase", caller={"scopes": ["admin"]}) == "<gone>"


def test_plain_hooks_alone_leave_a_plain_tool_in_its_thread(serve: Serve) -> None:
    child = serve("""
        import threading
        from ostiary import *
        ids = []
        @before_call
        def note(call): ids.append(threading.get_ident())
        @tool
        def same() -> bool:
            return ids[-1] == threading.get_ident() and ids[-1] != threading.main_thread().ident
    """)
    assert child.text("same") == "true"


def test_a_cancelled_plain_tool_behind_a_hook_ends(serve: Serve) -> None:
    child = serve("""
        import threading
        from ostiary import *
        gone, over = threading.Event(), []
        @around
        async def hook(call, proceed):
            try:
                return await proceed()
            finally:
                over.append(call.tool)
        @tool
        def waits(ctx: SyncContext):
            try:
                while True: ctx.progress(1)
            finally:
                gone.set()
        @tool
        def look() -> list:
            gone.wait(60)
            return [" ".join(over)]
    """)
    call = child.start("waits", progress=True)
    assert child.hear()["event"] == "progress"
    child.tell({"do": "cancel", "id": call})
    while (event := child.hear())["event"] == "progress":
        pass
    assert event == {"event": "error", "kind": "cancelled", "message": "cancelled", "id": call}
    assert child.text("look") == "waits"


def test_what_is_not_enabled_is_not_offered_and_tags_are_told(tmp_path: Path, children: ExitStack) -> None:
    file = tmp_path / "agent.py"
    file.write_text(
        "from ostiary import *\n@tool(enabled=False)\ndef off(): ...\n@tool(tags=['b', 'a'], version='2', meta={'m': 1})\ndef on(): ...\n"
        "@resource('test://r', tags='one')\ndef r(): ...\n@resource('test://s', enabled=False)\ndef s(): ...\n"
        "@prompt(version='3')\ndef p(): ...\n@prompt(enabled=False)\ndef q(x: bool): ...\n",
        "utf-8",
    )
    child = children.enter_context(Child(file))
    catalog = child.hear()["catalog"]
    assert [(tool["name"], tool["_meta"]) for tool in catalog["tools"]] == [
        ("on", {"m": 1, "io.ostiary/tags": ["a", "b"], "io.ostiary/version": "2"})
    ]
    assert [(each["uri"], each["_meta"]) for each in catalog["resources"]] == [
        ("test://r", {"io.ostiary/tags": ["one"]})
    ]
    assert [(each["name"], each["_meta"]) for each in catalog["prompts"]] == [
        ("p", {"io.ostiary/version": "3"})
    ]
    assert catalog["completes"] == []
    assert child.end(child.start("off"))["kind"] == "failed"
    assert child.end(child.send("read", uri="test://s", template=None, arguments={}))["kind"] == "not_found"


def test_a_file_in_which_nothing_is_enabled_offers_none_of_its_functions(
    tmp_path: Path, children: ExitStack
) -> None:
    file = tmp_path / "agent.py"
    file.write_text(
        "from ostiary import tool\n@tool(enabled=False)\ndef off(): ...\ndef helper(): ...\n", "utf-8"
    )
    assert children.enter_context(Child(file)).hear()["catalog"]["tools"] == []


def test_in_a_file_without_decorators_what_provides_is_no_tool(tmp_path: Path, children: ExitStack) -> None:
    file = tmp_path / "agent.py"
    file.write_text(
        "from typing import Annotated\nfrom ostiary import Provide, lifespan\n@lifespan\ndef opened():\n    yield 1\n"
        "def connect():\n    return 1\ndef query(db: Annotated[int, Provide(connect)]):\n    return db\n",
        "utf-8",
    )
    assert [tool["name"] for tool in children.enter_context(Child(file)).hear()["catalog"]["tools"]] == [
        "query"
    ]


OTHER = """
from typing import Any
from ostiary import *

@lifespan
def own():
    yield "other's"

@before_call
def note(call): call.arguments["word"] = call.arguments.get("word", "") + "!"

@tool(price="$0.01")
def say(word: str, ctx: SyncContext) -> str:
    return f"{word} {ctx.lifespan}"

@tool
def render(pages: int) -> str: return "r"

@price("render")
def cost(pages: int): return f"$0.0{pages}"

@resource("notes://{name}")
def note_of(name: str): return name

@prompt
def ask(topic: str): return topic

@completion("ask", "topic")
def topics(value): return ["tea"]

@completion("notes://{name}", "name")
def names(value): return ["ada"]
"""
MAIN = """
from ostiary import *

include("parts/other.py", prefix="x")

@lifespan
def opened():
    yield "mine"

@tool
def say(word: str, ctx: SyncContext) -> str:
    return f"{word} {ctx.lifespan}"
"""


def test_a_file_is_made_of_several(tmp_path: Path, children: ExitStack) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "other.py").write_text(OTHER, "utf-8")
    file = tmp_path / "agent.py"
    file.write_text(MAIN, "utf-8")
    child = children.enter_context(Child(file))
    ready = child.hear()
    catalog = ready["catalog"]
    assert [tool["name"] for tool in catalog["tools"]] == ["x_say", "x_render", "say"]
    assert catalog["tools"][1]["_meta"] == {"io.ostiary/price": {"function": "x_cost"}}
    assert catalog["resourceTemplates"][0]["uriTemplate"] == "notes://x/{name}"
    assert catalog["prompts"][0]["name"] == "x_ask"
    assert sorted(catalog["completes"]) == [["prompt", "x_ask"], ["resource", "notes://x/{name}"]]
    assert ready["files"] == [str(file), str(tmp_path / "parts" / "other.py")]
    assert child.text("x_say", {"word": "a"}) == "a! other's"
    assert child.text("say", {"word": "a"}) == "a mine"
    priced = child.end(child.send("price", name="x_cost", tool="x_render", arguments={"pages": 2}))
    assert priced["result"] == {"price": "$0.02"}
    asked = child.send("complete", ref="prompt", name="x_ask", argument="topic", value="", known={})
    assert child.end(asked)["result"]["values"] == ["tea"]
    read = child.send("read", uri="notes://x/ada", template="notes://x/{name}", arguments={"name": "ada"})
    assert child.end(read)["result"]["contents"][0]["text"] == "ada"


def test_files_that_offer_the_same_are_told_apart_by_a_prefix_or_refused(
    tmp_path: Path, children: ExitStack
) -> None:
    (tmp_path / "other.py").write_text("def say(): return 1\n", "utf-8")
    file = tmp_path / "agent.py"
    file.write_text("from ostiary import *\ninclude('other.py', 'a')\ninclude('other.py', 'b')\n", "utf-8")
    tools = children.enter_context(Child(file)).hear()["catalog"]["tools"]
    assert [tool["name"] for tool in tools] == ["a_say", "b_say"]
    file.write_text("from ostiary import *\ninclude('other.py')\n@tool\ndef say(): ...\n", "utf-8")
    broken = children.enter_context(Child(file)).hear()
    assert "there is a tool 'say' already" in broken["error"]


def test_an_included_file_that_is_broken_says_where(tmp_path: Path, children: ExitStack) -> None:
    (tmp_path / "other.py").write_text("x = 1\n1 / 0\n", "utf-8")
    file = tmp_path / "agent.py"
    file.write_text("from ostiary import *\ninclude('other.py')\n", "utf-8")
    broken = children.enter_context(Child(file)).hear()
    assert broken["error"] == "other.py:2: ZeroDivisionError: division by zero"
    assert str(tmp_path / "other.py") in broken["files"]


MASKED = """
    import functools, json, os
    from ostiary import *
    SHOW
    @tool
    def raises(): raise ValueError("postgres://root:s3cret@db")
    @tool
    def deep(): json.loads("s3cret")
    @tool
    async def key(): return {}["s3cret"]
    @tool
    def unwritable():
        class S3cret:
            def __iter__(self): raise ValueError("s3cret")
        return {"a": S3cret()}
    @prompt
    def asks(): raise OSError("s3cret")
    add_tool(functools.partial(open, "/nowhere/s3cret"), name="builtin", input_schema={"type": "object"})
    @tool
    def meant(): raise ToolFailure("on purpose")
    @tool
    def ours(): return Image()
"""


def test_what_an_unexpected_exception_says_is_for_the_log_alone(serve: Serve) -> None:
    child = serve(MASKED.replace("SHOW", ""))
    for name, kind in {"raises": "ValueError", "deep": "JSONDecodeError", "key": "KeyError"}.items():
        number = child.start(name)
        told = f"{kind}: what went wrong is in the server's log, under c{number}"
        assert child.end(number)["message"] == told, name
    for call in (
        child.start("unwritable"),
        child.start("builtin"),
        child.send("prompt", name="asks", arguments={}),
    ):
        assert "s3cret" not in str(child.hear()), call
    assert child.text("meant") == "on purpose"
    assert child.end(child.start("ours"))["message"] == "ValueError: Image takes either data or path="
    child.hang_up()
    log = child.wait()[1]
    assert "in c1: Traceback" in log
    assert "s3cret@db" in log


def test_a_file_may_show_what_exceptions_say(serve: Serve) -> None:
    child = serve(MASKED.replace("SHOW", "defaults(show_errors=True)"))
    assert child.end(child.start("raises"))["message"] == "ValueError: postgres://root:s3cret@db"


def test_what_may_be_said_as_a_text_is_told_to_the_server(
    serve: Serve, tmp_path: Path, children: ExitStack
) -> None:
    file = tmp_path / "agent.py"
    file.write_text(
        "from ostiary import *\n@tool(coerce=True)\ndef a(x: int): ...\n@tool\ndef b(x: int): ...\ndefaults(coerce=True)\n"
        "@tool\ndef c(x: int): ...\n@tool(coerce=False)\ndef d(x: int): ...\n",
        "utf-8",
    )
    tools: list[dict[str, Any]] = children.enter_context(Child(file)).hear()["catalog"]["tools"]
    assert {tool["name"]: tool.get("coerces") for tool in tools} == {
        "a": True,
        "b": None,
        "c": True,
        "d": None,
    }


def test_a_file_with_every_type_written_is_served(children: ExitStack) -> None:
    child = children.enter_context(Child(Path(__file__).parent / "typed_agent.py"))
    assert [tool["name"] for tool in child.hear()["catalog"]["tools"]] == ["one", "two"]
