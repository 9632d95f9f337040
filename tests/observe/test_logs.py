"""Log events: what is written, and what never is."""

import io
import json
import logging
from typing import Literal

import pytest

from server.observe.logs import LINES_HELD, Lines, make_logger, quieten_foreign_loggers

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


class Gone(io.StringIO):
    """A log whose reader has left, or whose disk is full."""

    def write(self, text: str, /) -> int:
        raise BrokenPipeError


@pytest.mark.parametrize("style", ["json", "console"])
def test_a_line_that_nobody_can_take_is_dropped_and_whoever_logs_goes_on(
    style: Literal["json", "console"],
) -> None:
    make_logger(level="info", style=style, stream=Gone()).info("tool.called")


def test_ordinary_lines_wait_for_the_flush_that_was_promised_and_a_warning_takes_them_along() -> None:
    out = io.StringIO()
    lines = Lines(out)
    log = make_logger(level="info", style="json", stream=out, lines=lines)
    log.info("at once")
    assert out.getvalue().count("\n") == 1
    with lines.held():
        log.info("waits")
        assert out.getvalue().count("\n") == 1
        log.warning("now")
        assert [json.loads(line)["event"] for line in out.getvalue().splitlines()] == [
            "at once",
            "waits",
            "now",
        ]
        for _ in range(LINES_HELD):
            log.info("many")
        assert out.getvalue().count("many") == LINES_HELD
        log.info("last")
    assert "last" in out.getvalue()
