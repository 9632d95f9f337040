"""The change of one's passphrase: the present one is asked for, throttled like a sign-in, and all other browsers are signed out."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal

import msgspec

from auth.audit import audit_trail
from auth.context.identity_parts import HashingBusy
from auth.pages import navigation, reauthentication, reauthentication_proof
from auth.pages.html_shell import redirect
from auth.pages.page_visit import PageVisit, sign_in_then, signed_in
from auth.people import browser_sessions, user_accounts
from auth.people.browser_sessions import BrowserSession, NewSession
from auth.people.user_accounts import CountedGuess, Throttled, UnfitEntry
from auth.values import sealed_rows
from auth.values.database import Db
from auth.values.http_messages import WireReply

PURPOSE: Final = "account passphrase"
WRONG: Final = "That is not your present passphrase. Nothing was changed."


class PassphraseSection(msgspec.Struct, frozen=True):
    has_one: bool


async def look(visit: PageVisit, session: BrowserSession) -> PassphraseSection:
    del visit
    return PassphraseSection(has_one=session.user.passphrase_hash is not None)


@signed_in(navigation.YOU)
async def show(visit: PageVisit, session: BrowserSession) -> WireReply:
    return _form(visit, session, problem="")


@signed_in(navigation.YOU, PURPOSE)
async def change(visit: PageVisit, session: BrowserSession) -> WireReply:
    again = partial(_form, visit, session)
    if session.user.passphrase_hash is None:  # nothing to ask for but another proof
        asked = await reauthentication.ask(visit, session, "to set a passphrase")
        if asked is not None:
            return asked
        if "new_passphrase" not in visit.form:  # what was typed is not carried through the page that asks
            return again(problem="")
    wanted = user_accounts.fit_passphrase(visit.form.get("new_passphrase", ""))
    if isinstance(wanted, UnfitEntry):
        return again(problem=wanted.sentence, about="new_passphrase")
    if wanted != user_accounts.fit_passphrase(visit.form.get("new_passphrase_again", "")):
        return again(problem=user_accounts.DIFFER, about="new_passphrase_again")

    present: str | None = None
    if session.user.passphrase_hash is not None:
        typed = user_accounts.fit_passphrase(visit.form.get("passphrase", ""))
        if isinstance(typed, UnfitEntry):
            return again(problem=WRONG, about="passphrase")
        present = typed
    try:
        hashed = await _hashed(visit, session, present, wanted)
    except HashingBusy:
        return visit.hashing_busy(back=(navigation.YOU, "Back"))
    if isinstance(hashed, Throttled):
        return visit.too_many(hashed.until, back=(navigation.YOU, "Back"))
    if hashed.new is None:
        return again(problem=WRONG, about="passphrase")
    fresh = visit.new_session()
    match await visit.write(
        change_passphrase, admitted=hashed.admitted, passphrase_hash=hashed.new, fresh=fresh
    ):
        case "changed":
            return visit.lead_on(f"{navigation.YOU}?did=passphrase-changed", fresh)
        case "wrong":
            return again(problem=WRONG, about="passphrase")
        case "signed out":
            return redirect(sign_in_then(navigation.YOU))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Hashed:
    admitted: CountedGuess | None  # at the present one; None: there is none to ask for
    new: str | None = field(repr=False)  # None: that was not the present one


async def _hashed(
    visit: PageVisit, session: BrowserSession, present: str | None, wanted: str
) -> _Hashed | Throttled:
    """Hash the new passphrase, if the present one was right, in one turn. Raise `HashingBusy`."""
    hashing, admitted = visit.parts.hashing, None
    with hashing.place(first=True) as place:
        if present is not None:
            tried = await reauthentication_proof.weighed(visit, session, present, place)
            if isinstance(tried, Throttled):
                return tried
            admitted = tried.admitted
            if not tried.matched:
                await visit.write(
                    user_accounts.conclude,
                    admitted=admitted,
                    matched=False,
                    event="user.passphrase_changed",
                    who=visit.who,
                    now=visit.now,
                )
                return _Hashed(admitted=admitted, new=None)
        await place.turn()
        salt = visit.parts.entropy(user_accounts.SALT_BYTES)
        return _Hashed(admitted=admitted, new=await hashing.hash_passphrase(wanted, salt))


def change_passphrase(
    db: Db, *, admitted: CountedGuess | None, passphrase_hash: str, fresh: NewSession
) -> Literal["changed", "wrong", "signed out"]:
    """Check everything once more, as a job; then set the passphrase, and sign in anew the only browser that stays signed in."""
    who, now = fresh.who, fresh.now
    session = browser_sessions.find(db, fresh.replaces, now)
    if session is None:
        return "signed out"
    user = session.user
    if admitted is not None:
        proven = user_accounts.conclude(
            db, admitted, matched=True, event="user.proven_again", who=who, now=now
        )
        if proven is None or proven.id != user.id:
            return "wrong"
    elif user.passphrase_hash is not None or not reauthentication.lately(session, now):
        return "wrong"
    browser_sessions.end_all(db, user.id)
    sealed_rows.update(db, sealed_rows.USERS, user.id, {"passphrase_hash": passphrase_hash})
    fresh.begin(db, user.id)
    db.changed("user", user.id)
    audit_trail.record(db, now, "user.passphrase_changed", actor=audit_trail.actor(user.id), who=who)
    return "changed"


def _form(visit: PageVisit, session: BrowserSession, *, problem: str, about: str = "") -> WireReply:
    has_one = session.user.passphrase_hash is not None
    return visit.page(
        "passphrase.html",
        title="Change your passphrase" if has_one else "Set a passphrase",
        status=400 if problem else 200,
        form_token=visit.token(PURPOSE),
        account=session.user.name,
        has_one=has_one,
        problem=problem,
        about=about,
    )
