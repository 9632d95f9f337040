"""Calls that are made once: who makes them, who waits, and what is left of them by a process that died or a store that refused."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from io import StringIO
from typing import Any

import pytest
import structlog
import trio
import trio.testing
from msgspec.structs import astuple

from server.mcp.messages import TextContent
from server.mcp.result_encoding import RawResult, ToolResult
from server.store.idempotency.idempotent_calls import (
    ANSWERED,
    IN_FLIGHT,
    INTERRUPTED,
    NO_ROOM,
    OTHER_CALL,
    UNREADABLE,
    IdempotentBegun,
    IdempotentCall,
    IdempotentCalls,
    KeptAnswer,
    KeptFailure,
    NotMadeAgain,
)
from server.store.idempotency.kept_answers import GRACE_MS, SHARES, AnswerRoom, KeptSum
from server.store.idempotency.kept_calls import KEPT_CALLS, KEY_KEPT_MS
from server.store.idempotency.sealed_answers import MAX_ANSWER_BYTES, AnswerVault
from server.store.inline_store import InlineStore, open_inline_store
from server.store.jobs import StatementFailed, StoreBroken, StoreDb, StoreUnavailable
from server.store.maintenance import sweep
from server.store.retention import Retention

NOW = 1_800_000_000_000
ANN = "user:ann:cli"


def says(text: str) -> KeptAnswer:
    return KeptAnswer(result=ToolResult(content=[TextContent(text=text)]))


def a_call(arguments: dict[str, Any] | None = None, **more: Any) -> IdempotentCall:
    how: dict[str, Any] = {
        "server": "main",
        "tool": "send",
        "caller": ANN,
        "key": "k-1",
        "keeps_seconds": 0,
        "idempotent": False,
        "wait_seconds": 5.0,
    }
    return IdempotentCall(arguments=arguments or {"to": "bob"}, **(how | more))


class Kept:
    """One store, and the keepers of one process after the other."""

    def __init__(self, store: InlineStore) -> None:
        self.store = store
        self.now = NOW
        self.refuses: Callable[[str], Exception | None] = lambda _: None
        self.loses = ""  # a job of this name is done, and nobody is told so
        self.held: dict[str, trio.Event] = {}  # who does a job of that name is told so when it is set
        self._boots = itertools.count(1)

    async def write(self, job: Any) -> Any:
        await trio.lowlevel.checkpoint()
        if error := self.refuses(getattr(job, "func", job).__name__):
            raise error
        done = await self.store.write(job)
        if (held := self.held.get(getattr(job, "func", job).__name__)) is not None:
            await held.wait()
        if getattr(job, "func", job).__name__ == self.loses:
            raise StoreBroken("lost during a commit")
        return done

    async def read(self, job: Any) -> Any:
        return await self.store.read(job)

    def process(self, **bounds: KeptSum) -> IdempotentCalls:
        me: Any = self
        room = AnswerRoom(me, lambda: self.now, rows=KEPT_CALLS, **bounds) if bounds else None
        return IdempotentCalls(
            store=me,
            vault=AnswerVault(bytes(32), secrets.token_bytes),
            key=bytes(32),
            clock=lambda: self.now,
            entropy=secrets.token_bytes,
            boot_id=f"boot-{next(self._boots)}",
            log=structlog.wrap_logger(structlog.PrintLogger(StringIO())),
            room=room,
        )

    async def rows(self) -> list[Any]:
        return await self.store.read(
            lambda db: db.fetch_all("SELECT * FROM kept_calls ORDER BY created_at, id")
        )


@asynccontextmanager
async def kept() -> AsyncGenerator[Kept]:
    async with open_inline_store(clock=lambda: NOW) as store:
        yield Kept(store)


async def begun(keeper: IdempotentCalls, call: IdempotentCall) -> IdempotentBegun:
    found = await keeper.begin(call)
    assert isinstance(found, IdempotentBegun)
    return found


async def test_of_twenty_at_once_with_one_key_one_is_made_and_all_have_its_answer() -> None:
    async with kept() as at:
        keeper, made, heard = at.process(), 0, list[KeptAnswer]()

        async def one() -> None:
            nonlocal made
            found = await keeper.begin(a_call())
            if isinstance(found, IdempotentBegun):
                made += 1
                await trio.testing.wait_all_tasks_blocked()
                found_answer = says("sent")
                await keeper.finish(found, found_answer)
                heard.append(found_answer)
            else:
                assert isinstance(found, KeptAnswer)
                heard.append(found)

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(one)
        assert (made, heard) == (1, [says("sent")] * 20)


@pytest.mark.parametrize(
    "answer",
    [says("sent"), KeptAnswer(raw=RawResult({"taskId": "t", "n": 1}, "task"))],
    ids=["result", "task"],
)
async def test_an_answer_is_given_again_for_a_day_also_by_the_next_process(answer: KeptAnswer) -> None:
    async with kept() as at:
        first = at.process()
        await first.finish(await begun(first, a_call()), answer)
        at.now += KEY_KEPT_MS - 1
        assert await at.process().begin(a_call()) == answer
        at.now += 1
        assert isinstance(await at.process().begin(a_call()), IdempotentBegun)


@pytest.mark.parametrize(
    ("kept_there", "known"),
    [
        (b'{"of-tomorrow": {"text": "y"}}', False),
        (b'{"result": {"content": [{"type": "of-tomorrow"}]}}', False),
        (b'{"failure": {"code": 1, "text": "y", "of-tomorrow": [1]}, "of-tomorrow": [1]}', True),
    ],
)
async def test_an_answer_that_another_version_kept_is_given_where_it_can_be_read_and_never_worked_out_again(
    kept_there: bytes, known: bool
) -> None:
    def put(sealed: bytes, db: StoreDb) -> None:
        db.execute("UPDATE kept_calls SET answer = ?", sealed)

    async with kept() as at:
        first = at.process()
        mine = await begun(first, a_call())
        await first.finish(mine, says("kept"))
        vault = AnswerVault(bytes(32), secrets.token_bytes)
        await at.store.write(partial(put, vault.seal_bytes(mine.row.id, kept_there)))
        found = await at.process().begin(a_call())
        assert found == (KeptAnswer(failure=KeptFailure(1, "y")) if known else NotMadeAgain(UNREADABLE))


async def test_a_key_belongs_to_its_caller_its_tool_and_its_arguments() -> None:
    async with kept() as at:
        keeper = at.process()
        await keeper.finish(await begun(keeper, a_call()), says("sent"))
        assert await keeper.begin(a_call({"to": "eve"})) == NotMadeAgain(OTHER_CALL)
        others: list[dict[str, Any]] = [
            {"caller": "user:bob:cli"},
            {"tool": "other"},
            {"server": "second"},
            {"key": "k-2"},
        ]
        for other in others:
            assert isinstance(await keeper.begin(a_call(**other)), IdempotentBegun)
        (row,) = [row for row in await at.rows() if row["state"] == "done"]
        assert b"sent" not in row["answer"], "it is sealed"


async def test_a_call_that_a_killed_process_left_is_not_made_again_unless_that_does_no_harm() -> None:
    async with kept() as at:
        await begun(at.process(), a_call())
        after = at.process()
        assert await after.begin(a_call()) == NotMadeAgain(INTERRUPTED)
        found = await asked_twice(after, a_call(idempotent=True))
        assert [type(each) for each in found] == [IdempotentBegun, KeptAnswer], "taken up by one"


async def asked_twice(keeper: IdempotentCalls, call: IdempotentCall) -> list[object]:
    """By two at once, of whom the one that makes it is answered."""
    heard: list[object] = []

    async def one() -> None:
        found = await keeper.begin(call)
        heard.append(found)
        if isinstance(found, IdempotentBegun):
            await trio.testing.wait_all_tasks_blocked()
            await keeper.finish(found, says("sent"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(one)
        nursery.start_soon(one)
    return heard


async def test_a_call_without_a_key_that_was_left_is_a_new_one() -> None:
    async with kept() as at:
        call = a_call(key=None, keeps_seconds=60)
        await begun(at.process(), call)
        assert isinstance(await at.process().begin(call), IdempotentBegun)


async def test_what_was_interrupted_here_says_so_and_what_did_nothing_is_forgotten() -> None:
    async with kept() as at:
        keeper = at.process()
        await keeper.interrupt(await begun(keeper, a_call()))
        assert await keeper.begin(a_call()) == NotMadeAgain(INTERRUPTED)
        for end in (keeper.release, keeper.interrupt):
            harmless = a_call(key="k-2", idempotent=True)
            await end(await begun(keeper, harmless))
        assert isinstance(await keeper.begin(a_call(key="k-2")), IdempotentBegun)


async def test_whoever_waited_for_a_call_that_came_to_nothing_makes_it() -> None:
    async with kept() as at:
        keeper, second = at.process(), list[object]()
        first = await begun(keeper, a_call())

        async def again() -> None:
            second.append(await keeper.begin(a_call()))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(again)
            await trio.testing.wait_all_tasks_blocked()
            await keeper.release(first)
        assert isinstance(second[0], IdempotentBegun)


async def test_whoever_waits_too_long_is_told_and_ends_nothing(autojump_clock: object) -> None:
    async with kept() as at:
        keeper = at.process()
        first = await begun(keeper, a_call())
        assert await keeper.begin(a_call()) == NotMadeAgain(IN_FLIGHT, 2)
        with trio.move_on_after(1) as scope:
            await keeper.begin(a_call())
        assert scope.cancelled_caught
        await keeper.finish(first, says("sent"))
        assert await keeper.begin(a_call()) == says("sent")


async def test_without_a_key_an_answer_stands_for_as_long_as_the_tool_says() -> None:
    async with kept() as at:
        keeper, call = at.process(), a_call(key=None, keeps_seconds=60)
        await keeper.finish(await begun(keeper, call), says("sent"))
        at.now += 59_999
        assert await keeper.begin(call) == says("sent")
        assert isinstance(
            await keeper.begin(a_call({"to": "eve"}, key=None, keeps_seconds=60)), IdempotentBegun
        )
        at.now += 1
        assert isinstance(await keeper.begin(call), IdempotentBegun)


async def test_an_answer_that_is_too_large_to_be_kept_is_not_run_for_again() -> None:
    async with kept() as at:
        keeper = at.process()
        await keeper.finish(await begun(keeper, a_call()), says("x" * MAX_ANSWER_BYTES))
        assert await keeper.begin(a_call()) == NotMadeAgain(ANSWERED)


async def test_an_end_that_could_not_be_written_is_written_before_anybody_asks_again() -> None:
    async with kept() as at:
        keeper = at.process()
        first = await begun(keeper, a_call())
        at.refuses = lambda name: StoreUnavailable("full") if name == "end" else None
        await keeper.finish(first, says("sent"))
        with pytest.raises(StoreUnavailable):
            await keeper.begin(a_call())
        at.refuses = lambda _: None
        assert await keeper.begin(a_call()) == says("sent")


async def test_an_end_that_could_not_be_written_is_written_without_another_claim(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Or whoever waits for it in another process would wait until it is too late."""
    async with kept() as at, trio.open_nursery() as background:
        keeper = at.process()
        background.start_soon(keeper.run)
        first = await begun(keeper, a_call())
        at.refuses = lambda name: StoreUnavailable("away") if name == "end" else None
        await keeper.finish(first, says("sent"))
        assert [row["state"] for row in await at.rows()] == ["running"]
        at.refuses = lambda _: None
        with trio.fail_after(1):
            while [row["state"] for row in await at.rows()] != ["done"]:
                await trio.sleep(0.05)
        background.cancel_scope.cancel()


