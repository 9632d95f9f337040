"""Agents that are programs: what they say reaches the caller, what they ask comes back, however they do it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent
from typing import Any

import msgspec
import pytest
import trio
from command_pair import ENVIRONMENT, PATIENCE, PYTHON, Log, soon

from server.agents.base.backend import ToolCall, ToolCrashed
from server.agents.command.program_agent import AgentBackend, AgentConfig, problems
from server.mcp.call_failures import BackendError, CannotAsk, NotAnswered, Paused
from server.mcp.call_outlet import LogMessage, Outlet, Progress
from server.mcp.call_questions import Question
from server.mcp.result_encoding import ToolResult
from server.settings.settings_reader import load
from tests.agents.python.python_pair import text_of
from tests.killed_child import alive

PROLOGUE = """
import json, os, sys, time
def say(event, **fields): print(json.dumps({"event": event, **fields}), flush=True)
def hear(): return json.loads(sys.stdin.readline())
call = hear()
"""


@dataclass
class Caller:
    """An outlet that keeps what it is told. `answer` answers questions."""

    answer: Callable[[Mapping[str, Question]], Awaitable[Mapping[str, Mapping[str, Any]]]] | None = None
    becomes_task: bool = False
    events: list[Progress | LogMessage] = field(default_factory=list)
    asked: list[Mapping[str, Question]] = field(default_factory=list)
    kept: list[Any] = field(default_factory=list)

    async def emit(self, event: Progress | LogMessage) -> None:
        await trio.lowlevel.checkpoint()
        self.events.append(event)

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Mapping[str, Any]]:
        self.asked.append(questions)
        assert self.answer is not None, f"nothing was to be asked: {questions}"
        return await self.answer(questions)

    async def checkpoint(self, data: Any) -> None:
        await trio.lowlevel.checkpoint()
        self.kept.append(data)

    async def become_task(self) -> bool:
        return self.becomes_task

    async def close_stream(self) -> None:
        """There is none."""


def says(answer: Any) -> Callable[[Mapping[str, Question]], Awaitable[Mapping[str, Mapping[str, Any]]]]:
    async def give(questions: Mapping[str, Question]) -> Mapping[str, Mapping[str, Any]]:
        if isinstance(answer, Exception):
            raise answer
        return {key: {"action": "accept", "content": answer} for key in questions}

    return give


def agent(script: str, log: Log | None = None, **settings: Any) -> AgentBackend:
    run = [PYTHON, "-I", "-S", "-u", "-c", PROLOGUE + dedent(script)]
    config = msgspec.convert({"run": run, **settings}, AgentConfig)
    assert problems(config) == []
    return AgentBackend(config, environment=ENVIRONMENT, name="main[1]", log=(log or Log()).logger)


async def call(
    backend: AgentBackend, outlet: Outlet | None = None, tool: str = "run_agent", **more: Any
) -> ToolResult:
    fields: dict[str, Any] = {
        "tool": tool, "arguments": {"task": "fly"}, "subject": "user-1", "call_id": "call-7", "wants_progress": True,
        "log_level": "info", **more,
    }  # fmt: skip
    with trio.fail_after(PATIENCE):
        return await backend.call(ToolCall(**fields), outlet or Caller())


async def test_an_agent_of_which_nothing_is_said_takes_a_task_in_words() -> None:
    backend = agent('say("final", result=call["arguments"]["task"] + " to " + call["subject"])')
    (tool,) = backend.tools()
    assert tool.name == "run_agent"
    assert tool.input_schema["required"] == ["task"]
    assert tool.input_schema["additionalProperties"] is False
    assert text_of(await call(backend)) == "fly to user-1"


async def test_an_agent_has_the_tools_that_its_settings_name() -> None:
    tools = [
        {"name": "plan", "input": {"goal": "string"}, "deadline_seconds": 9},
        {"name": "act", "task": "required"},
    ]
    backend = agent('say("final", result=call["tool"])', tool=tools)
    assert [tool.name for tool in backend.tools()] == ["plan", "act"]
    assert (backend.deadline("plan"), backend.deadline("act")) == (9, None)
    assert text_of(await call(backend, tool="act")) == "act"
    (by_hand,) = agent("", tool=[{"name": "t", "task": "by_hand"}]).tools()
    assert by_hand.execution
    assert (by_hand.execution.task_support, by_hand.execution.by_hand) == ("optional", True)


async def test_progress_and_messages_reach_whoever_wants_them() -> None:
    script = """
    say("progress", message="begins")
    say("progress", progress=5, total=10)
    say("progress", message="further", joins=True)
    say("message", data={"n": 1}, level="warning", logger="net")
    say("message", data="hidden", level="debug")
    say("something_new", whatever=1)
    say("final", result="done")
    """
    caller = Caller()
    assert text_of(await call(agent(script), caller)) == "done"
    assert caller.events == [
        Progress(progress=1, message="begins"),
        Progress(progress=5, total=10),
        Progress(progress=6, message="further", joins=True),
        LogMessage(level="warning", data={"n": 1}, logger="net"),
    ]
    deaf = Caller()
    await call(agent(script), deaf, wants_progress=False, log_level=None)
    assert deaf.events == []


@pytest.mark.parametrize(
    ("result", "text", "structured"),
    [
        ('"a word"', "a word", None),
        ('{"degrees": 7}', '{"degrees": 7}', {"degrees": 7}),
        ('{"content": [{"type": "text", "text": "hm"}]}', "hm", None),
        ("[1, 2]", "[1, 2]", None),
    ],
)
async def test_a_final_word_is_a_text_a_result_or_json(result: str, text: str, structured: Any) -> None:
    backend = agent(f'sys.stdout.write(\'{{"event": "final", "result": {result}}}\\n\')')
    answer = await call(backend)
    assert text_of(answer) == text
    assert answer.structured == (msgspec.UNSET if structured is None else structured)


async def test_what_was_promised_is_held() -> None:
    tool = [{"name": "t", "output": {"degrees": "number"}}]
    answer = await call(agent('say("final", result={"degrees": 7})', tool=tool), tool="t")
    assert answer.structured == {"degrees": 7}
    with pytest.raises(BackendError, match="promises"):
        await call(agent('say("final", result={"degrees": "7"})', tool=tool), tool="t")


ASKS = """
say("ask", id="colour", prompt="Which colour?", schema={"colour": ["red", "blue"]})
reply = hear()
say("final", result=json.dumps(reply))
"""


async def test_a_question_is_a_form_and_its_answer_a_line() -> None:
    caller = Caller(says({"colour": "red"}))
    told = json.loads(text_of(await call(agent(ASKS), caller)))
    assert told == {"do": "answer", "id": "colour", "action": "accept", "content": {"colour": "red"}}
    (asked,) = caller.asked
    assert asked["colour"].params["message"] == "Which colour?"
    assert asked["colour"].params["requestedSchema"]["properties"] == {
        "colour": {"type": "string", "enum": ["red", "blue"]}
    }


async def test_a_question_without_a_schema_wants_a_text() -> None:
    script = 'say("ask", id="q", prompt="Why?")\nsay("final", result=hear()["response"])'
    assert text_of(await call(agent(script), Caller(says({"answer": "because"})))) == "because"


@pytest.mark.parametrize(
    ("error", "asked"),
    [(CannotAsk("nobody there", {"elicitation": {}}), False), (NotAnswered("no time"), True)],
)
async def test_an_agent_that_gets_no_answer_may_go_on_without(error: BackendError, asked: bool) -> None:
    told = json.loads(text_of(await call(agent(ASKS), Caller(says(error)))))
    assert told == {"do": "refuse", "id": "colour", "reason": str(error), "asked": asked}


@pytest.mark.parametrize("gives_up", ["sys.exit(1)", 'say("error")', ""])
async def test_one_that_cannot_go_on_without_has_the_caller_told_what_its_client_lacks(gives_up: str) -> None:
    backend = agent(f'say("ask", id="q", prompt="Why?"); hear()\n{gives_up}')
    with pytest.raises(CannotAsk) as raised:
        await call(backend, Caller(says(CannotAsk("nobody there", {"elicitation": {}}))))
    assert raised.value.required == {"elicitation": {}}


async def test_an_agent_that_ends_after_its_question_is_started_again_with_the_answer(tmp_path: Path) -> None:
    script = """
    with open(sys.argv[1], "a") as runs: runs.write("+")
    answers = call.get("answers", {})
    if "one" not in answers:
        say("checkpoint", data={"step": 1})
        say("ask", id="one", prompt="First?"); sys.exit()
    if "two" not in answers:
        say("ask", id="two", prompt="Second?"); sys.exit()
    say("ask", id="one", prompt="First?")
    say("final", result=[call["resumed"], answers["two"]["response"], hear()["response"]])
    """
    runs = tmp_path / "runs"
    backend = agent(script)
    backend._words = (*backend._words, str(runs))  # pyright: ignore[reportPrivateUsage] - what the script is told
    caller = Caller(says({"answer": "yes"}))
    assert text_of(await call(backend, caller)) == '[{"step": 1}, "yes", "yes"]'
    assert (runs.read_text(), len(caller.asked), caller.kept) == ("+++", 2, [{"step": 1}])


async def test_one_that_asks_nothing_new_is_not_started_for_ever() -> None:
    script = 'say("ask", id="one", prompt="First?"); sys.exit()'
    with pytest.raises(ToolCrashed, match="ended without an answer"):
        await call(agent(script), Caller(says({"answer": "yes"})))


async def test_a_call_that_begins_anew_with_the_answer_ends_its_program_meanwhile(tmp_path: Path) -> None:
    script = (
        'open(call["arguments"]["task"], "w").write(str(os.getpid())); say("ask", id="q", prompt="?"); hear()'
    )
    mark = tmp_path / "pid"
    with pytest.raises(Paused):
        await call(agent(script), Caller(says(Paused())), arguments={"task": str(mark)})
    await soon(lambda: not alive(int(mark.read_text())))


async def test_a_checkpoint_is_kept_before_it_is_said_to_be_and_comes_back() -> None:
    script = """
    say("checkpoint", data=[1], id="a")
    say("checkpoint", data=[2])
    kept = hear()
    say("become_task", id="t")
    say("final", result=[call.get("resumed"), kept, hear()])
    """
    caller = Caller(becomes_task=True)
    answer = await call(agent(script), caller, resumed=[0])
    assert json.loads(text_of(answer)) == [
        [0],
        {"do": "kept", "id": "a"},
        {"do": "became", "id": "t", "task": True},
    ]
    assert caller.kept == [[1], [2]]


async def test_while_a_person_thinks_others_have_the_place_and_the_agent_may_go_on() -> None:
    script = """
    if call["arguments"]["task"] == "quick":
        say("final", result="quick")
    else:
        say("ask", id="q", prompt="Why?")
        say("progress", message="meanwhile")
        say("final", result=hear()["response"])
    """
    backend, thought = agent(script, calls_at_once=1), trio.Event()

    async def think(questions: Mapping[str, Question]) -> Mapping[str, Mapping[str, Any]]:
        await thought.wait()
        return {key: {"action": "accept", "content": {"answer": "because"}} for key in questions}

    caller, answers = Caller(think), list[str]()
    async with trio.open_nursery() as nursery:

        async def ask() -> None:
            answers.append(text_of(await call(backend, caller)))

        nursery.start_soon(ask)
        await soon(lambda: caller.events)
        assert text_of(await call(backend, arguments={"task": "quick"})) == "quick"
        thought.set()
    assert answers == ["because"]


async def test_no_more_programs_than_settings_say_wait_for_people() -> None:
    script = 'say("ask", id="q", prompt="Why?")\nsay("final", result=hear()["response"])'
    backend, caller = agent(script, waiting_at_once=1), Caller(says({"answer": "x"}))

    async def never(_: Mapping[str, Question]) -> Mapping[str, Mapping[str, Any]]:
        return await trio.sleep_forever()

    waits = Caller(never)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(call, backend, waits)
        await soon(lambda: waits.asked)
        with pytest.raises(BackendError, match="of its calls wait"):
            await call(backend, caller)
        nursery.cancel_scope.cancel()
    assert text_of(await call(backend, caller)) == "x"


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ('say("error", message="no fuel")', "^no fuel$"),
        ('say("error")', "^the agent failed$"),
        ("sys.exit(3)", r"^the agent ended without an answer \(exit status 3\)$"),
        ("", r"^the agent ended without an answer \(exit status 0\)$"),
        ("os.abort()", r"^the agent ended without an answer \(signal SIGABRT\)$"),
        ("os.close(1); time.sleep(1000)", r"^the agent ended without an answer \(it said no more\)$"),
    ],
)
async def test_an_agent_that_fails_says_so_to_the_model(script: str, error: str) -> None:
    with pytest.raises(ToolCrashed, match=error):
        await call(agent(script))


@pytest.mark.parametrize(
    "script",
    [
        'say("progress", progress="far")',
        'say("ask", id="q")',
        'say("ask", id="", prompt="?")',
        'say("final_answer", data={})',
        'say("message", level="loud", data=1)',
        'say("ask", id="q", prompt="?"); say("ask", id="q", prompt="?")',
        'for n in range(20): say("ask", id=str(n), prompt="?")',
        'print("x" * 2000000)',
    ],
)
async def test_an_agent_that_makes_no_sense_is_ended_and_its_owner_told_why(script: str) -> None:
    async def never(_: Mapping[str, Question]) -> Mapping[str, Mapping[str, Any]]:
        return await trio.sleep_forever()

    log = Log()
    with pytest.raises(BackendError, match="cannot be understood"):
        await call(agent(f"{script}\ntime.sleep(1000)", log), Caller(never))
    assert len(log.of("agent.broke_protocol")) == 1


async def test_what_it_prints_besides_is_for_the_log() -> None:
    log = Log()
    script = 'print("loading…"); print("[1]"); print(); sys.stderr.write("hm\\n"); say("final", result="x")'
    assert text_of(await call(agent(script, log))) == "x"
    assert sorted(event["line"] for event in log.of("agent.said")) == ["[1]", "hm", "loading…"]


async def test_one_that_lingers_after_its_final_word_is_ended(tmp_path: Path) -> None:
    script = 'open(call["arguments"]["task"], "w").write(str(os.getpid())); say("final", result="x"); time.sleep(1000)'
    mark = tmp_path / "pid"
    assert text_of(await call(agent(script), arguments={"task": str(mark)})) == "x"
    assert not alive(int(mark.read_text()))


async def test_an_agent_of_wasmagents_is_understood() -> None:
    script = """
    def emit(channel, event, **data):
        print(json.dumps({"traceId": "t", "parentTraceId": None, "timestampMs": 1, "channel": channel, "event": event, "data": data}))
    emit("text", "run_start", task="fly")
    emit("thinking", "step_start", step=1)
    emit("thinking", "thinking_delta", delta="hm", step=1)
    emit("tool", "tool_call", toolName="search", args={}, callId="1", batchId="1", batchSize=1, stepIndex=1)
    if not call.get("answers"):
        emit("status", "await_human_input", promptId="p1", prompt="Where to?", step=1)
        sys.exit()
    emit("text", "final_answer", answer="to " + call["answers"]["p1"]["response"])
    """
    caller = Caller(says({"answer": "Rome"}))
    assert text_of(await call(agent(script), caller)) == "to Rome"
    messages = [event.message for event in caller.events if isinstance(event, Progress)]
    assert messages == ["hm", "search"] * 2
    named = [(event.name, event.data) for event in caller.events if isinstance(event, Progress)][:2]
    assert [name for name, _ in named] == ["thinking_delta", "tool_call"]
    assert named[0][1] == {"delta": "hm", "step": 1} and named[1][1]["toolName"] == "search"
    fails = 'print(json.dumps({"channel": "text", "event": "error", "data": {"error": "no model"}}))'
    with pytest.raises(ToolCrashed, match="no model"):
        await call(agent(fails))


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({}, "run: is missing"),
        ({"run": ["a\0"]}, "run: must not"),
        ({"run": ["a"], "tool": [{}]}, "tool[1].name: is missing"),
        ({"run": ["a"], "tool": [{"name": "a", "input": {"a": "b"}}]}, "tool[1].input: a: is none of"),
        ({"run": ["a"], "environment": ["A B"]}, "environment"),
    ],
)
def test_what_is_wrong_with_its_settings_is_said_by_its_key(settings: dict[str, Any], fault: str) -> None:
    (found,) = problems(msgspec.convert(settings, AgentConfig))
    assert ": ".join(found).startswith(fault)


async def test_the_example_of_its_page_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[3] / "docs" / "agents" / "agent.md").read_text("utf-8")
    (tmp_path / "painter.py").write_text(page.partition("```python\n")[2].partition("```")[0], "utf-8")
    (tmp_path / "ostiary.toml").write_text(page.partition("```toml\n")[2].partition("```")[0], "utf-8")
    (settings,) = load(tmp_path / "ostiary.toml", {}).servers[0].agents
    assert isinstance(settings, AgentConfig)
    monkeypatch.chdir(tmp_path)
    backend = AgentBackend(settings, environment=ENVIRONMENT, name="main[1]", log=Log().logger)
    caller = Caller(says({"colour": "blue"}))
    assert (
        text_of(await call(backend, caller, tool="paint", arguments={"what": "the door"}))
        == "the door is blue"
    )
    assert [event.message for event in caller.events if isinstance(event, Progress)] == ["mixing", "painting"]
    again = Caller()
    answer = await call(
        backend, again, tool="paint", arguments={"what": "the door"}, resumed={"colour": "blue"}
    )
    assert (text_of(answer), again.asked) == ("the door is blue", [])
