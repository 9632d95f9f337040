"""The page People, and inviting somebody: a form, and a link that is shown once. One person's own page is person_page.py's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final
from urllib.parse import urlencode

import msgspec

from auth.administration import guest_accounts
from auth.administration.guest_accounts import ListedPerson
from auth.pages import account_notices, navigation, reauthentication
from auth.pages.html_shell import ago, day, redirect
from auth.pages.page_visit import PageVisit, Parts
from auth.people import one_time_links, user_accounts
from auth.people.browser_sessions import BrowserSession
from auth.people.user_accounts import UnfitEntry
from auth.values import scopes
from auth.values.database import Db
from auth.values.http_messages import WireReply
from auth.values.identity_model import Millis
from server.admin.control import CommandRefused
from server.admin.people_commands import PeopleAdmin
from server.console.owner import scope_choices, terms_form
from server.console.owner.owner_acts import OwnersStore
from server.console.owner.terms_form import TermsForm, sentence
from server.settings.tool_selection import SelectableNames

PURPOSE: Final = "owner people"
INVITE: Final = f"{navigation.PEOPLE}/new"
SHOWN: Final = 50
SEARCHED: Final = 80
# For how long an invitation waits, in days.
WAITS: Final[Mapping[str, str]] = {"1": "a day", "3": "3 days", "7": "a week", "30": "30 days"}
USUAL_WAIT: Final = "3"


class PersonRow(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    you: bool
    state: str
    told: tuple[str, ...]  # a line of words: when seen, how many logins, until when
    may: tuple[str, ...]
    tools: str
    switch: str  # "disable" or "enable": what its button does; "": it has none


class ShownLink(msgspec.Struct, frozen=True, kw_only=True):
    """A link that is shown once."""

    url: str
    name: str
    kind: str
    lasts: str


class PeoplePages:
    def __init__(self, parts: Parts, servers: Callable[[], Mapping[str, SelectableNames]]) -> None:
        self.parts: Final = parts
        self.servers: Final = servers

    def admin(self, visit: PageVisit, still: Callable[[Db], None] | None = None) -> PeopleAdmin:
        """Make the commands of the terminal, for whoever visits. `still`: as `OwnersStore` has it."""
        return PeopleAdmin(
            store=OwnersStore(self.parts.store, visit, still=still),
            clock=lambda: visit.now,
            origin=lambda: self.parts.site.issuer,
            scopes=self.parts.site.scopes,
            servers=self.servers,
        )

    async def show(self, visit: PageVisit, session: BrowserSession) -> WireReply:
        searched, after = (
            visit.query("q").strip()[:SEARCHED],
            visit.query("after")[: user_accounts.NAME_CHARACTERS],
        )
        found = await self.parts.store.read(
            partial(guest_accounts.listing, now=visit.now, after=after, like=searched, limit=SHOWN + 1)
        )
        # A page is by name, and on it the owner comes first.
        by_name = sorted(found, key=lambda each: each.user.name)
        further = by_name[SHOWN - 1].user.name if len(by_name) > SHOWN else ""
        kept = {each.user.id for each in by_name[:SHOWN]}
        rows = [self._row(visit, session, each) for each in found if each.user.id in kept]
        return wide(visit).page(
            "people.html",
            title="People",
            notice=account_notices.of(visit),
            rows=rows,
            searched=searched,
            searches=bool(searched or after or further),
            first=_address(searched) if after else "",
            further=_address(searched, further) if further else "",
            form_token=visit.token(PURPOSE),
        )

    def _row(self, visit: PageVisit, session: BrowserSession, person: ListedPerson) -> PersonRow:
        user, you = person.user, person.user.id == session.user.id
        return PersonRow(
            id=user.id,
            name=user.name,
            you=you,
            state=state_of(person, visit.now),
            told=told(person, visit.now),
            may=guest_accounts.in_words(self.parts.site.scopes, user.scope),
            tools=user.tools,
            switch=""
            if you or person.only_owner
            else {"enabled": "disable", "disabled": "enable"}.get(user.state, ""),
        )

    # ── inviting ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def begin(self, visit: PageVisit, session: BrowserSession) -> WireReply:
        del session
        known = self.parts.site.scopes
        empty = TermsForm(
            may=scope_choices.showing(known, scopes.parse(known.usual), lasting=True),
            tools="",
            until="",
            problems={},
        )
        return self._form(visit, empty, name=visit.query("name")[: user_accounts.NAME_CHARACTERS])

    async def invite(self, visit: PageVisit, session: BrowserSession) -> WireReply:
        if not visit.shows(PURPOSE):
            return visit.stale_form()
        read = terms_form.read(visit, self.parts.site.scopes, tuple(self.servers().values()))
        typed, wait = (
            visit.form.get("name", "")[: user_accounts.NAME_TYPED],
            visit.form.get("wait", USUAL_WAIT),
        )
        problems, fit = dict(read.problems), user_accounts.fit_name(typed)
        name = "" if isinstance(fit, UnfitEntry) else fit
        if isinstance(fit, UnfitEntry):
            problems["name"] = fit.sentence
        if wait not in WAITS:
            wait = USUAL_WAIT
        again = partial(self._form, visit, name=typed, wait=wait)
        if problems:
            return again(msgspec.structs.replace(read.form, problems=problems))
        asked = await reauthentication.ask(visit, session, f"to invite {name}", back=navigation.PEOPLE)
        if asked is not None:
            return asked
        arguments = {**read.arguments, "name": typed, "link_ms": int(wait) * terms_form.DAY}
        try:
            made = await self.admin(visit, partial(_not_invited, name=name)).invite(
                arguments, session.user.id
            )
        except CommandRefused as refusal:
            return again(msgspec.structs.replace(read.form, problems={"name": sentence(refusal, name)}))
        return show_link(visit, made)

    def _form(self, visit: PageVisit, form: TermsForm, *, name: str, wait: str = USUAL_WAIT) -> WireReply:
        return wide(visit).page(
            "invite_new.html",
            title="Invite somebody",
            status=400 if form.problems else 200,
            form_token=visit.token(PURPOSE),
            terms=form,
            name=name,
            wait=wait,
            waits=WAITS,
            today=terms_form.day_of(visit.now + terms_form.DAY),
        )


def _not_invited(db: Db, *, name: str) -> None:
    """Refuse to invite somebody again, which in a terminal makes another link. Here the form may be an old one, or sent again as its answer is loaded again:
    the link that was sent to somebody would end unnoticed."""
    user = user_accounts.named(db, name)
    if user is not None and user.state == "invited":
        raise CommandRefused(
            f"{name} is invited already: the list of people leads to another link, and to other bounds"
        )


def wide(visit: PageVisit) -> PageVisit:
    return replace(visit, frame=replace(visit.frame, wide=True))


def show_link(visit: PageVisit, made: Mapping[str, object]) -> WireReply:
    """Show the answer of a command that makes a link. The page is not kept by anybody, and the link is nowhere else."""
    expires_at = made["link_expires_at"]
    assert isinstance(expires_at, int)
    lasts = "30 minutes" if made["link"] == one_time_links.RESET else f"until {day(expires_at)}"
    shown = ShownLink(url=str(made["url"]), name=str(made["name"]), kind=str(made["link"]), lasts=lasts)
    scripted = replace(visit, frame=replace(visit.frame, script=True))
    return scripted.page("link_made.html", title="A link, shown once", link=shown)


def state_of(person: ListedPerson, now: Millis) -> str:
    user = person.user
    return "over" if user.over(now) and user.state in ("enabled", "invited") else user.state


def told(person: ListedPerson, now: Millis) -> tuple[str, ...]:
    user = person.user
    if user.state == "invited":
        lines = [
            "the link ran out"
            if person.link_expires_at is None
            else f"the link works until {day(person.link_expires_at)}"
        ]
    else:
        lines = ["never signed in" if user.last_seen_at is None else f"seen {ago(user.last_seen_at, now)}"]
    if person.logins:
        lines.append(f"{person.logins} login{'' if person.logins == 1 else 's'}")
    if user.expires_at is not None:
        lines.append(f"account until {day(user.expires_at)}")
    return tuple(lines)


def _address(searched: str, after: str = "") -> str:
    query = {key: value for key, value in (("q", searched), ("after", after)) if value}
    return navigation.PEOPLE + (f"?{urlencode(query)}" if query else "")


def to_people(visit: PageVisit, did: str, what: str = "") -> WireReply:
    return account_notices.back(visit, navigation.PEOPLE, did, what) if did else redirect(navigation.PEOPLE)
