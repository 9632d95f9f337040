"""Settling: coins move once, misbehaviour is exactly as it was ordered, and a chain that is none knows what happened."""

from __future__ import annotations

import json
from functools import partial

import pytest
import trio

from server.lib.evm.payment_networks import Asset
from server.payments.test_facilitator import coins as coin_book
from server.payments.test_facilitator.coins import Coins
from tests.payments.test_facilitator.payer import (
    EACH,
    NOW,
    PAY_TO,
    USDC,
    Facilitating,
    Payer,
    body_1,
    body_2,
    facilitating,
    place,
    requirements,
)
from tests.transport.http.loopback_server import until

PAYER = Payer()
USED = "invalid_exact_evm_nonce_already_used"


def coins_of(facilitator: Facilitating, address: str, asset: Asset = USDC) -> int:
    return facilitator.desk.coins.balance(asset, address)


async def test_a_settled_payment_moves_its_coins_and_says_by_which_transaction() -> None:
    async with facilitating() as facilitator:
        settled = await facilitator.said("/settle", body_2(PAYER.signed()))
        transaction = settled.pop("transaction")
        assert settled == {
            "success": True,
            "payer": PAYER.address,
            "network": "eip155:84532",
            "amount": "10000",
        }
        assert len(transaction) == 66
        assert coins_of(facilitator, PAYER.address) == EACH - 10_000
        assert coins_of(facilitator, PAY_TO) == EACH + 10_000


async def test_version_1_is_answered_in_the_words_of_version_1() -> None:
    async with facilitating() as facilitator:
        settled = await facilitator.said("/settle", body_1(PAYER.signed()))
        assert (settled["success"], settled["network"], settled["payer"]) == (
            True,
            "base-sepolia",
            PAYER.address,
        )
        assert "amount" not in settled


async def test_an_authorization_counts_once_and_is_then_refused_everywhere_with_the_word_for_it() -> None:
    async with facilitating() as facilitator:
        assert (await facilitator.said("/settle", body_2(PAYER.signed())))["success"]
        again = await facilitator.said("/settle", body_2(PAYER.signed()))
        assert (again["success"], again["errorReason"], again["transaction"]) == (False, USED, "")
        in_version_1 = await facilitator.said("/settle", body_1(PAYER.signed()))
        assert in_version_1["errorReason"] == USED
        for_another_value = body_2(PAYER.signed(20_000), requirements(20_000))
        assert (await facilitator.said("/settle", for_another_value))["errorReason"] == USED
        assert (await facilitator.said("/verify", body_2(PAYER.signed())))["invalidReason"] == USED
        assert coins_of(facilitator, PAYER.address) == EACH - 10_000
        (entry,) = (await facilitator.ledger())["authorizations"]
        assert (entry["verify_calls"], entry["settle_calls"], entry["settled"]) == (1, 4, True)
        assert entry["value"] == "10000"


async def test_of_twenty_that_settle_the_same_at_once_one_succeeds() -> None:
    async with facilitating() as facilitator:
        outcomes: list[bool] = []

        async def settle() -> None:
            outcomes.append((await facilitator.said("/settle", body_2(PAYER.signed())))["success"])

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(settle)
        assert sorted(outcomes) == [False] * 19 + [True]
        assert coins_of(facilitator, PAYER.address) == EACH - 10_000
        assert (await facilitator.ledger())["totals"] == {
            "verify_calls": 0,
            "settle_calls": 20,
            "settled": 1,
        }


async def test_coins_run_out_and_an_address_can_be_given_others() -> None:
    async with facilitating() as facilitator:
        await facilitator.said("/test/coins", {"address": PAYER.address.lower(), "amount": "$0.02"})
        for nonce in (1, 2):
            assert (await facilitator.said("/settle", body_2(PAYER.signed(nonce=nonce))))["success"]
        refused = await facilitator.said("/settle", body_2(PAYER.signed(nonce=3)))
        assert refused["errorReason"] == "invalid_exact_evm_insufficient_balance"
        given = await facilitator.said("/test/coins", {"address": PAYER.address, "amount": "5"})
        assert given == {
            "network": USDC.network,
            "asset": USDC.address,
            "address": PAYER.address,
            "balance": "5000000",
        }
        assert (await facilitator.said("/settle", body_2(PAYER.signed(nonce=3))))["success"]


async def test_who_pays_oneself_has_as_much_as_before() -> None:
    async with facilitating() as facilitator:
        body = body_2(PAYER.signed(to=PAYER.address), requirements(payTo=PAYER.address))
        assert (await facilitator.said("/settle", body))["success"]
        assert coins_of(facilitator, PAYER.address) == EACH


