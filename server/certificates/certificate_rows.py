"""The rows of certificates in a database that nodes share: sealed texts by their names, each with a version. Jobs, and the sealing around
them.

A node that gets certificates holds the lease of one chore, and each of its writes is conditional on that; others may write a wish, and
what is to be revoked with it. Writing what all of them serve, show or say tells all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, TypeVar

import msgspec

from auth.keys import sealed_secrets
from auth.keys.sealed_secrets import CannotUnseal
from server.certificates.certificate_state import TroubleState
from server.certificates.kept_certificates import CannotKeep, KeptRevocation
from server.certificates.name_proofs import ShownProof
from server.store import task_leases
from server.store.jobs import StoreDb
from server.store.task_leases import Lease, LeasedTable

CHANGE: Final = "certificate"
CHORE: Final = "certificate"
SEAL_PURPOSE: Final = "certificates"

CERTIFICATE: Final = "certificate"
ORDER: Final = "order"
REST: Final = "rest"
PROOFS: Final = "proofs"
STATE: Final = "state"
WISH: Final = "wish"
# What every node follows.
FOLLOWED: Final = (CERTIFICATE, PROOFS, STATE, WISH)
ACCOUNT: Final = "account:"
REVOCATION: Final = "revocation:"
# More than there can be of one kind: accounts at authorities, certificates to be revoked.
MOST: Final = 100

Told = TypeVar("Told")


class AcmeRow(msgspec.Struct, frozen=True, kw_only=True):
    what: str
    sealed: str
    version: int


class SharedProofs(msgspec.Struct, frozen=True, kw_only=True):
    """Proofs that all nodes show, until then at most, in milliseconds, whatever became of who wrote them."""

    shown: tuple[ShownProof, ...]
    until: int


class SharedState(msgspec.Struct, frozen=True, kw_only=True):
    """The state, as who gets certificates says. Times are seconds since 1970."""

    node: str
    doing: str = "waiting"
    attempts: int = 0
    renews_at: float | None = None
    trouble: TroubleState | None = None
    ahead_seconds: float = 0.0
    revoking: str = ""
    heard: int = 0  # of wishes, the version of the one that was carried out last


class AcmeVault:
    """The sealing of texts, each bound to its name."""

    def __init__(self, subkey: Callable[[str], bytes], entropy: Callable[[int], bytes]) -> None:
        self._key = subkey(SEAL_PURPOSE)
        self._entropy = entropy

    def seal(self, what: str, plain: bytes) -> str:
        nonce = self._entropy(sealed_secrets.NONCE_BYTES)
        return sealed_secrets.seal(self._key, plain, nonce=nonce, bound_to=what)

    def open(self, row: AcmeRow) -> bytes:
        """Open a text. Raise `CannotKeep`."""
        try:
            return sealed_secrets.unseal(self._key, row.sealed, bound_to=row.what, what=row.what)
        except (CannotUnseal, ValueError):
            raise damaged(row.what) from None

    def read(self, row: AcmeRow, shape: type[Told]) -> Told:
        """Read a text as a value. Raise `CannotKeep`."""
        try:
            return msgspec.json.decode(self.open(row), type=shape)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise damaged(row.what) from None


def damaged(what: str) -> CannotKeep:
    return CannotKeep(
        f'what the database holds under "{what}" of acme_kept cannot be read: it is damaged, or was sealed with another key file',
        hint=f"""DELETE FROM acme_kept WHERE what = '{what}'; it is made anew then""",
    )


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def followed(db: StoreDb) -> dict[str, AcmeRow]:
    found = db.fetch_all(
        f"SELECT what, sealed, version FROM acme_kept WHERE what IN ({', '.join('?' * len(FOLLOWED))})",
        *FOLLOWED,
    )
    return {row["what"]: AcmeRow(**row) for row in found}


def get(db: StoreDb, what: str) -> AcmeRow | None:
    row = db.fetch_one("SELECT what, sealed, version FROM acme_kept WHERE what = ?", what)
    return None if row is None else AcmeRow(**row)


def of_kind(db: StoreDb, prefix: str) -> list[AcmeRow]:
    rows = db.fetch_all(
        "SELECT what, sealed, version FROM acme_kept WHERE what LIKE ? ORDER BY what LIMIT ?",
        f"{prefix}%",
        MOST,
    )
    return [AcmeRow(**row) for row in rows]


# ── writing, for whoever holds the lease ─────────────────────────────────────────────────────────────────────────────


def hold(db: StoreDb, *, owner: str, held: Lease | None, now: int, millis: int) -> Lease | None:
    """Hold the lease, still or anew; return None where it is somebody else's."""
    if held is not None and task_leases.renew(db, held, now=now, millis=millis):
        return held
    db.execute(
        "INSERT INTO chores (name, lease_until, fence) VALUES (?, 0, 0) ON CONFLICT (name) DO NOTHING", CHORE
    )
    return task_leases.take(db, LeasedTable.CHORES, CHORE, owner=owner, now=now, millis=millis)


