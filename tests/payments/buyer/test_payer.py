"""One call costs at most one payment, whatever gets lost: between a wallet and a shop that checks signatures and counts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from purses import NOW, Wallet
from shop import TRANSACTION, Shop, as_result, asking, offer, packed, unpacked

from server.payments.buyer.payer import PaidCall, purpose_of
from server.payments.buyer.spending_policy import CannotPay
from server.payments.x402.payment_identifier import declaration
from server.payments.x402.payment_payload import check_window, match, read_payment
from server.payments.x402.requirements import read_requirements

ANSWER = {"content": [{"type": "text", "text": "hello"}], "resultType": "complete"}


@pytest.fixture
def wallet(tmp_path: Path) -> Wallet:
    return Wallet(tmp_path)


@pytest.fixture
def shop() -> Shop:
    return Shop(now=NOW)


class Lost(Exception):
    """The connection broke off."""


def serve(shop: Shop, meta: dict[str, Any]) -> dict[str, Any]:
    """The shop over MCP."""
    payment = meta.get("x402/payment")
    if payment is None:
        return as_result(shop.challenge)
    receipt, refusal = shop.take(payment)
    return as_result(refusal) if receipt is None else {**ANSWER, "_meta": {"x402/payment-response": receipt}}


async def run(
    call: PaidCall, shop: Shop, through: Callable[[dict[str, Any]], dict[str, Any]] = lambda result: result
) -> dict[str, Any]:
    await call.begin()
    return await run_on(call, shop, through)


async def run_on(
    call: PaidCall, shop: Shop, through: Callable[[dict[str, Any]], dict[str, Any]] = lambda result: result
) -> dict[str, Any]:
    """From where it has begun."""
    while True:
        result = through(serve(shop, json.loads(json.dumps(call.meta))))
        if not await call.again(result):
            return result


def lose(result: dict[str, Any]) -> dict[str, Any]:
    """Every answer to a payment."""
    if "_meta" in result:
        raise Lost
    return result


async def test_a_call_is_paid_once_and_what_was_done_is_told(wallet: Wallet, shop: Shop) -> None:
    assert (await run(wallet.call(), shop))["content"] == ANSWER["content"]
    assert (shop.taken, len(shop.shown), wallet.spent) == (20_000, 1, "$0.02")
    assert wallet.told == [
        "paying $0.02 to 0x2096…287C on Base Sepolia (a test network) for the tool `echo`",
        f"paid $0.02 on Base Sepolia, transaction {TRANSACTION}",
    ]
    assert wallet.spending.unanswered() == ()
    await run(wallet.call(), shop)
    assert (shop.taken, len(shop.cashed)) == (40_000, 2)


@pytest.mark.parametrize("version", [1, 2])
async def test_what_is_signed_is_what_our_own_server_takes(wallet: Wallet, version: int) -> None:
    shop = Shop(version=version, now=NOW)
    await run(wallet.call(), shop)
    (sent,) = shop.shown
    payment = read_payment(sent)
    offered = read_requirements(shop.challenge["accepts"][0])
    assert match(payment, [offered], {"mcp://tool/echo"}) is offered
    check_window(payment, int(NOW), 60)
    assert payment.authorization.valid_before == NOW + 300
    assert payment.version == version


async def test_extensions_come_back_as_they_were_with_a_name_for_the_purchase(
    wallet: Wallet, shop: Shop
) -> None:
    shop.more["extensions"] = {
        "bazaar": {"info": {"a": [1]}},
        "payment-identifier": declaration(required=True),
    }
    await run(wallet.call(), shop)
    (sent,) = shop.shown
    assert sent["extensions"]["bazaar"] == {"info": {"a": [1]}}
    assert read_payment(sent).identifier is not None
    shop.more["extensions"] = {"bazaar": {"info": "x" * 20_000}}
    with pytest.raises(CannotPay, match="more to be sent"):
        await run(wallet.call("other"), shop)


async def test_a_lost_answer_is_asked_for_with_the_same_payment_and_the_same_key(
    wallet: Wallet, shop: Shop
) -> None:
    call = wallet.call()
    with pytest.raises(Lost):
        await run(call, shop, lose)
    with pytest.raises(Lost):
        await run(wallet.call(), shop, lose)
    again = wallet.call()
    await run(again, shop)
    assert again.meta == call.meta
    assert len(shop.shown) == 3
    assert (len(shop.cashed), shop.taken, wallet.spent) == (1, 20_000, "$0.02")
    assert wallet.told[1].startswith("showing the payment of before again: $0.02 to")
    assert wallet.spending.unanswered() == ()


async def test_another_call_is_another_payment(wallet: Wallet, shop: Shop) -> None:
    with pytest.raises(Lost):
        await run(wallet.call(), shop, lose)
    await run(wallet.call("other"), shop)
    assert len(shop.cashed) == 2
    assert purpose_of("a", "b", {"x": 1, "y": 2}) == purpose_of("a", "b", {"y": 2, "x": 1})
    assert (
        len({purpose_of(*each) for each in (("a", "b", 1), ("a", "c", 1), ("c", "b", 1), ("a", "b", "1"))})
        == 4
    )


async def test_a_payment_that_goes_out_twice_at_once_is_one(wallet: Wallet, shop: Shop) -> None:
    calls = [wallet.call() for _ in range(8)]

    async def pay(call: PaidCall) -> None:
        await call.begin()
        assert await call.again(as_result(shop.challenge))

    # Whoever begins after one of them has its answer makes another call, so they wait for each other.
    async with trio.open_nursery() as nursery:
        for call in calls:
            nursery.start_soon(pay, call)
    assert len({json.dumps(call.meta) for call in calls}) == 1
    async with trio.open_nursery() as nursery:
        for call in calls:
            nursery.start_soon(run_on, call, shop)
    assert (len(shop.shown), len(shop.cashed), shop.taken) == (8, 1, 20_000)
    assert (wallet.spent, wallet.spending.unanswered()) == ("$0.02", ())


async def test_two_that_sign_for_the_same_call_send_one_signature(wallet: Wallet, shop: Shop) -> None:
    one, other = wallet.call(), wallet.call()
    await one.begin()
    await other.begin()
    assert await one.again(as_result(shop.challenge)) and await other.again(as_result(shop.challenge))
    assert one.meta == other.meta != {}
    assert wallet.spent == "$0.02"


async def test_a_note_is_that_of_the_first_time(wallet: Wallet, shop: Shop) -> None:
    def call(note: str) -> PaidCall:
        return wallet.payer().call("http://x", "it", [], note=note)

    one, other = call("one"), call("other")
    await one.begin()
    await other.begin()
    assert await one.again(as_result(shop.challenge))
    with pytest.raises(CannotPay, match="at this moment"):
        await other.again(as_result(shop.challenge))
    again = call("again")
    assert again.note == "again"
    await again.begin()
    assert (again.note, again.meta) == ("one", one.meta)
    assert wallet.spent == "$0.02"


async def test_a_refused_payment_is_shown_again_and_no_other_is_signed_beside_it(
    wallet: Wallet, shop: Shop
) -> None:
    shop.refuses = "insufficient_funds\x1b[31m"
    with pytest.raises(CannotPay, match=r"not taken \(\$0.02 to .*\): insufficient_funds \[31m") as caught:
        await run(wallet.call(), shop)
    assert "for 360 seconds, and pays no second time" in str(caught.value.hint)
    with pytest.raises(CannotPay):
        await run(wallet.call(), shop)
    assert shop.shown[0] == shop.shown[1]
    shop.refuses = ""
    await run(wallet.call(), shop)
    assert (len(shop.cashed), wallet.spent) == (1, "$0.02")


async def test_a_refused_payment_that_has_ended_makes_room_for_another(wallet: Wallet, shop: Shop) -> None:
    shop.refuses = "insufficient_funds"
    with pytest.raises(CannotPay):
        await run(wallet.call(), shop)
    wallet.now += 361
    shop.now, shop.refuses = wallet.now, ""
    await run(wallet.call(), shop)
    assert shop.shown[0] != shop.shown[1]
    assert (len(shop.cashed), wallet.spent) == (1, "$0.04")


@pytest.mark.parametrize("lost", ["answer", "settlement", "receipt"])
async def test_a_payment_of_which_nobody_knows_is_not_paid_anew_unasked(
    wallet: Wallet, shop: Shop, lost: str
) -> None:
    """As the reference servers do: after a settlement that was lost they ask to be paid again."""

    def fail(result: dict[str, Any]) -> dict[str, Any]:
        if "_meta" not in result:
            return result
        if lost == "answer":
            raise Lost
        error = "Settlement failed: fetch failed" if lost == "settlement" else "fetch failed"
        receipt = {"success": False, "transaction": "", "network": "eip155:84532"}
        return as_result(
            asking(error=error), **({"x402/payment-response": receipt} if lost == "receipt" else {})
        )

    with pytest.raises((Lost, CannotPay)):
        await run(wallet.call(), shop, fail)
    wallet.now += 361
    shop.now = wallet.now
    with pytest.raises(CannotPay, match="nobody can say") as caught:
        await run(wallet.call(), shop)
    assert "pays anew" in (caught.value.hint or "")
    assert len(shop.cashed) == 1
    await run(wallet.call(), shop)
    assert len(shop.cashed) == 2


async def test_an_answer_that_was_kept_longer_than_the_payment_is_had_without_another(
    wallet: Wallet, shop: Shop
) -> None:
    with pytest.raises(Lost):
        await run(wallet.call(), shop, lose)
    wallet.now += 86_400  # and the shop still knows it
    await run(wallet.call(), shop)
    assert len(shop.cashed) == 1


async def test_a_changed_price_is_told_before_it_is_paid(wallet: Wallet, shop: Shop) -> None:
    shop.refuses = "too late"
    with pytest.raises(CannotPay):
        await run(wallet.call(), shop)
    shop.accepts, shop.refuses = [offer(amount="30000")], ""
    with pytest.raises(CannotPay, match="the price has changed"):
        await run(wallet.call(), shop)
    await run(wallet.call(), shop)
    assert shop.taken == 30_000


async def test_a_tool_that_fails_is_called_again_with_the_same_payment(wallet: Wallet, shop: Shop) -> None:
    call = wallet.call()
    await call.begin()
    assert await call.again(as_result(shop.challenge))
    assert not await call.again({"content": [], "isError": True})
    again = wallet.call()
    await again.begin()
    assert again.meta == call.meta
    await run(wallet.call(), shop)
    assert wallet.spent == "$0.02"


@pytest.mark.parametrize(
    ("meta", "kept"),
    [
        ({}, False),
        ({"x402/payment-response": {"success": False}}, False),
        ({"x402/payment-response": {"success": True}}, True),  # paid for, and good for another try
        ({"io.ostiary/payment": {"reason": "settlement_unknown", "retryAfter": 5}}, True),
        ({"io.ostiary/payment": {"reason": "answered"}}, False),
    ],
)
async def test_a_failure_after_a_payment_has_ended_makes_room_for_another(
    wallet: Wallet, shop: Shop, meta: dict[str, Any], kept: bool
) -> None:
    with pytest.raises(Lost):
        await run(wallet.call(), shop, lose)
    for seconds, there in ((0, True), (361, kept)):
        wallet.now += seconds
        call = wallet.call()
        await call.begin()
        assert not await call.again({"content": [], "isError": True, "_meta": meta})
        assert bool(wallet.spending.unanswered()) is there
    assert ("pays anew" in " ".join(wallet.told)) is not kept


# As our own servers say of a call with a key that was interrupted while its tool ran.
LET_GO = {"io.ostiary/payment": {"reason": "interrupted", "paid": False}}
PAID_FOR = {
    "io.ostiary/payment": {"reason": "interrupted", "paid": True, "retriesLeft": 3},
    "x402/payment-response": {"success": True, "transaction": TRANSACTION, "network": "eip155:84532"},
}


async def interrupted(wallet: Wallet, shop: Shop, meta: dict[str, Any] = LET_GO) -> PaidCall:
    """A call whose answer was lost, and what it is told when it is made again."""
    with pytest.raises(Lost):
        await run(wallet.call(), shop, lose)
    again = wallet.call()
    await again.begin()
    assert not await again.again({"content": [], "isError": True, "_meta": meta})
    return again


def shown_as(call: PaidCall) -> tuple[str, str]:
    """The signature, and the key with it."""
    meta = call.meta
    return meta["x402/payment"]["payload"]["signature"], meta["x402/idempotency-key"]


async def test_a_call_that_was_interrupted_is_made_again_by_the_same_payment_with_another_key(
    wallet: Wallet, shop: Shop
) -> None:
    shop.more["extensions"] = {"payment-identifier": declaration(required=True)}
    signature, key = shown_as(await interrupted(wallet, shop))
    assert "may have been done" in wallet.told[-1] and "the same payment" in wallet.told[-1]
    keys = {key}
    for _ in range(2):
        call = wallet.call()
        await call.begin()
        same, key = shown_as(call)
        assert same == signature and key not in keys
        assert (
            read_payment(call.meta["x402/payment"]).identifier == key == dict(call.headers)["Idempotency-Key"]
        )
        keys.add(key)
        assert not await call.again({"content": [], "isError": True, "_meta": LET_GO})
    await run(wallet.call(), shop)
    assert (shop.taken, wallet.spent, wallet.spending.unanswered()) == (20_000, "$0.02", ())


async def test_a_call_that_was_interrupted_is_told_apart_over_http(wallet: Wallet, shop: Shop) -> None:
    call = wallet.call()
    await call.begin()
    await call.pay(shop.challenge)
    _, key = shown_as(call)
    body = {"error": "interrupted", "error_description": "…", "reason": "interrupted", "paid": False}
    assert not await call.again_over_http(409, lambda _: "", json.dumps(body).encode())
    again = wallet.call()
    await again.begin()
    assert shown_as(again) == (shown_as(call)[0], f"{key}-1")


@pytest.mark.parametrize("http", [False, True])
async def test_a_failure_that_is_the_answer_for_its_key_is_followed_by_a_new_key(
    wallet: Wallet, shop: Shop, http: bool
) -> None:
    call = wallet.call()
    await call.begin()
    await call.pay(shop.challenge)
    signature, key = shown_as(call)
    said = {
        "content": [],
        "isError": True,
        "_meta": {"io.ostiary/payment": {"reason": "failed", "paid": False}},
    }
    if http:
        assert not await call.again_over_http(422, lambda _: "", json.dumps(said).encode())
    else:
        assert not await call.again(said)
    again = wallet.call()
    await again.begin()
    assert shown_as(again) == (signature, f"{key}-1")


async def test_one_that_was_interrupted_after_it_was_paid_for_keeps_its_key(
    wallet: Wallet, shop: Shop
) -> None:
    told = await interrupted(wallet, shop, PAID_FOR)
    assert any("may have been done" in line and "costs nothing" in line for line in wallet.told)
    again = wallet.call()
    await again.begin()
    assert again.meta == told.meta


@pytest.mark.parametrize(
    "meta",
    [
        {"io.ostiary/payment": {"reason": "interrupted"}},
        {"io.ostiary/payment": {"reason": "interrupted", "paid": "no"}},
        {"io.ostiary/payment": {"paid": False}},
        {"io.ostiary/payment": "interrupted"},
        {**PAID_FOR, **LET_GO},
    ],
)
async def test_what_does_not_say_that_nothing_was_taken_leaves_the_key(
    wallet: Wallet, shop: Shop, meta: dict[str, Any]
) -> None:
    told = await interrupted(wallet, shop, meta)
    again = wallet.call()
    await again.begin()
    assert again.meta == told.meta


async def test_a_server_that_lies_of_a_call_that_was_interrupted_is_not_paid_twice_meanwhile(
    wallet: Wallet, shop: Shop
) -> None:
    """It has cashed what it says that it has not taken. What is signed when that has ended counts as well, and is agreed to."""
    wallet.limits, wallet.agrees = {"per_day": "0.04", "confirm_above": "0.01"}, True
    await interrupted(wallet, shop)
    for _ in range(3):
        call = wallet.call()
        await call.begin()
        assert not await call.again({"content": [], "isError": True, "_meta": LET_GO})
    assert (len(shop.cashed), wallet.spent, len(wallet.asked)) == (1, "$0.02", 1)
    wallet.now += 361
    shop.now = wallet.now
    await run(wallet.call(), shop)
    assert (len(shop.cashed), wallet.spent, len(wallet.asked)) == (2, "$0.04", 2)
    with pytest.raises(CannotPay, match="a day"):
        await run(wallet.call(), shop)


async def test_two_that_are_told_that_their_call_was_interrupted_come_to_one_key(
    wallet: Wallet, shop: Shop
) -> None:
    with pytest.raises(Lost):
        await run(wallet.call(), shop, lose)
    one, other = wallet.call(), wallet.call()
    await one.begin()
    await other.begin()
    for each in (one, other):
        assert not await each.again({"content": [], "isError": True, "_meta": LET_GO})
    third = wallet.call()
    await third.begin()
    assert shown_as(third)[1] == f"{shown_as(one)[1]}-1"
    assert not await other.again({**ANSWER})  # with the key of before
    assert wallet.spending.unanswered() == ()


@pytest.mark.parametrize("before", ["refused", "interrupted"])
async def test_what_was_refused_and_then_shown_again_is_not_known_to_be_refused(
    wallet: Wallet, shop: Shop, before: str
) -> None:
    if before == "interrupted":
        call = wallet.call()
        await call.begin()
        await call.pay(shop.challenge)
        assert not await call.again({"content": [], "isError": True, "_meta": LET_GO})
    else:
        shop.refuses = "insufficient_funds"
        with pytest.raises(CannotPay):
            await run(wallet.call(), shop)
        shop.refuses = ""
    with pytest.raises(Lost):
        await run(wallet.call(), shop, lose)
    assert len(shop.cashed) == 1
    wallet.now += 361
    shop.now = wallet.now
    with pytest.raises(CannotPay, match="nobody can say"):
        await run(wallet.call(), shop)
    assert len(shop.cashed) == 1


async def test_a_question_is_no_answer(wallet: Wallet, shop: Shop) -> None:
    call = wallet.call()
    await call.begin()
    assert await call.again(as_result(shop.challenge))
    assert not await call.again({"resultType": "input_required", "inputRequests": {}})
    assert len(wallet.spending.unanswered()) == 1
    assert call.meta["x402/payment"]


async def test_errors_by_which_other_servers_ask_are_understood(wallet: Wallet, shop: Shop) -> None:
    for number, error in enumerate(
        ({"code": 402, "data": shop.challenge}, {"code": -32042, "data": {"x402": shop.challenge}})
    ):
        call = wallet.call(str(number))
        await call.begin()
        assert await call.again_after_error(error)
        assert shop.take(call.meta["x402/payment"])[0]
    assert not await wallet.call("x").again_after_error({"code": -32602, "message": "no"})


@pytest.mark.parametrize("version", [1, 2])
async def test_over_http_version_2_travels_in_headers_and_version_1_in_the_body(
    wallet: Wallet, version: int
) -> None:
    shop = Shop(version=version, now=NOW)
    call = wallet.call()
    await call.begin()
    assert call.headers == ()
    asked = {"PAYMENT-REQUIRED": packed(shop.challenge)} if version == 2 else {}
    body = b"{}" if version == 2 else json.dumps(shop.challenge).encode()
    assert await call.again_over_http(402, lambda name: asked.get(name, ""), body)
    sent = dict(call.headers)
    key = sent.pop("Idempotency-Key")
    ((name, text),) = sent.items()
    assert name == ("PAYMENT-SIGNATURE" if version == 2 else "X-PAYMENT")
    receipt, _ = shop.take(unpacked(text))
    assert receipt is not None and len(key) == 32
    answered = "PAYMENT-RESPONSE" if version == 2 else "X-PAYMENT-RESPONSE"
    assert not await call.again_over_http(
        200, lambda name: packed(receipt) if name == answered else "", b"ok"
    )
    assert wallet.told[-1] == f"paid $0.02 on Base Sepolia, transaction {TRANSACTION}"
    assert wallet.spending.unanswered() == ()


@pytest.mark.parametrize("body", [b"", b"no", b"[]", b"{}", b'{"accepts": 5', b"\xff\xfe", b"[" * 100_000])
async def test_a_402_of_another_kind_is_not_ours_to_pay(wallet: Wallet, body: bytes) -> None:
    call = wallet.call()
    await call.begin()
    assert not await call.again_over_http(402, lambda _: "", body)
    assert not await call.again_over_http(402, lambda _: "%%%", body)
    assert wallet.spent == "$0.00"


async def test_a_failure_over_http_leaves_the_payment_for_the_next_try(wallet: Wallet, shop: Shop) -> None:
    call = wallet.call()
    await call.begin()
    await call.pay(shop.challenge)
    assert not await call.again_over_http(504, lambda _: "", b"")
    assert [each.identifier for each in wallet.spending.unanswered()] == [call.meta["x402/idempotency-key"]]


@pytest.mark.parametrize(
    ("status", "named", "kept"),
    [
        (503, "", True),
        (500, "", False),
        (502, "", True),
        (429, "", True),
        (409, "Retry-After", True),
        (409, "", False),
        (422, "", False),
    ],
)
async def test_what_a_server_cannot_say_yet_over_http_is_asked_again_also_when_the_payment_has_ended(
    wallet: Wallet, shop: Shop, status: int, named: str, kept: bool
) -> None:
    """A settlement of which nobody knows is answered by 503: what then is forgotten is paid twice."""
    call = wallet.call()
    await call.begin()
    await call.pay(shop.challenge)
    wallet.now += 361
    again = wallet.call()
    await again.begin()
    assert not await again.again_over_http(status, lambda name: "5" if name == named else "", b"")
    assert bool(wallet.spending.unanswered()) is kept


async def test_a_person_who_agreed_to_a_deposit_is_asked_though_it_is_little(
    wallet: Wallet, shop: Shop
) -> None:
    wallet.agrees = False
    call = wallet.payer().deposit("http://x/mcp", 20_000, asks=True, nameless=False)
    with pytest.raises(CannotPay, match="not paid"):
        await call.pay(shop.challenge)
    assert wallet.asked == [
        "$0.02 to 0x2096…287C on Base Sepolia (a test network) for a deposit at http://x/mcp"
    ]
    await wallet.payer().deposit("http://x/mcp", 20_000, asks=False, nameless=False).pay(shop.challenge)
    assert (len(wallet.asked), wallet.spent) == (1, "$0.02")


async def test_nobody_is_asked_for_what_the_day_does_not_allow(wallet: Wallet, shop: Shop) -> None:
    wallet.agrees, wallet.limits = True, {"per_day": "0.01", "confirm_above": "0"}
    with pytest.raises(CannotPay, match=r"of the \$0.01 a day") as caught:
        await run(wallet.call(), shop)
    assert caught.value.hint == "set per-day to $0.02"
    assert (wallet.asked, shop.shown) == ([], [])


@pytest.mark.parametrize("nameless", [True, False])
async def test_a_deposit_that_was_begun_for_one_balance_is_not_shown_for_another(
    wallet: Wallet, shop: Shop, nameless: bool
) -> None:
    begun = wallet.payer().deposit("http://x/mcp", 20_000, asks=False, nameless=nameless)
    await begun.begin()
    await begun.pay(shop.challenge)
    other = wallet.payer().deposit("http://x/mcp", 20_000, asks=False, nameless=not nameless)
    with pytest.raises(CannotPay, match=f"begun {'without' if nameless else 'with'} a login") as caught:
        await other.begin()
    assert "it is paid once" in str(caught.value.hint)
    assert wallet.spent == "$0.02"


async def test_the_same_deposit_shows_the_same_payment_until_it_is_answered(
    wallet: Wallet, shop: Shop
) -> None:
    one, other = (
        wallet.payer().deposit("http://x/mcp", amount, asks=False, nameless=False)
        for amount in (20_000, 30_000)
    )
    await one.begin()
    await one.pay(shop.challenge)
    again = wallet.payer().deposit("http://x/mcp", 20_000, asks=False, nameless=False)
    await again.begin()
    assert again.headers == one.headers != ()
    await other.begin()
    assert not other.paying
    assert not await again.again_over_http(200, lambda _: "", b"{}")
    third = wallet.payer().deposit("http://x/mcp", 20_000, asks=False, nameless=False)
    await third.begin()
    assert not third.paying


async def test_a_person_is_asked_beyond_what_was_agreed_on_and_can_say_no(wallet: Wallet, shop: Shop) -> None:
    wallet.limits, wallet.agrees = {"confirm_above": "0.01"}, False
    with pytest.raises(CannotPay, match="not paid"):
        await run(wallet.call(), shop)
    assert (shop.shown, wallet.spent) == ([], "$0.00")
    wallet.agrees = True
    await run(wallet.call(), shop)
    assert wallet.asked[-1] == "$0.02 to 0x2096…287C on Base Sepolia (a test network) for the tool `echo`"
    wallet.limits = {"confirm_above": "0.02"}
    await run(wallet.call(), shop)
    assert len(wallet.asked) == 2


async def test_where_nobody_can_be_asked_it_is_not_paid(wallet: Wallet, shop: Shop) -> None:
    wallet.limits = {"confirm_above": "0.01"}
    with pytest.raises(CannotPay, match=r"beyond \$0.01 a person has to agree") as caught:
        await run(wallet.call(), shop)
    assert caught.value.hint == "set confirm-above to $0.02"
    wallet.limits = {"confirm_above": None}
    await run(wallet.call(), shop)


async def test_the_days_limit_ends_it(wallet: Wallet, shop: Shop) -> None:
    for number in range(5):
        await run(wallet.call(str(number)), shop)
    with pytest.raises(CannotPay, match=r"\$0.10 a day"):
        await run(wallet.call("one more"), shop)
    assert shop.taken == 100_000


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"success": False}, "not settled"),
        ({"success": "yes"}, "not settled"),
        ({"network": "eip155:8453"}, "another payment"),
        ({"network": 5}, "another payment"),
        ({"payer": "0x" + "1" * 40}, "another payment"),
        ({"transaction": "abc\x1b"}, "paid $0.02 on Base Sepolia"),
        ({"payer": None}, "transaction 0xabab"),
    ],
)
async def test_a_receipt_is_believed_only_as_far_as_it_fits(
    wallet: Wallet, shop: Shop, changes: dict[str, Any], words: str
) -> None:
    def change(result: dict[str, Any]) -> dict[str, Any]:
        if "_meta" in result:
            result["_meta"]["x402/payment-response"] |= changes
        return result

    await run(wallet.call(), shop, change)
    assert words in wallet.told[-1]
    assert "\x1b" not in wallet.told[-1]


async def test_a_missing_receipt_is_told(wallet: Wallet, shop: Shop) -> None:
    await run(wallet.call(), shop, lambda result: {**result, "_meta": {}})
    assert "no receipt" in wallet.told[-1]
