"""Commands behind the admin socket for people and what they let in: invite, ceilings, states, logins, browsers.

The other commands behind the admin socket are in command_table.py. A person is named by their name; the actor
(`local:<uid>`) comes from the socket.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from functools import partial
from shlex import quote
from typing import Any, Final, NamedTuple

import msgspec

from auth.administration import guest_accounts as people
from auth.administration.guest_accounts import GuestTerms, GuestUnchanged, ListedPerson
from auth.audit import audit_trail
from auth.grants import login_records as grants
from auth.grants.login_records import LoginRecord
from auth.people import browser_sessions, one_time_links, user_accounts
from auth.people.browser_sessions import SignedInBrowser
from auth.people.user_accounts import UnfitEntry, User
from auth.values.database import Db, JobStore
from auth.values.entropy import SEED_BYTES
from auth.values.identity_model import Millis
from auth.values.scopes import Vocabulary
from server.admin.api_key_commands import check_selection
from server.admin.bounded_arguments import needed_text, number, optional_text, text, texts
from server.admin.control import CommandRefused, Handler, ListPage
from server.settings.tool_selection import SelectableNames

IDS: Final = 100  # logins named in one command
TEXT: Final = 2_048
BROWSER: Final = "brw_"  # before a browser's id, so that it is told from a login's
LONGEST: Final[Millis] = 100 * 366 * 86_400_000  # a century: what is meant for ever is "never"


class PeopleAdmin(msgspec.Struct, frozen=True, kw_only=True):
    """The parts these commands need."""

    store: JobStore
    clock: Callable[[], Millis]
    origin: Callable[[], str]
    scopes: Vocabulary
    servers: Callable[[], Mapping[str, SelectableNames]]  # what they offer may change

    def commands(self) -> dict[str, Handler]:
        return {
            "invite": self.invite,
            "users": self.users,
            "users.set": self.change,
            "users.reset": self.reset,
            "users.remove": self.remove,
            **{f"users.{verb}": self._switch(verb) for verb in people.SWITCHES},
            "sessions": self.sessions,
            "sessions.count": self.count,
            "browsers": self.browsers,
            "revoke": self.revoke,
        }

    # ------------------------------------------------------------ people

    async def invite(self, arguments: Mapping[str, Any], actor: str) -> Any:
        """Make an account for `name`, and a link to it; `scope`, `tools`, `account_ms` (how long the account lasts), `link_ms` if they are not as usual."""
        now, name = self.clock(), user_accounts.fit_name(needed_text(arguments, "name", TEXT))
        if isinstance(name, UnfitEntry):
            raise CommandRefused(_lowered(name.sentence))
        lifetime = _millis(arguments, "link_ms") or one_time_links.INVITED_FOR
        if lifetime > one_time_links.INVITED_AT_MOST:
            raise CommandRefused("an invitation waits for 30 days at most")
        terms = self._terms(arguments, now)
        token = one_time_links.token_from(secrets.token_bytes(one_time_links.TOKEN_BYTES))
        outcome = await self.store.write(
            partial(
                people.invite,
                name=name,
                terms=terms,
                usual=self.scopes.usual,
                token=token,
                lifetime=lifetime,
                seed=secrets.token_bytes(SEED_BYTES),
                by=actor,
                now=now,
            )
        )
        if isinstance(outcome, user_accounts.NameTaken):
            raise CommandRefused(
                f"there is somebody called {name} already", f"ostiary users show {quote(name)}"
            )
        return {**self._link(one_time_links.INVITE, token, outcome.link_expires_at), **_user(outcome.user)}

    async def users(self, arguments: Mapping[str, Any], actor: str) -> Any:
        """List everybody; `name` leaves the others out."""
        now = self.clock()
        name = None if arguments.get("name") is None else _name(arguments)
        found = await self.store.read(partial(people.listing, now=now, name=name, after=_after(arguments)))
        if name is not None and not found:
            raise _unknown(name)
        return ListPage(
            rows=[_person(each, now) for each in found],
            go_on=people.last_of(found),
        )

    async def change(self, arguments: Mapping[str, Any], actor: str) -> Any:
        """Change some of what `name` may: `scope`, `tools`, `account_ms`, `never` (the account's end is taken away)."""
        now, name = self.clock(), _name(arguments)
        terms = self._terms(arguments, now)
        if terms == GuestTerms():
            raise CommandRefused("nothing to change was named")
        outcome = await self.store.write(partial(people.change, name=name, terms=terms, by=actor, now=now))
        return _user(_done(outcome, name, "given an end"))

    async def reset(self, arguments: Mapping[str, Any], actor: str) -> Any:
        now, name = self.clock(), _name(arguments)
        token = one_time_links.token_from(secrets.token_bytes(one_time_links.TOKEN_BYTES))
        outcome = await self.store.write(partial(people.reset, name=name, token=token, by=actor, now=now))
        if isinstance(outcome, GuestUnchanged):
            _done(outcome, name, "reset")
            raise AssertionError("a refusal is raised")
        return {**self._link(outcome.kind, token, outcome.link_expires_at), **_user(outcome.user)}

    async def remove(self, arguments: Mapping[str, Any], actor: str) -> Any:
        name = _name(arguments)
        outcome = await self.store.write(partial(people.remove, name=name, by=actor, now=self.clock()))
        return _user(_done(outcome, name, "removed"))

    def _switch(self, verb: str) -> Handler:
        async def switch(arguments: Mapping[str, Any], actor: str) -> Any:
            name = _name(arguments)
            outcome = await self.store.write(
                partial(people.switch, verb=verb, name=name, by=actor, now=self.clock())
            )
            return _user(_done(outcome, name, f"{verb.removesuffix('e')}ed"))

        return switch

    def _terms(self, arguments: Mapping[str, Any], now: Millis) -> GuestTerms:
        """Read what was said of ceilings and end. Raise `CommandRefused`."""
        lasts = _millis(arguments, "account_ms")
        terms = GuestTerms(
            scope=text(arguments, "scope", TEXT),
            tools=text(arguments, "tools", TEXT),
            expires_at=0 if arguments.get("never") is True else now + lasts if lasts else None,
        )
        if problems := terms.check(self.scopes, now):
            raise CommandRefused("; ".join(problems))
        check_selection(terms.tools or "", self.servers().values())
        return terms

    def _link(self, kind: str, token: str, expires_at: Millis) -> dict[str, Any]:
        return {
            "url": self.origin() + one_time_links.path_of(token, kind),
            "link": kind,
            "link_expires_at": expires_at,
        }

    # ------------------------------------------------------------ what they let in

    async def sessions(self, arguments: Mapping[str, Any], actor: str) -> Any:
        """List every login; `user` and `client` leave the others out."""
        now, wanted, after = self.clock(), _filters(arguments), _after(arguments)

        def job(db: Db) -> list[LoginRecord]:
            which = _resolved(db, wanted)
            return grants.sessions(db, now, subject=which.subject, client_id=which.client_id, after=after)

        found = await self.store.read(job)
        full = len(found) == grants.SHOWN
        return ListPage(
            rows=[_session(login) for login in found],
            go_on=max(login.grant.id for login in found) if full else None,
        )

    async def count(self, arguments: Mapping[str, Any], actor: str) -> Any:
        """Count logins; `user` and `client` as for `sessions`."""
        now, wanted = (
            self.clock(),
            _filters(arguments),
        )

        def job(db: Db) -> int:
            which = _resolved(db, wanted)
            return grants.count(db, now, subject=which.subject, client_id=which.client_id)

        return {"logins": await self.store.read(job)}

    async def browsers(self, arguments: Mapping[str, Any], actor: str) -> Any:
        now, wanted, after = self.clock(), _filters(arguments), _after(arguments)

        def job(db: Db) -> list[SignedInBrowser]:
            return browser_sessions.listing(db, now=now, user_id=_resolved(db, wanted).subject, after=after)

        found = await self.store.read(job)
        full = len(found) == browser_sessions.LISTED
        return ListPage(
            rows=[_browser(each) for each in found],
            go_on=max(each.id for each in found) if full else None,
        )

    async def revoke(self, arguments: Mapping[str, Any], actor: str) -> Any:
        """End `ids` of logins and browsers; or a `user`, a `client`, or `all`, and everything they let in: so many, and whether there
        may be more."""
        wanted, now = (
            _filters(arguments),
            self.clock(),
        )
        if arguments.get("ids") is not None:
            return await self._revoke_named(_ids(arguments), actor, now)
        if not any(wanted.values()) and arguments.get("all") is not True:
            raise CommandRefused("name logins, a user, a client, or all", "ostiary sessions lists them")

        def job(db: Db) -> int:
            which = _resolved(db, wanted)
            return grants.revoke_all(
                db,
                subject=which.subject,
                client_id=which.client_id,
                reason="by hand",
                by=actor,
                now=now,
                limit=grants.PIECE,
            )

        ended = await grants.in_pieces(self.store, job, at_most=grants.AT_ONCE)
        return {"ended": ended, "more": ended >= grants.AT_ONCE}

    async def _revoke_named(self, ids: tuple[str, ...], actor: str, now: Millis) -> Any:
        def job(db: Db) -> list[str]:
            return [each for each in ids if _end(db, each, actor, now)]

        ended = await self.store.write(job)
        missing = [each for each in ids if each not in ended]
        if missing:
            also = f"; ended: {', '.join(ended)}" if ended else ""
            raise CommandRefused(
                f"there is no login {', '.join(missing)} to revoke{also}", "ostiary sessions lists them"
            )
        return {"ended": len(ended), "ids": ended}


def _end(db: Db, named: str, actor: str, now: Millis) -> bool:
    if not named.startswith(BROWSER):
        return grants.revoke(db, named, reason="by hand", by=actor, now=now)
    ended = browser_sessions.end_by_id(db, named.removeprefix(BROWSER))
    if ended:
        audit_trail.record(
            db, at=now, event="user.browser_ended", actor=audit_trail.actor(actor), reason=named
        )
    return bool(ended)


# ---------------------------------------------------------------- arguments


def _name(arguments: Mapping[str, Any]) -> str:
    """Read the name in the form in which it is stored; one that cannot be a name is nobody's."""
    typed = needed_text(arguments, "name", TEXT)
    name = user_accounts.fit_name(typed)
    if isinstance(name, UnfitEntry):
        raise _unknown(typed[:80])
    return name


def _millis(arguments: Mapping[str, Any], name: str) -> Millis | None:
    value = number(arguments, name)
    if value is not None and not 0 < value <= LONGEST:
        raise CommandRefused(f"{name} is no length of time that can be used")
    return value


def _ids(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    ids = texts(arguments, "ids", most=IDS, longest=100)
    if not ids or not all(ids):
        raise CommandRefused(f"1 to {IDS} logins can be named at once")
    return tuple(dict.fromkeys(ids))


def _after(arguments: Mapping[str, Any]) -> str:
    """Return where the page before ended; the first one begins before everything."""
    return text(arguments, "at", TEXT) or ""


def _filters(arguments: Mapping[str, Any]) -> dict[str, str | None]:
    return {name: optional_text(arguments, name, TEXT) for name in ("user", "client")}


class _Which(NamedTuple):
    """The owner and the program of logins; None is everybody, or any."""

    subject: str | None
    client_id: str | None


def _resolved(db: Db, wanted: Mapping[str, str | None]) -> _Which:
    """Find the id of a user by their name. Raise `CommandRefused`: somebody unknown must not mean everybody."""
    subject, typed = None, wanted["user"]
    if typed is not None:
        name = user_accounts.fit_name(typed)
        user = None if isinstance(name, UnfitEntry) else user_accounts.named(db, name)
        if user is None:
            raise _unknown(typed[:80])
        subject = user.id
    return _Which(subject, wanted["client"])


# ---------------------------------------------------------------- answers


# Where "is" and its name is no sentence.
_STATES: Final = {"invited": "has not joined yet", "unclaimed": "is not claimed yet"}


def _unknown(name: str) -> CommandRefused:
    return CommandRefused(f"there is nobody called {name}", "ostiary users list shows who there is")


def _done(outcome: User | GuestUnchanged, name: str, participle: str) -> User:
    """Raise `CommandRefused` for what was not done, in words."""
    if isinstance(outcome, User):
        return outcome
    if outcome.why == "unknown":
        raise _unknown(name)
    if outcome.why == "last owner":
        raise CommandRefused(
            f"{name} is the only owner and cannot be {participle}",
            f"ostiary users reset {quote(name)} makes a link for a new passphrase, and ostiary revoke --user {quote(name)} ends logins",
        )
    hint = {
        "locked": f"ostiary users unlock {quote(name)}",
        "disabled": f"ostiary users enable {quote(name)}",
        "invited": f"ostiary users remove {quote(name)} takes the invitation back",
        "altered": f"somebody altered this account in the database: ostiary verify; ostiary users remove {quote(name)}",
        "unclaimed": "ostiary claim shows the link that makes this account somebody's",
    }.get(outcome.state, "")
    if outcome.state == participle:
        raise CommandRefused(f"{name} is {participle} already", hint)
    state = _STATES.get(outcome.state, f"is {outcome.state}")
    if participle == "reset" and outcome.state in ("enabled", "invited"):
        state = "has an account that has ended"
    elif outcome.state == "enabled":
        state = "is not locked"
    raise CommandRefused(f"{name} {state} and cannot be {participle}", hint)


def _lowered(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:].rstrip(".")


def _user(user: User) -> dict[str, Any]:
    shown = ("id", "name", "role", "state", "scope", "tools", "created_at", "expires_at", "last_seen_at")
    return {**{name: getattr(user, name) for name in shown}, "invited_by": user.invited_by}


def _person(person: ListedPerson, now: Millis) -> dict[str, Any]:
    return {
        **_user(person.user),
        "over": person.user.over(now),
        "logins": person.logins,
        "link_expires_at": person.link_expires_at,
        "only_owner": person.only_owner,
    }


def _session(login: LoginRecord) -> dict[str, Any]:
    shown = (
        "id",
        "subject",
        "client_id",
        "client_name",
        "hostname",
        "server",
        "scope",
        "how",
        "redirect_host",
        "ip",
        "last_ip",
        "user_agent",
        "approved_by",
        "created_at",
        "last_used_at",
        "called_at",
        "idle_until",
        "expires_at",
    )
    return {
        **{name: getattr(login.grant, name) for name in shown},
        "user": login.user_name,
        "registered_name": login.registered_name,
        "client_kind": login.client_kind,
        "standing": login.standing,
        "usable": login.usable,
        "paused": login.paused,
    }


def _browser(each: SignedInBrowser) -> dict[str, Any]:
    shown = ("created_at", "last_used_at", "expires_at", "ip", "user_agent")
    return {
        "id": BROWSER + each.id,
        "user": each.user_name,
        **{name: getattr(each, name) for name in shown},
    }
