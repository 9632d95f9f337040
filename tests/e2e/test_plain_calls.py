"""Calls by plain HTTP, paid and free: `POST /{server}/call/{tool}` of the running program."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sold import AGENT, Buyer, Shop, packed, selling, unpacked

pytestmark = pytest.mark.slow

# One that asks for a login, one that sells to whoever pays as well, one that asks nobody who they are.
PRIVATE, SHARED, OPEN = (
    'name = "private"',
    'name = "shared"\nanonymous_pay = true\n[server.tools.slips]\nflow = "upfront"',
    'name = "open"\nauth = "none"',
)
WORD = {"word": "ostium"}
SLIPS = """
@tool(price="$0.01")
def slips(word: str) -> str:
    if word == "exit":
        import os
        os._exit(1)
    raise ValueError("there is no such word")
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Generator[Shop]:
    with selling(tmp_path_factory.mktemp("shop"), PRIVATE, SHARED, OPEN, agent=AGENT + SLIPS) as found:
        yield found


@pytest.fixture(scope="module")
def key(shop: Shop) -> str:
    return shop.key()


@pytest.fixture
def word(request: pytest.FixtureRequest) -> dict[str, str]:
    """Of each test its own: the same call of the same payer may be given the answer of the one before."""
    return {"word": request.node.name}


# ── who may, and what they are told ──────────────────────────────────────────────────────────────────────────────────


def test_a_free_tool_is_called_with_a_key_or_where_nobody_logs_in(shop: Shop, key: str) -> None:
    for path, headers in (("/private/call/free", {"x_api_key": key}), ("/open/call/free", {})):
        answer = shop.post(path, WORD, **headers)
        assert answer.status_code == 200, answer.text
        told = answer.json()
        assert told["content"][0]["text"] == "ostium" and told["isError"] is False
        assert answer.headers["cache-control"] == "no-store"


def test_without_a_login_it_is_401_before_402_and_both_ways_are_shown(shop: Shop) -> None:
    answer = shop.post("/private/call/look_up", WORD)
    assert answer.status_code == 401
    assert "resource_metadata=" in answer.headers["www-authenticate"]
    challenge = unpacked(answer.headers["payment-required"])
    assert challenge["x402Version"] == 2 and challenge["accepts"][0]["amount"] == "10000"
    told = answer.json()
    assert told["x402Version"] == 1 and told["accepts"][0]["network"] == "base-sepolia"
    assert set(told["setup"]) == {"command", "message", "docs"}
    assert told["setup"]["command"].startswith("ostiary login http://")


@pytest.mark.parametrize("tool", ["free", "nothing", "render"])
def test_a_401_tells_no_price_that_is_not_known(shop: Shop, tool: str) -> None:
    answer = shop.post(f"/private/call/{tool}", WORD)
    assert answer.status_code == 401
    assert "payment-required" not in answer.headers and "accepts" not in answer.text


def test_a_payment_does_not_replace_the_login_where_one_is_asked_for(shop: Shop) -> None:
    wanted = shop.challenge("/shared/call/look_up", WORD)["accepts"][0]
    before = shop.settled()
    payment = packed(Buyer().payment(wanted))
    assert shop.post("/private/call/look_up", WORD, payment_signature=payment).status_code == 401
    # Nor a token that is none, where whoever pays may come in without one.
    answer = shop.post(
        "/shared/call/look_up", WORD, payment_signature=payment, authorization="Bearer nonsense"
    )
    assert answer.status_code == 401
    assert shop.settled() == before


@pytest.mark.parametrize("server", ["shared", "open"])
def test_where_nobody_needs_a_login_it_is_402_in_both_versions(shop: Shop, server: str) -> None:
    answer = shop.post(f"/{server}/call/look_up", WORD)
    assert answer.status_code == 402
    assert "www-authenticate" not in answer.headers
    assert answer.headers["cache-control"] == "no-store"
    challenge = unpacked(answer.headers["payment-required"])
    assert challenge["resource"]["url"].endswith(f"/{server}/call/look_up")
    told = answer.json()
    assert told["x402Version"] == 1 and told["reason"] == "payment_required"
    (entry,) = told["accepts"]
    assert entry["maxAmountRequired"] == "10000" and "outputSchema" not in entry


