"""`ostiary wallet deposit` against a server that checks what it is paid with, and may be up to no good."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from shell import Done, Terminal
from test_call_questions import Restaurant
from test_wallet_command import wallet

from server.client.token_file import TokenFile
from tests.client.fake_server import FakeServer, Response, Seen, as_json
from tests.payments.buyer.shop import KEY, TRANSACTION, Shop, offer, packed, unpacked

PATH = "/shop/deposit"
TOKENS = {
    "access_token": "sold-access",
    "token_type": "Bearer",
    "expires_in": 3600,
    "refresh_token": "sold-refresh",
    "scope": "",
    "client_id": "payers",
}


@dataclass
class Bank:
    """Where deposits are made."""

    fake: FakeServer
    shop: Shop = field(default_factory=Shop)
    brings: dict[str, Any] = field(default_factory=dict)  # with the answer
    losing: int = 0  # so many answers to payments
    keys: list[str] = field(default_factory=list)

    def open(self, *, to_all: bool) -> None:
        async def listed(_request: Seen) -> Response:
            entry = {"mcp": "/mcp", "deposit": PATH}
            return as_json({"servers": [entry] if to_all else []})

        async def metadata(_request: Seen) -> Response:
            named = {"ostiary_deposit_endpoint": self.fake.origin + PATH}
            return as_json({**self.fake.resource_metadata(), **named})

        self.fake.overrides |= {
            "/.well-known/x402": listed,
            "/.well-known/oauth-protected-resource/mcp": metadata,
            PATH: self.deposit,
        }

    async def deposit(self, request: Seen) -> Response:
        assert request.method == "POST"
        assert request.message == {"amount": "$0.02"}
        text = request.headers.get("payment-signature")
        if text is None:
            return as_json({}, 402, PAYMENT_REQUIRED=packed(self.shop.challenge))
        self.keys.append(request.headers["idempotency-key"])
        receipt, refusal = self.shop.take(unpacked(text))
        if receipt is None:
            return as_json(refusal, 402, PAYMENT_REQUIRED=packed(refusal))
        if self.losing:
            self.losing -= 1
            return Response(break_off=True)
        told = {"deposited": "$0.02", "balance": "$1.02", "wallet": "user:1", **self.brings}
        return as_json(told, PAYMENT_RESPONSE=packed(receipt))


async def deposit(shell: Terminal, fake: FakeServer, *more: str) -> Done:
    done = await shell.run("wallet", "deposit", fake.url, "0.02", *more)
    assert KEY[2:] not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


@pytest.mark.parametrize("said", ["yes", "no"])
async def test_a_person_sees_what_is_deposited_and_is_asked(
    logged_in: Terminal, fake: FakeServer, said: str
) -> None:
    bank = Bank(fake)
    bank.open(to_all=False)
    await wallet(logged_in, "--confirm-above", "0.05")  # which would pay a call without asking
    async with Restaurant(logged_in, fake.url).typed("wallet", "deposit", fake.url, "0.02") as screen:
        await screen.shows(
            f"this costs $0.02 to 0x2096…287C on Base Sepolia (a test network) for a deposit at {fake.url}\n"
        )
        assert bank.shop.shown == []
        await screen.answers("pay it? [yes/no] ", said)
        code, printed = await screen.ends()
    assert (code, printed) == ((0, "$1.02 is on the balance now\n") if said == "yes" else (1, ""))
    assert bank.shop.taken == (20_000 if said == "yes" else 0)


async def test_it_is_made_with_the_login_and_what_it_brings_is_not_taken_for_another(
    logged_in: Terminal, fake: FakeServer
) -> None:
    bank = Bank(fake, brings=TOKENS)
    bank.open(to_all=True)
    await wallet(logged_in, "--confirm-above", "0.05")
    before = TokenFile(logged_in.config).get(fake.url)
    done = await deposit(logged_in, fake, "--yes")
    assert (done.code, done.stdout) == (0, "$1.02 is on the balance now\n")
    assert f"paid $0.02 on Base Sepolia, transaction {TRANSACTION}" in done.stderr
    shown = {seen.headers.get("authorization") for seen in fake.requests(PATH)}
    assert before is not None and shown == {f"Bearer {before.access_token.reveal()}"}
    assert TokenFile(logged_in.config).get(fake.url) == before


async def test_a_token_that_was_bought_is_kept_before_the_payment_is_forgotten(
    shell: Terminal, fake: FakeServer
) -> None:
    bank = Bank(fake, brings={**TOKENS, "client_id": 5})
    bank.open(to_all=True)
    await wallet(shell, "--confirm-above", "0.05")
    useless = await deposit(shell, fake, "--yes")
    assert useless.code == 1 and "whose its token is" in useless.stderr
    assert "shows the same payment" in useless.stderr
    bank.brings = TOKENS
    done = await deposit(shell, fake, "--yes", "--json")
    told = json.loads(done.stdout)
    assert told["brought_token"] is True and told["balance"] == "$1.02"
    assert "sold" not in done.stdout + done.stderr
    login = TokenFile(shell.config).get(fake.url)
    assert login is not None
    assert (login.access_token.reveal(), login.client_id) == ("sold-access", "payers")
    assert login.token_endpoint == f"{fake.origin}/token"
    assert len(set(bank.keys)) == 1 and len(bank.shop.cashed) == 1


async def test_a_lost_answer_is_asked_for_with_the_same_payment_and_key(
    logged_in: Terminal, fake: FakeServer
) -> None:
    bank = Bank(fake, losing=2)
    bank.open(to_all=False)
    await wallet(logged_in, "--confirm-above", "0.05")
    for code in (1, 1, 0):
        done = await deposit(logged_in, fake, "--yes")
        assert done.code == code, done.stderr
    assert len(bank.shop.shown) == 3 and len(bank.shop.cashed) == 1
    assert len(set(bank.keys)) == 1
    shown = json.loads((await logged_in.run("wallet", "show", "--json")).stdout)
    assert (shown["spent_today"], shown["unanswered"]) == ("$0.02", [])


@pytest.mark.parametrize("amount", ["10000", "20001", "5000000"])
async def test_a_server_that_asks_for_another_amount_is_not_paid(
    logged_in: Terminal, fake: FakeServer, amount: str
) -> None:
    bank = Bank(fake, Shop(accepts=[offer(amount=amount)]))
    bank.open(to_all=False)
    await wallet(logged_in, "--confirm-above", "0.05")
    done = await deposit(logged_in, fake, "--yes")
    assert done.code == 1
    assert "is asked for, and $0.02 is to be deposited" in done.stderr
    assert bank.shop.shown == []


async def test_a_good_status_with_nothing_in_it_is_no_answer(logged_in: Terminal, fake: FakeServer) -> None:
    """Which bodies say nothing is in tests/client/test_wallet_deposit.py."""
    bank = Bank(fake)
    bank.open(to_all=False)

    async def answer(request: Seen) -> Response:
        asked = await bank.deposit(request)
        return asked if asked.status == 402 else Response(200, b"{}")

    fake.overrides[PATH] = answer
    await wallet(logged_in, "--confirm-above", "0.05")
    done = await deposit(logged_in, fake, "--yes")
    assert done.code == 1 and "what became of the deposit" in done.stderr
    fake.overrides[PATH] = bank.deposit
    assert (await deposit(logged_in, fake, "--yes")).code == 0
    assert len(bank.shop.cashed) == 1


async def test_words_of_a_server_do_not_steer_the_terminal(logged_in: Terminal, fake: FakeServer) -> None:
    bank = Bank(fake, brings={"balance": "$1\x1b[2J", "message": "\x1b]0;x\x07hello"})
    bank.open(to_all=False)
    await wallet(logged_in, "--confirm-above", "0.05")
    done = await deposit(logged_in, fake, "--yes")
    assert done.code == 0
    assert "\x1b" not in done.stdout + done.stderr


async def test_where_nothing_is_deposited_it_is_said(logged_in: Terminal, fake: FakeServer) -> None:
    await wallet(logged_in)
    done = await deposit(logged_in, fake, "--yes")
    assert done.code == 1 and "takes no deposits" in done.stderr
    nobody = await logged_in.run("wallet", "deposit", fake.url, "0.02")
    assert nobody.code == 2 and "hint: --yes" in nobody.stderr


async def test_one_process_at_a_time_makes_deposits_at_a_server(
    logged_in: Terminal, fake: FakeServer
) -> None:
    bank = Bank(fake)
    bank.open(to_all=False)
    await wallet(logged_in, "--confirm-above", "0.05")
    with TokenFile(logged_in.config).lock_of(fake.url, "deposit").held():
        done = await deposit(logged_in, fake, "--yes")
    assert done.code == 1 and "another deposit" in done.stderr
    assert bank.shop.shown == []
    assert (await deposit(logged_in, fake, "--yes")).code == 0


async def test_a_deposit_whose_login_has_ended_meanwhile_is_not_made_for_somebody_else(
    logged_in: Terminal, fake: FakeServer
) -> None:
    bank = Bank(fake, losing=1)
    bank.open(to_all=True)
    await wallet(logged_in, "--confirm-above", "0.05")
    assert (await deposit(logged_in, fake, "--yes")).code == 1
    TokenFile(logged_in.config).drop(fake.url)
    refused = await deposit(logged_in, fake, "--yes")
    assert refused.code == 1 and "was begun with a login" in refused.stderr
    assert len(bank.shop.shown) == 1
