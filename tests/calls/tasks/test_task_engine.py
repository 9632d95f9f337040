"""The engine of tasks (server/calls/tasks/task_engine.py), on a store without threads and a clock that jumps."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import trio
from task_fakes import ALICE, EPOCH, OWNER, accept, ask_once, engine, forever, form, greet, order, text
from trio.testing import MockClock

from auth.values.identity_model import ANONYMOUS, Principal, PrincipalKind
from server.calls.tasks.task_engine import (
    ASK_AGAIN,
    Ending,
    Owner,
    TaskCompleted,
    TaskFailed,
    TaskOrder,
    owner_of,
)
from server.calls.tasks.task_order import MAX_CHECKPOINT_BYTES, MAX_QUESTIONS, MAX_RESULT_BYTES
from server.mcp.call_failures import BackendError, CannotAsk
from server.mcp.call_outlet import LogLevel, LogMessage, Outlet, Progress
from server.mcp.call_questions import Question
from server.mcp.errors import BackendFailed, TaskOver, TooManyTasks, UnknownTask, UnknownTool
from server.mcp.result_encoding import ToolResult
from server.mcp.task_faces import Face, place_of
from server.store.inline_store import InlineStore

# ── the life of a task ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("tasks.durable")
async def test_a_task_is_kept_before_its_id_is_told_and_ends_with_its_result(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    async with engine(store, {"t": greet}) as made:
        task = await made.start()
        assert (task.state, task.ttl_ms, task.poll_ms) == ("working", 86_400_000, 1000)
        assert (await made.get(task)).id == task.id
        ended = await made.ended(task)
    assert (ended.state, ended.ending) == ("completed", text("hello"))
    assert made.told == [("main", task.id)]


async def test_a_result_that_says_the_tool_failed_is_completed_and_marked(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    async def fail(_order: TaskOrder, _outlet: Outlet) -> Ending:
        return text("no", is_error=True)

    async with engine(store, {"t": fail}) as made:
        ended = await made.ended(await made.start())
    assert (ended.state, ended.tool_failed) == ("completed", True)
    assert ended.message == "no"


async def test_what_the_tool_said_of_its_failure_is_the_tasks_message_also_in_a_list(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    async def fail(_order: TaskOrder, outlet: Outlet) -> Ending:
        await outlet.emit(Progress(progress=1, message="half way"))
        return text("no luck" * 1000, is_error=True)

    async def fail_without_words(_order: TaskOrder, _outlet: Outlet) -> Ending:
        return TaskCompleted(ToolResult(content=(), is_error=True))

    async with engine(store, {"t": fail, "silent": fail_without_words}) as made:
        await made.ended(await made.start())
        assert (await made.ended(await made.start("silent"))).message == "the tool failed"
        messages = {each.tool: each.message for each in await made.tasks.list(OWNER)}
    assert messages == {"t": ("no luck" * 1000)[:1000], "silent": "the tool failed"}


async def test_an_error_of_the_protocol_and_a_crash_both_end_it_as_failed(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    async def refuse(_order: TaskOrder, _outlet: Outlet) -> Ending:
        return TaskFailed(-1, "not today", {"why": "rain"})

    async def unknown(what: TaskOrder, _outlet: Outlet) -> Ending:
        raise UnknownTool(what.tool)

    async def crash(_order: TaskOrder, _outlet: Outlet) -> Ending:
        raise ZeroDivisionError("secret detail")

    async with engine(store, {"refuse": refuse, "unknown": unknown, "crash": crash}) as made:
        refused = await made.ended(await made.start("refuse"))
        assert (refused.state, refused.ending) == ("failed", TaskFailed(-1, "not today", {"why": "rain"}))
        assert (await made.ended(await made.start("unknown"))).ending == TaskFailed(
            -32602, "unknown tool: unknown"
        )
        crashed = await made.ended(await made.start("crash"))
        assert crashed.ending == TaskFailed(-32603, "internal error (request c1)")
        assert (await made.ended(await made.start("refuse"))).state == "failed"  # the engine goes on


@pytest.mark.requirement("tasks.bounds")
async def test_a_result_that_is_too_large_fails_with_words_that_say_so(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    async def huge(_order: TaskOrder, _outlet: Outlet) -> Ending:
        return text("x" * MAX_RESULT_BYTES)

    async with engine(store, {"t": huge}) as made:
        ended = await made.ended(await made.start())
    assert isinstance(ended.ending, TaskFailed)
    assert "more than the 8,388,608" in ended.ending.message


async def test_cancelling_stops_the_work_at_once_and_is_durable_when_it_returns(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    stopped = trio.Event()

    async def slow(_order: TaskOrder, _outlet: Outlet) -> Ending:
        try:
            await trio.sleep(3600)
        finally:
            stopped.set()
        raise AssertionError

    async with engine(store, {"t": slow}) as made:
        task = await made.start()
        await trio.sleep(1)
        cancelled = await made.tasks.cancel(task.id, OWNER, reason="enough")
        assert (cancelled.state, cancelled.message) == ("cancelled", "enough")
        before = trio.current_time()
        await stopped.wait()
        assert trio.current_time() == before
        with pytest.raises(TaskOver):
            await made.tasks.cancel(task.id, OWNER, reason="again")
        await trio.sleep(60)
        assert (await made.get(task)).message == "enough"
        assert made.told == [("main", task.id)]


async def test_whatever_a_cancelled_tool_still_does_changes_nothing(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    async def stubborn(_order: TaskOrder, outlet: Outlet) -> Ending:
        with trio.CancelScope(shield=True):
            await trio.sleep(5)
        return text("done anyway")

    async with engine(store, {"t": stubborn}) as made:
        task = await made.start()
        await trio.sleep(1)
        await made.tasks.cancel(task.id, OWNER, reason="enough")
        await trio.sleep(60)
        kept = await made.get(task)
    assert (kept.state, kept.ending) == ("cancelled", None)


async def test_a_task_out_of_time_is_stopped_and_then_unknown(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    stopped = trio.Event()

    async def slow(_order: TaskOrder, _outlet: Outlet) -> Ending:
        try:
            await trio.sleep_forever()
        finally:
            stopped.set()
        raise AssertionError

    async with engine(store, {"t": slow}) as made:
        task = await made.tasks.start(order(), owner=OWNER, face=Face.CORE, ttl_ms=30_000)
        assert task.ttl_ms == 30_000
        await trio.sleep(29)
        assert (await made.get(task)).state == "working"
        await trio.sleep(7)
        assert stopped.is_set()
        with pytest.raises(UnknownTask):
            await made.get(task)


@pytest.mark.requirement("tasks.bounds")
@pytest.mark.parametrize(("asked", "given"), [(1, 1000), (10**15, 30 * 86_400_000), (-5, 1000)])
async def test_a_time_to_live_is_kept_within_limits(
    autojump_clock: MockClock, store: InlineStore, asked: int, given: int
) -> None:
    async with engine(store, {"t": forever}) as made:
        task = await made.tasks.start(order(), owner=OWNER, face=Face.CORE, ttl_ms=asked)
    assert task.ttl_ms == given


# ── whose it is ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("tasks.bound")
@pytest.mark.requirement("core-tasks.bound")
@pytest.mark.parametrize(
    "stranger",
    [
        owner_of(ALICE, "lab"),
        owner_of(Principal(kind=PrincipalKind.USER, subject="usr_bob", client_id="cli"), "main"),
        owner_of(Principal(kind=PrincipalKind.USER, subject="usr_alice", client_id="other"), "main"),
        owner_of(Principal(kind=PrincipalKind.CLIENT, subject="usr_alice", client_id="cli"), "main"),
        owner_of(ANONYMOUS, "main"),
    ],
)
async def test_another_owners_task_is_unknown_whatever_is_asked_of_it(
    autojump_clock: MockClock, store: InlineStore, stranger: Owner
) -> None:
    async with engine(store, {"t": ask_once}) as made:
        task = await made.start()
        await made.ended(task)
        for attempt in (
            made.tasks.get(task.id, stranger),
            made.tasks.answer(task.id, stranger, {"who": accept()}),
            made.tasks.cancel(task.id, stranger, reason="mine"),
            made.tasks.wait(task.id, stranger),
        ):
            with pytest.raises(UnknownTask):
                await attempt
        assert await made.tasks.list(stranger) == [] if stranger.known else True
        assert (await made.get(task)).state == "input_required"


async def test_a_caller_without_a_login_has_the_id_and_no_list(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    nobody = owner_of(ANONYMOUS, "main")
    async with engine(store, {"t": greet}) as made:
        task = await made.start(owner=nobody)
        assert (await made.get(task, nobody)).id == task.id
        assert await made.tasks.list(nobody) == ()


async def test_a_list_is_the_callers_own_newest_first_page_by_page(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    async with engine(store, {"t": greet}) as made:
        mine: list[str] = []
        for _ in range(5):
            mine.append((await made.start()).id)
            await trio.sleep(1)
        first = await made.tasks.list(OWNER, limit=3)
        second = await made.tasks.list(OWNER, after=place_of(first[-1]), limit=3)
    assert [task.id for task in [*first, *second]] == mine[::-1]
    assert {task.state for task in first} == {"completed"}


@pytest.mark.requirement("tasks.bounds")
async def test_caps_hold_for_each_owner_and_for_all(autojump_clock: MockClock, store: InlineStore) -> None:
    bob = owner_of(Principal(kind=PrincipalKind.USER, subject="usr_bob"), "main")
    nobody = owner_of(ANONYMOUS, "main")
    async with engine(
        store, {"t": forever, "greet": greet}, per_owner=2, overall=4, kept_per_owner=4
    ) as made:
        first = await made.start()
        await made.start()
        with pytest.raises(TooManyTasks, match="you have"):
            await made.start()
        await made.tasks.cancel(first.id, OWNER, reason="room")
        await made.start()
        await made.start(owner=nobody)
        await made.start(owner=nobody)
        with pytest.raises(TooManyTasks, match="this server"):
            await made.start(owner=bob)
        with pytest.raises(TooManyTasks):
            await made.start(owner=nobody)


async def test_what_has_ended_counts_until_it_is_forgotten(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    async with engine(store, {"t": greet}, kept_per_owner=2, ttl_ms=60_000) as made:
        await made.ended(await made.start())
        await made.ended(await made.start())
        with pytest.raises(TooManyTasks):
            await made.start()
        await trio.sleep(61)
        await made.start()


# ── what it tells ────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_last_progress_message_is_the_status_and_events_are_kept_up_to_two_hundred(
    autojump_clock: MockClock,
    store: InlineStore,
) -> None:
    async def chatty(_order: TaskOrder, outlet: Outlet) -> Ending:
        for step in range(230):
            await outlet.emit(Progress(progress=step, message=f"step {step}"))
        level: LogLevel = "info"
        await outlet.emit(LogMessage(level=level, data={"n": 1}))
        await trio.sleep(100)
        return text("done")

    async with engine(store, {"t": chatty}) as made:
        task = await made.start()
        await trio.sleep(1)
        during = await made.get(task)
        assert during.message == "step 229"
        assert len(during.events) == 200
        assert during.events[-1] == {
            "event": "log",
            "timestampMs": EPOCH,
            "data": {"level": "info", "data": {"n": 1}},
        }
        assert during.events[-2]["data"] == {"progress": 229, "message": "step 229"}
        assert (await made.ended(task)).message == "step 229"


async def test_events_reach_the_store_at_least_every_five(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    async def chatty(_order: TaskOrder, outlet: Outlet) -> Ending:
        for step in range(9):
            await outlet.emit(Progress(progress=step))
        await trio.sleep_forever()
        raise AssertionError

    async with engine(store, {"t": chatty}, stop=False) as made:
        task = await made.start()
        await trio.sleep(1)
    async with engine(store, {}, boot_id="boot-2") as after:
        assert len((await after.get(task)).events) == 5


@pytest.mark.parametrize("how", ["checkpoint", "ask"])
async def test_events_reach_the_store_with_whatever_else_is_kept(
    autojump_clock: MockClock, store: InlineStore, how: str
) -> None:
    async def tell(_order: TaskOrder, outlet: Outlet) -> Ending:
        await outlet.emit(Progress(progress=1, message="one"))
        if how == "checkpoint":
            await outlet.checkpoint(1)
        else:
            await outlet.ask({"who": form()})
        await trio.sleep_forever()
        raise AssertionError

    async with engine(store, {"t": tell}, stop=False) as made:
        task = await made.start()
        await trio.sleep(1)
    async with engine(store, {}, boot_id="boot-2") as after:
        found = await after.get(task)
        assert (len(found.events), found.message) == (1, "one")


async def test_an_event_of_any_size_is_cut(autojump_clock: MockClock, store: InlineStore) -> None:
    async def shout(_order: TaskOrder, outlet: Outlet) -> Ending:
        for _ in range(100):
            await outlet.emit(LogMessage(level="info", data="é" * 100_000))
        return text("done")

    async with engine(store, {"t": shout}) as made:
        ended = await made.ended(await made.start())
    assert len(msgspec.json.encode(ended.events)) < 300_000


# ── questions ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_question_makes_it_wait_and_the_answer_lets_it_go_on(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    async with engine(store, {"t": ask_once}) as made:
        task = await made.start()
        waiting = await made.ended(task)
        assert (waiting.state, waiting.questions) == ("input_required", {"who": form()})
        answered = await made.tasks.answer(task.id, OWNER, {"who": accept("Bo")})
        assert (answered.state, answered.questions) == ("working", {})
        assert (await made.ended(task)).ending == text("hello Bo")


async def test_of_several_questions_a_partial_answer_is_seen_by_the_very_next_look(
    autojump_clock: MockClock,
    store: InlineStore,
) -> None:
    async def ask_two(_order: TaskOrder, outlet: Outlet) -> Ending:
        answers = await outlet.ask({"a": form("first"), "b": form("second")})
        return text(" ".join(answers[key]["content"]["name"] for key in ("a", "b")))

    async with engine(store, {"t": ask_two}) as made:
        task = await made.start()
        assert set((await made.ended(task)).questions) == {"a", "b"}
        await made.tasks.answer(task.id, OWNER, {"a": accept("A"), "nonsense": accept()})
        partial_state = await made.get(task)
        assert (partial_state.state, set(partial_state.questions)) == ("input_required", {"b"})
        again = await made.tasks.answer(task.id, OWNER, {"a": accept("overwritten")})
        assert set(again.questions) == {"b"}
        await made.tasks.answer(task.id, OWNER, {"b": accept("B")})
        assert (await made.ended(task)).ending == text("A B")


@pytest.mark.parametrize(
    "answer", [None, "x", {}, {"action": "accept"}, {"action": "accept", "content": {"name": 7}}]
)
async def test_what_does_not_answer_its_question_leaves_it_outstanding(
    autojump_clock: MockClock, store: InlineStore, answer: Any
) -> None:
    async with engine(store, {"t": ask_once}) as made:
        task = await made.start()
        await made.ended(task)
        after = await made.tasks.answer(task.id, OWNER, {"who": answer})
        assert (after.state, set(after.questions)) == ("input_required", {"who"})
        await made.tasks.answer(task.id, OWNER, {"who": {"action": "decline"}})
        await trio.sleep(1)
        assert (await made.get(task)).state == "failed"  # this tool does not expect to be declined


@pytest.mark.requirement("tasks.keys")
async def test_a_key_that_is_used_again_gets_a_name_of_its_own(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    async def ask_again(_order: TaskOrder, outlet: Outlet) -> Ending:
        said = [(await outlet.ask({"a": form(f"round {n}")}))["a"]["content"]["name"] for n in range(2)]
        said.append((await outlet.ask({"a-2": form("own name")}))["a-2"]["content"]["name"])
        return text(" ".join(said))

    async with engine(store, {"t": ask_again}) as made:
        task = await made.start()
        names: list[str] = []
        for said in ("one", "two", "three"):
            name = next(iter((await made.tasks.wait(task.id, OWNER, seen=frozenset(names))).questions))
            names.append(name)
            await made.tasks.answer(task.id, OWNER, {name: accept(said)})
        assert names == ["a", "a-2", "a-2-2"]
        assert (await made.ended(task)).ending == text("one two three")


async def test_a_client_that_cannot_be_asked_is_not(autojump_clock: MockClock, store: InlineStore) -> None:
    async def sample(_order: TaskOrder, outlet: Outlet) -> Ending:
        try:
            await outlet.ask({"r": Question(method="roots/list", params={})})
        except CannotAsk as error:
            return text(str(dict(error.required)))
        raise AssertionError

    async with engine(store, {"t": sample}) as made:
        assert (await made.ended(await made.start())).ending == text("{'roots': {}}")


async def test_nobody_asks_without_end_or_keeps_more_than_a_checkpoint_may_have(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    async def too_many(_order: TaskOrder, outlet: Outlet) -> Ending:
        with pytest.raises(BackendError, match="questions at most"):
            await outlet.ask({f"q{n}": form() for n in range(MAX_QUESTIONS + 1)})
        with pytest.raises(BackendError, match="key"):
            await outlet.ask({"k" * 200: form()})
        with pytest.raises(BackendError, match="checkpoint"):
            await outlet.checkpoint("x" * MAX_CHECKPOINT_BYTES)
        return text("refused")

    async with engine(store, {"t": too_many}) as made:
        assert (await made.ended(await made.start())).ending == text("refused")


async def test_waiting_ends_with_a_question_not_seen_yet_and_not_before(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    async def later(_order: TaskOrder, outlet: Outlet) -> Ending:
        await trio.sleep(100)
        await outlet.ask({"who": form()})
        return text("done")

    async with engine(store, {"t": later}) as made:
        task = await made.start()
        assert set((await made.tasks.wait(task.id, OWNER)).questions) == {"who"}
        assert trio.current_time() < 101
        with trio.move_on_after(50) as still:
            await made.tasks.wait(task.id, OWNER, seen=frozenset({"who"}))
        assert still.cancelled_caught


async def test_who_waits_when_the_server_is_about_to_stop_is_told_to_ask_again_and_who_need_not_wait_is_answered(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    async def never(_order: TaskOrder, _outlet: Outlet) -> Ending:
        await trio.sleep_forever()
        raise AssertionError

    async def at_once(_order: TaskOrder, _outlet: Outlet) -> Ending:
        return text("done")

    async with engine(store, {"t": never, "u": at_once}) as made:
        done = await made.start("u")
        await made.ended(done)
        task, told = await made.start(), list[str]()

        async def wait() -> None:
            with pytest.raises(BackendFailed) as caught:
                await made.tasks.wait(task.id, OWNER)
            told.append(str(caught.value))

        begun = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            made.tasks.begin_draining()
        await wait()
        assert told == [ASK_AGAIN] * 2
        assert trio.current_time() == begun
        assert (await made.tasks.wait(done.id, OWNER)).ending == text("done")


async def test_whoever_gave_a_result_is_told_once_it_is_kept_and_not_before(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    told: list[str] = []

    async def sell(_order: TaskOrder, _outlet: Outlet) -> Ending:
        return TaskCompleted(text("sold").result, when_kept=lambda: lambda: told.append("kept"))

    async with engine(store, {"t": sell}) as made:
        ended = await made.ended(await made.start())
    assert (ended.ending, told) == (text("sold"), ["kept"])


async def test_whoever_gave_a_result_that_nobody_wants_any_more_is_told_nothing(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    told: list[str] = []

    async def sell(_order: TaskOrder, _outlet: Outlet) -> Ending:
        await made.tasks.cancel(task.id, OWNER, reason="not any more")
        return TaskCompleted(text("sold").result, when_kept=lambda: told.append("kept"))

    async with engine(store, {"t": sell}) as made:
        task = await made.start()
        await made.ended(task)
        await trio.testing.wait_all_tasks_blocked()
    assert told == []
