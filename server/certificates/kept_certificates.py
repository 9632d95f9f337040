"""What is kept of certificates: our accounts at authorities, the certificate that is served, an order that is under way, and certificates
that are to be revoked. In files of the data directory (`certificate_files.py`), or in the database that several nodes share (`shared_certificate.py`).

Certificate and key are one text of PEM, so that no crash leaves one without the other. Its first line says where it is from.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from auth.jose import es256
from auth.jose.es256 import PrivateKey
from server.certificates.certificate_state import CertificateState
from server.certificates.x509_certificates import BadChain, CertificateFacts, checked, key_of, key_pem

# A chain has some 6 KiB.
CERTIFICATE_BYTES: Final = 256 * 1024
_ORIGIN: Final = re.compile(r"# from (\S+)(?: as (\S+))?\n")
_CHAIN: Final = re.compile(rb"-----BEGIN CERTIFICATE-----.*", re.DOTALL)


class CannotKeep(Exception):
    """What is kept cannot be read, or nothing be kept now. The text says of what, and holds no secret."""

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

    def revocation(self, reason: int, *, at_once: bool) -> KeptRevocation:
        return KeptRevocation(
            directory=self.directory,
            chain=self.chain.decode("ascii", "replace"),
            key=key_pem(self.key),
            fingerprint=self.facts.fingerprint,
            reason=reason,
            at_once=at_once,
        )


class KeepsCertificates(Protocol):
    """Everything raises `CannotKeep`."""

    async def account(self, directory: str) -> KeptAccount | None: ...

    async def keep_account(self, directory: str, account: KeptAccount) -> None: ...

    async def certificate(self) -> IssuedCertificate | None: ...

    async def keep_certificate(self, issued: IssuedCertificate) -> None: ...

    async def order(self) -> KeptOrder | None: ...

    async def keep_order(self, order: KeptOrder | None) -> None: ...

    async def revocations(self) -> tuple[KeptRevocation, ...]: ...

    async def keep_revocations(self, revocations: Sequence[KeptRevocation]) -> None: ...

    async def rest(self) -> KeptRest | None: ...

    async def keep_rest(self, rest: KeptRest | None) -> None: ...

    async def attempting(self, state: CertificateState) -> bool:
        """An attempt begins. → whether somebody asked for one elsewhere, and `revocations` may be others."""
        ...

    async def attempted(self, state: CertificateState) -> bool:
        """It is over, or else it stands otherwise than before. → whether somebody asked since an attempt began."""
        ...


def certificate_text(issued: IssuedCertificate) -> bytes:
    as_profile = f" as {issued.profile}" if issued.profile else ""
    return f"# from {issued.directory}{as_profile}\n{key_pem(issued.key)}".encode() + issued.chain


def certificate_in(raw: bytes) -> IssuedCertificate:
    """Raises `ValueError`."""
    origin = _ORIGIN.match(raw[:8192].decode("latin-1"))
    chain = _CHAIN.search(raw)
    if origin is None or chain is None:
        raise ValueError("no certificate with its key")
    key = key_of(raw[: chain.start()].decode("ascii"))
    try:
        facts = checked(chain[0], key, ())
    except BadChain as problem:
        raise ValueError(f"the certificate {problem}") from None
    return IssuedCertificate(
        facts=facts, directory=origin[1], profile=origin[2] or "", chain=chain[0], key=key
    )
