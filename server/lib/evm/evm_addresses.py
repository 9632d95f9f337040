"""Addresses of a chain: twenty bytes, written in hex whose upper case is a checksum (EIP-55)."""

from __future__ import annotations

import re
from typing import Final

from server.lib.evm.keccak import keccak256

_WRITTEN: Final = re.compile(r"0x[0-9a-fA-F]{40}")
# Nobody has its key, and tokens refuse it: money sent there is gone.
ZERO: Final = "0x" + "0" * 40


class BadChainAddress(ValueError):
    """What is written is no address; says why."""


def parse_address(text: str) -> str:
    """`text` with its checksum. In one case all through it says nothing of a checksum; in mixed case it has to be right.
    Raises `BadChainAddress`."""
    if _WRITTEN.fullmatch(text) is None:
        raise BadChainAddress("is no address: it is 0x and 40 hex digits")
    summed = checksummed(text)
    digits = text[2:]
    if digits not in (digits.lower(), digits.upper()) and text != summed:
        raise BadChainAddress("is mistyped: its upper and lower case do not fit (EIP-55)")
    return summed


def checksummed(text: str) -> str:
    """EIP-55: a letter is upper case where the hash of all digits has a nibble of eight or more."""
    digits = text[2:].lower()
    nibbles = keccak256(digits.encode("ascii")).hex()
    return "0x" + "".join(
        digit.upper() if int(nibble, 16) >= 8 else digit
        for digit, nibble in zip(digits, nibbles, strict=False)
    )


def address_of_point(x: int, y: int) -> str:
    """Of the holder of a public key: the last twenty bytes of its hash."""
    return checksummed("0x" + keccak256(x.to_bytes(32, "big") + y.to_bytes(32, "big"))[-20:].hex())


def shortened(address: str) -> str:
    """For people, who compare both ends: `0x1234…abcd`."""
    return f"{address[:6]}…{address[-4:]}"
