"""Calls of a Python agent, and what they may say and ask on their way. The agent's side is a script that speaks the lines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from server.agents.base.backend import (
    BadArguments,
    Completing,
    NoSuchResource,
    PromptGet,
    ProtocolFailure,
    ResourceRead,
    ToolCall,
    ToolCrashed,
)
from server.agents.base.catalog import Catalog, Source
from server.mcp.call_failures import BackendError, CannotAsk, Paused
from server.mcp.call_outlet import LogMessage, Progress
from server.mcp.call_questions import Question
from server.mcp.terms import CallTerms
from tests.agents.python.python_pair import PARROT, Caller, at_work, soon, text_of, tool_call

# Says what it was told, word for word.
MIRROR = """
ready()
import json
while True:
    call = hear()
    say("final", id=call["id"], result=text(json.dumps(call)))
"""
ELICIT = '{"name": {"method": "elicitation/create", "params": {"message": "Who?"}}}'


async def test_a_call_goes_to_the_process_and_its_answer_comes_back(tmp_path: Path) -> None:
    async with at_work(tmp_path, PARROT) as work:
        assert [tool.name for tool in work.backend.tools()] == ["say"]
        assert await work.say(word="hello") == "hello"
        assert work.log.of("agent.ended") == []


async def test_the_process_is_told_who_calls_and_what_that_caller_can_do(tmp_path: Path) -> None:
    async with at_work(tmp_path, MIRROR) as work:
        call = ToolCall(
            tool="say",
            arguments={"word": "é\n"},
            subject="user-1",
            call_id="call-7",
            can=frozenset({"roots", "elicitation"}),
            resumed={"step": 2},
            wants_progress=True,
            log_level="notice",
        )
        told = json.loads(text_of(await work.backend.call(call, Caller())))
        assert told.pop("id") >= 1
        assert told == {
            "do": "call",
            "kind": "tool",
            "name": "say",
            "arguments": {"word": "é\n"},
            "context": {
                "subject": "user-1",
                "call_id": "call-7",
                "can": ["elicitation", "roots"],
                "resumed": {"step": 2},
                "progress": True,
                "level": "notice",
            },
        }


async def test_a_result_may_be_structured_an_error_and_carry_meta(tmp_path: Path) -> None:
    script = """
        ready()
        call = hear()
        say("final", id=call["id"], result=text("no", structuredContent=[1], isError=True, _meta={"a": 1}))
        hear()
    """
    async with at_work(tmp_path, script) as work:
        answer = await work.call()
        assert (answer.structured, answer.is_error, answer.meta) == ([1], True, {"a": 1})


async def test_progress_and_messages_come_before_the_answer_and_in_order(tmp_path: Path) -> None:
    script = """
        ready()
        call = hear()
        say("progress", id=call["id"], progress=1, total=2, message="half")
        say("message", id=call["id"], level="info", data={"rows": 3}, logger="db")
        say("progress", id=call["id"], progress=2.0)
        say("final", id=call["id"], result=text("done"))
        hear()
    """
    async with at_work(tmp_path, script) as work:
        caller = Caller()
        assert await work.say(outlet=caller) == "done"
        assert caller.events == [
            Progress(progress=1, total=2, message="half"),
            LogMessage(level="info", data={"rows": 3}, logger="db"),
            Progress(progress=2),
        ]


async def test_many_calls_run_at_once_and_are_answered_in_any_order(tmp_path: Path) -> None:
    script = """
        ready()
        calls = [hear() for _ in range(20)]
        for call in reversed(calls):
            say("final", id=call["id"], result=text(call["arguments"]["word"]))
        hear()
    """
    async with at_work(tmp_path, script) as work:
        answers: dict[str, str] = {}

        async def one(word: str) -> None:
            answers[word] = await work.say(word=word)

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(one, str(number))
        assert answers == {str(number): str(number) for number in range(20)}


# ── asking ──


async def test_a_question_is_put_to_the_caller_and_the_answer_goes_back(tmp_path: Path) -> None:
    script = f"""
        import json
        ready()
        call = hear()
        say("ask", id=call["id"], ask=1, questions={ELICIT})
        answer = hear()
        say("final", id=call["id"], result=text(json.dumps(answer)))
        hear()
    """

    async def answer(_: Mapping[str, Question]) -> Mapping[str, Mapping[str, Any]]:
        return {"name": {"action": "accept", "content": {"name": "Ada"}}}

    async with at_work(tmp_path, script) as work:
        caller = Caller(answer)
        told = json.loads(await work.say(outlet=caller))
        assert told["do"] == "answer"
        assert (told["ask"], told["answers"]["name"]["content"]) == (1, {"name": "Ada"})
        assert caller.asked == [{"name": Question(method="elicitation/create", params={"message": "Who?"})}]


async def test_who_cannot_be_asked_is_told_to_the_function_and_else_to_the_caller(tmp_path: Path) -> None:
    script = f"""
        ready()
        while True:
            call = hear()
            say("ask", id=call["id"], ask=1, questions={ELICIT})
            refused = hear()
            if call["arguments"].get("copes"):
                say("final", id=call["id"], result=text(refused["do"] + ": " + refused["reason"]))
            else:
                say("error", id=call["id"], kind="refused", message="CannotAsk")
    """
    given = CannotAsk("this client shows no forms", {"elicitation": {}})

    async def answer(_: Mapping[str, Question]) -> Mapping[str, Mapping[str, Any]]:
        raise given

    async with at_work(tmp_path, script) as work:
        assert await work.say(outlet=Caller(answer), copes=True) == "refuse: this client shows no forms"
        with pytest.raises(CannotAsk) as raised:
            await work.call(outlet=Caller(answer))
        assert raised.value is given


async def test_a_call_that_is_paused_is_cancelled_in_the_process_and_the_pause_goes_through(
    tmp_path: Path,
) -> None:
    script = f"""
        ready()
        first = hear()
        say("ask", id=first["id"], ask=1, questions={ELICIT})
        assert hear() == {{"do": "cancel", "id": first["id"]}}
        say("error", id=first["id"], kind="cancelled")
        again = hear()
        say("final", id=again["id"], result=text("cancelled well"))
        hear()
    """

    async def pause(_: Mapping[str, Question]) -> Mapping[str, Mapping[str, Any]]:
        raise Paused

    async with at_work(tmp_path, script) as work:
        with pytest.raises(Paused):
            await work.call(outlet=Caller(pause))
        assert await work.say() == "cancelled well"


async def test_a_function_may_end_while_its_question_is_open(tmp_path: Path) -> None:
    script = f"""
        ready()
        call = hear()
        say("ask", id=call["id"], ask=1, questions={ELICIT})
        say("final", id=call["id"], result=text("never mind"))
        hear()
    """
    left = trio.Event()

    async def never(_: Mapping[str, Question]) -> Mapping[str, Mapping[str, Any]]:
        try:
            await trio.sleep_forever()
        finally:
            left.set()
        raise AssertionError

    async with at_work(tmp_path, script) as work:
        assert await work.say(outlet=Caller(never)) == "never mind"
        assert left.is_set()


async def test_checkpoints_tasks_and_closed_streams_reach_the_caller(tmp_path: Path) -> None:
    script = """
        ready()
        call = hear()
        say("close_stream", id=call["id"])
        say("checkpoint", id=call["id"], ask=1, data={"step": 1})
        done = hear()
        say("become_task", id=call["id"], ask=2)
        became = hear()
        said = f"{done['do']} {done['ask']}, {became['do']} {became['ask']} {became['task']}"
        say("final", id=call["id"], result=text(said))
        hear()
    """
    async with at_work(tmp_path, script) as work:
        caller = Caller(becomes_task=True)
        assert await work.say(outlet=caller) == "done 1, became 2 True"
        assert (caller.kept, caller.closed) == ([{"step": 1}], 1)


# ── ends that are not answers ──


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ({"kind": "failed", "message": "ValueError: no"}, ToolCrashed),
        ({"kind": "not_found"}, NoSuchResource),
        ({"kind": "bad_arguments"}, BadArguments),
        ({"kind": "refused"}, CannotAsk),
        ({"kind": "cancelled"}, BackendError),
        ({"kind": "protocol", "message": "no", "code": 1404, "data": {"at": 1}}, ProtocolFailure),
    ],
)
async def test_each_kind_of_error_is_raised_as_what_it_is(
    tmp_path: Path, error: dict[str, Any], expected: type[BackendError]
) -> None:
    script = f"""
        ready()
        call = hear()
        say("error", id=call["id"], **{error})
        hear()
    """
    async with at_work(tmp_path, script) as work:
        with pytest.raises(BackendError) as raised:
            await work.call()
        assert type(raised.value) is expected
        assert str(raised.value).startswith(error.get("message", ""))
        if isinstance(raised.value, ProtocolFailure):
            assert (raised.value.code, raised.value.data) == (1404, {"at": 1})


@pytest.mark.parametrize(
    "result", ["{'content': 'text'}", "{}", "None", "{'content': [{'type': 'hologram'}]}"]
)
async def test_a_result_that_is_none_fails_its_call_and_no_other(tmp_path: Path, result: str) -> None:
    script = f"""
        ready()
        call = hear()
        say("final", id=call["id"], result={result})
        call = hear()
        say("final", id=call["id"], result=text("next"))
        hear()
    """
    async with at_work(tmp_path, script) as work:
        with pytest.raises(BackendError, match="a result that is none"):
            await work.call()
        assert await work.say() == "next"


async def test_who_is_cancelled_does_not_wait_and_the_place_stays_taken_until_the_function_ends(
    tmp_path: Path,
) -> None:
    script = """
        ready()
        first = hear()
        say("updated", uri="test://begun")
        assert hear()["do"] == "cancel"
        say("updated", uri="test://cancelled")
        wait_for_file = options.file + ".go"
        import os, time
        while not os.path.exists(wait_for_file):
            time.sleep(0.01)
        say("final", id=first["id"], result=text("too late"))
        second = hear()
        say("final", id=second["id"], result=text("second"))
        hear()
    """
    async with at_work(tmp_path, script, calls_at_once=1) as work:
        with trio.CancelScope() as scope:
            work.nursery.start_soon(partial(stop_when, scope, lambda: "test://begun" in work.updated))
            await work.call()
        assert scope.cancelled_caught
        answers: list[str] = []

        async def second() -> None:
            answers.append(await work.say())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(second)
            await soon(lambda: "test://cancelled" in work.updated)
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert answers == []
            Path(f"{work.file}.go").touch()
        assert answers == ["second"]


async def stop_when(scope: trio.CancelScope, happened: Any) -> None:
    await soon(happened)
    scope.cancel()


async def test_tools_say_how_long_their_calls_may_take_and_who_gives_up_cancels_them(tmp_path: Path) -> None:
    script = """
        ready(tool("say"), tool("quick", deadlineSeconds=0.05))
        call = hear()
        say("updated", uri="test://begun")
        assert hear()["do"] == "cancel"
        say("error", id=call["id"], kind="cancelled")
        call = hear()
        say("final", id=call["id"], result=text("next"))
        hear()
    """
    async with at_work(tmp_path, script) as work:
        catalog = Catalog([Source(name="agent", backend=work.backend, terms=CallTerms(deadline_seconds=60))])
        seconds = {entry.tool.name: entry.terms.deadline_seconds for entry in catalog.entries()}
        assert seconds == {"say": 60, "quick": 0.05}
        with trio.CancelScope() as scope:
            work.nursery.start_soon(partial(stop_when, scope, lambda: "test://begun" in work.updated))
            await work.call("quick")
        assert await work.say() == "next"


async def test_a_caller_who_does_not_listen_delays_no_other_and_loses_old_progress_only(
    tmp_path: Path,
) -> None:
    script = """
        ready()
        slow, quick = sorted((hear(), hear()), key=lambda call: call["arguments"]["word"], reverse=True)
        for number in range(5000):
            say("progress", id=slow["id"], progress=number, message="x" * 200)
        say("final", id=slow["id"], result=text("slow"))
        say("final", id=quick["id"], result=text("quick"))
        hear()
    """
    listens = trio.Event()

    class Deaf(Caller):
        async def emit(self, event: Progress | LogMessage) -> None:
            await listens.wait()
            await super().emit(event)

    deaf, answers = Deaf(), list[str]()

    async with at_work(tmp_path, script) as work:

        async def slow() -> None:
            answers.append(await work.say(outlet=deaf, word="slow"))

        work.nursery.start_soon(slow)
        assert await work.say(word="quick") == "quick"
        assert answers == []
        listens.set()
        await soon(lambda: answers)
        assert answers == ["slow"]
        assert len(deaf.events) < 100
        last = deaf.events[-1]
        assert isinstance(last, Progress) and last.progress == 4999


async def test_a_call_that_asks_for_too_much_at_once_ends_the_process_and_not_the_server(
    tmp_path: Path,
) -> None:
    script = f"""
        ready()
        call = hear()
        for number in range(1000):
            say("ask", id=call["id"], ask=number, questions={ELICIT})
        hear()
    """

    async def never(_: Mapping[str, Question]) -> Mapping[str, Mapping[str, Any]]:
        await trio.sleep_forever()
        raise AssertionError

    async with at_work(tmp_path, script) as work:
        with pytest.raises(BackendError, match="not in the protocol"):
            await work.call(outlet=Caller(never))


async def test_arguments_that_do_not_fit_into_a_line_are_refused_and_harm_nobody(tmp_path: Path) -> None:
    async with at_work(tmp_path, PARROT, calls_at_once=1) as work:
        with pytest.raises(BackendError, match="more than"):
            await work.call(word="x" * 9_000_000)
        assert await work.say(word="next") == "next"


# ── the library ──

LIBRARY = """
say("ready", protocol=1, python="3.11.0", catalog={
    "resources": [{"uri": "test://a", "name": "a", "mimeType": "text/plain"}],
    "resourceTemplates": [{"uriTemplate": "test://{id}", "name": "each"}],
    "prompts": [{"name": "p", "arguments": [{"name": "a", "required": True}]}],
    "completes": [["prompt", "p"], ["resource", "test://{id}"]],
})
import json
while True:
    call = hear()
    said = json.dumps({name: value for name, value in call.items() if name not in ("id", "do", "context")})
    results = {
        "read": {"contents": [{"uri": "test://1", "text": said}]},
        "prompt": {"description": "d", "messages": [{"role": "user", "content": text(said)["content"][0]}]},
        "complete": {"values": [said] + ["x"] * 150, "total": 151},
    }
    say("final", id=call["id"], result=results[call["kind"]])
