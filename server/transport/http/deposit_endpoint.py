"""`POST /{server}/deposit` with `{"amount": "$5"}`: the token is the wallet, and one payment fills it.

Asked without a payment it answers 402 with exactly that amount; with one, it says what is on the balance. Where whoever pays comes in
without a login, the answer holds a token, too: what was paid is then in the wallet of the address that paid, and the token opens it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from auth.values.identity_model import PrincipalKind
from auth.values.ip_networks import counted_as
from auth.values.requester import USER_AGENT_LENGTH, Requester, clean
from server.lib.money.amounts import BadAmount, Micros, parse, shown
from server.payments.seller import wallets
from server.payments.seller.deposits import Deposited, Depositor, Deposits
from server.payments.seller.priced_call import Unpaid
from server.payments.x402.payment_payload import BadPayment, read_payment
from server.store.idempotency.call_keys import is_key
from server.store.jobs import StoreUnavailable
from server.transport.http.entry import ALLOW, Threshold
from server.transport.http.handler import Scope
from server.transport.http.mcp_request import RETRY_LATER
from server.transport.http.payment_required import IDEMPOTENT, receipt_pairs
from server.transport.http.plain_requests import NOT_STORED, PlainHandler, PlainRequest

# Makes tokens for whoever paid: the payer, the server, the payment. None: not at the moment.
IssueTokens: TypeAlias = Callable[[str, str, str, Requester], Awaitable[Mapping[str, Any] | None]]

NOT_WRITTEN: Final = "a deposit cannot be written down right now. Send the same payment again in a few seconds, and do not sign another: it is deposited once"
NO_WALLET: Final = "nobody who calls this server has a balance here: each call is paid by itself"
TOKEN_GIVEN: Final = (
    "This payment was deposited before, and its token was given with the first answer. To be given one again whenever an answer does not"
    " arrive, send an Idempotency-Key with the payment, which nobody else knows. Another deposit from the same address brings another token"
    " for the same balance."
)
_encode: Final = msgspec.json.Encoder().encode


class DepositEndpoint:
    """Of one server."""

    def __init__(self, deposits: Deposits, threshold: Threshold, issue: IssueTokens | None) -> None:
        """`issue` None: tokens are nothing here, so that whoever has no login pays for each call."""
        self._deposits = deposits
        self._threshold = threshold
        self._issue = issue

    def resolve(self, scope: Scope) -> PlainHandler:
        return PlainHandler(self._threshold, scope, self._serve)

    async def _serve(self, visit: PlainRequest) -> None:
        reply, principal = visit.plain, visit.principal
        if visit.head.verb != "POST":
            return await reply.say(405, "invalid_request", 'POST {"amount": "$5"} here', (ALLOW,))
        stranger = principal.kind is PrincipalKind.PAYER and not principal.identified
        wallet = wallets.wallet_of(principal)
        if wallet is None and not (stranger and self._issue is not None):
            return await reply.say(403, "no_wallet", NO_WALLET)
        told = await visit.json_object()
        if told is None:
            return None
        try:
            amount = self._amount(told.get("amount"))
        except BadAmount as problem:
            return await reply.say(400, "invalid_amount", f'"amount" {problem}')
        try:
            outcome = await self._deposit(visit, amount, wallet, "" if stranger else principal.key())
            if isinstance(outcome, Unpaid):
                return await reply.demand(outcome, version=visit.payment_version)
            return await self._answer(visit, outcome, stranger)
        except StoreUnavailable as problem:
            self._threshold.log.warning("store.unavailable", method="deposit", reason=str(problem))
            return await reply.say(503, "temporarily_unavailable", NOT_WRITTEN, RETRY_LATER)

    async def _deposit(
        self, visit: PlainRequest, amount: Micros, wallet: str | None, caller: str
    ) -> Deposited | Unpaid:
        if visit.payment is None:
            return self._deposits.challenge(amount)
        try:
            payment = read_payment(visit.payment)
            key = visit.idempotency_key or payment.identifier
            if key is not None and not is_key(key):
                raise BadPayment(
                    "invalid_idempotency_key", "An idempotency key is 1 to 128 visible characters."
                )
        except BadPayment as error:
            unpaid = self._deposits.challenge(amount)
            text = f"{error.sentence} Nothing was taken. {unpaid.refusal.text}"
            refusal = msgspec.structs.replace(unpaid.refusal, reason=error.reason_code, text=text, status=400)
            return msgspec.structs.replace(unpaid, refusal=refusal)
        who = Depositor(wallet=wallet, caller=caller, key=key, address=visit.address)
        return await self._deposits.take(amount, payment, who)

    async def _answer(self, visit: PlainRequest, made: Deposited, stranger: bool) -> None:
        told: dict[str, Any] = {
            "deposited": shown(made.amount),
            "balance": shown(made.balance),
            "wallet": made.wallet,
            "payment": made.payment_id,
            "network": made.settlement["network"],
            "transaction": made.settlement["transaction"],
        }
        if stranger and self._issue is not None:
            told |= await self._tokens(visit, made, self._issue)
        extra = [*receipt_pairs(made.settlement, visit.payment_version)]
        if not made.fresh:
            extra.append(IDEMPOTENT)
        await visit.plain.give(200, _encode(told), (*NOT_STORED, *extra))

    async def _tokens(self, visit: PlainRequest, made: Deposited, issue: IssueTokens) -> Mapping[str, Any]:
        if not made.known:
            return {"message": TOKEN_GIVEN}
        agent = visit.headers.get(b"user-agent", b"").decode("latin-1")
        requester = Requester(
            origin=visit.head.origin,
            ip=visit.address,
            network=counted_as(visit.address),
            user_agent=clean(agent, USER_AGENT_LENGTH),
        )
        tokens = await issue(made.wallet, self._deposits.server, made.payment_id, requester)
        return tokens or {"message": "The deposit is made; tokens are not given at the moment."}

    def _amount(self, written: object) -> Micros:
        """Raises `BadAmount`."""
        least, most = self._deposits.least, self._deposits.most
        if not isinstance(written, str):
            raise BadAmount(f'is a text, like "{shown(least)}"')
        amount = parse(written)
        if not least <= amount <= most:
            raise BadAmount(f"is between {shown(least)} and {shown(most)}")
        return amount
