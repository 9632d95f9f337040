"""What is kept of certificates, in `acme/` of the data directory, for this user alone: our accounts at authorities, the certificate that is
served, an order that is under way, and certificates that are to be revoked. Each is replaced whole, under a lock.

Certificate and key are one file of PEM, so that no crash leaves one without the other. Its first line says where it is from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from auth.jose import es256
from auth.jose.es256 import PrivateKey
from server.acme.certificates import BadChain, CertificateFacts, checked, key_of, key_pem
from server.private_file import PrivateFile

FOLDER: Final = "acme"
_ORIGIN: Final = re.compile(r"# from (\S+)(?: as (\S+))?\n")
_CHAIN: Final = re.compile(rb"-----BEGIN CERTIFICATE-----.*", re.DOTALL)

Kept = TypeVar("Kept")


class AcmeFileError(Exception):
    """A file of ours cannot be used. The text names it, and holds no secret."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint or ""


class KeptAccount(msgspec.Struct, frozen=True, kw_only=True):
    url: str  # empty until the authority has said it
    jwk: dict[str, str]

    def __repr__(self) -> str:
        return f"<KeptAccount {self.url}>"

    def key(self) -> PrivateKey:
        """Raises `ValueError`."""
        return es256.load(self.jwk)


class KeptOrder(msgspec.Struct, frozen=True, kw_only=True):
    """An order that was begun. `key` is what its certificate will be for."""

    url: str
    directory: str
    account: str
    names: tuple[str, ...]
    profile: str = ""
    key: str

    def __repr__(self) -> str:
        return f"<KeptOrder {self.url}>"


class KeptRevocation(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate that is to be revoked: once another has taken its place, unless that cannot be waited for."""

    directory: str
    chain: str
    key: str
    fingerprint: str
    reason: int
    at_once: bool
    done: bool = False  # and is to be replaced yet

    def __repr__(self) -> str:
        return f"<KeptRevocation {self.fingerprint}>"


class KeptRest(msgspec.Struct, frozen=True, kw_only=True):
    """The authority wants to be left alone, also by a server that is started again. `until` is in seconds since 1970."""

    directory: str
    names: tuple[str, ...]
    until: float
    words: str
    hint: str


class IssuedCertificate(msgspec.Struct, frozen=True, kw_only=True):
    facts: CertificateFacts
    directory: str
    profile: str
    chain: bytes
    key: PrivateKey

    def __repr__(self) -> str:
        return f"<IssuedCertificate {self.facts.fingerprint}>"


class AcmeFiles:
    """Blocking. Everything raises `AcmeFileError`."""

    def __init__(self, data_dir: Path) -> None:
        directory = data_dir / FOLDER
        elsewhere = "choose another data directory with --data-dir"

        def file(name: str, kept: str) -> PrivateFile:
            return PrivateFile(directory, name, kept=kept, refused=AcmeFileError, elsewhere=elsewhere)

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
        return self._all_accounts().get(directory)

    def keep_account(self, directory: str, account: KeptAccount) -> None:
        with self._accounts.lock().held():
            self._accounts.replace(msgspec.json.encode({**self._all_accounts(), directory: account}))

    def _all_accounts(self) -> Mapping[str, KeptAccount]:
        return self._read(self._accounts, dict[str, KeptAccount]) or {}

    # ── the certificate ──────────────────────────────────────────────────────────────────────────────────────────────

    def certificate(self) -> IssuedCertificate | None:
        raw = self._certificate.load()
        if raw is None:
            return None
        try:
            origin = _ORIGIN.match(raw[:8192].decode("latin-1"))
            chain = _CHAIN.search(raw)
            if origin is None or chain is None:
                raise BadChain("cannot be read")
            key = key_of(raw[: chain.start()].decode("ascii"))
            facts = checked(chain[0], key, ())
        except (BadChain, ValueError):
            raise AcmeFileError(
                f"{self._certificate.path} holds no certificate with its key",
                hint="move it away: a new one is got then",
            ) from None
        return IssuedCertificate(
            facts=facts, directory=origin[1], profile=origin[2] or "", chain=chain[0], key=key
        )

    def keep_certificate(self, issued: IssuedCertificate) -> None:
        as_profile = f" as {issued.profile}" if issued.profile else ""
        head = f"# from {issued.directory}{as_profile}\n{key_pem(issued.key)}"
        with self._certificate.lock().held():
            self._certificate.replace(head.encode() + issued.chain)

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
            raise AcmeFileError(f"{file.path} cannot be read", hint="move it away: it is made anew") from None

    def _write(self, file: PrivateFile, value: Any) -> None:
        with file.lock().held():
            file.replace(msgspec.json.encode(value))
