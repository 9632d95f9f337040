"""Deposits at the running program: the token is the wallet, and whoever pays without one is given one."""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest
from programs import WAIT_SECONDS, until
from sold import AGENT, Buyer, Shop, packed, selling, unpacked

from server.lib.evm.secp256k1 import PrivateKey

pytestmark = pytest.mark.slow

MACHINES = 8  # each with a token of its own, and a wallet
TOKENS = ", ".join(
    f'{{ name = "m{number}", token = "file:m{number}", scope = "mcp:tools" }}' for number in range(MACHINES)
)
PRIVATE, SHARED, OPEN = (
    f'name = "private"\ntokens = [{TOKENS}]',
    f'name = "shared"\nanonymous_pay = true\ntokens = [{TOKENS}]',
    'name = "open"\nauth = "none"',
)
WORD = {"word": "ostium"}
FIVE = {"amount": "$5"}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Generator[Shop]:
    home = tmp_path_factory.mktemp("shop")
    for number in range(MACHINES):
        (home / f"m{number}").write_text(secret(number), "utf-8")
        (home / f"m{number}").chmod(0o600)
    with selling(home, PRIVATE, SHARED, OPEN) as found:
        yield found


def secret(number: int) -> str:
    return f"{number}" * 32


USED = itertools.count()


@pytest.fixture
def key() -> str:
    """Of a machine that has called nothing yet."""
    return secret(next(USED))


def buyer(number: int) -> Buyer:
    return Buyer(PrivateKey(number.to_bytes(32, "big")))


def signed(shop: Shop, who: Buyer, body: dict[str, str], server: str = "shared", **headers: str) -> str:
    return packed(who.payment(shop.challenge(f"/{server}/deposit", body, **headers)["accepts"][0]))


def test_a_deposit_asks_for_exactly_its_amount_and_pays_for_calls_without_the_chain(
    shop: Shop, key: str
) -> None:
    before = shop.settled()
    challenge = shop.challenge("/private/deposit", FIVE, x_api_key=key)
    assert challenge["resource"]["url"].endswith("/private/deposit")
    assert [entry["amount"] for entry in challenge["accepts"]] == ["5000000"]
    made = shop.pay("/private/deposit", FIVE, x_api_key=key)
    assert made.status_code == 200, made.text
    told = made.json()
    assert told["deposited"] == told["balance"] == "$5.00" and told["transaction"]
    assert "access_token" not in told
    assert unpacked(made.headers["payment-response"])["success"] is True
    assert made.headers["cache-control"] == "no-store"
    for number in range(20):
        answer = shop.post("/private/call/look_up", {"word": str(number)}, x_api_key=key)
        assert answer.status_code == 200, answer.text
        assert "payment-response" not in answer.headers
    assert shop.settled() == before + 1
    (kept,) = shop.program.at_machine("ledger", "balance", "--wallet", told["wallet"])["wallets"]
    assert kept["balance"] == 4_800_000


def test_without_a_login_a_private_server_asks_for_one(shop: Shop) -> None:
    answer = shop.post("/private/deposit", FIVE)
    assert answer.status_code == 401 and "www-authenticate" in answer.headers
    assert "payment-required" not in answer.headers


def test_where_nobody_is_known_nobody_has_a_balance(shop: Shop) -> None:
    answer = shop.post("/open/deposit", FIVE)
    assert answer.status_code == 403 and answer.json()["error"] == "no_wallet"


@pytest.mark.parametrize(
    "body",
    [{}, {"amount": 5}, {"amount": "-$1"}, {"amount": "$0.09"}, {"amount": "$1000.01"}, {"amount": "five"}],
)
def test_an_amount_that_is_none_or_out_of_bounds_is_refused(shop: Shop, body: dict[str, Any]) -> None:
    answer = shop.post("/shared/deposit", body)
    assert answer.status_code == 400 and answer.json()["error"] == "invalid_amount"


