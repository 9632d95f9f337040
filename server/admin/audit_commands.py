"""Commands of the admin socket for the audit trail: a page of it, and a piece of the check of its chain.

Both are asked for again and again until they are through, so that a long trail needs neither memory nor one long answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, cast

import msgspec
from msgspec.structs import asdict, replace

from auth.audit import audit_names, audit_search, audit_trail
from auth.audit.audit_search import AuditFilter
from auth.values.database import Row
from auth.values.identity_model import Millis
from server.admin import acknowledge_breaks
from server.admin.bounded_arguments import number, text
from server.admin.control import CommandRefused, Handler
from server.store import acknowledged_breaks
from server.store.audit_chain import AuditChain
from server.store.audit_head import HeadLost
from server.store.chains import Break, Piece, RowChain
from server.store.jobs import Position, Store, StoreDb

# An answer is a megabyte at most, and a piece of the check takes some hundredths of a second.
ROWS_AT_MOST: Final = 2_000
PIECE: Final = 1_000
PIECES: Final = 20
EVENTS: Final = 20
# What the trail says of it.
EXAMINED: Final = "audit.examined"
ACKNOWLEDGED: Final = "audit.acknowledged"


class AuditAdmin(msgspec.Struct, frozen=True, kw_only=True):
    store: Store
    clock: Callable[[], Millis]
    subkey: Callable[[str], bytes]
    committed_head: Callable[[], Position | None]  # of this process
    written_heads: Callable[[], Sequence[Position]]  # of the file outside the database; raises `HeadLost`

    def commands(self) -> dict[str, Handler]:
        return {
            "audit": self.audit,
            "audit.verify": self.verify,
            "audit.acknowledge": self.acknowledge,
        }

    async def audit(self, arguments: Mapping[str, Any], actor: str) -> Any:
        """`at` is the `go_on` of the page before."""
        job = partial(
            audit_search.page,
            wanted=_wanted(arguments),
            oldest_first=arguments.get("oldest_first") is True,
            at=number(arguments, "at"),
            at_most=min(number(arguments, "at_most") or ROWS_AT_MOST, ROWS_AT_MOST),
        )
        found = await self.store.read(job)
        entries = [audit_names.entry_of(row) for row in found.rows]
        names = await self.store.read(partial(audit_names.names_of, entries=entries))
        rows = [
            {**row, "person": named.person, "program": named.program, "why": named.why}
            for row, named in zip(found.rows, names, strict=True)
        ]
        return {"rows": rows, "go_on": found.go_on}

    async def verify(self, arguments: Mapping[str, Any], actor: str) -> Any:
        """`at` is that of the answer before. With `expect`, the MAC that the row of this number has comes along."""
        chain, expect = AuditChain(self.subkey(audit_trail.KEY_PURPOSE)), number(arguments, "expect")
        piece = await self._piece(chain, _position(arguments))
        checked, swept = piece.checked, piece.swept
        for _ in range(PIECES - 1):
            if piece.done:
                break
            piece = await self._piece(chain, piece.at)
            checked, swept = checked + piece.checked, swept + piece.swept
        lost = ""
        if piece.done and piece.broken is None:
            broken, lost = await compared(self.store, chain, self.committed_head, self.written_heads)
            piece = replace(piece, broken=broken)
        return {
            **told(replace(piece, checked=checked, swept=swept)),
            "head_lost": lost,
            "expected": None if expect is None else await self._mac_of(expect),
            "acknowledged": await self.acknowledged(),
        }

    async def acknowledge(self, arguments: Mapping[str, Any], actor: str) -> Any:
        """What the trail is told to have wrong is no alarm from here on; see `acknowledge_breaks.acknowledge`."""
        now, chain = self.clock(), AuditChain(self.subkey(audit_trail.KEY_PURPOSE))
        examine = partial(audit_trail.record, at=now, event=EXAMINED, actor=actor)
        return await acknowledge_breaks.acknowledge(
            self.store, chain, arguments, event=ACKNOWLEDGED, examine=examine, actor=actor, now=now
        )

    async def acknowledged(self) -> dict[str, Any] | None:
        """What of it was acknowledged last, and by whom."""
        return acknowledged_breaks.told(
            await self.store.read(AuditChain(self.subkey(audit_trail.KEY_PURPOSE)).acknowledged)
        )

    async def noticed(self) -> Break | None:
        """What is known to be wrong without looking at any row."""
        return await self.store.read(AuditChain(self.subkey(audit_trail.KEY_PURPOSE)).noticed)

    async def _piece(self, chain: AuditChain, at: Position | None) -> Piece:
        return await self.store.read(partial(chain.walk, at=at, at_most=PIECE))

    async def _mac_of(self, seq: int) -> str | None:
        sql = "SELECT mac FROM audit WHERE seq = ?"
        row: Row | None = await self.store.read(lambda db: db.fetch_one(sql, seq))
        return None if row is None else row["mac"]


async def compared(
    store: Store,
    chain: RowChain,
    committed_head: Callable[[], Position | None],
    written_heads: Callable[[], Sequence[Position]],
) -> tuple[Break | None, str]:
    """With what this process has committed, and with what was written down outside the database; and why it was not with that."""
    committed, lost = committed_head(), ""
    known: list[Sequence[Position]] = [] if committed is None else [[committed]]
    try:
        known.append(written_heads())
    except HeadLost as problem:
        lost = str(problem)
    return await store.read(partial(lacking, chain=chain, known=known)), lost


def lacking(db: StoreDb, chain: RowChain, known: Sequence[Sequence[Position]]) -> Break | None:
    """A job: the first of the known heads that the chain lacks. Of each group one is enough."""
    return next((broken for heads in known if (broken := chain.holds(db, heads)) is not None), None)


def told(piece: Piece) -> dict[str, Any]:
    return {
        "done": piece.done,
        "at": asdict(piece.at),
        "broken": None if piece.broken is None else asdict(piece.broken),
        "checked": piece.checked,
        "swept": piece.swept,
        "swept_at": piece.swept_at,
    }


def _wanted(arguments: Mapping[str, Any]) -> AuditFilter:
    events: object = arguments.get("events") or []
    if not isinstance(events, list) or len(cast("list[object]", events)) > EVENTS:
        raise CommandRefused(f"events is a list of at most {EVENTS} names")
    names = cast("list[object]", events)
    return AuditFilter(
        since=number(arguments, "since"),
        until=number(arguments, "until"),
        events=[text({"events": name}, "events") or "" for name in names],
        actor=text(arguments, "actor"),
        outcome=text(arguments, "outcome"),
        client_id=text(arguments, "client_id"),
        grant_id=text(arguments, "grant_id"),
    )


def _position(arguments: Mapping[str, Any]) -> Position | None:
    value: object = arguments.get("at")
    if value is None:
        return None
    if not isinstance(value, dict):
        raise CommandRefused("at is where the answer before ended")
    at = cast("dict[str, Any]", value)
    return Position(seq=number(at, "seq") or 0, mac=text(at, "mac") or "")
