"""What the running program says of its prices, and by which result of 2026-07-28 it asks to be paid."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
from sold import PAY_TO, Buyer, Shop, selling

from server.mcp.result_encoding import PAYMENT_EXTENSION
from server.payments.x402.in_band import PAYMENT_KEY, RECEIPT_KEY

pytestmark = pytest.mark.slow

PRIVATE, SHARED, OPEN = (
    'name = "private"',
    'name = "shared"\nanonymous_pay = true\nx402_extension = true',
    'name = "open"\nauth = "none"',
)
WORD = {"word": "ostium"}
KNOWS = {"extensions": {PAYMENT_EXTENSION: {}}}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Generator[Shop]:
    with selling(tmp_path_factory.mktemp("shop"), PRIVATE, SHARED, OPEN) as found:
        yield found


# ── the list ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", ["/.well-known/x402", "/.well-known/x402.json"])
def test_what_is_sold_to_everybody_is_listed_and_what_needs_a_login_is_not(shop: Shop, path: str) -> None:
    answer = shop.ask("GET", path)
    assert answer.status_code == 200 and answer.headers["access-control-allow-origin"] == "*"
    told = answer.json()
    routes = {(route["server"], route["tool"]): route for route in told["routes"]}
    assert routes.keys() == {
        (server, tool) for server in ("shared", "open") for tool in ("look_up", "breaks", "render")
    }
    look_up = routes["shared", "look_up"]
    assert look_up["url"] in told["resources"] and look_up["url"].endswith("/shared/call/look_up")
    assert look_up["price"]["words"] == "$0.01 a call" and look_up["accepts"][0]["amount"] == "10000"
    assert routes["shared", "render"]["accepts"] == [] and routes["shared", "render"]["price"]["dynamic"]
    assert told["networks"] == ["eip155:84532"] and told["payTo"] == [PAY_TO]
    assert told["assets"][0]["symbol"] == "USDC"
    assert told["facilitator"] in ("ok", "unknown")
    # Paths: whatever the server is called by. Where nobody has a token, there is no deposit.
    assert told["servers"] == [
        {"name": "shared", "mcp": "/shared/mcp", "calls": "/shared/call/", "deposit": "/shared/deposit"},
        {"name": "open", "mcp": "/open/mcp", "calls": "/open/call/"},
    ]


def test_a_server_with_a_login_says_where_its_balances_are_filled(shop: Shop) -> None:
    told = shop.ask("GET", "/.well-known/oauth-protected-resource/mcp").json()
    assert told["ostiary_deposit_endpoint"] == f"{shop.server.url}/private/deposit"
    assert told["ostiary_calls_endpoint"] == f"{shop.server.url}/private/call/"
    asked = shop.post("/private/deposit", {"amount": "$5"}, x_api_key=key_of(shop))
    assert asked.status_code == 402


def test_a_listed_address_asks_for_what_the_list_says(shop: Shop) -> None:
    route = shop.ask("GET", "/.well-known/x402").json()["routes"][0]
    path = route["url"].removeprefix(shop.server.url)
    assert shop.challenge(path, WORD)["accepts"] == route["accepts"]


def test_the_list_can_only_be_read(shop: Shop) -> None:
    assert shop.post("/.well-known/x402").status_code == 405
    assert shop.post("/x402/status").status_code == 405
    assert shop.ask("GET", "/.well-known/x402", headers={"host": "evil.example"}).status_code == 403


def test_the_status_says_whether_payments_can_be_taken(shop: Shop) -> None:
    answer = shop.ask("GET", "/x402/status")
    assert answer.status_code == 200
    assert answer.json() == {
        "status": "ok",
        "facilitators": [{"host": "127.0.0.1", "status": "ok"}],
        "networks": {"eip155:84532": "ok"},
    }
    assert answer.headers["cache-control"] == "no-store"


# ── org.x402/payment ─────────────────────────────────────────────────────────────────────────────────────────────────


KEYS: dict[str, str] = {}


def key_of(shop: Shop) -> str:
    if shop.server.url not in KEYS:
        KEYS[shop.server.url] = shop.key()
    return KEYS[shop.server.url]


def call(shop: Shop, method: str, capabilities: dict[str, Any], server: str = "shared", **params: Any) -> Any:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": capabilities,
        **params.pop("_meta", {}),
    }
    headers = {
        "accept": "application/json, text/event-stream",
        "mcp_protocol_version": "2026-07-28",
        "mcp_method": method,
        "x_api_key": key_of(shop),
    }
    if "name" in params:
        headers["mcp_name"] = params["name"]
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": meta, **params}}
    answer = shop.post(f"/{server}/mcp", body, **headers)
    assert answer.status_code == 200, answer.text
    return answer.json()["result"]


def test_both_names_of_the_extension_are_one() -> None:
    assert PAYMENT_EXTENSION == "org.x402/payment"


def test_it_is_offered_where_the_settings_say_so(shop: Shop) -> None:
    assert PAYMENT_EXTENSION in call(shop, "server/discover", {})["capabilities"]["extensions"]
    assert PAYMENT_EXTENSION not in call(shop, "server/discover", {}, "open")["capabilities"].get(
        "extensions", {}
    )


def test_a_client_that_knows_it_is_asked_by_it_and_nobody_else(shop: Shop) -> None:
    asked = call(shop, "tools/call", KNOWS, name="look_up", arguments=WORD)
    assert asked["resultType"] == "payment_required"
    assert asked["paymentRequired"]["accepts"][0]["amount"] == "10000"
    assert "content" not in asked and "isError" not in asked
    for server, capabilities in (("shared", {}), ("open", KNOWS)):
        usual = call(shop, "tools/call", capabilities, server, name="look_up", arguments=WORD)
        assert usual["resultType"] == "complete" and usual["isError"] is True
        assert usual["structuredContent"]["accepts"]


def test_it_is_paid_as_ever(shop: Shop) -> None:
    asked = call(shop, "tools/call", KNOWS, name="look_up", arguments=WORD)
    payment = Buyer().payment(asked["paymentRequired"]["accepts"][0])
    paid = call(shop, "tools/call", KNOWS, name="look_up", arguments=WORD, _meta={PAYMENT_KEY: payment})
    assert paid["resultType"] == "complete" and not paid.get("isError")
    assert paid["_meta"][RECEIPT_KEY]["success"] is True


def test_a_payment_that_is_not_settled_is_told_of_in_the_same_kind_of_result(shop: Shop) -> None:
    asked = call(shop, "tools/call", KNOWS, name="look_up", arguments={"word": "unsettled"})
    payment = Buyer().payment(asked["paymentRequired"]["accepts"][0])
    shop.switch(settle="fail", times=1)
    refused = call(
        shop,
        "tools/call",
        KNOWS,
        name="look_up",
        arguments={"word": "unsettled"},
        _meta={PAYMENT_KEY: payment},
    )
    assert refused["resultType"] == "payment_required"
    assert refused["_meta"][RECEIPT_KEY]["success"] is False
    assert "unsettled 1" not in str(refused)
