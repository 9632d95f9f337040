"""Exchanges with an authority over HTTPS, each bounded; what they mean is acme_authority.py's. A connection serves one exchange: hours lie
between two renewals, and during one the authority is asked a dozen times.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit

import msgspec
import trio

from server.certificates.certificate_troubles import CertificateTrouble
from server.lib.http_client.failures import BadCertificate, DeadlinePassed, FetchFailed
from server.lib.http_client.fetch import Fetcher

# A chain of certificates has some 6 KiB, and an order of 100 names some 20.
ANSWER_BYTES: Final = 512 * 1024
SECONDS: Final = 30.0
JOSE: Final = "application/jose+json"


class AcmeReply(msgspec.Struct, frozen=True, kw_only=True):
    status: int
    body: bytes = b""
    media_type: str = ""
    nonce: str = ""
    location: str = ""
    retry_after: str = ""
    date: str = ""


class AsksAuthority(Protocol):
    """One exchange. Raises `CertificateTrouble` where there was no answer."""

    async def __call__(self, url: str, body: bytes | None, accept: str = "") -> AcmeReply:
        """`body` None: GET."""
        ...


class AuthorityWire:
    """Implements `AsksAuthority`."""

    def __init__(self, ca_file: Path | None) -> None:
        """`ca_file`: the certificates by which the authority itself is known; None: the system's."""
        self._ca_file = ca_file

    async def __call__(self, url: str, body: bytes | None, accept: str = "") -> AcmeReply:
        # §6.1: everything with an authority is https, whatever an address says that it gave itself.
        if urlsplit(url).scheme != "https":
            raise CertificateTrouble(
                "unreadable", "the certificate authority gave an address that is not https"
            )
        headers = [("Accept", accept)] if accept else []
        if body is not None:
            headers.append(("Content-Type", JOSE))
        try:
            # Reads the authorities' certificates from disk.
            fetcher = await trio.to_thread.run_sync(self._fetcher, url)
            try:
                async with fetcher.send(
                    "GET" if body is None else "POST",
                    body or b"",
                    headers=headers,
                    deadline=trio.current_time() + SECONDS,
                    limit=ANSWER_BYTES,
                ) as answer:
                    return AcmeReply(
                        status=answer.status,
                        body=await answer.read(),
                        media_type=answer.media_type,
                        nonce=answer.header(b"replay-nonce"),
                        location=answer.header(b"location"),
                        retry_after=answer.header(b"retry-after"),
                        date=answer.header(b"date"),
                    )
            finally:
                await fetcher.aclose()
        except DeadlinePassed:
            raise _unreachable(url, "does not answer in time") from None
        except BadCertificate as problem:
            raise CertificateTrouble(
                "untrusted",
                f"the certificate authority at {urlsplit(url).hostname} {problem}",
                hint="is this machine's clock right, and its list of authorities (ca-certificates) there? a private authority: `ca_file` in [acme]",
            ) from None
        except FetchFailed as problem:
            raise _unreachable(url, str(problem)) from None
        except ValueError as problem:
            raise CertificateTrouble(
                "unreadable", f"the certificate authority gave an address that cannot be used: {problem}"
            ) from None

    def _fetcher(self, url: str) -> Fetcher:
        return Fetcher(url, connections=1, ca_file=self._ca_file)


def _unreachable(url: str, why: str) -> CertificateTrouble:
    return CertificateTrouble(
        "unreachable",
        f"the certificate authority at {urlsplit(url).hostname} {why}",
        hint="this machine must reach it over https: look at its network, DNS and proxy settings",
    )
