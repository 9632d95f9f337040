"""One person, for the owner: what they may, and the acts that change it, each a command of the terminal (`ostiary users`).

All of it wants a proof that is younger than a quarter of an hour; what cannot be undone is asked about on a page of its own before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from auth.administration import guest_accounts
from auth.administration.guest_accounts import ListedPerson
from auth.pages import navigation, reauthentication
from auth.pages.page_visit import PageVisit
from auth.people import one_time_links, user_accounts
from auth.people.browser_sessions import BrowserSession
from auth.people.user_accounts import User
from auth.values import scopes
from auth.values.database import Db
from auth.values.http_messages import WireReply
from auth.values.identity_model import Millis
from server.admin.control import CommandRefused
from server.console.owner import scope_choices, terms_form
from server.console.owner.people_page import (
    PURPOSE,
    PeoplePages,
    sentence,
    show_link,
    state_of,
    to_people,
    told,
    wide,
)
from server.console.owner.terms_form import TermsForm


class _Act(NamedTuple):
    words: str  # on its button
    tells: str  # beside it: what it does
    why: str  # ends "Show once more that it is you, …"; `{}` is the person
    states: tuple[str, ...]  # of the account, in which it can be done
    did: str = ""  # what the page says then; "": it shows a link
    sure: str = ""  # what is said before it is done, where it cannot be undone


ACTS: Final[Mapping[str, _Act]] = MappingProxyType(
    {
        "resend": _Act(
            "Make a new link",
            "A fresh link to send; the one before stops working.",
            "to send {} another link",
            ("invited",),
        ),
        "uninvite": _Act(
            "End the invitation",
            "Its link stops working, and the name is free again.",
            "to end {}’s invitation",
            ("invited",),
            "invitation-ended",
        ),
        "disable": _Act(
            "Disable",
            "Pauses its logins, keys and browsers until it is enabled again.",
            "to disable {}’s account",
            ("enabled",),
            "person-disabled",
        ),
        "enable": _Act(
            "Enable",
            "What was paused goes on.",
            "to enable {}’s account",
            ("disabled",),
            "person-enabled",
        ),
        "reset": _Act(
            "Make a reset link",
            "For a passphrase that was forgotten. Whoever opens it chooses a new one; programs stay logged in.",
            "to let {} choose a new passphrase",
            ("enabled",),
        ),
        "lock": _Act(
            "Lock",
            "For an account in the wrong hands. Ends its logins, keys and browsers, and forgets passphrase and passkeys.",
            "to lock {}’s account",
            ("enabled", "disabled"),
            "person-locked",
            "All logins, keys and browsers of {} end, and passphrase and passkeys are forgotten.",
        ),
        "unlock": _Act(
            "Unlock, and make a reset link",
            "Opens it again. The link is the only way in then.",
            "to unlock {}’s account",
            ("locked",),
        ),
        "remove": _Act(
            "Remove",
            "Ends everything that it let in, and forgets the account.",
            "to remove {}’s account",
            ("enabled", "disabled", "locked", "over", "altered"),
            "person-removed",
            "Everything that {} let in ends, and the account is forgotten. The audit trail keeps what it did.",
        ),
    }
)
# Acts that go by another name in the terminal.
_COMMANDS: Final = {"resend": "reset", "uninvite": "remove"}
# Those whose answer is a link: one that somebody else was given meanwhile ends by it.
_LINKS: Final = frozenset(("resend", "reset"))
_CHANGED: Final = frozenset(("enabled", "invited", "disabled", "over"))  # accounts whose bounds can be


class ActButton(msgspec.Struct, frozen=True, kw_only=True):
    act: str
    words: str
    tells: str


class PersonPages:
    def __init__(self, people: PeoplePages) -> None:
        self._people = people
        self._parts = people.parts

    async def show(self, visit: PageVisit, session: BrowserSession, user_id: str) -> WireReply:
        person = await self._find(visit, user_id)
        return _nobody(visit) if person is None else await self._page(visit, session, person)

    async def change(self, visit: PageVisit, session: BrowserSession, user_id: str) -> WireReply:
        """Set other bounds, those that the form says."""
        person = await self._find(visit, user_id)
        if not visit.shows(PURPOSE):
            return visit.stale_form()
        if person is None:
            return _nobody(visit)
        name = person.user.name
        read = terms_form.read(
            visit,
            self._parts.site.scopes,
            tuple(self._people.servers().values()),
            unchanged=terms_form.day_of(person.user.expires_at),
        )
        if read.problems:
            return await self._page(visit, session, person, read.form)
        asked = await reauthentication.ask(visit, session, f"to change what {name} may", back=_path(person))
        if asked is not None:
            return asked
        arguments = {**read.arguments, "name": name}
        still = partial(
            _still, person=person, states=_CHANGED, now=visit.now, terms=visit.form.get("shown", "")
        )
        try:
            await self._people.admin(visit, still).change(arguments, session.user.id)
        except _Otherwise as found:
            return _unchanged(visit, person, sentence(found, name))
        except CommandRefused as refusal:
            problems = {"until": sentence(refusal, name)}
            return await self._page(
                visit, session, person, msgspec.structs.replace(read.form, problems=problems)
            )
        return to_people(visit, "person-changed", name)

    async def act(self, visit: PageVisit, session: BrowserSession, user_id: str, act: str) -> WireReply:
        row, person = ACTS.get(act), await self._find(visit, user_id)
        if row is None or not visit.shows(PURPOSE):
            return visit.stale_form()
        if person is None:
            return to_people(visit, "gone")
        name = person.user.name
        if row.sure and not visit.form.get("sure"):
            return _are_you_sure(visit, person, act, row)
        asked = await reauthentication.ask(visit, session, row.why.format(name), back=_path(person))
        if asked is not None:
            return asked
        if act == "reset" and person.user.id == session.user.id:
            # Whoever knows one's own passphrase changes it.
            return _unchanged(visit, person, "This is your own account.")
        # What becomes of an account by a switch depends on its state, and the switch says so itself.
        still = partial(
            _still,
            person=person,
            states=None if act in guest_accounts.SWITCHES else frozenset(row.states),
            now=visit.now,
            link=visit.form.get("link", "") if act in _LINKS else None,
        )
        command = self._people.admin(visit, still).commands()[f"users.{_COMMANDS.get(act, act)}"]
        try:
            made = await command({"name": name}, session.user.id)
        except CommandRefused as refusal:
            return _unchanged(visit, person, sentence(refusal, name))
        if act == "unlock":
            return await self._let_back_in(visit, session, person)
        return to_people(visit, row.did, name) if row.did else show_link(visit, made)

    async def _let_back_in(
        self, visit: PageVisit, session: BrowserSession, person: ListedPerson
    ) -> WireReply:
        """Make a link, as in the terminal: without one nobody could get in who was locked."""
        still = partial(_still, person=person, states=frozenset(("enabled",)), now=visit.now, link="")
        try:
            made = await self._people.admin(visit, still).reset({"name": person.user.name}, session.user.id)
        except CommandRefused:
            return to_people(visit, "person-unlocked", person.user.name)
        return show_link(visit, made)

    async def _find(self, visit: PageVisit, user_id: str) -> ListedPerson | None:
        return await self._parts.store.read(partial(_by_id, user_id=user_id, now=visit.now))

    async def _page(
        self, visit: PageVisit, session: BrowserSession, person: ListedPerson, form: TermsForm | None = None
    ) -> WireReply:
        user = person.user
        state = state_of(person, visit.now)
        you = user.id == session.user.id
        link = await self._parts.store.read(partial(one_time_links.newest, user_id=user.id))
        if form is None:
            form = TermsForm(
                may=scope_choices.showing(self._parts.site.scopes, scopes.parse(user.scope), lasting=True),
                tools=user.tools,
                until=terms_form.day_of(user.expires_at),
                problems={},
            )
        buttons = tuple(
            ActButton(act=act, words=row.words, tells=row.tells)
            for act, row in ACTS.items()
            if state in row.states and not (you if act == "reset" else person.only_owner)
        )
        return wide(visit).page(
            "person.html",
            title=user.name,
            status=400 if form.problems else 200,
            form_token=visit.token(PURPOSE),
            link=link,
            shown=_terms_of(user),
            path=_path(person),
            name=user.name,
            you=you,
            owner=user.role == "owner",
            state=state,
            told=told(person, visit.now),
            may=guest_accounts.in_words(self._parts.site.scopes, user.scope),
            terms=form,
            changes=state not in ("locked", "unclaimed", "altered"),
            ends=not person.only_owner,
            buttons=buttons,
            today=terms_form.day_of(visit.now + terms_form.DAY),
        )


class _Otherwise(CommandRefused):
    """The account is not what the page showed."""


def _still(
    db: Db,
    *,
    person: ListedPerson,
    states: frozenset[str] | None,
    now: Millis,
    link: str | None = None,
    terms: str | None = None,
) -> None:
    """Raise `_Otherwise`, in a job, unless it is the same account, in one of these states, with this as its newest link and these terms."""
    name = person.user.name
    found = _by_id(db, user_id=person.user.id, now=now)
    if found is None:
        raise _Otherwise("this account was removed meanwhile")
    state = state_of(found, now)
    if states is not None and state not in states:
        raise _Otherwise(f"{name} is {state} by now")
    if link is not None and link != one_time_links.newest(db, person.user.id):
        raise _Otherwise(f"{name} was given another link since this page was opened; that one counts")
    if terms is not None and terms != _terms_of(found.user):
        raise _Otherwise(f"what {name} may was changed since this page was opened")


def _terms_of(user: User) -> str:
    """Return a digest that tells these bounds from others."""
    said = "\n".join((user.scope, user.tools, str(user.expires_at)))
    return hashlib.sha256(said.encode()).hexdigest()


def _by_id(db: Db, *, user_id: str, now: int) -> ListedPerson | None:
    user = user_accounts.find(db, user_id)
    found = [] if user is None else guest_accounts.listing(db, now=now, name=user.name)
    return found[0] if found else None


def _unchanged(visit: PageVisit, person: ListedPerson, why: str) -> WireReply:
    return visit.error(
        409,
        "Nothing was changed",
        why,
        "Look at the account as it is now.",
        back=(_path(person), person.user.name),
    )


def _are_you_sure(visit: PageVisit, person: ListedPerson, act: str, row: _Act) -> WireReply:
    return visit.page(
        "sure.html",
        title=f"{row.words} {person.user.name}?",
        words=row.words,
        what=row.sure.format(person.user.name),
        action=f"{_path(person)}/{act}",
        back=_path(person),
        form_token=visit.token(PURPOSE),
    )


def _path(person: ListedPerson) -> str:
    return f"{navigation.PEOPLE}/{person.user.id}"


def _nobody(visit: PageVisit) -> WireReply:
    return visit.error(
        404,
        "Nobody there",
        "There is no account here; it may have been removed.",
        "Start at the list of people.",
        back=(navigation.PEOPLE, "People"),
    )
