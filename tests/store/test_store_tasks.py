"""The rows of tasks (server/store/task_rows.py), on every engine."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from store_engines import NOW, AnyStore

from server.store import task_leases, task_rows
from server.store.migrate import migrate, packaged_migrations
from server.store.sqlite_connect import connect_writer
from server.store.task_leases import Lease
from server.store.task_rows import AbandonedTask, Caps, NewTask, StoredTask, TasksFull

MILLIS = 20_000
CAPS = Caps(running=100, running_overall=100, kept=100, kept_overall=100, kept_bytes=10_000)


def new(name: str = "a", **changed: Any) -> NewTask:
    values: dict[str, Any] = {
        "id_hash": name,
        "sealed_id": b"id",
        "server": "main",
        "tool": "t",
        "caller": "alice",
        "face": "core",
        "replays": False,
        "created_at": NOW,
        "expires_at": NOW + 3_600_000,
        "parts": {"order": b"order"},
    }
    return NewTask(**values | changed)


async def insert(
    store: AnyStore, task: NewTask, *, owner: str = "boot-1", caps: Caps = CAPS
) -> Lease | TasksFull:
    return await store.write(
        partial(task_rows.insert, task=task, owner=owner, lease_until=NOW + MILLIS, caps=caps, now=NOW)
    )


async def begin(store: AnyStore, name: str = "a", **changed: Any) -> Lease:
    lease = await insert(store, new(name, **changed))
    assert isinstance(lease, Lease)
    return lease


async def fetch(store: AnyStore, name: str = "a", *, answered: bool = False) -> StoredTask:
    parts = ("order", "checkpoint", "events", "ending")
    stored = await store.read(partial(task_rows.fetch, id_hash=name, parts=parts, answered=answered))
    assert stored is not None
    return stored


async def state(store: AnyStore, name: str = "a") -> str:
    return (await fetch(store, name)).row["state"]


async def finish(store: AnyStore, lease: Lease, to: str = "completed") -> bool:
    return await store.write(
        partial(task_rows.finish, lease=lease, now=NOW + 5, state=to, tool_failed=False, message=None, parts={"ending": b"end"})
    )  # fmt: skip


async def ask(store: AnyStore, lease: Lease, *names: str) -> int | None:
    questions = {name: f"{name}?".encode() for name in names}
    return await store.write(
        partial(task_rows.ask, lease=lease, now=NOW + 1, questions=questions, message=None, parts={})
    )


async def answer(store: AnyStore, *names: str, task: str = "a", now: int = NOW + 2) -> int:
    answers = {name: f"{name}!".encode() for name in names}
    return await store.write(partial(task_rows.answer, id_hash=task, now=now, answers=answers))


async def cancel(store: AnyStore, name: str = "a") -> bool:
    return await store.write(partial(task_rows.cancel, id_hash=name, now=NOW + 3, message=b"enough"))


async def take_over(
    store: AnyStore, name: str = "a", *, owner: str = "boot-2", now: int = NOW + MILLIS
) -> AbandonedTask | None:
    return await store.write(
        partial(
            task_rows.take_over,
            id_hash=name, owner=owner, now=now, millis=MILLIS, max_runs=3, message=b"restarted", ending=b"failed",
        )
    )  # fmt: skip


async def test_a_new_task_is_at_work_and_leased_to_its_maker(store: AnyStore) -> None:
    lease = await begin(store)
    stored = await fetch(store)
    assert (stored.row["state"], stored.row["version"], stored.row["updated_at"]) == ("working", 1, NOW)
    assert stored.parts == {"order": b"order"}
    assert await store.read(lambda db: task_leases.holds(db, lease, now=NOW))


@pytest.mark.parametrize(
    ("caps", "caller", "found"),
    [
        (
            Caps(running=1, running_overall=9, kept=9, kept_overall=9, kept_bytes=10_000),
            "alice",
            TasksFull.CALLER,
        ),
        (Caps(running=1, running_overall=9, kept=9, kept_overall=9, kept_bytes=10_000), "bob", None),
        (
            Caps(running=9, running_overall=1, kept=9, kept_overall=9, kept_bytes=10_000),
            "bob",
            TasksFull.SERVER,
        ),
        (
            Caps(running=9, running_overall=9, kept=1, kept_overall=9, kept_bytes=10_000),
            "alice",
            TasksFull.CALLER,
        ),
        (
            Caps(running=9, running_overall=9, kept=9, kept_overall=1, kept_bytes=10_000),
            "bob",
            TasksFull.SERVER,
        ),
    ],
)
async def test_a_cap_that_is_reached_refuses_and_leaves_no_row(
    store: AnyStore, caps: Caps, caller: str, found: TasksFull | None
) -> None:
    await begin(store, "first")
    made = await insert(store, new("second", caller=caller), caps=caps)
    assert (made if isinstance(made, TasksFull) else None) is found
    stored = await store.read(partial(task_rows.fetch, id_hash="second", parts=()))
    assert (stored is None) is (found is not None)


async def test_what_a_person_keeps_is_counted_over_all_their_programs(store: AnyStore) -> None:
    caps = CAPS
    half = {"order": b"x" * (caps.kept_bytes // 2)}
    for program in ("one", "two"):
        assert isinstance(
            await insert(store, new(program, caller=f"user:alice:{program}", parts=half)), Lease
        )
    third = new("third", caller="user:alice:three", parts={"order": b"x"})
    assert await insert(store, third) is TasksFull.CALLER
    # Neither is somebody else one whose name begins alike.
    for other in ("user:alice2:one", "user:al:one", "anonymous"):
        assert isinstance(await insert(store, new(other, caller=other, parts=half)), Lease)


async def test_of_many_that_begin_at_once_no_more_than_the_cap_do(store: AnyStore) -> None:
    caps = Caps(running=3, running_overall=9, kept=9, kept_overall=9, kept_bytes=10_000)
    made: list[Lease | TasksFull] = []

    async def one(number: int) -> None:
        made.append(await insert(store, new(f"t{number}"), caps=caps))

    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(one, number)
    assert len([each for each in made if isinstance(each, Lease)]) == 3


@pytest.mark.requirement("core-tasks.terminal")
@pytest.mark.parametrize("to", ["completed", "failed"])
async def test_what_has_ended_never_changes_again(store: AnyStore, to: str) -> None:
    lease = await begin(store)
    assert await finish(store, lease, to)
    before = await fetch(store)
    assert not await finish(store, lease, "failed")
    assert not await cancel(store)
    assert await ask(store, lease, "q") is None
    assert await answer(store, "q") == 0
    note = partial(task_rows.note, lease=lease, now=NOW + 9, message=b"x", parts={"events": b"x"})
    assert await store.write(note) is None
    assert await store.write(partial(task_rows.keep, held=[lease], until=NOW + 99_000)) == {}
    assert await store.read(partial(task_rows.find_orphans, now=NOW + 10**9, limit=10)) == []
    assert await take_over(store, now=NOW + 10**9) is None
    assert await fetch(store) == before
    assert before.row["state"] == to
    assert before.parts == {"ending": b"end"}


async def test_of_many_that_would_end_it_at_once_one_does(store: AnyStore) -> None:
    lease = await begin(store)
    ended: list[str] = []

    async def end(how: str) -> None:
        if await (cancel(store) if how == "cancelled" else finish(store, lease, how)):
            ended.append(how)

    async with trio.open_nursery() as nursery:
        for how in ["cancelled", "completed", "failed"] * 4:
            nursery.start_soon(end, how)
    assert len(ended) == 1
    assert await state(store) == ended[0]


async def test_cancelling_takes_the_lease_from_whoever_runs_it(store: AnyStore) -> None:
    lease = await begin(store)
    assert await cancel(store)
    assert not await finish(store, lease)
    assert not await store.read(lambda db: task_leases.holds(db, lease, now=NOW))
    stored = await fetch(store)
    assert (stored.row["state"], stored.row["sealed_message"], stored.parts) == ("cancelled", b"enough", {})


async def test_questions_make_it_wait_until_the_last_is_answered(store: AnyStore) -> None:
    lease = await begin(store)
    assert await ask(store, lease, "a", "b") == 2
    stored = await fetch(store)
    assert (stored.row["state"], stored.questions) == ("input_required", {"a": b"a?", "b": b"b?"})
    assert await answer(store, "a", "unknown") == 1
    assert await answer(store, "a") == 0, "an answer is given once"
    assert (await state(store), set((await fetch(store)).questions)) == ("input_required", {"b"})
    assert await answer(store, "b") == 1
    assert await state(store) == "working"
    assert await store.read(partial(task_rows.answers_to, lease=lease, names=["a", "b"])) == {
        "a": b"a!",
        "b": b"b!",
    }
    assert await store.read(partial(task_rows.answers_to, lease=lease, names=["b"])) == {"b": b"b!"}


async def test_a_question_asked_again_keeps_the_answer_that_it_has(store: AnyStore) -> None:
    lease = await begin(store)
    await ask(store, lease, "a")
    await answer(store, "a")
    await ask(store, lease, "a")
    assert await state(store) == "working"
    assert (await fetch(store, answered=True)).answers == {"a": b"a!"}


async def test_nobody_answers_what_is_out_of_time(store: AnyStore) -> None:
    lease = await begin(store)
    await ask(store, lease, "a")
    assert await answer(store, "a", now=NOW + 3_600_000) == 0


async def test_every_change_that_can_be_seen_has_a_version_of_its_own(store: AnyStore) -> None:
    lease = await begin(store)
    note = partial(task_rows.note, lease=lease, now=NOW, message=b"m", parts={"events": b"e"})
    versions: list[Any] = [1, await store.write(note), await ask(store, lease, "a")]
    await answer(store, "a")
    versions.append((await fetch(store)).row["version"])
    await finish(store, lease)
    versions.append((await fetch(store)).row["version"])
    assert versions == [1, 2, 3, 4, 5]


async def test_a_note_without_a_message_keeps_the_last_one(store: AnyStore) -> None:
    lease = await begin(store)
    await store.write(partial(task_rows.note, lease=lease, now=NOW, message=b"half way", parts={}))
    await store.write(partial(task_rows.note, lease=lease, now=NOW, message=None, parts={"events": b"e"}))
    stored = await fetch(store)
    assert (stored.row["sealed_message"], stored.parts["events"]) == (b"half way", b"e")


# ── leases ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_an_orphan_is_one_whose_lease_has_run_out_or_was_given_back(store: AnyStore) -> None:
    await begin(store, "living")
    released = await begin(store, "released")
    await store.write(lambda db: task_leases.release(db, released))
    await finish(store, await begin(store, "ended"))
    find = partial(task_rows.find_orphans, limit=10)
    assert await store.read(partial(find, now=NOW + MILLIS - 1)) == ["released"]
    assert await store.read(partial(find, now=NOW + MILLIS)) == ["released", "living"]


async def test_a_living_owner_is_not_robbed(store: AnyStore) -> None:
    lease = await begin(store, replays=True)
    kept = await store.write(partial(task_rows.keep, held=[lease], until=NOW + 2 * MILLIS))
    assert kept == {"a": 1}
    assert await take_over(store, now=NOW + 2 * MILLIS - 1) is None
    assert await finish(store, lease)


async def test_whoever_was_robbed_writes_nothing_any_more(store: AnyStore) -> None:
    lost = await begin(store, replays=True)
    taken = await take_over(store)
    assert taken is not None
    assert taken.lease is not None
    assert taken.lease.fence == lost.fence + 1
    assert not await finish(store, lost)
    assert await ask(store, lost, "a") is None
    assert await store.read(partial(task_rows.answers_to, lease=lost, names=["a"])) is None
    assert await store.write(partial(task_rows.keep, held=[lost], until=NOW + 10**9)) == {}
    assert await finish(store, taken.lease)


async def test_a_lease_that_ran_out_unnoticed_is_still_good(store: AnyStore) -> None:
    lease = await begin(store)
    assert await store.write(partial(task_rows.keep, held=[lease], until=NOW + 5 * MILLIS)) == {"a": 1}
    assert await finish(store, lease)


async def test_of_many_that_would_take_an_orphan_one_does(store: AnyStore) -> None:
    await begin(store, replays=True)
    taken: list[AbandonedTask] = []

    async def one(number: int) -> None:
        if (found := await take_over(store, owner=f"boot-{number}")) is not None:
            taken.append(found)

    async with trio.open_nursery() as nursery:
        for number in range(2, 12):
            nursery.start_soon(one, number)
    assert len(taken) == 1


@pytest.mark.parametrize(
    ("how", "again"),
    [("working", False), ("asking", True), ("answered", True), ("resumed", False), ("checkpoint", True)],
)
async def test_only_what_has_a_checkpoint_or_only_waited_is_run_again(
    store: AnyStore, how: str, again: bool
) -> None:
    lease = await begin(store)
    if how in ("asking", "answered", "resumed"):
        await ask(store, lease, "a")
    if how in ("answered", "resumed"):
        await answer(store, "a")
    if how == "resumed":
        await store.write(partial(task_rows.note, lease=lease, now=NOW, parts={}, replays=False))
    if how == "checkpoint":
        parts: Mapping[str, bytes] = {"checkpoint": b"c"}
        await store.write(partial(task_rows.note, lease=lease, now=NOW, parts=parts, replays=True, anew=True))
    taken = await take_over(store)
    assert taken is not None
    assert (taken.lease is not None) is again
    if again:
        assert taken.stored.parts["order"] == b"order"
        assert taken.stored.answers == ({"a": b"a!"} if how == "answered" else {})
    else:
        stored = await fetch(store)
        assert (stored.row["state"], stored.row["sealed_message"]) == ("failed", b"restarted")
        assert stored.parts == {"ending": b"failed"}


async def test_one_that_gets_no_further_is_given_up(store: AnyStore) -> None:
    await begin(store, replays=True)
    now, runs = NOW, 0
    while True:
        now += MILLIS
        taken = await take_over(store, now=now)
        assert taken is not None
        if taken.lease is None:
            break
        runs += 1
        if runs == 2:
            note = partial(task_rows.note, lease=taken.lease, now=now, parts={}, replays=True, anew=True)
            await store.write(note)
        if runs == 4:
            await ask(store, taken.lease, "a")
            await answer(store, "a", now=now)
    assert runs == 4 + 3


@pytest.mark.parametrize("how", ["asking", "released"])
async def test_one_that_only_waited_or_was_given_back_is_never_given_up(store: AnyStore, how: str) -> None:
    lease = await begin(store, replays=True)
    now = NOW
    for _ in range(10):
        if how == "asking":
            await ask(store, lease, "a")
        else:
            await store.write(partial(task_leases.release, lease=lease))
        now += MILLIS
        taken = await take_over(store, now=now)
        assert taken is not None
        assert taken.lease is not None
        lease = taken.lease


async def test_one_that_is_out_of_time_is_not_run_again(store: AnyStore) -> None:
    await begin(store, replays=True)
    taken = await take_over(store, now=NOW + 3_600_000)
    assert taken is not None
    assert taken.lease is None


# ── lists ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_pages_show_one_callers_tasks_at_one_server_each_once(store: AnyStore) -> None:
    for number in range(7):
        await begin(store, f"mine-{number}", created_at=NOW + number // 3)
    await begin(store, "other-caller", caller="bob")
    await begin(store, "other-server", server="lab")
    await begin(store, "over", expires_at=NOW)
    seen: list[str] = []
    after: tuple[int, str] | None = None
    while True:
        job = partial(task_rows.page, caller="alice", server="main", after=after, now=NOW + 1, limit=3)
        rows = await store.read(job)
        if not rows:
            break
        seen += [row["id_hash"] for row in rows]
        after = rows[-1]["created_at"], rows[-1]["id_hash"]
    assert seen == [f"mine-{number}" for number in (6, 5, 4, 3, 2, 1, 0)]


@pytest.mark.parametrize(
    ("sql", "index"),
    [
        (f"SELECT count(*) FROM tasks WHERE {task_rows.RUNNING}", "tasks_running"),
        (f"SELECT id_hash FROM tasks WHERE {task_rows.RUNNING} AND lease_until <= 1", "tasks_running"),
        ("SELECT count(*) FROM tasks WHERE caller = 'a' AND expires_at > 1", "tasks_by_caller"),
        ("SELECT count(*) FROM tasks WHERE expires_at > 1", "tasks_by_expiry"),
        (
            "SELECT 1 FROM tasks WHERE caller = 'a' AND server = 'm' ORDER BY created_at DESC, id_hash DESC",
            "tasks_by_caller",
        ),
    ],
)
def test_what_is_looked_for_often_is_found_by_an_index(directory: Path, sql: str, index: str) -> None:
    with closing(connect_writer(directory / "plan.db")) as connection:
        migrate(connection, packaged_migrations(), now=NOW, backups=directory / "backups")
        plan = " ".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}"))
    assert index in plan
    assert "TEMP B-TREE" not in plan
