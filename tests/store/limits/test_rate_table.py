"""Who is counted where: each by themselves, as long as there is room, and strangers together when there is none."""

from __future__ import annotations

from server.lib.rates.rates import SECOND, rate
from server.lib.rates.usage_table import KEYS, RateTable

TWO = rate(60, 60, 2)  # one a second, two at once


class Clock:
    def __init__(self) -> None:
        self.now = 10**15

    def __call__(self) -> int:
        return self.now

    def tick(self, seconds: float) -> None:
        self.now += int(seconds * SECOND)


def test_each_has_a_rate_of_their_own() -> None:
    table = RateTable(TWO, clock=Clock())
    assert [table.use("a") for _ in range(3)] == [0, 0, SECOND]
    assert table.use("b") == 0


def test_time_gives_back_what_was_used() -> None:
    clock = Clock()
    table = RateTable(TWO, clock=clock)
    assert [bool(table.use("a")) for _ in range(3)] == [False, False, True]
    clock.tick(1)
    assert [bool(table.use("a")) for _ in range(2)] == [False, True]


def test_what_was_refused_was_not_counted() -> None:
    clock = Clock()
    table = RateTable(TWO, clock=clock)
    for _ in range(100):
        table.use("a")
    clock.tick(1)
    assert table.use("a") == 0


def test_one_that_is_given_back_may_be_used_again() -> None:
    table = RateTable(TWO, clock=Clock())
    for _ in range(50):
        assert table.use("a") == 0
        table.give_back("a")
    table.give_back("b")
    assert [bool(table.use("a")) for _ in range(3)] == [False, False, True]


def test_those_who_have_gone_silent_are_forgotten_as_others_come() -> None:
    clock = Clock()
    table = RateTable(TWO, clock=clock)
    for number in range(1000):
        table.use(f"old {number}")
    clock.tick(60)
    for number in range(600):
        table.use(f"new {number}")
    assert len(table) <= 600


def test_a_full_table_slows_strangers_down_together_and_nobody_whom_it_knows() -> None:
    table = RateTable(TWO, clock=Clock(), keys=100)
    for number in range(100):
        assert table.use(f"known {number}") == 0
    # From here on all are strangers, and two of them together use up what one may.
    assert [bool(table.use(f"stranger {number}")) for number in range(50)] == [False, False] + [True] * 48
    assert table.use("known 7") == 0
    assert len(table) <= 101


def test_room_is_found_again_when_those_known_have_gone_silent() -> None:
    clock = Clock()
    table = RateTable(TWO, clock=clock, keys=100)
    for number in range(100):
        table.use(f"known {number}")
    clock.tick(1)  # what they used is given back in this moment
    assert [table.use(f"new {number}") for number in range(100)] == [0] * 100


def test_room_is_looked_for_beyond_those_who_are_busy() -> None:
    clock = Clock()
    table = RateTable(TWO, clock=clock, keys=100)
    for number in range(100):
        table.use(f"known {number}")
    assert [bool(table.use("stranger")) for _ in range(3)] == [False, False, True]
    clock.tick(0.5)
    for number in range(100):
        if number % 16:
            table.use(f"known {number}")
    clock.tick(0.5)
    assert [table.use(f"new {number}") for number in range(2)] == [0, 0]


def test_the_table_is_bounded_in_a_flood_of_addresses() -> None:
    table = RateTable(TWO, clock=Clock(), keys=1000)
    for number in range(20_000):
        table.use(f"flood {number}")
    assert len(table) <= 1001
    assert KEYS == 100_000
