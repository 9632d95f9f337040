"""Addresses are read with their checksum (EIP-55, whose examples these are)."""

from __future__ import annotations

import pytest

from server.lib.evm.evm_addresses import BadChainAddress, checksummed, parse_address, shortened

WRITTEN_RIGHT = [
    "0x52908400098527886E0F7030069857D2E4169EE7",
    "0x8617E340B3D01FA5F11F306F4090FD50E238070D",
    "0xde709f2102306220921060314715629080e2fb77",
    "0x27b1fdb04752bbc536007a920d24acb045561c26",
    "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
    "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359",
    "0xdbF03B407c01E7cD3CBea99509d93f8DDDC8C6FB",
    "0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb",
]


@pytest.mark.parametrize("address", WRITTEN_RIGHT)
def test_an_address_gets_the_checksum_that_is_published_for_it(address: str) -> None:
    assert checksummed(address.lower()) == address
    assert parse_address(address) == address
    assert parse_address(address.lower()) == address
    assert parse_address("0x" + address[2:].upper()) == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0x",
        WRITTEN_RIGHT[0][2:],
        WRITTEN_RIGHT[0] + "0",
        WRITTEN_RIGHT[0][:-1],
        "0X" + WRITTEN_RIGHT[0][2:],
        " " + WRITTEN_RIGHT[0],
        WRITTEN_RIGHT[0] + "\n",
        "0x" + "g" * 40,
        "0x" + "٠" * 40,
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(BadChainAddress):
        parse_address(text)


def test_a_letter_in_the_wrong_case_is_a_typing_error() -> None:
    with pytest.raises(BadChainAddress, match="mistyped"):
        parse_address("0x5AAeb6053F3E94C9b9A09f33669435E7Ef1BeAed")


def test_both_ends_of_an_address_are_shown_to_people() -> None:
    assert shortened(WRITTEN_RIGHT[4]) == "0x5aAe…eAed"
