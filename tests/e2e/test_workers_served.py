"""Several processes that serve, as their parent keeps them: calls, a login, kills, ends, one log and one admin socket."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import threading
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from handmade import Handmade
from programs import SOURCE, WAIT_SECONDS, Background, House, Program, Server, until
from prometheus_client.parser import text_string_to_metric_families
from walk import blocks

from tests.call_counts import NodeConversation, tool_call
from tests.postgres_server import PostgresServer

pytestmark = pytest.mark.slow

COUNT = 2  # of those that a test starts for itself
SHARED_COUNT = 3


def with_workers(home: Path, where: Mapping[str, str], count: int) -> Program:
    (home / "address").write_text(
        f"postgresql://{where['user']}:hunter2@/{where['dbname']}?host={where['host']}\n", "utf-8"
    )
    (home / "ostiary.toml").write_text(f'store = "file:address"\nworkers = {count}\n', "utf-8")
    return Program(command=SOURCE, home=home, serves_alone=True)


@pytest.fixture
def program(home: Path, postgres_database: dict[str, str]) -> Program:
    return with_workers(home, postgres_database, COUNT)


@pytest.fixture(scope="module")
def house(shared_home: Path, postgres_server: PostgresServer) -> Iterator[House]:
    """The program and the server that all tests share which leave its workers alive."""
    with postgres_server.database() as database:
        program = with_workers(shared_home, database, SHARED_COUNT)
        with serving(program) as server:
            yield House(program=program, server=server)


@contextmanager
def serving(program: Program, *options: str) -> Generator[Server]:
    with program.serving("--admin-port", "0", *options) as server:
        server.await_words(r'"event":"server.started"')
        yield server


def port_of(server: Server) -> int:
    return int(server.url.rpartition(":")[2])


def events(background: Background, event: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log_lines(background) if f'"event":"{event}"' in line]


def log_lines(background: Background) -> list[str]:
    """Return the lines that are written to their end."""
    return background.said().rpartition("\n")[0].splitlines()


def pid_of(background: Background, number: int) -> int:
    """Of the newest process of that number."""
    return [each["pid"] for each in events(background, "worker.ready") if each["worker"] == number][-1]


def lives(pid: int) -> bool:
    """A process that has ended and that nobody has looked at yet is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def called(port: int, text: str, *, token: str | None = None) -> str:
    """What a new connection gets for one call, or how it broke."""
    try:
        with closing(NodeConversation(port)) as talk:
            status, body = talk.exchange(tool_call(port, "echo", {"text": text}, token=token))
    except (OSError, AssertionError) as error:  # the latter: it was closed
        return f"broke: {error}"
    return json.loads(body)["result"]["content"][0]["text"] if status == 200 else f"answered {status}"


class Calls:
    """Some that are under way, each at an agent that answers when it is told to."""

    def __init__(self, home: Path, port: int, count: int) -> None:
        self.results: list[str] = []
        marks = home / "marks"
        self._go = marks / "go"
        self._marks = [marks / f"mark-{number}" for number in range(count)]
        self._callers = [threading.Thread(target=self._call, args=(port, str(mark))) for mark in self._marks]
        for caller in self._callers:
            caller.start()
        until("all calls", lambda: all(mark.exists() for mark in self._marks) or None)

    def let_end(self) -> None:
        self._go.touch()

    def wait(self) -> list[str]:
        for caller in self._callers:
            caller.join()
        return self.results

    def _call(self, port: int, mark: str) -> None:
        try:
            with closing(NodeConversation(port)) as talk:
                request = tool_call(port, "wait", {"mark": mark, "go": str(self._go)})
                self.results.append(talk.exchange(request)[1].decode())
        except (OSError, AssertionError):
            self.results.append("broke")


AGENT = """
import asyncio, pathlib
from ostiary import tool

@tool
async def echo(text: str) -> str:
    return text

@tool
async def wait(mark: str, go: str) -> str:
    pathlib.Path(mark).touch()
    while not pathlib.Path(go).exists():
        await asyncio.sleep(0.02)
    return "it went on"
"""


@pytest.fixture
def with_agent(program: Program) -> Program:
    (program.home / "marks").mkdir()  # a program may make nothing beside the settings
    (program.home / "agent.py").write_text(AGENT, "utf-8")
    settings = f'''
        store = "file:address"
        workers = {COUNT}
        [[server]]
        name = "main"
        [[server.agent]]
        kind = "python"
        file = "{program.home}/agent.py"
    '''
    (program.home / "ostiary.toml").write_text(settings, "utf-8")
    return program


