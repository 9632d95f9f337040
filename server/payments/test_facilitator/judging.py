"""Whether a cheque is good, but for what the coins know of it: its balance and whether its nonce was used (coins.py).

The checks, their order and the words for them are the reference facilitator's for `exact` with EIP-3009 (x402 §5.1). Signatures of contracts
are not known here, nor is Permit2.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from server.lib.evm.eip712 import TokenDomain, TransferWithAuthorization, transfer_digest
from server.lib.evm.payment_networks import Asset, Network
from server.lib.evm.secp256k1 import BadChainSignature, recover
from server.payments.test_facilitator.cheques import Cheque
from server.payments.test_facilitator.coins import Coins

# A transaction takes a few seconds to get into a block.
MARGIN_SECONDS: Final = 6

UNSUPPORTED_SCHEME: Final = "unsupported_scheme"
NETWORK_MISMATCH: Final = "network_mismatch"
INVALID_NETWORK: Final = "invalid_network"
MISSING_DOMAIN: Final = "missing_eip712_domain"
NO_TOKEN: Final = "asset_not_deployed_contract"
WRONG_NAME: Final = "invalid_exact_evm_token_name_mismatch"
WRONG_VERSION: Final = "invalid_exact_evm_token_version_mismatch"
WRONG_RECIPIENT: Final = "invalid_exact_evm_payload_recipient_mismatch"
WRONG_VALUE: Final = "invalid_exact_evm_payload_authorization_value_mismatch"
TOO_LATE: Final = "invalid_exact_evm_payload_authorization_valid_before"
TOO_EARLY: Final = "invalid_exact_evm_payload_authorization_valid_after"
BAD_SIGNATURE: Final = "invalid_exact_evm_payload_signature"

# What the token's contract takes: its ECDSA library refuses the short forms 0 and 1.
_V: Final = (27, 28)


def network_of(coins: Coins, cheque: Cheque) -> tuple[Network, Asset] | None:
    """The network that the payment is for, if there are coins on it. Version 1 has names for networks, version 2 CAIP-2 ids."""
    for network, asset in coins.networks:
        name = network.v1_name if cheque.x402_version == 1 else network.caip2
        if name and cheque.asked_network == name:
            return network, asset
    return None


def fault(coins: Coins, cheque: Cheque, now: int) -> str:
    """The reason for refusing it, or an empty text."""
    if cheque.scheme != "exact" or cheque.asked_scheme != "exact":
        return UNSUPPORTED_SCHEME
    if cheque.network != cheque.asked_network:
        return NETWORK_MISMATCH
    found = network_of(coins, cheque)
    if found is None:
        return INVALID_NETWORK
    network, _ = found
    if cheque.domain_name is None or cheque.domain_version is None:
        return MISSING_DOMAIN
    if cheque.to.lower() != cheque.pay_to.lower():
        return WRONG_RECIPIENT
    if cheque.value != cheque.amount:
        return WRONG_VALUE
    if cheque.valid_before < now + MARGIN_SECONDS:
        return TOO_LATE
    if cheque.valid_after > now:
        return TOO_EARLY
    token = coins.token(network.caip2, cheque.asset)
    if token is None:
        return NO_TOKEN
    if cheque.domain_name != token.name:
        return WRONG_NAME
    if cheque.domain_version != token.version:
        return WRONG_VERSION
    return "" if signed_by_payer(cheque, network, token) else BAD_SIGNATURE


# What was verified is settled a moment later, and to recover a signer takes some milliseconds.
@lru_cache(maxsize=1024)
def signed_by_payer(cheque: Cheque, network: Network, token: Asset) -> bool:
    if cheque.signature[-1] not in _V:
        return False
    domain = TokenDomain(
        name=token.name, version=token.version, chain_id=network.chain_id, contract=token.address
    )
    transfer = TransferWithAuthorization(
        # In one case: a checksum that is wrong changes nothing of what was signed.
        from_=cheque.payer.lower(),
        to=cheque.to.lower(),
        value=cheque.value,
        valid_after=cheque.valid_after,
        valid_before=cheque.valid_before,
        nonce=cheque.nonce,
    )
    try:
        signer = recover(transfer_digest(domain, transfer), cheque.signature)
    except BadChainSignature:
        return False
    return signer.lower() == cheque.payer.lower()
