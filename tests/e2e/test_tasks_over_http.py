"""Tasks from end to end: a served Python file, a login, real HTTP, and each of the three faces.

What stops and kills of the server do to them is in test_tasks_restarted.py.
"""

from __future__ import annotations

import resource
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from programs import Server, until
from task_clients import (
    CORE,
    EXTENSION,
    FACES,
    Core,
    Ended,
    Extension,
    Face,
    House,
    Wasmagent,
    Wire,
    make_house,
    messages,
    text_of,
)

from server.client.mcp_session.incoming_messages import NOT_OFFERED

pytestmark = pytest.mark.slow

ASKING = [
    name for name in FACES if name != "core"
]  # without a session, a client of 2025-11-25 cannot be asked


class Running(NamedTuple):
    house: House
    server: Server


@pytest.fixture(scope="module")
def running(shared_home: Path) -> Iterator[Running]:
    house = make_house(shared_home)
    with house.open() as server:
        yield Running(house, server)


@pytest.fixture
def house(running: Running) -> Iterator[House]:
    yield running.house
    running.house.hang_up()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """One that no other test uses for what it starts."""
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.name)[-60:]


@pytest.fixture(params=FACES)
def face(request: pytest.FixtureRequest, house: House) -> Face:
    return house.face(request.param)


@pytest.fixture(params=ASKING)
def asking(request: pytest.FixtureRequest, house: House) -> Face:
    return house.face(request.param)


@pytest.fixture(params=["extension", "core", "wasmagent"])
def kind(request: pytest.FixtureRequest, house: House) -> Face:
    """Where a session makes no difference."""
    return house.face(request.param)


def await_message(face: Face, task_id: str) -> str:
    return until("a message of the task", lambda: face.look(task_id).message)


def await_questions(face: Face, task_id: str) -> None:
    until("the task to ask", lambda: face.look(task_id).state == "input_required" or None)


# ── what a task is for ───────────────────────────────────────────────────────────────────────────────────────────────


def test_its_progress_is_seen_and_its_result_is_there_for_a_client_that_lost_its_connection(
    house: House, face: Face, name: str
) -> None:
    task_id = face.begin("sleepy", name)
    assert await_message(face, task_id) == f"{name} falls asleep"
    face.wire.drop()
    house.let_go(name)
    assert face.end(task_id) == Ended("completed", f"{name} slept well")
    face.wire.drop()
    assert face.end(task_id) == Ended("completed", f"{name} slept well")
    assert house.said().count(f"{name} begins") == 1


def test_a_client_that_waits_for_the_result_may_lose_its_connection_and_wait_again(
    house: House, name: str
) -> None:
    core = house.face("core in a session")
    task_id = core.begin("sleepy", name)
    core.wire.leave("tasks/result", taskId=task_id)
    house.let_go(name)
    assert core.end(task_id) == Ended("completed", f"{name} slept well")


@pytest.mark.parametrize("session", ["wasmagent in a session", "wasmagent"])
def test_a_call_whose_client_left_before_it_became_a_task_is_found_in_the_list(
    house: House, name: str, session: str
) -> None:
    wasm = house.face(session)
    begins = partial(house.await_note, f"{name} begins")
    wasm.wire.leave("tools/call", begins, name="sleepy", arguments={"name": name})

    def newest() -> str | None:
        tasks = wasm.wire.ask("tasks/list").result["tasks"]
        return next((task["id"] for task in tasks if task["state"] == "running"), None)

    task_id = until("the task", newest)
    house.let_go(name)
    assert wasm.end(task_id) == Ended("completed", f"{name} slept well")


def test_one_question_is_asked_and_answered(house: House, asking: Face, name: str) -> None:
    task_id = asking.begin("curious", name)
    await_questions(asking, task_id)
    asking.answer(task_id, {"colour": {"colour": "red"}})
    assert asking.end(task_id) == Ended("completed", f"{name}: red")


