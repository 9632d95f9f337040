"""The child over its real line: starting, running calls side by side, cancelling and stopping."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from contextlib import ExitStack
from pathlib import Path

import pytest
from shim_child import SHIM, Child, Serve, text_of

# Where other interpreters are installed, the file is served by them as well; 3.9 is the oldest that must do.
OTHERS = [
    pytest.param(str(path), id=path.parent.parent.name)
    for minor in (9, 10, 12, 13, 14)
    for path in sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python"))[-1:]
]


@pytest.mark.parametrize("python", [pytest.param(sys.executable, id="this"), *OTHERS])
def test_a_file_is_served_by_every_supported_python(tmp_path: Path, children: ExitStack, python: str) -> None:
    file = tmp_path / "agent.py"
    file.write_text(
        textwrap.dedent("""
        from __future__ import annotations
        import asyncio, enum, datetime
        from dataclasses import dataclass, field
        from typing import Annotated, Literal, Optional, TypedDict
        from ostiary import Context, Image, Param, SyncContext, tool, resource, prompt, user, Text

        class Size(enum.Enum):
            S = "small"
            L = "large"

        @dataclass
        class Cake:
            name: str
            size: Size = Size.S
            layers: list[str] = field(default_factory=list)
            baked: Optional[datetime.date] = None

        @tool
        async def bake(cake: Cake, oven: Annotated[int, Param("degrees", ge=100)], ctx: Context) -> Cake:
            await ctx.progress(1, 2, "warming")
            answer = await ctx.elicit("How big?", Size)
            cake.size = answer.content
            return cake

        @tool
        def slowly(ctx: SyncContext, words: tuple[str, ...] = ("a",)):
            for number, word in enumerate(words):
                ctx.progress(number)
                yield word

        @tool
        async def stream():
            yield "one "
            await asyncio.sleep(0)
            yield "two"

        @resource("cake://{name}")
        def read(name: str) -> str:
            return "# " + name

        @prompt
        def ask(topic: str, loud: bool = False):
            return [user("about " + topic + ("!" if loud else ""))]
        """),
        "utf-8",
    )
    child = children.enter_context(Child(file, python=python))
    ready = child.hear()
    assert ready["event"] == "ready", ready
    bake = ready["catalog"]["tools"][0]
    assert bake["inputSchema"]["properties"]["oven"] == {
        "type": "integer",
        "description": "degrees",
        "minimum": 100,
    }
    call = child.start(
        "bake", {"cake": {"name": "Napoleon", "baked": "2026-01-02"}, "oven": 180}, progress=True
    )
    assert child.hear() == {"event": "progress", "id": call, "progress": 1, "total": 2, "message": "warming"}
    asked = child.hear()
    assert list(asked["questions"]) == ["ask-1"]
    answer = {"ask-1": {"action": "accept", "content": {"value": "large"}}}
    child.tell({"do": "answer", "id": call, "ask": asked["ask"], "answers": answer})
    assert child.end(call)["result"]["structuredContent"] == {
        "name": "Napoleon", "size": "large", "layers": [], "baked": "2026-01-02",
    }  # fmt: skip
    assert child.text("slowly", {"words": ["x", "y"]}) == "xy"
    assert child.text("stream") == "one two"
    read = child.end(child.send("read", uri="cake://x", template="cake://{name}", arguments={"name": "x"}))
    assert read["result"]["contents"] == [{"uri": "cake://x", "mimeType": "text/plain", "text": "# x"}]
    asked = child.end(child.send("prompt", name="ask", arguments={"topic": "tea", "loud": "true"}))
    assert text_of({"result": {"content": [asked["result"]["messages"][0]["content"]]}}) == "about tea!"
    child.tell({"do": "stop"})
    assert child.wait()[0] == 0


def test_what_is_printed_never_reaches_the_line(serve: Serve) -> None:
    child = serve("""
        import os, subprocess, sys
        from ostiary import tool
        print('{"event": "final", "id": 1}')
        @tool
        def loud() -> str:
            print("to stdout"); print("to stderr", file=sys.stderr)
            subprocess.run([sys.executable, "-c", "print('from a program')"])
            return "done"
    """)
    assert child.text("loud") == "done"
    child.tell({"do": "stop"})
    status, output = child.wait()
    assert status == 0
    assert {"to stdout", "to stderr", "from a program"} <= set(output.splitlines())


def test_programs_and_forks_of_the_author_do_not_hold_the_line(serve: Serve) -> None:
    child = serve("""
        import os, subprocess, sys
        from ostiary import tool
        fds = [int(fd) for fd in sys.argv[sys.argv.index("--fds") + 1].split(",")]
        def held():
            found = []
            for fd in fds:
                try: found.append(os.fstat(fd).st_mode and fd)
                except OSError: pass
            return found
        @tool
        def by_us() -> str:
            return str(len(held()))
        @tool
        def by_a_program() -> str:
            code = f"fds = {fds}\\nimport os\\n" + "for fd in fds:\\n  try: os.fstat(fd); print(fd)\\n  except OSError: pass"
            done = subprocess.run([sys.executable, "-c", code], stdout=-1, close_fds=False, check=True, text=True)
            return done.stdout
        @tool
        def by_a_fork() -> str:
            read, write = os.pipe()
            if os.fork() == 0:
                os.write(write, repr(held()).encode())
                os._exit(0)
            os.wait()
            return os.read(read, 100).decode()
    """)
    assert child.text("by_us") == "2"
    assert child.text("by_a_program") == ""
    assert child.text("by_a_fork") == "[]"


def test_async_calls_and_sync_calls_run_side_by_side(serve: Serve) -> None:
    child = serve("""
        import threading
        from ostiary import tool
        both = threading.Barrier(2)
        @tool
        def meet() -> str:
            both.wait(60)
            return "met"
        @tool
        async def quick() -> str:
            return "quick"
    """)
    first = child.start("meet")
    assert child.text("quick") == "quick"
    second = child.start("meet")
    assert {child.hear()["id"], child.hear()["id"]} == {first, second}


def test_no_more_sync_functions_run_at_once_than_there_are_threads(serve: Serve) -> None:
    child = serve(
        """
        import threading
        from ostiary import tool
        running, most, lock, both = 0, 0, threading.Lock(), threading.Barrier(2)
        @tool
        def work() -> None:
            global running, most
            with lock:
                running += 1
                most = max(most, running)
            both.wait(60)
            threading.Event().wait(0.02)  # for a third one, which would be one too many
            with lock:
                running -= 1
        @tool
        async def peak() -> int:
            return most
        """,
        "--threads", "2",
    )  # fmt: skip
    calls = [child.start("work") for _ in range(8)]
    assert sorted(child.hear()["id"] for _ in calls) == calls
    assert child.text("peak") == "2"


def test_a_sync_function_that_never_ends_keeps_its_thread_and_no_other_call(serve: Serve) -> None:
    child = serve(
        """
        import threading
        from ostiary import Context, tool
        go, running, most, lock = threading.Event(), 0, 0, threading.Lock()
        @tool
        def hang(ctx: Context) -> str:
            ctx.progress(1)
            go.wait()
            return "too late"
        @tool
        def work() -> str:
            global running, most
            with lock:
                running += 1
                most = max(most, running)
            threading.Event().wait(0.01)
            with lock:
                running -= 1
            return str(threading.active_count())
        @tool
        def release() -> None:
            go.set()
        @tool
        async def peak() -> int:
            return most
        """,
        "--threads", "1",
    )  # fmt: skip
    for _ in range(3):
        call = child.start("hang", progress=True)
        assert child.hear()["event"] == "progress"
        child.tell({"do": "cancel", "id": call})
        assert child.end(call)["kind"] == "cancelled"
    calls = [child.start("work") for _ in range(4)]
    assert sorted(child.hear()["id"] for _ in calls) == calls
    assert child.text("peak") == "1"
    child.call("release")
    # Those that took the places of the ones that hung go when they are not needed any more.
    assert any(int(child.text("work")) <= 3 for _ in range(2000))
    calls = [child.start("work") for _ in range(4)]
    assert sorted(child.hear()["id"] for _ in calls) == calls
    assert child.text("peak") == "1"


def test_whether_anybody_is_there_is_answered_at_once(serve: Serve) -> None:
    child = serve("""
        import asyncio
        from ostiary import tool
        @tool
        async def sleep() -> None:
            await asyncio.sleep(3600)
    """)
    child.start("sleep")
    child.tell({"do": "ping"})
    assert child.hear()["event"] == "pong"


def test_cancelling_an_async_call_runs_its_finally_before_the_call_ends(serve: Serve) -> None:
    child = serve("""
        import asyncio
        from ostiary import Context, tool
        done = []
        @tool
        async def sleep(ctx: Context) -> str:
            try:
                await ctx.progress(1)
                await asyncio.sleep(3600)
            finally:
                await asyncio.sleep(0)
                done.append("cleaned up")
        @tool
        async def what() -> str:
            return " ".join(done)
    """)
    call = child.start("sleep", progress=True)
    assert child.hear()["event"] == "progress"
    child.tell({"do": "cancel", "id": call})
    assert child.hear() == {"event": "error", "kind": "cancelled", "message": "cancelled", "id": call}
    assert child.text("what") == "cleaned up"


def test_a_cancelled_sync_call_ends_at_once_and_its_function_at_the_next_use_of_the_context(
    serve: Serve,
) -> None:
    child = serve("""
        import threading
        from ostiary import Cancelled, SyncContext, tool
        waiting, go, over = threading.Event(), threading.Event(), threading.Event()
        seen = []
        @tool
        def stubborn(ctx: SyncContext) -> str:
            waiting.set()
            go.wait(60)
            seen.append(ctx.cancelled)
            try:
                ctx.progress(2)
                seen.append("went on")
            except Exception:
                seen.append("swallowed")
            finally:
                over.set()
            return "late"
        @tool
        def is_waiting() -> str:
            return str(waiting.wait(60))
        @tool
        async def release() -> None:
            go.set()
        @tool
        def after() -> str:
            over.wait(60)
            return repr(seen)
    """)
    call = child.start("stubborn", progress=True)
    assert child.text("is_waiting") == "True"
    child.tell({"do": "cancel", "id": call})
    assert child.end(call)["kind"] == "cancelled"
    child.call("release")
    assert child.text("after") == "[True]"  # and nothing more was heard of the first call


def test_a_sync_call_that_waits_for_an_answer_wakes_when_it_is_cancelled(serve: Serve) -> None:
    child = serve("""
        import threading
        from ostiary import SyncContext, tool
        over = threading.Event()
        @tool
        def ask(ctx: SyncContext):
            try:
                ctx.elicit("Well?", str)
            finally:
                over.set()
        @tool
        def is_over() -> str:
            return str(over.wait(60))
    """)
    call = child.start("ask")
    assert child.hear()["event"] == "ask"
    child.tell({"do": "cancel", "id": call})
    assert child.end(call)["kind"] == "cancelled"
    assert child.text("is_over") == "True"


def test_a_call_that_is_cancelled_before_it_begins_or_after_it_ended_ends_once(serve: Serve) -> None:
    child = serve("""
        from ostiary import tool
        @tool
        async def quick() -> str:
            return "quick"
    """)
    call = child.start("quick")
    child.tell({"do": "cancel", "id": call})
    assert child.hear()["id"] == call
    child.tell({"do": "cancel", "id": call})
    child.tell({"do": "cancel", "id": 999})
    assert child.text("quick") == "quick"


def test_an_unexpected_exception_names_its_class_and_keeps_its_traceback_for_the_log(serve: Serve) -> None:
    child = serve("""
        import sys
        from ostiary import ProtocolError, tool
        @tool
        def divide(a: int) -> float:
            return a / 0
        @tool
        async def leave() -> None:
            sys.exit("bye")
        @tool
        async def long() -> None:
            raise RuntimeError("x" * 100_000)
        @tool
        async def odd() -> None:
            raise ProtocolError("odd", data=object())
    """)
    assert child.end(child.start("odd"))["message"].startswith("TypeError: Object of type object is not JSON")
    assert child.end(child.start("divide", {"a": 1})) == {
        "event": "error", "kind": "failed", "message": "ZeroDivisionError: what went wrong is in the server's log, under c2", "id": 2,
    }  # fmt: skip
    assert child.end(child.start("leave"))["message"].startswith("SystemExit: what went wrong")
    assert len(child.end(child.start("long"))["message"]) <= 2000
    child.tell({"do": "stop"})
    status, output = child.wait()
    assert status == 0
    assert "return a / 0" in output
    assert "SystemExit: bye" in output


def test_an_answer_that_is_too_large_fails_its_call_alone(serve: Serve) -> None:
    child = serve("""
        from ostiary import Context, tool
        @tool
        async def big(size: int) -> str:
            return "x" * size
        @tool
        async def chatty(ctx: Context) -> str:
            await ctx.info("x" * 9_000_000)
            return "unreached"
    """)
    failed = child.end(child.start("big", {"size": 9_000_000}))
    assert failed["kind"] == "failed"
    assert "8 MiB" in failed["message"] and "LineTooLong" not in failed["message"]
    assert "8 MiB" in child.end(child.start("chatty", level="debug"))["message"]
    assert len(child.text("big", {"size": 8_000_000})) == 8_000_000


def test_a_server_that_does_not_read_makes_the_writer_wait(serve: Serve) -> None:
    child = serve("""
        from ostiary import Context, tool
        sent = 0
        @tool
        async def flood(ctx: Context) -> None:
            global sent
            for number in range(10_000):
                await ctx.info("x" * 1000)
                sent = number + 1
        @tool
        def count() -> int:
            return sent
    """)
    call = child.start("flood", level="info")
    child.hear()
    counting = child.start("count")  # answered behind what waits: at most a pipe and the queue
    heard = 1
    while (event := child.hear())["id"] != counting:
        heard += event["id"] == call
    assert heard < 2000
    assert int(text_of(event)) < 2000
    while child.hear()["event"] == "message":
        heard += 1
    assert heard == 10_000


@pytest.mark.parametrize("how", ["stop", "end of input", "SIGTERM"])
def test_a_child_that_is_told_to_stop_cancels_what_runs_and_exits_with_0(serve: Serve, how: str) -> None:
    child = serve("""
        import asyncio, atexit
        from ostiary import Context, tool
        atexit.register(print, "the end")
        @tool
        async def sleep(ctx: Context) -> None:
            try:
                await ctx.progress(1)
                await asyncio.sleep(3600)
            finally:
                print("cleaned up")
    """)
    child.start("sleep", progress=True)
    child.hear()
    if how == "stop":
        child.tell({"do": "stop"})
    elif how == "SIGTERM":
        child.process.send_signal(signal.SIGTERM)
    else:
        child.hang_up()
    status, output = child.wait()
    assert status == 0
    assert output.splitlines() == ["cleaned up", "the end"]


def test_a_function_that_will_not_be_cancelled_is_given_up(serve: Serve) -> None:
    child = serve("""
        import asyncio
        from ostiary import Context, tool
        @tool
        async def deaf(ctx: Context) -> None:
            await ctx.progress(1)
            while True:
                try:
                    await asyncio.sleep(3600)
                except asyncio.CancelledError:
                    pass
    """)
    child.start("deaf", progress=True)
    child.hear()
    child.tell({"do": "stop"})
    assert child.wait()[0] == 0


@pytest.mark.parametrize("how", ["SIGTERM", "end of input"])
def test_a_function_that_blocks_the_loop_does_not_outlive_the_server(serve: Serve, how: str) -> None:
    child = serve("""
        import time
        from ostiary import Context, tool
        @tool
        async def rude(ctx: Context) -> None:
            await ctx.progress(1)
            while True:
                time.sleep(0.01)
    """)
    child.start("rude", progress=True)
    child.hear()
    if how == "SIGTERM":
        child.process.send_signal(signal.SIGTERM)
    else:
        child.hang_up()
    assert child.wait()[0] == 0


def test_the_interrupt_key_is_left_to_the_server(serve: Serve) -> None:
    child = serve("def hello() -> str:\n    return 'hello'\n")
    child.process.send_signal(signal.SIGINT)
    assert child.text("hello") == "hello"


def test_lists_that_change_are_told_before_the_answer_of_the_call_that_changed_them(serve: Serve) -> None:
    child = serve("""
        from ostiary import add_prompt, add_resource, add_tool, remove_tool, tool, updated
        def late(): return "late"
        @tool
        async def more() -> str:
            add_tool(late, description="Came later.")
            add_prompt(late, name="p")
            add_resource("test://late", late)
            return "more"
        @tool
        def less() -> str:
            remove_tool("late")
            return "less"
        @tool
        def touch() -> str:
            updated("test://late")
            return "touched"
    """)
    call = child.start("more")
    catalog = child.hear()
    assert catalog["event"] == "catalog"
    assert [tool["name"] for tool in catalog["catalog"]["tools"]] == ["more", "less", "touch", "late"]
    assert [prompt["name"] for prompt in catalog["catalog"]["prompts"]] == ["p"]
    assert child.end(call)["event"] == "final"
    assert child.text("late") == "late"
    call = child.start("less")
    assert "late" not in [tool["name"] for tool in child.hear()["catalog"]["tools"]]
    assert child.end(call)["event"] == "final"
    call = child.start("touch")
    assert child.hear() == {"event": "updated", "uri": "test://late"}
    assert child.end(call)["event"] == "final"


def test_processes_that_an_author_starts_find_the_file_again(serve: Serve) -> None:
    child = serve("""
        import multiprocessing
        from ostiary import tool
        def square(x): return x * x
        @tool
        def squares() -> list[int]:
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                return pool.map(square, [1, 2, 3])
    """)
    assert child.call("squares")["structuredContent"] == {"result": [1, 4, 9]}


def test_a_command_line_that_is_wrong_is_refused() -> None:
    for options in (
        [],
        ["--fds", "3,4"],
        ["--fds", "a,b", "--file", "x"],
        ["--fds", "3,4", "--file", "x", "--threads", "0"],
    ):
        ran = subprocess.run(
            [sys.executable, str(SHIM / "run.py"), *options], capture_output=True, check=False
        )
        assert ran.returncode == 2
        assert ran.stderr.startswith(b"usage: run.py --fds IN,OUT")


def test_half_a_character_is_sent_as_one_that_is_missing(serve: Serve) -> None:
    child = serve(r"""
        from ostiary import tool
        @tool
        def cut(): return "cut \ud83d"
        @tool
        def apart(): return {"text": "\ud83d" + "\ude00", "half": "\ude00"}
    """)
    assert child.text("cut") == "cut \ufffd"
    assert child.call("apart")["structuredContent"] == {"text": "\U0001f600", "half": "\ufffd"}


def test_half_a_character_in_a_description_does_not_keep_a_file_from_being_served(serve: Serve) -> None:
    child = serve(r"""
        from ostiary import tool
        @tool(description="cut \ud83d")
        def cut(): return "x"
    """)
    assert child.text("cut") == "x"
