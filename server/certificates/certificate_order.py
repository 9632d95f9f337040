"""One certificate, from the order to the chain (RFC 8555 §7.4, §7.5): begun or taken up where it was left, each name proved, the rest
waited for within bounds. A failure says why, and by which name.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
import trio

from server.certificates.acme_authority import Authority
from server.certificates.acme_messages import (
    AcmeAuthorization,
    AcmeChallenge,
    AcmeProblem,
    CertificateOrder,
    understood,
)
from server.certificates.certificate_troubles import HTTP, TLS_ALPN, CertificateTrouble, trouble
from server.certificates.kept_certificates import IssuedCertificate, KeepsCertificates, KeptOrder
from server.certificates.name_proofs import Proofs
from server.certificates.signed_requests import Signer
from server.certificates.x509_certificates import BadChain, checked, key_of, key_pem, new_key, request_for
from server.lib.shortened import short_name

# An authority looks from several places, and may have a queue.
PROOF_SECONDS: Final = 180.0
ISSUE_SECONDS: Final = 180.0
# Between two questions, where the authority does not say.
ASK_AGAIN_SECONDS: Final = 2.0
ASK_AGAIN_AT_MOST: Final = 30.0
# RFC 8555 §8.1: base64url, of at least 128 bits.
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{16,256}")
PEM_CHAIN: Final = "application/pem-certificate-chain"
# An authority that was here once found something else then at another address of the name.
_AT_THE_NAME: Final = frozenset({"unauthorized", "incorrectResponse", "connection", "dns", "tls"})
# What an order that is no more is answered with; some authorities say 403.
_GONE: Final = frozenset({"status 404", "status 410", "malformed", "unauthorized", "notFound", "status 403"})


Waiting = TypeVar("Waiting", AcmeAuthorization, CertificateOrder)


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """An order. `way` is how names are proved, `replaces` the certificate whose place it takes (RFC 9773 §5)."""

    names: tuple[str, ...]
    profile: str = ""
    way: str = TLS_ALPN
    replaces: str = ""


class Ordering:
    """The order of one attempt. Methods raise `CertificateTrouble` and `CannotKeep`; a cancelled one is taken up by the next attempt."""

    def __init__(
        self, authority: Authority, account: Signer, kept: KeepsCertificates, proofs: Proofs
    ) -> None:
        self._authority = authority
        self._account = account
        self._kept = kept
        self._proofs = proofs

    async def obtain(self, wanted: Wanted) -> IssuedCertificate:
        kept = await self._taken_up(wanted) or await self._begun(wanted)
        try:
            chain = await self._carried_out(kept, wanted)
            key = key_of(kept.key)
            facts = checked(chain, key, wanted.names)
        except BadChain as problem:
            await self._forget()
            raise CertificateTrouble(
                "unreadable",
                f"the certificate that the authority gave {problem}",
                hint="it is tried again by itself",
            ) from None
        issued = IssuedCertificate(
            facts=facts, directory=self._authority.url, profile=wanted.profile, chain=chain, key=key
        )
        await self._kept.keep_certificate(issued)
        await self._forget()
        return issued

    async def _taken_up(self, wanted: Wanted) -> KeptOrder | None:
        """Return an order of before that is still good."""
        kept = await self._kept.order()
        if kept is None:
            return None
        same = (kept.directory, kept.account, kept.names, kept.profile) == (
            self._authority.url,
            self._account.account,
            wanted.names,
            wanted.profile,
        )
        try:
            # After a crash it may be that of what is served: that one is finished, and its key is used once.
            if same and not await self._is_served(kept.key):
                order, _ = await self._authority.look(kept.url, CertificateOrder, self._account)
                if order.status != "invalid":
                    return kept
        except CertificateTrouble as refused:
            if refused.kind not in _GONE:
                raise
        await self._forget()
        return None

    async def _is_served(self, key: str) -> bool:
        issued = await self._kept.certificate()
        return issued is not None and key_pem(issued.key) == key

    async def _begun(self, wanted: Wanted) -> KeptOrder:
        payload: dict[str, Any] = {"identifiers": [{"type": "dns", "value": name} for name in wanted.names]}
        if wanted.profile:
            payload["profile"] = wanted.profile
        more: Mapping[str, Any] = {"replaces": wanted.replaces} if wanted.replaces else {}
        url = self._authority.directory.new_order
        try:
            reply = await self._authority.post(url, {**payload, **more}, self._account)
        except CertificateTrouble as refused:
            # RFC 9773 §5: it replaces nothing that another order replaces already, or that is not this account's. Where the authority
            # does not find it (yet), that is an error of its own.
            if not more or refused.kind in ("rateLimited", "unreachable"):
                raise
            reply = await self._authority.post(url, payload, self._account)
        understood(reply.body, CertificateOrder)
        location = reply.header(b"location")
        if not location:
            raise CertificateTrouble("unreadable", "the certificate authority gave the order no address")
        kept = KeptOrder(
            url=location,
            directory=self._authority.url,
            account=self._account.account,
            names=wanted.names,
            profile=wanted.profile,
            key=key_pem(new_key()),
        )
        await self._kept.keep_order(kept)
        return kept

    async def _carried_out(self, kept: KeptOrder, wanted: Wanted) -> bytes:
        order, _ = await self._authority.look(kept.url, CertificateOrder, self._account)
        if order.status == "pending":
            await self._prove(order, wanted)
            order = await self._settled(kept.url, "pending")
        if order.status == "ready":
            request = {"csr": request_for(kept.names, key_of(kept.key))}
            await self._authority.post(order.finalize, request, self._account)
            order = await self._settled(kept.url, "ready", "processing")
        elif order.status == "processing":
            order = await self._settled(kept.url, "processing")
        if order.status != "valid" or not order.certificate:
            await self._forget()
            problem = order.error or AcmeProblem()
            raise trouble(problem.kind, problem.detail)
        reply = await self._authority.post(order.certificate, None, self._account, accept=PEM_CHAIN)
        return reply.body

    async def _prove(self, order: CertificateOrder, wanted: Wanted) -> None:
        way = wanted.way
        if len(order.authorizations) > len(wanted.names):
            raise _strange("more to be proved than was ordered")
        async with self._proofs.shown():
            under_way: list[tuple[str, str, str]] = []
            for url in order.authorizations:
                authorization, _ = await self._authority.look(url, AcmeAuthorization, self._account)
                name = authorization.identifier.value.lower()
                if name not in wanted.names:
                    raise _strange(f"{short_name(name)!r} to be proved, which was not ordered")
                if authorization.status == "valid":
                    continue
                challenge = _challenge(authorization, way)
                if challenge is None:
                    raise CertificateTrouble(
                        "no way",
                        f"the certificate authority wants {name} proved in another way than {way}",
                        hint="http_port = 80 gives it a second one"
                        if way == TLS_ALPN
                        else "let port 443 of the name lead here",
                    )
                if _TOKEN.fullmatch(challenge.token) is None:
                    raise _strange("a proof with a token that is none")
                authorized = self._account.key_authorization(challenge.token)
                await self._proofs.show(challenge.type, name, challenge.token, authorized)
                if challenge.status == "pending":
                    await self._authority.post(challenge.url, {}, self._account)
                under_way.append((url, name, challenge.type))
            for url, name, proved in under_way:
                await self._proved(url, name, proved)

    async def _proved(self, url: str, name: str, way: str) -> None:
        slow = CertificateTrouble(
            "slow", f"the certificate authority has not looked at {name} within {PROOF_SECONDS:.0f} seconds",
            hint="it is tried again by itself",
        )  # fmt: skip
        waits = ("pending", "processing")
        authorization = await self._looked_at(url, AcmeAuthorization, waits, PROOF_SECONDS, slow)
        if authorization.status != "valid":
            await self._forget()
            raise self._why(authorization, name, way)

    def _why(self, authorization: AcmeAuthorization, name: str, way: str) -> CertificateTrouble:
        errors = [each.error for each in authorization.challenges if each.error is not None]
        problem = errors[0] if errors else AcmeProblem(type=authorization.status)
        found = trouble(problem.kind, problem.detail, name=name, way=way)
        if self._proofs.was_seen(name) and problem.kind in _AT_THE_NAME:
            found.hint += "; somebody did reach this server under that name, so it may be one of several addresses that is wrong"
        return found

    async def _settled(self, url: str, *waits: str) -> CertificateOrder:
        slow = CertificateTrouble(
            "slow", f"the certificate authority has not finished the order within {ISSUE_SECONDS:.0f} seconds",
            hint="the same order is taken up again by itself",
        )  # fmt: skip
        return await self._looked_at(url, CertificateOrder, waits, ISSUE_SECONDS, slow)

    async def _looked_at(
        self, url: str, shape: type[Waiting], waits: Collection[str], seconds: float, slow: CertificateTrouble
    ) -> Waiting:
        """Look at an address until what is there waits no more. Raise `slow` if it does after so long."""
        with trio.move_on_after(seconds):
            while True:
                found, again = await self._authority.look(url, shape, self._account)
                if found.status not in waits:
                    return found
                await trio.sleep(_pause(again))
        raise slow

    async def _forget(self) -> None:
        await self._kept.keep_order(None)


def _challenge(authorization: AcmeAuthorization, way: str) -> AcmeChallenge | None:
    return next((each for each in authorization.challenges if each.type == way and each.token), None)


def _strange(what: str) -> CertificateTrouble:
    return CertificateTrouble(
        "unreadable",
        f"the certificate authority wants {what}",
        hint="is `directory` in [acme] the right one?",
    )


def _pause(again: float | None) -> float:
    return min(max(ASK_AGAIN_SECONDS if again is None else again, 0.5), ASK_AGAIN_AT_MOST)


def ways(http_port: int) -> Sequence[str]:
    """Return how names can be proved here, the first way first."""
    return (TLS_ALPN,) if http_port < 0 else (TLS_ALPN, HTTP)
