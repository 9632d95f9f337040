"""Keeps a certificate: gets the first one, renews each before a third of its life is left, revokes what must not be used any more, and
says how it stands. One task; what goes wrong in it ends nothing, and the certificate of before is served meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from random import random
from typing import Any, Final

import msgspec
import trio

from server.certificates.acme_accounts import Accounts
from server.certificates.acme_authority import Authority
from server.certificates.acme_exchange import AsksAuthority
from server.certificates.certificate_order import Ordering, Wanted
from server.certificates.certificate_state import CLOCK_SECONDS, CertificateState, TroubleState
from server.certificates.certificate_troubles import CertificateTrouble
from server.certificates.kept_certificates import (
    CannotKeep,
    IssuedCertificate,
    KeepsCertificates,
    KeptRest,
    KeptRevocation,
)
from server.certificates.name_proofs import Proofs
from server.certificates.signed_requests import ExternalAccount, Signer
from server.certificates.x509_certificates import BadChain, der_of, key_of
from server.lib.log.logger import Logger

# Of its life, when it is renewed at the latest; each certificate at a moment of its own, so that authorities are not asked by all at once.
RENEW_FROM: Final = 0.60
RENEW_UNTIL: Final = 0.66
# Clocks are set, and machines sleep: what is due is looked at again after so long.
LOOK_SECONDS: Final = 600.0
# How often the authority is asked when it would like to see it renewed (RFC 9773 §4.3.2), where it does not say.
SUGGESTION_SECONDS: Final = 6 * 3600.0
SUGGESTION_AT_LEAST: Final = 3600.0
SUGGESTION_AT_MOST: Final = 86_400.0
# After the first failure, the second …; five of an hour are what Let's Encrypt allows for a name.
PAUSES: Final = (60.0, 300.0, 600.0, 1200.0, 2400.0, 3600.0, 7200.0, 14_400.0, 21_600.0)
# What only its owner can put right, or time: asked for less often from the start.
RARE_SECONDS: Final = 3600.0
# Of a certificate each; there are more where an authority refuses to revoke any.
MOST_REVOCATIONS: Final = 16
_RARE: Final = frozenset(
    {"rateLimited", "externalAccountRequired", "userActionRequired", "rejectedIdentifier", "caa", "files"}
)


class CertificatePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is wanted. `ways`: how names can be proved here, tried in turn."""

    names: tuple[str, ...]
    directory: str
    ways: tuple[str, ...]
    profile: str = ""
    contact: tuple[str, ...] = ()


