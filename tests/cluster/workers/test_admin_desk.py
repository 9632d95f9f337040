"""One admin socket for all workers: which of them answers, and how answers become one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import trio

from server.admin.control import Command, CommandAnswer
from server.cluster.workers.admin_proxy import AdminProxy
from server.cluster.workers.worker_messages import COMMAND, ForwardedCommand, WorkerSeen


class FakeWorkers:
    """What `Workers` is asked for here."""

    def __init__(self, answers: dict[int, CommandAnswer | None]) -> None:
        self.answers = answers
        self.asked: list[tuple[int, str, str]] = []
        self.seen = [
            WorkerSeen(worker=number, state="serving", pid=100 + number, since=number) for number in answers
        ]

    @property
    def serving(self) -> list[Any]:
        return [SimpleNamespace(number=number) for number in self.answers]

    async def ask(self, worker: Any, name: str, body: Any, *, seconds: float) -> Any:
        assert name == COMMAND
        assert isinstance(body, ForwardedCommand)
        self.asked.append((worker.number, body.command.name, body.actor))
        answer = self.answers[worker.number]
        return None if answer is None else msgspec.Raw(msgspec.json.encode(answer))

    async def ask_all(self, name: str, body: Any, *, seconds: float) -> dict[int, Any]:
        found = {each.number: await self.ask(each, name, body, seconds=seconds) for each in self.serving}
        return {number: answer for number, answer in found.items() if answer is not None}


def of(result: Any) -> CommandAnswer:
    return CommandAnswer(ok=True, result=result)


async def asked(workers: FakeWorkers, name: str) -> CommandAnswer:
    desk = AdminProxy(workers)  # type: ignore[arg-type]
    with trio.fail_after(60):
        return await desk.answer(Command(name=name), "local:1000")


def state(**more: Any) -> dict[str, Any]:
    return {
        "version": "1",
        "started_at": 1000,
        "settings": {"read_at": 1000, "problems": [], "waits": []},
        "held_back": [],
        "upstreams": None,
        "agents": [],
        "people": 3,
        "store": {
            "problem": "",
            "hint": "",
            "wrote_seconds_ago": 2.0,
            "waiting": 0,
            "oldest_waits_seconds": 0.0,
            "refused": {},
            "free_bytes": 5,
        },
        **more,
    }


async def test_what_is_about_the_store_one_of_them_answers_as_whoever_asked() -> None:
    workers = FakeWorkers({1: of("mine"), 2: of("other")})
    answer = await asked(workers, "pending")
    assert (answer.ok, answer.result) == (True, "mine")
    assert workers.asked == [(1, "pending", "local:1000")]


async def test_what_is_refused_is_refused_in_its_words_and_what_nobody_knows_is_unknown() -> None:
    refused = CommandAnswer(ok=False, error="no such code", hint="look again")
    assert await asked(FakeWorkers({2: refused}), "find") == refused
    unknown = CommandAnswer(ok=False, unknown=True, error="this server knows no command 'dance'")
    assert (await asked(FakeWorkers({1: unknown, 2: unknown}), "dance")).unknown


async def test_a_list_that_goes_on_goes_on() -> None:
    page = CommandAnswer(ok=True, result=[1, 2], go_on=[2])
    assert (await asked(FakeWorkers({1: page}), "audit")).go_on == [2]


@pytest.mark.parametrize("name", ["status", "revoke"])
async def test_where_none_serves_or_answers_that_is_said(name: str) -> None:
    nobody = await asked(FakeWorkers({}), name)
    assert (nobody.ok, "no worker" in nobody.error) == (False, True)
    hangs = await asked(FakeWorkers({1: None}), name)
    assert (hangs.ok, "answer" in hangs.error) == (False, True)


async def test_status_is_what_one_process_would_say_with_what_is_counted_added_up() -> None:
    held = {"who": "vera", "limit": "calls", "times": 2, "last_at": 5.0}
    one = state(held_back=[held])
    two = state(started_at=500, held_back=[{**held, "times": 3, "last_at": 4.0}])
    two["store"] = {
        **two["store"],
        "problem": "it cannot be reached",
        "hint": "start it",
        "waiting": 4,
        "oldest_waits_seconds": 1.5,
        "refused": {"busy": 2},
        "wrote_seconds_ago": 1.0,
    }
    one["store"]["refused"] = {"busy": 1, "closed": 1}
    found = (await asked(FakeWorkers({1: of(one), 2: of(two), 3: None}), "status")).result
    assert (found["people"], found["started_at"]) == (3, 500)
    assert found["held_back"] == [{**held, "times": 5, "last_at": 5.0}]
    assert found["store"] == {
        "problem": "it cannot be reached",
        "hint": "start it",
        "wrote_seconds_ago": 1.0,
        "waiting": 4,
        "oldest_waits_seconds": 1.5,
        "refused": {"busy": 3, "closed": 1},
        "free_bytes": 5,
    }
    assert [(each["worker"], each["pid"], each["answers"]) for each in found["workers"]] == [
        (1, 101, True),
        (2, 102, True),
        (3, 103, False),
    ]


async def test_an_agent_that_is_out_of_order_in_one_of_them_is_named_with_where() -> None:
    def wrong(name: str, since: int) -> dict[str, Any]:
        return {"name": name, "since": since, "words": "it has ended"}

    one = state(agents=[wrong("everywhere", 7), wrong("here", 9)])
    two = state(agents=[wrong("everywhere", 5)])
    for name in ("status", "try_agents"):
        found = (await asked(FakeWorkers({1: of(one), 2: of(two)}), name)).result
        assert found["agents"] == [
            {"name": "everywhere", "since": 5, "words": "it has ended"},
            {"name": "here", "since": 9, "words": "it has ended", "workers": [1]},
        ]


async def test_an_upstream_that_one_of_them_cannot_reach_is_in_trouble() -> None:
    trouble = {"kind": "lost", "words": "connection refused"}
    one = state(upstreams=[{"name": "main/a", "trouble": None}, {"name": "main/b", "trouble": None}])
    two = state(upstreams=[{"name": "main/a", "trouble": trouble}, {"name": "main/b", "trouble": None}])
    found = (await asked(FakeWorkers({1: of(one), 2: of(two)}), "status")).result
    assert [(each["name"], each["trouble"]) for each in found["upstreams"]] == [
        ("main/a", trouble),
        ("main/b", None),
    ]


async def test_settings_that_one_of_them_could_not_take_are_a_problem() -> None:
    one, two = state(), state()
    two["settings"] = {"read_at": 900, "problems": ["port is no number"], "waits": ["host"]}
    found = (await asked(FakeWorkers({1: of(one), 2: of(two)}), "status")).result
    assert found["settings"] == {"read_at": 900, "problems": ["port is no number"], "waits": ["host"]}
