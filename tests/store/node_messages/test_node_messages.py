"""What nodes tell each other: read by all others in order, once; bounded; sealed; and nothing where nobody else is."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from server.store.jobs import JobTooSlow, StoreBroken, StoreDb, StoreError, StoreUnavailable
from server.store.node_messages.node_message_rows import SMALL_BYTES
from server.store.node_messages.node_messages import (
    KEPT_MS,
    MAX_BODY,
    SOON_SECONDS,
    NodeMessage,
    NodeMessages,
)
from tests.store.node_messages.neighbours import NOW, Street, street

A, B, C = "a" * 16, "b" * 16, "c" * 16


class Heard(list[tuple[str, bytes]]):
    def __call__(self, letter: NodeMessage) -> None:
        self.append((letter.topic, letter.body))


@asynccontextmanager
async def delivered(of: Street, *several: NodeMessages) -> AsyncGenerator[None]:
    async with trio.open_nursery() as nursery:
        for letters in several:
            nursery.start_soon(letters.run)
            nursery.start_soon(of.deliver, letters)
        await trio.testing.wait_all_tasks_blocked()
        yield
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()


async def rows(of: Street) -> list[Any]:
    return await of.store.read(lambda db: db.fetch_all("SELECT * FROM letters ORDER BY seq"))


async def test_all_others_hear_each_letter_once_and_in_order(autojump_clock: trio.testing.MockClock) -> None:
    async with street() as of:
        nodes = [of.letters(name) for name in (A, B, C)]
        heard = [Heard() for _ in nodes]
        for letters, hears in zip(nodes, heard, strict=True):
            letters.hear("word", hears)
        async with delivered(of, *nodes):
            for number in range(250):
                assert nodes[0].send("word", "t", b"%d" % number)
        assert heard[0] == []
        assert heard[1] == heard[2] == [("t", b"%d" % number) for number in range(250)]
        await nodes[1].look()
        assert len(heard[1]) == 250, "looking again finds nothing new"


async def test_where_nobody_else_is_alive_nothing_is_written(autojump_clock: trio.testing.MockClock) -> None:
    async with street() as of:
        alone = of.letters(A)
        async with delivered(of, alone):
            assert not alone.send("word", "t")
            alone.send_soon("word", "t")
        assert await rows(of) == [] and of.store.written == 0


async def test_a_node_hears_nothing_from_before_it_began(autojump_clock: trio.testing.MockClock) -> None:
    async with street() as of:
        one, other = of.letters(A), of.letters(B)
        async with delivered(of, one, other):
            one.send("word", "t", b"before")
        late, heard = of.letters(C), Heard()
        late.hear("word", heard)
        async with delivered(of, one, late):
            one.send("word", "t", b"after")
        assert heard == [("t", b"after")]


async def test_only_what_concerns_somebody_is_opened(autojump_clock: trio.testing.MockClock) -> None:
    async with street() as of:
        one, other = of.letters(A), of.letters(B)
        heard = Heard()
        other.hear("word", heard, {"mine"}.__contains__)
        async with delivered(of, one, other):
            for topic in ("mine", "theirs"):
                one.send("word", topic, b"x")
            one.send("unheard", "mine")
        assert heard == [("mine", b"x")] and other.heard == 1


async def test_a_large_letter_comes_whole_and_a_larger_one_is_not_sent(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with street() as of:
        one, other = of.letters(A), of.letters(B)
        heard = Heard()
        other.hear("word", heard)
        async with delivered(of, one, other):
            assert one.send("word", "t", b"x" * MAX_BODY)
            assert one.send("word", "t", b"y" * (SMALL_BYTES + 1))
            assert not one.send("word", "t", b"z" * (MAX_BODY + 1))
        assert heard == [("t", b"x" * MAX_BODY), ("t", b"y" * (SMALL_BYTES + 1))]
        assert one.dropped == 1


async def test_nothing_of_a_letter_is_in_the_database_in_clear_and_one_that_was_changed_is_not_heard(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with street() as of:
        one, other = of.letters(A), of.letters(B)
        heard = Heard()
        other.hear("word", heard)
        other.hear("order", heard)
        async with delivered(of, one):
            one.send("word", "t", b"hunter2")
        (row,) = await rows(of)
        assert b"hunter2" not in row["sealed"]
        await of.store.write(lambda db: db.execute("UPDATE letters SET kind = 'order'"))
        other._read_to = 0
        await other.look()
        assert heard == []
        assert [line["event"] for line in of.lines if line["level"] == "error"] == ["letter.forged"]


async def test_who_causes_too_many_is_not_carried_and_others_are(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with street() as of:
        one, other = of.letters(A), of.letters(B)
        heard = Heard()
        other.hear("word", heard)
        async with delivered(of, one, other):
            sent = sum(one.send("word", "flood", caller="mallory") for _ in range(1000))
            assert one.send("word", "t", caller="alice")
        assert sent < 500
        assert ("t", b"") in heard
        assert len(await rows(of)) == sent + 1
        assert len([line for line in of.lines if line["event"] == "letter.dropped"]) == 1


async def test_whatever_callers_cause_a_node_can_say_what_it_has_to_say_itself(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with street() as of:
        one, other = of.letters(A), of.letters(B)
        heard = Heard()
        other.hear("word", heard)
        async with delivered(of, one, other):
            sent = 0
            for _ in range(20):
                sent += sum(one.send("word", "flood", caller=f"m{number}") for number in range(100))
                await trio.testing.wait_all_tasks_blocked()
            assert 1000 <= sent < 1500
            assert one.send("word", "t")
        assert ("t", b"") in heard


async def test_where_a_database_took_over_that_lacks_the_last_letters_the_next_ones_are_heard(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with street() as of:
        one, other = of.letters(A), of.letters(B)
        heard, missed = Heard(), list[str]()
        other.hear("word", heard)
        other.on_missed(lambda: missed.append("missed"))
        async with delivered(of, one, other):
            for number in range(5):
                one.send("word", "t", b"%d" % number)
            await trio.testing.wait_all_tasks_blocked()
            await of.store.write(lambda db: db.execute("DELETE FROM letters WHERE seq > 1"))
            await trio.testing.wait_all_tasks_blocked()
            assert missed == ["missed"]
            await of.store.write(
                lambda db: db.execute(
                    "INSERT INTO letters (seq, node, kind, topic, sealed, at)"
                    " SELECT 2, node, kind, topic, sealed, at FROM letters"
                )
            )
        assert len(heard) == 6


async def test_what_happens_often_is_told_once_in_a_while(autojump_clock: trio.testing.MockClock) -> None:
    async with street() as of:
        one, other = of.letters(A), of.letters(B)
        heard = Heard()
        other.hear("list", heard)
        async with delivered(of, one, other):
            for _ in range(3):
                for _ in range(100):
                    one.send_soon("list", "main", b"tools")
                await trio.sleep(SOON_SECONDS * 2)
        assert heard == [("main", b"tools")] * 3


async def test_what_all_have_read_is_deleted_soon(autojump_clock: trio.testing.MockClock) -> None:
    async with street() as of:
        one, other = of.letters(A), of.letters(B)
        async with delivered(of, one, other):
            one.send("word", "t", b"old")
            await trio.testing.wait_all_tasks_blocked()
            await trio.sleep(KEPT_MS / 1000 + 1)
            one.send("word", "t", b"new")
        (row,) = await rows(of)
        assert row["at"] > NOW + KEPT_MS


async def test_a_node_that_could_not_read_for_too_long_says_so(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with street() as of:
        one = of.letters(A)
        missed: list[str] = []
        one.on_missed(lambda: missed.append("missed"))
        await one.look()
        await trio.sleep(KEPT_MS / 1000 / 2)
        await one.look()
        assert missed == []
        await trio.sleep(KEPT_MS / 1000 + 1)
        await one.look()
        assert missed == ["missed"]


@pytest.mark.parametrize("problem", [StoreUnavailable("away"), JobTooSlow("it took too long")])
async def test_a_store_that_is_away_for_a_while_costs_no_letter_and_for_long_costs_those_that_waited(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch, problem: StoreError
) -> None:
    async with street() as of:
        one, other = of.letters(A), of.letters(B)
        heard = Heard()
        other.hear("word", heard)
        write, away = of.store.kept.write, True

        async def sometimes(job: Any) -> Any:
            if away:
                raise problem
            return await write(job)

        monkeypatch.setattr(of.store.kept, "write", sometimes)
        async with delivered(of, one, other):
            one.send("word", "t", b"first")
            await trio.sleep(3)
            away = False
            await trio.sleep(3)
            assert heard == [("t", b"first")]
            away = True
            one.send("word", "t", b"given up")
            await trio.sleep(30)
            away = False
            one.send("word", "t", b"last")
        assert heard == [("t", b"first"), ("t", b"last")] and one.dropped == 1


@pytest.mark.parametrize("written", [True, False])
async def test_what_may_have_been_written_is_heard_once(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch, written: bool
) -> None:
    async with street() as of:
        one, other = of.letters(A), of.letters(B)
        heard = Heard()
        other.hear("word", heard)
        write, problems = of.store.kept.write, [StoreBroken("?"), StoreUnavailable("away")]

        async def doubtful(job: Any) -> Any:
            if problems:
                problem = problems.pop(0)
                if written and isinstance(problem, StoreBroken):
                    await write(job)
                raise problem
            return await write(job)

        monkeypatch.setattr(of.store.kept, "write", doubtful)
        async with delivered(of, one, other):
            one.send("word", "t", b"do you agree?")
            one.send("word", "t", b"and you?")
            await trio.sleep(10)
            one.send("word", "t", b"do you agree?")
        assert heard == [("t", b"do you agree?"), ("t", b"and you?"), ("t", b"do you agree?")]


async def test_a_listener_that_fails_keeps_no_other_from_hearing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with street() as of:
        one, other = of.letters(A), of.letters(B)
        heard = Heard()

        def fails(_letter: NodeMessage) -> None:
            raise RuntimeError("a fault")

        other.hear("word", fails)
        other.hear("word", heard)
        async with delivered(of, one, other):
            one.send("word", "t", b"x")
            one.send("word", "t", b"y")
        assert heard == [("t", b"x"), ("t", b"y")]


async def test_a_letter_is_not_lost_when_one_is_gone_from_the_middle(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with street() as of:
        one, other = of.letters(A), of.letters(B)
        heard = Heard()
        other.hear("word", heard)
        await other.look()
        async with delivered(of, one):
            for body in (b"1", b"2", b"3"):
                one.send("word", "t", body)

        def drop(db: StoreDb) -> None:
            db.execute("DELETE FROM letters WHERE seq = 2")

        await of.store.write(drop)
        await other.look()
        assert [body for _, body in heard] == [b"1", b"3"]


async def test_what_a_newer_version_writes_is_passed_over_and_said_once_of_each_kind(
    autojump_clock: trio.testing.MockClock,
) -> None:
    class Known(msgspec.Struct, tag="known"):
        number: int

    class AlsoKnown(msgspec.Struct, tag="also"):
        pass

    decode = msgspec.json.Decoder(Known | AlsoKnown).decode
    numbers: list[int] = []

    def hear(letter: NodeMessage) -> None:
        told = decode(letter.body)
        if isinstance(told, Known):
            numbers.append(told.number)

    async with street() as of:
        newer, older = of.letters(A), of.letters(B)
        older.hear("word", hear)
        older.hear("name", lambda letter: numbers.append(len(letter.body.decode())))
        async with delivered(of, newer, older):
            for _ in range(3):
                newer.send("of-tomorrow", "t", b"whatever")
                newer.send("word", "t", b'{"type": "of-tomorrow", "number": 1}')
                newer.send("word", "t", b'{"type": "known", "number": "many"}')
                newer.send("word", "t", b"\x00\xff")
                newer.send("name", "t", b"\xff")
            newer.send("word", "t", b'{"type": "known", "number": 7, "of-tomorrow": [1]}')
        assert numbers == [7]
        said = [line for line in of.lines if line["event"].startswith("letter.")]
        assert [(line["event"], line["kind"], line["node"]) for line in said] == [
            ("letter.not_understood", "word", A),
            ("letter.not_understood", "name", A),
        ]
        assert "exc_info" not in said[0]
