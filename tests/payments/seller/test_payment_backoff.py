"""Whoever shows bad payments waits: a caller for their own, strangers by the network that one household has whole."""

from __future__ import annotations

from server.payments.seller.payment_backoff import PaymentBackoff

FREE_OF_A_CALLER = 100


def test_a_strangers_first_is_free_and_then_each_costs_twice_the_time() -> None:
    now = 0
    penalties = PaymentBackoff(lambda: now)
    waits: list[int] = []
    for _ in range(4):
        penalties.failed("", "192.0.2.1")
        waits.append(penalties.wait_seconds("", "192.0.2.1"))
        now += 60_000
    assert waits == [0, 1, 2, 4]
    penalties.passed("", "192.0.2.1")
    assert penalties.wait_seconds("", "192.0.2.1") == 0


def test_another_address_of_the_same_household_waits_as_well() -> None:
    penalties = PaymentBackoff(lambda: 0)
    for last in range(3):
        penalties.failed("", f"2001:db8::{last + 1}")
    assert penalties.wait_seconds("", "2001:db8::ffff") > 0
    assert penalties.wait_seconds("", "2001:db8:1::1") == 0


def test_nobody_waits_for_what_somebody_else_showed_from_the_same_address() -> None:
    penalties = PaymentBackoff(lambda: 0)
    for _ in range(500):
        penalties.failed("", "192.0.2.1")
        penalties.failed("ann", "192.0.2.1")
    assert penalties.wait_seconds("ben", "192.0.2.1") == 0
    penalties.passed("ann", "192.0.2.1")
    assert penalties.wait_seconds("", "192.0.2.1") > 0
    assert penalties.wait_seconds("ann", "192.0.2.1") == 0


def test_a_caller_may_try_out_what_can_be_wrong_with_a_payment_before_waiting_for_it() -> None:
    penalties = PaymentBackoff(lambda: 0)
    for _ in range(FREE_OF_A_CALLER):
        penalties.failed("ann", "192.0.2.1")
        assert penalties.wait_seconds("ann", "192.0.2.1") == 0
    penalties.failed("ann", "198.51.100.7")
    assert penalties.wait_seconds("ann", "192.0.2.1") == 1


def test_nobody_waits_until_a_clock_that_was_set_back_comes_to_where_it_was() -> None:
    now = 7_200_000
    penalties = PaymentBackoff(lambda: now)
    for _ in range(9):
        penalties.failed("", "192.0.2.1")
    assert penalties.wait_seconds("", "192.0.2.1") > 0
    now = 0
    assert penalties.wait_seconds("", "192.0.2.1") == 0
