"""Writing down, now and then, how API keys were used: what no call waits for. The notes are auth/tokens/api_key_ring.py's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import trio

from auth.tokens.api_key_ring import PIECE, KeyUsage, note
from auth.values.database import JobStore
from server.lib.log.logger import Logger
from server.store.jobs import StoreError

# "Last used" to the minute is what people look for; and a key that is used a thousand times a second costs one row per minute.
EVERY_SECONDS: Final = 60.0
# At the end there is little to write, and nobody should wait for it.
LAST_SECONDS: Final = 2.0


async def keep_noting(
    usage: KeyUsage,
    store: JobStore,
    log: Logger,
    *,
    sleep: Callable[[float], Awaitable[None]] = trio.sleep,
) -> None:
    """Until it is cancelled; then what is left is written."""
    try:
        while True:
            await sleep(EVERY_SECONDS)
            await write(usage, store, log)
    finally:
        with trio.move_on_after(LAST_SECONDS, shield=True):
            await write(usage, store, log)


async def write(usage: KeyUsage, store: JobStore, log: Logger) -> None:
    """Write what there is; what the store cannot take now is not told. Say how many requests nobody could decide on."""
    undecided, why = usage.take_undecided()
    if undecided:
        log.warning("entry.undecided", requests=undecided, reason=why)
    while (notes := usage.take()) is not None:
        try:
            await store.write(partial(note, notes=notes))
        except StoreError as problem:
            log.warning("api_key.use_not_noted", reason=str(problem))
            return
        if len(notes.uses) < PIECE:
            return  # what came meanwhile has time until the next round
