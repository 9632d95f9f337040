"""Lengths of time and dates: every command reads them alike."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

import pytest

from server.cli import local, run, spans
from server.cli.spans import moment

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
NOW = 1_800_000_000_123
NOON = datetime(2027, 1, 31, 12, tzinfo=UTC)

# Every option that says when something is to end, with the most that it takes.
ENDING = {
    "--expires of api-keys": (["api-keys", "create", "ci", "--expires"], "3650 days at most, or never"),
    "--expires of plans": (["plans", "grant", "bob", "pro", "--expires"], "3660 days at most, or never"),
    "--account-expires": (["invite", "bob", "--json", "--account-expires"], "36500 days at most, or never"),
    "--link-expires": (["invite", "bob", "--json", "--link-expires"], "30 days at most"),
    "--expires of users": (["users", "set", "bob", "--expires"], "36500 days at most, or never"),
}


@pytest.mark.parametrize(
    ("text", "millis"),
    [
        ("30d", 30 * DAY),
        ("30", 30 * DAY),
        (" 12H ", 12 * HOUR),
        ("90m", 90 * MINUTE),
        ("60s", MINUTE),
        ("2w", 14 * DAY),
        ("3650d", 3650 * DAY),
        ("2027-01-31T12:00Z", int(NOON.timestamp() * 1000) - NOW),
        ("2027-01-31", int(datetime(2027, 1, 31).timestamp() * 1000) - NOW),  # noqa: DTZ001
        ("never", "never"),
    ],
)
def test_a_length_of_time_a_number_of_days_and_a_date_are_understood(text: str, millis: int | str) -> None:
    assert spans.TimeSpan(days=3650, clock=lambda: NOW).convert(text, None, None) == millis


@pytest.mark.parametrize("option", ENDING)
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("5x", "is no time"),
        ("", "is no time"),
        ("-3d", "is no time"),
        ("1.5d", "is no time"),
        ("٣d", "is no time"),
        ("2027-02-30", "is no time"),
        ("0", "is too short"),
        ("0d", "is too short"),
        ("59s", "is too short"),
        ("2020-01-31", "is past"),
        ("9999-12-31", "is too long: {most}"),
        ("99999999d", "is too long: {most}"),
        ("999999999999999w", "is too long"),
    ],
)
def test_what_is_no_end_to_be_had_is_refused_in_the_same_words_by_every_option(
    option: str, text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words, most = ENDING[option]
    assert run([*words, text]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert f"{text!r} {said.format(most=most)}" in told.err


def test_an_invitation_cannot_wait_for_ever(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["invite", "bob", "--json", "--link-expires", "never"]) == 2
    assert "'never' is no time: write 90m, 12h, 30d, 2w, a date like 2027-01-31\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "ago"), [("2h", 2 * HOUR), ("7d", 7 * DAY), ("7", 7 * DAY), ("30s", 30_000)]
)
def test_the_audit_trail_is_asked_for_in_the_same_words(
    text: str, ago: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spans, "now", lambda: NOW)
    assert moment(text) == NOW - ago
    assert moment("2027-01-31T12:00Z") == int(NOON.timestamp() * 1000)
    assert moment("999999999w") == 0


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90.0), ("0.5", 0.5), ("90s", 90.0), ("5m", 300.0), ("2h", 7200.0)]
)
def test_a_wait_is_told_in_seconds_or_with_a_unit(text: str, seconds: float) -> None:
    assert spans.Seconds(shortest=0.1, longest=86_400).convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "2d", "1e9"])
def test_a_wait_out_of_bounds_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["call", "x", "y", "--timeout", text]) == 2
    assert f"{text!r} is not from 0.1 to 86400 seconds" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("every", "passed", "said"),
    [
        ("minute", 38, "in the last minute"),
        ("minute", 64, "in the last 2 minutes"),
        ("minute", 125, "2 minutes ago"),
        ("hour", 125, "in the last hour"),
        ("hour", 3700, "in the last 2 hours"),
        ("hour", 90_000, "1 day ago"),
    ],
)
def test_a_last_use_is_told_no_more_exactly_than_it_is_noted(
    every: Literal["minute", "hour"], passed: int, said: str
) -> None:
    assert local.lately(NOW - passed * 1000, every, now=NOW / 1000) == said
