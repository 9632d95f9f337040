"""The engine of tasks (server/tasks/engine.py), on a store without threads and a clock that jumps."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import structlog
import trio
from cryptography.exceptions import InvalidTag
from trio.testing import MockClock

from auth.model import ANONYMOUS, Principal, PrincipalKind
from server.backends.base import BackendError, CannotAsk, LogLevel, Message, Outlet, Paused, Progress
from server.mcp.errors import BackendFailed, TaskOver, TooManyTasks, UnknownTask, UnknownTool
from server.mcp.messages import TextContent
from server.mcp.questions import Question
from server.mcp.results import ToolResult
from server.mcp.tasks import Face, Snapshot, place_of
from server.store.inline import InlineStore, open_inline_store
from server.store.jobs import Db, DiskFull, Store
from server.tasks.engine import Completed, Ending, Failed, Order, Owner, Tasks, TaskTerms, Who, owner_of
from server.tasks.order import MAX_CHECKPOINT_BYTES, MAX_QUESTIONS, MAX_RESULT_BYTES

EPOCH = 1_800_000_000_000
KEY = bytes(range(32))
ALICE = Principal(kind=PrincipalKind.USER, subject="usr_alice", client_id="cli", grant_id="g1")
OWNER = owner_of(ALICE, "main")
CAN = frozenset({"elicitation"})

Tool = Callable[[Order, Outlet], Awaitable[Ending]]


def clock() -> int:
    return EPOCH + round(trio.current_time() * 1000)


@pytest.fixture
async def store() -> AsyncGenerator[InlineStore]:
    async with open_inline_store(clock=lambda: EPOCH) as opened:
        yield opened


def text(said: str, *, is_error: bool = False) -> Completed:
    return Completed(ToolResult(content=[TextContent(text=said)], is_error=is_error))


def order(tool: str = "t", **changed: Any) -> Order:
    values: dict[str, Any] = {
        "server": "main",
        "tool": tool,
        "arguments": {"secret": "hunter2"},
        "principal": Who.of(ALICE),
        "call_id": "c1",
        "can": CAN,
    }
    return Order(**values | changed)


def form(message: str = "name?") -> Question:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    return Question(method="elicitation/create", params={"message": message, "requestedSchema": schema})


def accept(name: str = "Ann") -> dict[str, Any]:
    return {"action": "accept", "content": {"name": name}}


class Engine:
    def __init__(self, tasks: Tasks, told: list[tuple[str, str]]) -> None:
        self.tasks = tasks
        self.told = told
        self.scope = trio.CancelScope()

    async def start(
        self, tool: str = "t", *, owner: Owner = OWNER, face: Face = Face.EXTENSION, **more: Any
    ) -> Snapshot:
        return await self.tasks.start(order(tool, **more), owner=owner, face=face)

    async def get(self, task: Snapshot, owner: Owner = OWNER) -> Snapshot:
        return await self.tasks.get(task.id, owner)

    async def ended(self, task: Snapshot) -> Snapshot:
        with trio.fail_after(600):
            return await self.tasks.wait(task.id, OWNER)


@asynccontextmanager
async def engine(
    store: Store, tools: Mapping[str, Tool], *, boot_id: str = "boot-1", stop: bool = True, **terms: Any
) -> AsyncGenerator[Engine]:
    """`stop` False: it is killed, and gives nothing back."""
    serial = itertools.count()
    told: list[tuple[str, str]] = []

    async def perform(what: Order, outlet: Outlet) -> Ending:
        return await tools[what.tool](what, outlet)

    def entropy(size: int) -> bytes:
        return f"{boot_id}-{next(serial)}".encode().rjust(size, b".")[-size:]

    tasks = Tasks(
        store if stop else _Dying(store),
        perform=perform,
        clock=clock,
        entropy=entropy,
        key=KEY,
        boot_id=boot_id,
        log=structlog.get_logger(),
        announce=lambda server, task_id: told.append((server, task_id)),
        terms=TaskTerms(**terms),
    )
    made = Engine(tasks, told)
    async with trio.open_nursery() as nursery:
        await nursery.start(tasks.run)
        yield made
        if not stop:
            tasks._ledger._store.dead = True  # type: ignore[attr-defined]
        nursery.cancel_scope.cancel()


class _Dying:
    """A store that hears nothing more of a process that was killed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.dead = False
        self.on_changes = store.on_changes
        self.on_audit = store.on_audit
        self.chain_audit = store.chain_audit
        self.full = False

    async def write(self, job: Callable[[Db], Any]) -> Any:
        if self.dead:
            await trio.sleep_forever()
        return await self._store.write(job)

    async def read(self, job: Callable[[Db], Any]) -> Any:
        return await self._store.read(job)


