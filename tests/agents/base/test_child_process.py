"""A child process: how it is started, what becomes of what it prints, and how it is ended with all that it started."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import trio

from server.agents.base import child_process as processes
from server.agents.base.child_environment import child_environment, environment_problems
from server.agents.base.child_process import Child, LogAllowance, Speech, start_child
from server.settings.secret_reference import SecretUnreadable
from tests.agents.python.python_pair import Log, soon
from tests.killed_child import alive

PATIENCE = 60

# Finds `heard` and `said`: its two pipes.
PROLOGUE = (
    "import os, sys; heard, said = (os.fdopen(int(n), m) for n, m in zip(sys.argv[1:], ('rb', 'wb')))\n"
)


def start(log: Log, script: str) -> Child:
    def command(reading: int, writing: int) -> list[str]:
        return [sys.executable, "-u", "-c", PROLOGUE + dedent(script), str(reading), str(writing)]

    return start_child(command, {"ONLY": "this"}, name="main[1]", log=log.logger)


@asynccontextmanager
async def started(script: str, log: Log | None = None) -> AsyncGenerator[Child]:
    with trio.fail_after(PATIENCE):
        child = start(log or Log(), script)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(child.listen)
                yield child
                nursery.cancel_scope.cancel()
        finally:
            await child.aclose()


async def line_of(child: Child) -> Any:
    data = b""
    while not data.endswith(b"\n"):
        await child.output.news()
        chunk = child.output.read_some()
        assert chunk, "it said nothing more"
        data += chunk
    return json.loads(data)


async def test_it_hears_and_speaks_over_its_pipes_and_sees_nothing_but_its_environment() -> None:
    script = """
        import json
        word = heard.readline().decode().strip()
        told = [word, os.environ.get("ONLY"), "HOME" in os.environ, sys.stdin.read(), os.getsid(0) == os.getpid()]
        said.write(json.dumps(told).encode() + b"\\n"); said.flush(); heard.read()
    """
    async with started(script) as child:
        assert child.input.write_some(b"hello\n") == 6
        assert await line_of(child) == ["hello", "this", False, "", True]
        assert os.getsid(child.pid) != os.getsid(0)


async def test_a_program_that_is_not_there_is_an_os_error_and_leaves_no_descriptor_open() -> None:
    before = len(list(Path("/proc/self/fd").iterdir())) if sys.platform == "linux" else 0
    with pytest.raises(FileNotFoundError):
        start_child(lambda _, __: ["/nonexistent/python"], {}, name="main[1]", log=Log().logger)
    if before:
        assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize(
    ("script", "how"),
    [
        ("raise SystemExit(3)", "exit status 3"),
        ("os.kill(os.getpid(), 11)", "signal SIGSEGV"),
        ("os._exit(0)", "exit status 0"),
    ],
)
async def test_how_it_ended_is_told_in_a_few_words(script: str, how: str) -> None:
    async with started(script) as child:
        assert await child.ended() == how
        assert await child.ended() == how


async def test_the_end_of_its_input_is_enough_for_one_that_listens() -> None:
    async with started("heard.read()") as child:
        pass
    assert await child.ended() == "exit status 0"


async def test_one_that_does_not_care_is_ended_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "GRACE_SECONDS", 0.2)
    monkeypatch.setattr(processes, "TERM_SECONDS", 0.2)
    script = """
        import signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        said.write(b"1\\n"); said.flush()
        while True: time.sleep(100)
    """
    async with started(script) as child:
        await line_of(child)
    assert not alive(child.pid)
    assert await child.ended() == "signal SIGKILL"


@pytest.mark.parametrize("end", ["heard.read()", "os.kill(os.getpid(), 9)"])
async def test_what_it_started_ends_with_it_however_it_ends(end: str) -> None:
    script = f"""
        import subprocess
        grandchild = subprocess.Popen(["sleep", "1000"])
        said.write(b"%d\\n" % grandchild.pid); said.flush()
        {end}
    """
    async with started(script) as child:
        grandchild = await line_of(child)
    with trio.fail_after(PATIENCE):
        await soon(lambda: not alive(grandchild))
    assert not alive(child.pid)


async def test_what_it_said_last_is_heard_where_nobody_listens_any_more() -> None:
    log = Log()
    with trio.fail_after(PATIENCE):
        child = start(log, 'print("its last")')
        await child.aclose()
    assert [event["line"] for event in log.of("agent.said")] == ["its last"]


async def test_it_is_ended_even_while_everything_is_being_cancelled() -> None:
    pids: list[int] = []
    with trio.CancelScope() as scope:
        async with started("heard.read()") as child:
            pids.append(child.pid)
            scope.cancel()
            await trio.sleep_forever()
    assert [alive(pid) for pid in pids] == [False]


async def test_ctrl_c_in_our_terminal_is_not_its_business() -> None:
    async with started("heard.read()") as child:
        assert os.getpgid(child.pid) == child.pid != os.getpgid(0)


# ── what it prints ──


async def test_what_it_prints_is_in_the_log_line_by_line_whichever_stream_it_took() -> None:
    script = """
        print("to stdout"); print("to stderr", file=sys.stderr); print(); print("no end", end="")
        sys.stdout.flush(); os._exit(0)
    """
    log = Log()
    async with started(script, log) as child:
        await soon(lambda: len(log.of("agent.said")) == 3)
        assert child.last_words() == "; it said: to stdout / to stderr / no end"
    assert [(event["line"], event["level"], event["agent"]) for event in log.of("agent.said")] == [
        ("to stdout", "info", "main[1]"),
        ("to stderr", "info", "main[1]"),
        ("no end", "info", "main[1]"),
    ]


def test_lines_are_bounded_made_printable_and_decoded_whatever_they_are() -> None:
    log = Log()
    speech = Speech(LogAllowance(log.logger, "main[1]", lambda: 0.0))
    speech.feed(b"a" * 10_000)
    speech.feed(b"a" * 10_000 + b"\nb\x1b[31mred\x1b[0m\tc\r\n\xff\xfe\n")
    first, second, third = (event["line"] for event in log.of("agent.said"))
    assert first == "a" * processes.LINE_BYTES + "…"
    assert second == "b [31mred [0m c"
    assert third == "\ufffd\ufffd"
    assert len(speech.last[0]) == processes.SHOWN_CHARACTERS


def test_who_prints_without_end_is_heard_in_part_and_the_rest_is_counted() -> None:
    log, now = Log(), 0.0
    speech = Speech(LogAllowance(log.logger, "main[1]", lambda: now))
    speech.feed(b"x\n" * 1000)
    assert len(log.of("agent.said")) == processes.LINES_PER_SECOND
    assert log.of("agent.says_too_much") == []
    now = 1.0
    speech.feed(b"again\n")
    assert log.of("agent.says_too_much")[0]["lines"] == 900
    assert log.of("agent.said")[-1]["line"] == "again"
    speech.feed(b"x\n" * 110)
    speech.end()
    assert [event["lines"] for event in log.of("agent.says_too_much")] == [900, 11]


# ── what it sees ──

OURS = {
    "PATH": "/usr/bin",
    "HOME": "/people/ada",
    "LC_ALL": "C",
    "AWS_SECRET_ACCESS_KEY": "s3cret",
    "OSTIARY_KEY": "s3cret",
    "_PYI_ARCHIVE_FILE": "/x",
    "_MEIPASS2": "/x",
    "LD_LIBRARY_PATH": "/tmp/_MEI1",
}


def test_a_child_sees_what_programs_need_and_no_secret_of_ours() -> None:
    assert child_environment((), OURS) == {
        "PATH": "/usr/bin",
        "HOME": "/people/ada",
        "LC_ALL": "C",
        "LD_LIBRARY_PATH": "/tmp/_MEI1",
    }


@pytest.mark.parametrize(("before", "seen"), [({}, None), ({"LD_LIBRARY_PATH_ORIG": "/opt/lib"}, "/opt/lib")])
def test_a_child_of_the_executable_gets_its_own_libraries(before: dict[str, str], seen: str | None) -> None:
    wanted = ("LD_LIBRARY_PATH", "_MEIPASS2", "LD_LIBRARY_PATH_ORIG")
    environment = child_environment(wanted, OURS | before, frozen=True)
    assert environment.get("LD_LIBRARY_PATH") == seen
    assert environment.keys() <= {"PATH", "HOME", "LC_ALL", "LD_LIBRARY_PATH"}


def test_named_variables_are_passed_on_where_they_are_set() -> None:
    environment = child_environment(("OSTIARY_KEY", "NOT_SET"), OURS)
    assert environment["OSTIARY_KEY"] == "s3cret"
    assert "NOT_SET" not in environment


def test_a_table_gives_values_that_may_be_references(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_KEY", "from env")
    (tmp_path / "key").write_text("from file\n", "utf-8")
    written = {"A": "env:AGENT_KEY", "B": f"file:{tmp_path}/key", "C": "plain", "PATH": "/opt"}
    environment = child_environment(written, OURS)
    assert environment | {"HOME": ""} == {
        "A": "from env", "B": "from file", "C": "plain", "PATH": "/opt", "HOME": "", "LC_ALL": "C",
        "LD_LIBRARY_PATH": "/tmp/_MEI1",
    }  # fmt: skip
    with pytest.raises(SecretUnreadable):
        child_environment({"A": "env:NOT_SET_ANYWHERE"}, OURS)


def test_what_is_no_environment_is_said_without_its_values() -> None:
    written = {"A B": "s3cret", "C": "s3cret\0"}
    (name, value) = environment_problems(written)
    assert name == ("environment", "'A B' is not the name of a variable")
    assert value[0] == "environment.C" and "zero byte" in value[1]
    assert environment_problems(["A=B"]) == [("environment", "'A=B' is not the name of a variable")]
    assert environment_problems([f"V{n}" for n in range(101)]) == [
        ("environment", "has more than 100 entries")
    ]
    assert environment_problems(()) == []
