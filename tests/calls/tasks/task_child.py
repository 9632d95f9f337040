"""A process that runs tasks on a real store until it is killed. Started by test_task_crash.py, which uses its tools, too.

usage: task_child.py states|stream PLACE
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import structlog
import trio

from auth.values.identity_model import Principal, PrincipalKind
from server.calls.tasks.task_engine import Ending, TaskCompleted, TaskOrder, Tasks, TaskTerms, Who, owner_of
from server.mcp.call_outlet import Outlet, Progress
from server.mcp.call_questions import Question
from server.mcp.messages import TextContent
from server.mcp.result_encoding import ToolResult
from server.mcp.task_faces import Face, Snapshot
from tests.engine_under_test import Place, open_at, read_place

KEY = bytes(range(32))
ALICE = Principal(kind=PrincipalKind.USER, subject="usr_alice", client_id="cli")
OWNER = owner_of(ALICE, "main")
STREAMS = 8
KEPT = trio.Event()  # the checkpoint is durable


def now() -> int:
    return time.time_ns() // 1_000_000


def text(said: str) -> TaskCompleted:
    return TaskCompleted(ToolResult(content=[TextContent(text=said)]))


def order(tool: str, **arguments: str) -> TaskOrder:
    return TaskOrder(
        server="main",
        tool=tool,
        arguments=arguments,
        principal=Who.of(ALICE),
        call_id="c1",
        can=frozenset({"elicitation"}),
    )


async def perform(what: TaskOrder, outlet: Outlet) -> Ending:
    match what.tool:
        case "greet":
            return text(f"hello {what.arguments['name']}")
        case "ask":
            question = Question(
                method="elicitation/create",
                params={
                    "message": "name?",
                    "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
                },
            )
            answers = await outlet.ask({"who": question})
            return text(f"hello {answers['who']['content']['name']}")
        case "checkpoint":
            if what.resumed is None:
                for step in range(5):
                    await outlet.emit(Progress(progress=step, message=f"step {step}"))
                await outlet.checkpoint({"step": 4})
                KEPT.set()
                await trio.sleep_forever()
            return text(f"resumed at {what.resumed['step']}")
        case _:
            await trio.sleep_forever()
            raise AssertionError


@asynccontextmanager
async def engine(
    place: Place, boot_id: str, clock: Callable[[], int] = now, **terms: float
) -> AsyncGenerator[Tasks]:
    async with open_at(place, clock=clock) as store:
        tasks = Tasks(
            store,
            perform=perform,
            clock=clock,
            entropy=secrets.token_bytes,
            key=KEY,
            boot_id=boot_id,
            log=structlog.get_logger(),
            announce=lambda _server, _task_id: None,
            terms=TaskTerms(**terms),  # type: ignore[arg-type]
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(tasks.run)
            yield tasks
            nursery.cancel_scope.cancel()


def say(*words: str) -> None:
    os.write(1, f"{' '.join(words)}\n".encode())  # one system call: a line is out, whole, when this returns


async def begin(tasks: Tasks, tool: str, **arguments: str) -> Snapshot:
    return await tasks.start(order(tool, **arguments), owner=OWNER, face=Face.EXTENSION)


async def states(tasks: Tasks) -> None:
    made = {name: await begin(tasks, name, name="Ann") for name in ("greet", "ask", "checkpoint", "forever")}
    await tasks.wait(made["greet"].id, OWNER)
    await tasks.wait(made["ask"].id, OWNER)
    while (await tasks.get(made["checkpoint"].id, OWNER)).message != "step 4":
        await trio.lowlevel.checkpoint()
    await KEPT.wait()
    say(*(f"{name}={task.id}" for name, task in made.items()))
    await trio.sleep_forever()


async def stream(tasks: Tasks) -> None:
    async def one(number: int) -> None:
        serial = 0
        while True:
            name = f"{number}-{serial}"
            task = await begin(tasks, "greet", name=name)
            say("begun", task.id, name)
            await tasks.wait(task.id, OWNER)
            say("ended", task.id, name)
            serial += 1

    async with trio.open_nursery() as nursery:
        for number in range(STREAMS):
            nursery.start_soon(one, number)


async def main(mode: str, place: Place) -> None:
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    async with engine(place, f"child-{os.getpid()}", kept_per_owner=100_000, renew_seconds=0.2) as tasks:
        await (states(tasks) if mode == "states" else stream(tasks))


if __name__ == "__main__":
    trio.run(main, sys.argv[1], read_place(sys.argv[2]))