def test_one_that_is_killed_under_load_is_replaced_and_each_call_is_answered_or_its_connection_breaks(
    program: Program,
) -> None:
    with serving(program, "--auth", "none") as server:
        port, enough, outcomes = port_of(server), threading.Event(), list[tuple[str, str]]()

        def call_on(name: int) -> None:
            count = 0
            while not enough.is_set():
                count += 1
                text = f"{name}.{count}"
                outcomes.append((text, called(port, text)))

        callers = [threading.Thread(target=call_on, args=(name,)) for name in range(4)]
        for caller in callers:
            caller.start()
        try:
            for round_ in range(1, 3):
                before = len(outcomes)
                until("calls", lambda before=before: len(outcomes) > before + 20 or None)
                os.kill(pid_of(server, 2), signal.SIGKILL)
                until("its end", lambda n=round_: len(events(server, "worker.ended")) == n or None)
                after = len(outcomes)
                until("calls afterwards", lambda after=after: len(outcomes) > after + 20 or None)
                until("another", lambda n=round_: len(events(server, "worker.ready")) == COUNT + n or None)
        finally:
            enough.set()
            for caller in callers:
                caller.join()
        broken = [said for text, said in outcomes if said != text]
        assert all(said.startswith("broke: ") for said in broken), broken
        assert len(broken) <= 2 * len(callers)
        assert called(port, "after all") == "after all"
        first, second = events(server, "worker.ended")
        assert (first["worker"], first["ended"], first["level"]) == (2, "signal SIGKILL", "error")
        assert 0 <= first["again_in_seconds"] < second["again_in_seconds"] or first["lived_seconds"] >= 60
        assert len({each["pid"] for each in events(server, "worker.ready")}) == COUNT + 2
    assert server.process.returncode == 0


def test_one_that_stands_still_is_killed_and_replaced_and_the_others_serve(program: Program) -> None:
    with serving(program, "--auth", "none") as server:
        stuck = pid_of(server, 2)
        os.kill(stuck, signal.SIGSTOP)
        until("it is noticed", lambda: events(server, "worker.hangs") or None, 10 * WAIT_SECONDS)
        until("another", lambda: len(events(server, "worker.ready")) == COUNT + 1 or None)
        (ended,) = events(server, "worker.ended")
        assert (ended["worker"], ended["ended"]) == (2, "it hung for 30 seconds, and was killed")
        assert pid_of(server, 2) != stuck and not lives(stuck)
        assert called(port_of(server), "after all") == "after all"
    assert server.process.returncode == 0


def test_a_supervisor_is_told_once_that_all_are_ready_and_again_and_again_that_they_are_well(
    program: Program,
) -> None:
    address = program.home / "notify"
    told: list[str] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(str(address))
        supervisor.settimeout(WAIT_SECONDS)
        program.settings = {**program.settings, "NOTIFY_SOCKET": str(address), "WATCHDOG_USEC": "2000000"}
        with serving(program, "--drain-seconds", "4") as server:
            while "READY=1" not in told:
                told += supervisor.recv(4096).decode().splitlines()
            assert len(events(server, "worker.ready")) == COUNT, "of the first, nobody heard anything"
            assert told[-1] == f"STATUS=serving {server.url} with {COUNT} processes"
            for _ in range(3):
                told += supervisor.recv(4096).decode().splitlines()
            assert told[-3:] == ["WATCHDOG=1"] * 3
            assert server.end(signal.SIGTERM) == 0
            while "STOPPING=1" not in told:
                told += supervisor.recv(4096).decode().splitlines()
        assert told[-1] == "EXTEND_TIMEOUT_USEC=34000000"
        assert told.count("READY=1") == 1


def test_a_login_made_at_one_of_them_is_good_at_all_and_its_end_is_an_end_at_all(house: House) -> None:
    program = house.program
    program.log_in(house.server)
    token = program.tokens()["access_token"]

    def works() -> bool:
        client = Handmade(house.server.url)
        with closing(client):
            return client.works(token)

    assert all(works() for _ in range(4 * SHARED_COUNT))
    assert program.at_machine("verify")["broken"] is None
    program.at_machine("revoke", "--all", "--yes")
    until("its end at all", lambda: not any(works() for _ in range(4 * SHARED_COUNT)) or None)
    said = house.server.said() + "".join(program.said)
    assert "hunter2" not in said
    assert token not in said


def test_the_first_signal_lets_calls_end_and_nobody_new_in(with_agent: Program) -> None:
    with serving(with_agent, "--auth", "none", "--drain-seconds", "600") as server:
        port = port_of(server)
        pids = [pid_of(server, number) for number in range(1, COUNT + 1)]
        calls = Calls(with_agent.home, port, 6)
        server.process.send_signal(signal.SIGTERM)

        def refused() -> bool | None:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
            except OSError:
                return True
            return None

        until("nobody is let in any more", refused)
        assert server.process.poll() is None
        calls.let_end()
        assert server.wait() == 0
        results = calls.wait()
        assert len(results) == 6
        assert all("it went on" in result for result in results), results
    assert not any(lives(pid) for pid in pids)
    assert len(events(server, "server.draining")) == len(events(server, "server.stopped")) == 1
    assert not events(server, "worker.killed")


