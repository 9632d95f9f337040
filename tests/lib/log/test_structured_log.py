"""Log events: what is written, and what never is."""

import io
import json
import logging
import subprocess
import sys
from collections.abc import Callable
from typing import Literal

import pytest

from server.lib.log.log_lines import Lines
from server.lib.log.structured_log import make_logger, quieten_foreign_loggers

JWT = "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJ1c3IifQ.c2lnbmF0dXJl"


def test_an_event_is_one_json_line_with_time_and_level() -> None:
    out = io.StringIO()
    make_logger(level="info", style="json", stream=out).info("tool.called", tool="echo", ms=1.5)
    event = json.loads(out.getvalue())
    assert (event["event"], event["tool"], event["ms"], event["level"]) == (
        "tool.called",
        "echo",
        1.5,
        "info",
    )
    assert event["at"].endswith("+00:00")


def test_values_under_secret_names_are_masked_and_lower_levels_are_dropped() -> None:
    out = io.StringIO()
    log = make_logger(level="info", style="json", stream=out)
    log.debug("unseen")
    log.warning("odd", authorization="Bearer abc", user_code="WDJB-MJHT", client="cli")
    event = json.loads(out.getvalue())
    assert (event["authorization"], event["user_code"], event["client"]) == ("***", "***", "cli")


def test_a_traceback_is_scrubbed_of_credentials() -> None:
    out = io.StringIO()
    log = make_logger(level="info", style="json", stream=out)
    try:
        raise ValueError(f"could not use {JWT} nor rt1.gr_1.4.c2lnbmF0dXJl nor Bearer abcdefghijk")
    except ValueError:
        log.exception("broken")
    text = out.getvalue()
    assert "ValueError" in text
    assert "eyJ" not in text
    assert "rt1.gr_1" not in text
    assert "abcdefghijk" not in text


def test_foreign_loggers_speak_only_from_warning_and_are_scrubbed() -> None:
    out = io.StringIO()
    handlers, level = logging.getLogger().handlers[:], logging.getLogger().level
    try:
        quieten_foreign_loggers(make_logger(level="debug", style="json", stream=out))
        logging.getLogger("authlib.oauth2.rfc6749.grants").debug("Issue token %r", JWT)
        logging.getLogger("some.library").warning("odd token %s", JWT)
    finally:
        logging.getLogger().handlers[:] = handlers
        logging.getLogger().setLevel(level)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [line["event"] for line in lines] == ["library.reported"]
    assert JWT not in out.getvalue()


def python_calls(work: Callable[[], None]) -> int:
    """How many Python functions run in it."""
    calls = 0

    def count(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls - 1  # `work` itself


def test_a_line_costs_two_calls_and_one_that_nobody_wants_costs_one() -> None:
    out = io.StringIO()
    lines = Lines(out)
    log = make_logger(level="info", style="json", stream=out, lines=lines)
    with lines.held():
        log.info("tool.called", tool="echo")

        def tell(times: int = 100) -> None:
            for _ in range(times):
                log.info("tool.called", server="main", tool="echo", outcome="ok", ms=0.1)

        # The time is written anew for each millisecond.
        assert 200 <= python_calls(tell) <= 300
        assert python_calls(lambda: log.debug("unseen", tool="echo")) == 1


@pytest.mark.parametrize("style", ["json", "console"])
@pytest.mark.parametrize("form", ["true", "itself", "triple"])
def test_an_exception_is_shown_with_its_traceback_however_it_is_given(
    style: Literal["json", "console"], form: str
) -> None:
    out = io.StringIO()
    log = make_logger(level="info", style=style, stream=out)
    try:
        raise ValueError(f"broken by {JWT}")
    except ValueError as error:
        given = {"true": True, "itself": error, "triple": sys.exc_info()}[form]
        log.warning("odd", exc_info=given)
    log.warning("fine", exc_info=True)
    log.warning("fine", exc_info=None)
    text = out.getvalue()
    assert text.count("Traceback (most recent call last)") == 1
    assert "ValueError: broken by ***" in text
    assert "exc_info" not in text


def test_a_logger_loads_no_second_event_loop() -> None:
    script = (
        "import sys, server.lib.log.structured_log as logs\n"
        "logs.make_logger(level='info', style='json').info('x')\n"
        "print(sorted({'asyncio', 'structlog'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


STEERING = "a\x9b31mb\x9d0;c\x90d\u202ee\u2028f\x7fg\x1bh\U000e0001i"


@pytest.mark.parametrize("style", ["json", "console"])
@pytest.mark.parametrize("steering", [STEERING, f"{STEERING} b", "\x9b2J", "half\udc9b"])
def test_nothing_that_a_stranger_sends_steers_the_console_that_shows_the_log(
    style: Literal["json", "console"], steering: str
) -> None:
    class Rude:
        def __repr__(self) -> str:
            return steering

    out = io.StringIO()
    log = make_logger(level="info", style=style, stream=out)
    log.info("site.crashed", path=f"/{steering}", names=[steering], rude=Rude())
    try:
        raise ValueError(steering)
    except ValueError:
        log.exception("site.crashed", path=steering)
    assert out.getvalue().replace("\n", "").isprintable()
    if style == "json":
        first, second = (json.loads(line) for line in out.getvalue().splitlines())
        assert (first["path"], second["path"]) == (f"/{steering}", steering)


def test_what_a_stranger_sends_comes_in_the_letters_of_any_language() -> None:
    for style in ("json", "console"):
        out = io.StringIO()
        make_logger(level="info", style=style, stream=out).info("client.registered", name="Größe日本")
        assert "Größe日本" in out.getvalue()


def test_of_several_processes_each_line_says_whose_it_is_and_those_of_their_parent_stand_in_the_same_columns() -> (
    None
):
    out = io.StringIO()
    make_logger(level="info", style="json", stream=out, worker=2).info("agent.gone", agent="a")
    make_logger(level="info", style="json", stream=out, worker=0).info("worker.ready", worker=2)
    make_logger(level="info", style="json", stream=out).info("agent.gone", agent="a")
    of_worker, of_parent, alone = (json.loads(line) for line in out.getvalue().splitlines())
    assert (of_worker["worker"], of_parent["worker"], "worker" in alone) == (2, 2, False)
    shown = io.StringIO()
    for worker in (12, 3, 0, None):
        make_logger(level="info", style="console", stream=shown, worker=worker).info("agent.gone", agent="a")
    lines = [line[8:].split("a is no longer")[0] for line in shown.getvalue().splitlines()]
    assert [line.rstrip() for line in lines] == ["  12", "   3", "", ""]
    assert len(lines[0]) == len(lines[1]) == len(lines[2]) > len(lines[3])
