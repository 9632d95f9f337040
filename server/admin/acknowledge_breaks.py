"""Acknowledging what is not as it was written in a chain of rows: found piece by piece, then one write, which is a row of the trail as well."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from auth.audit import audit_trail
from auth.values.identity_model import Millis
from server.admin.bounded_arguments import line
from server.admin.control import CommandRefused
from server.store.acknowledged_breaks import MOST_GAPS, Gap, told
from server.store.chains import Break, RowChain
from server.store.jobs import ConstraintFailed, Position, Store, StoreDb

NOTE: Final = 200
PIECE: Final = 1_000
# What no walk gets over: rows that nobody wrote, and an end that is not known.
_OPEN: Final = ("added", "no record")


async def acknowledge(
    store: Store,
    chain: RowChain,
    arguments: Mapping[str, Any],
    *,
    event: str,
    examine: Callable[[StoreDb], None],
    actor: str,
    now: Millis,
) -> dict[str, Any] | None:
    """Who acknowledged what, as `told`; None where nothing is wrong. `note` says why it is no alarm. `examine` is the write with which the
    store finds out, and makes the chain go on behind whatever is there. Raises `CommandRefused`."""
    note, called = line(arguments, "note", NOTE), chain.table.called
    if not note:
        raise CommandRefused("note says why this is no alarm", 'ostiary verify --acknowledge "WHY"')
    try:
        await store.write(examine)
        found = await _gaps(store, chain)
    except ConstraintFailed:  # the number of the next row is taken
        found = Break(seq=0, what="added")
    if isinstance(found, Break):
        raise CommandRefused(
            f"what is wrong with the {called} cannot be acknowledged yet: {found.what}",
            "start the server again, which makes it go on behind what is there; then acknowledge",
        )

    def job(db: StoreDb) -> dict[str, Any] | None:
        done = chain.acknowledge(db, found, by=actor, at=now, note=note)
        if done is None:
            return None
        said = f"the {called} up to row {done.up_to}, {len(found)} gaps: {note}"
        audit_trail.record(db, at=now, event=event, actor=actor, reason=said)
        return told(done)

    return await store.write(job)


async def _gaps(store: Store, chain: RowChain) -> list[Gap] | Break:
    """All that the walk does not get over; or the break at which it ends for good."""
    gaps: list[Gap] = []
    at: Position | None = None
    while True:
        piece = await store.read(partial(chain.walk, at=at, at_most=PIECE, known=gaps))
        at, broken = piece.at, piece.broken
        if broken is None:
            if piece.done:
                return gaps
            continue
        if broken.what == "record altered" and await store.read(chain.record) is not None:
            return gaps  # that is the last thing that a walk finds
        gap = None if broken.what in _OPEN else await store.read(partial(chain.gap, at=at))
        if gap is None:
            return broken
        gaps.append(gap)
        if len(gaps) > MOST_GAPS:
            raise CommandRefused(
                f"more than {MOST_GAPS} rows of the {chain.table.called} are not as they were written",
                "put a back-up back: ostiary restore FILE",
            )
