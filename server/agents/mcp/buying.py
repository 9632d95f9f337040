"""Calls of an upstream that charges: paid from a wallet within its limits, once for each call whatever gets lost, and told to the books.

Loaded only where `[server.agent.pay]` is written. What may be paid, and which payment is shown again, is server/payments/buyer's; this is the way of a
call between the two: it is made without payment, the upstream says what it costs, it is made again with a payment. An upstream says so in
a result, in an error, or with HTTP's status 402.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias, cast

from msgspec import Raw

from server.agents.base.backend import ToolCall
from server.client.mcp_session.session_messages import (
    PaymentAsked,
    ServerFailure,
    ServerRefusal,
    members,
)
from server.lib.evm.payment_networks import find_network, usual_asset
from server.lib.money.amounts import Micros
from server.mcp.call_failures import BackendError
from server.payments.buyer.outlays import Outlay
from server.payments.buyer.payer import PAYMENT_REQUIRED_STATUS, PaidCall, Payer
from server.payments.buyer.spending import SignedPayment
from server.payments.buyer.spending_policy import CannotPay, Dearer
from server.payments.x402.envelopes import UnreadableEnvelope, open_envelope
from server.payments.x402.in_band import find_challenge, find_challenge_in_error, find_receipt
from server.payments.x402.payment_headers import PAYMENT_REQUIRED, READ_BYTES

# Makes the call with this in its `_meta`, and these headers. Raises what calls of an upstream raise.
Send: TypeAlias = Callable[[Mapping[str, Any], Mapping[str, str]], Awaitable[Raw]]
Book: TypeAlias = Callable[[Outlay], Awaitable[None]]

_NOTHING: Final[Mapping[str, Any]] = {}
TRANSACTION_CHARACTERS: Final = 100
_NO_HEADERS: Final[Mapping[str, str]] = {}


class Buyer:
    """Of one upstream. Any number of calls at once."""

    def __init__(self, payer: Payer, place: str, book: Book, *, dearer: Callable[[], None]) -> None:
        """`place`: where it is, for the spending file. `dearer`: it asks more than it said; what it says now has to be read."""
        self._payer = payer
        self._place = place
        self._book = book
        self._dearer = dearer

    async def buy(self, call: ToolCall, theirs: str, send: Send, most: Micros | None) -> Raw:
        """The answer. `most`: it is sold on, and no more may be paid for it. Raises `BackendError` where it is not paid, and what `send`
        raises."""
        what, arguments = f"the tool {theirs}", [call.subject, call.arguments]
        paid = self._payer.call(self._place, what, arguments, most=most)
        try:
            await paid.begin()
            while True:
                raw = await _sent(paid, send)
                if raw is None:
                    continue
                result = members(raw)
                await self._tell_books(paid, call, result)
                if not await paid.again(result):
                    return raw
        except Dearer as problem:
            self._payer.tell(f"not paid: {problem}")
            self._dearer()
            raise ServerFailure("asks more for this than it said: look at the list again") from None
        except CannotPay as problem:
            raise self._unpaid(problem) from None

    async def ask(self, call: ToolCall, theirs: str, send: Send) -> Micros:
        """What the upstream wants for this call, which it is asked without a payment. Raises `BackendError`."""
        challenge: Mapping[str, Any] | None = None
        try:
            challenge = find_challenge(members(await send(_NOTHING, _NO_HEADERS)))
        except ServerRefusal as refusal:
            challenge = find_challenge_in_error({"code": refusal.code, "data": refusal.data})
        except PaymentAsked as asked:
            challenge = _asked_over_http(asked)
        if challenge is None:
            raise BackendError("the upstream does not say what this call costs")
        try:
            return self._payer.price(challenge)
        except CannotPay as problem:
            raise self._unpaid(problem) from None

    async def _tell_books(self, paid: PaidCall, call: ToolCall, result: Mapping[str, Any]) -> None:
        """Before the payment is forgotten here: after a crash between the two the same one is shown again, and booked once."""
        signed = paid.signed
        if signed is None or result.get("resultType") in ("input_required", "payment_required"):
            return
        receipt = find_receipt(result)
        taken = receipt is not None and receipt.get("success") is True
        if taken or (result.get("isError") is not True and receipt is None):
            await self._book(_outlay(signed, call, receipt))

    def _unpaid(self, problem: CannotPay) -> ServerFailure:
        """The limits are between the owner and the upstream; whoever calls us is told that there is a price."""
        self._payer.tell(f"not paid: {problem}" + (f"; {problem.hint}" if problem.hint else ""))
        return ServerFailure("wants to be paid for this, and was not; the log of the server says why")


def _asked_over_http(asked: PaymentAsked) -> Mapping[str, Any] | None:
    for text in (asked.header(PAYMENT_REQUIRED), asked.body.decode("utf-8", "replace")):
        try:
            challenge = open_envelope(text, limit=READ_BYTES) if text else {}
        except UnreadableEnvelope:
            continue
        if "accepts" in challenge:
            return challenge
    error: object = members(Raw(asked.body)).get("error")
    return find_challenge_in_error(cast("Mapping[str, Any]", error)) if isinstance(error, Mapping) else None


async def _sent(paid: PaidCall, send: Send) -> Raw | None:
    """None: it asked for money and that was signed for, so it is to be sent again. Raises `CannotPay`."""
    try:
        return await send(paid.meta, dict(paid.headers))
    except ServerRefusal as refusal:
        if not await paid.again_after_error({"code": refusal.code, "data": refusal.data}):
            raise
    except PaymentAsked as asked:
        if not await paid.again_over_http(PAYMENT_REQUIRED_STATUS, asked.header, asked.body):
            error: object = members(Raw(asked.body)).get("error")
            if not isinstance(error, Mapping) or not await paid.again_after_error(
                cast("Mapping[str, Any]", error)
            ):
                raise
    return None


def _outlay(signed: SignedPayment, call: ToolCall, receipt: Mapping[str, Any] | None) -> Outlay:
    stated: Any = signed.payment.get("accepted", signed.payment)
    network = find_network(str(stated.get("network")))
    caip2 = "" if network is None else network.caip2
    usual = None if network is None else usual_asset(caip2)
    asset: object = stated.get("asset")
    transaction: object = None if receipt is None else receipt.get("transaction")
    return Outlay(
        identifier=signed.identifier,
        amount=signed.amount,
        network=caip2,
        asset=asset if isinstance(asset, str) else "" if usual is None else usual.address,
        tool=call.tool,
        call_id=call.call_id,
        caller=call.caller,
        transaction=transaction[:TRANSACTION_CHARACTERS]
        if isinstance(transaction, str) and transaction.isascii() and transaction.isprintable()
        else "",
    )