@pytest.mark.parametrize("tool", ["free", "nothing"])
def test_whoever_pays_reaches_only_what_is_sold(shop: Shop, tool: str) -> None:
    wanted = shop.challenge("/shared/call/look_up", WORD)["accepts"][0]
    for headers in ({}, {"payment_signature": packed(Buyer().payment(wanted))}):
        answer = shop.post(f"/shared/call/{tool}", WORD, **headers)
        assert answer.status_code == 401
        assert "www-authenticate" in answer.headers


def test_a_call_whose_own_price_is_nothing_still_needs_a_login(shop: Shop) -> None:
    assert shop.post("/shared/call/render", {"pages": 0}).status_code == 401
    assert shop.post("/open/call/render", {"pages": 0}).status_code == 200


@pytest.mark.parametrize("verb", ["GET", "HEAD", "PUT", "DELETE"])
def test_a_wrong_verb_shows_the_price(shop: Shop, verb: str) -> None:
    answer = shop.ask(verb, "/shared/call/look_up")
    assert answer.status_code == 402
    assert unpacked(answer.headers["payment-required"])["accepts"]
    assert "POST" in answer.headers["allow"]
    assert shop.ask(verb, "/open/call/free").status_code == 405
    assert shop.ask(verb, "/open/call/nothing").status_code == 404
    assert shop.ask(verb, "/private/call/look_up").status_code == 401


# ── calls that are paid ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_payment_of_version_2_is_taken_and_receipted(shop: Shop, word: dict[str, str]) -> None:
    before = shop.settled()
    answer = shop.pay("/shared/call/look_up", word)
    assert answer.status_code == 200, answer.text
    assert answer.json()["content"][0]["text"].startswith(word["word"])
    receipt = unpacked(answer.headers["payment-response"])
    assert receipt["success"] is True and receipt["transaction"] and receipt["network"] == "eip155:84532"
    assert answer.headers["cache-control"] == "private"
    assert "x-payment-response" not in answer.headers
    assert shop.settled() == before + 1


def test_a_payment_of_version_1_is_taken_and_receipted_in_its_own_words(
    shop: Shop, word: dict[str, str]
) -> None:
    (wanted,) = shop.post("/open/call/look_up", word).json()["accepts"]
    payment = packed(Buyer().payment(wanted, version=1))
    answer = shop.post("/open/call/look_up", word, x_payment=payment)
    assert answer.status_code == 200, answer.text
    receipt = unpacked(answer.headers["x-payment-response"])
    assert receipt["success"] is True and receipt["network"] == "base-sepolia" and receipt["payer"]
    assert "payment-response" not in answer.headers


def test_a_login_whose_balance_does_not_do_pays_for_the_call_beside_its_token(
    shop: Shop, key: str, word: dict[str, str]
) -> None:
    before = shop.settled()
    asked = shop.post("/private/call/look_up", word, x_api_key=key)
    assert asked.status_code == 402 and asked.json()["reason"] == "balance_too_low"
    paid = shop.pay("/private/call/look_up", word, x_api_key=key)
    assert paid.status_code == 200, paid.text
    assert unpacked(paid.headers["payment-response"])["success"] is True
    assert shop.settled() == before + 1


def test_a_price_by_arguments_is_quoted_and_paid(shop: Shop) -> None:
    challenge = shop.challenge("/shared/call/render", {"pages": 3})
    wanted = challenge["accepts"][0]
    assert wanted["amount"] == "30000"
    payment = packed(Buyer().payment(wanted))
    other = shop.post("/shared/call/render", {"pages": 9}, payment_signature=payment)
    assert other.status_code == 400 and other.json()["reason"] == "quote_mismatch"
    assert unpacked(other.headers["payment-required"])["accepts"][0]["amount"] == "90000"
    paid = shop.post("/shared/call/render", {"pages": 3}, payment_signature=payment)
    assert paid.status_code == 200 and paid.json()["content"][0]["text"] == "3 pages"