async def greet(_order: Order, _outlet: Outlet) -> Ending:
    return text("hello")


async def forever(_order: Order, _outlet: Outlet) -> Ending:
    await trio.sleep_forever()
    raise AssertionError


async def ask_once(_order: Order, outlet: Outlet) -> Ending:
    answers = await outlet.ask({"who": form()})
    return text(f"hello {answers['who']['content']['name']}")


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
    async def fail(_order: Order, _outlet: Outlet) -> Ending:
        return text("no", is_error=True)

    async with engine(store, {"t": fail}) as made:
        ended = await made.ended(await made.start())
    assert (ended.state, ended.tool_failed) == ("completed", True)


async def test_an_error_of_the_protocol_and_a_crash_both_end_it_as_failed(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    async def refuse(_order: Order, _outlet: Outlet) -> Ending:
        return Failed(-1, "not today", {"why": "rain"})

    async def unknown(what: Order, _outlet: Outlet) -> Ending:
        raise UnknownTool(what.tool)

    async def crash(_order: Order, _outlet: Outlet) -> Ending:
        raise ZeroDivisionError("secret detail")

    async with engine(store, {"refuse": refuse, "unknown": unknown, "crash": crash}) as made:
        refused = await made.ended(await made.start("refuse"))
        assert (refused.state, refused.ending) == ("failed", Failed(-1, "not today", {"why": "rain"}))
        assert (await made.ended(await made.start("unknown"))).ending == Failed(
            -32602, "unknown tool: unknown"
        )
        crashed = await made.ended(await made.start("crash"))
        assert crashed.ending == Failed(-32603, "internal error (request c1)")
        assert (await made.ended(await made.start("refuse"))).state == "failed"  # the engine goes on


@pytest.mark.requirement("tasks.bounds")
async def test_a_result_that_is_too_large_fails_with_words_that_say_so(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    async def huge(_order: Order, _outlet: Outlet) -> Ending:
        return text("x" * MAX_RESULT_BYTES)

    async with engine(store, {"t": huge}) as made:
        ended = await made.ended(await made.start())
    assert isinstance(ended.ending, Failed)
    assert "more than the 8,388,608" in ended.ending.message


async def test_cancelling_stops_the_work_at_once_and_is_durable_when_it_returns(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    stopped = trio.Event()

    async def slow(_order: Order, _outlet: Outlet) -> Ending:
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
    async def stubborn(_order: Order, outlet: Outlet) -> Ending:
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

    async def slow(_order: Order, _outlet: Outlet) -> Ending:
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
    async def chatty(_order: Order, outlet: Outlet) -> Ending:
        for step in range(230):
            await outlet.emit(Progress(progress=step, message=f"step {step}"))
        level: LogLevel = "info"
        await outlet.emit(Message(level=level, data={"n": 1}))
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
    async def chatty(_order: Order, outlet: Outlet) -> Ending:
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
    async def tell(_order: Order, outlet: Outlet) -> Ending:
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
    async def shout(_order: Order, outlet: Outlet) -> Ending:
        for _ in range(100):
            await outlet.emit(Message(level="info", data="é" * 100_000))
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
    async def ask_two(_order: Order, outlet: Outlet) -> Ending:
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
    async def ask_again(_order: Order, outlet: Outlet) -> Ending:
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
    async def sample(_order: Order, outlet: Outlet) -> Ending:
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
    async def too_many(_order: Order, outlet: Outlet) -> Ending:
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
    async def later(_order: Order, outlet: Outlet) -> Ending:
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


# ── calls that become tasks ──────────────────────────────────────────────────────────────────────────────────────────


class Caller:
    """The line of a request that waits."""

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.saved: Any = None
        self.closed = False

    async def emit(self, event: Progress | Message) -> None:
        self.heard.append(event)

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Mapping[str, Any]]:
        self.heard.append(set(questions))
        return {key: accept("caller") for key in questions}

    async def checkpoint(self, data: Any) -> None:
        self.saved = data

    async def become_task(self) -> bool:
        raise AssertionError("the engine answers this")

    async def close_stream(self) -> None:
        self.closed = True


async def attempt(made: Engine, line: Outlet, after: float | None = None, **more: Any) -> Ending | Snapshot:
    return await made.tasks.attempt(
        order(**more), line, owner=OWNER, face=Face.EXTENSION, after_seconds=after
    )


async def test_a_call_that_never_becomes_a_task_is_a_call(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    async def plain(_order: Order, outlet: Outlet) -> Ending:
        await outlet.emit(Progress(progress=1))
        await outlet.close_stream()
        await outlet.checkpoint({"at": 1})
        answers = await outlet.ask({"who": form()})
        return text(answers["who"]["content"]["name"])

    line = Caller()
    async with engine(store, {"t": plain}) as made:
        assert await attempt(made, line) == text("caller")
        assert await made.tasks.list(OWNER) == []
        assert made.tasks.count() == 0
    assert line.heard == [Progress(progress=1), {"who"}]
    assert (line.saved, line.closed) == ({"at": 1}, True)


async def test_a_tool_says_itself_when_its_call_becomes_a_task(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    async def by_hand(_order: Order, outlet: Outlet) -> Ending:
        first = await outlet.ask({"who": form()})
        assert await outlet.become_task()
        assert await outlet.become_task()
        await outlet.emit(Progress(progress=1, message="on my own"))
        second = await outlet.ask({"who": form()})
        return text(f"{first['who']['content']['name']} {second['who']['content']['name']}")

    line = Caller()
    async with engine(store, {"t": by_hand}) as made:
        task = await attempt(made, line)
        assert isinstance(task, Snapshot)
        assert task.state == "working"
        assert set((await made.ended(task)).questions) == {"who-2"}
        await made.tasks.answer(task.id, OWNER, {"who-2": accept("task")})
        ended = await made.ended(task)
    assert (ended.ending, ended.message) == (text("caller task"), "on my own")
    assert line.heard == [{"who"}]


async def test_a_call_that_takes_too_long_becomes_a_task_and_what_it_was_asking_is_asked_there(
    autojump_clock: MockClock,
    store: InlineStore,
) -> None:
    class Patient(Caller):
        async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Mapping[str, Any]]:
            await trio.sleep_forever()
            raise AssertionError

    async with engine(store, {"t": ask_once}) as made:
        task = await attempt(made, Patient(), 25)
        assert isinstance(task, Snapshot)
        assert trio.current_time() == 25
        assert set((await made.ended(task)).questions) == {"who"}
        await made.tasks.answer(task.id, OWNER, {"who": accept()})
        assert (await made.ended(task)).ending == text("hello Ann")


async def test_a_call_that_is_quick_enough_stays_one(autojump_clock: MockClock, store: InlineStore) -> None:
    async def quick(_order: Order, _outlet: Outlet) -> Ending:
        await trio.sleep(24)
        return text("in time")

    async with engine(store, {"t": quick}) as made:
        assert await attempt(made, Caller(), 25) == text("in time")


class Slow(_Dying):
    """Each write takes a second to be durable."""

    async def write(self, job: Callable[[Db], Any]) -> Any:
        done = await super().write(job)
        with trio.CancelScope(shield=True):
            await trio.sleep(1)
        return done


async def test_a_call_that_ends_while_it_is_being_made_a_task_is_one_with_its_result(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    async def almost(_order: Order, _outlet: Outlet) -> Ending:
        await trio.sleep(25.5)
        return text("just too late")

    async with engine(Slow(store), {"t": almost}) as made:
        task = await attempt(made, Caller(), 25)
        assert isinstance(task, Snapshot)
        assert (await made.ended(task)).ending == text("just too late")


@pytest.mark.requirement("tasks.not-by-notification")
async def test_cancelling_the_request_of_a_call_stops_it_but_not_the_task_that_it_became(
    autojump_clock: MockClock,
    store: InlineStore,
) -> None:
    stopped: list[str] = []

    async def slow(what: Order, outlet: Outlet) -> Ending:
        try:
            if what.arguments.get("become"):
                await outlet.become_task()
            await trio.sleep(60)
        except trio.Cancelled:
            stopped.append(what.call_id)
            raise
        return text("done")

    async with engine(store, {"t": slow}) as made:
        with trio.move_on_after(5):
            await attempt(made, Caller(), call_id="call")
        await trio.sleep(1)
        assert stopped == ["call"]
        task: Ending | Snapshot | None = None
        with trio.CancelScope() as scope:
            task = await attempt(made, Caller(), call_id="task", arguments={"become": True})
            scope.cancel()
            await trio.lowlevel.checkpoint()
        assert isinstance(task, Snapshot)
        assert (await made.ended(task)).ending == text("done")
    assert stopped == ["call"]


async def test_a_pause_and_a_refusal_pass_through_to_the_request(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    async def pause(_order: Order, _outlet: Outlet) -> Ending:
        raise Paused

    async def refuse(_order: Order, _outlet: Outlet) -> Ending:
        raise UnknownTool("t")

    async def crash(_order: Order, _outlet: Outlet) -> Ending:
        raise ZeroDivisionError

    async with engine(store, {"pause": pause, "refuse": refuse, "crash": crash}) as made:
        for tool, kind in (("pause", Paused), ("refuse", UnknownTool), ("crash", ZeroDivisionError)):
            with pytest.raises(kind):
                await attempt(made, Caller(), tool=tool)


async def test_without_room_for_a_task_it_stays_a_call(autojump_clock: MockClock, store: InlineStore) -> None:
    async def by_hand(_order: Order, outlet: Outlet) -> Ending:
        became = await outlet.become_task()
        await trio.sleep(60)
        return text(f"became {became}")

    async with engine(store, {"t": by_hand, "forever": forever}, per_owner=1) as made:
        await made.start("forever")
        assert await attempt(made, Caller(), 5) == text("became False")


class Mute(Caller):
    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Mapping[str, Any]]:
        raise CannotAsk("not on this line", {"elicitation": {}})


async def test_where_only_a_task_can_be_answered_asking_makes_the_call_one(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    async with engine(store, {"t": ask_once}) as made:
        nothing = order(can=frozenset())
        task = await made.tasks.attempt(nothing, Mute(), owner=OWNER, face=Face.WASMAGENT, after_seconds=25)
        assert isinstance(task, Snapshot)
        assert trio.current_time() < 25
        assert set((await made.ended(task)).questions) == {"who"}
        await made.tasks.answer(task.id, OWNER, {"who": accept()})
        assert (await made.ended(task)).ending == text("hello Ann")
        with pytest.raises(CannotAsk):
            await made.tasks.attempt(nothing, Mute(), owner=OWNER, face=Face.EXTENSION, after_seconds=25)


# ── restarts ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def checkpointing(what: Order, outlet: Outlet) -> Ending:
    if what.resumed is None:
        await outlet.checkpoint({"step": 1})
        await trio.sleep_forever()
    return text(f"resumed at {what.resumed['step']}")


@pytest.mark.requirement("tasks.durable")
@pytest.mark.parametrize("stop", [True, False])
async def test_after_a_restart_each_task_is_what_the_rules_say(
    autojump_clock: MockClock, store: InlineStore, stop: bool
) -> None:
    runs: list[str] = []

    async def asking(_order: Order, outlet: Outlet) -> Ending:
        runs.append("asking")
        first = await outlet.ask({"a": form()})
        second = await outlet.ask({"a": form()})
        return text(f"{first['a']['content']['name']} {second['a']['content']['name']}")

    async def answered_then_busy(_order: Order, outlet: Outlet) -> Ending:
        await outlet.ask({"a": form()})
        await trio.sleep_forever()
        raise AssertionError

    tools: Mapping[str, Tool] = {
        "forever": forever, "checkpointing": checkpointing, "asking": asking, "greet": greet, "busy": answered_then_busy,
    }  # fmt: skip
    async with engine(store, tools, stop=stop) as before:
        tasks = {name: await before.start(name) for name in tools}
        for name in ("asking", "busy"):
            await before.ended(tasks[name])
            await before.tasks.answer(tasks[name].id, OWNER, {"a": accept("before")})
        await trio.sleep(1)

    async with engine(store, tools, boot_id="boot-2") as after:
        if not stop:
            await trio.sleep(1)
            assert (await after.get(tasks["forever"])).state == "working", "its lease has not run out"
            # An answer that comes while nobody runs it is not lost.
            await after.tasks.answer(tasks["asking"].id, OWNER, {"a-2": accept("after")})
        await trio.sleep(30)
        found = {name: await after.get(task) for name, task in tasks.items()}
        assert found["greet"].ending == text("hello")
        assert found["checkpointing"].ending == text("resumed at 1")
        for name in ("forever", "busy"):
            assert found[name].state == "failed"
            assert found[name].message == "the server was restarted while this was running"
            assert found[name].ending == Failed(-32603, "the server was restarted while this was running")
        if stop:
            assert (found["asking"].state, set(found["asking"].questions)) == ("input_required", {"a-2"})
            await after.tasks.answer(tasks["asking"].id, OWNER, {"a-2": accept("after")})
            await trio.sleep(1)
        assert (await after.get(tasks["asking"])).ending == text("before after")
    assert runs == ["asking", "asking"]


async def test_an_answer_that_the_killed_process_had_not_taken_up_is_not_lost(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    async with engine(store, {"t": ask_once}, stop=False) as before:
        task = await before.start()
        await before.ended(task)
    async with engine(store, {"t": ask_once}, boot_id="boot-2") as after:
        await after.tasks.answer(task.id, OWNER, {"who": accept("Cy")})
        assert (await after.ended(task)).ending == text("hello Cy")


async def test_what_was_answered_before_it_became_a_task_is_not_asked_again_after_a_restart(
    autojump_clock: MockClock,
    store: InlineStore,
) -> None:
    async def by_hand(_order: Order, outlet: Outlet) -> Ending:
        first = await outlet.ask({"who": form()})
        await outlet.become_task()
        second = await outlet.ask({"who": form()})
        return text(f"{first['who']['content']['name']} {second['who']['content']['name']}")

    async with engine(store, {"t": by_hand}, stop=False) as before:
        task = await attempt(before, Caller())
        assert isinstance(task, Snapshot)
        await before.ended(task)
    async with engine(store, {"t": by_hand}, boot_id="boot-2") as after:
        await trio.sleep(30)
        assert set((await after.get(task)).questions) == {"who-2"}
        await after.tasks.answer(task.id, OWNER, {"who-2": accept("me")})
        assert (await after.ended(task)).ending == text("caller me")


async def test_a_checkpoint_of_an_earlier_round_counts_when_it_becomes_a_task(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    async def by_hand(what: Order, outlet: Outlet) -> Ending:
        await outlet.become_task()
        if what.call_id == "c1" and what.resumed == {"step": 7} and first:
            first.clear()
            await trio.sleep_forever()
        return text(f"resumed at {what.resumed['step']}")

    first = [True]
    async with engine(store, {"t": by_hand}, stop=False) as before:
        task = await attempt(before, Caller(), resumed={"step": 7})
        assert isinstance(task, Snapshot)
    async with engine(store, {"t": by_hand}, boot_id="boot-2") as after:
        assert (await after.ended(task)).ending == text("resumed at 7")


async def test_a_task_that_brings_the_server_down_each_time_is_given_up(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    async def deadly(what: Order, outlet: Outlet) -> Ending:
        if what.resumed is None:
            await outlet.checkpoint(1)
        runs.append(what)
        await trio.sleep_forever()
        raise AssertionError

    runs: list[Order] = []
    async with engine(store, {"t": deadly}, stop=False) as made:
        task = await made.start()
        await trio.sleep(1)
    state = ""
    for life in range(8):
        async with engine(store, {"t": deadly}, boot_id=f"life-{life}", stop=False) as made:
            await trio.sleep(30)
            state = (await made.get(task)).state
    assert state == "failed"
    assert len(runs) == 1 + 5


async def test_a_living_process_is_never_robbed_and_a_dead_one_is_within_seconds(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    runs: list[str] = []

    def tool(boot: str) -> Tool:
        async def work(what: Order, outlet: Outlet) -> Ending:
            runs.append(boot)
            if what.resumed is None:
                await outlet.checkpoint(1)
            await trio.sleep(600)
            return text(f"by {boot}")

        return work

    async with engine(store, {"t": tool("b"), "ask": ask_once}, boot_id="b") as second:
        async with engine(store, {"t": tool("a"), "ask": ask_once}, boot_id="a", stop=False) as first:
            task, asking = await first.start(), await first.start("ask")
            await trio.sleep(300)
            assert runs == ["a"]
            # Answered through the other process, and taken up by the one that runs it.
            await second.tasks.answer(asking.id, OWNER, {"who": accept("far")})
            assert (await second.ended(asking)).ending == text("hello far")
            far = await first.start("t")
            await second.tasks.cancel(far.id, OWNER, reason="from afar")
            await trio.sleep(10)
            assert first.tasks.count() == 1
        await trio.sleep(30)
        assert runs == ["a", "a", "b"]
        assert (await second.ended(task)).ending == text("by b")


async def test_a_machine_that_slept_goes_on_with_what_it_was_doing(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    async def nap(_order: Order, _outlet: Outlet) -> Ending:
        await trio.sleep(2000)
        return text("rested")

    async with engine(store, {"t": nap}) as made:
        task = await made.start()
        await trio.sleep(7)
        autojump_clock.jump(1800)  # no lease was renewed all that time
        assert (await made.ended(task)).ending == text("rested")


class Flaky(_Dying):
    async def write(self, job: Callable[[Db], Any]) -> Any:
        if self.full:
            raise DiskFull("no room")
        return await super().write(job)


async def test_a_result_waits_for_a_full_disk_to_have_room_again(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    flaky = Flaky(store)

    async def slow(_order: Order, outlet: Outlet) -> Ending:
        await trio.sleep(5)
        for step in range(7):
            await outlet.emit(Progress(progress=step))
        return text("worth keeping")

    async with engine(flaky, {"t": slow}) as made:
        task = await made.start()
        flaky.full = True
        await trio.sleep(120)
        assert (await made.get(task)).state == "working"
        flaky.full = False
        ended = await made.ended(task)
    assert (ended.ending, len(ended.events)) == (text("worth keeping"), 7)


async def test_a_server_that_stops_gives_back_what_it_ran_and_begins_nothing_more(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    errors: list[Exception] = []

    async def call(made: Engine) -> None:
        try:
            await attempt(made, Caller(), tool="forever")
        except BackendFailed as error:
            errors.append(error)

    async with engine(store, {"t": checkpointing, "forever": forever}) as made:
        task = await made.start()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call, made)
            await trio.sleep(1)
            await made.tasks.stop()
        assert len(errors) == 1
        assert (await made.get(task)).state == "working"
        with pytest.raises(BackendFailed):
            await made.start()
        with pytest.raises(BackendFailed):
            await attempt(made, Caller())
        async with engine(store, {"t": checkpointing}, boot_id="boot-2") as after:
            assert (await after.ended(task)).ending == text("resumed at 1")
            assert trio.current_time() < 2


async def test_a_fault_of_whoever_is_told_or_of_one_row_does_not_stop_the_others(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    def fault(_server: str, _task_id: str) -> None:
        raise KeyError("no such server")

    def spoil(db: Db) -> None:
        db.execute("UPDATE task_parts SET sealed = ? WHERE name = 'order'", b"x" * 100)

    async with engine(store, {"t": checkpointing}, stop=False) as made:
        spoilt = await made.start()
        await trio.sleep(1)
    await store.write(spoil)
    async with engine(store, {"t": checkpointing, "greet": greet}, boot_id="boot-2") as after:
        after.tasks._tell = fault
        assert (await after.ended(await after.start("greet"))).state == "completed"
        await trio.sleep(60)
        assert (await after.ended(await after.start("greet"))).state == "completed"
        assert (await after.get(spoilt)).state == "working"


# ── what lies in the store ───────────────────────────────────────────────────────────────────────────────────────────


async def test_nothing_that_was_said_lies_in_the_store_in_clear(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    async def tell(_order: Order, outlet: Outlet) -> Ending:
        await outlet.emit(Progress(progress=1, message="hunter2 in progress"))
        await outlet.checkpoint("hunter2 in checkpoint")
        answers = await outlet.ask({"who": form("hunter2 in question")})
        return text(answers["who"]["content"]["name"])

    def everything(db: Db) -> bytes:
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
    def swap(db: Db) -> None:
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
            with pytest.raises(InvalidTag):
                await made.get(task)


async def test_what_only_a_run_needs_is_gone_when_it_has_ended(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    def names(db: Db) -> list[str]:
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
