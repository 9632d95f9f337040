"""HTTP agents that ask to be paid (402), in both versions of the protocol: paid within limits, once, and never without a wallet."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from server.agents.base.agent_wallet import PayConfig, open_wallet
from server.agents.chat.chat_agent import ChatConfig, problems
from server.mcp.call_failures import BackendError
from server.settings.secret_reference import SecretUnreadable
from tests.agents.chat import chat_pair, openai_pair
from tests.agents.python.fake_agent import Exchange
from tests.payments.buyer.purses import Wallet
from tests.payments.buyer.shop import KEY, PAYER, TRANSACTION, Shop, packed, unpacked

LIMITS: dict[str, Any] = {
    "key": "env:AGENT_WALLET",
    "per_call": "$0.05",
    "per_day": "$1",
    "networks": ["base-sepolia"],
    "payees": ["any"],
}


@pytest.fixture
def wallet(tmp_path: Path) -> Wallet:
    return Wallet(tmp_path)


@dataclass
class Till:
    """In front of an agent: lets in whoever paid."""

    shop: Shop
    answer: Mapping[str, Any]
    losing: int = 0  # answers to payments that break off
    streams: bool = False

    async def __call__(self, exchange: Exchange) -> None:
        shop, headers = self.shop, exchange.request.headers
        name = "payment-signature" if shop.version == 2 else "x-payment"
        other = "x-payment" if shop.version == 2 else "payment-signature"
        assert other not in headers
        if name not in headers:
            await self._ask(exchange, shop.challenge)
            return
        receipt, refusal = shop.take(unpacked(headers[name]))
        if receipt is None:
            await self._ask(exchange, refusal)
            return
        if self.losing:
            self.losing -= 1
            await exchange.stream.aclose()
            return
        given = "PAYMENT-RESPONSE" if shop.version == 2 else "X-PAYMENT-RESPONSE"
        if self.streams:
            await exchange.begin_stream()
            await exchange.event(openai_pair.delta("hel"))
            await exchange.event(openai_pair.delta("lo", reason="stop"))
            await exchange.chunk(b"data: [DONE]\n\n")
            await exchange.end_stream()
            return
        await exchange.reply(self.answer, headers=[(given, packed(receipt))])

    async def _ask(self, exchange: Exchange, challenge: dict[str, Any]) -> None:
        if self.shop.version == 2:
            await exchange.reply({}, status=402, headers=[("Payment-Required", packed(challenge))])
        else:
            await exchange.reply(challenge, status=402)


@pytest.mark.parametrize("version", [1, 2])
async def test_an_agent_that_asks_is_paid_and_asked_again(wallet: Wallet, version: int) -> None:
    till = Till(Shop(version=version, now=wallet.now), {"text": "hello"})
    async with chat_pair.against(till, payer=wallet.payer()) as (agent, under_test):
        assert chat_pair.text(await chat_pair.ask(under_test)) == "hello"
    asked, paid = agent.requests
    assert asked.body == paid.body
    assert len(paid.headers["idempotency-key"]) == 32
    assert (till.shop.taken, wallet.spent) == (20_000, "$0.02")
    assert wallet.told == [
        "paying $0.02 to 0x2096…287C on Base Sepolia (a test network) for a reply of an agent",
        f"paid $0.02 on Base Sepolia, transaction {TRANSACTION}",
    ]


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("version", [1, 2])
async def test_a_model_is_paid_for_whether_it_streams_or_not(
    wallet: Wallet, version: int, streams: bool
) -> None:
    till = Till(Shop(version=version, now=wallet.now), openai_pair.completion("hello"), streams=streams)
    async with openai_pair.against(till, payer=wallet.payer(), stream=streams) as (agent, under_test):
        assert openai_pair.texts(await openai_pair.ask(under_test)) == ["hello"]
    assert len(agent.requests) == 2
    assert (till.shop.taken, wallet.spent) == (20_000, "$0.02")
    assert wallet.spending.unanswered() == ()


@pytest.mark.parametrize("streams", [False, True])
async def test_a_lost_reply_is_had_with_the_same_payment(wallet: Wallet, streams: bool) -> None:
    till = Till(Shop(now=wallet.now), openai_pair.completion("hello"), losing=1, streams=streams)
    async with openai_pair.against(till, payer=wallet.payer(), stream=streams) as (agent, under_test):
        with pytest.raises(BackendError):
            await openai_pair.ask(under_test, session_id="s1")
        await openai_pair.ask(under_test, session_id="s1")
    assert [len(each.headers.get("idempotency-key", "")) for each in agent.requests] == [0, 32, 32]
    assert agent.requests[1].headers["payment-signature"] == agent.requests[2].headers["payment-signature"]
    assert (len(till.shop.cashed), wallet.spent) == (1, "$0.02")


async def test_a_conversation_whose_first_reply_was_lost_begins_as_it_began(wallet: Wallet) -> None:
    till = Till(Shop(now=wallet.now), {"text": "hello"}, losing=1)
    async with chat_pair.against(till, payer=wallet.payer()) as (agent, under_test):
        with pytest.raises(BackendError):
            await chat_pair.ask(under_test)
        result = await chat_pair.ask(under_test)
        other = await chat_pair.ask(under_test)
    asked, paid, again, *_ = agent.requests
    assert asked.body == paid.body == again.body
    assert result.structured["session_id"] != other.structured["session_id"]
    assert (len(till.shop.cashed), wallet.spent) == (2, "$0.04")


async def test_what_one_caller_paid_for_nobody_else_gets(wallet: Wallet) -> None:
    till = Till(Shop(now=wallet.now), openai_pair.completion("hello"), losing=1)
    async with openai_pair.against(till, payer=wallet.payer()) as (_, under_test):
        with pytest.raises(BackendError):
            await openai_pair.ask(under_test, subject="alice")
        await openai_pair.ask(under_test, subject="bob")
    assert len(till.shop.cashed) == 2


async def test_many_calls_at_once_pay_once_each(wallet: Wallet) -> None:
    wallet.limits = {"per_day": "0.2"}
    till = Till(Shop(now=wallet.now), openai_pair.completion("hello"))
    done: list[str] = []

    async def call(number: int) -> None:
        try:
            result = await openai_pair.ask(under_test, f"question {number}")
        except BackendError as error:
            done.append(str(error))
        else:
            done.extend(openai_pair.texts(result))

    async with (
        openai_pair.against(till, payer=wallet.payer()) as (_, under_test),
        trio.open_nursery() as nursery,
    ):
        for number in range(15):
            nursery.start_soon(call, number)
    assert done.count("hello") == len(till.shop.cashed) == 10
    assert (till.shop.taken, wallet.spent) == (200_000, "$0.20")


async def test_beyond_its_limits_nothing_is_paid_and_the_caller_does_not_learn_them(wallet: Wallet) -> None:
    wallet.limits = {"per_call": "0.01"}
    till = Till(Shop(now=wallet.now), {"text": "hello"})
    async with chat_pair.against(till, payer=wallet.payer()) as (agent, under_test):
        with pytest.raises(
            BackendError, match=r"^agent endpoint 402: it wants to be paid, and was not"
        ) as caught:
            await chat_pair.ask(under_test)
    assert "0.01" not in str(caught.value)
    assert wallet.told == [
        "not paid: this has a price, and is not paid: it costs $0.02, and a call may cost $0.01; set per-call to $0.02"
    ]
    assert (len(agent.requests), till.shop.shown) == (1, [])


async def test_a_payment_that_is_refused_is_not_followed_by_another(wallet: Wallet) -> None:
    till = Till(Shop(now=wallet.now, refuses="insufficient_funds"), {"text": "hello"})
    async with chat_pair.against(till, payer=wallet.payer()) as (agent, under_test):
        for _ in range(3):
            with pytest.raises(BackendError, match="wants to be paid"):
                await chat_pair.ask(under_test, session_id="s1")
    assert len(agent.requests) == 4
    assert len({json.dumps(each) for each in till.shop.shown}) == 1
    assert "insufficient_funds" in wallet.told[-1]


async def test_without_a_wallet_a_price_is_a_failure_like_any_other() -> None:
    till = Till(Shop(version=1), {"text": "hello"})
    async with chat_pair.against(till) as (agent, under_test):
        with pytest.raises(BackendError, match=r"^agent endpoint 402: "):
            await chat_pair.ask(under_test)
    assert len(agent.requests) == 1


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"key": ""}, "pay.key"),
        ({"key": KEY}, "pay.key"),
        ({"per_call": ""}, "pay.per_call"),
        ({"per_day": "lots"}, "pay.per_day"),
        ({"networks": []}, "pay.networks"),
        ({"payees": []}, "pay.payees"),
        ({"payees": ["0x12"]}, "pay.payees"),
    ],
)
def test_limits_that_leave_something_open_are_told_at_the_start(changes: dict[str, Any], key: str) -> None:
    config = msgspec.convert({"url": "https://a.example/chat", "pay": {**LIMITS, **changes}}, ChatConfig)
    found = problems(config)
    assert [each for each, _ in found] == [key]
    assert KEY not in repr(found) and KEY not in repr(config) and KEY not in repr(config.pay)


class Log:
    def __init__(self) -> None:
        self.said: list[Mapping[str, object]] = []

    def info(self, event: str, **fields: object) -> None:
        self.said.append({"event": event, **fields})

    debug = warning = error = exception = info


def test_a_wallet_is_opened_only_where_one_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log()
    assert open_wallet(PayConfig(), tmp_path, agent="main[1]", log=log) is None
    config = msgspec.convert(LIMITS, PayConfig)
    with pytest.raises(SecretUnreadable, match="AGENT_WALLET is not set"):
        open_wallet(config, tmp_path, agent="main[1]", log=log)
    monkeypatch.setenv("AGENT_WALLET", KEY)
    payer = open_wallet(config, tmp_path, agent="main[1]", log=log)
    assert payer is not None and payer.address == PAYER
    payer.tell("paying")
    assert log.said == [{"event": "agent.payment", "agent": "main[1]", "said": "paying"}]
    key = tmp_path / "key"
    key.write_text(KEY)
    key.chmod(0o644)
    with pytest.raises(SecretUnreadable, match=r"can be read or changed by others .*chmod 600"):
        open_wallet(msgspec.structs.replace(config, key=f"file:{key}"), tmp_path, agent="main[1]", log=log)
