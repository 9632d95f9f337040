"""Tasks of a server that is stopped, killed, or told to let somebody in no longer: every kind of work, on every face."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from programs import until
from task_clients import Ended, Extension, Face, House, Stood, Wasmagent, make_house

from server.calls.tasks import sealed_tasks
from server.calls.tasks.task_logins import REVOKED

pytestmark = pytest.mark.slow

KINDS = ("extension", "core", "wasmagent")
MORTAL = Path(__file__).with_name("mortal_server.py")
RESTARTED = sealed_tasks.RESTARTED.message


@pytest.fixture
def house(home: Path) -> Iterator[House]:
    house = make_house(home)
    yield house
    house.hang_up()


class Begun(NamedTuple):
    """One client's tasks, one of each kind of work, each as far as it gets by itself."""

    done: str
    asks: str
    asks_twice: str
    answered: str
    steps: str
    by_hand: str
    sleeps: str


def connect(house: House) -> dict[str, Face]:
    """Sessions end with the server, so clients begin new ones."""
    names = {"extension": "extension", "core": "core in a session", "wasmagent": "wasmagent"}
    return {kind: house.face(name) for kind, name in names.items()}


def begin(house: House, face: Face, kind: str) -> Begun:
    begun = Begun(
        done=face.begin("quick", f"{kind}-done"),
        asks=face.begin("curious", f"{kind}-asks"),
        asks_twice=face.begin("curious_twice", f"{kind}-asks-twice"),
        answered=face.begin("curious", f"{kind}-answered"),
        steps=face.begin("steps", f"{kind}-steps"),
        by_hand=face.begin("considers", f"{kind}-by-hand"),
        sleeps=face.begin("sleepy", f"{kind}-sleeps"),
    )
    assert face.end(begun.done) == Ended("completed", f"{kind}-done is done")
    for task_id in (begun.asks, begun.asks_twice, begun.answered):
        until("the task to ask", lambda: face.look(task_id).state == "input_required" or None)  # noqa: B023
    face.answer(begun.answered, {"colour": {"colour": "red"}})
    assert face.end(begun.answered) == Ended("completed", f"{kind}-answered: red")
    if isinstance(face, Extension):
        face.answer(begun.asks_twice, {"animal": {"animal": "cat"}})
        assert face.look(begun.asks_twice).questions == {"colour"}
    house.await_note(f"{kind}-steps kept step 0")
    house.await_note(f"{kind}-by-hand is a task")
    until("progress", lambda: face.look(begun.sleeps).message)
    return begun


def check(house: House, face: Face, kind: str, begun: Begun) -> None:
    interrupted = Ended("failed", RESTARTED, None if isinstance(face, Wasmagent) else -32603)
    assert face.end(begun.done) == Ended("completed", f"{kind}-done is done")
    assert face.end(begun.answered) == Ended("completed", f"{kind}-answered: red")
    # Before its work is begun again, or after: what it asks can be answered at any time.
    assert face.look(begun.asks).state == "input_required"
    face.answer(begun.asks, {"colour": {"colour": "blue"}})
    animal = {} if isinstance(face, Extension) else {"animal": {"animal": "cat"}}
    face.answer(begun.asks_twice, {**animal, "colour": {"colour": "blue"}})
    house.let_go(f"{kind}-steps")
    assert face.end(begun.steps) == Ended("completed", f"{kind}-steps began at 1")
    assert face.end(begun.asks) == Ended("completed", f"{kind}-asks: blue")
    assert face.end(begun.asks_twice) == Ended("completed", f"{kind}-asks-twice: blue cat")
    assert face.end(begun.by_hand) == interrupted
    assert face.end(begun.sleeps) == interrupted
    said = house.said()
    assert [said.count(f"{kind}-steps step {step}") for step in range(3)] == [1, 1, 1]
    assert said.count(f"{kind}-sleeps begins") == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_lost_when_the_server_is_started_again(house: House, number: int) -> None:
    with house.open() as server:
        begun = {kind: begin(house, face, kind) for kind, face in connect(house).items()}
        house.hang_up()
        assert server.end(number) == (0 if number == signal.SIGTERM else -signal.SIGKILL)
    with house.open():
        faces = connect(house)
        for kind, tasks in begun.items():
            check(house, faces[kind], kind, tasks)


# ── logins that are ended ────────────────────────────────────────────────────────────────────────────────────────────


def end_login(house: House, client: str) -> None:
    (login,) = [
        each
        for each in house.program.at_machine("sessions")
        if client in (each["client_id"], each["client_name"])
    ]
    house.program.at_machine("revoke", login["id"])


