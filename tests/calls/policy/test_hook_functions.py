"""Hooks (server/calls/policy/hooks.py): which functions of a Python file can be asked, what the others lack, and what is an answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
import structlog
import trio

from server.agents.base.backend import Announce
from server.agents.command import program_run
from server.calls.policy.hooks import CommandHooks, HookCaller, HookFailed, HookSaid, PythonHooks, read_answer
from server.settings.rule_settings import HookProgram

ADA = HookCaller(subject="ada", sharer="ada", call_id="c")
HOOKS = """
def look(call: dict) -> dict:
    return {"decision": "proceed", "reason": call["tool"]}

def nothing() -> dict:
    return {}

def two(call: dict, more: str) -> dict:
    return {}
"""


async def test_a_function_of_one_argument_is_asked_and_of_others_it_is_said_what_they_lack(
    tmp_path: Path,
) -> None:
    file = tmp_path / "hooks.py"
    file.write_text(HOOKS, "utf-8")
    hooks = PythonHooks(
        HookProgram(file=str(file)), {"PATH": "/usr/bin:/bin"}, name="main", log=structlog.get_logger()
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(hooks.run, Announce(lists=lambda: None, resource=lambda _: None))
        assert hooks.lacks("look") is None
        assert b'"search"' in await hooks.ask("look", {"tool": "search"}, ADA)
        for name in ("nothing", "two"):
            assert "one argument" in (hooks.lacks(name) or "")
            with pytest.raises(HookFailed, match="one argument"):
                await hooks.ask(name, {}, ADA)
        assert "no function" in (hooks.lacks("gone") or "")
        nursery.cancel_scope.cancel()
    await hooks.aclose()


async def test_a_program_may_say_as_much_as_a_tool_may_and_fails_with_its_status(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends = [program_run.ProgramEnd(0, b"{}", ()), program_run.ProgramEnd(1, b"{}", ())]
    bounds: list[int] = []

    async def run_to_end(start: object, given: bytes, most: int) -> program_run.ProgramEnd:
        assert given == b'{"tool":"search"}\n'
        bounds.append(most)
        return ends.pop(0)

    monkeypatch.setattr(program_run, "run_to_end", run_to_end)
    hooks = CommandHooks(
        HookProgram(run=("true",)), {"PATH": "/usr/bin:/bin"}, name="main", log=structlog.get_logger()
    )
    assert await hooks.ask("", {"tool": "search"}, ADA) == b"{}"
    with pytest.raises(HookFailed, match="status 1"):
        await hooks.ask("", {"tool": "search"}, ADA)
    assert bounds == [8 * 1024 * 1024] * 2
    assert not hooks.busy


RESULT = b'{"content": []}'


@pytest.mark.parametrize(
    ("said", "place", "found"),
    [
        (b'{"decision": "proceed"}', "before", HookSaid(decision="proceed")),
        (b'{"decision": "proceed", "arguments": {}}', "before", HookSaid(decision="proceed", arguments={})),
        (b'{"decision": "proceed", "arguments": {}}', "after", None),
        (b'{"decision": "deny", "arguments": {}}', "before", None),
        (b'{"decision": "deny", "reason": "no"}', "after", HookSaid(decision="deny", reason="no")),
        (
            b'{"decision": "deny", "reason": "%s"}' % (b"x" * 2_001),
            "after",
            HookSaid(decision="deny", reason="x" * 2_000),
        ),
        (b'{"decision": "substitute"}', "after", None),
        (b'{"decision": "substitute", "result": %s}' % RESULT, "before", "substitute"),
        (b'{"decision": "substitute", "result": %s}' % RESULT, "after", "substitute"),
        (b'{"decision": "substitute", "result": 1}', "after", None),
        (b'{"decision": "deny", "result": %s}' % RESULT, "after", None),
        (b'{"decision": "proceed", "more": 1}', "before", None),
        (b'{"decision": "allow"}', "before", None),
        (b"proceed", "before", None),
    ],
)
def test_what_a_hook_says_is_an_answer_or_has_failed(
    said: bytes, place: Literal["before", "after"], found: Any
) -> None:
    if found is None:
        with pytest.raises(HookFailed):
            read_answer(said, place)
        return
    answer = read_answer(said, place)
    if found == "substitute":
        assert answer.result is not None
    else:
        assert answer == found
