"""Signals, pipes and terminals: what a command does besides its result."""

from __future__ import annotations

import errno
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import click.termui
import pytest
import trio
from shell import WAIT_SECONDS, Terminal

from server.cli import local, terminal
from server.cli.manage.audit import table
from tests.client.fake_server import FakeServer, Response, Seen, as_json


async def on_a_terminal(shell: Terminal, *arguments: str, columns: int = 100, **environment: str) -> str:
    """Everything a command writes while both its streams are a terminal."""
    master, slave = pty.openpty()
    os.set_blocking(master, False)
    import fcntl
    import struct
    import termios

    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    written = b""
    with trio.fail_after(WAIT_SECONDS):
        async with trio.open_nursery() as nursery:
            process: trio.Process = await nursery.start(
                partial(
                    trio.run_process,
                    shell.command(arguments),
                    stdin=b"",
                    stdout=slave,
                    stderr=slave,
                    check=False,
                    env=shell.environment(TERM="xterm", **environment),
                )
            )
            os.close(slave)
            while True:
                await trio.lowlevel.wait_readable(master)
                try:
                    chunk = os.read(master, 65536)
                except OSError as error:
                    if error.errno == errno.EIO:  # the other side is closed
                        break
                    raise
                if not chunk:
                    break
                written += chunk
            await process.wait()
    os.close(master)
    return written.decode()


