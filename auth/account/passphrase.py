"""Changing one's passphrase: the present one is asked for, throttled like a sign-in, and all other browsers are signed out."""

from __future__ import annotations

from functools import partial
from typing import Final, Literal

import msgspec

from auth import audit
from auth.account import notices
from auth.device.code_entry import sign_in_then
from auth.pages import redirect
from auth.people import proving, sessions, users
from auth.people.sessions import BrowserSession, cookie_from, set_cookie
from auth.people.users import CountedGuess, Throttled, UnfitEntry
from auth.values.db import Db
from auth.values.model import Millis
from auth.values.requester import Requester
from auth.values.wire import WireReply
from auth.visit import PageVisit

PURPOSE: Final = "account passphrase"
WRONG: Final = "That is not your present passphrase. Nothing was changed."


class PassphraseSection(msgspec.Struct, frozen=True):
    has_one: bool


async def look(visit: PageVisit, session: BrowserSession) -> PassphraseSection:
    del visit
    return PassphraseSection(has_one=session.user.passphrase_hash is not None)


async def show(visit: PageVisit) -> WireReply:
    session = await visit.session()
    if session is None:
        return redirect(sign_in_then("/account"))
    return _form(visit.of(session), session, problem="")


async def change(visit: PageVisit) -> WireReply:
    session = await visit.session()
    if session is None:
        return redirect(sign_in_then("/account"))
    visit = visit.of(session)
    if not visit.shows(PURPOSE):
        return visit.stale_form()
    again = partial(_form, visit, session)
    if session.user.passphrase_hash is None:  # nothing to ask for but another proof
        asked = await proving.ask(visit, session, "to set a passphrase")
        if asked is not None:
            return asked
        if "new_passphrase" not in visit.form:  # what was typed is not carried through the page that asks
            return again(problem="")
    wanted = users.fit_passphrase(visit.form.get("new_passphrase", ""))
    if isinstance(wanted, UnfitEntry):
        return again(problem=wanted.sentence)
    if wanted != users.fit_passphrase(visit.form.get("new_passphrase_again", "")):
        return again(problem="The two new passphrases differ. Type both again.")

    admitted: CountedGuess | None = None
    if session.user.passphrase_hash is not None:
        present = users.fit_passphrase(visit.form.get("passphrase", ""))
        if isinstance(present, UnfitEntry):
            return again(problem=WRONG)
        tried = await visit.parts.store.write(
            partial(users.admit_again, user_id=session.user.id, who=visit.who, now=visit.now)
        )
        if isinstance(tried, Throttled):
            return visit.too_many(tried.until, back=("/account", "Back"))
        admitted = tried
        if not await visit.parts.hashing.verify_passphrase(present, tried.passphrase_hash):
            await visit.parts.store.write(
                partial(
                    users.conclude,
                    admitted=tried,
                    matched=False,
                    event="user.passphrase_changed",
                    who=visit.who,
                    now=visit.now,
                )
            )
            return again(problem=WRONG)

    hashed = await visit.parts.hashing.hash_passphrase(wanted, visit.parts.entropy(users.SALT_BYTES))
    cookie = cookie_from(visit.parts.entropy(sessions.COOKIE_BYTES))
    outcome = await visit.parts.store.write(
        partial(
            change_passphrase,
            admitted=admitted,
            passphrase_hash=hashed,
            cookie=cookie,
            replaces=visit.cookie,
            who=visit.who,
            now=visit.parts.clock(),
        )
    )
    match outcome:
        case "changed":
            reply = notices.back("passphrase-changed")
            return redirect(
                dict(reply.headers)["location"], headers=(set_cookie(cookie, visit.secure, keep=True),)
            )
        case "wrong":
            return again(problem=WRONG)
        case "signed out":
            return redirect(sign_in_then("/account"))


def change_passphrase(
    db: Db,
    *,
    admitted: CountedGuess | None,
    passphrase_hash: str,
    cookie: str,
    replaces: str,
    who: Requester,
    now: Millis,
) -> Literal["changed", "wrong", "signed out"]:
    """A job: everything once more, then the new passphrase, and a new cookie for the only browser that stays signed in."""
    session = sessions.find(db, replaces, now)
    if session is None:
        return "signed out"
    user = session.user
    if admitted is not None:
        proven = users.conclude(db, admitted, matched=True, event="user.proven_again", who=who, now=now)
        if proven is None or proven.id != user.id:
            return "wrong"
    elif user.passphrase_hash is not None or not proving.lately(session, now):
        return "wrong"
    db.execute("UPDATE users SET passphrase_hash = ? WHERE id = ?", passphrase_hash, user.id)
    sessions.end_all(db, user.id)
    sessions.begin(db, cookie=cookie, replaces=replaces, user_id=user.id, who=who, now=now)
    db.changed("user", user.id)
    audit.record(
        db,
        at=now,
        event="user.passphrase_changed",
        actor=audit.actor(user.id),
        ip=who.ip,
        user_agent=who.user_agent,
    )
    return "changed"


def _form(visit: PageVisit, session: BrowserSession, *, problem: str) -> WireReply:
    has_one = session.user.passphrase_hash is not None
    return visit.page(
        "passphrase.html",
        title="Change your passphrase" if has_one else "Set a passphrase",
        status=400 if problem else 200,
        form_token=visit.token(PURPOSE),
        account=session.user.name,
        has_one=has_one,
        problem=problem,
    )
