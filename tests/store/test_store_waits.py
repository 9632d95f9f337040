"""How long the store waits, for a server that is away and for a disk that is slow, and from when on it says so."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from server.cluster.postgres import postgres_wire
from server.cluster.postgres.postgres_wire import CONNECT_SECONDS, Outage, Timeline, connected
from server.store import store_health
from server.store.jobs import CannotOpen, DiskFull, StoreBusy, StoreDamaged, StoreUnavailable
from server.store.store_health import SLOW_SECONDS, WAITS_TOO_LONG_SECONDS, StoreHealth, StoreReport


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of a process in which every lot that is drawn is the longest."""
    found = Clock()
    monkeypatch.setattr("random.random", lambda: 1.0)
    monkeypatch.setattr("time.monotonic", found)
    return found


# ── a server that is away ──


def pauses(outage: Outage, clock: Clock, times: int) -> list[float]:
    """Return how long nobody asks after each try that fails, in a row."""
    found: list[float] = []
    for _ in range(times):
        outage.failed()
        began = clock.now
        while outage.refuses:
            clock.now += 1 / 64
        found.append(round(clock.now - began, 1))
    return found


def test_pauses_are_short_at_first_and_double_up_to_the_longest(clock: Clock) -> None:
    outage = Outage(clock=clock)
    assert pauses(outage, clock, 3) == [0.1, 0.2, 0.3]
    clock.now = 106.0 - 1 / 64
    assert pauses(outage, clock, 6) == [0.3, 0.6, 1.2, 2.4, 4.8, 5.0]
    outage.succeeded()
    assert (outage.refuses, outage.because) == (False, None)
    assert pauses(outage, clock, 2) == [0.1, 0.2]


def test_at_the_very_end_of_the_first_seconds_pauses_grow(clock: Clock) -> None:
    outage = Outage(clock=clock)
    assert pauses(outage, clock, 3) == [0.1, 0.2, 0.3]
    clock.now = 106.0
    assert pauses(outage, clock, 1) == [0.6]


