"""Pages of passkeys: questions for authenticators, signing in with one, adding and removing one's own.

The browser's half is templates/passkey.js, the only script there is: it fetches a question, has it answered, puts the answer
into a hidden field and sends the form that it stands in. Rules are in auth/people/webauthn_ceremony.py and auth/people/passkeys.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from auth.pages import account_notices, navigation, reauthentication, reauthentication_proof, sign_in_page
from auth.pages.html_shell import redirect
from auth.pages.page_visit import PageVisit, sign_in_then, signed_in
from auth.pages.passkey_forms import FORM, TOO_SLOW, PasskeyOffer, new_passkey
from auth.pages.reauthentication_proof import ByPasskey, NoProof
from auth.people import browser_sessions, one_time_links, passkeys, user_accounts, webauthn_ceremony
from auth.people.browser_names import browser_name
from auth.people.browser_sessions import BrowserSession, NewSession
from auth.people.passkeys import NotAdded, PasskeyAdded, PasskeyToAdd
from auth.people.user_accounts import Throttled
from auth.people.webauthn_ceremony import NoPasskeys, Purpose, RelyingParty
from auth.values.compact_json import json_bytes
from auth.values.database import Db
from auth.values.http_messages import WireReply
from auth.values.identity_model import Millis
from auth.values.requester import Requester

DID_NOT_WORK: Final = "That passkey was not accepted. Try again, or use another way to sign in."
# ---------------------------------------------------------------- questions


class _Subject(msgspec.Struct, frozen=True, kw_only=True):
    """The person who is asked."""

    user_id: str | None
    name: str = ""
    known: tuple[str, ...] = ()


async def options(visit: PageVisit) -> WireReply:
    """Return the question for `for`, as JSON for the script, and write nothing: a question that nobody answers leaves no trace."""
    if not visit.shows(reauthentication_proof.FORM):
        return _json(403, {"problem": "This page is out of date. Load it again."})
    here = webauthn_ceremony.party(visit.parts.site, visit.request.origin)
    if isinstance(here, NoPasskeys):
        return _json(400, {"problem": here.sentence})
    wanted = visit.form.get("for", "")
    purpose: Purpose = "sign_in" if wanted == "sign_in" else "confirm" if wanted == "confirm" else "register"
    subject = await _subject(visit, wanted, here)
    if subject is None:
        return _json(400, {"problem": "This page is out of date. Load it again."})
    question = webauthn_ceremony.ask(
        visit.parts.subkey(passkeys.KEY_PURPOSE),
        cookie=visit.cookie,
        purpose=purpose,
        user_id=subject.user_id,
        entropy=visit.parts.entropy(webauthn_ceremony.NONCE_BYTES),
        now=visit.now,
    )
    if purpose == "register" and subject.user_id is not None:
        asked = webauthn_ceremony.creation_options(
            question, here, user_id=subject.user_id, name=subject.name, known=subject.known
        )
    else:
        asked = webauthn_ceremony.request_options(question, here, known=subject.known)
    return _json(200, {"ticket": question.ticket, "publicKey": asked})


async def _subject(visit: PageVisit, wanted: str, here: RelyingParty) -> _Subject | None:
    read = visit.read
    match wanted:
        case "sign_in":
            return _Subject(user_id=None)
        case "confirm" | "add":
            session = await visit.session()
            if session is None:
                return None
            user = session.user
            known = await read(passkeys.usable, user_id=user.id, rp_id=here.rp_id)
            return _Subject(user_id=user.id, name=user.name, known=known)
        case "claim" | "invite":
            kind = one_time_links.CLAIM if wanted == "claim" else one_time_links.INVITE
            token = visit.form.get("link", "")
            link = await read(one_time_links.find, kind=kind, token=token, now=visit.now)
            if link is None:
                return None
            found = await read(user_accounts.find, user_id=link.user_id)
            chosen = visit.form.get("name", "") if wanted == "claim" else ""
            name = user_accounts.fit_name(chosen or (found.name if found is not None else ""))
            return _Subject(user_id=link.user_id, name=name if isinstance(name, str) else "owner")
        case _:
            return None


def _json(status: int, value: Mapping[str, Any]) -> WireReply:
    return WireReply(
        status=status,
        headers=(
            ("content-type", "application/json"),
            ("cache-control", "no-store"),
            ("x-content-type-options", "nosniff"),
        ),
        body=json_bytes(value),
    )


# ---------------------------------------------------------------- signing in


async def sign_in(visit: PageVisit) -> WireReply:
    if not visit.shows("signin"):
        return visit.stale_form()
    landing = sign_in_page.landing_of(visit.form.get("next", ""))
    answer, ticket = visit.form.get("credential", ""), visit.form.get("ticket", "")
    given = await reauthentication_proof.by_passkey(visit, "sign_in", None, ticket, answer)
    if isinstance(given, NoProof):
        return await sign_in_page.form(visit, landing, name="", problem=TOO_SLOW)
    if isinstance(given, Throttled):
        return visit.too_many(given.until, back=("/signin", "Back to sign in"))
    fresh = visit.new_session()
    if not await visit.write(_conclude, given=given, fresh=fresh):
        return await sign_in_page.form(visit, landing, name="", problem=DID_NOT_WORK)
    return visit.lead_on(landing, fresh)


def _conclude(db: Db, *, given: ByPasskey, fresh: NewSession) -> bool:
    user = given.conclude(db, event="user.signed_in", who=fresh.who, now=fresh.now)
    if user is not None:
        fresh.begin(db, user.id)
    return user is not None


# ---------------------------------------------------------------- one's own, on You


async def come_again(visit: PageVisit) -> WireReply:
    """Answer a reload of the page below, to which a proof led: the way there begins on You."""
    del visit
    return redirect("/account")


@signed_in(navigation.YOU, FORM)
async def begin(visit: PageVisit, session: BrowserSession) -> WireReply:
    """Show the page on which a passkey is named and made, to somebody who has just proven themselves."""
    asked = await reauthentication.ask(visit, session, "to add a passkey")
    return asked if asked is not None else _new_page(visit, problem="")


def _new_page(visit: PageVisit, *, problem: str) -> WireReply:
    return reauthentication_proof.scripted(visit).page(
        "passkey_new.html",
        title="Add a passkey",
        status=400 if problem else 200,
        form_token=visit.token(FORM),
        offer=PasskeyOffer(token=visit.token(reauthentication_proof.FORM)),
        name=visit.form.get("passkey_name", browser_name(visit.who.user_agent))[: passkeys.NAME_CHARACTERS],
        problem=problem,
    )


@signed_in(navigation.YOU, FORM)
async def add(visit: PageVisit, session: BrowserSession) -> WireReply:
    if not reauthentication.lately(session, visit.now):
        return visit.stale_form()
    new = new_passkey(visit, session.user.id)
    if isinstance(new, str):
        return _new_page(visit, problem=new)
    added = await visit.write(
        _add,
        cookie=visit.cookie,
        new=replace(new, name=visit.form.get("passkey_name", "")),
        who=visit.who,
        now=visit.parts.clock(),
    )
    match added:
        case PasskeyAdded():
            return account_notices.back(visit, navigation.YOU, "passkey-added")
        case NotAdded():
            return _new_page(visit, problem=added.sentence)
        case None:
            return redirect(sign_in_then(navigation.YOU))


def _add(
    db: Db, *, cookie: str, new: PasskeyToAdd, who: Requester, now: Millis
) -> PasskeyAdded | NotAdded | None:
    session = browser_sessions.find(db, cookie, now)
    if session is None or not reauthentication.lately(session, now):
        return None
    return passkeys.add(db, new, who=who, now=now) if session.user.id == new.user_id else None


@signed_in(navigation.YOU, FORM)
async def remove(visit: PageVisit, session: BrowserSession) -> WireReply:
    asked = await reauthentication.ask(visit, session, "to remove a passkey")
    if asked is not None:
        return asked
    outcome = await visit.write(
        _remove,
        cookie=visit.cookie,
        credential_id=visit.form.get("passkey", ""),
        who=visit.who,
        now=visit.parts.clock(),
    )
    did = "gone" if outcome is None else f"passkey-{outcome}"
    return account_notices.back(visit, navigation.YOU, did)


def _remove(
    db: Db, *, cookie: str, credential_id: str, who: Requester, now: Millis
) -> Literal["removed", "last"] | None:
    session = browser_sessions.find(db, cookie, now)
    if session is None or not reauthentication.lately(session, now):
        return None
    return passkeys.remove(db, user=session.user, credential_id=credential_id, who=who, now=now)
