"""What a server says of selling is believed of its own host, and of no other."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
import trio
from fake_server import FakeServer, Response, Seen, as_json, serving

from server.client.client_errors import BadAnswer
from server.client.http_exchange import open_client
from server.client.seller_terms import NAMELESS, NamelessEntry, Seller, find_seller
from server.payments.x402.payment_headers import NOTHING_YET, PAYMENT_SIGNATURE

LIST, METADATA = "/.well-known/x402", "/.well-known/oauth-protected-resource/mcp"


def says(fake: FakeServer, path: str, value: Any) -> None:
    async def answer(_request: Seen) -> Response:
        return as_json(value)

    fake.overrides[path] = answer


async def found(fake: FakeServer) -> Seller:
    async with open_client() as client:
        return await find_seller(client, fake.url)


async def test_a_server_that_says_nothing_sells_nothing() -> None:
    async with serving(FakeServer()) as fake:
        seller = await found(fake)
        assert (seller.deposits, seller.calls, seller.nameless) == (None, None, False)


async def test_paths_and_addresses_are_taken_at_the_host_that_was_typed() -> None:
    async with serving(FakeServer()) as fake:
        says(fake, LIST, {"servers": [{"mcp": "/other/mcp"}, {"mcp": "/mcp", "calls": "/shop/call/"}]})
        port = fake.origin.rpartition(":")[2]
        metadata = {
            **fake.resource_metadata(),
            "ostiary_deposit_endpoint": f"http://localhost:{port}/shop/deposit",
        }
        says(fake, METADATA, metadata)
        seller = await found(fake)
        assert seller.nameless
        assert seller.calls == f"{fake.origin}/shop/call/"
        assert seller.deposits == f"{fake.origin}/shop/deposit"


@pytest.mark.parametrize(
    "named",
    [
        "https://thief.example/shop/deposit",
        "//thief.example/shop/deposit",
        "http://127.0.0.1:1/shop/deposit",
        "http://user@thief.example/",
        "\x1b[2J/deposit",
        "http://[",
        "x" * 5000,
        5,
        None,
        ["/shop/deposit"],
    ],
)
async def test_no_address_elsewhere_is_taken(named: Any) -> None:
    async with serving(FakeServer()) as fake:
        says(fake, METADATA, {**fake.resource_metadata(), "ostiary_deposit_endpoint": named})
        says(fake, LIST, {"servers": [{"mcp": "/mcp", "deposit": named}]})
        assert (await found(fake)).deposits is None


@pytest.mark.parametrize(
    "listed",
    [
        {},
        [],
        {"servers": None},
        {"servers": {"mcp": "/mcp"}},
        {"servers": [None, 5, "x", {}, {"mcp": 5}]},
        {"servers": [{"mcp": "https://other.example/mcp"}, {"mcp": "/mcp/more"}, {"mcp": "http://["}]},
    ],
)
async def test_a_list_that_does_not_name_the_server_lets_nobody_in(listed: Any) -> None:
    async with serving(FakeServer()) as fake:
        says(fake, LIST, listed)
        async with open_client() as client:
            entry = NamelessEntry(client, fake.url)
            assert not await entry.take()
            assert entry.headers == {}


async def test_many_who_were_turned_away_ask_once() -> None:
    told: list[bool] = []
    async with serving(FakeServer()) as fake:
        says(fake, LIST, {"servers": [{"mcp": fake.url}]})
        async with open_client() as client:
            entry = NamelessEntry(client, fake.url, taken=lambda: told.append(True))
            assert entry.headers == {}
            async with trio.open_nursery() as nursery:
                for _ in range(5):
                    nursery.start_soon(entry.take)
            assert entry.headers == NAMELESS
        assert (len(fake.requests(LIST)), told) == (1, [True])


async def test_a_list_that_cannot_be_had_is_asked_for_again() -> None:
    async with serving(FakeServer()) as fake:
        answers = [Response(break_off=True), as_json({"servers": [{"mcp": "/mcp"}]})]

        async def answer(_request: Seen) -> Response:
            return answers.pop(0)

        fake.overrides[LIST] = answer
        async with open_client() as client:
            entry = NamelessEntry(client, fake.url)
            assert not await entry.take()
            assert await entry.take()


async def test_a_list_without_end_is_not_read() -> None:
    async with serving(FakeServer()) as fake:

        async def answer(_request: Seen) -> Response:
            return Response(200, b" " * (5 * 1024 * 1024), {"content-type": "application/json"})

        fake.overrides[LIST] = answer
        with pytest.raises(BadAnswer, match="KiB"):
            await found(fake)


def test_what_is_sent_without_a_payment_is_what_our_server_takes_for_none() -> None:
    assert dict(NAMELESS) == {PAYMENT_SIGNATURE: NOTHING_YET}
    assert json.loads(base64.b64decode(NOTHING_YET)) == {}
