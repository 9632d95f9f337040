"""What we pay others for calls that were made here: in the books beside what was taken for them, with the same id of the call.

A purchase takes from `cost:server/tool` and gives to the chain's account, from which what is taken comes: so the chain's account is what a
wallet of ours has more or less, and what a tool brings is its revenue less its cost.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import trio

from auth.values.model import Millis, Principal
from server.backends.wallet import Outlay
from server.observe.log import Logger
from server.store.arrears import Arrears
from server.store.jobs import Store, StoreError
from server.till.ledger import Books, BooksError, Movement, chain_account
from server.till.offers import CURRENCY

_COST: Final = "cost:"
_NOBODY: Final = "agent"
# The books lack one, and will.
NOT_BOOKED: Final = "purchase.not_booked"


def cost_account(server: str, tool: str) -> str:
    return f"{_COST}{server}/{tool}"


def purchase_of(server: str, outlay: Outlay) -> Movement:
    caller = outlay.caller
    known = isinstance(caller, Principal)
    return Movement(
        kind="purchase",
        source=cost_account(server, outlay.tool),
        target=chain_account(outlay.network, outlay.asset),
        amount=outlay.amount,
        currency=CURRENCY,
        principal=caller.key() if known else _NOBODY,
        client_id=caller.client_id if known else None,
        grant_id=caller.grant_id if known else None,
        server=server,
        tool=outlay.tool,
        call_id=outlay.call_id,
        charge_id=f"once:{outlay.identifier}",
        note=outlay.transaction,
    )


class PurchaseBook:
    """Of one server. `books` None: none are kept, and there is nothing to be owed to them. `arrears`: of all servers, told as
    `NOT_BOOKED`."""

    def __init__(
        self,
        server: str,
        store: Store,
        books: Books | None,
        arrears: Arrears | None,
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
        """Once, however often it is told of, and though nobody waits for the call any more. A store that cannot write keeps nobody from an
        answer that is paid for: then it is booked as soon as it can."""
        if self._books is None or self._arrears is None:
            return
        facts = {
            "server": self._server,
            "tool": outlay.tool,
            "amount": outlay.amount,
            "request": outlay.call_id,
        }
        movement = purchase_of(self._server, outlay)
        job = partial(self._books.post, movement=movement, now=self._clock())
        with trio.CancelScope(shield=True):  # bounded by the store, which gives up by itself
            try:
                await self._store.write(job)
            except StoreError as problem:
                self._arrears.owe(
                    job, lambda seq: self._log.info("purchase.booked_late", movement=seq, **facts)
                )
                self._log.warning("purchase.not_booked_yet", reason=str(problem)[:200], **facts)
            except BooksError as problem:  # nor will it ever be
                self._log.error(NOT_BOOKED, reason=str(problem)[:200], **facts)