def seen(server: Server, path: str) -> str:
    admin = server.await_words(r'"admin":"(http://[^"]+)"')[1]
    return httpx2.get(f"{admin}{path}", trust_env=False, timeout=60).text


def test_a_parent_that_is_killed_leaves_nobody_who_goes_on_serving(program: Program) -> None:
    with serving(program) as server:
        pids = [pid_of(server, number) for number in range(1, COUNT + 1)]
        port = port_of(server)
        server.process.send_signal(signal.SIGKILL)
        server.wait()
        until("all workers have ended", lambda: not any(lives(pid) for pid in pids) or None)
    # And nothing of them is in the way of the next.
    with serving(program, "--port", str(port)) as again:
        assert again.url == server.url


def test_a_second_signal_ends_at_once(with_agent: Program) -> None:
    with serving(with_agent, "--auth", "none", "--drain-seconds", "600") as server:
        pids = [pid_of(server, number) for number in range(1, COUNT + 1)]
        calls = Calls(with_agent.home, port_of(server), 3)

        def insist() -> bool | None:
            # Until it counts as a second one: how soon that is, is not what is tested.
            if server.process.poll() is None:
                server.process.send_signal(signal.SIGTERM)
                return None
            return True

        until("the end", insist)
        assert not any("it went on" in result for result in calls.wait())
    assert not any(lives(pid) for pid in pids)


def test_what_cannot_be_started_is_said_once_in_the_words_of_whoever_found_it(program: Program) -> None:
    (program.home / "ostiary.toml").write_text(
        f"""
        store = "file:address"
        workers = {COUNT}
        [[server]]
        name = "main"
        [[server.agent]]
        kind = "demo"
        [[server.agent]]
        kind = "demo"
        """,
        "utf-8",
    )
    options = ("--port", "0", "--data-dir", str(program.data_dir))
    several = program.run("serve", *options, code=1)
    alone = program.run("serve", *options, "--workers", "1", code=1)
    assert "offered by main[1]" in alone.stderr
    assert said_by(several.stderr) == said_by(alone.stderr)


def said_by(stderr: str) -> list[str]:
    """What is said to whoever typed it; the log is another matter."""
    return [line for line in stderr.splitlines() if not line.startswith("{")]


def test_a_file_is_one_processs_and_that_is_said_with_what_to_do(home: Path) -> None:
    program = Program(command=SOURCE, home=home, serves_alone=True)
    refused = program.run("serve", "--workers", "2", "--port", "0", code=2)
    assert "2 processes cannot share a database that is a file" in refused.stderr
    assert "`store`" in refused.stderr
    with program.serving("--workers", "auto") as server:
        assert not events(server, "worker.ready")


def test_the_variable_of_a_worker_makes_none_of_whoever_sets_it(home: Path) -> None:
    program = Program(command=SOURCE, home=home, serves_alone=True, settings={"OSTIARY_WORKER": "2"})
    refused = program.run("serve", "--port", "0", code=2)
    assert "OSTIARY_WORKER is set by a server for its own workers" in refused.stderr


def test_each_line_of_the_log_is_whole_and_says_whose_it_is(house: House) -> None:
    house.program.log_in(house.server)
    port, token = port_of(house.server), house.program.tokens()["access_token"]
    before = len(events(house.server, "tool.called"))

    def call() -> None:
        for count in range(100):
            called(port, f"text {count}", token=token)

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    calls = until("all calls", lambda: at_least(400, events(house.server, "tool.called")[before:]))
    assert len(calls) == 400
    assert {line["worker"] for line in calls} <= set(range(1, SHARED_COUNT + 1))
    lines = [json.loads(line) for line in log_lines(house.server) if not line.startswith("Listening on")]
    ready = [line["worker"] for line in lines if line["event"] == "worker.ready"]
    assert sorted(ready) == list(range(1, SHARED_COUNT + 1))
    assert "worker" not in next(line for line in lines if line["event"] == "server.started")


