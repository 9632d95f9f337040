"""Our account at an authority: its key is kept before the account is made, so that no crash leaves one behind that nobody can use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from auth.jose import es256
from server.certificates.acme_authority import Authority
from server.certificates.certificate_troubles import CertificateTrouble
from server.certificates.kept_certificates import CannotKeep, KeepsCertificates, KeptAccount
from server.certificates.signed_requests import ExternalAccount, Signer
from server.lib.log.logger import Logger

Done = TypeVar("Done")

# About nobody's name, these are about the account.
_NOT_KNOWN: Final = frozenset({"accountDoesNotExist", "unauthorized"})


class Accounts:
    """Everything raises `CertificateTrouble` and `CannotKeep`."""

    def __init__(
        self,
        kept: KeepsCertificates,
        log: Logger,
        *,
        contact: Sequence[str],
        eab: Callable[[], ExternalAccount | None],
    ) -> None:
        """`eab` is read when an account is made. May raise `CertificateTrouble`."""
        self._kept = kept
        self._log = log
        self._contact = contact
        self._eab = eab

    async def doing(self, authority: Authority, work: Callable[[Signer], Awaitable[Done]]) -> Done:
        """`work` as our account; where that is gone, as a new one, once."""
        signer, fresh = await self._signer(authority)
        try:
            return await work(signer)
        except CertificateTrouble as refused:
            if fresh or refused.name or refused.kind not in _NOT_KNOWN:
                raise
        self._log.warning("certificate.account_gone", account=signer.account)
        await self._keep(authority, Signer(signer.key))
        signer, _ = await self._signer(authority)
        return await work(signer)

    async def known(self, authority: Authority) -> Signer | None:
        """The account, if there is one."""
        kept = await self._kept.account(authority.url)
        return Signer(_key(kept), kept.url) if kept is not None and kept.url else None

    async def _signer(self, authority: Authority) -> tuple[Signer, bool]:
        """Our account there, and whether the authority has just said that it is good."""
        kept = await self._kept.account(authority.url)
        if kept is not None and kept.url:
            return Signer(_key(kept), kept.url), False
        signer = Signer(es256.generate() if kept is None else _key(kept))
        if kept is None:
            await self._keep(authority, signer)
        make = partial(authority.account, contact=self._contact, eab=self._eab())
        try:
            made = await make(signer)
        except CertificateTrouble as refused:
            # §7.3.6: an account that was closed stays so, and with it its key.
            if kept is None or refused.kind != "unauthorized":
                raise
            signer = Signer(es256.generate())
            await self._keep(authority, signer)
            made = await make(signer)
        await self._keep(authority, made)
        self._log.info(
            "certificate.account_made",
            authority=authority.url,
            account=made.account,
            terms=authority.directory.meta.terms_of_service[:500],
        )
        return made, True

    async def _keep(self, authority: Authority, signer: Signer) -> None:
        kept = KeptAccount(url=signer.account, jwk=es256.private_jwk(signer.key))
        await self._kept.keep_account(authority.url, kept)


def _key(kept: KeptAccount) -> es256.PrivateKey:
    try:
        return kept.key()
    except (ValueError, KeyError):
        raise CannotKeep(
            "the key of the account at the certificate authority cannot be read",
            hint="move acme/account.json away: a new account is made then",
        ) from None