def test_the_shortest_lot_is_half_of_the_pause(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    outage = Outage(clock=clock)
    clock.now = 106.0
    outage.failed()
    clock.now = 112.0
    for _ in range(6):
        outage.failed()
    monkeypatch.setattr("random.random", lambda: 0.0)
    assert pauses(outage, clock, 1) == [2.5]


def test_a_try_is_over_when_it_failed_and_why_is_known(clock: Clock) -> None:
    outage, why = Outage(clock=clock), StoreBusy("full")
    outage.failed(why)
    clock.now += 1.0
    assert (outage.begin_try(), outage.refuses, outage.begin_try()) == (True, True, False)
    outage.failed()
    assert outage.because is None
    clock.now += 1.0
    assert not outage.refuses


def test_a_server_that_others_have_taken_the_place_of_is_not_met() -> None:
    outage = Outage()
    assert outage.meet(None)
    assert outage.meet(Timeline(1, 3))
    for timeline, over in ((Timeline(1, 2), True), (Timeline(1, 3), False), (Timeline(2, 1), False)):
        assert outage.is_over(timeline) is over
        assert outage.meet(timeline) is not over
    assert outage.meet(Timeline(1, 4))
    assert outage.is_over(Timeline(1, 3))


@pytest.mark.parametrize(
    ("parameters", "seconds"),
    [
        ({"host": "a"}, 2 * CONNECT_SECONDS),
        ({"host": "a,b"}, 3 * CONNECT_SECONDS),
        ({"host": "a,b", "hostaddr": "1.1.1.1"}, 3 * CONNECT_SECONDS),
        ({"hostaddr": "1.1.1.1,2.2.2.2"}, 3 * CONNECT_SECONDS),
        ({"host": "a,b,c,d,e,f"}, 20.0),
        ({"host": "a", "connect_timeout": "1"}, 4.0),
        ({"host": "a", "connect_timeout": "3"}, 6.0),
    ],
)
def test_each_host_is_waited_for_and_all_together_not_for_ever(
    parameters: dict[str, str], seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []

    class Hangs:
        def __init__(self, **_: Any) -> None: ...

        def start(self) -> None: ...

        def is_alive(self) -> bool:
            return True

        def join(self, seconds: float) -> None:
            waited.append(seconds)

    monkeypatch.setattr(threading, "Thread", Hangs)
    outage = Outage()
    with pytest.raises(CannotOpen, match="does not answer"):
        connected(parameters, context=None, outage=outage)
    assert waited == [seconds]
    for _ in range(postgres_wire._MOST_HANGING - 1):  # pyright: ignore[reportPrivateUsage]
        assert outage.begin_try()
        with pytest.raises(CannotOpen):
            connected(parameters, context=None, outage=outage)
    assert not outage.begin_try()


# ── a disk that is slow ──


def report(of: StoreHealth, **what: Any) -> StoreReport:
    given: dict[str, Any] = {"waiting": 0, "oldest_asked_at": None, **what}
    return of.report(**given)


@pytest.mark.parametrize(
    ("ago", "problem"), [(None, False), (WAITS_TOO_LONG_SECONDS - 0.5, False), (WAITS_TOO_LONG_SECONDS, True)]
)
def test_what_waits_so_long_is_a_problem(ago: float | None, problem: bool, clock: Clock) -> None:
    of = StoreHealth(stuck="stuck")
    waits = report(of, oldest_asked_at=None if ago is None else clock.now - ago)
    assert (bool(waits.problem), waits.hint) == (problem, "stuck" if problem else "")
    assert waits.oldest_waits_seconds == (ago or 0.0)
    silent = report(of, confirmed_seconds_ago=ago)
    assert (bool(silent.problem), bool(silent.hint), silent.is_unconfirmed) == (problem, problem, problem)


def test_what_is_damaged_is_said_before_what_is_doubted_and_what_failed(clock: Clock) -> None:
    of = StoreHealth()
    late = {"oldest_asked_at": clock.now - 60, "doubt": StoreBusy("doubted")}
    assert "waiting for 60" in report(of, oldest_asked_at=late["oldest_asked_at"]).problem
    of.note_refused(DiskFull("failed"))
    failed = report(of)
    assert (failed.problem, failed.hint) == ("failed", DiskFull.hint)
    assert report(of, **late).problem == "doubted"
    of.note_damage(StoreDamaged("damaged"))
    assert report(of, **late).problem == "damaged"


def test_damage_is_told_once_and_each_refusal_is_counted_by_its_reason() -> None:
    class Odd(StoreUnavailable):
        """A kind that nobody has named."""

    of, told = StoreHealth(), list[StoreDamaged]()
    of.tell_of_damage = told.append
    first = StoreDamaged("first")
    for error in (first, StoreDamaged("second"), DiskFull("full"), Odd("odd")):
        of.note_refused(error)
    assert told == [first]
    assert of.damage is first
    assert report(of).refused == {"damaged": 2, "disk_full": 1, "broken": 1}


def test_commits_are_summed_and_their_newest_counts_a_little() -> None:
    of = StoreHealth(slow="slow")
    of.note_commit(3.0, confirmed=SLOW_SECONDS * 32)
    assert (of.commits, of.commit_seconds) == (1, 3.0)
    assert of.confirm_seconds == pytest.approx(SLOW_SECONDS)
    of.confirm_seconds = SLOW_SECONDS
    of.warning = "also"
    assert report(of).warning == f"also; a write is confirmed after {SLOW_SECONDS * 1000:.0f} ms: slow"
    of.note_commit(1.0, confirmed=0.0)
    assert (of.commits, of.commit_seconds) == (2, 4.0)
    assert report(of).warning == "also"


def test_when_it_wrote_last_is_told_in_seconds(clock: Clock) -> None:
    of = StoreHealth()
    assert report(of).wrote_seconds_ago is None
    of.wrote_at = clock.now - 7
    assert report(of, waiting=3) == StoreReport(wrote_seconds_ago=7.0, waiting=3)


def test_every_reason_is_counted_from_nothing() -> None:
    assert StoreHealth().refused == dict.fromkeys(store_health.REASONS.values(), 0)