# ── switches ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_told_to_fail_it_says_that_nothing_moved_and_nothing_did() -> None:
    async with facilitating() as facilitator:
        await facilitator.switch(verify="fail:expired", settle="fail", times=1)
        verified = await facilitator.said("/verify", body_2(PAYER.signed()))
        assert (verified["isValid"], verified["invalidReason"]) == (False, "expired")
        settled = await facilitator.said("/settle", body_2(PAYER.signed()))
        assert (settled["success"], settled["errorReason"]) == (False, "insufficient_funds")
        assert (await facilitator.ledger())["balances"] == []
        assert (await facilitator.said("/verify", body_2(PAYER.signed())))["isValid"]
        assert (await facilitator.said("/settle", body_2(PAYER.signed())))["success"]


@pytest.mark.parametrize("step", ["verify", "settle"])
async def test_told_to_hang_it_never_answers_and_does_nothing(step: str) -> None:
    async with facilitating() as facilitator:
        await facilitator.switch(**{step: "hang"})
        async with await facilitator.server.connect() as peer:
            await peer.send(facilitator.request(f"/{step}", body_2(PAYER.signed())))
            await until(lambda: len(facilitator.desk.coins.authorizations()) == 1)
            ledger = await facilitator.ledger()
            assert (ledger["totals"][f"{step}_calls"], ledger["totals"]["settled"]) == (1, 0)
            assert ledger["balances"] == []
            facilitator.server.draining.set()
            assert await peer.to_end() == b""


async def test_an_answer_that_is_lost_leaves_the_connection_cut_and_the_coins_moved() -> None:
    async with facilitating() as facilitator:
        await facilitator.switch(settle="lost", times=1)
        async with await facilitator.server.connect() as peer:
            await peer.send(facilitator.request("/settle", body_2(PAYER.signed())))
            assert await peer.to_end() == b""
        assert coins_of(facilitator, PAY_TO) == EACH + 10_000
        again = await facilitator.said("/settle", body_2(PAYER.signed()))
        assert (again["success"], again["errorReason"]) == (False, USED)


async def test_a_504_comes_after_the_coins_have_moved_and_a_500_before() -> None:
    async with facilitating() as facilitator:
        await facilitator.switch(settle="500")
        assert (await facilitator.ask("/settle", body_2(PAYER.signed()))).status == 500
        assert coins_of(facilitator, PAY_TO) == EACH
        await facilitator.switch(settle="504-after-settle")
        assert (await facilitator.ask("/settle", body_2(PAYER.signed()))).status == 504
        assert coins_of(facilitator, PAY_TO) == EACH + 10_000


async def test_garbage_is_a_200_that_is_no_json() -> None:
    async with facilitating() as facilitator:
        await facilitator.switch(verify="garbage", settle="garbage")
        for path in ("/verify", "/settle"):
            answer = await facilitator.ask(path, body_2(PAYER.signed()))
            assert answer.status == 200
            with pytest.raises(ValueError):
                json.loads(answer.body)
        assert (await facilitator.ledger())["totals"]["settled"] == 0


async def test_a_slow_one_settles_at_once_and_answers_later() -> None:
    async with facilitating() as facilitator:
        await facilitator.switch(settle="slow:0.2", times=1)
        began = trio.current_time()
        assert (await facilitator.said("/settle", body_2(PAYER.signed())))["success"]
        assert trio.current_time() - began >= 0.2
        await facilitator.switch(settle="slow:3600", times=1)
        async with await facilitator.server.connect() as peer:
            await peer.send(facilitator.request("/settle", body_2(PAYER.signed(nonce=2))))
            await until(lambda: coins_of(facilitator, PAY_TO) == EACH + 20_000)


async def test_a_late_one_answers_504_and_settles_afterwards_whoever_has_left() -> None:
    async with facilitating() as facilitator:
        await facilitator.switch(settle="late:0.2", times=1)
        answer = await facilitator.ask("/settle", body_2(PAYER.signed()))
        assert answer.status == 504
        assert coins_of(facilitator, PAY_TO) == EACH
        await until(lambda: coins_of(facilitator, PAY_TO) == EACH + 10_000)
        assert (await facilitator.said("/settle", body_2(PAYER.signed())))["errorReason"] == USED


async def test_a_pending_settlement_has_its_transaction_and_is_confirmed_to_whoever_asks_again() -> None:
    async with facilitating() as facilitator:
        await facilitator.switch(settle="pending", times=2)
        first = await facilitator.said("/settle", body_2(PAYER.signed()))
        assert (first["success"], first["errorReason"]) == (False, "settlement_pending")
        assert first["transaction"]
        assert await facilitator.said("/settle", body_2(PAYER.signed())) == first
        facilitator.clock[0] += 1000  # the authorization has expired, and was used before that
        other = await facilitator.said("/settle", body_2(PAYER.signed(20_000), requirements(20_000)))
        assert other["errorReason"] == "invalid_exact_evm_payload_authorization_valid_before"
        confirmed = await facilitator.said("/settle", body_2(PAYER.signed()))
        assert (confirmed["success"], confirmed["transaction"]) == (True, first["transaction"])
        facilitator.clock[0] -= 1000
        assert (await facilitator.said("/settle", body_2(PAYER.signed())))["errorReason"] == USED
        assert coins_of(facilitator, PAY_TO) == EACH + 10_000


