"""What the tests of payments stand on: the chain, the dollar, the facilitator, the payers and the faults, held against a shop of the
reference's own.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import httpx2
import pytest
from fault_proxy import Fault, FaultProxy, fault_proxy, paying, to
from local_chain import PAYMENT_PEERS, LocalChain, TestDollar
from payers import PAYERS, Payer, demanded, node, reference_shop, signed
from programs import WAIT_SECONDS

pytestmark = [pytest.mark.peers, pytest.mark.slow]

PRICE = 12_345


class Shop(NamedTuple):
    seller: str
    settling: FaultProxy  # between the shop and the facilitator
    buying: FaultProxy  # between the payers and the shop


@pytest.fixture(scope="module")
def shop(
    chain: LocalChain, reference_facilitator: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shop]:
    seller = chain.account().address
    folder = tmp_path_factory.mktemp("shop")
    with (
        fault_proxy(reference_facilitator) as settling,
        reference_shop(settling.url, seller, PRICE, folder) as url,
        fault_proxy(url) as buying,
    ):
        yield Shop(seller, settling, buying)


@pytest.fixture(autouse=True)
def _healed(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "shop" in request.fixturenames:
        shop: Shop = request.getfixturevalue("shop")
        shop.settling.heal()
        shop.buying.heal()


def call_of(payer: Payer, shop: Shop) -> tuple[str, Any]:
    if payer.over_mcp:
        return f"{shop.buying.url}/mcp", {"name": "paid", "arguments": {"text": "hello"}}
    return f"{shop.buying.url}/paid", {"text": "hello"}


def test_the_contracts_on_the_chain_are_what_their_source_compiles_to() -> None:
    compiled = subprocess.run(
        [str(part) for part in node("compile.mjs")],
        capture_output=True, text=True, check=True, timeout=WAIT_SECONDS,
    ).stdout  # fmt: skip
    assert compiled == (PAYMENT_PEERS / "contracts.json").read_text("utf-8")


@pytest.mark.parametrize("name", PAYERS)
def test_a_payer_pays_once_and_the_balances_move_by_the_price(
    name: str, shop: Shop, dollar: TestDollar
) -> None:
    payer, account = PAYERS[name], dollar.rich(1_000_000)
    before = dollar.balance(shop.seller)
    paid = payer.pay(account, *call_of(payer, shop))
    assert paid.error is None
    assert not paid.failed, paid
    assert dollar.balance(account.address) == 1_000_000 - PRICE
    assert dollar.balance(shop.seller) == before + PRICE
    (spent,) = dollar.spent_by(account.address)
    assert paid.transaction == spent.transaction
    assert dollar.used(account.address, spent.nonce)


def test_a_payer_without_money_pays_nothing(shop: Shop, dollar: TestDollar, chain: LocalChain) -> None:
    account = chain.account()
    paid = PAYERS["fetch-v2"].pay(account, f"{shop.buying.url}/paid")
    assert (paid.status, paid.body) == (402, {"error": "invalid_exact_evm_insufficient_balance"})
    assert dollar.spent_by(account.address) == []


def test_an_authorization_counts_once_on_the_chain(
    shop: Shop, dollar: TestDollar, reference_facilitator: str
) -> None:
    account = dollar.rich()
    payment = signed(account, demanded(f"{shop.buying.url}/paid"))
    with httpx2.Client(trust_env=False, timeout=WAIT_SECONDS) as web:
        answers = [web.get(f"{shop.buying.url}/paid", headers=payment.headers) for _ in range(2)]
        asked = {
            "x402Version": 2,
            "paymentPayload": payment.payment,
            "paymentRequirements": payment.payment["accepted"],
        }
        again = web.post(f"{reference_facilitator}/settle", json=asked).json()
    assert [answer.status_code for answer in answers] == [200, 402]
    # Whoever settles what is settled is told no more than this: that it was settled by themselves, the chain alone knows.
    assert again["success"] is False
    assert answers[1].json() == {"error": "invalid_exact_evm_nonce_already_used"}
    assert [spent.nonce for spent in dollar.spent_by(account.address)] == [payment.nonce]


def test_the_reference_serves_one_payment_as_often_as_it_comes_at_once(
    shop: Shop, dollar: TestDollar
) -> None:
    """What ours must not do, and what this bench would show."""
    account = dollar.rich()
    url = f"{shop.buying.url}/paid"
    payment = signed(account, demanded(url))
    first = httpx2.get(
        url, headers=signed(account, demanded(url)).headers, trust_env=False, timeout=WAIT_SECONDS
    ).json()
    before = len(shop.settling.seen(to("/settle")))
    verified = len(shop.settling.seen(to("/verify")))
    shop.settling.always(to("/verify"), Fault.HOLD)
    shop.settling.always(to("/settle"), Fault.HOLD)

    def send(_: int) -> httpx2.Response:
        return httpx2.get(url, headers=payment.headers, trust_env=False, timeout=WAIT_SECONDS)

    with ThreadPoolExecutor(5) as together:
        sent = [together.submit(send, number) for number in range(5)]
        # Each is found good before the first is settled.
        shop.settling.await_seen(to("/verify"), verified + 5, answered=True)
        shop.settling.let_go()
        shop.settling.await_seen(to("/settle"), before + 5, answered=True)
        shop.settling.heal()
        statuses = sorted(one.result().status_code for one in sent)
    last = httpx2.get(
        url, headers=signed(account, demanded(url)).headers, trust_env=False, timeout=WAIT_SECONDS
    ).json()
    assert statuses == [200, 402, 402, 402, 402]
    assert last["served"] - first["served"] == 6
    assert len(dollar.spent_by(account.address)) == 3


@pytest.mark.parametrize("fault", [Fault.LOSE, Fault.GATEWAY, Fault.GARBLE, Fault.CUT])
def test_an_answer_of_the_facilitator_is_lost_after_the_money_has_moved(
    fault: Fault, shop: Shop, dollar: TestDollar
) -> None:
    account = dollar.rich()
    shop.settling.next(to("/settle"), fault)
    paid = PAYERS["fetch-v2"].pay(account, f"{shop.buying.url}/paid")
    assert paid.failed
    assert len(dollar.spent_by(account.address)) == 1


@pytest.mark.parametrize("fault", [Fault.REFUSE, Fault.FAIL])
def test_a_request_is_lost_before_anything_has_moved(fault: Fault, shop: Shop, dollar: TestDollar) -> None:
    account = dollar.rich()
    shop.settling.next(to("/settle"), fault)
    paid = PAYERS["fetch-v2"].pay(account, f"{shop.buying.url}/paid")
    assert paid.failed
    assert dollar.spent_by(account.address) == []


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("httpx-v2", Fault.LOSE),
        ("requests-v2", Fault.CUT),
        ("mcp", Fault.LOSE),
        ("fetch-v2", Fault.LOSE),
        ("fetch-v1", Fault.CUT),
    ],
)
def test_a_payer_whose_answer_is_lost_signs_anew_and_pays_the_reference_twice(
    name: str, fault: Fault, shop: Shop, dollar: TestDollar
) -> None:
    """What ours must not do, and what this bench would show."""
    payer, account = PAYERS[name], dollar.rich()
    shop.buying.next(paying, fault)
    lost = payer.pay(account, *call_of(payer, shop))
    assert lost.failed
    assert lost.error
    assert not payer.pay(account, *call_of(payer, shop)).failed
    first, second = dollar.spent_by(account.address)
    assert first.nonce != second.nonce


def test_a_chain_that_stands_still_keeps_what_was_sent_until_it_goes_on(
    shop: Shop, dollar: TestDollar, chain: LocalChain
) -> None:
    account = dollar.rich()
    with ThreadPoolExecutor(1) as beside, chain.standing_still():
        paid = beside.submit(PAYERS["fetch-v2"].pay, account, f"{shop.buying.url}/paid")
        shop.settling.await_seen(
            lambda exchange: (
                exchange.path == "/settle" and account.address[2:].encode() in exchange.body.lower()
            )
        )
        chain.await_waiting(1)
        assert dollar.spent_by(account.address) == []
        chain.ask("anvil_mine", "0x1")
        assert not paid.result().failed
    assert len(dollar.spent_by(account.address)) == 1
