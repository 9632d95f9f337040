"""A bridge that pays: the client behind it sees answers only, in both eras, and pays once whatever gets lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bridge_pair import MODERN_META, Host, Method, StreamingServer, as_error, as_result, bridged, streaming
from fake_server import Response, Seen, as_events

from server.client.token_file import TokenFile
from tests.payments.buyer.purses import Wallet
from tests.payments.buyer.shop import TRANSACTION, Shop
from tests.payments.buyer.shop import as_result as asked

HELLO = {"content": [{"type": "text", "text": "hello"}]}


@pytest.fixture
def wallet(tmp_path: Path) -> Wallet:
    return Wallet(tmp_path)


@pytest.fixture
def tokens(tmp_path: Path) -> TokenFile:
    return TokenFile(tmp_path / "config")


def selling(shop: Shop, *, losing: list[bool], events: bool = False) -> Method:
    async def call(request: Seen) -> Response:
        payment = request.message["params"].get("_meta", {}).get("x402/payment")
        if payment is None:
            answer = asked(shop.challenge)
        else:
            receipt, refusal = shop.take(payment)
            if losing:
                losing.pop()
                return Response(break_off=True)
            meta = {"x402/payment-response": receipt}
            answer = {**HELLO, "_meta": meta} if receipt else asked(refusal)
        if events:
            return as_whole_events(request, answer)
        return as_result(request, answer)

    return call


def as_whole_events(request: Seen, answer: Any) -> Response:
    response = as_events({"jsonrpc": "2.0", "id": request.message["id"], "result": answer})
    assert response.chunks is not None
    return Response(200, b"".join(response.chunks), response.headers)


async def call(host: Host, era: str, request_id: Any, **arguments: Any) -> dict[str, Any]:
    meta = {"progressToken": request_id, **(MODERN_META if era == "modern" else {})}
    host.request(request_id, "tools/call", {"name": "echo", "arguments": arguments, "_meta": meta})
    answer = await host.hear()
    assert answer["id"] == request_id
    return answer


async def ready(host: Host, era: str) -> None:
    if era == "legacy":
        await host.open_session()


@pytest.mark.parametrize("events", [False, True])
@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_call_with_a_price_is_paid_on_the_way(
    wallet: Wallet, tokens: TokenFile, era: str, events: bool
) -> None:
    shop = Shop(now=wallet.now)
    server = StreamingServer(methods={"tools/call": selling(shop, losing=[], events=events)})
    async with streaming(server), bridged(server.url, tokens, payer=wallet.payer()) as host:
        await ready(host, era)
        answer = await call(host, era, 7, text="hello", big=2**70)
        assert answer["result"]["content"] == HELLO["content"]
        assert answer["result"]["_meta"]["x402/payment-response"]["transaction"] == TRANSACTION
        assert host.nothing_more()
    first, second = (seen.message["params"] for seen in server.requests("tools/call"))
    meta = second["_meta"]
    assert (meta.pop("x402/payment"), len(meta.pop("x402/idempotency-key"))) == (shop.shown[0], 32)
    assert first == second
    assert (shop.taken, wallet.spent) == (20_000, "$0.02")
    assert wallet.told[0].startswith("paying $0.02 to 0x2096…287C on Base Sepolia")


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_lost_answer_costs_nothing_more(wallet: Wallet, tokens: TokenFile, era: str) -> None:
    shop = Shop(now=wallet.now)
    server = StreamingServer(methods={"tools/call": selling(shop, losing=[True])})
    async with streaming(server):
        async with bridged(server.url, tokens, payer=wallet.payer()) as host:
            await ready(host, era)
            lost = await call(host, era, 1, text="hello")
            assert "may have been carried out" in lost["error"]["message"]
        async with bridged(server.url, tokens, payer=wallet.payer()) as host:  # the client was started again
            await ready(host, era)
            assert (await call(host, era, 1, text="hello"))["result"]["content"] == HELLO["content"]
    assert len(server.requests("tools/call")) == 3
    assert shop.shown[0] == shop.shown[1]
    assert (len(shop.cashed), wallet.spent) == (1, "$0.02")


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_call_that_may_not_be_paid_fails_with_the_reason(
    wallet: Wallet, tokens: TokenFile, era: str
) -> None:
    wallet.limits = {"per_call": "0.01"}
    shop = Shop(now=wallet.now)
    server = StreamingServer(methods={"tools/call": selling(shop, losing=[])})
    async with streaming(server), bridged(server.url, tokens, payer=wallet.payer()) as host:
        await ready(host, era)
        result = (await call(host, era, "a", text="hello"))["result"]
        assert result["isError"] is True
        (block,) = result["content"]
        assert block["text"] == (
            "Not paid: this has a price, and is not paid: it costs $0.02, and a call may cost $0.01; set per-call to $0.02."
        )
        assert result.get("resultType") == ("complete" if era == "modern" else None)
        assert any("not paid" in line for line in host.said)
    assert (shop.shown, wallet.spent) == ([], "$0.00")


async def test_a_payment_that_is_not_taken_is_told_and_tried_once(wallet: Wallet, tokens: TokenFile) -> None:
    shop = Shop(now=wallet.now, refuses="insufficient_funds")
    server = StreamingServer(methods={"tools/call": selling(shop, losing=[])})
    async with streaming(server), bridged(server.url, tokens, payer=wallet.payer()) as host:
        result = (await call(host, "modern", 1, text="hello"))["result"]
        assert "insufficient_funds" in result["content"][0]["text"]
    assert len(shop.shown) == 1


async def test_what_answers_a_payment_with_a_refusal_by_status_ends_the_call(
    wallet: Wallet, tokens: TokenFile
) -> None:
    shop = Shop(now=wallet.now)

    async def tool(request: Seen) -> Any:
        paid = "x402/payment" in request.message["params"]["_meta"]
        return as_error(request, -32602, 400) if paid else as_result(request, asked(shop.challenge))

    server = StreamingServer(methods={"tools/call": tool})
    async with streaming(server), bridged(server.url, tokens, payer=wallet.payer()) as host:
        assert (await call(host, "modern", 1, text="hello"))["error"]["code"] == -32602
        assert host.nothing_more()
    assert len(server.requests("tools/call")) == 2
    assert len(wallet.spending.unanswered()) == 1


async def test_a_client_that_pays_by_itself_is_left_to_it(wallet: Wallet, tokens: TokenFile) -> None:
    shop = Shop(now=wallet.now, refuses="no")
    server = StreamingServer(methods={"tools/call": selling(shop, losing=[])})
    async with streaming(server), bridged(server.url, tokens, payer=wallet.payer()) as host:
        meta = {**MODERN_META, "x402/payment": {"its": "own"}}
        host.request(1, "tools/call", {"name": "echo", "arguments": {}, "_meta": meta})
        assert (await host.hear())["result"]["structuredContent"]["error"] == "no"
        host.request(2, "prompts/get", {"name": "echo", "_meta": MODERN_META})
        assert (await host.hear())["result"] == {"did": "prompts/get"}
    assert (shop.shown, wallet.spent) == ([{"its": "own"}], "$0.00")


async def test_without_a_wallet_a_price_goes_to_the_client_as_it_came(tokens: TokenFile) -> None:
    shop = Shop()
    server = StreamingServer(methods={"tools/call": selling(shop, losing=[])})
    async with streaming(server), bridged(server.url, tokens) as host:
        result = (await call(host, "modern", 1, text="hello"))["result"]
        assert result["structuredContent"] == shop.challenge


async def test_a_spending_file_that_cannot_be_read_pays_nothing(wallet: Wallet, tokens: TokenFile) -> None:
    shop = Shop(now=wallet.now)
    payer = wallet.payer()
    wallet.spending.path.parent.mkdir(mode=0o700)
    wallet.spending.path.write_bytes(b"{")
    wallet.spending.path.chmod(0o600)
    server = StreamingServer(methods={"tools/call": selling(shop, losing=[])})
    async with streaming(server), bridged(server.url, tokens, payer=payer) as host:
        result = (await call(host, "modern", 1, text="hello"))["result"]
        assert json.loads(result["content"][0]["text"]) == shop.challenge
        assert any("damaged" in line for line in host.said)
    assert shop.shown == []
