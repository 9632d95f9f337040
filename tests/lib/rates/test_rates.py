"""Rates as they are written, and the decision: whatever comes when, never more than the rate and the burst."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.lib.rates.rates import SECOND, Rate, decide, parse_quota, parse_rate, rate, whole_seconds

RATES = st.builds(
    rate,
    st.integers(1, 5000),
    st.sampled_from([1, 60, 3600, 86_400]),
    st.one_of(st.none(), st.integers(1, 300)),
)
# Times between one use and the next: all at once, about as fast as the rate, and long silences.
GAPS = st.lists(
    st.one_of(st.just(0), st.integers(0, 2 * SECOND), st.integers(0, 200_000 * SECOND)), max_size=200
)


def used_at(rate: Rate, moments: list[int], *, used_until: int = 0) -> list[int]:
    """When a use went on."""
    found: list[int] = []
    for now in moments:
        used_until, wait = decide(used_until, now, rate)
        if not wait:
            found.append(now)
    return found


def moments_of(gaps: list[int]) -> list[int]:
    now, found = 10**15, list[int]()
    for gap in gaps:
        now += gap
        found.append(now)
    return found


@given(RATES, GAPS)
def test_in_no_time_do_more_go_on_than_the_rate_allows_in_it_and_the_burst(
    rate: Rate, gaps: list[int]
) -> None:
    went_on = used_at(rate, moments_of(gaps))
    burst = rate.room // rate.step
    for first, begin in enumerate(went_on):
        for count, end in enumerate(went_on[first:], 1):
            assert count <= burst + (end - begin) // rate.step


@given(RATES, GAPS, st.integers(0, 10**9))
def test_who_waits_for_as_long_as_they_were_told_goes_on_and_not_a_moment_sooner(
    rate: Rate, gaps: list[int], sooner: int
) -> None:
    used_until = now = 0
    for now in moments_of(gaps):
        used_until, wait = decide(used_until, now, rate)
        if wait:
            assert decide(used_until, now + wait, rate)[1] == 0
            if sooner % wait:
                assert decide(used_until, now + sooner % wait, rate)[1] == wait - sooner % wait


@given(RATES, GAPS, st.integers(0, 10**12))
def test_who_used_more_before_never_goes_on_where_who_used_less_waits(
    rate: Rate, gaps: list[int], more: int
) -> None:
    less_used = more_used = 0
    for now in moments_of(gaps):
        _, less = decide(less_used, now, rate)
        _, most = decide(less_used + more, now, rate)
        assert most >= less
        less_used, _ = decide(less_used, now, rate)
        more_used, _ = decide(max(less_used, more_used), now, rate)
        assert more_used >= less_used


@given(RATES, GAPS, st.integers(0, 10**18))
def test_a_clock_that_is_set_back_keeps_nobody_waiting_longer_than_one_use_takes(
    rate: Rate, gaps: list[int], back: int
) -> None:
    used_until = now = 0
    for now in moments_of(gaps):
        used_until, _ = decide(used_until, now, rate)
    earlier = max(0, now - back)
    used_until, wait = decide(used_until, earlier, rate)
    assert wait <= rate.step
    # And from there on it is as it always is.
    after = [earlier + gap for gap in range(0, 4 * rate.step, max(1, rate.step // 8))]
    assert len(used_at(rate, after, used_until=used_until)) <= rate.room // rate.step + 4


@given(RATES)
def test_as_many_as_the_burst_go_on_at_once_and_then_one_for_each_step(rate: Rate) -> None:
    burst = rate.room // rate.step
    assert decide(0, 10**15, rate) == (10**15 + rate.step, 0)
    assert len(used_at(rate, [10**15] * (burst + 5))) == burst
    ticks = [10**15] * burst + [10**15 + rate.step * n for n in range(1, 20)]
    assert len(used_at(rate, ticks)) == burst + 19


@pytest.mark.parametrize(
    ("text", "step", "burst"),
    [
        ("60/min", SECOND, 10),
        ("600/min", SECOND // 10, 100),
        ("3/min", 20 * SECOND, 3),
        ("10/s", SECOND // 10, 10),
        ("1000/day", 86_400 * SECOND // 1000, 10),
        ("120/h, 5 at once", 30 * SECOND, 5),
    ],
)
def test_a_rate_is_read_as_it_is_written(text: str, step: int, burst: int) -> None:
    found = parse_rate(text)
    assert found is not None
    assert (found.step, found.room, found.text) == (step, burst * step, text.partition(",")[0])


@pytest.mark.parametrize(
    "text", ["60", "60/minute", "0/min", "-1/s", "6 /min", "1/s, 0 at once", "1/s,2 at once"]
)
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="60/min"):
        parse_rate(text)


def test_no_limit_is_none() -> None:
    assert parse_rate("") is None
    assert (parse_quota(""), parse_quota("1000/day")) == (0, 1000)


def test_retry_after_is_rounded_up() -> None:
    assert [whole_seconds(wait) for wait in (1, SECOND - 1, SECOND, SECOND + 1)] == [1, 1, 1, 2]
