"""The client's side of a call that pauses for answers (2026-07-28, basic/patterns/mrtr)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import trio
from connecting import Connect
from fake_server import TOOLS, FakeServer, Response, Seen, as_json

from server.client.client_errors import BadAnswer, CallRefused
from server.client.mcp_client import MOST
from server.client.server_info import ServerInfo
from server.client.server_questions import FormQuestion, Mode, Question, accepted

pytestmark = pytest.mark.usefixtures("in_time")

ECHO = TOOLS[0]
WHO: dict[str, Any] = {
    "method": "elicitation/create",
    "params": {
        "message": "who?",
        "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
    },
}
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"


class Person:
    """Gives every form the same name, and remembers what it was asked."""

    def __init__(self, *modes: Mode) -> None:
        self.modes = frozenset[Mode](modes or ("form",))
        self.asked: list[Mapping[str, Question]] = []
        self.by: list[str] = []

    async def __call__(
        self, server: ServerInfo, questions: Mapping[str, Question], /
    ) -> Mapping[str, Mapping[str, Any]]:
        self.asked.append(questions)
        self.by.append(server.name)
        return {key: accepted({"name": f"Ada {len(self.asked)}"}) for key in questions}


def script(fake: FakeServer, *results: dict[str, Any]) -> list[Seen]:
    """Answers one `tools/call` after the other; the last result again and again. The calls, as they come in."""
    calls: list[Seen] = []

    async def answer(request: Seen) -> Response:
        if request.message.get("method") != "tools/call":
            return await fake.usual(request)
        calls.append(request)
        result = results[min(len(calls), len(results)) - 1]
        return as_json({"jsonrpc": "2.0", "id": request.message["id"], "result": result})

    fake.overrides["/mcp"] = answer
    return calls


def paused(state: str | None = None, **requests: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"resultType": "input_required"}
    if requests:
        found["inputRequests"] = requests
    return found if state is None else {**found, "requestState": state}


DONE = {"resultType": "complete", "content": [{"type": "text", "text": "done"}]}


async def test_answers_go_with_the_same_request_and_only_the_last_state(
    fake: FakeServer, connect: Connect
) -> None:
    mcp = await connect()
    state = 'opaque\n"é"\u2028 ='
    calls = script(fake, paused(state, a=WHO, b=WHO), paused(c=WHO), DONE)
    person = Person()
    result = await mcp.call(ECHO, {"text": "hello"}, seconds=60, answerer=person)
    assert result["content"][0]["text"] == "done"
    first, second, third = (request.message["params"] for request in calls)
    assert len({request.message["id"] for request in calls}) == 3
    assert first.keys() == {"name", "arguments", "_meta"}
    assert second["requestState"] == state
    assert second["inputResponses"] == {
        "a": {"action": "accept", "content": {"name": "Ada 1"}},
        "b": {"action": "accept", "content": {"name": "Ada 1"}},
    }
    assert third.keys() == {"name", "arguments", "_meta", "inputResponses"}
    assert third["inputResponses"] == {"c": {"action": "accept", "content": {"name": "Ada 2"}}}
    assert all(sent["name"] == "echo" and sent["arguments"] == {"text": "hello"} for sent in (second, third))
    assert all(request.headers["mcp-name"] == "echo" for request in calls)
    assert person.by == ["fake", "fake"]
    assert [list(questions) for questions in person.asked] == [["a", "b"], ["c"]]
    question = person.asked[0]["a"]
    assert isinstance(question, FormQuestion)
    assert (question.message, [field.name for field in question.fields]) == ("who?", ["name"])


@pytest.mark.parametrize(
    ("answerer", "declared"),
    [
        (None, {}),
        (Person("form"), {"elicitation": {"form": {}}}),
        (Person("form", "url"), {"elicitation": {"form": {}, "url": {}}}),
    ],
)
async def test_what_can_be_answered_is_declared_for_calls_alone(
    fake: FakeServer, connect: Connect, answerer: Person | None, declared: dict[str, Any]
) -> None:
    mcp = await connect()
    await mcp.tools()
    calls = script(fake, DONE)
    await mcp.call(ECHO, {"text": "hello"}, seconds=60, answerer=answerer)
    assert [call.message["params"]["_meta"][CAPABILITIES] for call in calls] == [declared]
    others = [
        request.message
        for request in fake.seen
        if request.message.get("method") in ("server/discover", "tools/list")
    ]
    assert len(others) == 3
    assert all(message["params"]["_meta"][CAPABILITIES] == {} for message in others)


async def test_a_person_reads_the_keys_of_the_server_also_where_one_stands_for_two_questions(
    fake: FakeServer, connect: Connect
) -> None:
    mcp = await connect()
    other = {**WHO, "params": {**WHO["params"], "message": "and who else?"}}
    script(fake, paused(a=WHO), paused(a=other), DONE)
    person = Person()
    await mcp.call(ECHO, {"text": "hello"}, seconds=60, answerer=person)
    assert [list(questions) for questions in person.asked] == [["a"], ["a"]]


async def test_an_older_server_is_told_of_no_capability_and_gets_no_answer(
    fake: FakeServer, connect: Connect
) -> None:
    fake.era = "legacy"
    mcp = await connect()
    script(fake, paused("s", a=WHO))
    person = Person()
    with pytest.raises(BadAnswer, match="unknown kind"):
        await mcp.call(ECHO, {"text": "hello"}, seconds=60, answerer=person)
    (opening,) = (request.message for request in fake.seen if request.message.get("method") == "initialize")
    assert opening["params"]["capabilities"] == {}
    assert person.asked == []


async def test_a_state_without_a_question_is_sent_back_and_nobody_is_asked(
    fake: FakeServer, connect: Connect
) -> None:
    mcp = await connect()
    calls = script(fake, paused("later"), DONE)
    await mcp.call(ECHO, {"text": "hello"}, seconds=60)
    assert calls[1].message["params"]["requestState"] == "later"
    assert "inputResponses" not in calls[1].message["params"]


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (paused(), "asks no question"),
        ({"resultType": "input_required", "requestState": 7}, "result that is none"),
        (paused("s", a=WHO), "nobody was there"),
        ({"resultType": "later"}, "unknown kind"),
    ],
)
async def test_a_question_that_nobody_can_answer_ends_the_call(
    fake: FakeServer, connect: Connect, result: dict[str, Any], said: str
) -> None:
    mcp = await connect()
    calls = script(fake, result)
    with pytest.raises(BadAnswer, match=said):
        await mcp.call(ECHO, {"text": "hello"}, seconds=60)
    assert len(calls) == 1


async def test_questions_without_end_are_cut_off(fake: FakeServer, connect: Connect) -> None:
    mcp = await connect()
    calls = script(fake, paused("s", a=WHO))
    with pytest.raises(BadAnswer, match=f"more than {MOST.rounds} times"):
        await mcp.call(ECHO, {"text": "hello"}, seconds=60, answerer=Person())
    assert len(calls) == MOST.rounds + 1


async def test_the_time_that_a_person_takes_is_not_the_servers(fake: FakeServer, connect: Connect) -> None:
    mcp = await connect()
    script(fake, paused("s", a=WHO), DONE)
    deadlines: list[float] = []

    class Watched(Person):
        async def __call__(
            self, server: ServerInfo, questions: Mapping[str, Question], /
        ) -> Mapping[str, Mapping[str, Any]]:
            deadlines.append(trio.current_effective_deadline())
            return await super().__call__(server, questions)

    await mcp.call(ECHO, {"text": "hello"}, seconds=5, answerer=Watched())
    assert deadlines == [trio.current_effective_deadline()]  # the test's own


async def test_a_refusal_for_want_of_somebody_to_ask_says_where_there_is_one(
    fake: FakeServer, connect: Connect
) -> None:
    mcp = await connect()

    async def refuse(request: Seen) -> Response:
        data = {"requiredCapabilities": {"elicitation": {"form": {}}}}
        error = {"code": -32021, "message": "not declared", "data": data}
        return as_json({"jsonrpc": "2.0", "id": request.message["id"], "error": error}, 400)

    fake.overrides["/mcp"] = refuse
    with pytest.raises(CallRefused, match="not declared") as refused:
        await mcp.call(ECHO, {"text": "hello"}, seconds=60)
    assert "on a terminal" in (refused.value.hint or "")
