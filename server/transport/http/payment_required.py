"""What the till says, in the words of x402 over HTTP: which headers and which body (transports-v2/http.md, transports-v1/http.md).

Loaded where something is sold. Everything goes by values that the till made (`Unpaid`), nothing by the text of an answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from server.calls.payment_stage import facts_of
from server.lib.evm.payment_networks import find_network
from server.payments.seller.priced_call import Unpaid
from server.payments.x402.in_band import RECEIPT_KEY
from server.payments.x402.payment_headers import challenge_header, receipt_header
from server.payments.x402.requirements import V1
from server.store.idempotency.call_keys import IDEMPOTENT, REPLAYED
from server.transport.http.handler import Pairs

_encode: Final = msgspec.json.Encoder().encode


def demand_of(unpaid: Unpaid, version: int, more: Mapping[str, Any]) -> tuple[Pairs, bytes]:
    """Headers and body. `version`: of the payment that came, if one did; `more`: what the body says besides."""
    refusal = unpaid.refusal
    headers = [*challenge_pairs(unpaid)]
    if refusal.retry_after is not None:
        headers.append((b"retry-after", b"%d" % refusal.retry_after))
    if refusal.settlement is not None:
        headers += receipt_pairs(refusal.settlement, version)
    return tuple(headers), _encode(told(unpaid) | {**more})


def challenge_pairs(unpaid: Unpaid) -> Pairs:
    """The header of version 2, where there is something to be paid."""
    if unpaid.challenge is None:
        return ()
    name, value = challenge_header(unpaid.challenge)
    return ((name.encode("ascii"), value.encode("ascii")),)


def told(unpaid: Unpaid) -> dict[str, Any]:
    """The body: the challenge of version 1, which has no header for it, and the reason for programs."""
    facts = facts_of(unpaid.refusal)
    challenge = unpaid.challenge_v1 or unpaid.challenge
    if challenge is None:
        return {"error": unpaid.refusal.reason, "error_description": unpaid.refusal.text, **facts}
    return {**challenge, **facts}


def receipt_pairs(settlement: Mapping[str, Any], version: int) -> Pairs:
    if version == V1 and (network := find_network(str(settlement.get("network")))) is not None:
        settlement = {**settlement, "network": network.v1_name or network.caip2}
    name, value = receipt_header(settlement, version)
    return ((name.encode("ascii"), value.encode("ascii")),)


def paid_pairs(meta: Mapping[str, Any], version: int) -> Pairs:
    """Of an answer that had a price: the receipt of its payment, and whether it was given before."""
    paid = meta.get(RECEIPT_KEY)
    receipt = () if paid is None else receipt_pairs(paid, version)
    return (*receipt, IDEMPOTENT) if meta.get(REPLAYED) else receipt