async def test_ctrl_c_ends_a_waiting_login_quietly_and_leaves_nothing(
    shell: Terminal, fake: FakeServer
) -> None:
    fake.pending = 1_000_000
    asked = trio.Event()

    async def device(request: Seen) -> Response:
        asked.set()
        return await fake.usual(request)

    fake.overrides["/device_authorization"] = device
    process = subprocess.Popen(
        shell.command(["login", fake.url]),
        env=shell.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with trio.fail_after(WAIT_SECONDS):
        await asked.wait()
        process.send_signal(signal.SIGINT)
        stdout, stderr = await trio.to_thread.run_sync(process.communicate)
    assert process.returncode == 130
    assert stdout == ""
    assert "error" not in stderr
    assert "Traceback" not in stderr
    assert not shell.config.exists()


async def test_a_reader_that_has_seen_enough_is_no_error(logged_in: Terminal, fake: FakeServer) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with trio.fail_after(WAIT_SECONDS):
        done = await trio.run_process(
            logged_in.command(["tools", fake.url, "--json"]),
            stdout=writer,
            capture_stderr=True,
            check=False,
            env=logged_in.environment(),
        )
    os.close(writer)
    assert done.returncode == 141
    assert done.stderr == b""


async def test_colour_is_for_terminals_only_and_can_be_switched_off(
    logged_in: Terminal, fake: FakeServer
) -> None:
    coloured = await on_a_terminal(logged_in, "whoami", fake.url)
    assert "\x1b[32mthe server accepts this login\x1b[0m" in coloured
    plain = await on_a_terminal(logged_in, "whoami", fake.url, NO_COLOR="1")
    assert "\x1b" not in plain
    assert "\x1b" not in (await logged_in.run("whoami", fake.url)).stdout


async def test_a_waiting_login_counts_down_on_a_terminal_and_wipes_the_line(
    shell: Terminal, fake: FakeServer
) -> None:
    fake.pending = 1
    screen = await on_a_terminal(shell, "login", fake.url, NO_COLOR="1")
    assert re.search(r"waiting for approval, (10:00|9:5\d) left, ctrl-c stops", screen)
    assert "\r\x1b[K✓ logged in to" in screen
    assert "█" not in screen  # a phone cannot reach this machine as 127.0.0.1


async def test_a_qr_code_is_drawn_on_request_and_only_where_it_fits(
    shell: Terminal, fake: FakeServer
) -> None:
    wide = await on_a_terminal(shell, "login", fake.url, "--qr")
    assert "\x1b[97;40m█████" in wide
    narrow = await on_a_terminal(shell, "login", fake.url, "--qr", columns=30)
    assert "█" not in narrow
    assert "WDJB-MJHT" in narrow


async def test_progress_is_drawn_on_a_terminal_and_is_gone_at_the_end(
    logged_in: Terminal, fake: FakeServer
) -> None:
    screen = await on_a_terminal(logged_in, "call", fake.url, "slow", NO_COLOR="1")
    assert "━━━━━━━━━━──────────  50%  halfway" in screen
    assert screen.endswith("\r\x1b[Kdone\r\n")


@pytest.mark.parametrize("to_terminal", [True, False])
async def test_a_tools_escape_sequences_reach_a_pipe_but_no_terminal(
    logged_in: Terminal, fake: FakeServer, to_terminal: bool
) -> None:
    async def hostile(request: Seen) -> Response:
        message = request.message
        if message["method"] != "tools/call":
            return await fake.usual(request)
        text = "one\ntwo\x1b]0;owned\x07\x1b[2J\u202e"
        result = {"content": [{"type": "text", "text": text}], "resultType": "complete"}
        return as_json({"jsonrpc": "2.0", "id": message["id"], "result": result})

    fake.overrides["/mcp"] = hostile
    if to_terminal:
        screen = await on_a_terminal(logged_in, "call", fake.url, "echo", "text=x", NO_COLOR="1")
        assert "one\r\ntwo\ufffd]0;owned\ufffd\ufffd[2J\ufffd" in screen
        assert "\x1b]" not in screen
    else:
        done = await logged_in.run("call", fake.url, "echo", "text=x")
        assert done.stdout == "one\ntwo\x1b]0;owned\x07\x1b[2J\u202e\n"


STEERING = "one\u009b2Jtwo\u202ethree\u2066four\u2028five\u007fsix\U000e0001"


@pytest.mark.parametrize("way", ["structured", "--json", "tools --json"])
async def test_json_on_a_terminal_steers_it_as_little_and_stays_json(
    logged_in: Terminal, fake: FakeServer, way: str
) -> None:
    async def hostile(request: Seen) -> Response:
        message = request.message
        if message["method"] == "tools/call":
            result: dict[str, Any] = {
                "content": [],
                "structuredContent": {"said": STEERING},
                "resultType": "complete",
            }
        elif message["method"] == "tools/list" and way.startswith("tools"):
            schema = {"type": "object"}
            result = {"tools": [{"name": "t", "description": STEERING, "inputSchema": schema}]}
        else:
            return await fake.usual(request)
        return as_json({"jsonrpc": "2.0", "id": message["id"], "result": result})

    fake.overrides["/mcp"] = hostile
    words = ["tools", fake.url] if way.startswith("tools") else ["call", fake.url, "echo", "text=x"]
    as_told = ["--json"] if way.endswith("--json") else []
    screen = await on_a_terminal(logged_in, *words, *as_told, NO_COLOR="1")
    shown = screen[screen.index("{") :].replace("\r\n", "")
    assert shown.isprintable()
    assert STEERING in json.dumps(json.loads(shown), ensure_ascii=False)


def test_nothing_that_is_said_steers_a_terminal_but_our_own_styles(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "is_terminal", lambda stream: True)
    terminal.out(f"\x1b[1mname\x1b[0m\t{STEERING}\x1b]0;owned\x07\n  second line")
    shown = capsys.readouterr().out
    assert shown.startswith("\x1b[1mname\x1b[0m\tone\ufffd2Jtwo\ufffd")
    assert shown.endswith("\ufffd]0;owned\ufffd\n  second line\n")
    assert "\u2028" not in shown and "\u202e" not in shown


async def test_a_bug_is_named_but_not_dumped(shell: Terminal) -> None:
    # A home that is a file makes the platform's directory impossible in a way that nobody foresaw.
    script = "import server.client.address as a\ndef no(x, **more): raise KeyError('dc-secret')\na.complete = no\nfrom server.cli import run\nraise SystemExit(run(['token', 'x']))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, env=shell.environment()
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == (
        "error: internal error: KeyError\nhint: this is a bug; OSTIARY_DEBUG=1 shows where it happened\n"
    )


def test_text_from_elsewhere_cannot_steer_a_terminal() -> None:
    assert terminal.clean("a\x1b[31mb\nc\td\u202ee\x9bf") == "a\ufffd[31mb c d\ufffde\ufffdf"
    assert terminal.clean("a\nb", keep_lines=True) == "a\nb"
    assert terminal.clean("Grüße, 世界") == "Grüße, 世界"


def test_columns_line_up_whatever_the_script_and_the_styling() -> None:
    assert terminal.columns([("a", "x"), ("世界", "y"), ("\x1b[1mabc\x1b[0m", "z")]) == [
        "a     x",
        "世界  y",
        "\x1b[1mabc\x1b[0m   z",
    ]
    assert terminal.columns([]) == []


@pytest.mark.parametrize(
    ("text", "room", "shown"),
    [
        ("short", 10, "short"),
        ("much too long", 8, "much to…"),
        ("世界世界", 5, "世界…"),
        ("a b c", 4, "a b…"),
    ],
)
def test_a_line_is_cut_to_the_room_there_is(text: str, room: int, shown: str) -> None:
    assert terminal.cut(text, room) == shown
    assert terminal.cells(terminal.cut(text, room)) <= room


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0 seconds"), (1, "1 second"), (90, "90 seconds"), (150, "2 minutes"), (3600, "1 hour"),
        (7300, "2 hours"), (86400, "1 day"), (400000, "4 days"), (-5, "0 seconds"),
    ],
)  # fmt: skip
def test_durations_are_said_roughly(seconds: float, said: str) -> None:
    assert terminal.duration(seconds) == said


def test_a_hint_spells_our_commands_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OSTIARY_PROGRAM", r"C:\tools\1\ostiary")
    assert terminal.as_started("`ostiary serve` or my-ostiary run, /ostiary x, is this an ostiary?") == (
        r"`C:\tools\1\ostiary serve` or my-ostiary run, /ostiary x, is this an ostiary?"
    )
    monkeypatch.delenv("OSTIARY_PROGRAM")
    assert terminal.as_started("ostiary serve") == "ostiary serve"


