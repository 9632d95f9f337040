"""`ostiary serve --stdio` as a client starts it: a process between pipes, with the demo and with a Python file behind it."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import subprocess
import tty
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import trio
from programs import SOURCE, WAIT_SECONDS, Program

from tests.pair import MODERN
from tests.stdio_talk import ELICITS, call, legacy, modern, note

AGENT = """
    import asyncio
    import pathlib
    import sys
    import time

    from ostiary import Context, tool

    print("printed while it was loaded")
    sys.stdout.flush()

    @tool
    async def greet(name: str, ctx: Context) -> str:
        print("printed during a call")
        await ctx.progress(1, 2, "thinking")
        return f"Hello, {name}!"

    @tool
    async def asks(ctx: Context) -> str:
        answer = await ctx.elicit("who?", {"type": "object", "properties": {"name": {"type": "string"}}})
        return f"{answer.action} {answer.content}"

    @tool(task="optional")
    async def works() -> str:
        await asyncio.sleep(0.05)
        return "worked"

    @tool
    async def waits(file: str, ctx: Context) -> str:
        await ctx.progress(1, 2)
        try:
            await asyncio.sleep(1000)
        finally:
            pathlib.Path(file).write_text("stopped")

    @tool
    def hangs() -> str:
        while True:
            try:
                time.sleep(1000)
            except BaseException:
                pass
"""
SETTINGS = """
    [[server]]
    [[server.agent]]
    kind = "python"
    file = "agent.py"

    [[server]]
    name = "lab"
    [[server.agent]]
    kind = "demo"