async def test_of_ends_that_could_not_be_written_none_is_lost_because_many_claim_at_once() -> None:
    async with kept() as at:
        keeper = at.process()
        calls = [await begun(keeper, a_call(key=f"k-{number}")) for number in range(6)]
        at.refuses = lambda name: StoreUnavailable("away") if name == "end" else None
        for number, call in enumerate(calls):
            await keeper.finish(call, says(str(number)))
        at.refuses = lambda _: None
        found: dict[int, object] = {}

        async def ask(number: int) -> None:
            found[number] = await keeper.begin(a_call(key=f"k-{number}"))

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                for number in range(6):
                    nursery.start_soon(ask, number)
        assert found == {number: says(str(number)) for number in range(6)}


async def test_a_call_that_may_have_been_begun_is_made_when_it_comes_again() -> None:
    """Whoever asked was told that it was not made, and it was not."""
    async with kept() as at:
        keeper = at.process()
        at.loses = "claim"
        with pytest.raises(StoreBroken):
            await keeper.begin(a_call())
        assert [row["state"] for row in await at.rows()] == ["running"]
        at.loses = ""
        await begun(keeper, a_call())
        assert len(await at.rows()) == 1


async def test_a_call_that_may_have_been_taken_up_is_still_one_that_was_interrupted() -> None:
    async with kept() as at:
        harmless = a_call(idempotent=True)
        await begun(at.process(), harmless)
        keeper = at.process()
        at.loses = "take_up"
        with pytest.raises(StoreBroken):
            await keeper.begin(harmless)
        assert [row["state"] for row in await at.rows()] == ["running"]
        at.loses = ""
        await begun(keeper, harmless)


