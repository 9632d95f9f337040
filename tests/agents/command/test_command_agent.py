"""Tools that are commands, with real programs behind them."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from command_pair import ENVIRONMENT, PYTHON, Log, Silent, call, code, command, soon

from server.agents.base.backend import ToolCall
from server.agents.command.command_agent import CommandBackend, CommandConfig, problems
from server.mcp.call_failures import BackendError
from server.settings.settings_reader import load
from tests.agents.python.python_pair import text_of
from tests.killed_child import alive


async def test_what_a_program_prints_is_the_answer_and_its_arguments_are_words() -> None:
    backend = command(
        code(
            "print(sys.argv[1:])",
            "{city}",
            ["--days", "{days}"],
            input={"city": "string", "days": "integer?"},
        )
    )
    assert text_of(await call(backend, city="a b; $(id) *")) == "['a b; $(id) *']"
    assert text_of(await call(backend, city="x", days=3)) == "['x', '--days', '3']"
    refused = await call(backend, city="-x")
    assert refused.is_error
    assert text_of(refused) == "Invalid arguments.\ncity: must not begin with a dash"


async def test_a_tool_is_described_as_its_settings_say() -> None:
    backend = command(
        code("", title="Do", description="Does.", input={"a": "string?"}, read_only=True, task="optional"),
        deadline_seconds=7,
    )
    (tool,) = backend.tools()
    assert (tool.title, tool.description) == ("Do", "Does.")
    assert tool.input_schema["properties"] == {"a": {"type": "string"}}
    assert tool.annotations
    assert tool.annotations.read_only_hint is True
    assert tool.execution
    assert tool.execution.task_support == "optional"
    assert backend.deadline("do") is None
    assert command(code("", deadline_seconds=3)).deadline("do") == 3


async def test_a_program_sees_its_folder_its_environment_and_nothing_to_read(tmp_path: Path) -> None:
    backend = command(
        code(
            "print(json.dumps([os.getcwd(), sorted(set(os.environ) - {'LC_CTYPE'}), sys.stdin.read()]))",
            stdout="json",
        ),
        cwd=str(tmp_path),
    )
    assert (await call(backend)).structured == [str(tmp_path), sorted(ENVIRONMENT), ""]


async def test_arguments_go_to_standard_input_whole_or_one_of_them() -> None:
    whole = command(
        code(
            "print(json.load(sys.stdin))",
            stdin="json",
            input={"a": "integer", "b": {"type": "string", "default": "x"}},
        )
    )
    assert text_of(await call(whole, a=1)) == "{'b': 'x', 'a': 1}"
    one = command(code("print(len(sys.stdin.read()))", stdin="{text}", input={"text": "string?"}))
    assert text_of(await call(one, text="é" * 500_000)) == "500000"
    assert text_of(await call(one)) == "0"


async def test_a_program_need_not_read_what_it_is_given() -> None:
    backend = command(code("print('done')", stdin="{text}", input={"text": "string"}))
    assert text_of(await call(backend, text="x" * 1_000_000)) == "done"


async def test_json_is_a_structured_answer_and_must_be_what_was_promised() -> None:
    backend = command(
        code(
            "print(sys.argv[1])",
            "{said}",
            input={"said": "string"},
            stdout="json",
            output={"degrees": "number"},
        )
    )
    answer = await call(backend, said='{"degrees": 7}')
    assert (answer.structured, text_of(answer)) == ({"degrees": 7}, '{"degrees": 7}')
    for said, why in (("{", "not JSON"), ('{"degrees": "7"}', "promises"), ("[" * 100_000, "not JSON")):
        with pytest.raises(BackendError, match=why) as error:
            await call(backend, said=said)
        assert "degrees" not in str(error.value)


async def test_bytes_that_are_no_text_become_some() -> None:
    backend = command(code(r"sys.stdout.buffer.write(b'a\xff\r\n')"))
    assert text_of(await call(backend)) == "a\ufffd"


async def test_an_exit_status_is_a_failure_that_keeps_what_the_program_said_to_itself() -> None:
    log = Log()
    text = "sys.stderr.write('no such \\x1b[31mcity\\n'); print('partly'); sys.exit(3)"
    hidden, shown = command(code(text), log=log), command(code(text, show_stderr=True))
    answer = await call(hidden)
    assert answer.is_error
    assert text_of(answer) == "do failed (exit status 3)."
    assert [event["line"] for event in log.of("agent.said")] == ["no such  [31mcity"]
    assert [event["how"] for event in log.of("agent.command_failed")] == ["exit status 3"]
    assert text_of(await call(shown)) == "do failed (exit status 3).\nno such  [31mcity"
    fine = command(code(text, success=[0, 3]))
    assert text_of(await call(fine)) == "partly"


async def test_whoever_prints_too_much_is_ended(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    backend = command(
        code("open(sys.argv[1], 'w').write(str(os.getpid()))\nwhile True: print('x' * 1000)", str(mark)),
        output_kib=64,
    )
    with pytest.raises(BackendError, match="printed more than 64 KiB"):
        await call(backend)
    assert not alive(int(mark.read_text()))


async def test_what_a_program_started_ends_with_it(tmp_path: Path) -> None:
    # It holds on to the output, so that its end never comes by itself.
    text = "child = __import__('subprocess').Popen(['sleep', '1000'])\nprint(child.pid)"
    backend = command(code(text))
    pid = int(text_of(await call(backend)))
    await soon(lambda: not alive(pid))


async def test_a_daemon_that_holds_on_to_the_output_holds_up_nobody() -> None:
    text = (
        "child = __import__('subprocess').Popen(['sleep', '1000'], start_new_session=True)\nprint(child.pid)"
    )
    pid = int(text_of(await call(command(code(text)))))
    assert alive(pid)
    os.kill(pid, signal.SIGKILL)


async def test_a_cancelled_call_ends_its_program_and_all_that_it_started(tmp_path: Path) -> None:
    mark = tmp_path / "pids"
    text = (
        "child = __import__('subprocess').Popen(['sleep', '1000'])\n"
        "signal = __import__('signal')\n"
        "signal.signal(signal.SIGTERM, lambda *_: (open(sys.argv[2], 'w').close(), sys.exit()))\n"
        "open(sys.argv[1] + '.new', 'w').write(f'{os.getpid()} {child.pid}'); os.rename(sys.argv[1] + '.new', sys.argv[1])\n"
        "time.sleep(1000)"
    )
    backend = command(code(text, str(mark), str(tmp_path / "told")))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(call, backend)
        await soon(mark.exists)
        nursery.cancel_scope.cancel()
    assert (tmp_path / "told").exists()
    pids = [int(pid) for pid in mark.read_text().split()]
    await soon(lambda: not any(map(alive, pids)))


async def test_a_program_that_ignores_its_end_is_ended_nevertheless(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    text = (
        "signal = __import__('signal'); signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "open(sys.argv[1] + '.new', 'w').write(str(os.getpid())); os.rename(sys.argv[1] + '.new', sys.argv[1])\n"
        "time.sleep(1000)"
    )
    backend = command(code(text, str(mark)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(call, backend)
        await soon(mark.exists)
        nursery.cancel_scope.cancel()
    assert not alive(int(mark.read_text()))


async def test_further_calls_wait_for_their_turn(tmp_path: Path) -> None:
    text = "open(sys.argv[1], 'a').write('+'); sys.stdin.read(); open(sys.argv[1], 'a').write('-')"
    backend = command(
        code(text, str(tmp_path / "said"), stdin="{text}", input={"text": "string"}), calls_at_once=1
    )
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(lambda: call(backend, text="x"))
    assert (tmp_path / "said").read_text() == "+-" * 5


async def test_whoever_waits_too_long_is_told(autojump_clock: trio.testing.MockClock) -> None:
    backend = command(code(""), calls_at_once=1)
    async with backend._places.taken("", unhurried=False):  # pyright: ignore[reportPrivateUsage] - a program would need real time
        with pytest.raises(BackendError, match="busy"):
            await backend.call(ToolCall(tool="do", arguments={}, subject="u", call_id="c"), Silent())


# ── what it may take ──


@pytest.mark.parametrize(
    ("limits", "text", "how"),
    [
        ({"cpu_seconds": 1}, "while True: pass", "more processor time"),
        ({"memory_mib": 200}, "b = bytearray(1 << 29)", "exit status 1"),
        ({"open_files": 16}, "f = [open('/dev/null') for _ in range(20)]", "exit status 1"),
        (
            {"file_mib": 1},
            "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_DFL); f = open(sys.argv[1], 'wb'); f.write(b'x' * (1 << 21))",
            "a larger file",
        ),
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="what can be bounded differs")
async def test_a_program_is_held_to_its_limits(
    limits: dict[str, int], text: str, how: str, tmp_path: Path
) -> None:
    backend = command(code(text, str(tmp_path / "file")), limits=limits)
    answer = await call(backend)
    assert answer.is_error
    assert text_of(answer).startswith("do failed (") and how in text_of(answer)


async def test_limits_change_no_word_and_keep_the_programs_identity() -> None:
    limits = {"cpu_seconds": 60, "memory_mib": 4096, "file_mib": 10, "open_files": 64, "processes": 10_000}
    words = ["--", "a b", "$HOME", "`id`", "", "'\"\\"]
    backend = command(code("print(json.dumps(sys.argv[1:]))", *words, stdout="json"), limits=limits)
    assert (await call(backend)).structured == words


@pytest.mark.parametrize("limits", [{}, {"cpu_seconds": 10}])
async def test_a_program_that_is_gone_is_named_to_its_owner(limits: dict[str, int], tmp_path: Path) -> None:
    program, log = tmp_path / "tool", Log()
    program.write_text(f"#!{PYTHON}\nprint('here')\n")
    program.chmod(0o755)
    backend = command({"name": "do", "run": [str(program)]}, limits=limits, log=log)
    assert text_of(await call(backend)) == "here"
    program.rename(tmp_path / "away")
    with pytest.raises(BackendError, match="cannot be started"):
        await call(backend)
    trouble = backend.trouble()
    assert trouble
    assert trouble.words == "its program cannot be started: no such file or directory"
    assert trouble.since > 1_600_000_000_000
    (tmp_path / "away").rename(program)
    await call(backend)
    assert backend.trouble() is None


# ── settings ──


def faults(*tools: dict[str, Any], **settings: Any) -> list[str]:
    config = msgspec.convert({**settings, "tool": list(tools)}, CommandConfig)
    return [f"{key}: {what}" for key, what in problems(config)]


@pytest.mark.parametrize(
    ("tool", "fault"),
    [
        ({"run": ["a"]}, "tool[1].name: is missing"),
        ({"name": "a"}, "tool[1].run: is missing"),
        ({"name": "a b", "run": ["a"]}, "tool[1]: cannot be offered"),
        ({"name": "a", "run": ["a", "{x}"]}, "tool[1].run: has {x}, which is no argument"),
        ({"name": "a", "run": ["a"], "stdin": "{x}"}, "tool[1].stdin: has {x}, which is no argument"),
        (
            {"name": "a", "run": ["a", "{x}"], "input": {"x": "string?"}},
            "tool[1].run: has {x}, which callers may leave",
        ),
        ({"name": "a", "run": ["a"], "input": {"x": "text"}}, "tool[1].input: x: is none of"),
        ({"name": "a", "run": ["a"], "output": {"x": "string"}}, "tool[1].output: describes JSON"),
        ({"name": "a", "run": ["a"], "task": "by_hand"}, "tool[1].task: cannot be"),
        ({"name": "a", "run": ["a"], "stdin": "{"}, "tool[1].stdin: has a lone brace"),
        (
            {"name": "a", "run": ["sh", "-c", "{x}"], "input": {"x": "string"}},
            "tool[1].run: would let callers",
        ),
        ({"name": "a", "run": ["a"], "input": '{"type": "array"}'}, "tool[1]: cannot be offered"),
    ],
)
def test_what_is_wrong_with_a_tool_is_said_by_its_key(tool: dict[str, Any], fault: str) -> None:
    (found,) = faults(tool)
    assert found.startswith(fault)


def test_what_is_wrong_with_all_of_them_is_said_too() -> None:
    assert faults()[0].startswith("tool: is missing")
    assert "used twice" in faults({"name": "a", "run": ["a"]}, {"name": "a", "run": ["a"]})[0]
    assert faults({"name": "a", "run": ["a"]}, limits={"open_files": 2})[0].startswith("limits.open_files")
    assert faults({"name": "a", "run": ["a"]}, environment=["A B"])[0].startswith("environment")
    assert (
        faults({"name": "a", "run": ["a", "{x}"], "input": {"x": {"type": "string", "default": "y"}}}) == []
    )


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (
            {"tool": [{"name": "a", "run": ["no-such-program-here"]}]},
            "there is no program no-such-program-here",
        ),
        ({"tool": [{"name": "a", "run": ["./none"]}]}, r"there is no program \./none"),
        ({"tool": [{"name": "a", "run": ["sh"]}], "cwd": "/nowhere"}, "there is no folder /nowhere"),
    ],
)
def test_what_is_not_on_this_machine_is_an_error_at_once(settings: dict[str, Any], why: str) -> None:
    config = msgspec.convert(settings, CommandConfig)
    with pytest.raises(ValueError, match=why):
        CommandBackend(config, environment=ENVIRONMENT, name="main[1]", log=Log().logger)


def test_settings_that_are_printed_show_no_value_of_the_environment() -> None:
    config = msgspec.convert({"environment": {"KEY": "s3cret"}}, CommandConfig)
    assert "s3cret" not in repr(config)


async def test_the_first_example_of_its_page_works(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "agents" / "command.md").read_text("utf-8")
    file = tmp_path / "ostiary.toml"
    file.write_text(page.partition("```toml\n")[2].partition("```")[0], "utf-8")
    (agent,) = load(file, {}).servers[0].agents
    assert isinstance(agent, CommandConfig)
    backend = CommandBackend(agent, environment=ENVIRONMENT, name="main[1]", log=Log().logger)
    assert text_of(await call(backend, "count_words", text="three small words")).strip() == "3"
    assert text_of(await call(backend, "sort_lines", text="b 1\na 2\n", column=2)) == "b 1\na 2"
    assert text_of(await call(backend, "sort_lines", text="b\na\n")) == "a\nb"
