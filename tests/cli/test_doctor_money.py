"""What `ostiary doctor` says of the money of this machine's server: from what it found, in words."""

from __future__ import annotations

from typing import Any

import pytest

from server.cli.doctor.doctor_money import TOOLS, money_steps, unheard_step

ASSET: dict[str, Any] = {
    "symbol": "USDC",
    "address": "0xAbC",
    "network": "eip155:84532",
    "title": "Base Sepolia",
    "testnet": True,
    "pay_to": "0xPayee",
    "taken_by": ["https://f.example"],
}
ACCEPTS = {"network": "eip155:84532", "asset": "0xabc", "amount": "10000", "maxTimeoutSeconds": 60}
TOOL: dict[str, Any] = {
    "server": "main",
    "tool": "search",
    "words": "$0.01 a call",
    "strangers": False,
    "fixed": True,
    "challenge": {"accepts": [ACCEPTS]},
}


def said(**found: Any) -> list[tuple[str, str, str]]:
    whole = {"warnings": [], "assets": [], "facilitators": [], "tools": [], **found}
    return [(step.name, step.state, step.detail) for step in money_steps(whole)]


def test_prices_that_can_be_paid_are_counted() -> None:
    assert [each[:2] for each in said()] == [("prices", "skipped")]
    for count in (1, 2):
        name, state, detail = said(tools=[TOOL] * count, assets=[ASSET])[0]
        assert (name, state) == ("prices", "ok") and detail.startswith(f"{count} tool")


def test_a_price_that_nobody_can_pay_is_a_fault() -> None:
    step = money_steps({"warnings": ["a", "b"], "assets": [], "facilitators": [], "tools": [TOOL]})[0]
    assert (step.state, step.detail) == ("failed", "a; b") and step.hint


@pytest.mark.parametrize(
    ("each", "state", "words"),
    [
        ({"problem": "", "networks": ["eip155:84532"]}, "ok", " eip155:84532"),
        ({"problem": "", "networks": []}, "ok", " no network"),
        ({"problem": "did not answer", "networks": []}, "failed", " did not answer"),
    ],
)
def test_each_facilitator_has_a_line(each: dict[str, Any], state: str, words: str) -> None:
    name, found, detail = said(facilitators=[{"url": "https://f.example", **each}])[1]
    assert (name, found) == ("facilitator", state) and detail.endswith(words)


@pytest.mark.parametrize(
    ("changes", "state", "words"),
    [
        ({}, "ok", "worth nothing"),
        ({"testnet": False}, "ok", " 0xPayee"),
        ({"pay_to": ""}, "failed", " nobody"),
        ({"taken_by": []}, "failed", " no facilitator"),
    ],
)
def test_each_token_has_a_line(changes: dict[str, Any], state: str, words: str) -> None:
    name, found, detail = said(assets=[{**ASSET, **changes}])[1]
    assert (name, found) == ("payee", state) and detail.endswith(words)


def test_what_a_buyer_sees_is_said_of_some_tools() -> None:
    steps = [each for each in said(tools=[TOOL] * 9, assets=[ASSET]) if each[0] == "buyer sees"]
    assert len(steps) == TOOLS
    for fact in (
        "main/search: $0.01 a call; ",
        " logged in ",
        " 10000 units of USDC on Base Sepolia",
        " 60 s",
    ):
        assert fact in steps[0][2]
    anybody = said(tools=[{**TOOL, "strangers": True}], assets=[ASSET])[-1][2]
    assert "anybody" in anybody and "logged in" not in anybody
    assert said(tools=[{**TOOL, "fixed": False}])[-1][2].endswith("each call)")
    assert said(tools=[{**TOOL, "challenge": None}])[-1][2].endswith("balance alone")


def test_prices_that_are_not_asked_for_are_a_fault_that_names_the_tools() -> None:
    one = unheard_step({"main": ["look"]})
    assert (one.name, one.state) == ("prices", "failed") and ": main/look " in one.detail
    many = unheard_step({"main": ["a", "b"], "lab": ["c", "d"]})
    assert ": main/a, main/b, lab/c and 1 more " in many.detail
