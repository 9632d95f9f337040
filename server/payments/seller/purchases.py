"""What we pay others for calls that were made here: in the books beside what was taken for them, with the same id of the call.

A purchase takes from `cost:server/tool` and gives to the chain's account, from which what is taken comes: so the chain's account is what a
wallet of ours has more or less, and what a tool brings is its revenue less its cost. What an upstream takes from a balance that we have
with it goes to `upstream:server/id`, by the receipt that it gives; the amount is its word, and nothing but the books stands on it. So its
signature is not checked: it came over the connection to that upstream, which could sign any amount. It must name that upstream, though: one
that passes on the receipts of others was paid otherwise, or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import trio

from auth.values.identity_model import Millis, Principal
from server.lib.log.logger import Logger
from server.lib.money.amounts import ONE, Micros
from server.lib.shortened import short_reason
from server.payments.buyer.outlays import GivenReceipt, Outlay
from server.payments.seller.ledger import Books, BooksError, Movement, chain_account
from server.payments.seller.offers import CURRENCY
from server.payments.seller.receipt_check import BadReceipt, read_receipt
from server.store.jobs import Store, StoreError
from server.store.write_retry import Job, WriteRetry

_COST: Final = "cost:"
_UPSTREAM: Final = "upstream:"
# An upstream may say anything: a thousand dollars a call, so that no number of calls makes sums that cannot be counted.
MOST_TAKEN: Final = 1_000 * ONE
# Receipts that wait for a store that cannot write, as far as memory goes: how many there are, upstreams and callers decide. Our own payments
# are bounded by their wallet.
MOST_OWED: Final = 1_000
_PRINTABLE: Final = re.compile(r"[!-~]{1,100}")
_NOBODY: Final = "agent"
# The books lack one, and will.
NOT_BOOKED: Final = "purchase.not_booked"


def cost_account(server: str, tool: str) -> str:
    return f"{_COST}{server}/{tool}"


def upstream_account(server: str, upstream: str) -> str:
    return f"{_UPSTREAM}{server}/{upstream}" if upstream else f"{_UPSTREAM}{server}"


def purchase_of(server: str, outlay: Outlay) -> Movement:
    account = chain_account(outlay.network, outlay.asset)
    return _movement(server, outlay, account, outlay.amount, once=outlay.identifier, note=outlay.transaction)


def _taken(server: str, given: GivenReceipt) -> Movement | None:
    """What its upstream took from a balance of ours; None where it was paid otherwise, or nothing was taken. Raises `BadReceipt`."""
    receipt = read_receipt(given.text)
    if receipt.how != "balance" or not receipt.amount:
        return None
    if not given.issuer or receipt.issuer != given.issuer:
        raise BadReceipt(f"it is a receipt of {receipt.issuer}, and not of {given.issuer or 'this upstream'}")
    if receipt.currency != CURRENCY:
        raise BadReceipt("it is of another currency")
    if receipt.amount > MOST_TAKEN:
        raise BadReceipt("nobody takes so much for one call")
    if _PRINTABLE.fullmatch(receipt.charge) is None:
        raise BadReceipt("its id is none")
    account = upstream_account(server, given.upstream)
    once = f"{account}:{receipt.charge}"
    return _movement(server, given, account, receipt.amount, once=once, note=f"receipt {receipt.charge}")


def _movement(
    server: str, call: Outlay | GivenReceipt, account: str, amount: Micros, *, once: str, note: str
) -> Movement:
    caller = call.caller
    known = isinstance(caller, Principal)
    return Movement(
        kind="purchase",
        source=cost_account(server, call.tool),
        target=account,
        amount=amount,
        currency=CURRENCY,
        principal=caller.key() if known else _NOBODY,
        client_id=caller.client_id if known else None,
        grant_id=caller.grant_id if known else None,
        server=server,
        tool=call.tool,
        call_id=call.call_id,
        charge_id=f"once:{once}",
        note=note,
    )


class PurchaseBook:
    """Of one server. `books` None: none are kept, and there is nothing to be owed to them. `arrears`: of all servers, told as
    `NOT_BOOKED`."""

    def __init__(
        self,
        server: str,
        store: Store,
        books: Books | None,
        arrears: WriteRetry | None,
        *,
        clock: Callable[[], Millis],
        log: Logger,
    ) -> None:
        self._server = server
        self._store = store
        self._books = books
        self._arrears = arrears
        self._clock = clock
        self._log = log

    async def book(self, outlay: Outlay) -> None:
        """Book a payment of ours once, however often it is told of, and though nobody waits for the call any more."""
        await self._post(purchase_of(self._server, outlay))

    async def book_receipt(self, given: GivenReceipt) -> None:
        """Book once what a call took from a balance of ours with its upstream. A receipt that cannot be read is left, and told of."""
        try:
            movement = _taken(self._server, given)
        except BadReceipt as problem:
            facts = {"server": self._server, "tool": given.tool, "request": given.call_id}
            self._log.warning("purchase.unreadable_receipt", reason=short_reason(problem), **facts)
            return
        if movement is not None:
            await self._post(movement, most_owed=MOST_OWED)

    async def _post(self, movement: Movement, *, most_owed: int | None = None) -> None:
        """A store that cannot write keeps nobody from an answer that is paid for: then it is booked as soon as it can. `most_owed`: it
        comes after all that is owed already, and is told of in the log alone where that is so much."""
        if self._books is None or self._arrears is None:
            return
        job = partial(self._books.post, movement=movement, now=self._clock())
        if most_owed is not None and self._arrears:
            self._owe(job, movement, "others are owed before it", most_owed)
            return
        with trio.CancelScope(shield=True):  # bounded by the store, which gives up by itself
            try:
                await self._store.write(job)
            except StoreError as problem:
                self._owe(job, movement, str(problem), most_owed)
            except BooksError as problem:  # nor will it ever be
                self._log.error(NOT_BOOKED, reason=short_reason(problem), **self._facts(movement))

    def _owe(self, job: Job, movement: Movement, why: str, most_owed: int | None) -> None:
        assert self._arrears is not None  # as above
        facts = self._facts(movement)
        if most_owed is not None and len(self._arrears) >= most_owed:
            self._log.error(NOT_BOOKED, reason=f"{most_owed} are owed to the books already", **facts)
            return
        self._arrears.owe(job, lambda seq: self._log.info("purchase.booked_late", movement=seq, **facts))
        self._log.warning("purchase.not_booked_yet", reason=short_reason(why), **facts)

    def _facts(self, movement: Movement) -> dict[str, Any]:
        return {
            "server": self._server,
            "tool": movement.tool,
            "amount": movement.amount,
            "request": movement.call_id,
            "account": movement.target,
            "note": movement.note,
        }
