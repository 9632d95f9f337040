"""Pins of an upstream's definitions in the store: read, accepted, forgotten. These are jobs; what pins mean is definitions.py's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from auth.audit import audit_trail
from auth.values.database import Db
from auth.values.identity_model import Millis
from server.agents.mcp.trust.definitions import LATER_KINDS, Definition, DefinitionKey
from server.lib.shortened import short_name

PAGE: Final = 500  # rows read at once; each may hold 64 KiB
# Names in one audit row; what was accepted is in the table.
TOLD: Final = 20
BY_SETTINGS: Final = "settings"


# What other processes hear of it by (`CHANGE_KINDS`).
CHANGE: Final = "upstream"

# A row beside the pins of an upstream: it was met since resources and pages are pinned with the rest. Earlier versions take it for a pin of
# something that is not offered any more.
_MARK: Final = ("kinds", "2")


class UpstreamKey(msgspec.Struct, frozen=True, order=True):
    """An upstream: the server that it stands behind, and the `id` of its agent there."""

    server: str
    agent: str = ""

    def __str__(self) -> str:
        return f"{self.server}/{self.agent}" if self.agent else self.server


class Pin(msgspec.Struct, frozen=True, kw_only=True):
    """A definition as somebody accepted it."""

    digest: str
    text: str
    accepted_at: Millis
    accepted_by: str


class PinnedUpstream(msgspec.Struct, frozen=True, kw_only=True):
    """The pins of one upstream."""

    source: str  # a digest of where it is
    met: bool  # it has been here before, from the same place, whatever it offered
    pins: Mapping[DefinitionKey, Pin]
    met_whole: bool = True  # with its resources and pages, which were not pinned in earlier versions


def load(db: Db, upstream: UpstreamKey, source: str) -> PinnedUpstream:
    """Read what was accepted."""
    met = db.fetch_one(
        "SELECT source FROM upstreams WHERE server = ? AND agent = ?", upstream.server, upstream.agent
    )
    pins: dict[DefinitionKey, Pin] = {}
    whole = False
    last = ("", "")
    while True:
        rows = db.fetch_all(
            "SELECT kind, name, digest, definition, accepted_at, accepted_by FROM upstream_pins"
            " WHERE server = ? AND agent = ? AND (kind, name) > (?, ?) ORDER BY kind, name LIMIT ?",
            upstream.server,
            upstream.agent,
            *last,
            PAGE,
        )
        for row in rows:
            if (row["kind"], row["name"]) == _MARK:
                whole = True
                continue
            pins[DefinitionKey(row["kind"], row["name"])] = Pin(
                digest=row["digest"],
                text=row["definition"],
                accepted_at=row["accepted_at"],
                accepted_by=row["accepted_by"],
            )
        if len(rows) < PAGE:
            here_before = met is not None and met["source"] == source
            return PinnedUpstream(source=source, met=here_before, pins=pins, met_whole=whole)
        last = (rows[-1]["kind"], rows[-1]["name"])


def accept(
    db: Db,
    upstream: UpstreamKey,
    source: str,
    definitions: Sequence[Definition],
    *,
    by: str,
    now: Millis,
) -> None:
    """Write that these are what it may offer under their names from now on."""
    meet(db, upstream, source, now)
    _mark(db, upstream, now)
    for each in definitions:
        db.execute(
            "INSERT INTO upstream_pins (server, agent, kind, name, digest, definition, accepted_at, accepted_by)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (server, agent, kind, name) DO UPDATE"
            " SET digest = excluded.digest, definition = excluded.definition,"
            " accepted_at = excluded.accepted_at, accepted_by = excluded.accepted_by",
            upstream.server,
            upstream.agent,
            each.key.kind,
            each.key.name,
            each.digest,
            each.text,
            now,
            by,
        )
    if definitions:
        db.changed(CHANGE, str(upstream))
        _record(db, "upstream.accepted", upstream, [each.key for each in definitions], by=by, now=now)


def accept_first(
    db: Db, upstream: UpstreamKey, source: str, definitions: Sequence[Definition], now: Millis
) -> bool:
    """Accept what it offers, if it was never met before, and return whether it was not; resources and pages also where it was met before these
    were pinned. All that another offered under its name goes."""
    if meet(db, upstream, source, now):
        _delete_all(db, upstream)
    elif _mark(db, upstream, now):
        definitions = [each for each in definitions if each.key.kind in LATER_KINDS]
    else:
        return False
    accept(db, upstream, source, definitions, by=BY_SETTINGS, now=now)
    return True


def meet(db: Db, upstream: UpstreamKey, source: str, now: Millis) -> bool:
    """Write that it was met, and return whether this is the first time."""
    made = db.execute(
        "INSERT INTO upstreams (server, agent, source, met_at) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (server, agent) DO UPDATE SET source = excluded.source, met_at = excluded.met_at"
        " WHERE upstreams.source <> excluded.source",
        upstream.server,
        upstream.agent,
        source,
        now,
    )
    return made == 1


def _mark(db: Db, upstream: UpstreamKey, now: Millis) -> bool:
    """Write that all kinds of definitions are pinned, and return whether that is new."""
    made = db.execute(
        "INSERT INTO upstream_pins (server, agent, kind, name, digest, definition, accepted_at, accepted_by)"
        " VALUES (?, ?, ?, ?, '', '', ?, ?) ON CONFLICT (server, agent, kind, name) DO NOTHING",
        upstream.server,
        upstream.agent,
        *_MARK,
        now,
        BY_SETTINGS,
    )
    return made == 1


def _delete_all(db: Db, upstream: UpstreamKey) -> int:
    return db.execute(
        "DELETE FROM upstream_pins WHERE server = ? AND agent = ? AND kind <> ?",
        upstream.server,
        upstream.agent,
        _MARK[0],
    )


def forget(
    db: Db, upstream: UpstreamKey, keys: Sequence[DefinitionKey] | None, *, by: str, now: Millis
) -> int:
    """Take acceptance back, of all there is where `keys` is None, and return of how many. An upstream is still one that was met when nothing of it
    is left: whoever forgets wants to look at it again."""
    db.takes_away()
    if keys is None:
        known = list(load(db, upstream, "").pins)
        gone = _delete_all(db, upstream)
    else:
        known, gone = list(keys), 0
        for key in keys:
            gone += db.execute(
                "DELETE FROM upstream_pins WHERE server = ? AND agent = ? AND kind = ? AND name = ?",
                upstream.server,
                upstream.agent,
                key.kind,
                key.name,
            )
    if gone:
        _mark(db, upstream, now)
        db.changed(CHANGE, str(upstream))
        _record(db, "upstream.forgotten", upstream, known, by=by, now=now)
    return gone


def _record(
    db: Db, event: str, upstream: UpstreamKey, keys: Sequence[DefinitionKey], *, by: str, now: Millis
) -> None:
    named = ", ".join(f"{key.kind} {short_name(key.name)}" for key in keys[:TOLD])
    more = f" and {len(keys) - TOLD} more" if len(keys) > TOLD else ""
    audit_trail.record(db, at=now, event=event, actor=by, reason=f"{upstream}: {named}{more}")
