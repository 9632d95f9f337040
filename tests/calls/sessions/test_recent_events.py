"""What happened a moment ago (server/calls/sessions/recent_events.py)."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from server.calls.sessions.recent_events import MOST, Lately


async def test_a_moment_ends_by_itself_and_begins_anew_each_time(autojump_clock: MockClock) -> None:
    lately = Lately(10)
    lately.note("one")
    lately.note("two")
    await trio.sleep(6)
    lately.note("one")
    await trio.sleep(6)
    assert "one" in lately and "two" not in lately and "three" not in lately
    lately.note("three")
    assert len(lately._at) == 2


async def test_however_much_happens_only_the_latest_is_remembered(autojump_clock: MockClock) -> None:
    lately = Lately(10)
    for number in range(MOST + 1):
        lately.note(str(number))
    assert len(lately._at) == MOST and "0" not in lately and str(MOST) in lately