"""


async def test_resources_prompts_and_completions_are_listed_read_and_completed(tmp_path: Path) -> None:
    who: dict[str, Any] = {"subject": "user-1", "call_id": "call-7"}
    async with at_work(tmp_path, LIBRARY) as work:
        backend = work.backend
        assert [each.uri for each in backend.resources()] == ["test://a"]
        assert [each.uri_template for each in backend.resource_templates()] == ["test://{id}"]
        assert [each.name for each in backend.prompts()] == ["p"]
        assert backend.completes() == {("prompt", "p"), ("resource", "test://{id}")}
        reading = ResourceRead(uri="test://1", template="test://{id}", arguments={"id": "1"}, **who)
        (contents,) = await backend.read(reading, Caller())
        assert isinstance(contents.text, str)
        assert json.loads(contents.text) == {
            "kind": "read", "uri": "test://1", "template": "test://{id}", "arguments": {"id": "1"},
        }  # fmt: skip
        prompt = await backend.get_prompt(PromptGet(prompt="p", arguments={"a": "x"}, **who), Caller())
        assert prompt.description == "d"
        assert [message.role for message in prompt.messages] == ["user"]
        asked = Completing(ref="prompt", name="p", argument="a", value="pa", known={"b": "y"}, **who)
        completion = await backend.complete(asked)
        assert json.loads(completion.values[0]) == {
            "kind": "complete", "ref": "prompt", "name": "p", "argument": "a", "value": "pa", "known": {"b": "y"},
        }  # fmt: skip
        assert (len(completion.values), completion.total, completion.has_more) == (100, 151, True)


async def test_contents_with_both_text_and_blob_are_no_contents(tmp_path: Path) -> None:
    script = """
        ready()
        call = hear()
        say("final", id=call["id"], result={"contents": [{"uri": "test://1", "text": "", "blob": ""}]})
        hear()
    """
    async with at_work(tmp_path, script) as work:
        reading = ResourceRead(uri="test://1", subject="user-1", call_id="call-7")
        with pytest.raises(BackendError, match="one of text and blob"):
            await work.backend.read(reading, Caller())


async def test_before_it_runs_it_offers_nothing_and_a_call_waits_for_it(tmp_path: Path) -> None:
    from tests.agents.python.python_pair import DOUBLE, Log, make_backend

    file = tmp_path / "agent.py"
    file.write_text("ready()", "utf-8")
    backend = make_backend(file, Log(), shim=DOUBLE)
    assert backend.tools() == ()
    assert backend.completes() == frozenset()
    with trio.move_on_after(0.1) as scope:
        await backend.call(tool_call(), Caller())
    assert scope.cancelled_caught
