"""What is kept of certificates, in `acme/` of the data directory, for this user alone. Each file is replaced whole, under a lock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import trio

from server.certificates.certificate_state import CertificateState
from server.certificates.kept_certificates import (
    CannotKeep,
    IssuedCertificate,
    KeptAccount,
    KeptOrder,
    KeptRest,
    KeptRevocation,
    certificate_in,
    certificate_text,
)
from server.lib.private_file import PrivateFile

FOLDER: Final = "acme"

Kept = TypeVar("Kept")


class AcmeFiles:
    """Blocking. Everything raises `CannotKeep`."""

    def __init__(self, data_dir: Path) -> None:
        directory = data_dir / FOLDER
        elsewhere = "choose another data directory with --data-dir"

        def file(name: str, kept: str) -> PrivateFile:
            return PrivateFile(directory, name, kept=kept, refused=CannotKeep, elsewhere=elsewhere)

        self._accounts = file("account.json", "accounts")
        self._certificate = file("certificate.pem", "certificates")
        self._order = file("order.json", "orders")
        self._revocations = file("revocations.json", "certificates")
        self._rest = file("rest.json", "limits")
        self._accounts.make_directory()

    @property
    def certificate_file(self) -> Path:
        return self._certificate.path

    # ── accounts ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def account(self, directory: str) -> KeptAccount | None:
        return self.accounts().get(directory)

    def keep_account(self, directory: str, account: KeptAccount) -> None:
        with self._accounts.lock().held():
            self._accounts.replace(msgspec.json.encode({**self.accounts(), directory: account}))

    def accounts(self) -> Mapping[str, KeptAccount]:
        """By the directory of their authority."""
        return self._read(self._accounts, dict[str, KeptAccount]) or {}

    # ── the certificate ──────────────────────────────────────────────────────────────────────────────────────────────

    def certificate(self) -> IssuedCertificate | None:
        raw = self._certificate.load()
        if raw is None:
            return None
        try:
            return certificate_in(raw)
        except ValueError:
            raise CannotKeep(
                f"{self._certificate.path} holds no certificate with its key",
                hint="move it away: a new one is got then",
            ) from None

    def keep_certificate(self, issued: IssuedCertificate) -> None:
        with self._certificate.lock().held():
            self._certificate.replace(certificate_text(issued))

    # ── what is under way ────────────────────────────────────────────────────────────────────────────────────────────

    def order(self) -> KeptOrder | None:
        return self._read(self._order, KeptOrder)

    def keep_order(self, order: KeptOrder | None) -> None:
        self._write(self._order, order)

    def revocations(self) -> tuple[KeptRevocation, ...]:
        """The first one asked for first."""
        return self._read(self._revocations, tuple[KeptRevocation, ...]) or ()

    def keep_revocations(self, revocations: Sequence[KeptRevocation]) -> None:
        self._write(self._revocations, revocations)

    def rest(self) -> KeptRest | None:
        return self._read(self._rest, KeptRest)

    def keep_rest(self, rest: KeptRest | None) -> None:
        self._write(self._rest, rest)

    def _read(self, file: PrivateFile, shape: type[Kept]) -> Kept | None:
        raw = file.load()
        if raw is None or raw == b"null":
            return None
        try:
            return msgspec.json.decode(raw, type=shape)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise CannotKeep(f"{file.path} cannot be read", hint="move it away: it is made anew") from None

    def _write(self, file: PrivateFile, value: Any) -> None:
        with file.lock().held():
            file.replace(msgspec.json.encode(value))


class KeptInFiles:
    """Implements `KeepsCertificates`, for the only process that has them."""

    def __init__(self, files: AcmeFiles) -> None:
        self._files = files

    async def account(self, directory: str) -> KeptAccount | None:
        return await trio.to_thread.run_sync(self._files.account, directory)

    async def keep_account(self, directory: str, account: KeptAccount) -> None:
        await trio.to_thread.run_sync(self._files.keep_account, directory, account)

    async def certificate(self) -> IssuedCertificate | None:
        return await trio.to_thread.run_sync(self._files.certificate)

    async def keep_certificate(self, issued: IssuedCertificate) -> None:
        await trio.to_thread.run_sync(self._files.keep_certificate, issued)

    async def order(self) -> KeptOrder | None:
        return await trio.to_thread.run_sync(self._files.order)

    async def keep_order(self, order: KeptOrder | None) -> None:
        await trio.to_thread.run_sync(self._files.keep_order, order)

    async def revocations(self) -> tuple[KeptRevocation, ...]:
        return await trio.to_thread.run_sync(self._files.revocations)

    async def keep_revocations(self, revocations: Sequence[KeptRevocation]) -> None:
        await trio.to_thread.run_sync(self._files.keep_revocations, revocations)

    async def rest(self) -> KeptRest | None:
        return await trio.to_thread.run_sync(self._files.rest)

    async def keep_rest(self, rest: KeptRest | None) -> None:
        await trio.to_thread.run_sync(self._files.keep_rest, rest)

    async def attempting(self, state: CertificateState) -> bool:
        return False

    async def attempted(self, state: CertificateState) -> bool:
        return False
