"""Sync functions, whose answers go out from their own threads: told once, whole, in the order that counts, and no thread more
than is needed."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from shim_child import PATIENCE_SECONDS, Child, Serve, text_of


def ends_of(child: Child, calls: list[int]) -> dict[int, dict[str, Any]]:
    """The end of each of them. One that ends twice is an error."""
    found: dict[int, dict[str, Any]] = {}
    while len(found) < len(calls):
        event = child.hear()
        assert event["event"] in ("final", "error"), event
        assert event["id"] not in found
        found[event["id"]] = event
    assert sorted(found) == sorted(calls)
    return found


ECHO = """
    from ostiary import tool
    @tool
    def echo(text: str, times: int = 1) -> str:
        return text * times
"""


def test_a_thousand_calls_at_once_are_each_answered_with_their_own(serve: Serve) -> None:
    child = serve(ECHO)
    calls = {child.start("echo", {"text": f"{number}."}): f"{number}." for number in range(1000)}
    ends = ends_of(child, list(calls))
    assert {call: text_of(event) for call, event in ends.items()} == calls


def test_answers_of_many_threads_stay_whole_lines_when_nobody_reads_for_a_while(serve: Serve) -> None:
    child = serve(ECHO)
    calls = {
        child.start("echo", {"text": f"{number}.", "times": 20_000}): f"{number}." for number in range(50)
    }
    time.sleep(0.2)  # much more than a pipe holds
    ends = ends_of(child, list(calls))
    assert {call: text_of(event) for call, event in ends.items()} == {
        call: text * 20_000 for call, text in calls.items()
    }
    assert child.text("echo", {"text": "after"}) == "after"


LARGE = """
    from pathlib import Path
    from ostiary import tool
    def one() -> str:
        with Path("begun").open("a") as marks:
            marks.write(".")
        return "x" * 1_000_000
    @tool
    def thread() -> str:
        return one()
    @tool
    async def loop() -> str:
        return one()