async def test_whoever_takes_it_up_after_one_of_whom_nobody_knows_is_not_interrupted_by_that() -> None:
    """Both found it interrupted, at the same time. What the first may have begun is ended before the second begins."""
    async with kept() as at:
        harmless = a_call(idempotent=True)
        await begun(at.process(), harmless)
        keeper, found = at.process(), list[IdempotentBegun]()
        at.held["claim"] = trio.Event()

        async def second() -> None:
            found.append(await begun(keeper, harmless))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(second)
            await trio.testing.wait_all_tasks_blocked()
            looked = at.held.pop("claim")
            at.refuses = lambda name: StoreBroken("lost") if name == "take_up" else None
            with pytest.raises(StoreBroken):
                await keeper.begin(harmless)
            at.refuses = lambda _: None
            looked.set()
        await keeper.begin(a_call({"to": "ann"}, key="k-2"))  # anybody has what is owed written
        await keeper.finish(found[0], says("sent"))
        assert await keeper.begin(harmless) == says("sent")


async def test_an_end_that_can_never_be_written_leaves_a_call_that_was_interrupted() -> None:
    async with kept() as at:
        keeper = at.process()
        first = await begun(keeper, a_call())
        at.refuses = lambda name: StatementFailed("broken") if name == "end" else None
        await keeper.finish(first, says("sent"))
        with trio.fail_after(60):
            assert await keeper.begin(a_call()) == NotMadeAgain(INTERRUPTED)


