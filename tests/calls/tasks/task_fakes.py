"""The engine of tasks with tools that are made up, killed or stopped as a test wants: on a clock that jumps, and any store."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import structlog
import trio

from auth.values.identity_model import Principal, PrincipalKind
from server.calls.tasks.task_engine import (
    Ending,
    Owner,
    TaskCompleted,
    TaskOrder,
    Tasks,
    TaskTerms,
    Who,
    owner_of,
)
from server.mcp.call_outlet import LogMessage, Outlet, Progress
from server.mcp.call_questions import Question
from server.mcp.loads import Loads
from server.mcp.messages import TextContent
from server.mcp.result_encoding import ToolResult
from server.mcp.task_faces import Face, Snapshot
from server.store.jobs import Store, StoreDb

EPOCH = 1_800_000_000_000
KEY = bytes(range(32))
ALICE = Principal(kind=PrincipalKind.USER, subject="usr_alice", client_id="cli", grant_id="g1")
OWNER = owner_of(ALICE, "main")
CAN = frozenset({"elicitation"})

Tool = Callable[[TaskOrder, Outlet], Awaitable[Ending]]


def clock() -> int:
    return EPOCH + round(trio.current_time() * 1000)


def text(said: str, *, is_error: bool = False) -> TaskCompleted:
    return TaskCompleted(ToolResult(content=[TextContent(text=said)], is_error=is_error))


def order(tool: str = "t", **changed: Any) -> TaskOrder:
    values: dict[str, Any] = {
        "server": "main",
        "tool": tool,
        "arguments": {"secret": "hunter2"},
        "principal": Who.of(ALICE),
        "call_id": "c1",
        "can": CAN,
    }
    return TaskOrder(**values | changed)


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
    store: Store,
    tools: Mapping[str, Tool],
    *,
    boot_id: str = "boot-1",
    stop: bool = True,
    loads: Loads | None = None,
    **terms: Any,
) -> AsyncGenerator[Engine]:
    """`stop` False: it is killed, and gives nothing back."""
    serial = itertools.count()
    told: list[tuple[str, str]] = []

    async def perform(what: TaskOrder, outlet: Outlet) -> Ending:
        return await tools[what.tool](what, outlet)

    def entropy(size: int) -> bytes:
        return f"{boot_id}-{next(serial)}".encode().rjust(size, b".")[-size:]

    tasks = Tasks(
        store if stop else DyingStore(store),
        perform=perform,
        clock=clock,
        entropy=entropy,
        key=KEY,
        boot_id=boot_id,
        log=structlog.get_logger(),
        announce=lambda server, task_id: told.append((server, task_id)),
        terms=TaskTerms(**terms),
        loads=loads,
    )
    made = Engine(tasks, told)
    async with trio.open_nursery() as nursery:
        await nursery.start(tasks.run)
        yield made
        if not stop:
            tasks._ledger._store.dead = True  # type: ignore[attr-defined]
        nursery.cancel_scope.cancel()


class DyingStore:
    """A store that hears nothing more of a process that was killed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.dead = False
        self.on_changes = store.on_changes
        self.on_audit = store.on_audit
        self.on_trust = store.on_trust
        self.on_letters = store.on_letters
        self.chain_audit = store.chain_audit
        self.full = False

    async def write(self, job: Callable[[StoreDb], Any]) -> Any:
        if self.dead:
            await trio.sleep_forever()
        return await self._store.write(job)

    async def read(self, job: Callable[[StoreDb], Any]) -> Any:
        return await self._store.read(job)


async def greet(_order: TaskOrder, _outlet: Outlet) -> Ending:
    return text("hello")


async def forever(_order: TaskOrder, _outlet: Outlet) -> Ending:
    await trio.sleep_forever()
    raise AssertionError


async def ask_once(_order: TaskOrder, outlet: Outlet) -> Ending:
    answers = await outlet.ask({"who": form()})
    return text(f"hello {answers['who']['content']['name']}")


class Caller:
    """The line of a request that waits."""

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.saved: Any = None
        self.closed = False

    async def emit(self, event: Progress | LogMessage) -> None:
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