"""


@pytest.mark.parametrize("tool", ["thread", "loop"])
def test_no_more_calls_begin_than_whose_answers_there_is_room_for(
    tool: str, serve: Serve, tmp_path: Path
) -> None:
    child = serve(LARGE, "--threads", "2")
    calls = [child.start(tool) for _ in range(40)]
    for read in range(1, len(calls) + 1):
        assert len(text_of(child.hear())) == 1_000_000
        # Those read, what is on its way, and one that waits in each thread.
        assert (tmp_path / "begun").stat().st_size <= read + 6


@pytest.mark.parametrize("tool", ["thread", "loop"])
def test_who_waits_for_room_can_be_cancelled_and_keeps_nobody_from_ending(tool: str, serve: Serve) -> None:
    child = serve(LARGE, "--threads", "2")
    calls = [child.start(tool) for _ in range(10)]
    for call in calls[1:]:
        child.tell({"do": "cancel", "id": call})
    ends = ends_of(child, calls)
    assert {event.get("kind", "answered") for event in ends.values()} <= {"answered", "cancelled"}
    for _ in range(10):
        child.start(tool)
    child.tell({"do": "stop"})
    assert child.process.wait(PATIENCE_SECONDS) == 0


def test_a_cancellation_that_crosses_an_answer_ends_the_call_once(serve: Serve) -> None:
    child = serve(ECHO)
    calls: list[int] = []
    for number in range(300):
        calls.append(child.start("echo", {"text": str(number)}))
        if number % 3:
            time.sleep(0.0002 * (number % 5))
        child.tell({"do": "cancel", "id": calls[-1]})
    ends = ends_of(child, calls)
    assert {event.get("kind", "answered") for event in ends.values()} <= {"answered", "cancelled"}
    child.tell({"do": "ping"})
    assert child.hear()["event"] == "pong"


def test_what_a_function_tells_of_its_lists_comes_before_its_answer_in_every_thread(serve: Serve) -> None:
    child = serve("""
        from ostiary import add_tool, tool, updated
        def late(): return "late"
        @tool
        def touch(name: str) -> str:
            updated("test://" + name)
            add_tool(late, name=name)
            return name
    """)
    names = {child.start("touch", {"name": f"t{number}"}): f"t{number}" for number in range(40)}
    updated: set[str] = set()
    listed: set[str] = set()
    ended = 0
    while ended < len(names):
        event = child.hear()
        if event["event"] == "updated":
            updated.add(event["uri"].removeprefix("test://"))
        elif event["event"] == "catalog":
            listed = {tool["name"] for tool in event["catalog"]["tools"]}
        else:
            assert names[event["id"]] in updated & listed
            ended += 1


def test_calls_one_after_the_other_need_one_thread(serve: Serve) -> None:
    child = serve("""
        import threading
        from ostiary import tool
        @tool
        def who() -> str:
            return threading.current_thread().name
    """)
    assert {child.text("who") for _ in range(300)} == {"ostiary-1"}


def test_each_call_has_a_context_of_its_own(serve: Serve) -> None:
    child = serve(
        """
        from contextvars import ContextVar
        from dataclasses import dataclass
        from ostiary import tool
        seen = ContextVar("seen", default="nothing")
        @dataclass
        class Word:
            text: str
            def __post_init__(self):
                seen.set(seen.get() + " and " + self.text)
        @tool
        def sync(word: Word) -> str:
            return seen.get()
        @tool
        async def other(word: Word) -> str:
            return seen.get()
        """,
        "--threads", "1",
    )  # fmt: skip
    for _ in range(2):
        assert child.text("sync", {"word": {"text": "a"}}) == "nothing and a"
        assert child.text("other", {"word": {"text": "b"}}) == "nothing and b"


def test_what_a_plain_function_hands_back_to_be_awaited_can_be_cancelled(serve: Serve) -> None:
    child = serve("""
        import asyncio
        from ostiary import Context, SyncContext, tool
        done = []
        async def wait(ctx):
            try:
                await ctx._awaited.progress(1)
                await asyncio.sleep(3600)
            finally:
                done.append("cleaned up")
        @tool
        def later(ctx: SyncContext):
            return wait(ctx)
        @tool
        def what() -> str:
            return " ".join(done)
    """)
    call = child.start("later", progress=True)
    assert child.hear()["event"] == "progress"
    child.tell({"do": "cancel", "id": call})
    assert child.end(call)["kind"] == "cancelled"
    assert child.text("what") == "cleaned up"


def test_a_child_whose_server_is_gone_ends_while_its_threads_still_answer(serve: Serve) -> None:
    child = serve(ECHO)
    for number in range(200):
        child.start("echo", {"text": str(number), "times": 10_000})
    child.hang_up()
    os.close(child._from)
    status, output = child.wait()
    child._from = os.open(os.devnull, os.O_RDONLY)  # closed by the fixture
    assert (status, output) == (0, "")


def test_how_many_functions_run_on_after_their_calls_were_cancelled_is_told(serve: Serve) -> None:
    child = serve("""
        import threading
        from ostiary import tool
        go_on = threading.Event()
        begun = threading.Semaphore(0)
        @tool
        def stays():
            begun.release()
            go_on.wait()
        @tool
        def both_have_begun():
            begun.acquire(); begun.acquire()
        @tool
        def release(): go_on.set()
    """)
    calls = [child.start("stays"), child.start("stays")]
    child.call("both_have_begun")
    for call in calls:
        child.tell({"do": "cancel", "id": call})
        assert child.end(call)["kind"] == "cancelled"
    pong = ping(child)
    assert pong["stuck"] == 2 and pong["stuck_seconds"] >= 0
    child.call("release")
    deadline = time.monotonic() + 60
    while (pong := ping(child))["stuck"] and time.monotonic() < deadline:
        time.sleep(0.01)
    assert (pong["stuck"], pong["stuck_seconds"]) == (0, 0)


def ping(child: Child) -> dict[str, Any]:
    child.tell({"do": "ping"})
    return child.hear()
