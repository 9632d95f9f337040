"""A process that charges as fast as it can, until it is killed. Started by test_books_crash.py.

usage: books_child.py PLACE ROUND
"""

from __future__ import annotations

import sys
from functools import partial

import trio

from server.payments.seller import wallets
from server.store.jobs import StoreDb
from tests.engine_under_test import Place, read_place
from tests.killed_child import say
from tests.payments.seller.books_fakes import (
    NOW,
    AnyStore,
    begin_charge,
    deposit,
    finish_charge,
    open_books_at,
    release_charge,
)

CALLERS = 6


def clear_up(db: StoreDb) -> None:
    """What the process before was at when it was killed."""
    for row in db.fetch_all("SELECT id, wallet, amount FROM charges WHERE state = 'running'"):
        assert release_charge(db, row["wallet"], row["amount"], row["id"])


async def call(store: AnyStore, caller: int, number: int) -> None:
    wallet, serial = f"user:{caller}", 0
    await store.write(partial(deposit, wallet=wallet, amount=10**9, payment=f"pay_{number}_{caller}"))
    while True:
        charge = f"chg_{number}_{caller}_{serial}"
        assert await store.write(partial(begin_charge, wallet=wallet, amount=7, charge=charge))
        if serial % 5 == 4:
            assert await store.write(partial(release_charge, wallet=wallet, amount=7, charge=charge))
        else:
            seq = await store.write(partial(finish_charge, wallet=wallet, amount=7, charge=charge))
            say(f"{seq} {charge}")
        serial += 1


async def main(place: Place, number: int) -> None:
    async with open_books_at(place) as store:
        await store.write(clear_up)
        for caller in range(CALLERS):
            await store.write(partial(wallets.open_wallet, wallet=f"user:{caller}", currency="USD", now=NOW))
        async with trio.open_nursery() as nursery:
            for caller in range(CALLERS):
                nursery.start_soon(call, store, caller, number)


if __name__ == "__main__":
    trio.run(main, read_place(sys.argv[1]), int(sys.argv[2]))
