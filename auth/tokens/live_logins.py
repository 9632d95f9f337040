"""Which logins are live, in memory: asked on every request, filled from the store, emptied by its changes.

Only a cache: losing it costs one read per login. The store tells it of every commit before any writer wakes, so nobody who
was told "revoked" meets a server that still lets the login in. Where other processes revoke as well, it is told of theirs, and when that
cannot be relied on (`trust`), what is read serves the request that asked for it, and no other. Everything here runs in one thread, the
server's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Protocol

import msgspec

from auth.clients import client_registry as clients
from auth.grants.token_request import REFRESH_EPOCH, epoch
from auth.values import scopes, sealed_rows
from auth.values.database import ChangedWhileRead, Db
from auth.values.identity_model import LIVE_USER_STATES, OF_NOBODY, Millis

# About 600 bytes each. A private agent has tens; beyond this the oldest are read again when they next call.
ENTRIES: Final = 10_000

# Of every login: when a new epoch begins, all are asked for anew.
EPOCH: Final = ("epoch", REFRESH_EPOCH)

# A read can only be overtaken by a change to the very login it reads. Five in a row is somebody revoking in a loop.
ATTEMPTS: Final = 5


class LiveGrant(msgspec.Struct, frozen=True, kw_only=True):
    """What the store says of a login, with its user and client: read together, forgotten together."""

    grant_id: str
    kind: str
    subject: str
    client_id: str
    server: str
    usable: bool  # grant not revoked and of this epoch, user and client enabled
    ends_at: Millis
    ceiling: frozenset[str]  # what the user may have at most, now
    tools: str = ""  # a selection of tools that bounds it likewise
    # What its user and its client could be granted, now.
    reach: frozenset[str] = frozenset({scopes.EVERYTHING})
    person: str = ""  # what they are called
    program: str = ""
    known_as: tuple[str, ...] = ()


class StoredChange(Protocol):
    """What the store reports after a commit: an entity that caches must forget."""

    @property
    def kind(self) -> str: ...

    @property
    def entity_id(self) -> str: ...


Load = Callable[[str], Awaitable[LiveGrant | None]]


class _Reading(msgspec.Struct, eq=False):
    """A read under way, and what changed meanwhile."""

    grant_id: str
    changed: set[tuple[str, str]] = msgspec.field(default_factory=set[tuple[str, str]])


class LiveLogins:
    def __init__(self, load: Load, *, entries: int = ENTRIES) -> None:
        self._load = load
        self._entries = entries
        self._grants: dict[str, LiveGrant] = {}
        self._by_owner: dict[tuple[str, str], set[str]] = {}
        self._readings: set[_Reading] = set()
        self._trusted = True
        # What is remembered of a login; None means "ask the store". Asked with every request, so it is the dictionary's own.
        self.get: Final[Callable[[str], LiveGrant | None]] = self._grants.get

    async def load(self, grant_id: str) -> LiveGrant | None:
        """Read it from the store; None if there is no such login. Raises `ChangedWhileRead`, and what the store raises: then nobody knows."""
        for _ in range(ATTEMPTS):
            reading = _Reading(grant_id)
            self._readings.add(reading)
            try:
                found = await self._load(grant_id)
                if self._keep(reading, grant_id, found):
                    return found
            finally:
                self._readings.discard(reading)
        raise ChangedWhileRead

    def _keep(self, reading: _Reading, grant_id: str, found: LiveGrant | None) -> bool:
        """False if what was read may be older than a change that is applied already: read again."""
        owners = (("grant", grant_id),) if found is None else _owners(found)
        if not reading.changed.isdisjoint(owners):
            return False
        if found is None:
            return True
        while len(self._grants) >= self._entries:
            self._drop(next(iter(self._grants)))
        self._grants[grant_id] = found
        for owner in owners:
            self._by_owner.setdefault(owner, set()).add(grant_id)
        return True

    def apply_changes(self, changes: Iterable[StoredChange]) -> None:
        """Forget everything that hangs on these. Called after a commit, before those who wrote it go on."""
        for change in changes:
            owner = (change.kind, change.entity_id)
            for reading in self._readings:
                reading.changed.add(owner)
            for grant_id in list(self._by_owner.get(owner, ())):
                self._drop(grant_id)

    def trust(self, trusted: bool) -> None:
        """With False: nothing that is remembered counts, nor what is being read. Until True, `settle` is called after each `load`."""
        self._trusted = trusted
        if not trusted:
            for reading in self._readings:
                reading.changed.add(("grant", reading.grant_id))
            self._forget()

    def settle(self) -> None:
        """Whoever asked for what was loaded has had it."""
        if not self._trusted:
            self._forget()

    def _forget(self) -> None:
        self._grants.clear()
        self._by_owner.clear()

    def _drop(self, grant_id: str) -> None:
        for owner in _owners(self._grants.pop(grant_id)):
            remaining = self._by_owner[owner]
            remaining.discard(grant_id)
            if not remaining:
                del self._by_owner[owner]

    def __len__(self) -> int:
        return len(self._grants)


def _owners(found: LiveGrant) -> tuple[tuple[str, str], ...]:
    return ("grant", found.grant_id), ("user", found.subject), ("client", found.client_id), EPOCH


def read_live(db: Db, grant_id: str) -> LiveGrant | None:
    """A job."""
    row = db.fetch_one(
        f"SELECT {sealed_rows.USERS.of('u', 'user_')}, {sealed_rows.CLIENTS.of('c', 'program_')}, g.*"
        " FROM grants g LEFT JOIN users u ON u.id = g.subject JOIN clients c ON c.id = g.client_id WHERE g.id = ?",
        grant_id,
    )
    if row is None:
        return None
    for table, prefix in (
        (sealed_rows.GRANTS, ""),
        (sealed_rows.USERS, "user_"),
        (sealed_rows.CLIENTS, "program_"),
    ):
        row = sealed_rows.checked(db, table, row, prefix)
    # A machine with credentials of its own has nobody behind it: its client's ceiling is its own. So it is with whoever paid.
    machine = row["principal_kind"] in OF_NOBODY
    return LiveGrant(
        grant_id=row["id"],
        kind=row["principal_kind"],
        subject=row["subject"],
        client_id=row["client_id"],
        server=row["server"],
        usable=(
            row["revoked_at"] is None
            and row["epoch"] == epoch(db)
            and row["program_state"] == "enabled"
            and (machine or row["user_state"] in LIVE_USER_STATES)
        ),
        ends_at=min(row["expires_at"], row["user_expires_at"] or row["expires_at"]),
        ceiling=frozenset(scopes.parse(row["program_scope"] if machine else row["user_scope"] or "")),
        tools="" if machine else row["user_tools"] or "",
        reach=frozenset(scopes.parse(scopes.narrow(row["program_scope"], row["user_scope"] or ""))),
        person="" if machine else row["user_name"] or "",
        program=row["program_name"],
        known_as=clients.believed_names(
            row["program_kind"],
            row["client_id"],
            row["program_name"],
            by_device=row["how"] == "device",
            public=row["program_auth_method"] == "none",
        ),
    )
