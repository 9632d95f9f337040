"""Exchanges with a certificate authority over HTTPS, each bounded; acme_authority.py reads what they mean. A connection serves one exchange:
hours lie between two renewals, and during one the authority is asked a dozen times.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit

from server.certificates.certificate_troubles import CertificateTrouble
from server.lib.http_client.failures import (
    BadCertificate,
    FetchFailed,
    NoTrust,
    UnusableAddress,
)
from server.lib.http_client.http_client import HttpAnswer, exchange_once

# A chain of certificates has some 6 KiB, and an order of 100 names some 20.
ANSWER_BYTES: Final = 512 * 1024
SECONDS: Final = 30.0
JOSE: Final = "application/jose+json"


class AsksAuthority(Protocol):
    """One exchange. `CertificateTrouble` is raised where there was no answer."""

    async def __call__(self, url: str, body: bytes | None, accept: str = "") -> HttpAnswer:
        """Send `body` by POST, or a GET where it is None."""
        ...


class AuthorityWire:
    """An `AsksAuthority`."""

    def __init__(self, ca_file: Path | None) -> None:
        """Prepare to ask. The authority itself is known by the certificates in `ca_file`, else by those of the system."""
        self._ca_file = ca_file

    async def __call__(self, url: str, body: bytes | None, accept: str = "") -> HttpAnswer:
        # §6.1: everything with an authority is https, whatever an address says that it gave itself.
        if urlsplit(url).scheme != "https":
            raise CertificateTrouble(
                "unreadable", "the certificate authority gave an address that is not https"
            )
        headers = ({"Accept": accept} if accept else {}) | ({} if body is None else {"Content-Type": JOSE})
        try:
            return await exchange_once(
                "GET" if body is None else "POST",
                url,
                headers=headers,
                body=body or b"",
                limit=ANSWER_BYTES,
                seconds=SECONDS,
                ca_file=self._ca_file,
            )
        except BadCertificate as problem:
            raise CertificateTrouble(
                "untrusted",
                f"the certificate authority at {urlsplit(url).hostname} {problem}",
                hint="is this machine's clock right, and its list of authorities (ca-certificates) there? a private authority: `ca_file` in [acme]",
            ) from None
        except NoTrust as problem:
            raise CertificateTrouble("untrusted", str(problem)) from None
        except UnusableAddress as problem:
            raise CertificateTrouble("unreadable", f"the certificate authority {problem}") from None
        except FetchFailed as problem:
            raise _unreachable(url, str(problem)) from None


def _unreachable(url: str, why: str) -> CertificateTrouble:
    return CertificateTrouble(
        "unreachable",
        f"the certificate authority at {urlsplit(url).hostname} {why}",
        hint="this machine must reach it over https: look at its network, DNS and proxy settings",
    )
