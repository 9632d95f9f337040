"""A certificate authority, as it is spoken to: its directory, its numbers used once, our account there, and the requests that it takes
(RFC 8555 §6, §7). Their order is certificate_order.py's, and their time certificate_keeper.py's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, Final, TypeVar

from auth.jose.base64url import pack
from server.certificates.acme_exchange import AsksAuthority
from server.certificates.acme_messages import (
    AcmeAccount,
    AcmeProblem,
    Directory,
    RenewalInfo,
    problem_in,
    understood,
)
from server.certificates.certificate_troubles import CertificateTrouble, shortened, trouble
from server.certificates.signed_requests import ExternalAccount, Signer
from server.lib.http_client.http_client import HttpAnswer

# A number is used up by whoever is faster, or was kept too long: the next one comes with the refusal.
NONCE_TRIES: Final = 8
# Longer than any limit of an authority: Let's Encrypt's longest window is a week.
LONGEST_WAIT_SECONDS: Final = 8 * 86_400.0

Told = TypeVar("Told")


class Authority:
    """One conversation, of one attempt. All methods raise `CertificateTrouble`, and are cancelled at will."""

    def __init__(self, ask: AsksAuthority, url: str, *, clock: Callable[[], float]) -> None:
        """Prepare to ask; `clock` is this machine's, in seconds since 1970."""
        self.url = url
        self._ask = ask
        self._clock = clock
        self._nonce = ""
        # How far the authority's clock is ahead of ours, as of its last answer.
        self.ahead_seconds = 0.0
        self.directory: Directory

    async def begin(self) -> None:
        """Fetch the directory, before everything else."""
        reply = await self._exchange(self.url, None)
        if reply.status != 200:
            raise self._refusal(reply)
        self.directory = understood(reply.body, Directory)

    async def account(self, signer: Signer, *, contact: Sequence[str], eab: ExternalAccount | None) -> Signer:
        """Return the signer with the address of its account, which is made if there is none (§7.3)."""
        meta, url = self.directory.meta, self.directory.new_account
        if meta.external_account_required and eab is None:
            raise trouble("externalAccountRequired", "")
        payload: dict[str, Any] = {"termsOfServiceAgreed": True}
        if contact:
            payload["contact"] = list(contact)
        if eab is not None:
            try:
                payload["externalAccountBinding"] = eab.binding(url, signer.key)
            except ValueError:
                raise CertificateTrouble(
                    "externalAccountRequired",
                    "the key of eab_key in [acme] is not what an authority gives out: it is not base64url",
                    hint="copy it again from your account at the authority",
                ) from None
        reply = await self.post(url, payload, Signer(signer.key))
        if understood(reply.body, AcmeAccount).status != "valid":
            raise trouble("unauthorized", "its status is not valid")
        location = reply.header(b"location")
        if not location:
            raise CertificateTrouble("unreadable", "the certificate authority gave the account no address")
        return Signer(signer.key, location)

    async def renewal_info(self, certificate_id: str) -> tuple[RenewalInfo, float | None]:
        """Return when the authority would like it renewed, and when to ask again (RFC 9773 §4.1). The request is not signed."""
        reply = await self._exchange(f"{self.directory.renewal_info.rstrip('/')}/{certificate_id}", None)
        if reply.status != 200:
            raise self._refusal(reply)
        return understood(reply.body, RenewalInfo), self._seconds(reply)

    async def revoke(self, certificate_der: bytes, reason: int, signer: Signer) -> None:
        """Revoke a certificate (§7.6) by the account that got it, or by its own key."""
        payload = {"certificate": pack(certificate_der), "reason": reason}
        await self.post(self.directory.revoke_cert, payload, signer)

    async def look(self, url: str, shape: type[Told], signer: Signer) -> tuple[Told, float | None]:
        """Return what is at an address of ours (POST-as-GET, §6.3), and when to ask again."""
        reply = await self.post(url, None, signer)
        return understood(reply.body, shape), self._seconds(reply)

    async def post(
        self, url: str, payload: Mapping[str, Any] | None, signer: Signer, *, accept: str = ""
    ) -> HttpAnswer:
        """Return the answer, where it is a good one."""
        for last in (*[False] * (NONCE_TRIES - 1), True):
            nonce = await self._take_nonce()
            reply = await self._exchange(url, signer.sealed(url, nonce, payload), accept)
            if 200 <= reply.status < 300:
                return reply
            refusal = self._refusal(reply)
            # §6.5: the refusal brings a fresh one.
            if refusal.kind != "badNonce" or last:
                raise refusal
        raise AssertionError("the last try returns or raises")

    async def _take_nonce(self) -> str:
        nonce, self._nonce = self._nonce, ""
        if not nonce:
            reply = await self._exchange(self.directory.new_nonce, None)
            nonce, self._nonce = self._nonce, ""
            if reply.status >= 300 or not nonce:
                raise self._refusal(reply)
        return nonce

    async def _exchange(self, url: str, body: bytes | None, accept: str = "") -> HttpAnswer:
        reply = await self._ask(url, body, accept)
        self._nonce = reply.header(b"replay-nonce") or self._nonce
        told = _moment(reply.header(b"date"))
        if told is not None:
            self.ahead_seconds = told - self._clock()
        return reply

    def _refusal(self, reply: HttpAnswer) -> CertificateTrouble:
        problem = problem_in(reply.body)
        kind = problem.kind
        if reply.status == 429:
            kind = "rateLimited"
        elif reply.status >= 500 or kind == "about:blank":
            kind = "serverInternal" if reply.status >= 500 else f"status {reply.status}"
        said = _said(problem)
        return trouble(kind, said, name=_name_in(problem), wait_seconds=self._seconds(reply))

    def _seconds(self, reply: HttpAnswer) -> float | None:
        """Read Retry-After (RFC 9110 §10.2.3): seconds, or a date of the authority's clock."""
        retry_after = reply.header(b"retry-after")
        if retry_after.isascii() and retry_after.isdigit() and len(retry_after) < 10:
            return min(float(retry_after), LONGEST_WAIT_SECONDS)
        moment = _moment(retry_after)
        if moment is None:
            return None
        return min(max(0.0, moment - self._clock() - self.ahead_seconds), LONGEST_WAIT_SECONDS)


def _moment(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp() if text else None
    except (ValueError, TypeError, OverflowError):
        return None


def _said(problem: AcmeProblem) -> str:
    parts = [problem.detail, *(each.detail for each in problem.subproblems[:3])]
    return shortened("; ".join(part for part in parts if part))


def _name_in(problem: AcmeProblem) -> str:
    """Return the host name that a problem is about, where it says so of one."""
    names = {each.identifier.value for each in problem.subproblems}
    return names.pop()[:253] if len(names) == 1 else ""
