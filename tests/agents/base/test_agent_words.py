"""Words in which a call fails for its agent's sake, and in which the owner hears of it: whole, in tests/snapshots."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from server.agents.base.backend import Watched
from server.agents.chat.conversation_memory import CALLS_AT_ONCE, Memory
from server.agents.python import call_endings
from server.agents.python.agent_lines import CallFailed
from server.agents.python.find_interpreter import find_interpreter
from server.agents.python.interpreter import check_version
from server.mcp.call_failures import BackendError
from tests.agents.chat.chat_pair import against, ask, backend, text
from tests.agents.chat.test_conversation_memory import LIMITS, NEVER, say
from tests.agents.python.fake_agent import Exchange, Handler, Silent, pass_when, says, sends
from tests.snapshots import Snapshot, ToldOnce

KINDS = ("failed", "refused", "protocol", "not_found", "bad_arguments", "cancelled")


class FailedCalls(ToldOnce):
    """Calls that failed, and what callers and owners were told."""

    def failed(self, what: str, error: BaseException | str, agent: object = None) -> None:
        trouble = agent.trouble() if isinstance(agent, Watched) else None
        self.note(what, f"  {error}", *([] if trouble is None else [f"  for the owner: {trouble.words}"]))


def test_what_is_said_of_agents_in_trouble(snapshot: Snapshot) -> None:
    book = FailedCalls()
    trio.run(_endpoints, book)
    trio.run(_out_of_reach, book)
    clock = trio.testing.MockClock()
    trio.run(_too_slow, book, clock, clock=clock)
    trio.run(_conversations, book)
    _of_python(book)
    snapshot("agents_in_trouble", book.text)


async def _hang_up(exchange: Exchange) -> None:
    await exchange.stream.aclose()


async def _huge(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5000000\r\n\r\n")
    await exchange.stream.aclose()


async def _endpoints(book: FailedCalls) -> None:
    handlers: dict[str, Handler] = {
        "an answer that says nothing": says({}),
        "an answer that is no JSON": says(b"<html>"),
        "an answer that is a list": says(b"[]"),
        "an error in JSON": says({"error": "no key"}),
        **{f"status {status}": says(b"its words", status=status) for status in (400, 401, 402, 404, 429, 500, 503)},
        "status 500 without a body": says(b"", status=500),
        "a redirect": says(b"", status=307, headers=[("Location", "/elsewhere")]),
        "a compressed answer": says(b"\x1f\x8b", headers=[("Content-Encoding", "gzip")]),
        "an answer of 5 MB": _huge,
        "an answer that breaks off": sends(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"),
        "no HTTP": sends(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"),
        "a connection that is closed": _hang_up,
    }  # fmt: skip
    for what, handler in handlers.items():
        async with against(handler) as (_, agent):
            with pytest.raises(BackendError) as failed:
                await ask(agent)
            book.failed(what, failed.value, agent)
    async with against(says({"text": "ok"})) as (_, agent):
        await agent.aclose()
        with pytest.raises(BackendError) as failed:
            await ask(agent)
        book.failed("one that is stopping", failed.value)


async def _out_of_reach(book: FailedCalls) -> None:
    agent = backend("http://127.0.0.1:1/")
    with trio.fail_after(60), pytest.raises(BackendError) as failed:
        await ask(agent)
    book.failed("a port where nobody listens", failed.value, agent)
    await agent.aclose()


async def _too_slow(book: FailedCalls, clock: trio.testing.MockClock) -> None:
    silent = Silent()
    async with against(silent, deadline_seconds=1) as (_, agent), trio.open_nursery() as nursery:
        nursery.start_soon(pass_when, clock, 1, silent.came)
        book.failed("no answer in time", text(await ask(agent)), agent)


async def _conversations(book: FailedCalls) -> None:
    for what, others in {"too many of a caller's": "aa", "too many of all": "abc"}.items():
        memory = Memory(LIMITS)
        async with AsyncExitStack() as stack:
            for number, subject in enumerate(others):
                await stack.enter_async_context(memory.turn(subject, str(number), deadline=NEVER))
            with pytest.raises(BackendError) as failed:
                await say(memory, "a" if others == "aa" else "d", "new")
            book.failed(what, failed.value)
    memory = Memory(LIMITS)
    async with trio.open_nursery() as nursery, memory.turn("a", "1", deadline=NEVER):
        for _ in range(CALLS_AT_ONCE - 1):
            nursery.start_soon(say, memory, "a", "1")
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(BackendError) as failed:
            await say(memory, "a", "1")
        book.failed("too many calls of one conversation", failed.value)


def _of_python(book: FailedCalls) -> None:
    for kind in KINDS:
        for message in ("", "its words"):
            error = call_endings.failure(CallFailed(id=1, kind=kind, message=message), None)
            book.failed(f"a call that is {kind}, with {message!r}", f"{type(error).__name__}: {error}")
    cases: dict[str, Callable[[], Any]] = {
        "a result that is none": lambda: call_endings.tool_answer(msgspec.Raw(b"5")),
        "contents of neither kind": lambda: call_endings.contents(msgspec.Raw(b'{"contents": [{"uri": "a://b"}]}')),
        "an interpreter that says nothing": lambda: check_version("", "python"),
        "an old interpreter": lambda: check_version("3.6.1", "python"),
    }  # fmt: skip
    for what, case in cases.items():
        with pytest.raises(BackendError) as failed:
            case()
        book.failed(what, failed.value)
    with pytest.raises(ValueError, match="pythonx") as missing:
        find_interpreter("pythonx", Path("/nowhere"))
    book.failed("an interpreter that is not there", missing.value)
