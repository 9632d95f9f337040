"""Signatures: the very bytes that eth-account 0.14 makes, and nothing taken for one that a chain would refuse."""

from __future__ import annotations

import copy
import pickle

import pytest

from server.lib.evm.eip712 import (
    TokenDomain,
    TransferWithAuthorization,
    domain_separator,
    transfer_digest,
)
from server.lib.evm.secp256k1 import BadChainSignature, BadPrivateKey, N, P, PrivateKey, recover

# The first two keys of every development chain: known to everybody.
ONE = PrivateKey(bytes.fromhex("ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"))
TWO = PrivateKey(bytes.fromhex("59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d"))
TEST_USDC = TokenDomain(
    name="USDC", version="2", chain_id=84532, contract="0x036CbD53842c5426634e7929541eC2318f3dCF7e"
)
USDC = TokenDomain(
    name="USD Coin", version="2", chain_id=8453, contract="0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
)
SMALL = TransferWithAuthorization(
    from_="0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266",
    to="0x70997970C51812dc3A010C7d01b50e0d17dc79C8",
    value=20_000,
    valid_after=0,
    valid_before=1_790_000_000,
    nonce=bytes(range(32)),
)
LARGE = TransferWithAuthorization(
    from_="0x70997970C51812dc3A010C7d01b50e0d17dc79C8",
    to="0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266",
    value=10**12,
    valid_after=1_789_999_400,
    valid_before=1_790_000_300,
    nonce=b"\xff" * 32,
)
G = 0x79BE667EF9DCBBAC55A06295CE870B07029BFCDB2DCE28D959F2815B16F81798


def written(r: int, s: int, v: int = 27) -> bytes:
    return r.to_bytes(32, "big") + s.to_bytes(32, "big") + bytes([v])


def digest_of(number: int) -> bytes:
    return number.to_bytes(32, "big")


def test_a_key_has_the_address_that_is_known_for_it() -> None:
    assert ONE.address == "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"
    assert TWO.address == "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"


def test_the_domain_of_usdc_is_the_one_that_its_contract_publishes() -> None:
    # DOMAIN_SEPARATOR() of the contracts on Base Sepolia and Base.
    assert (
        domain_separator(TEST_USDC).hex()
        == "71f17a3b2ff373b803d70a5a07c046c1a2bc8e89c09ef722fcb047abe94c9818"
    )
    assert domain_separator(USDC).hex() == "02fa7265e7c5d81118673727957699e4d68f74cd74b7db77da710fe8a2c7834f"


@pytest.mark.parametrize(
    ("key", "domain", "transfer", "digest", "signature"),
    [
        (
            ONE,
            TEST_USDC,
            SMALL,
            "e1c72e203ad73bac8ca8df8621f20b417b1d090df025227aacf9d20fcf0d5dc4",
            "c6da09db09809911480efb505202dd70b876f939cdb44c80a2fddce33c586742"
            "2f041169e5e1996a07a607de7a4bdd92daab1b149fe13735908f36b23b9e09711b",
        ),
        (
            TWO,
            USDC,
            LARGE,
            "79f90a51440c2d01b19b565002ecd4c47049a4b9c89f8a4520e4ce11b9be63d6",
            "ef4262021a6fa8329038464ec0c2a8ac55b8673679a39d8fbfabfdadb9c70e67"
            "44c0f46be62e55785375870089a9cbdfdda7eba3c4fce60b2e22634ccdd1aa261b",
        ),
    ],
    ids=["test-money", "money"],
)
def test_an_authorization_is_signed_as_eth_account_signs_it(
    key: PrivateKey, domain: TokenDomain, transfer: TransferWithAuthorization, digest: str, signature: str
) -> None:
    found = transfer_digest(domain, transfer)
    assert found.hex() == digest
    assert key.sign(found).hex() == signature
    assert recover(found, bytes.fromhex(signature)) == key.address == transfer.from_


