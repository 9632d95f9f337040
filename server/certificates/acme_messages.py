"""What an authority says, as values (RFC 8555 §7.1, §6.7, RFC 9773 §4.2). Fields that are not used here are passed over."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, TypeVar

import msgspec

from server.certificates.certificate_troubles import CertificateTrouble

ERROR_PREFIX: Final = "urn:ietf:params:acme:error:"

Told = TypeVar("Told")


class AuthorityMeta(msgspec.Struct, frozen=True, rename="camel"):
    terms_of_service: str = ""
    external_account_required: bool = False


class Directory(msgspec.Struct, frozen=True, rename="camel"):
    new_nonce: str
    new_account: str
    new_order: str
    revoke_cert: str
    renewal_info: str = ""
    meta: AuthorityMeta = AuthorityMeta()


class AcmeIdentifier(msgspec.Struct, frozen=True):
    type: str = "dns"
    value: str = ""


class Subproblem(msgspec.Struct, frozen=True):
    type: str = "about:blank"
    detail: str = ""
    identifier: AcmeIdentifier = AcmeIdentifier()


class AcmeProblem(msgspec.Struct, frozen=True):
    """§6.7. `kind` is the type without what all of them begin with."""

    type: str = "about:blank"
    detail: str = ""
    status: int = 0
    subproblems: tuple[Subproblem, ...] = ()

    @property
    def kind(self) -> str:
        return self.type.removeprefix(ERROR_PREFIX)


class AcmeChallenge(msgspec.Struct, frozen=True):
    type: str
    url: str
    status: str = "pending"
    token: str = ""
    error: AcmeProblem | None = None


class AcmeAuthorization(msgspec.Struct, frozen=True):
    identifier: AcmeIdentifier
    status: str
    challenges: tuple[AcmeChallenge, ...] = ()


class CertificateOrder(msgspec.Struct, frozen=True):
    status: str
    authorizations: tuple[str, ...] = ()
    finalize: str = ""
    certificate: str = ""
    error: AcmeProblem | None = None


class AcmeAccount(msgspec.Struct, frozen=True):
    status: str = "valid"


# RFC 3339 has an offset always; without one it would be a moment of this machine's, and some of those there are not.
Moment = Annotated[datetime, msgspec.Meta(tz=True)]


class SuggestedWindow(msgspec.Struct, frozen=True):
    start: Moment
    end: Moment


class RenewalInfo(msgspec.Struct, frozen=True, rename="camel"):
    suggested_window: SuggestedWindow


def understood(body: bytes, shape: type[Told]) -> Told:
    """Raises `CertificateTrouble`."""
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise CertificateTrouble(
            "unreadable",
            "the certificate authority answered with something that is not ACME",
            hint="is `directory` in [acme] the address of an ACME directory?",
        ) from None


def problem_in(body: bytes) -> AcmeProblem:
    """What an error says of itself; nothing, where it is somebody else's error page."""
    try:
        return msgspec.json.decode(body, type=AcmeProblem)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return AcmeProblem()