def test_two_questions_at_once_are_answered_one_by_one(house: House, asking: Face, name: str) -> None:
    task_id = asking.begin("curious_twice", name)
    await_questions(asking, task_id)
    if isinstance(asking, Extension):
        assert asking.look(task_id).questions == {"animal", "colour"}
        asking.answer(task_id, {"animal": {"animal": "cat"}, "colour": {"colour": 7}, "other": {}})
        assert asking.look(task_id) == ("input_required", None, {"colour"})
        asking.answer(task_id, {"animal": {"animal": "dog"}, "colour": {"colour": "red"}})
    else:
        asking.answer(task_id, {"animal": {"animal": "cat"}, "colour": {"colour": "red"}})
    assert asking.end(task_id) == Ended("completed", f"{name}: red cat")


def test_who_lost_the_connection_on_which_it_was_asked_is_asked_again(house: House, name: str) -> None:
    core = house.face("core in a session")
    task_id = core.begin("curious", name)
    with core.wire.open("tasks/result", {"taskId": task_id}) as response:
        first = next(messages(response))
        assert first["method"] == "elicitation/create"
    core.wire.drop()
    core.answer(task_id, {"colour": {"colour": "blue"}})
    assert core.end(task_id) == Ended("completed", f"{name}: blue")


def test_where_nobody_can_be_asked_the_tool_is_told_so(house: House, name: str) -> None:
    core = house.face("core")
    ended = core.end(core.begin("curious", name))
    assert ended == Ended("failed", NOT_OFFERED)


def test_a_tool_that_fails_ends_its_task_with_what_it_says(house: House, kind: Face, name: str) -> None:
    ended = kind.end(kind.begin("unlucky", name))
    state = "completed" if isinstance(kind, Extension) else "failed"
    assert ended == Ended(state, f"{name} has no luck")


def test_an_error_of_the_tool_is_the_tasks_error(house: House, kind: Face, name: str) -> None:
    code = None if isinstance(kind, Wasmagent) else 4711
    assert kind.end(kind.begin("refuses", name)) == Ended("failed", f"{name} may not", code)


def test_a_call_becomes_a_task_by_hand(house: House, face: Face, name: str) -> None:
    task_id = face.begin("considers", name)
    house.await_note(f"{name} is a task")
    assert face.look(task_id).state == "working"
    house.let_go(name)
    assert face.end(task_id) == Ended("completed", f"{name}, as a task")


def test_a_call_asks_before_it_becomes_a_task_by_hand(house: House, name: str) -> None:
    extension = house.face("extension")
    name = f"asks {name}"
    asked = extension.wire.call("considers", name).result
    assert (asked["resultType"], set(asked["inputRequests"])) == ("input_required", {"colour"})
    answers = {"colour": {"action": "accept", "content": {"colour": "red"}}}
    made = extension.wire.call(
        "considers", name, requestState=asked["requestState"], inputResponses=answers
    ).result
    assert made["resultType"] == "task"
    house.let_go(f"{name}, red")
    assert extension.end(made["taskId"]) == Ended("completed", f"{name}, red, as a task")


def test_checkpoints_are_passed_without_being_noticed(house: House, kind: Face, name: str) -> None:
    task_id = kind.begin("steps", name)
    house.await_note(f"{name} kept step 0")
    house.let_go(name)
    assert kind.end(task_id) == Ended("completed", f"{name} began at 0")


# ── ending it ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("tool", ["sleepy", "snore"])
def test_cancelling_stops_the_function_at_once(house: House, face: Face, name: str, tool: str) -> None:
    task_id = face.begin(tool, name)
    house.await_note(f"{name} begins")
    face.cancel(task_id).result  # noqa: B018
    assert face.look(task_id).state == "cancelled"
    house.await_note(f"{name} is stopped")
    again = face.cancel(task_id)
    assert again.code == -32602 if isinstance(face, Core) else again.result is not None
    assert face.look(task_id).state == "cancelled"
    assert f"{name} ends" not in house.said()