def test_a_tool_that_fails_after_it_was_paid_says_so_and_how_often_it_may_be_called_again(
    shop: Shop, word: dict[str, str]
) -> None:
    buyer, before = Buyer(), shop.settled()
    wanted = shop.challenge("/shared/call/slips", word)["accepts"][0]
    payment = packed(buyer.payment(wanted))
    for left in (3, 2, 1, 0):
        answer = shop.post("/shared/call/slips", word, payment_signature=payment)
        told = answer.json()
        assert answer.status_code == 422, answer.text
        assert (told["isError"], told["paid"], told["retries_left"]) == (True, True, left)
        assert told["_meta"]["io.ostiary/payment"] == {"paid": True, "retriesLeft": left}
        assert unpacked(answer.headers["payment-response"])["success"] is True
        said = told["content"][-1]["text"]
        assert ("costs nothing more" in said) == (left > 0)
    answer = shop.post("/shared/call/slips", word, payment_signature=payment)
    assert (answer.status_code, answer.json()["reason"]) == (409, "retries_exhausted")
    assert shop.settled() == before + 1


def test_what_is_wrong_with_the_agent_itself_does_not_hide_that_it_was_paid(
    shop: Shop, word: dict[str, str]
) -> None:
    answer = shop.pay("/shared/call/slips", {"word": "exit"})
    assert answer.status_code in (502, 503), answer.text
    assert (answer.json()["paid"], answer.json()["retries_left"]) == (True, 3)
    assert unpacked(answer.headers["payment-response"])["success"] is True


@pytest.mark.parametrize("ends", [False, True])
def test_with_a_key_what_was_paid_beforehand_runs_again_as_soon_as_its_caller_was_told(
    shop: Shop, word: dict[str, str], ends: bool
) -> None:
    said = {"word": "exit"} if ends else word
    wanted = shop.challenge("/shared/call/slips", said)["accepts"][0]
    head = {
        "payment_signature": packed(Buyer().payment(wanted)),
        "idempotency_key": f"{word['word'][:64]}-{ends}",
    }
    for left in (3, 2):
        told = shop.post("/shared/call/slips", said, **head)
        assert told.status_code in ((502, 503) if ends else (422,)), told.text
        assert (told.json()["paid"], told.json()["retries_left"]) == (True, left)


def test_a_call_with_a_key_that_failed_is_answered_by_its_failure_and_costs_nothing(
    shop: Shop, word: dict[str, str]
) -> None:
    wanted = shop.challenge("/shared/call/breaks", word)["accepts"][0]
    before = shop.settled()
    head = {"payment_signature": packed(Buyer().payment(wanted)), "idempotency_key": word["word"][:64]}
    first, again = (shop.post("/shared/call/breaks", word, **head) for _ in range(2))
    for each in (first, again):
        assert (each.status_code, each.json()["_meta"]["io.ostiary/payment"]["paid"]) == (422, False), (
            each.text
        )
        assert "payment-response" not in each.headers
    assert "x-x402-idempotent" not in first.headers and again.headers["x-x402-idempotent"] == "replay"
    assert again.json()["content"] == first.json()["content"]
    assert shop.settled() == before


def test_a_call_with_a_key_whose_agent_died_is_not_made_again_and_costs_nothing(
    shop: Shop, key: str, word: dict[str, str]
) -> None:
    said = {"word": "exit"}
    wanted = shop.challenge("/private/call/slips", said, authorization=f"Bearer {key}")["accepts"][0]
    before = shop.settled()
    head = {
        "authorization": f"Bearer {key}",
        "payment_signature": packed(Buyer().payment(wanted)),
        "idempotency_key": word["word"][:64],
    }
    assert shop.post("/private/call/slips", said, **head).status_code in (502, 503)
    for _ in range(2):
        told = shop.post("/private/call/slips", said, **head)
        assert (told.status_code, told.json()["reason"], told.json()["paid"]) == (409, "interrupted", False)
    assert shop.settled() == before


@pytest.mark.parametrize("version", [1, 2])
def test_a_payment_in_a_header_of_mcp_has_its_outcome_in_one(
    shop: Shop, word: dict[str, str], version: int
) -> None:
    wanted = shop.challenge("/shared/call/look_up", word)["accepts"][0]
    payment = packed(
        Buyer().payment({**wanted, "network": "base-sepolia"} if version == 1 else wanted, version=version)
    )
    header, name = (("x_payment", "x-payment-response"), ("payment_signature", "payment-response"))[
        version - 1
    ]
    head = {
        "accept": "application/json, text/event-stream",
        "mcp_protocol_version": "2025-11-25",
        header: payment,
    }
    answer = shop.post("/shared/mcp", call("look_up", **word), **head)
    result = answer.json()["result"]
    assert not result.get("isError"), result
    told = unpacked(answer.headers[name])
    assert told["success"] is True
    assert told["transaction"] == result["_meta"]["x402/payment-response"]["transaction"]
    assert told["network"] == ("base-sepolia" if version == 1 else "eip155:84532")


