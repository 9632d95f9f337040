"""The log for people: what a line looks like, at every width, and what of an event it says."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path
from typing import Any

import pytest

from server.lib.log import console_log
from server.lib.log.console_log import Look
from server.lib.log.log_sentences import SENTENCES
from server.lib.log.structured_log import make_logger
from server.lib.log.terminal_columns import cells

ROOT = Path(__file__).parent.parent.parent.parent
TIME = r"\d\d:\d\d:\d\d"
CALL: dict[str, Any] = {
    "tool": "ask_model",
    "outcome": "ok",
    "ms": 4.2,
    "principal": "user",
    "client": "ostiary-cli",
    "grant": "gr_abc",
    "request": "91d7-1",
    "person": "vera",
    "program": "ostiary",
    "reason": "",
}
FAILED: dict[str, Any] = {**CALL, "outcome": "failed", "reason": "agent answered 500: upstream exploded"}


def drawn(event: str, level: str = "info", *, width: int | None = None, **fields: Any) -> str:
    """Without the time."""
    text = console_log.line(level, event, fields, None, Look(width=lambda: width))
    assert re.match(TIME, text)
    return re.sub(TIME, "", text, count=1)


def test_a_call_says_what_how_long_whose_and_why() -> None:
    assert drawn("tool.called", **CALL) == "  ✓ ask_model            4 ms  vera · ostiary\n"
    assert drawn("tool.called", "warning", **FAILED) == (
        "  ✗ ask_model            4 ms  vera · ostiary          agent answered 500: upstream exploded\n"
    )


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"outcome": "asked"}, "? ask_model            4 ms  vera · ostiary          asks back"),
        (
            {"outcome": "cancelled"},
            "– ask_model            4 ms  vera · ostiary          its caller has left",
        ),
        ({"outcome": "replayed", "ms": 0.04}, "✓ ask_model          0.0 ms  vera · ostiary"),
        ({"ms": 61_000.0}, "✓ ask_model            61 s  vera · ostiary"),
        ({"person": "anonymous", "program": ""}, "✓ ask_model            4 ms  anonymous"),
        (
            {"tool": "a_tool_with_a_long_name"},
            "✓ a_tool_with_a_long_name     4 ms  vera · ostiary",
        ),
        ({"outcome": "timeout"}, "✗ ask_model            4 ms  vera · ostiary          timeout"),
    ],
)
def test_a_call_has_a_mark_for_what_became_of_it(changes: dict[str, Any], expected: str) -> None:
    assert drawn("tool.called", **{**CALL, **changes}) == f"  {expected}\n"


@pytest.mark.parametrize("width", [40, 60, 80, 98, 99, 100, 101, 102, 120])
def test_no_line_is_wider_than_the_terminal_and_why_a_call_failed_is_still_said(width: int) -> None:
    text = console_log.line("warning", "tool.called", FAILED, None, Look(width=lambda: width))
    whole = cells(console_log.line("warning", "tool.called", FAILED, None, Look()).rstrip("\n"))
    lines = text.splitlines()
    assert all(cells(line) <= width for line in lines)
    assert len(lines) == (1 if width >= whole else 2)
    assert "agent answered 500" in lines[-1]


def test_a_wide_letter_takes_two_columns() -> None:
    wide: dict[str, Any] = {**CALL, "person": "日本" * 20}
    line = console_log.line("info", "tool.called", wide, None, Look(width=lambda: 60)).rstrip("\n")
    assert 58 <= cells(line) <= 60
    assert line.endswith("…")


def test_what_is_piped_is_not_cut_nor_broken() -> None:
    long: dict[str, Any] = {**FAILED, "reason": "why " * 100}
    line = drawn("tool.called", "warning", **long)
    assert line.count("\n") == 1
    assert line.endswith("why why\n")


def test_what_an_agent_prints_is_not_cut_for_it_may_end_in_why() -> None:
    said = "x" * 200
    assert said in drawn("agent.said", width=80, agent="main[1]", line=said)


@pytest.mark.parametrize(
    ("event", "level", "fields", "expected"),
    [
        ("agent.ended", "error", {"agent": "main[2]", "reason": "exit status 3"}, "✗ main[2] has ended: exit status 3"),
        ("server.draining", "info", {"seconds": 10.0}, "  stopping: calls that run have 10 s to end"),
        ("clock.jumped", "warning", {"seconds": 7}, "! somebody has set the clock by 7 s"),
        ("upstream.left_out", "warning", {"agent": "a", "kind": "tools", "count": 9, "which": list("abcdefg")},
         "! a: 9 tools are left out: a, b, c, d, e and 2 more"),
        ("upstream.lost", "warning", {"agent": "a", "reason": "cannot be reached: nobody answers there"},
         "! a cannot be reached: nobody answers there"),
        # Nothing is lost of what has no sentence, but ids are.
        ("novel.event", "info", {"path": "/a b", "count": 3, "request": "91d7-1"}, "  novel event count=3 path='/a b'"),
        # Of another version: without the field that the sentence wants.
        ("agent.ended", "error", {"agent": "main[2]"}, "✗ agent ended agent=main[2]"),
        ("identity.device.approved", "info",
         {"outcome": "ok", "actor": "user:usr_1", "who": "vera", "program": "ostiary on vm", "client": "ostiary-cli", "ip": "127.0.0.1",
          "reason": "dev_1"}, "● vera let in ostiary on vm, which asked from 127.0.0.1"),
        ("identity.user.signed_in", "info",
         {"outcome": "refused", "actor": "anonymous", "ip": "192.0.2.1", "reason": "wrong name or passphrase"},
         "! user signed in was refused: anonymous: wrong name or passphrase, from 192.0.2.1"),
        ("identity.novel", "info", {"outcome": "ok", "who": "vera", "reason": "why"}, "● novel: vera: why"),
        # Names may have what a form could take for its own.
        ("agent.ended", "error", {"agent": "{reason}", "reason": "{agent}"}, "✗ {reason} has ended: {agent}"),
    ],
)  # fmt: skip
def test_an_event_is_a_sentence(event: str, level: str, fields: dict[str, Any], expected: str) -> None:
    assert drawn(event, level, **fields) == f"  {expected}\n"


def test_whoever_wants_everything_sees_ids_and_the_name_of_the_event_behind_the_rest() -> None:
    text = console_log.line("warning", "tool.called", FAILED, None, Look(everything=True, width=lambda: None))
    assert text.endswith(
        "agent answered 500: upstream exploded  (tool.called) client=ostiary-cli grant=gr_abc principal=user request=91d7-1\n"
    )


def test_a_traceback_stays_as_it_is_below_its_line() -> None:
    trace = 'Traceback (most recent call last):\n  File "a.py", line 1\n\tValueError: \x1b[2J no\n'
    line = drawn("agent.broken", "warning", width=80, agent="main[1]", traceback=trace)
    assert line == (
        '  ! main[1] cannot be loaded\nTraceback (most recent call last):\n  File "a.py", line 1\n\tValueError: \\u001b[2J no\n'
    )


def test_every_sentence_has_only_braces_of_fields() -> None:
    for event, form in SENTENCES.items():
        names = re.findall(r"{(\w+)}", form)
        assert form.format_map(dict.fromkeys(names, "x")), event


def test_an_upstreams_want_is_said_once_with_the_command_that_mends_it() -> None:
    for reason in "wants a login", "does not accept its login any more":
        line = drawn("upstream.login_wanted", "warning", upstream="main[1]", reason=reason)
        assert line.count("login") == reason.count("login") + 1
        assert "ostiary upstream login main[1]" in line


def test_a_price_that_nobody_is_asked_for_names_its_tools_and_the_way_out() -> None:
    line = drawn("price.unheard", "warning", server="main", tools=["look"], count=1, hint="the way out")
    assert "look" in line and "the way out" in line and "unheard" not in line


def test_pages_are_told_of_only_at_debug_and_ids_only_when_asked_for() -> None:
    for level, seen in (("info", False), ("debug", True)):
        out = io.StringIO()
        log = make_logger(level=level, style="console", stream=out)  # type: ignore[arg-type]
        log.info("http.request", method="GET", path="/", status=200, ms=1.5, ip="127.0.0.1", request="1-1")
        assert (out.getvalue() != "") is seen
        assert "1-1" not in out.getvalue()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_colours_unless_somebody_wants_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    coloured, plain = Terminal(), Terminal()
    make_logger(level="info", style="auto", stream=coloured).warning("tool.called", **FAILED)
    monkeypatch.setenv("NO_COLOR", "1")
    make_logger(level="info", style="auto", stream=plain).warning("tool.called", **FAILED)
    assert "\x1b[31m✗\x1b[0m" in coloured.getvalue()
    assert re.sub(r"\x1b\[\d*m", "", coloured.getvalue()) == plain.getvalue()


def test_marks_are_plain_where_the_terminal_cannot_draw() -> None:
    class Old(Terminal):
        encoding = "latin-1"  # type: ignore[assignment]

    assert console_log.look_of(Old(), everything=False).marks["well"] == "+"


def test_a_new_day_has_a_line_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    days = iter([(2026, 11, 23), (2026, 11, 23), (2026, 11, 24), (2026, 11, 24)])
    monkeypatch.setattr(time, "localtime", lambda: time.struct_time((*next(days), 0, 0, 1, 0, 0, 0)))
    out = io.StringIO()
    log = make_logger(level="info", style="console", stream=out)
    for _ in range(3):
        log.info("server.stopped")
    lines = out.getvalue().splitlines()
    assert len(lines) == 4
    assert lines[1].endswith("24 November 2026")


def test_the_width_is_that_of_the_terminal_itself() -> None:
    leader, follower = os.openpty()
    with os.fdopen(leader, "rb"), os.fdopen(follower, "w", encoding="utf-8") as out:
        look = console_log.look_of(out, everything=False)
        os.environ.pop("COLUMNS", None)
        import fcntl
        import struct
        import termios

        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 97, 0, 0))
        assert look.width() == 97


def test_the_documentation_shows_lines_as_they_are() -> None:
    text = (ROOT / "docs" / "operating.md").read_text("utf-8")
    shown = (
        text.partition("On a terminal the log is for people")[2].partition("```text\n")[2].partition("```")[0]
    )
    let_in: dict[str, Any] = {
        "outcome": "ok",
        "who": "vera",
        "program": "ostiary on rowan",
        "ip": "127.0.0.1",
    }
    failed: dict[str, Any] = {
        **CALL,
        "outcome": "failed",
        "ms": 2,
        "reason": "agent endpoint 500: upstream exploded",
    }
    expected = (
        drawn("identity.device.approved", **let_in),
        drawn("tool.called", **CALL),
        drawn("tool.called", "warning", **failed),
        drawn("agent.ended", "error", agent="main[2]", reason="exit status 3"),
    )
    assert re.sub(f"^{TIME}", "", shown, flags=re.MULTILINE) == "".join(expected)
