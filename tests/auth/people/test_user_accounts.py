from __future__ import annotations

import pytest

from auth.people import user_accounts
from auth.people.user_accounts import UnfitEntry
from auth.throttling import attempt_limits
from auth.throttling.attempt_limits import Limit, opens_at
from auth.values.ip_networks import counted_as, same_network
from tests.auth.browser_fakes import PASSPHRASE, START, House

MINUTE = 60_000


def test_a_hash_is_argon2id_with_19_mib_two_passes_and_one_lane() -> None:
    phc = user_accounts.hash_passphrase(PASSPHRASE, bytes(range(16)))
    assert phc.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert user_accounts.verify_passphrase(PASSPHRASE, phc)
    assert not user_accounts.verify_passphrase(PASSPHRASE + " ", phc)


def test_the_hash_that_stands_in_for_nobody_costs_what_a_real_one_costs() -> None:
    real = user_accounts.hash_passphrase(PASSPHRASE, bytes(16))
    assert user_accounts.NOBODY.split("$")[:4] == real.split("$")[:4]
    assert [len(part) for part in user_accounts.NOBODY.split("$")] == [len(part) for part in real.split("$")]
    # Readable by the library: a malformed one would fail at once, and time would tell who exists.
    assert not user_accounts.verify_passphrase(PASSPHRASE, user_accounts.NOBODY)


@pytest.mark.parametrize(
    ("typed", "stored"),
    [
        ("Alice", "alice"),
        ("  bob ", "bob"),
        ("Ｃarol", "carol"),
        ("d.e_f@g+h-1", "d.e_f@g+h-1"),
        ("Zoë", "zoë"),
    ],
)
def test_a_name_has_one_form(typed: str, stored: str) -> None:
    assert user_accounts.fit_name(typed) == stored


@pytest.mark.parametrize(
    "typed", ["", "   ", "a b", "a\u202eb", "<b>", "a/b", "x" * 65, "\x00", "\ud800", "-" * 9_999]
)
def test_an_unfit_name_is_refused_with_a_sentence(typed: str) -> None:
    unfit = user_accounts.fit_name(typed)
    assert isinstance(unfit, UnfitEntry)
    assert unfit.sentence


@pytest.mark.parametrize("typed", ["", "eleven char", "x" * 1_025, "ü" * 513, "\ud800" * 20])
def test_an_unfit_passphrase_is_refused(typed: str) -> None:
    assert isinstance(user_accounts.fit_passphrase(typed), UnfitEntry)


def test_the_longest_passphrase_is_1024_bytes_and_accents_have_one_form() -> None:
    assert user_accounts.fit_passphrase("x" * 1_024) == "x" * 1_024
    assert user_accounts.fit_passphrase("e\u0301" * 12) == user_accounts.fit_passphrase("é" * 12)


def test_a_passphrase_hash_is_not_in_a_repr() -> None:
    house = House().owned()
    user = house.store.now(user_accounts.owner)
    assert user is not None and user.passphrase_hash and "plain:" not in repr(user)


# ---------------------------------------------------------------- counting


LIMIT = Limit(tries=3, window=10 * MINUTE, lock=10 * MINUTE)


def test_an_open_bucket_opens_at_no_time() -> None:
    assert opens_at([], LIMIT) == 0
    assert opens_at([START, START - 1], LIMIT) == 0


def test_the_last_allowed_try_closes_the_bucket_for_the_whole_lock() -> None:
    assert opens_at([START, START - MINUTE, START - 9 * MINUTE], LIMIT) == START + 10 * MINUTE


def test_tries_far_apart_close_nothing() -> None:
    assert opens_at([START, START - MINUTE, START - 10 * MINUTE], LIMIT) == 0


def test_without_a_lock_the_bucket_opens_when_the_oldest_try_leaves_the_window() -> None:
    sliding = Limit(tries=3, window=10 * MINUTE)
    assert opens_at([START, START - MINUTE, START - 9 * MINUTE], sliding) == START + MINUTE


def test_waits_grow_with_the_tries_of_one_window() -> None:
    growing = Limit(tries=5, window=10 * MINUTE, delays=(0, 1_000, 5_000))
    assert opens_at([START], growing) == START
    assert opens_at([START, START - 1], growing) == START + 1_000
    assert opens_at([START, START - 1, START - 2, START - 3], growing) == START + 5_000
    assert opens_at([START, START - 11 * MINUTE], growing) == START


def test_tries_of_one_millisecond_are_told_apart_and_can_be_taken_back_one_by_one() -> None:
    house = House()
    first = house.store.now(lambda db: attempt_limits.count(db, "b", START))
    house.store.now(lambda db: attempt_limits.count(db, "b", START))
    house.store.now(lambda db: attempt_limits.take_back(db, [first]))
    house.store.now(lambda db: attempt_limits.count(db, "b", START))
    assert len(house.rows("attempts")) == 2


# ---------------------------------------------------------------- nearness


@pytest.mark.parametrize(
    ("one", "other", "near"),
    [
        ("203.0.113.7", "203.0.113.7", True),
        ("203.0.113.7", "203.0.113.250", True),
        ("203.0.113.7", "203.0.114.7", False),
        ("2001:db8:1:2::3", "2001:db8:1:2:ffff::1", True),
        ("2001:db8:1:2::3", "2001:db8:1:3::3", False),
        ("::ffff:203.0.113.7", "203.0.113.9", True),
        ("127.0.0.1", "::1", True),
        ("127.0.0.1", "203.0.113.7", False),
        ("::1", "::2", False),
        ("203.0.113.7", "2001:db8::1", False),
        ("", "", False),
        ("unix", "unix", False),
    ],
)
def test_the_same_network_is_a_24_or_a_64_or_this_machine(one: str, other: str, near: bool) -> None:
    assert same_network(one, other) is near
    assert same_network(other, one) is near


def test_tries_are_counted_per_address_or_per_64() -> None:
    assert counted_as("203.0.113.7") != counted_as("203.0.113.8")
    assert counted_as("2001:db8::1") == counted_as("2001:db8::ffff")
    assert counted_as("::ffff:203.0.113.7") == "203.0.113.7"
    assert counted_as("who knows") == counted_as("")
