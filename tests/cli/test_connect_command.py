"""`ostiary connect` as its hosts run it: a process between pipes, in front of the real server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import pytest
import trio
from shell import Terminal

from tests.client.fake_server import FakeServer
from tests.e2e.programs import SOURCE, USER_CODE, WAIT_SECONDS, Program, Server, expire_access_token, until

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
OPENING = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


class Connected:
    """The process, with what it writes read line by line."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self.log = log
        self._lines: Queue[bytes] = Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def send(self, *messages: Any) -> None:
        assert self.process.stdin is not None
        for message in messages:
            self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.process.stdin.flush()

    def hear(self) -> Any:
        try:
            return json.loads(self._lines.get(timeout=WAIT_SECONDS))
        except Empty:
            raise AssertionError(f"nothing came; it said:\n{self.log.read_text()}") from None

    def ask(self, request_id: int, method: str, params: Any = None, *, modern: bool) -> Any:
        """The result; what comes before it must be notifications."""
        self.send(request(request_id, method, params, modern=modern))
        while "id" not in (message := self.hear()):
            assert message["method"].startswith("notifications/")
        assert message["id"] == request_id
        return message.get("result") or message

    def hang_up(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        code = self.process.wait(WAIT_SECONDS)
        assert self._lines.empty()
        return code


def request(request_id: int, method: str, params: Any = None, *, modern: bool) -> dict[str, Any]:
    return {
        "id": request_id,
        "method": method,
        "params": {**(params or {}), **({"_meta": META} if modern else {})},
    }


@contextmanager
def connecting(command: list[str], environment: dict[str, str], folder: Path) -> Generator[Connected]:
    log = folder / "connect-log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    connected = Connected(process, log)
    try:
        yield connected
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None and not pipe.closed:
                with pipe:
                    pass


def connect(
    program: Program, server: Server, *options: str, started_as: str = "ostiary"
) -> AbstractContextManager[Connected]:
    command = [*program.command, "connect", server.endpoint, *options]
    environment = {**program.environment(), "OSTIARY_PROGRAM": started_as}
    return connecting(command, environment, program.home)


@pytest.fixture
def program() -> Iterator[Program]:
    with tempfile.TemporaryDirectory(prefix="ostiary-", ignore_cleanup_errors=True) as folder:
        yield Program(command=SOURCE, home=Path(folder))


@pytest.fixture
def open_server(program: Program) -> Iterator[Server]:
    with program.serving("--auth", "none") as server:
        yield server


@pytest.fixture
def server(program: Program) -> Iterator[Server]:
    with program.serving() as server:
        yield server


def open_session(bridge: Connected) -> None:
    assert bridge.ask(0, "initialize", OPENING, modern=False)["protocolVersion"] == "2025-11-25"
    bridge.send({"method": "notifications/initialized"})


def calls(server: Server, tool: str) -> list[dict[str, Any]]:
    """What the server's log says of ended calls."""
    events = [json.loads(line) for line in server.said().splitlines() if line.startswith("{")]
    return [event for event in events if event["event"] == "tool.called" and event["tool"] == tool]


@pytest.mark.parametrize("modern", [True, False], ids=["modern", "legacy"])
def test_an_open_server_lists_calls_and_reports_progress(
    program: Program, open_server: Server, modern: bool
) -> None:
    with connect(program, open_server) as bridge:
        if modern:
            assert "2026-07-28" in bridge.ask(0, "server/discover", modern=True)["supportedVersions"]
        else:
            open_session(bridge)
        tools = bridge.ask(1, "tools/list", modern=modern)["tools"]
        assert {tool["name"] for tool in tools} == {"echo", "clock", "countdown"}
        echoed = bridge.ask(2, "tools/call", {"name": "echo", "arguments": {"text": "grüße"}}, modern=modern)
        assert echoed["content"] == [{"type": "text", "text": "grüße"}]
        counting = {"name": "countdown", "arguments": {"from": 2, "seconds": 0.2}}
        asked = request(3, "tools/call", counting, modern=modern)
        asked["params"]["_meta"] = {**asked["params"].get("_meta", {}), "progressToken": "p"}
        bridge.send(asked)
        steps: list[float] = []
        while "id" not in (message := bridge.hear()):
            assert message["params"]["progressToken"] == "p"
            steps.append(message["params"]["progress"])
        assert message["id"] == 3
        assert steps == sorted(set(steps)) != []
        assert bridge.hang_up() == 0
        assert bridge.log.read_text() == ""


@pytest.mark.parametrize("modern", [True, False], ids=["modern", "legacy"])
def test_a_call_that_is_cancelled_stops_at_the_server(
    program: Program, open_server: Server, modern: bool
) -> None:
    with connect(program, open_server) as bridge:
        if not modern:
            open_session(bridge)
        counting = {"name": "countdown", "arguments": {"from": 30, "seconds": 10}}
        asked = request(1, "tools/call", counting, modern=modern)
        asked["params"]["_meta"] = {**asked["params"].get("_meta", {}), "progressToken": "p"}
        bridge.send(asked)
        assert bridge.hear()["method"] == "notifications/progress"  # it runs
        bridge.send({"method": "notifications/cancelled", "params": {"requestId": 1}})
        until("the end of the call", lambda: calls(open_server, "countdown") or None)
        bridge.ask(3, "tools/list", modern=modern)
        assert bridge.hang_up() == 0


def test_a_server_that_was_started_again_is_gone_on_with(program: Program) -> None:
    with ExitStack() as stack:
        with program.serving("--auth", "none") as server:
            port = server.url.rpartition(":")[2]
            bridge = stack.enter_context(connect(program, server))
            open_session(bridge)
            bridge.ask(1, "tools/list", modern=False)
        bridge.send(request(2, "tools/list", modern=False))
        assert "nothing answers" in bridge.hear()["error"]["message"]
        with program.serving("--auth", "none", "--port", port):
            assert len(bridge.ask(3, "tools/list", modern=False)["tools"]) == 3
            assert bridge.log.read_text() == "", "it did not feel it"
            assert bridge.hang_up() == 0


@pytest.mark.slow
def test_a_login_is_shown_on_stderr_while_the_first_request_waits_and_is_refreshed_later(
    program: Program, server: Server
) -> None:
    with connect(program, server) as bridge:
        bridge.send(request(1, "tools/list", modern=True))
        code = until("the code", lambda: USER_CODE.search(bridge.log.read_text()))[0]
        hint = "hint: many programs show this only in a log"
        until("the hint", lambda: hint in bridge.log.read_text() or None)
        program.at_machine("approve", code, "--yes")
        assert bridge.hear()["id"] == 1
        before = program.tokens()
        expire_access_token(program)
        assert len(bridge.ask(2, "tools/list", modern=True)["tools"]) == 3
        assert program.tokens()["access_token"] != before["access_token"]
        for secret in (before["access_token"], before["refresh_token"]):
            assert secret not in bridge.log.read_text()
        assert bridge.hang_up() == 0


@pytest.mark.slow
def test_without_login_a_request_fails_at_once_and_says_how_to_log_in(
    program: Program, server: Server
) -> None:
    started = "/opt/o/scripts/ostiary"
    with connect(program, server, "--no-login", started_as=started) as bridge:
        answer = bridge.ask(1, "tools/list", modern=True)
        text = f"not logged in at {server.endpoint}; run {started} login {server.endpoint}"
        assert answer["error"] == {
            "code": -32603,
            "message": text,
            "data": {"hint": f"{started} login {server.endpoint}"},
        }
        until("its words", lambda: bridge.log.read_text() == f"{text}\n" or None)
        program.log_in(server)
        assert len(bridge.ask(2, "tools/list", modern=True)["tools"]) == 3
        assert bridge.hang_up() == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
async def test_a_signal_ends_it_at_once_and_the_session_with_it(
    shell: Terminal, fake: FakeServer, number: int, code: int
) -> None:
    fake.era, fake.login_needed = "legacy", False

    def talk() -> tuple[int, str]:
        with connecting(shell.command(["connect", fake.url]), shell.environment(), shell.home) as bridge:
            bridge.ask(0, "initialize", OPENING, modern=False)
            bridge.process.send_signal(number)
            return bridge.process.wait(WAIT_SECONDS), bridge.log.read_text()

    assert await trio.to_thread.run_sync(talk) == (code, "")
    assert fake.count["sessions ended"] == 1


async def test_lines_from_a_file_are_answered_into_a_file(shell: Terminal, fake: FakeServer) -> None:
    fake.login_needed = False
    into, out = shell.home / "in", shell.home / "out"
    asked = [{"jsonrpc": "2.0", **request(number, "tools/list", modern=True)} for number in range(3)]
    into.write_text("\n".join(map(json.dumps, [*asked, "no message"])))

    def talk() -> int:
        with into.open("rb") as stdin, out.open("wb") as stdout:
            return subprocess.run(
                shell.command(["connect", fake.url]),
                env=shell.environment(),
                stdin=stdin,
                stdout=stdout,
                stderr=subprocess.PIPE,
                timeout=WAIT_SECONDS,
                check=False,
            ).returncode

    assert await trio.to_thread.run_sync(talk) == 0
    answers = [json.loads(line) for line in out.read_text().splitlines()]
    assert {answer["id"] for answer in answers} == {0, 1, 2, None}


async def test_a_server_without_codes_is_logged_in_to_through_a_browser_while_the_request_waits(
    shell: Terminal, fake: FakeServer
) -> None:
    fake.browser_only()
    lines = "".join(
        json.dumps({"jsonrpc": "2.0", **request(number, "tools/list", modern=True)}) + "\n"
        for number in (1, 2)
    )
    folder = shell.home / "bin"
    folder.mkdir()
    opener = folder / "xdg-open"
    opener.write_text(
        f"#!{SOURCE[0]}\nimport sys, urllib.request as web\n"
        "web.build_opener(web.ProxyHandler({})).open(sys.argv[1]).read()\n"
    )
    opener.chmod(0o755)
    done = await shell.run(
        "connect", fake.url, stdin=lines.encode(), DISPLAY=":0", PATH=f"{folder}:{os.environ['PATH']}"
    )
    answers = {json.loads(line)["id"]: json.loads(line) for line in done.stdout.splitlines()}
    assert [sorted(answers), *("result" in answer for answer in answers.values())] == [[1, 2], True, True]
    assert "browser that just opened" in done.stderr
    assert fake.requests("/register")[0].message["client_name"] == "Ostiary in a terminal"
    assert len(fake.requests("/authorize")) == 1


async def test_an_address_that_cannot_work_is_told_on_stderr(shell: Terminal) -> None:
    done = await shell.run("connect", "http://a.example/mcp")
    assert (done.code, done.stdout) == (1, "")
    assert done.stderr.startswith("error: http to a.example would send tokens in the clear\nhint: ")
    assert (await shell.run("connect")).code == 2


async def test_on_a_terminal_it_says_what_it_is_and_leaves_the_terminal_as_it_was(
    shell: Terminal, fake: FakeServer
) -> None:
    fake.login_needed = False
    controller, terminal = os.openpty()
    seen = b""

    def talk() -> int:
        nonlocal seen
        process = subprocess.Popen(
            shell.command(["connect", fake.url]),
            env=shell.environment(),
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
        )
        message = json.dumps({"jsonrpc": "2.0", **request(1, "tools/list", modern=True)})
        while b"ostiary call" not in seen:
            seen += os.read(controller, 65536)
        os.write(controller, message.encode() + b"\n")
        while b'"nextCursor"' not in seen:
            seen += os.read(controller, 65536)
        os.write(controller, b"\x04")  # ctrl-d
        return process.wait(WAIT_SECONDS)

    with trio.fail_after(WAIT_SECONDS):
        assert await trio.to_thread.run_sync(talk) == 0
    assert b"a bridge to " in seen
    assert os.get_blocking(terminal)
    os.close(controller)
    os.close(terminal)