def put(
    db: StoreDb, sealed: Mapping[str, str], *, gone: Collection[str] = (), lease: Lease, now: int
) -> int | None:
    """Put texts, and return the version of the last; return None, and write nothing, where the lease was lost."""
    if not task_leases.holds(db, lease, now=now):
        return None
    version = 0
    for what, text in sealed.items():
        version = _put(db, what, text)
    for what in gone:
        db.execute("DELETE FROM acme_kept WHERE what = ?", what)
    return version


def say(db: StoreDb, sealed: str, *, lease: Lease, now: int) -> int | None:
    """Say how it stands; return the version of the newest wish, None where the lease was lost."""
    if put(db, {STATE: sealed}, lease=lease, now=now) is None:
        return None
    wish = get(db, WISH)
    return 0 if wish is None else wish.version


def _put(db: StoreDb, what: str, sealed: str) -> int:
    db.execute(
        "INSERT INTO acme_kept (what, sealed, version) VALUES (?, ?, 1) ON CONFLICT (what) DO UPDATE"
        " SET sealed = excluded.sealed, version = acme_kept.version + 1",
        what,
        sealed,
    )
    if what in FOLLOWED:
        db.changed(CHANGE, what)
    row = db.fetch_one("SELECT version FROM acme_kept WHERE what = ?", what)
    return 0 if row is None else row["version"]


# ── by any node ──────────────────────────────────────────────────────────────────────────────────────────────────────


class Wished(msgspec.Struct, frozen=True, kw_only=True):
    attempt: int  # how many will be over when this one is
    full: bool = False  # then nothing was written: too much waits to be revoked already


def wish(
    db: StoreDb,
    *,
    vault: AcmeVault,
    sealed: str,
    revocation: tuple[str, str] | None,
    most: int,
) -> Wished:
    """Leave a wish for a new certificate, now; with `revocation`, its name and text, the one that is served is revoked as well."""
    row = get(db, STATE)
    state = None if row is None else vault.read(row, SharedState)
    if revocation is not None:
        what, text = revocation
        if sum(each.what != what for each in of_kind(db, REVOCATION)) >= most:
            return Wished(attempt=0, full=True)
        _put(db, what, text)
    _put(db, WISH, sealed)
    if state is None:
        return Wished(attempt=1)
    return Wished(attempt=state.attempts + (2 if state.doing == "getting" else 1))


def show(db: StoreDb, *, boot_id: str, proofs: int) -> None:
    """Note that this node shows the proofs of this version."""
    db.execute("DELETE FROM acme_known WHERE boot_id NOT IN (SELECT boot_id FROM nodes)")
    db.execute(
        "INSERT INTO acme_known (boot_id, proofs) VALUES (?, ?)"
        " ON CONFLICT (boot_id) DO UPDATE SET proofs = excluded.proofs",
        boot_id,
        proofs,
    )


def not_showing(db: StoreDb, *, boot_id: str, proofs: int) -> int:
    """Count the other nodes that are alive and do not show that version yet."""
    row = db.fetch_one(
        "SELECT count(*) AS n FROM nodes WHERE boot_id <> ?"
        " AND NOT EXISTS (SELECT 1 FROM acme_known WHERE acme_known.boot_id = nodes.boot_id AND proofs = ?)",
        boot_id,
        proofs,
    )
    return 0 if row is None else row["n"]


def name_of(revocation: KeptRevocation) -> str:
    return f"{REVOCATION}{revocation.fingerprint}"
