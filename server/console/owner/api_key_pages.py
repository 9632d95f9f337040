"""Pages for making an API key, by the command of the terminal (`ostiary api-keys create`). The key is shown once, and kept as its hash."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from auth.pages import navigation, reauthentication
from auth.pages.html_shell import day
from auth.pages.page_visit import PageVisit, Parts
from auth.people import user_accounts
from auth.people.browser_sessions import BrowserSession
from auth.people.user_accounts import User
from auth.tokens import api_keys
from auth.values import scopes
from auth.values.database import Db
from auth.values.http_messages import WireReply
from server.admin.api_key_commands import ApiKeyAdmin, user_id_of
from server.admin.control import CommandRefused
from server.console.owner import scope_choices, terms_form
from server.console.owner.owner_acts import OwnersStore
from server.console.owner.people_page import wide
from server.console.owner.scope_choices import ChoiceForm, ReadChoice
from server.console.owner.terms_form import sentence
from server.settings.tool_selection import SelectableNames

NEW: Final = "/account/keys/new"
PURPOSE: Final = "owner keys"
NEVER: Final = "never"
# For how long a key lasts, in days. Whoever makes one says so: for ever is never what was left out.
LASTS: Final[Mapping[str, str]] = MappingProxyType(
    {"7": "a week", "30": "30 days", "90": "90 days", "365": "a year", NEVER: "until it is ended"}
)
USUAL: Final = "90"


class NewKeyForm(msgspec.Struct, frozen=True, kw_only=True):
    """A form for a new key, as shown."""

    may: ChoiceForm
    name: str = ""
    whose: str = ""
    server: str = ""
    tools: str = ""
    lasts: str = USUAL
    problems: Mapping[str, str] = MappingProxyType({})


class KeyPages:
    def __init__(self, parts: Parts, servers: Callable[[], Mapping[str, SelectableNames]]) -> None:
        self._parts = parts
        self._servers = servers

    async def begin(self, visit: PageVisit, session: BrowserSession) -> WireReply:
        known, ceiling = self._parts.site.scopes, session.user.scope
        usual = scopes.parse(scopes.narrow(known.usual, ceiling))
        may = scope_choices.showing(known, usual, lasting=False, ceiling=ceiling)
        return self._form(visit, session, NewKeyForm(may=may))

    async def make(self, visit: PageVisit, session: BrowserSession) -> WireReply:
        if not visit.shows(PURPOSE):
            return visit.stale_form()
        known, servers, said = self._parts.site.scopes, self._servers(), visit.form.get
        may = scope_choices.read(visit, known, lasting=False)
        typed = said("whose", "").strip()[: user_accounts.NAME_CHARACTERS]
        whose = await self._parts.store.read(partial(_whose, typed=typed, you=session.user))
        form = NewKeyForm(
            may=scope_choices.showing_again(known, may, lasting=False, ceiling=whose.ceiling),
            name=said("name", "").strip()[: api_keys.MAX_NAME + 1],
            whose=typed,
            server=said("server", ""),
            tools=said("tools", "").strip()[: terms_form.TOOLS_CHARACTERS + 1],
            lasts=said("lasts", ""),
        )
        chosen = [servers[form.server]] if form.server in servers else list(servers.values())
        problems = terms_form.bounds_problems(may, said("tools", "").strip(), chosen)
        if not form.name or len(form.name) > api_keys.MAX_NAME or not form.name.isprintable():
            problems["name"] = f"A name for it, of at most {api_keys.MAX_NAME} characters."
        if form.lasts not in LASTS:
            problems["lasts"] = "Choose how long it lasts."
        if form.server and form.server not in servers:
            problems["server"] = "There is no such server any more."
        if whose.wrong:
            problems["whose"] = whose.wrong
        if problems:
            return self._form(visit, session, msgspec.structs.replace(form, problems=problems))
        asked = await reauthentication.ask(visit, session, "to make an API key", back=navigation.ACCESS)
        if asked is not None:
            return asked
        try:
            made = await self._admin(visit).create(_arguments(form, may, session), session.user.id)
        except CommandRefused as refusal:
            # With what the terminal says besides: whom it could belong to, how far that goes.
            words = sentence(refusal, form.name)
            if refusal.hint and not refusal.hint.startswith("ostiary"):
                words += f" {refusal.hint[:1].upper()}{refusal.hint[1:]}."
            problems = {"whose" if "user" in str(refusal) else "name": words}
            return self._form(visit, session, msgspec.structs.replace(form, problems=problems))
        return self._made(visit, session, made)

    def _admin(self, visit: PageVisit) -> ApiKeyAdmin:
        return ApiKeyAdmin(
            store=OwnersStore(self._parts.store, visit),
            clock=lambda: visit.now,
            scopes=self._parts.site.scopes,
            servers=self._servers,
        )

    def _form(self, visit: PageVisit, session: BrowserSession, form: NewKeyForm) -> WireReply:
        return wide(visit).page(
            "key_new.html",
            title="Make an API key",
            status=400 if form.problems else 200,
            form_token=visit.token(PURPOSE),
            form=form,
            you=session.user.name,
            servers=tuple(self._servers()),
            lasts=LASTS,
        )

    def _made(self, visit: PageVisit, session: BrowserSession, made: Mapping[str, Any]) -> WireReply:
        scripted = replace(visit, frame=replace(visit.frame, script=True))
        return scripted.page(
            "key_made.html",
            title="An API key, shown once",
            key=made["key"],
            name=made["name"],
            whose="" if made["user"] == session.user.name else made["user"],
            until="" if made["expires_at"] is None else day(made["expires_at"]),
        )


class _Whose(NamedTuple):
    ceiling: str
    wrong: str = ""


def _whose(db: Db, *, typed: str, you: User) -> _Whose:
    """Find how far a key goes at most, and why that name is nobody's, told with all else that is wrong. A job that reads."""
    if not typed:
        return _Whose(you.scope)
    try:
        found = user_accounts.find(db, user_id_of(db, typed))
    except CommandRefused as refusal:
        return _Whose(you.scope, sentence(refusal, typed))
    if found is None:
        return _Whose(you.scope, f"There is no user {typed} whom a key could belong to.")
    return _Whose(found.scope)


def _arguments(form: NewKeyForm, may: ReadChoice, session: BrowserSession) -> dict[str, object]:
    arguments: dict[str, object] = {
        "name": form.name,
        **({"user": form.whose} if form.whose else {"user_id": session.user.id}),
        "scope": scopes.join(may.names),
    }
    if form.server:
        arguments["server"] = form.server
    if form.tools:
        arguments["tools"] = form.tools
    if form.lasts == NEVER:
        return {**arguments, "never": True}
    return {**arguments, "lasts_ms": int(form.lasts) * terms_form.DAY}
