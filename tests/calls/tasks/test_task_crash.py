"""Tasks on a real store whose process is killed in the middle of its work: real rows, processes and clock."""

from __future__ import annotations

from pathlib import Path

import pytest
import task_child
import trio
from task_child import OWNER, begin, engine, text

from server.calls.tasks.sealed_tasks import RESTARTED
from tests.engine_under_test import Place, place_of, written
from tests.killed_child import running, said_until_killed

CHILD = Path(task_child.__file__)


def later() -> int:
    """When every lease has run out."""
    return task_child.now() + 60_000


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return place_of(tmp_path / "ostiary.db")


async def test_after_a_kill_every_task_is_what_the_rules_say(place: Place) -> None:
    (line,) = said_until_killed(CHILD, "states", written(place), lines=1)
    made = dict(pair.split("=") for pair in line.split())

    with trio.fail_after(60):
        async with engine(place, "boot-2", later) as tasks:
            found = {name: await tasks.wait(task_id, OWNER) for name, task_id in made.items()}
            assert found["greet"].ending == text("hello Ann")
            assert found["checkpoint"].ending == text("resumed at 4")
            assert found["checkpoint"].message == "step 4"
            assert len(found["checkpoint"].events) == 5
            assert (found["forever"].state, found["forever"].ending) == ("failed", RESTARTED)
            assert (found["ask"].state, set(found["ask"].questions)) == ("input_required", {"who"})
            answer = {"action": "accept", "content": {"name": "Bo"}}
            await tasks.answer(made["ask"], OWNER, {"who": answer})
            assert (await tasks.wait(made["ask"], OWNER, seen=frozenset({"who"}))).ending == text("hello Bo")


async def test_no_task_is_lost_whenever_the_process_is_killed(place: Place) -> None:
    begun: dict[str, str] = {}
    ended: dict[str, str] = {}
    for round_number in range(3):
        for line in said_until_killed(CHILD, "stream", written(place), lines=100 + 37 * round_number):
            what, task_id, name = line.split()
            (begun if what == "begun" else ended)[task_id] = name

    with trio.fail_after(60):
        async with engine(place, "boot-2", later) as tasks:
            for task_id, name in begun.items():
                task = await tasks.wait(task_id, OWNER)
                if task_id in ended or task.state == "completed":
                    assert task.ending == text(f"hello {name}")
                else:
                    assert task.ending == RESTARTED
            assert tasks.count() == 0
    assert len(ended) > 100


async def test_the_tasks_of_a_living_process_are_never_touched_by_another(place: Place) -> None:
    with running(CHILD, "states", written(place)) as process:
        assert process.stdout is not None
        made = dict(pair.split("=") for pair in process.stdout.readline().split())

        # Left behind long ago: when this one has been taken over, the other process has looked at all there are.
        with trio.fail_after(60):
            async with engine(place, "old", lambda: task_child.now() - 100_000) as old:
                left = await begin(old, "forever")
            async with engine(place, "boot-2") as tasks:
                assert (await tasks.wait(left.id, OWNER)).state == "failed"
                assert tasks.count() == 0
                states = {name: (await tasks.get(task_id, OWNER)).state for name, task_id in made.items()}
                assert states == {
                    "greet": "completed",
                    "ask": "input_required",
                    "checkpoint": "working",
                    "forever": "working",
                }
                # What is said here reaches the one that runs it.
                answer = {"action": "accept", "content": {"name": "Cy"}}
                await tasks.answer(made["ask"], OWNER, {"who": answer})
                told = await tasks.wait(made["ask"], OWNER, seen=frozenset({"who"}))
                assert told.ending == text("hello Cy")
                assert process.poll() is None