class CertificateKeeper:
    """`begin`, then `run` for as long as the server listens. Times are seconds since 1970, but for pauses, which nobody can set back."""

    def __init__(
        self,
        plan: CertificatePlan,
        kept: KeepsCertificates,
        proofs: Proofs,
        ask: AsksAuthority,
        log: Logger,
        *,
        take: Callable[[IssuedCertificate], object],
        eab: Callable[[], ExternalAccount | None] = lambda: None,
        clock: Callable[[], float] = time.time,
        spread: Callable[[], float] = random,
    ) -> None:
        """`take` has this certificate served from now on, and raises `CannotKeep`."""
        self._plan = plan
        self._kept = kept
        self._proofs = proofs
        self._ask = ask
        self._log = log
        self._take = take
        self._clock = clock
        self._spread = spread
        self._accounts = Accounts(kept, log, contact=plan.contact, eab=eab)
        self._issued: IssuedCertificate | None = None
        self._suggested: float | None = None  # by the authority, of the certificate that is served
        self._ask_again_at = 0.0  # for a suggestion, on trio's clock
        self._rests_until = 0.0  # after a failure, on trio's clock
        self._failures = 0
        self._forced = False
        self._owed = False  # in the attempt that is under way: somebody asked for it, and it is not there yet
        self._revocations: tuple[KeptRevocation, ...] = ()
        self._wake = trio.Event()
        self.state = CertificateState(names=plan.names, authority=plan.directory)

    # ── for others ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def begin(self) -> None:
        """Serve what there is. Raises `CannotKeep`."""
        await self._read_revocations()
        issued = await self._kept.certificate()
        if issued is not None:
            self._serve(issued)
        rest = await self._kept.rest()
        left = 0.0 if rest is None else rest.until - self._clock()
        if (
            rest is not None
            and left > 0
            and (rest.directory, rest.names) == (self._plan.directory, self._plan.names)
        ):
            self._rests_until = trio.current_time() + left
            self.state.trouble = TroubleState(
                kind="rateLimited",
                words=rest.words,
                hint=rest.hint,
                since=self._clock(),
                again_at=rest.until,
                attempts=0,
            )

    async def renew(self) -> int:
        """As `hurry`, for whoever does not know who gets certificates."""
        return self.hurry()

    def hurry(self) -> int:
        """A new certificate with a new key, now. → how many attempts will be over when this one is."""
        self._forced = True
        self._rests_until = 0.0
        self._wake.set()
        return self.state.attempts + (2 if self.state.doing == "getting" else 1)

    async def revoke(self, reason: int, *, at_once: bool) -> int:
        """What is served is replaced and revoked; `at_once`: revoked even before there is another. As `hurry`.

        Raises `CannotKeep`, and `LookupError` where there is none."""
        issued = self._issued
        if issued is None:
            raise LookupError("there is no certificate")
        if len(self._revocations) >= MOST_REVOCATIONS:
            raise too_many(self.note())
        await self._keep_revocation(issued.revocation(reason, at_once=at_once))
        return self.hurry()

    @property
    def has_one(self) -> bool:
        return self._issued is not None

    def described(self) -> dict[str, Any]:
        return self.state.described()

    def note(self) -> str:
        """One line for whoever looks at /readyz; empty where all is well."""
        return self.state.note(self._now())

    # ── the one task ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self) -> None:
        while True:
            wait = self._seconds_left()
            if wait <= 0:
                await self._attempt()
                continue
            with trio.move_on_after(min(wait, LOOK_SECONDS)):
                await self._wake.wait()
            self._wake = trio.Event()
            if not self._forced and self._issued is not None and trio.current_time() >= self._ask_again_at:
                await self._ask_for_suggestion()

    def _now(self) -> float:
        """By the authority's clock, where ours is far from it."""
        return self._clock() + self.state.ahead_seconds

    def _seconds_left(self) -> float:
        """Until something is to be done."""
        rest = self._rests_until - trio.current_time()
        if self._forced or self._revocations or self._wanted_anew():
            return rest
        assert self.state.renews_at is not None
        return max(rest, self.state.renews_at - self._now())

    def _wanted_anew(self) -> bool:
        """Whether what is served, if anything, will not do however long it is good for."""
        issued = self._issued
        return (
            issued is None
            or any(each.fingerprint == issued.facts.fingerprint for each in self._revocations)
            or (issued.directory, issued.profile) != (self._plan.directory, self._plan.profile)
            or not {*self._plan.names} <= {name.lower() for name in issued.facts.names}
        )

    def _due_at(self, issued: IssuedCertificate) -> float:
        facts = issued.facts
        share = int(facts.fingerprint[:8], 16) / 2**32
        latest = facts.not_before + facts.lifetime * (RENEW_FROM + (RENEW_UNTIL - RENEW_FROM) * share)
        return latest if self._suggested is None else min(latest, self._suggested)

    async def _attempt(self) -> None:
        state = self.state
        state.doing, self._forced, self._owed = "getting", False, self._forced
        try:
            if await self._kept.attempting(state):
                self._owed, self._forced = True, False
                await self._read_revocations()
            await self._carry_out()
        except CertificateTrouble as problem:
            await self._failed(problem)
        except CannotKeep as problem:
            await self._failed(CertificateTrouble("files", str(problem), hint=problem.hint))
        except Exception as error:  # a bug of ours must not end what is served
            self._log.error("certificate.crashed", exc_info=error)
            await self._failed(
                CertificateTrouble("bug", "an error of our own", hint="the log has the details")
            )
        else:
            self._failures, state.trouble, self._owed = 0, None, False
        finally:
            # What somebody asked for is tried until it is done.
            self._forced = self._forced or self._owed
            state.doing = "waiting"
            state.attempts += 1
        await self._tell()

    async def _tell(self) -> None:
        try:
            if await self._kept.attempted(self.state):
                self.hurry()
        except CannotKeep as problem:
            self._log.warning("certificate.not_told", reason=str(problem))

    async def _carry_out(self) -> None:
        authority = await self._begun(self._plan.directory)
        refused = await self._revoke_what_is_free()
        # The authority's clock may have shown that it is not yet time.
        due = self.state.renews_at is not None and self.state.renews_at <= self._now()
        if self._owed or due or self._wanted_anew():
            await self._renew(authority)
            refused = await self._revoke_what_is_free()
        if refused is not None:
            raise refused

    async def _renew(self, authority: Authority) -> None:
        issued = self._issued
        replaces = ""
        if issued is not None and authority.directory.renewal_info and issued.directory == authority.url:
            replaces = issued.facts.renewal_id
        wanted = Wanted(
            names=self._plan.names,
            profile=self._plan.profile,
            way=self._plan.ways[self._failures % len(self._plan.ways)],
            replaces=replaces,
        )
        self._log.info(
            "certificate.wanted", names=list(wanted.names), authority=authority.url, way=wanted.way
        )
        fresh = await self._accounts.doing(
            authority, lambda signer: Ordering(authority, signer, self._kept, self._proofs).obtain(wanted)
        )
        self._serve(fresh)
        self._owed = False
        if await self._kept.rest() is not None:
            await self._kept.keep_rest(None)
        self._log.info(
            "certificate.obtained",
            names=list(fresh.facts.names),
            issuer=fresh.facts.issuer,
            good_days=round((fresh.facts.not_after - self._now()) / 86_400, 1),
            renewed_in_days=round(((self.state.renews_at or 0.0) - self._now()) / 86_400, 1),
        )

    async def _begun(self, url: str) -> Authority:
        authority = Authority(self._ask, url, clock=self._clock)
        await authority.begin()
        self._compare_clocks(authority.ahead_seconds)
        return authority

    def _compare_clocks(self, ahead: float) -> None:
        differs = ahead if abs(ahead) > CLOCK_SECONDS else 0.0
        if bool(differs) != bool(self.state.ahead_seconds):
            tell = self._log.warning if differs else self._log.info
            tell("certificate.clock_differs", behind_seconds=round(differs))
        self.state.ahead_seconds = differs

    def _serve(self, issued: IssuedCertificate) -> None:
        """Raises `CannotKeep`."""
        self._take(issued)
        self._issued, self._suggested, self._ask_again_at = issued, None, 0.0
        self.state.serving = issued.facts
        self.state.renews_at = self._due_at(issued)
        self._rests_until = 0.0

    async def _failed(self, problem: CertificateTrouble) -> None:
        self._failures += 1
        pause = PAUSES[min(self._failures, len(PAUSES)) - 1]
        if problem.kind in _RARE:
            pause = max(pause, RARE_SECONDS)
        pause = max(pause * (0.9 + 0.2 * self._spread()), problem.wait_seconds or 0.0)
        self._rests_until = trio.current_time() + pause
        now, before, serving = self._clock(), self.state.trouble, self.state.serving
        self.state.trouble = TroubleState(
            kind=problem.kind,
            words=str(problem),
            hint=problem.hint,
            since=now if before is None else before.since,
            again_at=now + pause,
            attempts=self._failures,
        )
        good = serving is not None and serving.not_after > self._now()
        (self._log.warning if good else self._log.error)(
            "certificate.failed",
            reason=str(problem),
            hint=problem.hint,
            again_in_seconds=round(pause),
            served_days=round((serving.not_after - self._now()) / 86_400, 1) if serving and good else 0,
        )
        if problem.kind == "rateLimited":
            rest = KeptRest(
                directory=self._plan.directory,
                names=self._plan.names,
                until=now + pause,
                words=str(problem),
                hint=problem.hint,
            )
            try:
                await self._kept.keep_rest(rest)
            except CannotKeep as error:
                self._log.warning("certificate.not_kept", reason=str(error))

    # ── when, and what no longer ─────────────────────────────────────────────────────────────────────────────────────

    async def _ask_for_suggestion(self) -> None:
        """RFC 9773 §4: it may know of a reason to renew that is not in the certificate, such as that it must revoke it."""
        issued, again = self._issued, SUGGESTION_AT_MOST
        assert issued is not None
        try:
            authority = await self._begun(self._plan.directory)
            if authority.directory.renewal_info and issued.facts.renewal_id:
                info, told = await authority.renewal_info(issued.facts.renewal_id)
                window = info.suggested_window
                start, end = window.start.timestamp(), window.end.timestamp()
                if self._suggested is None or not start <= self._suggested <= end:
                    self._suggested = start + max(0.0, end - start) * self._spread()
                again = min(max(told or SUGGESTION_SECONDS, SUGGESTION_AT_LEAST), SUGGESTION_AT_MOST)
                self.state.renews_at = self._due_at(issued)
                await self._tell()
        except CertificateTrouble as problem:
            # The certificate is good without a suggestion.
            self._log.debug("certificate.no_suggestion", reason=str(problem))
            again = SUGGESTION_SECONDS
        self._ask_again_at = trio.current_time() + again

    async def _revoke_what_is_free(self) -> CertificateTrouble | CannotKeep | None:
        """What is served no more; or is, and must not be waited for. → what kept one from being revoked: that keeps no certificate from
        being renewed, and no other from being revoked."""
        refused: CertificateTrouble | CannotKeep | None = None
        for revocation in self._revocations:
            replaced = self._issued is None or self._issued.facts.fingerprint != revocation.fingerprint
            try:
                if not revocation.done and (replaced or revocation.at_once):
                    await self._revoke(revocation)
                if replaced:
                    await self._keep_revocations(
                        [each for each in self._revocations if each.fingerprint != revocation.fingerprint]
                    )
            except (CertificateTrouble, CannotKeep) as problem:
                refused = refused or problem
        return refused

    async def _revoke(self, revocation: KeptRevocation) -> None:
        authority = await self._begun(revocation.directory)
        try:
            content, own = der_of(revocation.chain.encode()), Signer(key_of(revocation.key))
        except (BadChain, ValueError):
            raise CannotKeep(
                "the certificate that is to be revoked cannot be read", hint="move acme/revocations.json away"
            ) from None
        revoke = partial(authority.revoke, content, revocation.reason)
        # Whoever has its key may revoke it as well, also when the account is gone.
        account = await self._accounts.known(authority) or own
        try:
            try:
                await revoke(account)
            except CertificateTrouble as refused:
                if refused.kind not in ("unauthorized", "accountDoesNotExist", "badRevocationReason"):
                    raise
                await revoke(own)
        except CertificateTrouble as refused:
            if refused.kind != "alreadyRevoked":
                raise
        self._log.warning("certificate.revoked", fingerprint=revocation.fingerprint, reason=revocation.reason)
        await self._keep_revocation(msgspec.structs.replace(revocation, done=True))

    async def _read_revocations(self) -> None:
        self._revocations = await self._kept.revocations()
        self._say_what_is_revoked()

    async def _keep_revocation(self, revocation: KeptRevocation) -> None:
        """Beside those of other certificates."""
        others = [each for each in self._revocations if each.fingerprint != revocation.fingerprint]
        await self._keep_revocations([*others, revocation])

    async def _keep_revocations(self, revocations: Sequence[KeptRevocation]) -> None:
        await self._kept.keep_revocations(revocations)
        self._revocations = tuple(revocations)
        self._say_what_is_revoked()

    def _say_what_is_revoked(self) -> None:
        self.state.revoking = ", ".join(each.fingerprint for each in self._revocations)


def too_many(note: str) -> CannotKeep:
    """`note`: how it stands, for why none of them is done."""
    return CannotKeep(
        f"{MOST_REVOCATIONS} certificates wait to be revoked already", hint=note or "look at the log"
    )
