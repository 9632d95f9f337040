"""Answers that are kept are bounded: those that were given make room, those that were paid for and not fetched never do."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from server.mcp.result_encoding import ToolResult
from server.payments.seller.priced_call import Earlier, PricedCall, Served, Shown, Started
from server.store.idempotency import kept_answers
from server.store.idempotency.kept_answers import GRACE_MS, LOOK_AGAIN_SECONDS, OF_CALLER, AnswerRoom, KeptSum
from server.store.jobs import Row, StoreDb, StoreUnavailable
from server.store.migrate import migrate, packaged_migrations
from server.store.sqlite_connect import connect_writer
from tests.payments.seller.open_till import (
    ANN,
    ANSWER,
    REFUSED,
    OpenTill,
    a_call,
    an_offer,
    anonymous,
    no_room,
    open_till,
    reason,
)
from tests.payments.seller.till_fakes import NOW

PLENTY = 10**12
FILL = """
INSERT INTO charges (id, call_key, fingerprint, stands, keyed, state, paid, how, server, tool, call_id, caller, wallet, amount, currency,
 price, spent, retries_left, answer, created_at, ended_at, answered_at, expires_at)
 WITH RECURSIVE counted (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < ?)
 SELECT ? || n, ? || n, 'f', 1, 1, 'done', 1, 'balance', 'main', 'search', 'call', ?, NULL, 1, 'USD', 'v', '[]', 0, x'0102', 1, 1, ?, ?
 FROM counted