def test_a_question_is_asked_again_until_it_is_answered(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed, asked = iter(["what", " YES ", "", "n"]), list[str]()

    def answer(question: str) -> str:
        asked.append(question)
        return next(typed)

    monkeypatch.setattr(click.termui, "visible_prompt_func", answer)
    assert [terminal.confirmed("let it in") for _ in range(3)] == [True, False, False]
    assert {question.strip() for question in asked} <= {"let it in [y/N]:", ""}
    assert capsys.readouterr().err.replace("let it in [y/N]:", "").split("\n") == ["y or n?", ""]


def test_the_home_of_the_tests_is_not_the_users(shell: Terminal) -> None:
    assert Path(shell.environment()["HOME"]) != Path.home()


async def test_a_reader_that_has_seen_enough_is_no_error_where_output_is_not_buffered_either(
    logged_in: Terminal, fake: FakeServer
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with trio.fail_after(WAIT_SECONDS):
        done = await trio.run_process(
            logged_in.command(["tools", fake.url, "--json"]),
            stdout=writer,
            capture_stderr=True,
            check=False,
            env=logged_in.environment(PYTHONUNBUFFERED="1"),
        )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("unbuffered", ["", "1"])
async def test_a_full_disk_under_the_output_is_named_and_not_called_a_bug(
    logged_in: Terminal, fake: FakeServer, unbuffered: str
) -> None:
    with trio.fail_after(WAIT_SECONDS), Path("/dev/full").open("wb") as full:
        done = await trio.run_process(
            logged_in.command(["tools", fake.url]),
            stdout=full,
            capture_stderr=True,
            check=False,
            env=logged_in.environment(PYTHONUNBUFFERED=unbuffered),
        )
    assert done.returncode == 1
    assert done.stderr.endswith(b"error: no space left on device\n")
    assert b"bug" not in done.stderr


async def test_an_error_is_broken_between_words_on_a_terminal_and_never_in_a_pipe(shell: Terminal) -> None:
    told = "error: http to a-name-that-is-long.example would send tokens in the clear"
    screen = await on_a_terminal(
        shell, "tools", "http://a-name-that-is-long.example/mcp", columns=40, NO_COLOR="1"
    )
    lines = screen.replace("\r\n", "\n").split("\nhint:")[0].splitlines()
    assert " ".join(lines) == told
    assert all(len(line) <= 40 for line in lines)
    piped = await shell.run("tools", "http://a-name-that-is-long.example/mcp")
    assert piped.stderr.splitlines()[0] == told


async def test_a_question_that_nobody_can_answer_is_a_misuse_that_names_the_way_round(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    with pytest.raises(terminal.Misuse, match="nobody is here") as refused:
        terminal.agreed("end 2 logins", yes=False)
    assert refused.value.hint == "--yes goes ahead"
    assert capsys.readouterr().err == "end 2 logins [y/N]: \n"
    assert terminal.agreed("end 2 logins", yes=True)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert terminal.agreed("end 2 logins", yes=False), "an answer through a pipe is one"


async def test_a_record_is_broken_between_words_and_below_its_own_column(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pairs = [("client", "a program that anybody can claim to be"), ("from address", "127.0.0.1")]
    assert terminal.record(pairs, io.StringIO()) == [
        "client        a program that anybody can claim to be",
        "from address  127.0.0.1",
    ]
    monkeypatch.setattr(terminal, "width", lambda stream: 40)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    assert terminal.record(pairs, io.StringIO()) == [
        "client        a program that anybody can",
        "              claim to be",
        "from address  127.0.0.1",
    ]


def test_the_audit_trail_says_who_and_why_on_a_narrow_terminal_too() -> None:
    rows = [
        ("21 Nov 19:16:03", "user.locked", "refused", "user:usr_1", "-", "127.0.0.1", "the last owner"),
        ("21 Nov 19:12:55", "key.added", "ok", "local:setup", "ostiary-cli", "-", "-"),
    ]
    wide = table(rows, 120)
    assert len(wide) == 3 and wide[0].startswith("when") and wide[1].endswith("the last owner")
    assert table(rows, 60) == [
        "21 Nov 19:16:03  user.locked  refused",
        "    user:usr_1, from 127.0.0.1: the last owner",
        "21 Nov 19:12:55  key.added    ok",
        "    local:setup, ostiary-cli",
    ]
    assert all(len(line) <= 37 for line in table(rows, 37))


async def test_the_help_of_a_family_of_commands_is_not_cut(shell: Terminal) -> None:
    for family in ("users", "clients", "keys", "api-keys", "plans"):
        told = (await shell.run(family, "--help")).stdout
        assert "..." not in told.partition("commands:")[2], told
    assert "at most so many rows (50 unless told; 1 to 100000)" in " ".join(
        (await shell.run("audit", "--help")).stdout.split()
    )


async def test_what_was_given_ninety_days_a_moment_ago_has_ninety(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.cli.local.time.time", lambda: 1_000.0)
    for seconds, said in (
        (90 * 86_400 - 0.4, "90 days"),
        (599.0, "10 minutes"),
        (61.9, "61 seconds"),
        (-5.0, "0 seconds"),
    ):
        assert local.left(int((1_000 + seconds) * 1_000)) == said