def test_the_same_payment_many_times_at_once_deposits_once(shop: Shop, key: str) -> None:
    before = shop.settled()
    payment = signed(shop, buyer(21), FIVE, x_api_key=key)
    with ThreadPoolExecutor(10) as pool:
        answers = list(
            pool.map(
                lambda _: shop.post("/shared/deposit", FIVE, payment_signature=payment, x_api_key=key),
                range(10),
            )
        )
    assert {each.status_code for each in answers} <= {200, 409, 429}
    good = [each for each in answers if each.status_code == 200]
    assert {each.json()["balance"] for each in good} == {"$5.00"}
    assert sum("x-x402-idempotent" not in each.headers for each in good) == 1
    assert shop.settled() == before + 1


def test_a_payment_is_of_one_wallet_one_server_and_one_purpose(shop: Shop, key: str) -> None:
    payment = signed(shop, buyer(22), FIVE, x_api_key=key)
    assert shop.post("/shared/deposit", FIVE, payment_signature=payment, x_api_key=key).status_code == 200
    for path, body, headers in (
        ("/shared/deposit", FIVE, {"x_api_key": secret(next(USED))}),
        ("/shared/deposit", FIVE, {}),
        ("/private/deposit", FIVE, {"x_api_key": key}),
        ("/shared/deposit", {"amount": "$6"}, {"x_api_key": key}),
        ("/shared/call/look_up", WORD, {}),
    ):
        answer = shop.post(path, body, payment_signature=payment, **headers)
        assert answer.status_code in (400, 402, 409, 429), (path, answer.text)


def test_a_settlement_that_fails_deposits_nothing(shop: Shop, key: str) -> None:
    shop.switch(settle="fail", times=1)
    answer = shop.pay("/shared/deposit", FIVE, x_api_key=key, buyer=buyer(23))
    assert answer.status_code == 402
    assert unpacked(answer.headers["payment-response"])["success"] is False
    refused = shop.post("/shared/call/look_up", WORD, x_api_key=key)
    assert refused.status_code == 402 and refused.json()["balance"] == "$0.00"


def test_a_settlement_whose_answer_is_lost_is_looked_after_and_deposits_once(shop: Shop, key: str) -> None:
    before = shop.settled()
    payment = signed(shop, buyer(24), FIVE, x_api_key=key)
    shop.switch(settle="lost", times=1)

    def deposited() -> httpx2.Response | None:
        answer = shop.post("/shared/deposit", FIVE, payment_signature=payment, x_api_key=key)
        assert answer.status_code in (200, 503), answer.text
        assert "payment-required" not in answer.headers, (
            "an unknown outcome is never answered by asking again"
        )
        return answer if answer.status_code == 200 else None

    answer = until("the deposit", deposited)
    assert answer.json()["balance"] == "$5.00"
    assert shop.settled() == before + 1


LINGERS = (
    AGENT
    + """
import asyncio
from pathlib import Path

@tool(price="$0.03")
async def lingers(mark: str) -> str:
    Path(mark).touch()
    await asyncio.sleep(3600)
    return "at last"
"""
)


def test_whoever_leaves_a_call_that_runs_has_paid_nothing(tmp_path: Path) -> None:
    (tmp_path / "m0").write_text(secret(0), "utf-8")
    (tmp_path / "m0").chmod(0o600)
    tokens = 'tokens = [{ name = "m0", token = "file:m0", scope = "mcp:tools" }]'
    with selling(tmp_path, f'name = "main"\n{tokens}', agent=LINGERS) as shop:
        wallet = shop.pay("/main/deposit", FIVE, x_api_key=secret(0)).json()["wallet"]
        (tmp_path / "tmp").mkdir(exist_ok=True)
        mark = tmp_path / "tmp" / "begun"

        def kept() -> dict[str, Any]:
            (found,) = shop.program.at_machine("ledger", "balance", "--wallet", wallet)["wallets"]
            return found

        body = json.dumps({"mark": str(mark)})
        host, port = shop.server.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as line:
            line.sendall(
                f"POST /main/call/lingers HTTP/1.1\r\nHost: {host}:{port}\r\nX-API-Key: {secret(0)}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
            )
            until("the tool to run", lambda: mark.exists() or None)
            assert kept()["held"] == 30_000
        until("the hold to be released", lambda: kept()["held"] == 0 or None)
        assert kept()["balance"] == 5_000_000


