"""An upstream that charges is paid within its limits, once for each call, and what it asks is sold on with a mark-up."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from upstreams import Caller, Double, Gate, Refused, Turn, gate, over_http, over_tcp, soon, text, tool, words

from server.agents.base.backend import PriceAsked, ToolCall
from server.agents.mcp.asked_prices import AskedPrice, MarkUp, asked_price, most_for, read_mark_up, tag_of
from server.agents.mcp.buying import Buyer
from server.agents.mcp.mcp_settings import McpConfig, problems
from server.client.mcp_session.session_messages import UNPAID
from server.lib.money.amounts import BadAmount
from server.mcp.call_failures import BackendError
from server.mcp.terms import PRICE_META, SIGNED_RECEIPT
from server.payments.buyer.outlays import GivenReceipt, Outlay
from server.payments.x402.in_band import PAYMENT_KEY, RECEIPT_KEY
from tests.payments.buyer.purses import Wallet
from tests.payments.buyer.shop import Shop, as_result, offer

PAY = {
    "key": "env:KEY",
    "per_call": "$0.05",
    "per_day": "$1",
    "networks": ["base-sepolia"],
    "payees": ["any"],
}
TAG = {PRICE_META: {"currency": "USD", "amount": "0.02", "networks": ["eip155:84532"]}}


class Till:
    """What the books are told."""

    def __init__(self) -> None:
        self.booked: list[Outlay] = []

    async def book(self, outlay: Outlay) -> None:
        await trio.lowlevel.checkpoint()
        self.booked.append(outlay)


def seller(shop: Shop, *, way: str = "result", **lists: Any) -> Double:
    """Sells `say`. `way`: how it asks."""
    answered: dict[str, Any] = {}

    async def say(turn: Turn) -> Any:
        payment = turn.params.get("_meta", {}).get(PAYMENT_KEY)
        if payment is None:
            if way == "error":
                raise Refused(402, "pay", shop.challenge)
            return as_result(shop.challenge)
        nonce = payment["payload"]["authorization"]["nonce"]
        if nonce in answered:
            return answered[nonce]
        receipt, refused = shop.take(payment)
        if receipt is None:
            return as_result(refused)
        answered[nonce] = text(f"sold {len(shop.cashed)}", _meta={RECEIPT_KEY: receipt})
        return answered[nonce]

    return Double(handlers={"say": say}, lists={"tools": [tool("say", _meta=TAG)], **lists})


@asynccontextmanager
async def buying(wallet: Wallet, till: Till, **settings: Any) -> AsyncGenerator[Gate]:
    def make(place: str, dearer: Any) -> Buyer:
        return Buyer(wallet.payer(), place, till.book, dearer=dearer)

    async with gate(pay=PAY, buying=make, **settings) as door:
        yield door


@pytest.mark.parametrize("way", ["result", "error"])
@pytest.mark.parametrize("over", ["tcp", "http"])
async def test_a_call_is_paid_for_once_and_told_to_the_books(tmp_path: Path, way: str, over: str) -> None:
    shop, wallet, till = Shop(), Wallet(tmp_path), Till()
    wallet.now = shop.now = 1_795_000_000.0
    double = seller(shop, way=way)
    async with (over_tcp if over == "tcp" else over_http)(double) as there:
        where = {"tcp": there} if over == "tcp" else {"url": there}
        async with buying(wallet, till, **where) as door:
            assert await door.say("a") == "sold 1"
            assert await door.say("b") == "sold 2"
    assert (len(shop.cashed), shop.taken, wallet.spent) == (2, 40_000, "$0.04")
    assert [(each.amount, each.tool, each.network) for each in till.booked] == [
        (20_000, "say", "eip155:84532"),
        (20_000, "say", "eip155:84532"),
    ]
    assert len({each.identifier for each in till.booked}) == 2
    assert wallet.spending.unanswered() == ()


async def test_a_call_whose_answer_got_lost_shows_the_same_payment_again_also_from_another_process(
    tmp_path: Path,
) -> None:
    shop, wallet, till = Shop(), Wallet(tmp_path), Till()
    wallet.now = shop.now = 1_795_000_000.0
    double = seller(shop)
    sells = double.handlers["say"]

    async def breaks(turn: Turn) -> Any:
        found = await sells(turn)
        if not found.get("isError"):  # it has the money, and its answer gets lost
            for hang_up in double.hang_up:
                hang_up()
            await trio.sleep_forever()
        return found

    async with over_tcp(double) as there:
        double.handlers["say"] = breaks
        async with buying(wallet, till, tcp=there) as door:
            with pytest.raises(BackendError, match="has ended"):
                await door.say("a")
            assert len(wallet.spending.unanswered()) == 1
            assert till.booked == []
        double.handlers["say"] = sells
        async with buying(wallet, till, tcp=there) as door:
            assert await door.say("a") == "sold 1"
    assert (len(shop.cashed), wallet.spent, len(till.booked)) == (1, "$0.02", 1)
    assert wallet.spending.unanswered() == ()


async def test_beyond_the_limits_it_is_refused_in_our_words_and_the_owner_is_told(tmp_path: Path) -> None:
    shop, wallet, till = Shop(accepts=[offer(amount="60000")]), Wallet(tmp_path), Till()
    async with over_tcp(seller(shop)) as there, buying(wallet, till, tcp=there) as door:
        with pytest.raises(BackendError, match="the upstream wants to be paid for this, and was not"):
            await door.say("a")
    assert (shop.shown, till.booked, wallet.spent) == ([], [], "$0.00")
    assert "a call may cost $0.05" in wallet.told[-1]


@pytest.mark.parametrize("kind", ["result", "extension", "error"])
async def test_without_a_wallet_nobody_is_shown_what_they_could_pay_to_somebody_else(kind: str) -> None:
    shop = Shop()
    double = seller(shop)

    async def asks(turn: Turn) -> Any:
        if kind == "result":
            return as_result(shop.challenge)
        if kind == "error":
            raise Refused(402, "pay", shop.challenge)
        return {"resultType": "payment_required", "paymentRequired": shop.challenge}

    double.handlers["say"] = asks
    async with over_tcp(double) as there, gate(tcp=there) as door:
        with pytest.raises(BackendError, match="the upstream wants to be paid for this, and was not"):
            await door.say("a")
        if kind != "error":
            assert "[server.agent.pay]" in door.log.of("upstream.failed")[-1]["reason"]


async def test_http_that_asks_with_its_status_is_paid_in_a_header(tmp_path: Path) -> None:
    from upstreams import read_request

    from tests.payments.buyer.shop import packed, unpacked

    shop, wallet, till = Shop(), Wallet(tmp_path), Till()
    wallet.now = shop.now = 1_795_000_000.0
    double = seller(shop)
    seen: list[str] = []

    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            while (request := await read_request(stream)) is not None:
                _, headers, body = request
                message, head, answers = json.loads(body), "HTTP/1.1 200 OK\r\n", list[Any]()
                if message["method"] == "tools/call":
                    shown = headers.get("payment-signature")
                    if shown is None:
                        head = (
                            f"HTTP/1.1 402 Payment Required\r\nPAYMENT-REQUIRED: {packed(shop.challenge)}\r\n"
                        )
                    else:
                        seen.append(shown)
                        receipt, _refused = shop.take(unpacked(shown))
                        head += f"PAYMENT-RESPONSE: {packed(receipt)}\r\n"
                        answers.append({"jsonrpc": "2.0", "id": message["id"], "result": text("sold")})
                elif "id" in message:

                    async def keep(answer: Any, answers: list[Any] = answers) -> None:
                        answers.append(answer)

                    await double.take(message, keep, headers)
                raw = json.dumps(answers[0]).encode() if answers else b""
                kind = f"Content-Type: application/json\r\nContent-Length: {len(raw)}\r\n\r\n"
                await stream.send_all((head + kind).encode() + raw)

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(lambda **more: trio.serve_tcp(serve, 0, host="127.0.0.1", **more))
        url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}/mcp"
        async with buying(wallet, till, url=url) as door:
            assert await door.say("a") == "sold"
        async with gate(url=url) as door:
            with pytest.raises(BackendError, match=UNPAID):
                await door.say("b")
        nursery.cancel_scope.cancel()
    assert (len(seen), len(shop.cashed), len(till.booked)) == (1, 1, 1)


async def test_its_price_is_sold_on_with_a_mark_up_and_a_change_changes_ours(tmp_path: Path) -> None:
    shop, wallet, till = Shop(), Wallet(tmp_path), Till()
    double = seller(shop)
    double.capabilities["tools"] = {"listChanged": True}
    double.lists["tools"].append(tool("free"))
    async with (
        over_tcp(double) as there,
        buying(wallet, till, tcp=there, mark_up="20%", id="up") as door,
    ):

        def price(name: str) -> Any:
            (found,) = [each for each in door.backend.tools() if each.name == name]
            return found.meta.get(PRICE_META) if isinstance(found.meta, dict) else None

        assert (price("up__say"), price("up__free")) == ("$0.024", None)
        double.lists["tools"][0] = tool("say", _meta={PRICE_META: {"currency": "USD", "amount": "0.03"}})
        await double.listeners[0]({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        await soon(lambda: price("up__say") == "$0.036")


async def test_of_what_it_lists_without_a_price_no_more_is_paid_than_was_taken_for_it(tmp_path: Path) -> None:
    shop, wallet, till = Shop(), Wallet(tmp_path), Till()
    wallet.now = shop.now = 1_795_000_000.0
    double = seller(shop, tools=[tool("say")])
    async with over_tcp(double) as there, buying(wallet, till, tcp=there, mark_up="20%") as door:
        for free_or_less in ({}, {"sold": 19_999}):
            with pytest.raises(BackendError, match="asks more for this"):
                await door.call("say", Caller(), arguments={"word": "a"}, **free_or_less)
        assert (shop.shown, wallet.spent) == ([], "$0.00")
        assert words(await door.call("say", Caller(), arguments={"word": "a"}, sold=20_000)) == "sold 1"


async def test_what_was_sold_at_a_price_of_before_is_not_bought_at_one_of_now(tmp_path: Path) -> None:
    shop, wallet, till = Shop(accepts=[offer(amount="30000")]), Wallet(tmp_path), Till()
    wallet.now = shop.now = 1_795_000_000.0
    now = tool("say", _meta={PRICE_META: {"currency": "USD", "amount": "0.03"}})
    async with (
        over_tcp(seller(shop, tools=[now])) as there,
        buying(wallet, till, tcp=there, mark_up="20%") as door,
    ):
        asked: dict[str, Any] = {"arguments": {"word": "a"}, "sold_as_said": True}
        with pytest.raises(BackendError, match="asks more"):
            await door.call("say", Caller(), sold=24_000, **asked)
        assert words(await door.call("say", Caller(), sold=36_000, **asked)) == "sold 1"


async def test_more_than_it_said_is_not_paid_for_what_is_sold_on(tmp_path: Path) -> None:
    shop, wallet, till = Shop(accepts=[offer(amount="30000")]), Wallet(tmp_path), Till()
    double = seller(shop)
    async with over_tcp(double) as there, buying(wallet, till, tcp=there, mark_up="$0.01") as door:
        before = len(double.of("tools/list"))
        with pytest.raises(BackendError, match="asks more for this"):
            await door.say("a")
        assert shop.shown == []
        await soon(lambda: len(double.of("tools/list")) > before)


async def test_a_price_that_depends_on_the_call_is_asked_without_a_payment(tmp_path: Path) -> None:
    shop, wallet, till = Shop(), Wallet(tmp_path), Till()
    wallet.now = shop.now = 1_795_000_000.0
    double = seller(shop, tools=[tool("say", _meta={PRICE_META: {"currency": "USD", "dynamic": True}})])
    async with over_tcp(double) as there, buying(wallet, till, tcp=there, mark_up="50%") as door:
        (offered,) = door.backend.tools()
        assert offered.meta == {PRICE_META: {"function": "upstream"}}
        assert door.backend.price_functions == {"upstream"}
        asked: dict[str, Any] = {"subject": "ada", "call_id": "c", "tool": "say"}
        price = PriceAsked(function="upstream", arguments={"word": "a"}, **asked)
        assert await door.backend.price(price) == "$0.03"
        assert shop.shown == []
        shop.accepts = [offer(amount="40000")]  # dearer than what it just said for this very call
        assert (
            await door.backend.price(price) == "$0.06"
        )  # and who asks again raises nothing for what is sold
        with pytest.raises(BackendError, match="asks more"):
            await door.call("say", Caller(), arguments={"word": "a"}, sold=30_000, sold_as_said=True)
        assert shop.shown == []
        sold = await door.call("say", Caller(), arguments={"word": "a"}, sold=60_000, sold_as_said=True)
        assert words(sold) == "sold 1"
        assert await door.say("b") == "sold 2"  # its price was not asked: ours is in the settings


@pytest.mark.parametrize(
    ("text_", "on", "comes_to"),
    [("20%", 20_000, 24_000), ("2.5%", 1, 2), ("$0.01", 20_000, 30_000), ("0%", 7, 7), ("33.33 %", 3, 4)],
)
def test_a_mark_up_is_a_part_or_an_amount_and_never_less(text_: str, on: int, comes_to: int) -> None:
    assert read_mark_up(text_).on(on) == comes_to


@pytest.mark.parametrize("text_", ["20%", "2.5%", "$0.01", "0%", "33.33 %", "9999%"])
@pytest.mark.parametrize("amount", [0, 1, 2, 3, 7, 20_000, 123_457])
def test_what_may_be_paid_of_what_was_taken_is_what_it_cost_and_no_loss(text_: str, amount: int) -> None:
    mark_up = read_mark_up(text_)
    most = mark_up.within(mark_up.on(amount))
    assert most >= amount
    assert mark_up.on(most) == mark_up.on(amount)
    assert mark_up.within(0) == 0


@pytest.mark.parametrize("wrong", ["", "20", "-1%", "1.234%", "%", "ten", "$0.0000001", "99999%"])
def test_what_is_neither_is_refused(wrong: str) -> None:
    if wrong == "20":  # twenty dollars
        assert read_mark_up(wrong) == MarkUp(fixed=20_000_000)
        return
    with pytest.raises(BadAmount):
        read_mark_up(wrong)


@pytest.mark.parametrize(
    ("meta", "found"),
    [
        ({}, None),
        ({"mine": 1}, None),
        (TAG, AskedPrice(20_000)),
        ({PRICE_META: {"currency": "EUR", "amount": "1"}}, AskedPrice(None)),
        ({PRICE_META: {"currency": "USD", "amount": "lots"}}, AskedPrice(None)),
        ({PRICE_META: {"currency": "USD", "planOnly": True}}, AskedPrice(None)),
        ({"agents-x402/paymentRequired": True, "agents-x402/priceUSD": 0.015}, AskedPrice(15_000)),
        ({"agents-x402/paymentRequired": True}, AskedPrice(None)),
        ({"agents-x402/priceUSD": 1e300}, AskedPrice(None)),
        ({"agents-x402/priceUSD": -1}, AskedPrice(None)),
    ],
)
def test_what_a_tool_says_of_its_price_is_read_as_a_strangers(meta: Any, found: AskedPrice | None) -> None:
    assert asked_price(meta) == found


def test_settings_that_sell_on_what_is_not_bought_are_refused() -> None:
    config = McpConfig(url="http://127.0.0.1/mcp", mark_up="20%")
    assert [key for key, _ in problems(config)] == ["mark_up"]
    assert tag_of(AskedPrice(10_000), MarkUp(fixed=5_000)) == {PRICE_META: "$0.015"}


async def test_the_caller_of_a_free_tool_pays_nothing_and_hears_nothing_of_it(tmp_path: Path) -> None:
    wallet, till = Wallet(tmp_path), Till()
    async with over_tcp(Double()) as there, buying(wallet, till, tcp=there) as door:
        assert words(await door.call("say", Caller(), arguments={"word": "hi"})) == "hi"
    assert (till.booked, wallet.spent) == ([], "$0.00")


@pytest.mark.parametrize(
    ("listed", "sold", "as_said", "most"),
    [
        (AskedPrice(20_000), None, False, 20_000),
        (AskedPrice(20_000), 5_000, False, 20_000),  # its owner adds to it
        (AskedPrice(None), 10_000, False, 10_000),
        (AskedPrice(None), None, False, None),
        (None, 10_000, False, 10_000),
        (None, None, False, 0),
        (AskedPrice(90_000), 24_000, True, 20_000),
    ],
)
def test_what_is_sold_on_bounds_what_is_paid_for_it(
    listed: AskedPrice | None, sold: int | None, as_said: bool, most: int | None
) -> None:
    call = ToolCall(tool="t", arguments={}, subject="ada", call_id="c", sold=sold, sold_as_said=as_said)
    assert most_for(call, listed, MarkUp(part=2000)) == most


@pytest.mark.parametrize("paying", [False, True])
async def test_receipts_are_told_to_the_books_whether_or_not_there_is_a_wallet(
    tmp_path: Path, paying: bool
) -> None:
    told: list[GivenReceipt] = []

    async def tell(receipt: GivenReceipt) -> None:
        await trio.lowlevel.checkpoint()
        told.append(receipt)

    async def say(turn: Turn) -> Any:
        asked = turn.params["arguments"]["word"]
        meta = {"a": {SIGNED_RECEIPT: "a.b.c"}, "b": {SIGNED_RECEIPT: {"not": "text"}}, "c": {}}[asked]
        return text("said", _meta=meta)

    double = Double(handlers={"say": say}, lists={"tools": [tool("say")]})
    async with over_http(double) as url:
        settings: dict[str, Any] = {"url": url, "id": "shop", "tell_receipt": tell}
        async with buying(Wallet(tmp_path), Till(), **settings) if paying else gate(**settings) as door:
            for asked in "abc":
                assert words(await door.call("shop__say", arguments={"word": asked})) == "said"
    assert [(each.text, each.issuer, each.upstream, each.tool) for each in told] == [
        ("a.b.c", url.removesuffix("/mcp"), "shop", "shop__say")
    ]