def test_a_result_of_a_cancelled_task_is_an_error(house: House, name: str) -> None:
    core = house.face("core")
    task_id = core.begin("sleepy", name)
    core.cancel(task_id)
    assert core.end(task_id) == Ended("cancelled", "cancelled by the client", -32603)


def test_its_time_to_live_is_what_the_client_asks_for_and_then_it_is_forgotten(
    house: House, name: str
) -> None:
    core = house.face("core")
    made = core.wire.call("sleepy", name, task={"ttl": 1500}).result["task"]
    assert made["ttl"] == 1500
    house.await_note(f"{name} begins")
    until("the task to be forgotten", lambda: "error" in core.get(made["taskId"]).message or None)
    assert core.get(made["taskId"]).code == -32602
    house.await_note(f"{name} is stopped")
    longer = core.wire.call("quick", name, task={"ttl": 10**12}).result["task"]
    assert longer["ttl"] == 24 * 3600 * 1000


# ── whose it is ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_to_another_login_it_does_not_exist(house: House, face: Face, name: str) -> None:
    task_id = face.begin("sleepy", name)
    stranger = house.face(
        FACES[FACES.index("extension")] if isinstance(face, Extension) else _named(face), client="two"
    )
    assert stranger.get(task_id).code == stranger.unknown
    assert stranger.cancel(task_id).code == stranger.unknown
    if isinstance(face, Extension):
        update = stranger.wire.ask("tasks/update", taskId=task_id, inputResponses={})
        assert update.code == -32602
    if isinstance(face, Core):
        assert stranger.wire.ask("tasks/result", taskId=task_id).code == -32602
    if isinstance(face, Wasmagent):
        assert stranger.wire.ask("tasks/respond", id=task_id, response="x").code == -32010
    assert face.look(task_id).state == "working"
    face.cancel(task_id)


def _named(face: Face) -> str:
    kind = "wasmagent" if isinstance(face, Wasmagent) else "core"
    return kind if face.wire.session is None else f"{kind} in a session"


def test_a_caller_sees_its_own_tasks_page_by_page(house: House, name: str) -> None:
    core = house.face("core", client="pages")
    made = [core.begin("quick", f"{name}-{number}") for number in range(53)]
    first = core.wire.ask("tasks/list").result
    rest = core.wire.ask("tasks/list", cursor=first["nextCursor"]).result
    assert (len(first["tasks"]), "nextCursor" in rest) == (50, False)
    listed = [task["taskId"] for task in first["tasks"] + rest["tasks"]]
    assert sorted(listed) == sorted(made)
    assert core.wire.ask("tasks/list", cursor="nonsense").code == -32602
    assert house.face("core", client="nobody").wire.ask("tasks/list").result == {"tasks": []}


def test_without_logins_whoever_has_the_id_has_the_task_and_nobody_a_list(home: Path) -> None:
    house = make_house(home, auth="none")
    with house.open():
        one, two = Wire(url=house.endpoint("main"), version=CORE), Wire(url=house.endpoint("main"))
        try:
            task_id = Core(one).begin("quick", "anybody")
            assert Extension(two).end(task_id) == Ended("completed", "anybody is done")
            assert Core(one).end(task_id) == Ended("completed", "anybody is done")
            assert one.ask("tasks/list").code == -32601
            assert Extension(two).get(task_id[:-1]).code == -32602
        finally:
            one.close()
            two.close()


# ── who cannot poll ──────────────────────────────────────────────────────────────────────────────────────────────────


def wires_that_cannot_poll(house: House) -> Iterator[Wire]:
    yield house.wire(capabilities={"elicitation": {}})
    for version in ("2024-11-05", "2025-03-26", "2025-06-18"):
        wire = house.wire(version=version, capabilities={})
        wire.begin_session()
        yield wire
    yield house.wire(version=CORE, capabilities={})  # did not ask for a task


