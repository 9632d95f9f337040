"""Reasons why a facilitator does not take a payment: from the words of many implementations to our own.

A facilitator spells its reason in its own way. That text is looked up here, kept short for the operator, and never shown to a payer, who
is told one of these sentences instead."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

import msgspec

SHOWN_CHARACTERS: Final = 200


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """The meaning of a refusal, in our words."""

    code: str
    sentence: str
    # Said of a payment that was to be settled for the first time: no money has moved, and by this try none will.
    certain: bool = False
    # Says something of the facilitator and nothing of the payment: another one may know better.
    elsewhere: bool = False


OTHER: Final = Reason(code="payment_not_accepted", sentence="The facilitator does not accept the payment.")
USED: Final = "payment_already_used"
PENDING: Final = "settlement_pending"
# Said of a payment that was to be settled: this try, or one before, may have carried it out, and that may be why.
PERHAPS_CARRIED_OUT: Final = frozenset({"insufficient_funds", "transaction_would_fail", "transaction_failed"})

_TABLE: Final = (
    (Reason(code="invalid_signature", sentence="The signature of the payment does not fit what it authorizes.", certain=True),
     "invalid_exact_evm_payload_signature", "invalid_exact_evm_signature", "invalid_signature",
     "invalid_exact_evm_failed_to_verify_signature", "invalid_exact_evm_token_name_mismatch",
     "invalid_exact_evm_token_version_mismatch"),
    (Reason(code="insufficient_funds", sentence="The payer has less of the token than the payment is for.", certain=True),
     "insufficient_funds", "insufficient_balance", "invalid_exact_evm_insufficient_balance",
     "invalid_exact_evm_insufficient_funds"),
    (Reason(code="payment_expired", sentence="The payment is no longer valid, or not for long enough.", certain=True),
     "invalid_exact_evm_payload_authorization_valid_before", "payment_expired", "expired"),
    (Reason(code="payment_not_yet_valid", sentence="The payment is not valid yet.", certain=True),
     "invalid_exact_evm_payload_authorization_valid_after"),
    (Reason(code="amount_mismatch", certain=True,
            sentence="The payment is for another amount than the price, which must be met exactly."),
     "invalid_exact_evm_payload_authorization_value_mismatch", "invalid_exact_evm_payload_authorization_value",
     "invalid_exact_evm_payload_amount_mismatch"),
    (Reason(code="recipient_mismatch", certain=True,
            sentence="The payment goes to another address than the one that is to be paid."),
     "invalid_exact_evm_payload_recipient_mismatch", "invalid_exact_evm_recipient_mismatch"),
    (Reason(code="wallet_not_supported", certain=True,
            sentence="The payer's wallet is a contract that this facilitator does not take payments from."),
     "invalid_exact_evm_payload_undeployed_smart_wallet", "smart_wallet_deployment_failed", "eip6492_factory_not_allowed"),
    (Reason(code="invalid_payload", sentence="The facilitator cannot read the payment.", certain=True),
     "invalid_payload", "invalid_payment", "invalid_exact_evm_payload"),
    (Reason(code=USED, sentence="This authorization was used before, or was cancelled by its owner."),
     "invalid_exact_evm_nonce_already_used", "nonce_already_used", "authorization_already_used", "authorization_is_used",
     "duplicate_settlement", "already_settled"),
    (Reason(code="transaction_would_fail",
            sentence="The payment would not go through: the balance may be too low, or the authorization used before."),
     "invalid_exact_evm_transaction_simulation_failed", "transaction_simulation_failed"),
    (Reason(code="transaction_failed", sentence="The payment did not go through on its network."),
     "transaction_failed", "invalid_transaction_state", "invalid_exact_evm_transaction_failed", "settle_exact_failed_onchain",
     "invalid_exact_evm_transfer_event_mismatch"),
    (Reason(code=PENDING, sentence="The payment is on its way, and not confirmed yet."),
     "settlement_pending", "pending", "settlement_in_progress", "confirmation_timed_out",
     "settle_exact_evm_transaction_confirmation_timed_out", "settle_exact_node_failure"),
    (Reason(code="facilitator_cannot", certain=True, elsewhere=True,
            sentence="The facilitator does not carry out payments of this kind."),
     "unsupported_scheme", "invalid_scheme", "invalid_network", "network_mismatch", "invalid_x402_version",
     "invalid_payment_requirements", "missing_eip712_domain", "asset_not_deployed_contract",
     "invalid_exact_evm_eip3009_not_supported", "invalid_exact_evm_failed_to_get_network_config",
     "invalid_exact_evm_failed_to_get_asset_info"),
    (Reason(code="facilitator_failed", sentence="The facilitator could not look at the payment just now.", elsewhere=True),
     "unexpected_verify_error", "unexpected_settle_error", "internal_error", "rate_limited"),
)  # fmt: skip

_BY_TEXT: Final = MappingProxyType({text: reason for reason, *texts in _TABLE for text in texts})


def reason_for(text: str) -> Reason:
    """Look a reason up, and never fail: one that nobody knows is `OTHER`."""
    return _BY_TEXT.get(text.strip().lower(), OTHER)


def kept(text: str) -> str:
    """Return what the operator is shown of somebody else's text: short, on one line, nothing that a terminal obeys."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: SHOWN_CHARACTERS * 4]).split())
    return line[:SHOWN_CHARACTERS]
