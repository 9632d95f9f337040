"""Tasks of logins that are ended (server/calls/tasks/task_logins.py): what runs for them stops, and none is begun again."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import structlog
import trio
import trio.testing
from msgspec.structs import replace
from task_fakes import clock
from trio.testing import MockClock

from auth.values.identity_model import ANONYMOUS, Principal, PrincipalKind
from server.calls.tasks.task_engine import Ending, TaskCompleted, TaskOrder, Tasks, Who, owner_of
from server.calls.tasks.task_logins import REVOKED
from server.mcp.call_outlet import Outlet
from server.mcp.messages import TextContent
from server.mcp.result_encoding import ToolResult
from server.mcp.task_faces import Face, Snapshot
from server.store.inline_store import InlineStore
from server.store.jobs import DiskFull, JobTooSlow, StoreDb

ALICE = Principal(
    kind=PrincipalKind.USER,
    subject="usr_a",
    client_id="cli_a",
    grant_id="grt_a",
    scopes=frozenset({"mcp"}),
)
BOB = Principal(kind=PrincipalKind.USER, subject="usr_b", client_id="cli_b", grant_id="grt_b")


@dataclass
class Doors:
    """Who may go on, and whom it was asked about. What is told here is what a store would tell after a commit."""

    now: dict[str, Principal | None] = field(default_factory=dict[str, Principal | None])
    asked: list[str] = field(default_factory=list[str])

    async def allowed(self, principal: Principal) -> Principal | None:
        await trio.lowlevel.checkpoint()
        self.asked.append(principal.subject)
        return self.now.get(principal.subject, principal)


@dataclass
class Tools:
    """One tool: it sleeps, and notes what it is given and what becomes of it."""

    stopped: list[str] = field(default_factory=list[str])
    seen: list[Who] = field(default_factory=list[Who])
    let_go_of: list[str] = field(default_factory=list[str])
    by_hand: trio.Event = field(default_factory=trio.Event)

    async def perform(self, order: TaskOrder, outlet: Outlet) -> Ending:
        self.seen.append(order.principal)
        if order.resumed is not None:
            return TaskCompleted(ToolResult(content=[TextContent(text="resumed")]))
        try:
            if order.tool == "by_hand":
                await self.by_hand.wait()
                await outlet.become_task()
            if order.tool == "steps":
                await outlet.checkpoint({"step": 1})
            await trio.sleep_forever()
        finally:
            self.stopped.append(order.principal.subject)
        raise AssertionError

    async def let_go(self, order: TaskOrder) -> None:
        self.let_go_of.append(order.principal.subject)


class _Full:
    """A store whose disk is full while `full`."""

    def __init__(self, store: InlineStore) -> None:
        self.full = False
        self.read = store.read
        self.on_changes = store.on_changes
        self._store = store

    async def write(self, job: object) -> object:
        if self.full:
            raise DiskFull("no room")
        return await self._store.write(job)  # type: ignore[arg-type]


@asynccontextmanager
async def running(store: InlineStore | _Full, doors: Doors, tools: Tools) -> AsyncGenerator[Tasks]:
    serial = iter(range(10**6))
    boot_id = f"boot-{id(doors)}-{trio.current_time()}"
    tasks = Tasks(
        store,  # type: ignore[arg-type]
        perform=tools.perform,
        clock=clock,
        entropy=lambda size: f"{boot_id}-{next(serial)}".encode().rjust(size, b".")[-size:],
        key=bytes(32),
        boot_id=boot_id,
        log=structlog.get_logger(),
        announce=lambda _server, _task_id: None,
        allowed=doors.allowed,
        let_go=tools.let_go,
    )
    store.on_changes(tasks.apply_changes)
    async with trio.open_nursery() as nursery:
        await nursery.start(tasks.run)
        yield tasks
        nursery.cancel_scope.cancel()


def order(principal: Principal, tool: str = "sleep") -> TaskOrder:
    return TaskOrder(server="main", tool=tool, arguments={}, principal=Who.of(principal), call_id="c1")


async def start(tasks: Tasks, principal: Principal, tool: str = "sleep") -> Snapshot:
    return await tasks.start(order(principal, tool), owner=owner_of(principal, "main"), face=Face.EXTENSION)


async def tell(store: InlineStore, kind: str, entity_id: str) -> None:
    def change(db: StoreDb) -> None:
        db.changed(kind, entity_id)

    await store.write(change)


@pytest.mark.parametrize(("kind", "entity"), [("grant", "grt_a"), ("user", "usr_a"), ("client", "cli_a")])
async def test_what_runs_for_a_login_stops_when_it_is_ended_and_what_runs_for_others_goes_on(
    autojump_clock: MockClock, store: InlineStore, kind: str, entity: str
) -> None:
    doors, tools = Doors(), Tools()
    async with running(store, doors, tools) as tasks:
        mine, others = await start(tasks, ALICE), await start(tasks, BOB)
        anybodys = await start(tasks, ANONYMOUS)
        await trio.sleep(1)
        doors.asked.clear()
        doors.now["usr_a"] = None
        before = trio.current_time()
        await tell(store, kind, entity)
        await trio.testing.wait_all_tasks_blocked()
        assert (trio.current_time(), tools.stopped, doors.asked) == (before, ["usr_a"], ["usr_a"])
        ended = await tasks.get(mine.id, owner_of(ALICE, "main"))
        assert (ended.state, ended.message, ended.ending) == ("cancelled", REVOKED, None)
        assert (await tasks.get(others.id, owner_of(BOB, "main"))).state == "working"
        assert (await tasks.get(anybodys.id, owner_of(ANONYMOUS, "main"))).state == "working"


ROBOT = Principal(
    kind=PrincipalKind.API_KEY, subject="key_r", grant_id="key_r", user="usr_owner", tools="all"
)


@pytest.mark.parametrize(("kind", "entity"), [("api_key", "key_r"), ("user", "usr_owner")])
async def test_what_runs_for_a_key_stops_when_it_is_revoked_or_its_user_is_shut_out(
    autojump_clock: MockClock, store: InlineStore, kind: str, entity: str
) -> None:
    doors, tools = Doors(), Tools()
    async with running(store, doors, tools) as tasks:
        mine, others = await start(tasks, ROBOT), await start(tasks, BOB)
        await trio.sleep(1)
        assert tools.seen[0].principal() == ROBOT  # with its selection, and whose it is
        doors.now["key_r"] = None
        await tell(store, kind, entity)
        await trio.testing.wait_all_tasks_blocked()
        assert tools.stopped == ["key_r"]
        assert (await tasks.get(mine.id, owner_of(ROBOT, "main"))).message == REVOKED
        assert (await tasks.get(others.id, owner_of(BOB, "main"))).state == "working"


async def test_a_change_that_shuts_nobody_out_stops_nothing(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    doors, tools = Doors(), Tools()
    async with running(store, doors, tools) as tasks:
        mine = await start(tasks, ALICE)
        await trio.sleep(1)
        await tell(store, "user", "usr_a")
        await tell(store, "key", "grt_a")
        await trio.sleep(60)
        assert tools.stopped == []
        assert (await tasks.get(mine.id, owner_of(ALICE, "main"))).state == "working"


async def test_a_task_of_a_login_that_was_ended_meanwhile_is_not_begun(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    doors, tools = Doors({"usr_a": None}), Tools()
    async with running(store, doors, tools) as tasks:
        mine = await start(tasks, ALICE)
        await start(tasks, BOB)
        await trio.testing.wait_all_tasks_blocked()
        assert (await tasks.get(mine.id, owner_of(ALICE, "main"))).message == REVOKED
        # What was begun for it is let go of at once, and what was begun for others is theirs.
        assert ([each.subject for each in tools.seen], tools.let_go_of) == (["usr_b"], ["usr_a"])


async def test_what_was_begun_for_a_task_is_let_go_of_where_nobody_can_say_whether_it_may_be(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    doors, tools = Doors(), Tools()

    async def unknown(principal: Principal) -> Principal | None:
        raise JobTooSlow("too slow")

    doors.allowed = unknown
    async with running(store, doors, tools) as tasks:
        await start(tasks, ALICE)
        await trio.sleep(5)  # it is asked a few times
        assert (tools.seen, tools.let_go_of) == ([], ["usr_a"])


async def test_whether_a_task_may_go_on_is_asked_again_where_the_store_was_too_slow_to_say(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    doors, tools = Doors(), Tools()
    slow = 0

    async def slowly(principal: Principal) -> Principal | None:
        nonlocal slow
        if slow:
            slow -= 1
            await trio.sleep(5)
            raise JobTooSlow("too slow")
        return await Doors.allowed(doors, principal)

    doors.allowed = slowly
    async with running(store, doors, tools) as tasks:
        mine, others = await start(tasks, ALICE), await start(tasks, BOB)
        await trio.sleep(1)
        doors.now = {"usr_a": None, "usr_b": None}
        slow = 2
        await tell(store, "user", "usr_a")
        await tell(store, "user", "usr_b")
        await trio.sleep(11)
        assert (await tasks.get(mine.id, owner_of(ALICE, "main"))).message == REVOKED
        assert (await tasks.get(others.id, owner_of(BOB, "main"))).message == REVOKED
        assert sorted(tools.stopped) == ["usr_a", "usr_b"]


async def test_a_call_that_becomes_a_task_after_its_login_was_ended_is_stopped(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    doors, tools = Doors(), Tools()
    made: list[object] = []
    async with running(store, doors, tools) as tasks, trio.open_nursery() as nursery:

        async def call() -> None:
            line = Tools()  # nothing is said on it
            made.append(
                await tasks.attempt(
                    order(ALICE, "by_hand"),
                    line,  # type: ignore[arg-type]
                    owner=owner_of(ALICE, "main"),
                    face=Face.EXTENSION,
                    after_seconds=None,
                )
            )

        nursery.start_soon(call)
        await trio.sleep(1)
        doors.now["usr_a"] = None
        await tell(store, "grant", "grt_a")  # when it is no task yet
        await trio.sleep(1)
        assert tools.stopped == []
        tools.by_hand.set()
        await trio.sleep(1)
        (task,) = made
        assert isinstance(task, Snapshot)
        assert tools.stopped == ["usr_a"]
        assert (await tasks.get(task.id, owner_of(ALICE, "main"))).message == REVOKED


async def test_after_a_restart_a_task_goes_on_as_what_its_user_may_be_now(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    doors, tools = Doors(), Tools()
    async with running(store, doors, tools) as tasks:
        mine, others = await start(tasks, ALICE, "steps"), await start(tasks, BOB, "steps")
        await trio.sleep(1)
    doors.now = {"usr_a": replace(ALICE, scopes=frozenset({"mcp:tools"})), "usr_b": None}
    tools.seen.clear()
    async with running(store, doors, tools) as tasks:
        with trio.fail_after(60):
            resumed = await tasks.wait(mine.id, owner_of(ALICE, "main"))
            ended = await tasks.wait(others.id, owner_of(BOB, "main"))
    assert resumed.state == "completed"
    assert [(who.subject, who.scopes) for who in tools.seen] == [("usr_a", {"mcp:tools"})]
    assert (ended.state, ended.message) == ("cancelled", REVOKED)


async def test_work_stops_at_once_though_the_disk_is_full_and_its_end_is_kept_when_there_is_room(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    doors, tools, disk = Doors(), Tools(), _Full(store)
    async with running(disk, doors, tools) as tasks:
        mine = await start(tasks, ALICE, "steps")
        await trio.sleep(1)
        disk.full = True
        doors.now["usr_a"] = None
        await tell(store, "grant", "grt_a")
        await trio.sleep(1)
        assert tools.stopped == ["usr_a"]
        assert (await tasks.get(mine.id, owner_of(ALICE, "main"))).state == "working"
        disk.full = False
        with trio.fail_after(60):
            ended = await tasks.wait(mine.id, owner_of(ALICE, "main"))
    assert (ended.state, ended.message) == ("cancelled", REVOKED)
    assert len(tools.seen) == 1
