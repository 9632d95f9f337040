"""The key that pays, by its reference: for those who know of paying, and not of chains."""

from __future__ import annotations

from server.lib.evm.key_files import KeyUnusable, load_key
from server.lib.evm.secp256k1 import PrivateKey
from server.payments.buyer.spending_policy import CannotPay


def paying_key(reference: str) -> PrivateKey:
    """What `env:NAME` or `file:/path` names. Raises `CannotPay`."""
    try:
        return load_key(reference)
    except KeyUnusable as error:
        raise CannotPay(str(error), hint=error.hint) from None
