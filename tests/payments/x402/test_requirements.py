from __future__ import annotations

from typing import Any

import pytest

from server.payments.x402.requirements import (
    BadRequirements,
    PaidResource,
    payment_required,
    payment_required_v1,
    read_requirements,
)
from tests.payments.x402.builders import PAYEE, RESOURCE, SEPOLIA, offer

# The example of the specification of version 2 (§5.1), with our own values.
V2_ENTRY = {
    "scheme": "exact",
    "network": "eip155:84532",
    "amount": "10000",
    "asset": SEPOLIA.address,
    "payTo": PAYEE,
    "maxTimeoutSeconds": 300,
    "extra": {"name": "USDC", "version": "2"},
}
V1_ENTRY = {
    "scheme": "exact",
    "network": "base-sepolia",
    "maxAmountRequired": "10000",
    "resource": "https://demo.example/mcp",
    "description": "The weather",
    "mimeType": "application/json",
    "payTo": PAYEE,
    "maxTimeoutSeconds": 300,
    "asset": SEPOLIA.address,
    "extra": {"name": "USDC", "version": "2"},
}


def test_a_challenge_of_version_2_has_the_resource_above_and_the_ways_to_pay_in_our_order() -> None:
    second = offer(network="eip155:137", amount="10001")
    assert payment_required([offer(), second], RESOURCE, "Payment required.", {"x": {"info": {}}}) == {
        "x402Version": 2,
        "error": "Payment required.",
        "resource": {
            "url": "https://demo.example/mcp",
            "description": "The weather",
            "mimeType": "application/json",
            "serviceName": "Demo",
        },
        "accepts": [V2_ENTRY, {**V2_ENTRY, "network": "eip155:137", "amount": "10001"}],
        "extensions": {"x": {"info": {}}},
    }


def test_a_challenge_without_extensions_does_not_mention_them() -> None:
    assert "extensions" not in payment_required([offer()], RESOURCE, "")


def test_a_challenge_of_version_1_says_of_each_entry_what_it_is_for_and_nothing_is_null() -> None:
    assert payment_required_v1([offer()], RESOURCE, "Payment required.") == {
        "x402Version": 1,
        "error": "Payment required.",
        "accepts": [V1_ENTRY],
    }


def test_version_1_is_not_offered_for_a_network_that_it_has_no_name_for() -> None:
    assert payment_required_v1([offer(network="eip155:31337")], RESOURCE, "") is None
    found = payment_required_v1([offer(network="eip155:31337"), offer()], RESOURCE, "")
    assert found is not None and [each["network"] for each in found["accepts"]] == ["base-sepolia"]


def test_version_1_is_offered_one_token_a_network_because_its_payments_do_not_name_theirs() -> None:
    found = payment_required_v1([offer(), offer(asset="0x" + "11" * 20)], RESOURCE, "")
    assert found is not None and [each["asset"] for each in found["accepts"]] == [SEPOLIA.address]


def test_a_description_is_cut_to_what_facilitators_take() -> None:
    resource = PaidResource(url="https://x.example", description="ä" * 501)
    assert resource.as_json()["description"] == "ä" * 499 + "…"
    assert len(PaidResource(url="https://x.example", description="ä" * 500).as_json()["description"]) == 500


@pytest.mark.parametrize("name", ["", "x" * 33, "Zürich", "a\nb"])
def test_a_service_name_that_a_directory_would_refuse_is_left_out(name: str) -> None:
    found = PaidResource(url="https://x.example", service_name=name, tags=(name, "ok", *"abcdef")).as_json()
    assert "serviceName" not in found
    assert found["tags"] == ["ok", "a", "b", "c", "d"]


@pytest.mark.parametrize("entry", [V2_ENTRY, V1_ENTRY], ids=["v2", "v1"])
def test_an_entry_of_either_version_is_read_alike(entry: dict[str, Any]) -> None:
    assert read_requirements(entry) == offer()
    assert read_requirements(offer().as_json()) == offer()


def test_an_entry_need_not_have_anything_extra() -> None:
    found = read_requirements({key: value for key, value in V2_ENTRY.items() if key != "extra"})
    assert found.extra == {}


@pytest.mark.parametrize(
    "change",
    [
        {"scheme": None}, {"scheme": 7}, {"scheme": ""}, {"network": ["eip155:1"]}, {"network": "x" * 257}, {"amount": 10000},
        {"amount": "-1"}, {"amount": "1e3"}, {"amount": "0x10"}, {"amount": " 1"}, {"amount": "01"}, {"amount": str(2**256)},
        {"asset": None}, {"payTo": {}}, {"maxTimeoutSeconds": "300"}, {"maxTimeoutSeconds": True}, {"maxTimeoutSeconds": -1},
        {"maxTimeoutSeconds": 300.0}, {"maxTimeoutSeconds": 2**40}, {"extra": []}, {"extra": "x"},
    ],
    ids=str,
)  # fmt: skip
def test_an_entry_that_is_none_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(BadRequirements):
        read_requirements({**V2_ENTRY, **change})


@pytest.mark.parametrize("value", [None, [], "exact", 7])
def test_what_is_no_object_is_no_entry(value: object) -> None:
    with pytest.raises(BadRequirements):
        read_requirements(value)