# ── a token that was bought ──────────────────────────────────────────────────────────────────────────────────────────


def bearer(told: dict[str, Any]) -> dict[str, str]:
    return {"authorization": f"Bearer {told['access_token']}"}


def test_whoever_pays_without_a_login_is_given_a_token_for_what_they_paid(shop: Shop) -> None:
    who = buyer(31)
    made = shop.pay("/shared/deposit", FIVE, who)
    assert made.status_code == 200, made.text
    told = made.json()
    assert told["wallet"] == f"payer:eip155:84532:{who.address.lower()}"
    assert told["token_type"] == "Bearer" and told["scope"] == "" and told["refresh_token"]
    before = shop.settled()
    answer = shop.post("/shared/call/look_up", WORD, **bearer(told))
    assert answer.status_code == 200, answer.text
    assert shop.settled() == before
    # It opens what is sold, at this server, and nothing else.
    assert shop.post("/shared/call/free", WORD, **bearer(told)).status_code == 404
    assert shop.post("/private/call/look_up", WORD, **bearer(told)).status_code == 401
    listed = shop.post(
        "/shared/mcp",
        {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
        accept="application/json, text/event-stream",
        mcp_protocol_version="2025-06-18",
        **bearer(told),
    )
    assert {tool["name"] for tool in listed.json()["result"]["tools"]} == {"look_up", "breaks", "render"}
    me = shop.post(
        "/shared/mcp",
        {"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": "ostiary://me"}},
        accept="application/json, text/event-stream",
        mcp_protocol_version="2025-06-18",
        **bearer(told),
    )
    mine = json.loads(me.json()["result"]["contents"][0]["text"])
    assert (mine["kind"], mine["credential"]["how"], mine["user"]) == ("payer", "payment", None)
    assert (mine["wallet"]["id"], mine["wallet"]["words"]) == (told["wallet"], "$4.99")
    assert [each["kind"] for each in mine["movements"]] == ["charge", "deposit"]
    assert "from this balance" in mine["may"]
    # With the token, more goes into the same wallet.
    more = shop.pay("/shared/deposit", {"amount": "$1"}, who, **bearer(told))
    assert more.json()["balance"] == "$5.99" and "access_token" not in more.json()


def test_a_bought_token_is_refreshed_and_can_be_revoked(shop: Shop) -> None:
    told = shop.pay("/shared/deposit", FIVE, buyer(32)).json()
    form = {
        "grant_type": "refresh_token",
        "refresh_token": told["refresh_token"],
        "client_id": told["client_id"],
    }
    fresh = httpx2.post(told["token_endpoint"], data=form, trust_env=False, timeout=WAIT_SECONDS)
    assert fresh.status_code == 200, fresh.text
    assert shop.post("/shared/call/look_up", WORD, **bearer(fresh.json())).status_code == 200
    wider = httpx2.post(
        told["token_endpoint"],
        data={**form, "refresh_token": fresh.json()["refresh_token"], "scope": "mcp:tools"},
        trust_env=False,
        timeout=WAIT_SECONDS,
    )
    assert wider.status_code == 400 and wider.json()["error"] == "invalid_scope"
    (login,) = [
        each
        for each in shop.program.at_machine("sessions")
        if each["subject"].endswith(buyer(32).address.lower())
    ]
    shop.program.at_machine("revoke", login["id"])
    assert shop.post("/shared/call/look_up", WORD, **bearer(fresh.json())).status_code == 401