def at_least(count: int, found: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    return found if len(found) >= count else None


def test_one_admin_socket_and_one_admin_port_answer_for_all_of_them(house: House) -> None:
    program, server = house.program, house.server
    each_of_them = rf"(?:node \S+:\d+, {SHARED_COUNT - 1} others alive\n){{{SHARED_COUNT}}}"
    assert re.fullmatch(rf"ready\n{each_of_them}", seen(server, "/readyz"))
    assert seen(server, "/healthz") == "ok\n"
    # Each request is counted by whoever answered it, and nobody else.
    before = tokens_given(server)
    program.log_in(server)
    assert tokens_given(server) == before + 1
    families = {each.name: each for each in text_string_to_metric_families(seen(server, "/metrics"))}
    assert {each.labels["worker"] for each in families["ostiary_info"].samples} == {"1", "2", "3"}
    assert [each.value for each in families["ostiary_workers"].samples] == [SHARED_COUNT]
    assert [each.value for each in families["ostiary_worker_restarts"].samples] == [0] * SHARED_COUNT

    status = program.at_machine("status")["server"]
    assert [(each["worker"], each["state"], each["answers"]) for each in status["workers"]] == [
        (number, "serving", True) for number in range(1, SHARED_COUNT + 1)
    ]
    assert {each["pid"] for each in status["workers"]} == {
        pid_of(server, n) for n in range(1, SHARED_COUNT + 1)
    }
    shown = program.run("status", "--data-dir", str(program.data_dir)).stdout
    assert f"{SHARED_COUNT} processes serve" in shown
    assert program.run("status", "--ready", "--data-dir", str(program.data_dir)).stdout == "ready\n"

    # One that is stopped hangs: it is left out, and said to be.
    stopped = pid_of(server, 2)
    os.kill(stopped, signal.SIGSTOP)
    try:
        told = program.at_machine("status")["server"]["workers"]
        assert [each["answers"] for each in told] == [True, False, True]
    finally:
        os.kill(stopped, signal.SIGCONT)


def tokens_given(server: Server) -> float:
    families = {each.name: each for each in text_string_to_metric_families(seen(server, "/metrics"))}
    return sum(
        each.value
        for each in families["ostiary_http_requests"].samples
        if each.labels["route"] == "/token" and each.labels["status"] == "200"
    )


def test_settings_that_change_are_read_by_all_and_what_is_wrong_with_them_is_said_once(
    with_agent: Program,
) -> None:
    file = with_agent.home / "ostiary.toml"
    good = file.read_text("utf-8")
    with serving(with_agent, "--auth", "none") as server:
        file.write_text(good + "prot = 5\n", "utf-8")
        until("a refusal", lambda: events(server, "settings.not_reloaded") or None)
        file.write_text(good.replace('name = "main"', 'name = "main"\n        title = "Another"'), "utf-8")
        until("the new ones", lambda: events(server, "settings.reloaded") or None)
        (refused,) = events(server, "settings.not_reloaded")
        assert "prot" in refused["problems"][0]
        assert not {"worker", "workers"} & refused.keys()
        (taken,) = events(server, "settings.reloaded")
        assert taken["servers"] == ["main"]
        state = with_agent.at_machine("status")["server"]["settings"]
        assert state["problems"] == []
        file.write_text(file.read_text("utf-8").replace(f"workers = {COUNT}", "workers = 5"), "utf-8")
        until("that it waits", lambda: events(server, "settings.wait_for_restart") or None)
        assert events(server, "settings.wait_for_restart")[0]["settings"] == ["workers"]
        # One that is started from now on begins as all began, and takes what they took.
        alone = (
            file.read_text("utf-8")
            .replace('store = "file:address"', "")
            .replace("workers = 5", "workers = 1")
        )
        file.write_text(alone, "utf-8")
        until("that both wait", lambda: len(events(server, "settings.wait_for_restart")) == 2 or None)
        os.kill(pid_of(server, 2), signal.SIGKILL)
        until("another", lambda: len(events(server, "worker.ready")) == COUNT + 1 or None)
        until("what it took", lambda: len(events(server, "settings.reloaded")) == 2 or None)
        late = events(server, "settings.reloaded")[1]
        assert (late["workers"], late["servers"]) == ([2], ["main"])
        for _ in range(6):
            assert "it is here" in called(port_of(server), "it is here")
    assert not (with_agent.data_dir / "ostiary.db").exists()


def test_the_command_of_the_page_serves_with_two_processes(program: Program) -> None:
    (line,) = blocks("docs/scale.md", {})["workers"].lines
    (program.home / "ostiary.toml").unlink()
    (program.home / "address").rename(program.home / "ostiary-database")
    words = line.replace("$HOME", str(program.home)).split()
    assert words[:2] == ["ostiary", "serve"]
    with serving(program, *words[2:]) as server:
        program.log_in(server)
        client = Handmade(server.url)
        assert client.works(program.tokens()["access_token"])
        client.close()
        assert len(program.at_machine("status")["server"]["workers"]) == 2
