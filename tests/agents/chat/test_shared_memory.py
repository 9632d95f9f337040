"""Two processes with one model behind them and one store: whichever is asked next knows what was said."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from io import StringIO
from typing import Any

import pytest
import structlog
import trio

from server.agents.chat.conversation_memory import Memory
from server.agents.chat.openai_agent import OpenAIBackend
from server.agents.chat.shared_memory import AgentMemory, SharedMemory
from server.mcp.call_failures import BackendError
from server.mcp.result_encoding import ToolResult
from server.store.idempotency.sealed_answers import AnswerVault
from server.store.inline_store import InlineStore, open_inline_store
from server.store.jobs import StoreUnavailable
from server.store.maintenance import sweep
from server.store.retention import Retention
from tests.agents.chat.openai_pair import against, ask, completion, contents, parrot
from tests.agents.python.fake_agent import Exchange, Seen

NOW = 1_800_000_000_000
KEY = bytes(range(32))


@dataclass
class Common:
    """What the processes have in common."""

    store: InlineStore
    now: int = NOW
    fails: set[str] = field(default_factory=set[str])
    log: StringIO = field(default_factory=StringIO)
    leaving: trio.CancelScope | None = None  # whose caller leaves as something is to be written

    async def write(self, job: Any) -> Any:
        if self.leaving is not None:
            self.leaving.cancel()
            self.leaving = None
            await trio.lowlevel.checkpoint()
        if "write" in self.fails:
            raise StoreUnavailable("away")
        return await self.store.write(job)

    async def read(self, job: Any) -> Any:
        if "read" in self.fails:
            raise StoreUnavailable("away")
        return await self.store.read(job)

    def memory(self, name: str = "main ask_model", key: bytes = KEY) -> Callable[[Memory], AgentMemory]:
        store: Any = self
        shared = SharedMemory(
            store,
            AnswerVault(key, secrets.token_bytes),
            key=key,
            clock=lambda: self.now,
            log=structlog.wrap_logger(structlog.PrintLogger(self.log)),
        )
        return partial(shared.of_agent, name)

    async def rows(self) -> list[Any]:
        return await self.store.read(lambda db: db.fetch_all("SELECT * FROM conversations"))


@asynccontextmanager
async def in_common() -> AsyncGenerator[Common]:
    async with open_inline_store(clock=lambda: NOW) as store:
        yield Common(store)


def said(result: ToolResult) -> tuple[str, int]:
    assert result.structured is not None
    return result.structured["session_id"], result.structured["remembered_turns"]


@asynccontextmanager
async def two(
    common: Common, handler: Callable[[Exchange], Any] = parrot, **settings: Any
) -> AsyncGenerator[tuple[OpenAIBackend, OpenAIBackend, Callable[[], list[Seen]]]]:
    async with (
        against(handler, shared=common.memory(), **settings) as (one, first),
        against(handler, shared=common.memory(), **settings) as (other, second),
    ):
        yield first, second, lambda: [*one.requests, *other.requests]


async def test_a_conversation_goes_on_in_whichever_process_is_asked() -> None:
    async with in_common() as common, two(common) as (first, second, _):
        session, known = said(await ask(first, "one"))
        assert known == 0
        for number, (at, words) in enumerate(((second, "two"), (second, "three"), (first, "four")), 1):
            assert said(await ask(at, words, session_id=session)) == (session, number)
        async with against(parrot, shared=common.memory()) as (agent, later):
            await ask(later, "five", session_id=session)
            assert contents(agent.requests[-1])[::2] == ["one", "two", "three", "four", "five"]


async def test_nobody_else_takes_part_in_it_and_another_agent_knows_nothing_of_it() -> None:
    async with in_common() as common, two(common) as (first, second, _):
        await ask(first, "mine", session_id="talk")
        assert said(await ask(second, subject="user-2", session_id="talk")) == ("talk", 0)
        async with against(parrot, shared=common.memory("main another_model")) as (_, other):
            assert said(await ask(other, session_id="talk")) == ("talk", 0)


async def test_what_is_said_is_not_in_the_database_as_it_is() -> None:
    async with in_common() as common, two(common) as (first, _, _seen):
        session, _ = said(await ask(first, "a secret of mine"))
        (row,) = await common.rows()
        assert b"secret" not in bytes(row["sealed"])
        assert session not in str(dict(row))
        assert "user-1" not in str(dict(row))


async def test_what_was_sealed_under_another_key_or_altered_is_as_if_it_had_not_been_said() -> None:
    async with in_common() as common, two(common) as (first, second, _):
        await ask(first, session_id="talk")
        await common.store.write(
            lambda db: db.execute("UPDATE conversations SET sealed = ?, version = 9", b"x" * 40)
        )
        assert said(await ask(second, session_id="talk")) == ("talk", 0)
        assert said(await ask(second, session_id="talk")) == ("talk", 1)
        assert "conversation.unreadable" in common.log.getvalue()


async def test_two_calls_in_two_processes_at_once_are_both_remembered() -> None:
    begun, go = trio.Event(), trio.Event()

    async def slow(exchange: Exchange) -> None:
        if exchange.request.json["messages"][-1]["content"] == "slow":
            begun.set()
            await go.wait()
        await exchange.reply(completion("fine"))

    async with in_common() as common, two(common, slow) as (first, second, seen):
        await ask(first, "begin", session_id="talk")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(ask, first, "slow", session_id="talk"))
            await begun.wait()
            await ask(second, "quick", session_id="talk")
            go.set()
        await ask(second, "last", session_id="talk")
        assert contents(seen()[-1])[::2] == ["begin", "quick", "slow", "last"]


async def test_one_that_was_forgotten_and_begun_anew_elsewhere_is_the_one_that_goes_on() -> None:
    async with in_common() as common, two(common) as (first, second, seen):
        await ask(first, "one", session_id="talk")
        await common.store.write(lambda db: db.execute("DELETE FROM conversations"))
        common.now += 1
        await ask(second, "two", session_id="talk")
        await ask(first, "three", session_id="talk")
        await ask(second, "four", session_id="talk")
        assert contents(seen()[-1])[::2] == ["two", "three", "four"]


async def test_what_a_caller_did_not_wait_for_is_no_part_of_it() -> None:
    async with in_common() as common, two(common) as (first, second, _):
        await ask(first, "one", session_id="talk")
        with trio.CancelScope() as leaving:
            common.leaving = leaving
            await ask(first, "two", session_id="talk")
        assert leaving.cancelled_caught
        for at in (first, second):
            assert said(await ask(at, session_id="talk")) == ("talk", 1 if at is first else 2)


async def test_where_it_cannot_be_looked_up_the_model_is_not_asked_but_for_what_is_new() -> None:
    async with in_common() as common, two(common) as (first, second, seen):
        await ask(first, session_id="talk")
        common.fails = {"read"}
        with pytest.raises(BackendError, match="looked up right now"):
            await ask(second, session_id="talk")
        assert len(seen()) == 1
        assert said(await ask(second))[1] == 0
        common.fails = set()
        assert said(await ask(second, session_id="talk")) == ("talk", 1)


async def test_a_reply_that_cannot_be_written_down_is_given_all_the_same() -> None:
    async with in_common() as common, two(common) as (first, second, _):
        await ask(first, session_id="talk")
        common.fails = {"write"}
        assert said(await ask(second, session_id="talk")) == ("talk", 1)
        common.fails = set()
        assert said(await ask(second, session_id="talk")) == ("talk", 1), "what all know"
        assert "conversation.not_kept" in common.log.getvalue()


async def test_only_the_last_turns_are_kept_and_an_exchange_that_is_too_large_ends_what_is_remembered() -> (
    None
):
    async with (
        in_common() as common,
        two(common, max_turns=2, max_conversation_kib=1) as (first, second, seen),
    ):
        for words in ("one", "two", "three"):
            await ask(first, words, session_id="talk")
        await ask(second, "four", session_id="talk")
        assert contents(seen()[-1])[::2] == ["two", "three", "four"]
        await ask(second, "x" * 2000, session_id="talk")
        assert said(await ask(first, session_id="talk")) == ("talk", 0)


async def test_with_no_turns_to_remember_nothing_is_written() -> None:
    async with in_common() as common, two(common, max_turns=0) as (first, second, _):
        await ask(first, session_id="talk")
        assert said(await ask(second, session_id="talk")) == ("talk", 0)
        assert await common.rows() == []


async def test_one_that_nobody_goes_on_with_is_forgotten_and_swept() -> None:
    async with in_common() as common, two(common, session_idle_minutes=1) as (first, second, _):
        await ask(first, session_id="talk")
        common.now += 60_000
        assert said(await ask(second, session_id="talk")) == ("talk", 0)
        common.now += 60_000
        swept = await sweep(common.store, owner="o", clock=lambda: common.now, retention=Retention())
        assert swept is not None
        assert swept["conversations"] == 1
        assert await common.rows() == []


@pytest.mark.parametrize("settings", [{"max_sessions_per_caller": 2}, {"max_sessions": 2}])
async def test_so_many_are_kept_and_those_go_first_that_were_used_least_lately(
    settings: dict[str, Any],
) -> None:
    async with in_common() as common, two(common, **settings) as (first, second, _):
        for session in ("one", "two", "three"):
            common.now += 1
            await ask(first, session_id=session)
        assert len(await common.rows()) == 2
        assert said(await ask(second, session_id="three")) == ("three", 1)
        assert said(await ask(second, session_id="one")) == ("one", 0)
