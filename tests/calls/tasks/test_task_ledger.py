"""What of a task lies in the store (server/calls/tasks/sealed_tasks.py): sealed, each for itself, and no longer than it is needed."""

from __future__ import annotations

import pytest
from task_fakes import OWNER, accept, ask_once, engine, forever, form, greet, text
from trio.testing import MockClock

from server.calls.tasks.task_engine import Ending, TaskOrder
from server.lib.sealing import NotSealedHere
from server.mcp.call_outlet import Outlet, Progress
from server.store.inline_store import InlineStore
from server.store.jobs import StoreDb


async def test_nothing_that_was_said_lies_in_the_store_in_clear(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    async def tell(_order: TaskOrder, outlet: Outlet) -> Ending:
        await outlet.emit(Progress(progress=1, message="hunter2 in progress"))
        await outlet.checkpoint("hunter2 in checkpoint")
        answers = await outlet.ask({"who": form("hunter2 in question")})
        return text(answers["who"]["content"]["name"])

    def everything(db: StoreDb) -> bytes:
        rows = [
            row
            for table in ("tasks", "task_parts", "task_questions")
            for row in db.fetch_all(f"SELECT * FROM {table}")
        ]
        return b"\n".join(
            value if isinstance(value, bytes) else str(value).encode()
            for row in rows
            for value in row.values()
        )

    async with engine(store, {"t": tell}) as made:
        task = await made.start()
        await made.ended(task)
        waiting = await store.read(everything)
        await made.tasks.answer(task.id, OWNER, {"who": accept("hunter2 in answer")})
        answered = await store.read(everything)
        await made.ended(task)
        ended = await store.read(everything)
    for dump in (waiting, answered, ended):
        assert b"hunter2" not in dump
        assert task.id.encode() not in dump


async def test_what_was_sealed_for_one_task_opens_for_no_other(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    def swap(db: StoreDb) -> None:
        sql = "SELECT id_hash, sealed FROM task_parts WHERE name = 'ending'"
        one, other = db.fetch_all(sql)
        for mine, yours in ((one, other), (other, one)):
            update = "UPDATE task_parts SET sealed = ? WHERE name = 'ending' AND id_hash = ?"
            db.execute(update, yours["sealed"], mine["id_hash"])

    async with engine(store, {"t": greet}) as made:
        tasks = [await made.start(), await made.start()]
        for task in tasks:
            await made.ended(task)
        await store.write(swap)
        for task in tasks:
            with pytest.raises(NotSealedHere):
                await made.get(task)


async def test_what_only_a_run_needs_is_gone_when_it_has_ended(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    def names(db: StoreDb) -> list[str]:
        return [
            row["name"]
            for row in db.fetch_all(
                "SELECT name FROM task_parts UNION ALL SELECT name FROM task_questions ORDER BY 1"
            )
        ]

    async with engine(store, {"t": ask_once, "forever": forever}) as made:
        task = await made.start()
        await made.ended(task)
        await made.tasks.answer(task.id, OWNER, {"who": accept()})
        await made.ended(task)
        assert await store.read(names) == ["ending", "events"]
        slow = await made.start("forever")
        await made.tasks.cancel(slow.id, OWNER, reason="enough")
        assert await store.read(names) == ["ending", "events", "events"]
