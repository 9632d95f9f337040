"""Which way to pay is taken, and what is never paid."""

from __future__ import annotations

from typing import Any

import pytest
from purses import change
from shop import PAYEE, USDC, asking, offer, offer_v1

from server.payments.buyer.choice import choose, in_words
from server.payments.buyer.spending_policy import BadPolicy, CannotPay, SpendPolicy, read_policy


def written(**changes: Any) -> dict[str, Any]:
    limits: dict[str, Any] = {
        "per_call": "$0.05",
        "per_day": "1",
        "networks": ["base-sepolia"],
        "payees": ["any"],
        "confirm_above": "0",
    }
    return {**limits, **changes}


def policy(**changes: Any) -> SpendPolicy:
    return read_policy(**written(**changes))


def refusal(challenge: Any, allowed: SpendPolicy | None = None) -> CannotPay:
    with pytest.raises(CannotPay) as caught:
        choose(challenge, allowed or policy(), change)
    return caught.value


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"per_call": ""}, "per_call"),
        ({"per_call": "0"}, "per_call"),
        ({"per_call": "-1"}, "per_call"),
        ({"per_day": ""}, "per_day"),
        ({"per_day": "1e3"}, "per_day"),
        ({"networks": []}, "networks"),
        ({"networks": ["ethereum"]}, "networks"),
        ({"payees": []}, "payees"),
        ({"payees": ["anybody"]}, "payees"),
        ({"payees": ["0x5AAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"]}, "payees"),
        ({"confirm_above": "much"}, "confirm_above"),
        ({"tokens": ["base-sepolia/0x00/6"]}, "tokens"),
        ({"tokens": [f"base-sepolia/{USDC}"]}, "tokens"),
        ({"tokens": [f"nowhere/{USDC}/6"]}, "networks"),
    ],
)
def test_a_policy_that_leaves_something_open_is_none(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(BadPolicy) as caught:
        policy(**changes)
    assert caught.value.key == key


def test_what_is_about_to_be_paid_is_said_in_words() -> None:
    purchase = choose(asking(), policy(), change)
    assert (
        in_words(purchase, "the tool `echo`")
        == "$0.02 to 0x2096…287C on Base Sepolia (a test network) for the tool `echo`"
    )
    real = choose(
        asking(offer(network="eip155:8453", asset="0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", extra={})),
        policy(networks=["base"]),
        change,
    )
    assert in_words(real, "it" * 500).startswith("$0.02 to 0x2096…287C on Base for itit")
    assert len(in_words(real, "it" * 500)) < 200


def test_the_first_way_that_is_understood_and_allowed_is_taken() -> None:
    purchase = choose(
        asking(
            offer(scheme="upto"),
            offer(network="eip155:8453"),
            offer(network="solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp"),
            offer(amount="60000"),
            offer(amount="30000"),
            offer(amount="10000"),
        ),
        policy(),
        change,
    )
    assert purchase.amount == 30_000
    assert purchase.offered == offer(amount="30000")


def test_both_versions_are_understood() -> None:
    purchase = choose(asking(offer_v1(), version=1), policy(), change)
    assert (purchase.version, purchase.amount, purchase.network.caip2) == (1, 20_000, "eip155:84532")


@pytest.mark.parametrize(
    ("accepts", "words"),
    [
        (offer(scheme="upto"), "scheme “upto”"),
        (offer(network="eip155:1"), "network “eip155:1”"),
        (offer(network="eip155:8453"), "on Base nothing may be paid"),
        (offer(asset=PAYEE), "worth of the token"),
        (offer(payTo="0x00"), "no address"),
        (offer(payTo="0x" + "0" * 40), "nobody"),
        (offer(payTo=PAYEE.replace("B", "b")), "no address"),
        (offer(amount="50001"), "it costs $0.050001, and a call may cost $0.05"),
        (offer(amount="0"), "nothing"),
        (offer(amount="-1"), "amount"),
        (offer(amount="1e4"), "amount"),
        (offer(amount=20000), "amount"),
        (offer(amount=str(2**256)), "amount"),
        (offer(maxTimeoutSeconds=9), "too soon"),
        (offer(maxTimeoutSeconds="300"), "maxTimeoutSeconds"),
        (offer(extra={"name": "USD Coin", "version": "2"}), "for another token"),
        (offer(extra={"assetTransferMethod": "permit2"}), "by a contract"),
        (offer(extra={"paymentFlow": "escrow"}), "several steps"),
        ({}, "network"),
        ("exact", "not an object"),
        (None, "not an object"),
    ],
)
def test_what_is_not_understood_or_not_allowed_is_not_paid(accepts: Any, words: str) -> None:
    assert words in str(refusal(asking(accepts)))


@pytest.mark.parametrize(
    "challenge",
    [
        {},
        {"x402Version": 2},
        {"x402Version": 2, "accepts": []},
        {"x402Version": 2, "accepts": {}},
        {"x402Version": 3, "accepts": [offer()]},
        {"x402Version": True, "accepts": [offer_v1()]},
        {"x402Version": "2", "accepts": [offer()]},
    ],
)
def test_a_challenge_that_cannot_be_read_is_not_paid(challenge: Any) -> None:
    assert "cannot be read" in str(refusal(challenge))


def test_only_so_many_ways_to_pay_are_looked_at() -> None:
    refusal(asking(*[offer(scheme="upto")] * 50, offer()))
    assert len(str(refusal(asking(*(offer(scheme=f"s{n}" * 30) for n in range(50)))))) < 400


def test_only_payees_that_are_named_are_paid() -> None:
    named = policy(payees=[PAYEE.lower()])
    assert choose(asking(), named, change).payee == PAYEE
    other = refusal(asking(offer(payTo=USDC)), named)
    assert "who may be paid" in str(other)
    assert other.hint == f"set payee to {USDC}"


def test_an_address_beside_any_narrows_it() -> None:
    """A wallet file of an earlier version may have both."""
    assert policy(payees=["any", PAYEE]).payees == frozenset({PAYEE.lower()})
    assert policy(payees=["any"]).payees is None


def test_whoever_is_refused_is_told_what_would_help() -> None:
    assert refusal(asking(offer(network="eip155:8453"))).hint == "set network to base"
    assert refusal(asking(offer(amount="60000"))).hint == "set per-call to $0.06"
    assert refusal(asking(offer(scheme="upto"))).hint is None


def test_a_token_that_was_said_to_be_worth_a_dollar_is_taken_by_the_name_that_the_server_gives() -> None:
    mine = policy(tokens=[f"base-sepolia/{PAYEE}/8"])
    purchase = choose(
        asking(offer(asset=PAYEE.lower(), amount="2000000", extra={"name": "Test", "version": "1"})),
        mine,
        change,
    )
    assert (purchase.amount, purchase.token.name, purchase.token.address) == (20_000, "Test", PAYEE)
    assert "how the token" in str(refusal(asking(offer(asset=PAYEE, amount="2000000", extra={})), mine))
    assert "finer" in str(refusal(asking(offer(asset=PAYEE, amount="2000001")), mine))


def test_nothing_is_signed_for_longer_than_a_quarter_of_an_hour() -> None:
    assert choose(asking(offer(maxTimeoutSeconds=86_400)), policy(), change).seconds == 900
    assert choose(asking(offer(maxTimeoutSeconds=60)), policy(), change).seconds == 60


# ── deposits ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_deposit_is_of_exactly_what_was_said() -> None:
    found = choose(asking(offer(amount="50000")), policy(), change, deposit=50_000)
    assert found.amount == 50_000
    for amount in ("49999", "50001", "5000000"):
        with pytest.raises(CannotPay, match=r"is asked for, and \$0.05 is to be deposited"):
            choose(asking(offer(amount=amount)), policy(per_call="10"), change, deposit=50_000)


def test_a_deposit_has_a_limit_of_its_own_and_without_one_that_of_a_call() -> None:
    five = asking(offer(amount="5000000"))
    with pytest.raises(CannotPay, match=r"a deposit may be \$0.05") as caught:
        choose(five, policy(), change, deposit=5_000_000)
    assert caught.value.hint == "set per-deposit to $5.00"
    allowed = policy(per_deposit="5")
    assert choose(five, allowed, change, deposit=5_000_000).amount == 5_000_000
    # It allows no call that is dearer.
    assert "a call may cost $0.05" in str(refusal(five, allowed))
    with pytest.raises(BadPolicy):
        policy(per_deposit="0")