def test_the_payer_of_the_example_in_the_x402_specification_is_found() -> None:
    # Version 2, §5.2.1.
    transfer = TransferWithAuthorization(
        from_="0x857b06519E91e3A54538791bDbb0E22373e36b66",
        to="0x209693Bc6afc0C5328bA36FaF03C514EF312287C",
        value=10_000,
        valid_after=1_740_672_089,
        valid_before=1_740_672_154,
        nonce=bytes.fromhex("f3746613c2d920b5fdabc0856f2aeb2d4f88ee6037b8cc5d04a71a4462f13480"),
    )
    signature = bytes.fromhex(
        "2d6a7588d6acca505cbf0d9a4a227e0c52c6c34008c8e8986a12832597641736"
        "08a2ce6496642e377d6da8dbbf5836e9bd15092f9ecab05ded3d6293af148b571c"
    )
    assert recover(transfer_digest(TEST_USDC, transfer), signature) == transfer.from_


def test_whoever_signed_is_found_again_with_either_way_of_writing_the_last_byte() -> None:
    seen: set[int] = set()
    for number in range(12):
        key, digest = PrivateKey.generate(), digest_of(number)
        signature = key.sign(digest)
        seen.add(signature[64])
        assert int.from_bytes(signature[32:64], "big") <= N // 2
        assert recover(digest, signature) == key.address
        assert recover(digest, signature[:64] + bytes([signature[64] - 27])) == key.address
        assert recover(digest_of(number + 1), signature) != key.address
    assert seen <= {27, 28}


def test_the_other_form_of_a_signature_is_refused() -> None:
    digest = digest_of(7)
    signature = ONE.sign(digest)
    r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:64], "big")
    with pytest.raises(BadChainSignature, match="higher"):
        recover(digest, written(r, N - s, 55 - signature[64]))


@pytest.mark.parametrize(
    "signature",
    [
        b"",
        bytes(65),
        ONE.sign(digest_of(1))[:64],
        ONE.sign(digest_of(1)) + b"\0",
        written(0, 1),
        written(N, 1),
        written(P, 1),
        written(2**256 - 1, 1),
        written(G, 0),
        written(G, N),
        written(G, N // 2 + 1),
        *(written(G, 1, v) for v in (2, 3, 26, 29, 30, 255)),
        written(5, 1),  # no point has this x
    ],
    ids=lambda signature: signature.hex()[-6:],
)
def test_what_no_chain_accepts_is_no_signature(signature: bytes) -> None:
    with pytest.raises(BadChainSignature):
        recover(digest_of(1), signature)


def test_a_signature_that_leads_to_the_point_at_infinity_is_nobodys() -> None:
    # R = G and e = s: s·R - e·G is nothing.
    with pytest.raises(BadChainSignature, match="nobody"):
        recover(digest_of(5), written(G, 5))


def test_points_that_are_equal_or_opposite_are_added_all_the_same() -> None:
    # R = G, so that Q = (s - e)/r·G; with the other last byte R = -G, and Q = -(s + e)/r·G.
    for s, e in ((5, 9), (9, 5)):
        for v, number in ((27, s - e), (28, -(s + e))):
            secret = number * pow(G, -1, N) % N
            assert recover(digest_of(e), written(G, s, v)) == PrivateKey(digest_of(secret)).address


def test_a_number_outside_the_range_is_no_key_and_is_not_repeated() -> None:
    for secret in (bytes(32), digest_of(N), b"\xff" * 32, b"\x01" * 31, b"\x01" * 33, b""):
        with pytest.raises(BadPrivateKey) as caught:
            PrivateKey(secret)
        assert secret.hex()[:8] not in str(caught.value) or not secret


def test_a_key_shows_itself_to_nobody() -> None:
    shown = f"{ONE!r} {ONE} {ONE.__dict__}"
    assert "ac0974be" not in shown.lower()
    assert ONE.address in repr(ONE)
    with pytest.raises(TypeError):
        pickle.dumps(ONE)
    with pytest.raises(TypeError):
        copy.deepcopy(ONE)


def test_what_does_not_fit_into_the_typed_data_is_refused() -> None:
    def changed(**fields: object) -> TransferWithAuthorization:
        given = {name: getattr(SMALL, name) for name in TransferWithAuthorization.__dataclass_fields__}
        return TransferWithAuthorization(**(given | fields))  # type: ignore[arg-type]

    for fields in (
        {"value": -1},
        {"value": 2**256},
        {"valid_before": 2**256},
        {"nonce": b"\0" * 31},
        {"to": "0x00"},
        {"from_": "0x5AAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"},
    ):
        with pytest.raises(ValueError):
            transfer_digest(TEST_USDC, changed(**fields))
