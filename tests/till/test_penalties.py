"""Whoever shows bad payments waits, by caller and by the network that one household has whole."""

from __future__ import annotations

from server.till.penalties import Penalties


def test_the_first_is_free_and_then_each_costs_twice_the_time() -> None:
    now = 0
    penalties = Penalties(lambda: now)
    waits: list[int] = []
    for _ in range(4):
        penalties.failed("ann", "192.0.2.1")
        waits.append(penalties.wait_seconds("ann", ""))
        now += 60_000
    assert waits == [0, 1, 2, 4]
    penalties.passed("ann", "192.0.2.1")
    assert penalties.wait_seconds("ann", "192.0.2.1") == 0


def test_another_address_of_the_same_household_waits_as_well() -> None:
    penalties = Penalties(lambda: 0)
    for last in range(3):
        penalties.failed("", f"2001:db8::{last + 1}")
    assert penalties.wait_seconds("", "2001:db8::ffff") > 0
    assert penalties.wait_seconds("", "2001:db8:1::1") == 0
