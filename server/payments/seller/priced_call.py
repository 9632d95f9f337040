"""A call as the till sees it, and what may become of it at the till: values only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from server.mcp.result_encoding import ToolResult
from server.payments.seller.charge_rows import Charge
from server.payments.seller.offers import Offer
from server.payments.x402.payment_payload import Payment

# How often somebody who paid beforehand may try again what failed.
RETRIES: Final = 3


class PricedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a priced tool. `caller` is the principal's key; it is empty where nobody knows who calls until they have paid."""

    server: str
    tool: str
    arguments: Mapping[str, Any]
    fingerprint: str  # of server, tool and arguments
    caller: str
    call_id: str
    deadline_seconds: float
    wallet: str | None = None
    client_id: str | None = None
    grant_id: str | None = None
    address: str = ""  # where the caller is
    depends: bool = False  # what it costs depends on its arguments, so a price that is named is quoted
    idempotent: bool = False  # it does no harm to run it again where nobody knows how far it came
    patient: bool = False  # a task: it can wait for a settlement as long as that takes


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """The payment, and the key of its own for this call, that a request brings to the till."""

    payment: Payment | None = None
    key: str | None = None


NOTHING_SHOWN: Final = Shown()


class Started(msgspec.Struct, kw_only=True):
    """A charge that was begun: the tool may run. Who has it ends it, by `Till.finish` or `Till.release`."""

    charge: Charge
    call: PricedCall
    offer: Offer
    paid: bool = False  # nothing more is to be paid: it was paid beforehand
    settlement: Mapping[str, Any] | None = None  # what the protocol says of its payment
    seconds: float | None = None  # the tool has so long; None: as long as ever

    @property
    def id(self) -> str:
        return self.charge.id

    @property
    def withholds(self) -> bool:
        """Return whether nothing of the answer is given before the call is done: who leaves before that has paid, or spent, nothing."""
        return not self.paid and self.charge.how != "pass"

    @property
    def keeps_ms(self) -> int:
        """The time for which a fully given answer is given again to the same call."""
        return self.offer.dedupe_seconds * 1000


class Earlier(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of the same call that was made before."""

    charge_id: str
    answer: ToolResult
    keyed: bool = False
    keeps_ms: int = 0  # as of `Started`
    on_chain: bool = False  # paid for by itself
    meta: Mapping[str, Any] = {}


def earlier_of(charge: Charge, offer: Offer, answer: ToolResult, meta: Mapping[str, Any]) -> Earlier:
    """Return an answer as the same call gets it again."""
    return Earlier(
        charge_id=charge.id,
        answer=answer,
        keyed=charge.keyed,
        keeps_ms=offer.dedupe_seconds * 1000,
        on_chain=charge.payment_id is not None,
        meta=meta,
    )


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """A refusal to run the tool, or to give its answer. `asks`: what is to be paid goes with it."""

    reason: str  # a word for programs
    text: str  # for whoever reads: a person, or a model
    brief: str = ""  # the beginning of `text`, that a person needs, for where all of it is said besides
    asks: bool = False
    retry_after: int | None = None  # seconds
    status: int = 402  # over plain HTTP
    settlement: Mapping[str, Any] | None = None
    facts: Mapping[str, Any] = {}
    resumes: str | None = None  # the charge whose call may be made again once its caller was told this


class Unpaid(msgspec.Struct, frozen=True, kw_only=True):
    """A call that was refused at the till, for wires that say so in their own way. `challenge`: what is to be paid, where paying would
    help, in version 2 of the protocol and in version 1, which cannot say all."""

    refusal: Refusal
    challenge: Mapping[str, Any] | None = None
    challenge_v1: Mapping[str, Any] | None = None


class PaidInVain(msgspec.Struct, frozen=True, kw_only=True):
    """A call that was paid for beforehand and has failed: how often it may be made again for nothing, and what the protocol says of its
    payment."""

    tries: int
    settlement: Mapping[str, Any] | None = None


class HeaderSettlement(msgspec.Struct, frozen=True, kw_only=True):
    """The settlement of a payment that came in a header, for an answer that has headers. `version`: of the payment."""

    settlement: Mapping[str, Any]
    version: int


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that may be given: it is paid for. `meta` goes with it."""

    charge_id: str
    meta: Mapping[str, Any]
