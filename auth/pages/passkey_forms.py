"""Offers by which pages ask for a passkey, and what their forms bring: for sign-in, one-time links and the page You.

The steps that answer those forms are in passkey_pages.py, pages/sign_in_page.py, pages/server_claim_page.py and pages/invitation_pages.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import msgspec

from auth.pages import reauthentication_proof
from auth.pages.html_shell import ago, day
from auth.pages.page_visit import PageVisit
from auth.people import passkeys, webauthn_ceremony
from auth.people.browser_names import browser_name
from auth.people.browser_sessions import BrowserSession
from auth.people.passkeys import Passkey, PasskeyToAdd
from auth.people.webauthn_ceremony import NoPasskeys, PasskeyNotBelieved

FORM: Final = "account passkeys"
TOO_SLOW: Final = "That took too long, or came from another page. Try once more."


@dataclass(frozen=True, kw_only=True, slots=True)
class PasskeyOffer:
    """A page may ask for a passkey; `link` is the one-time link's token where there is no account yet."""

    token: str = field(repr=False)
    link: str = field(default="", repr=False)


def link_offer(visit: PageVisit, token: str) -> PasskeyOffer | NoPasskeys:
    """Make an offer for the pages of one-time links."""
    here = webauthn_ceremony.party(visit.parts.site, visit.request.origin)
    return (
        here
        if isinstance(here, NoPasskeys)
        else PasskeyOffer(token=visit.token(reauthentication_proof.FORM), link=token)
    )


async def sign_in_offer(visit: PageVisit) -> PasskeyOffer | None:
    """Make an offer for the sign-in page, only where somebody has a passkey for this name."""
    here = webauthn_ceremony.party(visit.parts.site, visit.request.origin)
    if isinstance(here, NoPasskeys):
        return None
    known = await visit.read(passkeys.any_for, rp_id=here.rp_id)
    return PasskeyOffer(token=visit.token(reauthentication_proof.FORM)) if known else None


# ---------------------------------------------------------------- a new one


def new_passkey(visit: PageVisit, user_id: str) -> PasskeyToAdd | str:
    """Read the one that the form brings for this account, or return a sentence for the person."""
    here = webauthn_ceremony.party(visit.parts.site, visit.request.origin)
    if isinstance(here, NoPasskeys):
        return here.sentence
    question = webauthn_ceremony.asked(
        visit.parts.subkey(passkeys.KEY_PURPOSE),
        visit.form.get("ticket", ""),
        cookie=visit.cookie,
        purpose="register",
        user_id=user_id,
        now=visit.now,
    )
    if question is None:
        return TOO_SLOW
    made = webauthn_ceremony.verify_registration(visit.form.get("credential", ""), here, question)
    if isinstance(made, PasskeyNotBelieved):
        return "This passkey cannot be used here. Try another one."
    return PasskeyToAdd(
        user_id=user_id,
        made=made,
        question=question,
        name=browser_name(visit.who.user_agent),
    )


class PasskeyRow(msgspec.Struct, frozen=True, kw_only=True):
    passkey: Passkey
    used: str
    added: str
    here: bool  # it works at the name that this page was opened by
    last: bool  # without it there would be no way in


@dataclass(frozen=True, kw_only=True, slots=True)
class PasskeySection:
    rows: tuple[PasskeyRow, ...]
    form_token: str = field(repr=False)
    full: bool
    why_not: str  # why none can be added here
    elsewhere: str  # the origin at which one can


async def look(visit: PageVisit, session: BrowserSession) -> PasskeySection:
    here = webauthn_ceremony.party(visit.parts.site, visit.request.origin)
    mine = await visit.read(passkeys.of_user, user_id=session.user.id)
    rp_id = "" if isinstance(here, NoPasskeys) else here.rp_id
    has_passphrase = session.user.passphrase_hash is not None
    return PasskeySection(
        rows=tuple(
            PasskeyRow(
                passkey=each,
                used="never used"
                if each.last_used_at is None
                else f"last used {ago(each.last_used_at, visit.now)}",
                added=day(each.created_at),
                here=each.rp_id == rp_id,
                last=not has_passphrase
                and not any(other is not each and other.rp_id == each.rp_id for other in mine),
            )
            for each in mine
        ),
        form_token=visit.token(FORM),
        full=len(mine) >= passkeys.PER_USER,
        why_not=here.sentence if isinstance(here, NoPasskeys) else "",
        elsewhere=here.elsewhere if isinstance(here, NoPasskeys) else "",
    )
