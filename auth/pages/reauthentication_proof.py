"""A proof of who one is, once more, inside a form of a signed-in page: with a passphrase or with a passkey.

`offer` says what the page can ask for, `given` reads what came and does what is slow, `conclude` is the part of the job that
believes it. Which acts need it, and how old a proof may be, is decided where the act is (pages/device_decision.py, reauthentication.py, consent).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from auth.context.identity_parts import HashingBusy, HashPlace
from auth.pages.page_visit import BUSY_MS, PageVisit
from auth.people import browser_sessions, passkeys, user_accounts, webauthn_ceremony
from auth.people.browser_sessions import BrowserSession
from auth.people.passkeys import PasskeyAttempt
from auth.people.user_accounts import CountedGuess, Throttled, UnfitEntry, User
from auth.people.webauthn_ceremony import NoPasskeys, PasskeyAnswer, PasskeyChallenge, PasskeyNotBelieved
from auth.values.database import Db
from auth.values.identity_model import Millis
from auth.values.requester import Requester

EVENT: Final = "user.proven_again"
FORM: Final = "passkey"  # what the token that a page's script sends along is for
# Not those of a passkey that is being added: a page that asks for proof repeats the form that it interrupts.
TICKET: Final = "proof_ticket"
CREDENTIAL: Final = "proof_credential"
FIELDS: Final = frozenset({"passphrase", TICKET, CREDENTIAL})


@dataclass(frozen=True, kw_only=True, slots=True)
class ProofOffer:
    """The ways in which this person can prove it here. If there is none, `why_not` says where they can."""

    passphrase: bool
    passkey: bool
    why_not: str
    token: str = field(repr=False)


async def offer(visit: PageVisit, session: BrowserSession) -> ProofOffer:
    here = webauthn_ceremony.party(visit.parts.site, visit.request.origin)
    passkey, why_not = False, ""
    if isinstance(here, NoPasskeys):
        why_not = here.sentence
    else:
        passkey = bool(await visit.read(passkeys.usable, user_id=session.user.id, rp_id=here.rp_id))
    return ProofOffer(
        passphrase=session.user.passphrase_hash is not None,
        passkey=passkey,
        why_not=why_not,
        token=visit.token(FORM),
    )


def scripted(visit: PageVisit, wanted: bool = True) -> PageVisit:
    """Let the page of a visit run the script that talks to authenticators."""
    return replace(visit, frame=replace(visit.frame, script=wanted))


# ---------------------------------------------------------------- what came


class ByPassphrase(msgspec.Struct, frozen=True, kw_only=True):
    admitted: CountedGuess
    matched: bool


class ByPasskey(msgspec.Struct, frozen=True, kw_only=True):
    candidate: PasskeyAttempt
    assertion: PasskeyAnswer
    verified: int | PasskeyNotBelieved
    question: PasskeyChallenge

    def conclude(
        self, db: Db, *, event: str, who: Requester, now: Millis, user_id: str | None = None
    ) -> User | None:
        return passkeys.conclude(
            db,
            self.candidate,
            assertion=self.assertion,
            verified=self.verified,
            question=self.question,
            event=event,
            who=who,
            now=now,
            user_id=user_id,
        )


Given = ByPassphrase | ByPasskey


class NoProof(msgspec.Struct, frozen=True):
    """A form without a proof. No try was counted."""


def is_given(visit: PageVisit) -> bool:
    return any(visit.form.get(name) for name in FIELDS)


async def given(visit: PageVisit, session: BrowserSession) -> Given | NoProof | Throttled:
    """Read the proof that the form holds, counted as a try and weighed, not believed yet."""
    if visit.form.get(CREDENTIAL):
        return await by_passkey(
            visit, "confirm", session.user.id, visit.form.get(TICKET, ""), visit.form[CREDENTIAL]
        )
    passphrase = user_accounts.fit_passphrase(visit.form.get("passphrase", ""))
    if isinstance(passphrase, UnfitEntry):
        return NoProof()
    try:
        with visit.parts.hashing.place(first=True) as place:
            return await weighed(visit, session, passphrase, place)
    except HashingBusy:
        return Throttled(until=visit.now + BUSY_MS)


async def weighed(
    visit: PageVisit, session: BrowserSession, passphrase: str, place: HashPlace
) -> ByPassphrase | Throttled:
    """Weigh a passphrase, counted as a try, by somebody who has a place in the queue."""
    admitted = await visit.write(
        user_accounts.admit_again, user_id=session.user.id, who=visit.who, now=visit.now
    )
    if isinstance(admitted, Throttled):
        return admitted
    await place.turn()
    matched = await visit.parts.hashing.verify_passphrase(passphrase, admitted.passphrase_hash)
    return ByPassphrase(admitted=admitted, matched=matched)


async def by_passkey(
    visit: PageVisit, purpose: webauthn_ceremony.Purpose, user_id: str | None, ticket: str, answer: str
) -> ByPasskey | NoProof | Throttled:
    """Weigh what a passkey answered; `NoProof` if it answers no question of ours that is still open, or cannot be read."""
    here = webauthn_ceremony.party(visit.parts.site, visit.request.origin)
    question = webauthn_ceremony.asked(
        visit.parts.subkey(passkeys.KEY_PURPOSE),
        ticket,
        cookie=visit.cookie,
        purpose=purpose,
        user_id=user_id,
        now=visit.now,
    )
    assertion = webauthn_ceremony.read_assertion(answer)
    if isinstance(here, NoPasskeys) or question is None or isinstance(assertion, PasskeyNotBelieved):
        return NoProof()
    candidate = await visit.write(
        _admit, once_more=user_id is not None, assertion=assertion, who=visit.who, now=visit.now
    )
    if isinstance(candidate, Throttled):
        return candidate
    verified: int | PasskeyNotBelieved = PasskeyNotBelieved("unknown passkey")
    if candidate.passkey is not None:
        verified = webauthn_ceremony.verify_assertion(assertion, here, question, candidate.passkey.public_key)
    return ByPasskey(candidate=candidate, assertion=assertion, verified=verified, question=question)


def _admit(
    db: Db, *, once_more: bool, assertion: PasskeyAnswer, who: Requester, now: Millis
) -> PasskeyAttempt | Throttled:
    if once_more:
        db.takes_away()  # or what follows does, as in `user_accounts.admit_again`
    return passkeys.admit(db, assertion=assertion, who=who, now=now)


def conclude(db: Db, proof: Given, *, session: BrowserSession, who: Requester, now: Millis) -> bool:
    """Tell, as part of a job, whether it was this person; then the session's proof is as young as can be."""
    match proof:
        case ByPassphrase():
            user = user_accounts.conclude(
                db, proof.admitted, matched=proof.matched, event=EVENT, who=who, now=now
            )
        case ByPasskey():
            user = proof.conclude(db, event=EVENT, who=who, now=now, user_id=session.user.id)
    if user is None or user.id != session.user.id:
        return False
    browser_sessions.proven_again(db, session, now)
    return True
