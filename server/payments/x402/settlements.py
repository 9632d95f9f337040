"""Answers of a facilitator to /verify and /settle, read leniently and judged strictly (x402 v2 §5.3, 5.4, §7).

Money has moved only where an answer says so of this very payment. Certainly not only where the answer says why, before anything was sent
to the network. All between is `Unknown`: the payment stays reserved, and is settled again or looked up on its network until it is known.
That a payment was refused when it was settled *again* says nothing of the first time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import msgspec

from server.lib.evm.payment_networks import find_network
from server.payments.x402.envelopes import UnreadableEnvelope, open_envelope
from server.payments.x402.facilitator_reasons import PENDING, USED, kept, reason_for
from server.payments.x402.payment_payload import Payment

ANSWER_BYTES: Final = 64 * 1024

_TRANSACTION: Final = re.compile(r"0x[0-9a-fA-F]{64}")


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    payer: str  # in small letters
    facilitator: str  # the address of the one that verified it, which is to settle it


class Rejected(msgspec.Struct, frozen=True, kw_only=True):
    """A refusal. `code` and `sentence` are ours and for the payer; `said` is the facilitator's and for the operator."""

    code: str
    sentence: str
    said: str
    certain: bool  # no money has moved; else that cannot be told from what was said


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    transaction: str
    payer: str
    network: str  # CAIP-2
    amount: str


class Unknown(msgspec.Struct, frozen=True, kw_only=True):
    """An outcome that is not known. `problem` continues a sentence about the facilitator, for the operator."""

    problem: str
    transaction: str | None = None  # one that may have moved it


class AlreadyUsed(msgspec.Struct, frozen=True, kw_only=True):
    """An authorization that can no longer be carried out. If the payment was sent before, that did it, as good as certainly. Else its
    owner cancelled it, or somebody else carried it out; its network knows which."""

    said: str
    transaction: str | None = None


SettleOutcome: TypeAlias = Settled | Rejected | Unknown | AlreadyUsed


class NoAnswer(Exception):
    """The failure to answer /verify; the text continues a sentence about the facilitator. Another one may be asked."""


def read_verified(status: int, body: bytes, payment: Payment, facilitator: str) -> Verified | Rejected:
    """Read an answer to /verify. Raises `NoAnswer`. Some facilitators give their refusals a status of their own; a yes comes with 200."""
    answer = _read(body)
    valid = answer.get("isValid") if answer is not None else None
    if answer is None or not isinstance(valid, bool) or (valid and status != 200):
        raise NoAnswer(_strange(status, answer))
    payer = payment.authorization.from_
    if valid:
        if (named := _text(answer, "payer")) and named.lower() != payer:
            raise NoAnswer("answered about another payer")
        return Verified(payer=payer, facilitator=facilitator)
    said = _said(answer, "invalidReason", "invalidMessage")
    reason = reason_for(_text(answer, "invalidReason"))
    if reason.elsewhere:
        raise NoAnswer(f"says: {said}")
    return Rejected(code=reason.code, sentence=reason.sentence, said=said, certain=True)


def read_settled(status: int, body: bytes, payment: Payment, amount: str, *, repeated: bool) -> SettleOutcome:
    """Read an answer to /settle. `repeated`: it was sent to be settled before, and what came of that is not known. No refusal is certain
    then: the balance may be too low, or the time over, because it was carried out."""
    answer = _read(body)
    if status != 200 or answer is None or not isinstance(answer.get("success"), bool):
        # Of no other status it is known what was done before it was said, whatever it says.
        return Unknown(problem=_strange(status, answer), transaction=_transaction(answer))
    transaction = _transaction(answer)
    if answer["success"]:
        return _success(answer, transaction, payment, amount)
    said = _said(answer, "errorReason", "errorMessage")
    reason = reason_for(_text(answer, "errorReason"))
    if reason.code == USED:
        return AlreadyUsed(said=said, transaction=transaction)
    if reason.code == PENDING or _text(answer, "transaction"):
        return Unknown(problem=f"says: {said}", transaction=transaction)
    if reason.elsewhere and not reason.certain:
        return Unknown(problem=f"says: {said}")
    return Rejected(
        code=reason.code, sentence=reason.sentence, said=said, certain=reason.certain and not repeated
    )


def _success(
    answer: Mapping[str, Any], transaction: str | None, payment: Payment, amount: str
) -> Settled | Unknown:
    if transaction is None:
        return Unknown(problem="says that it was settled, and names no transaction")
    if (payer := _text(answer, "payer")) and payer.lower() != payment.authorization.from_:
        return Unknown(problem="answered about another payer", transaction=transaction)
    network = _text(answer, "network")
    if network and network != payment.network:
        known = find_network(network)
        if known is None or known.caip2 != payment.network:
            return Unknown(problem="answered about another network", transaction=transaction)
    if (settled := _text(answer, "amount")) and settled != amount:
        return Unknown(problem="says that another amount was settled", transaction=transaction)
    return Settled(
        transaction=transaction,
        payer=payment.authorization.from_,
        network=payment.network,
        amount=amount,
    )


def _read(body: bytes) -> dict[str, Any] | None:
    try:
        text = body.decode("utf-8").lstrip()
        return open_envelope(text, limit=ANSWER_BYTES) if text.startswith("{") else None
    except (UnicodeDecodeError, UnreadableEnvelope):
        return None


def _strange(status: int, answer: Mapping[str, Any] | None) -> str:
    if status != 200:
        said = _texts(answer or {}, "errorReason", "invalidReason", "error", "message")
        return f"answered with status {status}" + (f": {said}" if said else "")
    return "did not answer in JSON" if answer is None else "answered with neither yes nor no"


def _said(answer: Mapping[str, Any], *keys: str) -> str:
    return _texts(answer, *keys) or "no reason"


def _texts(answer: Mapping[str, Any], *keys: str) -> str:
    return kept(": ".join(text for key in keys if (text := _text(answer, key))))


def _text(answer: Mapping[str, Any], key: str) -> str:
    found = answer.get(key)
    return found.strip() if isinstance(found, str) else ""


def _transaction(answer: Mapping[str, Any] | None) -> str | None:
    found = _text(answer, "transaction") if answer is not None else ""
    return found.lower() if _TRANSACTION.fullmatch(found) else None