"""


def of_caller(answers: int, size: int = PLENTY) -> dict[str, KeptSum]:
    return {"of_caller": KeptSum(answers, size)}


def numbered(number: int, **more: Any) -> PricedCall:
    return a_call({"number": number}, **more)


async def given(at: OpenTill, number: int) -> None:
    """A call with a key whose answer its caller has."""
    at.written(await at.pays(numbered(number), an_offer(), key=f"key-{number}"), keyed=True)
    await at.look()
    at.now += GRACE_MS


async def again(at: OpenTill, number: int) -> Any:
    return await at.pays(numbered(number), an_offer(), key=f"key-{number}")


async def later() -> None:
    """Whoever was found to have too much is looked at anew."""
    await trio.sleep(LOOK_AGAIN_SECONDS)


async def charges_of(at: OpenTill) -> list[Row]:
    found = await at.rows("charges")
    for row in found:
        assert row["answer_bytes"] == len(row["answer"] or b"")
    return found


async def test_the_size_of_each_answer_is_known_whatever_becomes_of_its_call() -> None:
    async with open_till() as at:
        await at.give(1_000_000)
        await at.pays(numbered(1), an_offer())
        await given(at, 2)
        await at.pays(numbered(3), an_offer(upfront=True))
        assert [row["answer_bytes"] > 0 for row in await charges_of(at)] == [True] * 3
        begun = await at.till.begin(numbered(4), an_offer(upfront=True), Shown())
        assert isinstance(begun, Started)
        await at.till.release(begun)  # owed
        at.facilitators.hold = trio.Event()
        async with trio.open_nursery() as nursery:

            async def pay() -> None:
                await at.pays(numbered(5), an_offer(), payment=at.payment())

            nursery.start_soon(pay)
            await trio.testing.wait_all_tasks_blocked()
            sizes = {row["state"]: row["answer_bytes"] > 0 for row in await charges_of(at)}
            assert sizes == {"done": True, "owed": False, "settling": True}
            at.facilitators.outcomes.append(REFUSED)
            at.facilitators.hold.set()
        assert len(await charges_of(at)) == 4
        at.now += 2 * 86_400_000
        await at.pays(numbered(1), an_offer())  # a new call, where the old one stood
        sizes_now = sorted(row["answer_bytes"] > 0 for row in await charges_of(at))
        assert sizes_now == [False, False, True, True, True]


async def test_answers_that_were_given_make_room_oldest_first(autojump_clock: trio.testing.MockClock) -> None:
    async with open_till(**of_caller(32)) as at:
        await at.give(1_000_000)
        for number in range(32):
            await given(at, number)
        paid = (await at.wallet())["balance"]
        await given(at, 32)
        # A sixteenth has gone, and one more would do for the next call as well.
        left = [row["call_key"] for row in await charges_of(at) if row["answer_bytes"]]
        assert len(left) == 31
        for number in (0, 1):
            assert reason(await again(at, number)) == "answered"
        for number in (2, 31, 32):
            assert isinstance(await again(at, number), Earlier)
        # Nothing was run or charged again.
        assert (await at.wallet())["balance"] == paid - 10_000


async def test_large_answers_make_room_as_many_ones_do() -> None:
    async with open_till() as found:
        await found.give(10_000)
        await found.pays(numbered(1), an_offer())
        (row,) = await charges_of(found)
        size: int = row["answer_bytes"]
    async with open_till(**of_caller(1000, 3 * size)) as at:
        await at.give(1_000_000)
        for number in range(4):
            await given(at, number)
        assert reason(await again(at, 0)) == "answered"
        assert isinstance(await again(at, 1), Earlier)


async def test_answers_that_nobody_fetched_are_never_dropped_and_nothing_new_is_sold(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_till(**of_caller(3)) as at:
        await at.give(1_000_000)
        for number in range(3):
            await at.pays(numbered(number), an_offer())
        before = await at.wallet()
        for upfront in (False, True):
            refused = await at.pays(numbered(9), an_offer(upfront=upfront))
            assert reason(refused) == "answers_not_fetched"
            assert (refused.status, refused.asks) == (429, False)
        assert await at.wallet() == before
        # What was paid for is there, and others are not concerned.
        assert isinstance(await at.pays(numbered(1), an_offer()), Earlier)
        assert isinstance(await at.pays(numbered(1, caller="user:ben:"), an_offer()), Served)
        # With the first that is fetched there is room again.
        again = await at.pays(numbered(2), an_offer())
        at.written(again)
        await at.look()
        await later()
        assert isinstance(await at.pays(numbered(9), an_offer()), Served)


@pytest.mark.parametrize("failed", [None, ANSWER])
async def test_what_was_interrupted_is_counted_and_makes_room_first(failed: ToolResult | None) -> None:
    async with open_till(**of_caller(1000, 1)) as at:
        await at.give(1_000_000)
        shown = Shown(key="key-1")
        begun = await at.till.begin(numbered(1), an_offer(), shown)
        assert isinstance(begun, Started)
        await at.till.interrupt(begun, failed)
        at.now += GRACE_MS
        assert isinstance(await at.till.begin(numbered(2), an_offer(), Shown()), Started)
        assert isinstance(await at.till.begin(numbered(1), an_offer(), shown), Started)


async def test_what_was_given_is_not_dropped_where_it_would_not_be_enough() -> None:
    async with open_till(**of_caller(3)) as at:
        await at.give(1_000_000)
        await given(at, 0)
        begun = await at.till.begin(numbered(7), an_offer(), Shown())
        assert isinstance(begun, Started)
        for number in range(2):
            await at.pays(numbered(number), an_offer())
        await at.till.finish(begun, ANSWER)  # it was begun when there was room, and comes on top
        assert reason(await at.pays(numbered(9), an_offer())) == "answers_not_fetched"
        assert isinstance(await again(at, 0), Earlier)


async def test_what_was_written_a_moment_ago_may_still_get_lost_and_makes_no_room(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_till(**of_caller(1)) as at:
        payment = at.payment()
        served = await at.pays(numbered(1), an_offer(), payment=payment)
        heard_of = at.till.answered(served.charge_id, keyed=False, keeps_ms=0, on_chain=True)
        assert heard_of is not None
        await at.look()
        assert reason(await at.pays(numbered(2), an_offer(), payment=at.payment())) == "answers_not_fetched"
        assert isinstance(await at.pays(numbered(1), an_offer(), payment=payment), Earlier)
        await later()
        heard_of()
        assert isinstance(await at.pays(numbered(2), an_offer(), payment=at.payment()), Served)


async def test_a_payment_for_which_there_is_no_room_is_not_sent_and_as_good_as_before(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_till(**of_caller(1)) as at:
        served = await at.pays(numbered(1), an_offer(), payment=at.payment())
        payment = at.payment()
        assert reason(await at.pays(numbered(2), an_offer(), payment=payment)) == "answers_not_fetched"
        assert [row["state"] for row in await at.rows("payments")] == ["settled"]
        at.written(served)
        await at.look()
        await later()
        assert isinstance(await at.pays(numbered(2), an_offer(), payment=payment), Served)


async def test_strangers_are_bounded_together_and_do_not_stand_in_the_way_of_others() -> None:
    async with open_till(of_strangers=KeptSum(2, PLENTY)) as at:
        await at.give(1_000_000)
        for number in range(2):
            payer: dict[str, Any] = {"from": f"0x{number + 1:040x}"}
            served = await at.pays(anonymous({"q": number}), an_offer(), payment=at.payment(**payer))
            assert isinstance(served, Served)
        assert (
            reason(await at.pays(anonymous({"q": 3}), an_offer(), payment=at.payment()))
            == "answers_not_fetched"
        )
        assert isinstance(await at.pays(numbered(3), an_offer()), Served)


async def test_very_many_make_room_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_answers, "PIECE", 2)
    monkeypatch.setattr(kept_answers, "FOUND", 5)
    async with open_till(**of_caller(10)) as at:
        await at.give(1_000_000)
        begun = [
            await at.till.begin(numbered(number), an_offer(), Shown(key=f"key-{number}"))
            for number in range(30)
        ]
        for each in begun:
            assert isinstance(each, Started)
            at.written(await at.till.finish(each, ANSWER), keyed=True)
        await at.look()
        at.now += GRACE_MS
        assert isinstance(await at.pays(numbered(99), an_offer()), Served)
        assert sum(row["answer_bytes"] > 0 for row in await charges_of(at)) == 10
        assert reason(await again(at, 20)) == "answered"
        assert isinstance(await again(at, 21), Earlier)


async def test_what_is_kept_is_found_again_after_a_restart() -> None:
    async with open_till(**of_caller(2)) as at:
        await at.give(1_000_000)
        for number in range(2):
            await at.pays(numbered(number), an_offer())
        next_one = at.made_till(at.made_settlements("boot-2"), "boot-2")
        assert reason(await next_one.begin(numbered(9), an_offer(), Shown())) == "answers_not_fetched"


async def test_an_answer_that_only_another_version_can_read_is_neither_given_nor_charged_again() -> None:
    async with open_till() as at:
        await at.give(1_000_000)
        await given(at, 1)
        (charge,) = await charges_of(at)
        newer = at.vault.seal_bytes(charge["id"], b'{"content": [{"type": "of-tomorrow"}]}')

        def put(db: StoreDb) -> None:
            db.execute("UPDATE charges SET answer = ?, answer_bytes = ?", newer, len(newer))

        await at.store.write(put)
        assert reason(await again(at, 1)) == "answer_unreadable"
        (charge,) = await charges_of(at)
        assert (charge["state"], charge["answer"]) == ("done", newer)


async def test_calls_at_the_same_time_do_not_slip_by_while_it_is_looked() -> None:
    async with open_till(**of_caller(2)) as at:
        await at.give(1_000_000)
        for number in range(2):
            await at.pays(numbered(number), an_offer())
        found: list[str] = []
        next_one = at.made_till(at.made_settlements("boot-2"), "boot-2")

        async def call(number: int) -> None:
            found.append(reason(await next_one.begin(numbered(number), an_offer(), Shown())))

        async with trio.open_nursery() as nursery:
            for number in range(10, 30):
                nursery.start_soon(call, number)
        assert found == ["answers_not_fetched"] * 20


async def test_an_ordinary_call_asks_the_store_nothing_more() -> None:
    async with open_till() as at:
        await at.give(1_000_000)
        at.written(await at.pays(numbered(0), an_offer()))
        before = at.store.jobs
        for number in range(1, 11):
            at.written(await at.pays(numbered(number), an_offer()))
        assert at.store.jobs - before == 20


async def test_a_look_that_failed_is_made_again() -> None:
    async with open_till() as at:
        store: Any = at.store
        room = AnswerRoom(store, lambda: at.now, of_caller=KeptSum(1, PLENTY))
        await at.give(1_000_000)
        await given(at, 1)
        at.store.failing = no_room("drop_answers")
        with pytest.raises(StoreUnavailable):
            await room.make(ANN)
        at.store.failing = lambda name: None
        assert not await room.is_left(ANN)
        assert await room.make(ANN)
        assert await room.is_left(ANN)
        assert reason(await again(at, 1)) == "answered"


async def test_what_a_refused_claim_brought_along_is_noted_all_the_same() -> None:
    # Else the next call like the one that was answered would be given its answer, and not be made.
    async with open_till() as at:
        await at.give(10_000)
        at.written(await at.pays(a_call(), an_offer()))
        assert reason(await at.pays(numbered(1), an_offer())) == "balance_too_low"
        assert await at.rows("charges") == []
        assert list(at.settlements.take_marks()) == []


async def test_meters_are_as_they_were_after_a_call_that_was_refused() -> None:
    async with open_till() as at:
        await at.give(5_000)
        assert reason(await at.pays(numbered(1), an_offer(trial=0))) == "balance_too_low"
        assert [row["amount"] for row in await at.rows("meters")] in ([], [0])


@pytest.mark.sqlite_only("it is SQLite that explains how it will look")
@pytest.mark.parametrize("holder", [ANN, kept_answers.STRANGERS])
async def test_what_is_kept_is_added_up_and_found_by_an_index_alone(holder: str) -> None:
    async with open_till() as at:
        asked: list[str] = []

        class Asks:
            def fetch_one(self, sql: str, *params: object) -> Any:
                asked.append(sql)
                return {"answers": 100 * OF_CALLER.answers, "bytes": 1}

            def fetch_all(self, sql: str, *params: object) -> Any:
                asked.append(sql)
                return [{"id": "chg_1", "answer_bytes": 1}]

        db: Any = Asks()
        assert kept_answers.too_old(db, holder, OF_CALLER, now=NOW) == ["chg_1"]
        assert len(asked) == 3
        for sql in asked:
            steps = await at.store.inner.read(lambda db, sql=sql: explained(db, sql))
            assert "INDEX charges_kept (caller" in steps
            assert "SCAN charges" not in steps


def explained(db: StoreDb, sql: str) -> str:
    connection: Any = db._connection  # type: ignore[attr-defined]  # pyright: ignore
    assert isinstance(connection, sqlite3.Connection)
    rows = connection.execute(f"EXPLAIN QUERY PLAN {sql}", ["x"] * sql.count("?")).fetchall()
    return "\n".join(row[-1] for row in rows)


@pytest.mark.sqlite_only("no release had rows of that schema in PostgreSQL")
def test_answers_that_were_kept_before_are_counted(tmp_path: Path) -> None:
    known = packaged_migrations()
    with closing(connect_writer(tmp_path / "ostiary.db")) as connection:
        migrate(connection, known[:7], now=NOW, backups=tmp_path)
        connection.execute(FILL, (2, "kept", "kept", ANN, None, NOW))
        connection.execute(FILL, (1, "gone", "gone", ANN, 1, NOW))
        connection.execute("UPDATE charges SET answer = NULL WHERE id = 'gone1'")
        migrate(connection, known, now=NOW, backups=tmp_path)
        found = connection.execute("SELECT id, answer_bytes FROM charges ORDER BY id").fetchall()
        assert found == [("gone1", 0), ("kept1", 2), ("kept2", 2)]
