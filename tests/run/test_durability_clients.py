"""The clients of scripts/chaos: a good login or key that is refused is a violation of its own, a judge that fails is told, and so is a
task that completed without its steps."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from email.message import Message
from pathlib import Path
from random import Random
from threading import Event
from typing import Any

import pytest

BENCH = Path(__file__).parent.parent.parent / "scripts" / "bench.d"
REFUSED = b'{"error":"invalid_token"}'


@pytest.fixture
def witnesses(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(BENCH))
    before = set(sys.modules)
    yield importlib.import_module("durability_clients")
    for name in set(sys.modules) - before:
        if str(BENCH) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


class RefusingDoor:
    """A server that lets nobody in."""

    data = Path("nowhere")

    def __init__(self, answer: Any, status: int = 401, body: bytes = REFUSED) -> None:
        self._answer = answer(status, Message(), body, "10.0.0.1:80")

    def caller(self, dice: Random) -> Any:
        return self

    def call(self, *_: Any, **__: Any) -> Any:
        return self._answer


def login(witnesses: Any) -> Any:
    return witnesses.Login(grant_id="grt_1", counter=1, access_token="a", refresh_token="r")


def test_a_good_login_that_is_refused_is_told_with_node_status_and_what_was_answered(witnesses: Any) -> None:
    newcomer = witnesses.Newcomer(RefusingDoor(witnesses.Answer), Random(1), Event(), "newcomer0")
    newcomer.kept.append(login(witnesses))
    newcomer.ended.append(login(witnesses))
    newcomer.refresh = lambda _: (witnesses.Answer(400, Message(), b"{}"), 0)
    newcomer.settle()
    (told,) = newcomer.books[witnesses.GOOD].missing  # the ended one is rightly refused
    assert told.startswith("grt_1 of newcomer0 was answered 401 by 10.0.0.1:80 at ")
    assert "invalid_token" in told


@pytest.mark.parametrize("asks", ["_begin", "_look"])
def test_a_task_that_is_asked_for_with_a_refused_login_is_not_called_missing(
    witnesses: Any, asks: str
) -> None:
    tasker = witnesses.Tasker(RefusingDoor(witnesses.Answer), Random(1), Event(), "tasker0")
    tasker.login = login(witnesses)
    tasker.begun.append("tsk_1")
    getattr(tasker, asks)(*(tasker.login, "tsk_1")[: 1 + (asks == "_look")])
    assert len(tasker.books[witnesses.GOOD].missing) == 1
    assert tasker.books["tasks"].missing == []
    assert tasker.login is None  # and it goes on with another


def test_a_witness_that_cannot_go_on_keeps_no_other_from_being_heard(witnesses: Any) -> None:
    door = RefusingDoor(witnesses.Answer, 500, b"no json")
    broken = witnesses.Refresher(door, Random(1), Event(), "refresher0")
    broken.login = login(witnesses)
    broken.refresh = lambda _: (witnesses.Answer(200, Message(), b"no json"), 0)
    heard = witnesses.Newcomer(RefusingDoor(witnesses.Answer), Random(1), Event(), "newcomer1")
    heard.kept.append(login(witnesses))
    failed = witnesses.settle([broken, heard])
    assert [each.split(":")[0] for each in failed] == ["refresher0"]
    assert len(heard.books[witnesses.GOOD].missing) == 1


STEPS = "".join(f"tasker0-1 {what} {step}\n" for step in range(4) for what in ("begins", "kept"))


@pytest.mark.parametrize(
    ("noted", "said", "missing"),
    [
        (STEPS, "tasker0-1 took 4 steps", []),
        (STEPS.removesuffix("tasker0-1 kept 3\n"), "tasker0-1 took 4 steps", []),  # killed before the note
        (STEPS.replace("tasker0-1 begins 2\n", ""), "tasker0-1 took 4 steps", ["step 2 of tasker0-1"]),
        (None, "tasker0-1 took 4 steps", [f"step {step} of tasker0-1" for step in range(4)]),
        (STEPS, "PermissionError: what went wrong", ["PermissionError"]),
    ],
)
def test_a_task_that_completed_without_its_steps_is_told(
    tmp_path: Path, witnesses: Any, noted: str | None, said: str, missing: list[str]
) -> None:
    accounts = importlib.import_module("accounts")
    tasker = witnesses.Tasker(RefusingDoor(witnesses.Answer), Random(1), Event(), "tasker0")
    tasker.completed["tsk_1"] = str([{"type": "text", "text": said}])
    notes, book = tmp_path / "notes", witnesses.Book()
    if noted is not None:
        notes.write_text(noted, "utf-8")
    accounts.compare_steps(notes, [tasker], book)
    assert all(part in told for part, told in zip(missing, book.missing, strict=True))
    assert book.doubled == []