async def test_keys_of_one_caller_make_room_oldest_first_and_never_one_that_runs() -> None:
    async with kept() as at:
        keeper = at.process(of_caller=KeptSum(3, 10**9))
        running = await begun(keeper, a_call(key="runs"))
        for number in range(3):
            at.now += GRACE_MS
            await keeper.finish(await begun(keeper, a_call(key=f"k-{number}")), says(str(number)))
        await begun(keeper, a_call(key="new"))
        assert [row["state"] for row in await at.rows()].count("running") == 2
        assert isinstance(await keeper.begin(a_call(key="k-0")), IdempotentBegun), "forgotten"
        assert await keeper.begin(a_call(key="k-2")) == says("2")
        await keeper.finish(running, says("ran"))
        assert await keeper.begin(a_call(key="runs")) == says("ran")


async def test_where_all_keys_may_be_asked_for_again_any_moment_there_is_no_room_for_another() -> None:
    async with kept() as at:
        keeper = at.process(of_caller=KeptSum(2, 10**9))
        for number in range(2):
            await keeper.finish(await begun(keeper, a_call(key=f"k-{number}")), says("x"))
        assert await keeper.begin(a_call(key="new")) == NotMadeAgain(NO_ROOM, 2)
        assert await keeper.begin(a_call(key="k-0")) == says("x")


async def test_callers_without_a_login_share_one_bound() -> None:
    async with kept() as at:
        keeper = at.process(of_caller=KeptSum(100, 10**9), of_strangers=KeptSum(2, 10**9))
        for number in range(6):
            call = a_call(key="k", caller=f"anonymous:192.0.2.{number}")
            await keeper.finish(await begun(keeper, call), says("x"))
            at.now += GRACE_MS
        assert len(await at.rows()) <= 3


@pytest.mark.parametrize("bound", [KeptSum(256, 10**9), KeptSum(10**9, 256 * 128)], ids=["calls", "bytes"])
@pytest.mark.parametrize("who", ["user:ann:cli", "anonymous:192.0.2.{}"], ids=["one caller", "all strangers"])
async def test_what_other_processes_keep_is_counted_but_for_a_share_of_the_bound_for_each(
    bound: KeptSum, who: str
) -> None:
    async with kept() as at:
        keepers = [at.process(of_caller=bound, of_strangers=bound) for _ in range(4)]
        refused: set[IdempotentCalls] = set()
        for number in range(4 * 256):
            for keeper in keepers:
                found = await keeper.begin(a_call(key=f"k-{number}-{id(keeper)}", caller=who.format(number)))
                if isinstance(found, IdempotentBegun):
                    await keeper.finish(found, says("x"))
                else:
                    assert found == NotMadeAgain(NO_ROOM, 2)
                    refused.add(keeper)
            if len(refused) == len(keepers):
                break
        else:
            pytest.fail("nobody was refused")
        rows = await at.rows()
        most = bound + KeptSum(4, 4 * 128) + KeptSum(*(4 * part for part in astuple(bound.share(SHARES))))
        assert len(rows) >= 256 // 2
        assert not KeptSum(len(rows), sum(row["answer_bytes"] for row in rows)).reaches(most)


async def test_what_is_over_is_swept() -> None:
    async with kept() as at:
        keeper = at.process()
        await keeper.finish(await begun(keeper, a_call()), says("sent"))
        await keeper.interrupt(await begun(keeper, a_call(key="k-2")))
        swept = await sweep(at.store, owner="o", clock=lambda: NOW + KEY_KEPT_MS, retention=Retention())
        assert swept is not None and swept["kept_calls"] == 2
        assert await at.rows() == []
