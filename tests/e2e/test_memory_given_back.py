"""What has ended is gone at once, however it ended, and not when somebody looks for cycles: arguments and results may be large, and
who sends many of them must not fill the server's memory."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
from programs import WAIT_SECONDS, Program, Server, until
from task_clients import ABLE, CORE, OVER, Heard, Wire, messages

SERVER = (sys.executable, "-P", str(Path(__file__).with_name("uncollected_server.py")))
AGENT = """
import asyncio
from ostiary import Context, ProtocolError, ToolFailure, tool

FORM = {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}

@tool(task="optional")
async def fine(text: str) -> str:
    return text

@tool(task="optional")
async def unlucky(text: str) -> str:
    raise ToolFailure("no luck")

@tool(task="optional")
async def crashes(text: str) -> str:
    raise ValueError("a bug")

@tool(task="optional")
async def refuses(text: str) -> str:
    raise ProtocolError("no", 4711, {"text": text})

@tool(task="optional")
async def asks(text: str, ctx: Context) -> str:
    return (await ctx.elicit("Which colour?", FORM, key="colour")).action

@tool(task="by_hand")
async def considers(text: str, ctx: Context) -> str:
    await ctx.become_task()
    return text

@tool(task="by_hand")
async def decides_against(text: str) -> str:
    raise ToolFailure("no luck")

@tool(task="optional")
async def sleeps(text: str) -> None:
    await asyncio.sleep(3600)

@tool(deadline=0.1)
async def late(text: str) -> None:
    await asyncio.sleep(3600)
"""
SETTINGS = """
auth = "none"
max_body_kib = 4096

[[server]]
name = "main"
[[server.agent]]
kind = "python"
file = "agent.py"