def test_after_a_kill_tasks_are_at_once_what_they_have_become(house: House) -> None:
    with house.open() as server:
        face = house.face("core")
        sleeps, steps = face.begin("sleepy", "sleeps"), face.begin("steps", "steps")
        for name in ("sleeps begins", "steps kept step 0"):
            house.await_note(name)
        server.end(signal.SIGKILL)
    house.let_go("steps")
    with house.open():
        face = house.face("core")
        # Well before the lease of the killed server would have run out.
        for task_id, ends in ((sleeps, "failed"), (steps, "completed")):
            until("the task to end", lambda: face.look(task_id).state == ends or None, 8)  # noqa: B023


def test_what_runs_for_a_login_is_stopped_when_the_login_is_ended(house: House) -> None:
    with house.open():
        mine, other = house.face("core in a session"), house.face("core", client="two")
        sleeps, asks, steps = (
            mine.begin("sleepy", "sleeps"),
            mine.begin("curious", "asks"),
            mine.begin("steps", "steps"),
        )
        untouched = other.begin("sleepy", "untouched")
        for name in ("sleeps begins", "asks begins", "steps kept step 0", "untouched begins"):
            house.await_note(name)
        end_login(house, "one")
        house.await_note("sleeps is stopped")
        del house.tokens["main", "one"]
        again = house.face("core")
        for task_id in (sleeps, asks, steps):
            assert again.look(task_id) == Stood("cancelled", REVOKED)
        for name in ("steps", "untouched"):
            house.let_go(name)
        assert other.end(untouched) == Ended("completed", "untouched slept well")
        assert "untouched is stopped" not in house.said()
        assert "steps step 1" not in house.said()


def test_what_a_killed_server_did_for_a_login_that_is_ended_is_not_taken_up_again(house: House) -> None:
    house.program.script = MORTAL
    order = house.program.home / "die"
    with house.open() as server:
        mine, other = house.face("core"), house.face("core", client="two")
        steps, kept = mine.begin("steps", "steps"), other.begin("steps", "kept")
        for name in ("steps", "kept"):
            house.await_note(f"{name} kept step 0")
        order.write_text("after grant.revoked", "utf-8")
        with pytest.raises(AssertionError, match="did not answer"):
            end_login(house, "one")  # and before the work hears of it, the server dies
        assert server.wait() == -signal.SIGKILL
    order.unlink()
    house.let_go("steps")
    house.let_go("kept")
    with house.open() as server:
        assert other.end(kept) == Ended("completed", "kept began at 1")
        del house.tokens["main", "one"]
        again = house.face("core")
        assert until("the task to end", lambda: _over(again.look(steps))) == Stood("cancelled", REVOKED)
        assert "steps step 1" not in house.said()
        server.await_words("task.revoked")


def test_a_client_program_that_is_disabled_has_nothing_done_any_more(house: House) -> None:
    with house.open():
        mine = house.face("extension")
        mine.begin("sleepy", "sleeps")
        house.await_note("sleeps begins")
        house.program.at_machine("clients", "disable", "one")
        house.await_note("sleeps is stopped")


def _over(stood: Stood) -> Stood | None:
    return stood if stood.state not in ("working", "input_required") else None


@pytest.mark.parametrize(
    ("number", "tool", "upfront"),
    [
        (signal.SIGTERM, "steps", False),
        (signal.SIGKILL, "steps", True),
        (signal.SIGTERM, "curious", True),
        (signal.SIGKILL, "curious", False),
    ],
)
def test_a_task_with_a_price_and_a_key_goes_on_and_is_charged_once(
    house: House, number: int, tool: str, upfront: bool
) -> None:
    settings = house.program.home / "ostiary.toml"
    price = f'[server.tools.{tool}]\nprice = "$0.01"\nflow = "{"upfront" if upfront else "after"}"\n'
    first, server, rest = settings.read_text("utf-8").partition('[[server]]\nname = "wasm"')
    settings.write_text(f"{first}{price}{server}{rest}", "utf-8")
    ledger = partial(house.program.at_machine, "ledger")
    with house.open() as running:
        face = house.face("core in a session")
        person = house.program.at_machine("users", "list")[0]["id"]
        ledger("grant", f"user:{person}", "$1")
        made = face.wire.call(tool, "s", task={}, _meta={"x402/idempotency-key": "order-1"}).result
        task_id = made["task"]["taskId"]
        if tool == "steps":
            house.await_note("s kept step 0")
        else:
            until("the task to ask", lambda: face.look(task_id).state == "input_required" or None)
        house.hang_up()
        running.end(number)
    house.let_go("s")
    with house.open():
        face = house.face("core in a session")
        face.answer(task_id, {"colour": {"colour": "blue"}} if tool == "curious" else {})
        assert face.end(task_id) == Ended("completed", "s: blue" if tool == "curious" else "s began at 1")
        again = face.wire.call(tool, "s", _meta={"x402/idempotency-key": "order-1"}).result
        assert not again["isError"], "the same call leads to the answer of the task"
        charged = [each for each in ledger("statement") if each["kind"] == "charge"]
        assert [each["amount"] for each in charged] == ["0.010000"]
