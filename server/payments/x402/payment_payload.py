"""A payment as a client brings it: read, matched with what was asked for, its time looked at (x402 v2 §5.2, v1 §5; exact on EVM).

A payment is a signed authorization to move a token (EIP-3009): whoever has it may carry it out, once. Whether its signature and its
balance are good is the facilitator's to say, whether it was used here before the till's. A payment that is not taken is refused with a
code and a sentence, and nothing else is ever raised, whatever came.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from server.lib.evm.payment_networks import evm_network, find_network
from server.lib.money.amounts import BadAmount, parse_atomic
from server.payments.x402.envelopes import UnreadableEnvelope, open_envelope, without_nulls
from server.payments.x402.payment_identifier import BadIdentifier, read_identifier
from server.payments.x402.requirements import EXACT, V1, V2, Requirements

# A signature of a key has 65 bytes; a contract's may be longer.
SIGNATURE_BYTES: Final = 4096
# A row is kept for as long as its authorization could be carried out. Clients sign for minutes.
LONGEST_VALID_SECONDS: Final = 24 * 3600
# What facilitators want to be left when they are asked.
MARGIN_SECONDS: Final = 6

_ADDRESS: Final = re.compile(r"0x[0-9a-fA-F]{40}")
_NONCE: Final = re.compile(r"0x[0-9a-fA-F]{64}")
_SIGNATURE: Final = re.compile(rf"0x(?:[0-9a-fA-F]{{2}}){{65,{SIGNATURE_BYTES}}}")
_NAME: Final = re.compile(r"[A-Za-z0-9:._-]{1,64}")


class BadPayment(Exception):
    """It is not taken. `sentence` is for whoever pays, and holds nothing of the payment's that was not checked."""

    def __init__(self, reason_code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.reason_code = reason_code
        self.sentence = sentence


class Authorization(msgspec.Struct, frozen=True, kw_only=True):
    """Addresses and nonce in small letters. Times in seconds since 1970: valid from the second after `valid_after` until before
    `valid_before`."""

    from_: str
    to: str
    value: int
    valid_after: int
    valid_before: int
    nonce: str


class Payment(msgspec.Struct, frozen=True, kw_only=True):
    version: int  # 1 or 2
    accepted: Mapping[str, Any] | None  # which offer the client says it takes; version 1 does not say
    scheme: str
    network: str  # CAIP-2, in version 1 as well
    authorization: Authorization
    signature: str
    resource_url: str | None
    identifier: str | None
    forward: Mapping[str, Any]  # what a facilitator is sent: what was read here, and nothing besides

    @property
    def proof_hash(self) -> str:
        """SHA-256 of what only the payer, and whom it showed the payment to, can know."""
        a = self.authorization
        fields = (
            self.network,
            a.from_,
            a.to,
            a.value,
            a.valid_after,
            a.valid_before,
            a.nonce,
            self.signature,
        )
        return hashlib.sha256("|".join(map(str, fields)).encode("ascii")).hexdigest()

    def __repr__(self) -> str:  # an authorization with its signature is a cheque to bearer
        return f"<Payment of {self.authorization.value} on {self.network} by {self.authorization.from_}>"


def read_payment(value: object) -> Payment:
    """From an object, JSON, or JSON in base64. Raises `BadPayment`."""
    try:
        found = without_nulls(open_envelope(value))
    except UnreadableEnvelope as problem:
        raise _malformed(f"The payment {problem}.") from None
    version = found.get("x402Version")
    if type(version) is not int or version not in (V1, V2):
        raise BadPayment("invalid_x402_version", "The payment must say x402Version 2, or 1.")
    _unambiguous(found, "payment")
    accepted = _object(found, "accepted", "payment") if version == V2 else None
    stated = found if accepted is None else accepted
    if accepted is not None:
        _unambiguous(accepted, "accepted")
    scheme = _scheme(stated)
    network = _network(stated, version)
    payload = _payload(found, stated)
    authorization = _authorization(_object(payload, "authorization", "payload"))
    signature = payload.get("signature")
    if not isinstance(signature, str) or not _SIGNATURE.fullmatch(signature):
        raise BadPayment(
            "invalid_exact_evm_payload_signature",
            'The "signature" of the payment must be 0x and at least 65 bytes in hex.',
        )
    signature = signature.lower()
    carried = {"signature": signature, "authorization": _as_json(authorization)}
    if accepted is None:
        forward = {"x402Version": V1, "scheme": scheme, "network": stated["network"], "payload": carried}
        resource_url, identifier = None, None
    else:
        forward = {"x402Version": V2, "accepted": accepted, "payload": carried}
        resource_url, identifier = _echoes(found, forward)
    return Payment(
        version=version,
        accepted=accepted,
        scheme=scheme,
        network=network,
        authorization=authorization,
        signature=signature,
        resource_url=resource_url,
        identifier=identifier,
        forward=forward,
    )


def match(payment: Payment, offered: Sequence[Requirements], resources: Collection[str]) -> Requirements:
    """Which of our own offers this is a payment for. `resources` are the addresses that what is asked for goes by here.

    Raises `BadPayment`, which says what the closest offer differs in."""
    if payment.resource_url is not None and payment.resource_url not in resources:
        raise BadPayment("invalid_resource", "The payment was made for something else: its resource differs.")
    left = [each for each in offered if each.scheme == payment.scheme]
    if not left:
        raise BadPayment("unsupported_scheme", "Nothing here is paid for in that scheme.")
    left = [each for each in left if each.network == payment.network]
    if not left:
        raise BadPayment(
            "invalid_network", "This is not paid for on that network: take one of those offered."
        )
    accepted = payment.accepted
    if accepted is not None:
        left = _as_accepted(accepted, left)
    authorization = payment.authorization
    left = [each for each in left if each.pay_to.lower() == authorization.to]
    if not left:
        raise BadPayment(
            "invalid_exact_evm_payload_recipient_mismatch",
            "The payment goes to another address than the one that is to be paid.",
        )
    left = [each for each in left if parse_atomic(each.amount) == authorization.value]
    if not left:
        raise BadPayment(
            "invalid_exact_evm_payload_authorization_value_mismatch",
            "The payment is for another amount than the price, which must be met exactly.",
        )
    return left[0]


def check_window(payment: Payment, now_seconds: int, needed_seconds: int) -> None:
    """Whether it can still be carried out when what is paid for has been done; to be asked before anything is kept of it.

    Raises `BadPayment`."""
    authorization = payment.authorization
    left = authorization.valid_before - now_seconds
    if authorization.valid_after > now_seconds:
        raise BadPayment(
            "invalid_exact_evm_payload_authorization_valid_after", "The payment is not valid yet."
        )
    if left <= 0:
        raise BadPayment(
            "invalid_exact_evm_payload_authorization_valid_before", "The payment is no longer valid."
        )
    if left < needed_seconds + MARGIN_SECONDS:
        raise BadPayment(
            "invalid_exact_evm_payload_authorization_valid_before",
            f"The payment is valid for {left} more seconds, and this may take {needed_seconds + MARGIN_SECONDS}: "
            "sign one that is valid for longer.",
        )
    if left > LONGEST_VALID_SECONDS:
        raise BadPayment(
            "invalid_exact_evm_payload_authorization_valid_before",
            f"The payment would be valid for more than {LONGEST_VALID_SECONDS // 3600} hours: "
            "sign one that is valid for a shorter time.",
        )


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _malformed(sentence: str) -> BadPayment:
    return BadPayment("invalid_payload", sentence)


def _object(parent: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    found = parent.get(key)
    if not isinstance(found, dict):
        raise _malformed(f'The {where} has no object "{key}".')
    return cast("dict[str, Any]", found)


def _unambiguous(found: Mapping[str, Any], where: str) -> None:
    """Some programs read `Value` and `value` as one and the same."""
    if len({key.lower().replace("_", "").replace("-", "") for key in found}) != len(found):
        raise _malformed(f"The {where} says something twice, in two spellings.")


def _scheme(stated: Mapping[str, Any]) -> str:
    scheme = stated.get("scheme")
    if scheme == EXACT:
        return EXACT
    if isinstance(scheme, str) and _NAME.fullmatch(scheme):
        raise BadPayment("unsupported_scheme", f'The scheme "{scheme}" is not taken here: "{EXACT}" is.')
    raise BadPayment("invalid_scheme", "The payment does not say in which scheme it is made.")


def _network(stated: Mapping[str, Any], version: int) -> str:
    network = stated.get("network")
    if not isinstance(network, str) or not _NAME.fullmatch(network):
        raise BadPayment("invalid_network", "The payment does not say on which network it is made.")
    if version == V1:
        known = find_network(network)
        if known is not None and network == known.v1_name:
            return known.caip2
        raise BadPayment("invalid_network", f'The network "{network}" is not known here.')
    if evm_network(network) is None:
        what = "Payments on Solana are" if network.startswith("solana") else f'The network "{network}" is'
        raise BadPayment("invalid_network", f"{what} not taken here: only those whose id begins with eip155.")
    return network


def _payload(found: Mapping[str, Any], stated: Mapping[str, Any]) -> dict[str, Any]:
    payload = _object(found, "payload", "payment")
    _unambiguous(payload, "payload")
    extra = stated.get("extra")
    method = cast("dict[str, Any]", extra).get("assetTransferMethod") if isinstance(extra, dict) else None
    named = {"permit2Authorization": "permit2", "permissionContext": "erc7710", "transaction": "svm"}
    other = next((name for key, name in named.items() if key in payload), None)
    if other is None and method not in (None, "eip3009"):
        other = method if isinstance(method, str) and _NAME.fullmatch(method) else "another"
    if other is not None:
        raise BadPayment(
            "unsupported_scheme",
            f'Payments by the method "{other}" are not taken here: by "eip3009" they are.',
        )
    return payload


def _authorization(found: dict[str, Any]) -> Authorization:
    _unambiguous(found, "authorization")
    return Authorization(
        from_=_hex(found, "from", _ADDRESS, "an address"),
        to=_hex(found, "to", _ADDRESS, "an address"),
        value=_number(found, "value"),
        valid_after=_number(found, "validAfter"),
        valid_before=_number(found, "validBefore"),
        nonce=_hex(found, "nonce", _NONCE, "32 bytes in hex"),
    )


def _hex(found: Mapping[str, Any], key: str, form: re.Pattern[str], what: str) -> str:
    text = found.get(key)
    if not isinstance(text, str) or not form.fullmatch(text):
        raise _malformed(f'The "{key}" of the authorization must be 0x and {what}.')
    return text.lower()


def _number(found: Mapping[str, Any], key: str) -> int:
    text = found.get(key)
    if isinstance(text, str):
        try:
            return parse_atomic(text)
        except BadAmount:
            pass
    raise _malformed(f'The "{key}" of the authorization must be a whole number, written as a text of digits.')


def _as_json(authorization: Authorization) -> dict[str, str]:
    return {
        "from": authorization.from_,
        "to": authorization.to,
        "value": str(authorization.value),
        "validAfter": str(authorization.valid_after),
        "validBefore": str(authorization.valid_before),
        "nonce": authorization.nonce,
    }


def _echoes(found: Mapping[str, Any], forward: dict[str, Any]) -> tuple[str | None, str | None]:
    """The address of the resource and the identifier of the purchase, where there are any; both are sent on as they came."""
    resource_url, identifier = None, None
    if "resource" in found:
        resource = _object(found, "resource", "payment")
        _unambiguous(resource, "resource")
        resource_url = resource.get("url")
        if not isinstance(resource_url, str):
            raise _malformed('The "resource" of the payment has no "url".')
        forward["resource"] = resource
    if "extensions" in found:
        extensions = _object(found, "extensions", "payment")
        try:
            identifier = read_identifier(extensions)
        except BadIdentifier as problem:
            raise BadPayment("invalid_payment_identifier", f"In the payment, {problem}.") from None
        if extensions:
            forward["extensions"] = extensions
    return resource_url, identifier


# ── matching ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _as_accepted(accepted: Mapping[str, Any], offered: list[Requirements]) -> list[Requirements]:
    """Those that the client says it accepted. Raises `BadPayment` with the first thing in which none agrees."""
    left = offered
    for reason_code, key, agrees in _CHECKS:
        left = [each for each in left if agrees(accepted.get(key), each)]
        if not left:
            raise BadPayment(
                reason_code,
                f'What the payment accepts was not offered: its "{key}" differs. Ask for the price again.',
            )
    return left


def _same_address(theirs: object, ours: str) -> bool:
    return isinstance(theirs, str) and theirs.lower() == ours.lower()


def _same_value(theirs: object, ours: object) -> bool:
    """As JSON: 1 is neither true nor 1.0."""
    if isinstance(ours, Mapping):
        keys = cast("Mapping[str, object]", ours)
        return (
            isinstance(theirs, Mapping)
            and len(cast("Mapping[str, object]", theirs)) == len(keys)
            and _holds(cast("object", theirs), keys)
        )
    if isinstance(ours, list | tuple):
        items = cast("Sequence[object]", ours)
        return (
            isinstance(theirs, list)
            and len(cast("list[object]", theirs)) == len(items)
            and all(map(_same_value, cast("list[object]", theirs), items))
        )
    return type(theirs) is type(ours) and theirs == ours


def _holds(theirs: object, ours: Mapping[str, object]) -> bool:
    """Whether all that we wrote came back. A client may add to it."""
    if not isinstance(theirs, Mapping):
        return not ours and theirs is None
    found = cast("Mapping[str, object]", theirs)
    return all(key in found and _same_value(found[key], value) for key, value in ours.items())


_CHECKS: Final[tuple[tuple[str, str, Callable[[object, Requirements], bool]], ...]] = (
    ("asset_mismatch", "asset", lambda theirs, ours: _same_address(theirs, ours.asset)),
    ("recipient_mismatch", "payTo", lambda theirs, ours: _same_address(theirs, ours.pay_to)),
    ("amount_mismatch", "amount", lambda theirs, ours: theirs == ours.amount),
    (
        "invalid_payment_requirements",
        "maxTimeoutSeconds",
        lambda theirs, ours: _same_value(theirs, ours.max_timeout_seconds),
    ),
    ("invalid_payment_requirements", "extra", lambda theirs, ours: _holds(theirs, ours.extra)),
)