[[server]]
name = "wasm"
compat = { tasks = "wasmagent", sync_timeout_seconds = 0.3 }
[[server.agent]]
kind = "python"
file = "agent.py"
"""
TEXT: Final = "x" * 1_000_000
TIMES: Final = 3
DECLINED: Final = {"action": "decline"}
NONSENSE: Final = {"nonsense": 1}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("home")
    (home / "agent.py").write_text(AGENT, "utf-8")
    (home / "ostiary.toml").write_text(SETTINGS, "utf-8")
    program = Program(command=SERVER, home=home)
    with program.serving("--config", str(home / "ostiary.toml"), "--admin-port", "0") as server:
        yield server


class Caller:
    def __init__(self, server: Server) -> None:
        self.modern = Wire(url=f"{server.url}/mcp")
        self.unable = Wire(url=f"{server.url}/mcp", capabilities={})
        self.able = Wire(url=f"{server.url}/mcp", capabilities={"elicitation": {}})
        self.session = Wire(url=f"{server.url}/mcp", version=CORE, capabilities=ABLE)
        self.alone = Wire(url=f"{server.url}/mcp", version=CORE)
        self.wasm = Wire(url=f"{server.url}/wasm/mcp", version=CORE, capabilities={})
        self.session.begin_session()

    def close(self) -> None:
        for wire in (self.modern, self.unable, self.able, self.session, self.alone, self.wasm):
            wire.close()

    def run_task(self, tool: str) -> None:
        made = call(self.modern, tool).result
        if made.get("resultType") == "task":
            self._until_over(made["taskId"])

    def cancel_task(self, tool: str) -> None:
        self.modern.ask("tasks/cancel", taskId=call(self.modern, tool).result["taskId"])

    def decline_as_task(self) -> None:
        task_id = call(self.modern, "asks").result["taskId"]
        until("a question", lambda: self._task(task_id).get("inputRequests"))
        self.modern.ask("tasks/update", taskId=task_id, inputResponses={"colour": DECLINED})
        self._until_over(task_id)

    def run_core_task(self, tool: str) -> None:
        task_id = call(self.session, tool, task={}).result["task"]["taskId"]
        self.session.ask("tasks/result", lambda _: DECLINED, taskId=task_id)

    def run_wasm_task(self, tool: str) -> None:
        task_id = self.wasm.ask("tasks/create", name=tool, arguments={"text": TEXT}).result["id"]
        over = ("complete", "failed")
        until(
            "the task to end",
            lambda: self.wasm.ask("tasks/get", id=task_id).result["state"] in over or None,
        )

    def answer_in_second_round(self, answer: Mapping[str, Any]) -> None:
        asked = call(self.able, "asks").result
        assert asked["resultType"] == "input_required"
        call(self.able, "asks", requestState=asked["requestState"], inputResponses={"colour": answer})

    def refuse_with_error(self) -> None:
        with self.session.open("tools/call", {"name": "asks", "arguments": {"text": TEXT}}) as response:
            for message in messages(response):
                if "method" in message:
                    error = {"code": -1, "message": "no"}
                    self.session.send({"jsonrpc": "2.0", "id": message["id"], "error": error})

    def _task(self, task_id: str) -> dict[str, Any]:
        return self.modern.ask("tasks/get", taskId=task_id).result

    def _until_over(self, task_id: str) -> None:
        until("the task to end", lambda: self._task(task_id)["status"] in OVER or None)


def call(wire: Wire, tool: str, **more: Any) -> Heard:
    return wire.ask("tools/call", lambda _: DECLINED, name=tool, arguments={"text": TEXT}, **more)


def nonsense(wire: Wire) -> Heard:
    return wire.ask("tools/call", lambda _: NONSENSE, name="asks", arguments={"text": TEXT})


WAYS: Mapping[str, Callable[[Caller], object]] = {
    "a call that succeeds": lambda by: call(by.unable, "fine"),
    "a call that fails": lambda by: call(by.unable, "unlucky"),
    "a call that crashes": lambda by: call(by.unable, "crashes"),
    "a call that is refused": lambda by: call(by.unable, "refuses"),
    "a call that takes too long": lambda by: call(by.unable, "late"),
    "a call that cannot ask": lambda by: call(by.unable, "asks"),
    "a call of an unknown tool": lambda by: call(by.unable, "unknown"),
    "a call with wrong arguments": lambda by: by.unable.ask(
        "tools/call", name="fine", arguments={"words": TEXT}
    ),
    "a question declined in a second round": lambda by: by.answer_in_second_round(DECLINED),
    "a question answered with nonsense in a second round": lambda by: by.answer_in_second_round(NONSENSE),
    "a session's call that succeeds": lambda by: call(by.session, "fine"),
    "a session's call that fails": lambda by: call(by.session, "unlucky"),
    "a session's call that is refused": lambda by: call(by.session, "refuses"),
    "a session's call that takes too long": lambda by: call(by.session, "late"),
    "a session's question declined": lambda by: call(by.session, "asks"),
    "a session's question answered with nonsense": lambda by: nonsense(by.session),
    "a session's question answered with an error": lambda by: by.refuse_with_error(),
    "a call without session": lambda by: call(by.alone, "fine"),
    "a call without session that cannot ask": lambda by: call(by.alone, "asks"),
    "a task that succeeds": lambda by: by.run_task("fine"),
    "a task that fails": lambda by: by.run_task("unlucky"),
    "a task that crashes": lambda by: by.run_task("crashes"),
    "a task that is refused": lambda by: by.run_task("refuses"),
    "a task that is cancelled": lambda by: by.cancel_task("sleeps"),
    "a task that is cancelled while it asks": lambda by: by.cancel_task("asks"),
    "a task whose question is declined": lambda by: by.decline_as_task(),
    "a call that becomes a task": lambda by: by.run_task("considers"),
    "a call that might have become a task": lambda by: by.run_task("decides_against"),
    "a task of a session that succeeds": lambda by: by.run_core_task("fine"),
    "a task of a session that is refused": lambda by: by.run_core_task("refuses"),
    "a task of a session whose question is declined": lambda by: by.run_core_task("asks"),
    "a task of the other dialect that succeeds": lambda by: by.run_wasm_task("fine"),
    "a task of the other dialect that is refused": lambda by: by.run_wasm_task("refuses"),
}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_it_holds_no_arguments_and_no_results(served: Server, way: str) -> None:
    caller = Caller(served)
    try:
        WAYS[way](caller)  # whatever is found and kept once
        before = held(served)

        def little() -> int | None:
            grown = held(served) - before
            return None if grown > len(TEXT) // 2 else grown

        for _ in range(TIMES):
            WAYS[way](caller)
        until("what it held to be given back", little, seconds=60)
        until("its room to be given back", lambda: weight(served) == 0 or None)
    finally:
        caller.close()


def weight(server: Server) -> int:
    """Of large requests that are under way."""
    admin = re.search(r'"admin": ?"(http://[^"]+)"', server.said())
    assert admin is not None, server.said()
    metrics = httpx2.get(f"{admin[1]}/metrics", trust_env=False, timeout=WAIT_SECONDS).text
    found = re.search(r"^ostiary_large_requests_bytes (\S+)$", metrics, re.MULTILINE)
    assert found is not None, metrics
    return int(float(found[1]))


def held(server: Server) -> int:
    told = server.log.parent / "held"
    told.unlink(missing_ok=True)
    server.process.send_signal(signal.SIGUSR1)
    return until("the figure", lambda: int(told.read_text("ascii")) if told.exists() else None)