def test_a_tool_that_fails_is_422_and_costs_nothing(shop: Shop, word: dict[str, str]) -> None:
    before = shop.settled()
    answer = shop.pay("/shared/call/breaks", word)
    assert answer.status_code == 422
    assert answer.json()["isError"] is True
    assert "payment-response" not in answer.headers
    assert shop.settled() == before


def test_the_same_payment_many_times_at_once_is_one_call(shop: Shop, word: dict[str, str]) -> None:
    before = shop.settled()
    wanted = shop.challenge("/shared/call/look_up", word)["accepts"][0]
    payment = packed(Buyer().payment(wanted))
    with ThreadPoolExecutor(10) as pool:
        answers = list(
            pool.map(lambda _: shop.post("/shared/call/look_up", word, payment_signature=payment), range(10))
        )
    good = [each for each in answers if each.status_code == 200]
    assert good and {each.status_code for each in answers} <= {200, 409}
    assert len({each.json()["content"][0]["text"] for each in good}) == 1
    assert shop.settled() == before + 1


def test_an_idempotency_key_is_honoured_and_a_replay_says_so(shop: Shop, word: dict[str, str]) -> None:
    before = shop.settled()
    wanted = shop.challenge("/shared/call/look_up", word)["accepts"][0]
    payment = packed(Buyer().payment(wanted))
    headers = {"payment_signature": payment, "idempotency_key": "a-call-of-mine"}
    first = shop.post("/shared/call/look_up", word, **headers)
    again = shop.post("/shared/call/look_up", word, **headers)
    assert first.status_code == again.status_code == 200
    assert first.json()["content"] == again.json()["content"]
    assert "x-x402-idempotent" not in first.headers
    assert again.headers["x-x402-idempotent"] == "replay"
    receipts = [unpacked(each.headers["payment-response"]) for each in (first, again)]
    assert receipts[0]["transaction"] == receipts[1]["transaction"]
    other = shop.post("/shared/call/look_up", {"word": "other"}, **headers)
    assert other.status_code == 409
    assert shop.settled() == before + 1


def test_a_settlement_that_fails_withholds_the_answer_and_says_so_in_the_header(shop: Shop) -> None:
    shop.switch(settle="fail", times=1)
    answer = shop.pay("/shared/call/look_up", {"word": "withheld"})
    assert answer.status_code == 402, answer.text
    assert "withheld 1" not in answer.text
    assert unpacked(answer.headers["payment-response"])["success"] is False
    assert unpacked(answer.headers["payment-required"])["accepts"]


@pytest.mark.parametrize(
    "header", ["", "%%%", "bm90IGpzb24=", "e30=", "W10=", packed({"x402Version": 3}), "A" * 30_000]
)
@pytest.mark.parametrize("name", ["payment_signature", "x_payment"])
def test_a_payment_that_cannot_be_read_is_refused_with_the_price(
    shop: Shop, name: str, header: str, word: dict[str, str]
) -> None:
    headers: dict[str, Any] = {name: header}
    answer = shop.post("/open/call/look_up", word, **headers)
    assert answer.status_code in (400, 402, 431), answer.text
    if answer.status_code == 400:
        assert unpacked(answer.headers["payment-required"])["accepts"]
        assert answer.json()["reason"]


def test_a_payment_for_another_amount_is_402_with_the_reason(shop: Shop, word: dict[str, str]) -> None:
    wanted = shop.challenge("/open/call/look_up", word)["accepts"][0]
    payment = packed(Buyer().payment(wanted, value=9_999))
    answer = shop.post("/open/call/look_up", word, payment_signature=payment)
    assert answer.status_code == 402
    assert answer.json()["reason"] == "invalid_exact_evm_payload_authorization_value_mismatch"


