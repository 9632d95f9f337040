"""What nodes kept of certificates in the database that they shared, back into the files of a server that is alone again (certificate_files.py).

Whoever moves the rows into a file calls it, with the last transaction there: cut off, all of it is done again. The way there needs nothing of
the kind, for the first node of a database takes along what lies in the files (shared_certificate.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import TypeVar

from server.certificates import certificate_rows as rows
from server.certificates.certificate_files import AcmeFiles
from server.certificates.certificate_rows import AcmeRow, AcmeVault
from server.certificates.kept_certificates import (
    CannotKeep,
    IssuedCertificate,
    KeptAccount,
    KeptOrder,
    KeptRest,
    KeptRevocation,
)
from server.certificates.shared_records import account_row, issued_in
from server.store.jobs import StoreDb

T = TypeVar("T")


def bring_back(
    db: StoreDb,
    *,
    vault: AcmeVault,
    data_dir: Path,
    directories: Collection[str],
    told: Callable[[str], None],
) -> None:
    """A job, though it writes files: the same ones however often it runs. From here on they are what counts, so the rows go.

    `directories`: of the authorities in the settings; accounts are named after them. What cannot be read is told of, and got anew by the
    server. Raises `CannotKeep` where no file can be written.
    """
    if db.fetch_one("SELECT 1 AS one FROM acme_kept LIMIT 1") is None:
        return

    def read(row: AcmeRow | None, opened: Callable[[AcmeRow], T]) -> T | None:
        if row is None:
            return None
        try:
            return opened(row)
        except CannotKeep as problem:
            told(f"{problem}; it is left behind")
            return None

    def shaped(what: str, shape: type[T]) -> T | None:
        return read(rows.get(db, what), lambda row: _shaped(vault, row, shape))

    files = AcmeFiles(data_dir)
    issued = read(rows.get(db, rows.CERTIFICATE), lambda row: issued_in(row, vault))
    order, rest = shaped(rows.ORDER, KeptOrder), shaped(rows.REST, KeptRest)
    found = [shaped(row.what, KeptRevocation) for row in rows.of_kind(db, rows.REVOCATION)]
    revocations = [revocation for revocation in found if revocation is not None]

    for directory in {*directories, *_directories(issued, order, rest, revocations)}:
        if (account := shaped(account_row(directory), KeptAccount)) is not None:
            files.keep_account(directory, account)
    if issued is not None:
        files.keep_certificate(issued)
    files.keep_order(order)
    files.keep_rest(rest)
    files.keep_revocations(revocations)
    db.execute("DELETE FROM acme_kept")


def _shaped(vault: AcmeVault, row: AcmeRow, shape: type[T]) -> T | None:
    return None if vault.open(row) == b"null" else vault.read(row, shape)


def _directories(
    issued: IssuedCertificate | None,
    order: KeptOrder | None,
    rest: KeptRest | None,
    revocations: Collection[KeptRevocation],
) -> set[str]:
    return {each.directory for each in (issued, order, rest, *revocations) if each is not None}