async def test_misbehaviour_counts_the_calls_that_it_does_not_answer() -> None:
    async with facilitating() as facilitator:
        for mode in ("500", "fail", "504-after-settle", "garbage"):
            await facilitator.switch(settle=mode, times=1)
            await facilitator.ask("/settle", body_2(PAYER.signed()))
        (entry,) = (await facilitator.ledger())["authorizations"]
        assert (entry["settle_calls"], entry["settled"]) == (4, True)
        assert await facilitator.said("/test/switch") == {"verify": {"mode": "ok"}, "settle": {"mode": "ok"}}


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({}, "verify or settle"),
        ({"settle": "explode"}, "settle is one of"),
        ({"verify": "pending"}, "verify is one of"),
        ({"settle": "slow:ages"}, "seconds"),
        ({"settle": "slow:9999"}, "seconds"),
        ({"settle": "fail:No Reason!"}, "reason"),
        ({"settle": "lost:3"}, "colon"),
        ({"settle": "lost", "times": 0}, "times"),
        ({"settle": "lost", "time": 1}, "time"),
        ({"settle": 500}, "str"),
        ([], "object"),
        (b"{", "truncated"),
    ],
)
async def test_a_switch_that_is_none_is_named_and_changes_nothing(body: object, word: str) -> None:
    async with facilitating() as facilitator:
        await facilitator.switch(verify="slow:0.1", times=7)
        before = await facilitator.said("/test/switch")
        answer = await facilitator.ask("/test/switch", body)
        assert answer.status == 400
        assert word in json.loads(answer.body)["error"]
        assert await facilitator.said("/test/switch") == before


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"address": "0x12", "amount": "$1"}, "the address is no address"),
        ({"address": PAY_TO, "amount": "-1"}, "the amount is no amount"),
        ({"address": PAY_TO, "amount": "$0.0000001"}, "the amount is no amount"),
        ({"address": PAY_TO, "amount": "$1", "network": "base"}, "no test coins"),
        ({"address": PAY_TO}, "amount"),
        (b"nothing", "malformed"),
    ],
)
async def test_coins_that_cannot_be_given_are_refused_in_words(body: object, word: str) -> None:
    async with facilitating() as facilitator:
        answer = await facilitator.ask("/test/coins", body)
        assert answer.status == 400
        assert word in json.loads(answer.body)["error"]
        assert (await facilitator.ledger())["balances"] == []


# ── room ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_what_is_kept_is_bounded_and_what_counted_is_forgotten_only_when_it_has_expired(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(coin_book, "MOST_AUTHORIZATIONS", 4)
    async with facilitating() as facilitator:
        for nonce in (1, 2):
            await facilitator.said("/settle", body_2(PAYER.signed(nonce=nonce)))
        for nonce in range(10, 30):
            assert (await facilitator.said("/verify", body_2(PAYER.signed(nonce=nonce))))["isValid"]
            assert len(facilitator.desk.coins.authorizations()) <= 4
        assert (await facilitator.said("/settle", body_2(PAYER.signed(nonce=1))))["errorReason"] == USED
        for nonce in (3, 4):
            await facilitator.said("/settle", body_2(PAYER.signed(nonce=nonce)))
        for path in ("/verify", "/settle"):
            assert (await facilitator.ask(path, body_2(PAYER.signed(nonce=5)))).status == 503
        facilitator.clock[0] = NOW + 301
        later = PAYER.signed(nonce=5, valid_before=NOW + 900)
        assert (await facilitator.said("/settle", body_2(later)))["success"]
        expired = await facilitator.said("/settle", body_2(PAYER.signed(nonce=1)))
        assert expired["errorReason"] == "invalid_exact_evm_payload_authorization_valid_before"


async def test_addresses_are_bounded_too_and_coins_are_never_lost_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(coin_book, "MOST_ADDRESSES", 1)
    async with facilitating() as facilitator:
        refused = await facilitator.ask("/settle", body_2(PAYER.signed()))
        assert refused.status == 503
        assert coins_of(facilitator, PAYER.address) == coins_of(facilitator, PAY_TO) == EACH
        await facilitator.said("/test/coins", {"address": PAY_TO, "amount": "$1"})
        await facilitator.said("/test/coins", {"address": PAY_TO, "amount": "$2", "network": "base-sepolia"})
        other = await facilitator.ask("/test/coins", {"address": PAYER.address, "amount": "$1"})
        assert other.status == 503
        assert coins_of(facilitator, PAY_TO) == 2_000_000


def test_balances_are_of_each_token_by_itself() -> None:
    _, fuji = place("avalanche-fuji")
    coins = Coins([place(), place("avalanche-fuji")], EACH)
    coins.put(USDC, PAY_TO, 5)
    assert list(map(partial(coins.balance, address=PAY_TO), (USDC, fuji))) == [5, EACH]
