"""What is signed to let somebody fetch money: EIP-712 typed data, of the one kind that is needed here (EIP-3009)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from server.lib.evm.evm_addresses import parse_address
from server.lib.evm.keccak import keccak256

_DOMAIN: Final = keccak256(
    b"EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"
)
_TRANSFER: Final = keccak256(
    b"TransferWithAuthorization(address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce)"
)
# EIP-191, version 0x01: a signature of this can be mistaken for no transaction.
_PREFIX: Final = b"\x19\x01"
NONCE_BYTES: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenDomain:
    """The token that a signature is for, as the token itself hashes it: name and version to the letter."""

    name: str
    version: str
    chain_id: int
    contract: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferWithAuthorization:
    """EIP-3009: whoever has this, signed, may have the token move `value` from `from_` to `to`, once, between the two times."""

    from_: str
    to: str
    value: int
    valid_after: int
    valid_before: int
    nonce: bytes


def domain_separator(domain: TokenDomain) -> bytes:
    return keccak256(
        _DOMAIN
        + keccak256(domain.name.encode())
        + keccak256(domain.version.encode())
        + _number(domain.chain_id)
        + _address(domain.contract)
    )


def transfer_digest(domain: TokenDomain, transfer: TransferWithAuthorization) -> bytes:
    """What is to be signed. Raises `BadChainAddress`, and `ValueError` for a number or nonce that does not fit."""
    if len(transfer.nonce) != NONCE_BYTES:
        raise ValueError("a nonce has 32 bytes")
    struct = keccak256(
        _TRANSFER
        + _address(transfer.from_)
        + _address(transfer.to)
        + _number(transfer.value)
        + _number(transfer.valid_after)
        + _number(transfer.valid_before)
        + transfer.nonce
    )
    return keccak256(_PREFIX + domain_separator(domain) + struct)


def _number(value: int) -> bytes:
    if not 0 <= value < 2**256:
        raise ValueError("a number does not fit into 256 bits")
    return value.to_bytes(32, "big")


def _address(text: str) -> bytes:
    return bytes(12) + bytes.fromhex(parse_address(text)[2:])