def test_a_payment_that_anybody_can_read_on_the_chain_brings_nobody_a_token(shop: Shop) -> None:
    payment = signed(shop, buyer(33), FIVE)
    first = shop.post("/shared/deposit", FIVE, payment_signature=payment).json()
    for headers in ({}, {"idempotency_key": "made-up-later"}):
        again = shop.post("/shared/deposit", FIVE, payment_signature=payment, **headers)
        assert again.status_code == 200 and again.headers["x-x402-idempotent"] == "replay"
        assert "access_token" not in again.json() and "refresh_token" not in again.json()
    assert shop.post("/shared/call/look_up", WORD, **bearer(first)).status_code == 200


def test_with_its_own_key_a_lost_answer_is_given_again_and_the_first_token_ends(shop: Shop) -> None:
    before = shop.settled()
    payment = signed(shop, buyer(34), FIVE)
    headers = {"payment_signature": payment, "idempotency_key": "only-i-know-this"}
    first = shop.post("/shared/deposit", FIVE, **headers).json()
    again = shop.post("/shared/deposit", FIVE, **headers).json()
    assert first["access_token"] != again["access_token"]
    assert shop.post("/shared/call/look_up", WORD, **bearer(first)).status_code == 401
    assert shop.post("/shared/call/look_up", WORD, **bearer(again)).status_code == 200
    assert shop.settled() == before + 1


def test_the_owner_sees_what_was_bought_and_no_secret_is_logged(shop: Shop) -> None:
    told = shop.pay("/shared/deposit", FIVE, buyer(35)).json()
    rows = [row for row in shop.program.at_machine("audit") if row["event"] == "token.bought"]
    assert any(row["actor"] == told["wallet"] for row in rows)
    said = shop.server.said()
    assert told["access_token"] not in said and told["refresh_token"] not in said


def test_where_no_login_is_taken_nobody_is_sold_a_token(tmp_path: Path) -> None:
    with selling(tmp_path, 'name = "keys"\nanonymous_pay = true\naccepts = ["api-key"]') as shop:
        assert shop.pay("/keys/call/look_up", WORD).status_code == 200
        answer = shop.post("/keys/deposit", FIVE)
        assert answer.status_code == 403 and answer.json()["error"] == "no_wallet"


@pytest.mark.parametrize("mode", ["slow:3", "lost", "504-after-settle", "hang"])
def test_a_server_that_is_killed_while_it_deposits_finds_the_money_when_it_is_back(
    tmp_path: Path, mode: str
) -> None:
    who = buyer(41)
    with selling(tmp_path, SHARED.replace(f"tokens = [{TOKENS}]", "")) as shop, ThreadPoolExecutor(1) as pool:
        payment = signed(shop, who, FIVE)
        shop.switch(settle=mode, times=1)
        asked = pool.submit(cut_off, shop, payment)
        until("the settlement to be asked for", lambda: shop.ledger()["totals"]["settle_calls"] or None)
        shop.server.process.kill()
        shop.server.process.wait()
        asked.result(WAIT_SECONDS)
        with shop.program.serving("--config", "ostiary.toml") as again:
            shop = Shop(program=shop.program, server=again, facilitator=shop.facilitator)

            def deposited() -> httpx2.Response | None:
                answer = shop.post("/shared/deposit", FIVE, payment_signature=payment)
                assert answer.status_code in (200, 503), answer.text
                return answer if answer.status_code == 200 else None

            told = until("the deposit", deposited).json()
            assert told["balance"] == "$5.00" and told["wallet"].endswith(who.address.lower())
            assert shop.settled() == 1
            assert "access_token" not in told, (
                "it was shown before, and nobody but its payer could prove that"
            )
            more = shop.pay("/shared/deposit", {"amount": "$1"}, who).json()
            assert more["balance"] == "$6.00" and more["access_token"]
            shop.program.run("ledger", "check", "--data-dir", str(shop.program.data_dir))


def cut_off(shop: Shop, payment: str) -> None:
    with contextlib.suppress(httpx2.HTTPError):
        shop.post("/shared/deposit", FIVE, payment_signature=payment)