@pytest.mark.parametrize("which", range(5))
def test_who_cannot_poll_is_never_handed_a_task_and_waits_with_progress(
    house: House, name: str, which: int
) -> None:
    wire = list(wires_that_cannot_poll(house))[which]
    releases = threading.Thread(target=lambda: (house.await_note(f"{name} begins"), house.let_go(name)))
    releases.start()
    heard = wire.call("sleepy", name, _meta={"progressToken": "p"})
    releases.join()
    assert text_of(heard.result) == f"{name} slept well"
    assert "taskId" not in heard.result
    assert [each["params"]["progress"] for each in heard.before] == [1]
    assert text_of(wire.call("considers", name).result) == f"{name}, while you waited"


def test_who_cannot_poll_is_told_what_a_tool_needs_that_is_always_a_task(house: House, name: str) -> None:
    lacking, *_, core = wires_that_cannot_poll(house)
    refused = lacking.call("must", name)
    assert (refused.status, refused.code) == (400, -32021)
    assert refused.message["error"]["data"] == {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
    assert core.call("must", name).code == -32601
    assert lacking.ask("tasks/get", taskId="task_x").code == -32021
    assert f"{name} begins" not in house.said()


# ── the third face ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_wasmagent_quick_calls_are_answered_and_slow_ones_go_on(house: House, name: str) -> None:
    wasm = house.face("wasmagent in a session")
    assert wasm.wire.call("quick", name).result["content"][0]["text"] == f"{name} is done"
    made = wasm.wire.call("sleepy", name).result
    assert made["isError"] is False
    assert made["_meta"] == {"taskId": made["_meta"]["taskId"]}
    assert text_of(made) == f"sleepy takes longer: continue via tasks/get with id {made['_meta']['taskId']}"
    task = wasm.get(made["_meta"]["taskId"]).result
    assert (task["toolName"], task["state"]) == ("sleepy", "running")
    wasm.cancel(task["id"])
    task = wasm.get(task["id"]).result
    assert (task["state"], task["error"]) == ("failed", "cancelled by host")


def test_wasmagent_a_tool_that_takes_long_is_always_a_task(house: House, name: str) -> None:
    wasm = house.face("wasmagent")
    (listed,) = [tool for tool in wasm.wire.ask("tools/list").result["tools"] if tool["name"] == "must"]
    assert listed["_meta"]["longRunning"] is True
    assert "execution" not in listed  # which is the other dialect's
    house.let_go(name)
    task_id = wasm.begin("must", name)
    assert wasm.end(task_id) == Ended("completed", f"{name} slept well")


def test_wasmagent_what_was_asked_of_a_client_in_vain_is_asked_by_the_task(house: House, name: str) -> None:
    wire = house.wire("wasm", version=CORE, capabilities={"elicitation": {}})
    wire.begin_session()
    with wire.open("tools/call", {"name": "curious", "arguments": {"name": name}}) as response:
        asked, withdrawn, answered = messages(response)
    assert (asked["method"], withdrawn["method"]) == ("elicitation/create", "notifications/cancelled")
    assert withdrawn["params"]["requestId"] == asked["id"]
    wasm, task_id = Wasmagent(wire), answered["result"]["_meta"]["taskId"]
    await_questions(wasm, task_id)
    wasm.answer(task_id, {"colour": {"colour": "red"}})
    assert wasm.end(task_id) == Ended("completed", f"{name}: red")


def test_wasmagent_its_own_methods_and_codes(house: House, name: str) -> None:
    wasm = house.face("wasmagent in a session")
    ask = wasm.wire.ask
    assert ask("tasks/create", name="no such tool", arguments={}).code == -32011
    assert ask("tasks/create", name="quick", arguments={"name": 7}).code == -32602
    for method in ("get", "cancel", "respond"):
        assert ask(f"tasks/{method}", id="t-unknown").code == -32010
    made = ask("tasks/create", name="curious", arguments={"name": name}).result
    assert made["state"] == "pending"
    await_questions(wasm, made["id"])
    task = wasm.get(made["id"]).result
    assert task["elicitation"]["promptId"] == "colour"
    assert task["elicitation"]["prompt"] == "Which colour?"
    assert made["id"] in [each["id"] for each in ask("tasks/list").result["tasks"]]
    assert ask("tasks/respond", id=made["id"], response="green").result["id"] == made["id"]
    assert wasm.end(made["id"]) == Ended("completed", f"{name}: green")
    assert ask("tasks/respond", id=made["id"], response="late").code == -32012
    assert wasm.get(made["id"]).result["version"] > task["version"]


# ── being told ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_subscription_tells_how_its_tasks_stand_and_of_each_change(house: House, name: str) -> None:
    extension, stranger = house.face("extension"), house.face("extension", client="two")
    task_id, other = extension.begin("curious", name), stranger.begin("quick", name)
    await_questions(extension, task_id)
    wanted = {"notifications": {"taskIds": [task_id, other, "task_x"]}}
    with house.wire().open("subscriptions/listen", wanted) as response:
        heard = messages(response)
        acknowledged = next(heard)
        assert acknowledged["params"]["notifications"]["taskIds"] == [task_id]
        first = next(heard)
        assert first["method"] == "notifications/tasks"
        assert (first["params"]["taskId"], first["params"]["status"]) == (task_id, "input_required")
        extension.answer(task_id, {"colour": {"colour": "red"}})
        last = next(each for each in heard if each["params"]["status"] == "completed")
        assert text_of(last["params"]["result"]) == f"{name}: red"


# ── limits, and a store that cannot be written ───────────────────────────────────────────────────────────────────────


def test_beyond_the_cap_what_can_wait_does_and_what_cannot_is_refused(house: House, name: str) -> None:
    extension = house.face("extension", client="greedy")
    made = [extension.begin("sleepy", name) for _ in range(100)]
    refused = extension.wire.call("must", name)
    assert (refused.code, "too many tasks" in refused.message["error"]["message"]) == (1431, True)
    assert text_of(extension.wire.call("quick", name).result) == f"{name} is done"
    assert house.face("core", client="greedy").wire.call("quick", name, task={}).code == 1431
    wasm = house.face("extension", client="two")
    assert wasm.end(wasm.begin("quick", name)).state == "completed"  # another's room is its own
    house.let_go(name)
    assert {extension.end(task_id) for task_id in made} == {Ended("completed", f"{name} slept well")}


@contextmanager
def full_disk(server: Server) -> Generator[None]:
    """The kernel lets the server write into no file any more."""
    pid, before = server.process.pid, resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


def test_while_the_disk_is_full_nothing_is_lost_or_done_twice(
    running: Running, house: House, name: str
) -> None:
    extension, core, wasm = house.face("extension"), house.face("core"), house.wire("wasm", version=CORE)
    before = extension.begin("sleepy", name)
    house.await_note(f"{name} begins")
    with full_disk(running.server):
        house.let_go(name)
        house.await_note(f"{name} ends")
        refused = extension.wire.call("must", f"{name}-late")
        assert refused.code == -32603
        assert "tasks are not available" in refused.message["error"]["message"]
        assert core.wire.call("quick", name, task={}).code == -32603
        assert text_of(extension.wire.call("quick", name).result) == f"{name} is done"
        assert "tasks are not available" in extension.cancel(before).message["error"]["message"]
        assert extension.look(before).state == "working"
        assert text_of(wasm.call("considers", name).result) == f"{name}, while you waited"
    assert extension.end(before) == Ended("completed", f"{name} slept well")
    assert house.said().count(f"{name} begins") == 1
    assert f"{name}-late begins" not in house.said()