"""
TOKEN = {"progressToken": "p"}


@dataclass
class Piped:
    process: trio.Process
    log: Path
    _heard: bytes = b""

    async def say(self, *messages: Any) -> None:
        assert self.process.stdin is not None
        await self.process.stdin.send_all(b"".join(json.dumps(one).encode() + b"\n" for one in messages))

    async def hear(self) -> Any:
        assert self.process.stdout is not None
        while b"\n" not in self._heard:
            piece = await self.process.stdout.receive_some()
            assert piece, f"it has ended, and said:\n{self.log.read_text('utf-8')}"
            self._heard += piece
        line, _, self._heard = self._heard.partition(b"\n")
        return json.loads(line)

    async def result(self, message: Any) -> Any:
        """Of a request, with what comes before it passed over."""
        await self.say(message)
        while (heard := await self.hear()).get("id") != message["id"]:
            assert "method" in heard
        return heard["result"]

    async def shake_hands(self) -> None:
        params = {"protocolVersion": "2025-11-25", "capabilities": ELICITS, "clientInfo": {"name": "t"}}
        await self.result(legacy("initialize", params, id="hands"))
        await self.say(note("initialized"))

    async def hang_up(self) -> None:
        assert self.process.stdin is not None
        await self.process.stdin.aclose()

    async def rest(self) -> list[Any]:
        """Everything until it has closed its end: messages, each on a line of its own."""
        assert self.process.stdout is not None
        pieces = [self._heard] + [piece async for piece in self.process.stdout]
        return [json.loads(line) for line in b"".join(pieces).splitlines()]


@asynccontextmanager
async def piped(program: Program, *flags: str) -> AsyncGenerator[Piped]:
    log = program.home / "stderr"
    with trio.fail_after(WAIT_SECONDS), log.open("wb") as stderr:
        process = await trio.lowlevel.open_process(
            (*program.command, "serve", "--stdio", *flags),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=program.environment(),
            cwd=program.home,
        )
        try:
            yield Piped(process, log)
        finally:
            process.kill()
            await process.wait()


@pytest.fixture
def ostiary(home: Path) -> Program:
    return Program(command=SOURCE, home=home, alone=True)


@pytest.fixture
def python(ostiary: Program) -> Program:
    (ostiary.home / "agent.py").write_text(dedent(AGENT), "utf-8")
    (ostiary.home / "ostiary.toml").write_text(dedent(SETTINGS), "utf-8")
    return ostiary


def with_token(message: Mapping[str, Any]) -> dict[str, Any]:
    params = message["params"]
    return {**message, "params": {**params, "_meta": {**params.get("_meta", {}), **TOKEN}}}


async def test_both_eras_are_served_and_the_end_of_stdin_is_the_end(ostiary: Program) -> None:
    async with piped(ostiary) as client:
        assert (await client.result(modern("server/discover")))["supportedVersions"] == [MODERN]
        await client.shake_hands()
        listed = await client.result(legacy("tools/list"))
        assert {tool["name"] for tool in listed["tools"]} == {"echo", "clock", "countdown"}
        await client.say(
            with_token(modern("tools/call", call("countdown", **{"from": 2, "seconds": 0.2}), id=5))
        )
        assert [(await client.hear())["params"]["progress"] for _ in range(3)] == [0, 1, 2]
        assert (await client.hear())["id"] == 5
        await client.hang_up()
        assert await client.rest() == []
        assert await client.process.wait() == 0
        assert "Traceback" not in client.log.read_text("utf-8")


async def test_nothing_is_left_behind_and_many_may_run_side_by_side(ostiary: Program) -> None:
    async with piped(ostiary) as one, piped(ostiary) as other:
        for client in (one, other):
            assert await client.result(modern("tools/list"))
            await client.hang_up()
            assert await client.process.wait() == 0
    files = {str(path.relative_to(ostiary.home)) for path in ostiary.home.rglob("*") if path.is_file()}
    assert files == {"stderr"}


@pytest.mark.requirement("stdio.stdout", era="modern")
async def test_what_a_python_agent_prints_goes_to_stderr(python: Program) -> None:
    async with piped(python, "--log-format", "json") as client:
        await client.say(with_token(modern("tools/call", call("greet", name="Ada"))))
        assert (await client.hear())["params"]["message"] == "thinking"
        assert (await client.hear())["result"]["content"][0]["text"] == "Hello, Ada!"
        await client.hang_up()
        assert await client.rest() == []
        assert await client.process.wait() == 0
        said = client.log.read_text("utf-8")
        assert "printed while it was loaded" in said and "printed during a call" in said


@pytest.mark.requirement("stdio.stdout", era="modern")
async def test_what_an_agent_in_this_very_process_prints_goes_to_stderr(python: Program) -> None:
    settings = python.home / "ostiary.toml"
    settings.write_text(
        settings.read_text("utf-8").replace('"agent.py"', '"agent.py"\nin_process = true'), "utf-8"
    )
    async with piped(python) as client:
        await client.result(modern("tools/call", call("greet", name="Ada")))
        await client.hang_up()
        assert await client.rest() == []
        assert await client.process.wait() == 0
        said = client.log.read_text("utf-8")
        assert "printed while it was loaded" in said and "printed during a call" in said


@pytest.mark.requirement("stdio.stdout", era="legacy")
async def test_a_python_agent_asks_in_both_eras_and_works_on_tasks(python: Program) -> None:
    async with piped(python) as client:
        first = await client.result(modern("tools/call", call("asks"), can=ELICITS))
        answer = {"action": "accept", "content": {"name": "Ada"}}
        again = {
            **call("asks"),
            "requestState": first["requestState"],
            "inputResponses": dict.fromkeys(first["inputRequests"], answer),
        }
        second = await client.result(modern("tools/call", again, can=ELICITS))
        assert second["content"][0]["text"] == "accept {'name': 'Ada'}"
        await client.shake_hands()
        await client.say(legacy("tools/call", call("asks"), id=2))
        question = await client.hear()
        assert question["method"] == "elicitation/create"
        await client.say({"jsonrpc": "2.0", "id": question["id"], "result": answer})
        assert (await client.hear())["result"]["content"] == second["content"]
        task = (await client.result(legacy("tools/call", {**call("works"), "task": {}})))["task"]
        worked = await client.result(legacy("tasks/result", {"taskId": task["taskId"]}))
        assert worked["content"][0]["text"] == "worked"


async def test_cancelling_stops_the_function_that_runs(python: Program) -> None:
    trace = python.home / "tmp" / "trace"
    async with piped(python) as client:
        await client.say(with_token(modern("tools/call", call("waits", file=str(trace)), id=9)))
        await client.hear()
        await client.say(note("cancelled", {"requestId": 9}))
        while not trace.exists():
            await trio.sleep(0.02)
        await client.hang_up()
        assert await client.rest() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_a_signal_ends_it_politely_however_much_hangs(python: Program, number: signal.Signals) -> None:
    async with piped(python, "--drain-seconds", "0.1") as client:
        await client.say(modern("tools/call", call("hangs"), id=1), modern("tools/list", id=2))
        assert (await client.hear())["id"] == 2
        client.process.send_signal(number)
        (answer,) = await client.rest()
        assert (answer["id"], answer["error"]["code"]) == (1, -32603), "it is told so"
        assert await client.process.wait() == 0


async def test_a_signal_after_the_end_of_stdin_waits_for_nothing(python: Program) -> None:
    async with piped(python, "--drain-seconds", "600") as client:
        await client.say(modern("tools/call", call("hangs"), id=1), modern("tools/list", id=2))
        await client.hear()
        await client.hang_up()
        with trio.move_on_after(0.5) as waiting:
            await client.process.wait()
        assert waiting.cancelled_caught
        client.process.send_signal(signal.SIGTERM)
        assert await client.process.wait() == 0


async def test_a_client_that_closes_our_stdout_ends_it_without_a_word(ostiary: Program) -> None:
    async with piped(ostiary, "--log-level", "warning") as client:
        await client.result(modern("tools/list"))
        assert client.process.stdout is not None
        await client.process.stdout.aclose()
        await client.say(modern("tools/list"))
        assert await client.process.wait() == 0
        assert client.log.read_bytes() == b""


def test_lines_may_come_from_a_file(ostiary: Program) -> None:
    count = 300
    lines = ostiary.home / "lines"
    lines.write_text(
        "\n".join(json.dumps(modern("tools/list", id=number)) for number in range(count)), "utf-8"
    )
    with lines.open("rb") as source:
        done = subprocess.run(
            (*ostiary.command, "serve", "--stdio"),
            stdin=source,
            capture_output=True,
            env=ostiary.environment(),
            cwd=ostiary.home,
            timeout=WAIT_SECONDS,
            check=True,
        )
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == list(range(count))


def test_a_terminal_is_told_what_to_type_and_is_left_as_it_was(ostiary: Program) -> None:
    ours, theirs = pty.openpty()
    tty.setraw(theirs)
    flags = fcntl.fcntl(theirs, fcntl.F_GETFL)
    process = subprocess.Popen(
        (*ostiary.command, "serve", "--stdio", "--log-level", "warning"),
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ostiary.environment(),
        cwd=ostiary.home,
    )
    try:
        assert process.stdout is not None and process.stderr is not None
        assert process.stderr.readline().startswith(b"hint: a program is meant to start this")
        os.write(ours, json.dumps(legacy("ping")).encode() + b"\n")
        assert json.loads(process.stdout.readline()) == {"jsonrpc": "2.0", "id": 1, "result": {}}
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_SECONDS) == 0
        assert process.stderr.read() == b""
        assert fcntl.fcntl(theirs, fcntl.F_GETFL) == flags
    finally:
        process.kill()
        process.communicate()
        os.close(ours)
        os.close(theirs)


async def test_a_server_is_picked_by_its_name(python: Program) -> None:
    async with piped(python, "--server", "lab") as client:
        listed = await client.result(modern("tools/list"))
        assert {tool["name"] for tool in listed["tools"]} == {"echo", "clock", "countdown"}


def test_what_cannot_work_is_said_on_stderr_alone(python: Program) -> None:
    def refused(*flags: str, code: int) -> str:
        done = python.run("serve", *flags, code=code)
        assert done.stdout == ""
        return done.stderr

    assert "the settings have main, lab" in refused("--stdio", "--server", "none", code=2)
    assert "--json" in refused("--stdio", "--json", code=2)
    assert "--stdio" in refused("--server", "lab", code=2)
    assert "--port" in refused("--stdio", "--port", "x", code=2)
    (python.home / "agent.py").write_text("import no_such_module_anywhere\n", "utf-8")
    assert "no_such_module_anywhere" in refused("--stdio", code=1)


def test_it_loads_no_web_framework_and_no_login(ostiary: Program) -> None:
    report = subprocess.run(
        (SOURCE[0], "-X", "importtime", *SOURCE[1:], "serve", "--stdio"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=ostiary.environment(),
        cwd=ostiary.home,
        text=True,
        timeout=WAIT_SECONDS,
        check=True,
    ).stderr
    loaded = {
        line.rpartition("|")[2].strip() for line in report.splitlines() if line.startswith("import time")
    }
    assert "server.transport.stdio.stdio_conversation" in loaded
    assert not loaded & {
        "quart",
        "hypercorn",
        "authlib",
        "httpx2",
        "jinja2",
        "server.transport.http",
        "auth.endpoints.endpoint_table",
    }