# ── what is wrong with a request ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/open/call/free", b"[]", 400),
        ("/open/call/free", b"{", 400),
        ("/open/call/free", b'{"word": "\xff"}', 400),
        ("/open/call/free", b"[" * 100_000, 400),
        ("/open/call/free", b"", 400),
        ("/open/call/free", b'{"word": 3}', 400),
        ("/open/call/nothing", b"{}", 404),
        ("/open/call/", b"{}", 404),
        ("/open/call/a/b", b"{}", 404),
        ("/nobody/call/free", b"{}", 404),
    ],
)
def test_what_is_wrong_is_said_by_the_status(shop: Shop, path: str, body: bytes, status: int) -> None:
    answer = shop.ask("POST", path, content=body, headers={"content-type": "application/json"})
    assert answer.status_code == status, answer.text


def test_wrong_arguments_are_listed_and_cost_nothing(shop: Shop) -> None:
    before = shop.settled()
    answer = shop.post("/open/call/look_up", {"word": 3, "more": 1})
    assert answer.status_code == 400
    told = answer.json()
    assert told["error"] == "invalid_arguments"
    assert {each["field"] for each in told["problems"]} >= {"word"}
    assert shop.settled() == before


def test_another_content_type_is_415(shop: Shop) -> None:
    answer = shop.ask("POST", "/open/call/free", content=b"word=x", headers={"content-type": "text/plain"})
    assert answer.status_code == 415


def test_a_page_of_this_machine_may_read_what_is_to_be_paid(shop: Shop) -> None:
    origin = shop.server.url
    answer = shop.post("/open/call/look_up", WORD, origin=origin)
    exposed = answer.headers["access-control-expose-headers"].lower()
    assert answer.headers["access-control-allow-origin"] == origin
    assert all(name in exposed for name in ("payment-required", "payment-response", "x-payment-response"))
    asked = shop.ask("OPTIONS", "/open/call/look_up", headers={"origin": origin})
    assert asked.status_code == 204
    allowed = asked.headers["access-control-allow-headers"].lower()
    assert all(name in allowed for name in ("payment-signature", "x-payment", "idempotency-key"))
    assert shop.post("/open/call/look_up", WORD, origin="https://evil.example").status_code == 403


# ── the same at the endpoint of MCP ──────────────────────────────────────────────────────────────────────────────────


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": tool, "arguments": arguments},
    }


@pytest.mark.parametrize(
    "headers",
    [
        {"accept": "application/json, text/event-stream"},
        {"accept": "application/json", "mcp_protocol_version": "2025-06-18"},
        {"accept": "application/json", "mcp_session_id": "x"},
    ],
)
def test_who_speaks_mcp_is_asked_to_log_in(shop: Shop, headers: dict[str, str]) -> None:
    answer = shop.post("/shared/mcp", call("look_up", **WORD), **headers)
    assert answer.status_code == 401
    assert "www-authenticate" in answer.headers and "payment-required" not in answer.headers


def test_who_speaks_plain_http_is_asked_to_pay(shop: Shop) -> None:
    answer = shop.post("/shared/mcp", call("look_up", **WORD), accept="application/json")
    assert answer.status_code == 402
    assert "www-authenticate" not in answer.headers
    assert unpacked(answer.headers["payment-required"])["accepts"][0]["amount"] == "10000"
    other = shop.post("/shared/mcp", call("free", **WORD), accept="application/json")
    assert other.status_code == 402 and unpacked(other.headers["payment-required"])["accepts"] == []
    # Where nobody sells without a login, nobody is asked to pay in its place.
    assert shop.post("/mcp", call("look_up", **WORD), accept="application/json").status_code == 401


def test_a_payment_header_lets_a_stranger_in_to_what_is_sold(shop: Shop) -> None:
    wanted = shop.challenge("/shared/call/look_up", WORD)["accepts"][0]
    headers = {
        "accept": "application/json, text/event-stream",
        "mcp_protocol_version": "2025-06-18",
        "payment_signature": packed(Buyer().payment(wanted)),
    }
    listed = shop.post("/shared/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, **headers)
    assert {tool["name"] for tool in listed.json()["result"]["tools"]} == {
        "look_up",
        "breaks",
        "slips",
        "render",
    }
    hidden = shop.post("/shared/mcp", call("free", **WORD), **headers).json()
    assert "unknown tool" in hidden["error"]["message"]
    paid = shop.post("/shared/mcp", call("look_up", word="by header"), **headers).json()["result"]
    assert not paid.get("isError"), paid
    assert paid["_meta"]["x402/payment-response"]["success"] is True
