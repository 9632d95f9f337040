"""The commands behind the admin socket, each a line in a table: all that somebody at the machine may do.

A command reads its arguments, runs one job of identity, and answers plain data for the command line to show. The actor
(`local:<uid>`) comes from the socket, never from the arguments.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import asdict

from auth.audit import audit_names, audit_trail
from auth.authorization import device_authorization as device
from auth.people import one_time_links, user_accounts
from auth.values import scopes
from auth.values.database import Db, JobStore
from auth.values.identity_model import Millis
from auth.values.scopes import Vocabulary
from server.admin.api_key_commands import ApiKeyAdmin
from server.admin.bounded_arguments import needed_text, optional_text
from server.admin.client_commands import ClientAdmin
from server.admin.control import CommandRefused, Handler
from server.admin.people_commands import PeopleAdmin
from server.admin.store_status import counted
from server.settings.tool_selection import SelectableNames
from server.store import acknowledged_breaks, clock_doubt, ledger_chain
from server.store.audit_chain import AuditChain
from server.store.jobs import Store, StoreDb, StoreUnavailable
from server.store.ledger_chain import LedgerChain


class Admin(msgspec.Struct, frozen=True, kw_only=True):
    """The parts these commands need."""

    store: Store
    clock: Callable[[], Millis]
    subkey: Callable[[str], bytes]
    status: Callable[[], Mapping[str, Any]]
    look_at_store: Callable[[], Awaitable[dict[str, Any]]]  # what the store says of itself
    look_behind: Callable[[], Awaitable[Mapping[str, Any]]] | None = (
        None  # agents, and what calls came to; never raises
    )
    origin: Callable[[], str]  # where a browser on this machine reaches us
    scopes: Vocabulary
    login_ms: Millis  # how long a device that is let in may stay
    servers: Callable[[], Mapping[str, SelectableNames]] = dict  # by name: what a selection of tools may name
    # What was earned, and which payments have no outcome; None where nothing costs anything.
    earned: Callable[[Millis], Awaitable[Mapping[str, Any]]] | None = None
    examine_money: Callable[[], Awaitable[Mapping[str, Any]]] | None = None
    # What a program could spend that this person lets in at that server, with that scope. A job; None where nothing costs anything.
    spends: Callable[[Db, str, str, str, Millis], str] | None = None
    # Of keys and the audit trail.
    more: Mapping[str, Handler] = msgspec.field(default_factory=dict[str, Handler])

    def commands(self) -> dict[str, Handler]:
        table: dict[str, Handler] = {
            "status": self.show_status,
            "money": self.money,
            "claim": self.claim,
            "pending": self.pending,
            "find": self.find,
            "approve": self.approve,
            "deny": self.deny,
            **PeopleAdmin(
                store=self.store,
                clock=self.clock,
                origin=self.origin,
                scopes=self.scopes,
                servers=self.servers,
            ).commands(),
            **ApiKeyAdmin(
                store=self.store, clock=self.clock, scopes=self.scopes, servers=self.servers
            ).commands(),
            **ClientAdmin(
                store=self.store, clock=self.clock, scopes=self.scopes, servers=self.servers
            ).commands(),
            **self.more,
        }
        return {name: _told_when_the_store_cannot(handler) for name, handler in table.items()}

    async def show_status(self, arguments: Mapping[str, Any], actor: str) -> Any:
        """Answer also for a store that cannot be read: then without what is counted there, and with the reason."""
        now, store = self.clock(), await self.look_at_store()
        behind: Mapping[str, Any] = {} if self.look_behind is None else await self.look_behind()
        chain = AuditChain(self.subkey(audit_trail.KEY_PURPOSE))
        said = self.status()
        held_back: Sequence[Mapping[str, Any]] = said.get("held_back", ())

        def look(db: StoreDb) -> dict[str, Any]:
            altered, record = chain.noticed(db), chain.record(db)
            books = LedgerChain(self.subkey(ledger_chain.KEY_PURPOSE))
            booked_otherwise = books.noticed(db) if record is not None and record.beside else None
            doubt = clock_doubt.look(db, now=now)
            return {
                **counted(db, now),
                "held_back": [{**each, "name": audit_names.named(db, each["who"])} for each in held_back],
                "trail": None if altered is None else asdict(altered),
                "trail_acknowledged": acknowledged_breaks.told(chain.acknowledged(db)),
                "ledger": None if booked_otherwise is None else asdict(booked_otherwise),
                "ledger_acknowledged": acknowledged_breaks.told(books.acknowledged(db)),
                "clock": None if doubt is None else asdict(doubt),
            }

        try:
            found = await self.store.read(look)
            if self.earned is not None:
                found["money"] = await self.earned(now)
        except StoreUnavailable as error:
            found = {}
            store |= {"problem": str(error), "hint": error.hint or ""}
        return {**said, **behind, "store": store, **found}

    async def money(self, arguments: Mapping[str, Any], actor: str) -> Any:
        """Tell what is sold, who could pay it, and what they would see; None where nothing costs anything."""
        return None if self.examine_money is None else await self.examine_money()

    async def claim(self, arguments: Mapping[str, Any], actor: str) -> Any:
        if self.status().get("auth") == "none":  # there is no page behind a link either
            raise CommandRefused(
                "this server asks nobody to log in, so it has no owner", 'start it with auth = "oauth" first'
            )
        link = await make_claim_link(self.store, self.origin(), by=actor, now=self.clock())
        if link is None:
            raise CommandRefused(
                "this server has its owner already",
                f"sign in at {self.origin()}/signin; for a lost passphrase: ostiary users reset NAME",
            )
        return {"url": link}

    async def pending(self, arguments: Mapping[str, Any], actor: str) -> Any:
        now = self.clock()
        return [_request(found) for found in await self.store.read(lambda db: device.pending(db, now))]

    async def find(self, arguments: Mapping[str, Any], actor: str) -> Any:
        """Return the request, and what approving it would mean."""
        found = await self._find(needed_text(arguments, "code"))
        return {
            **_request(found),
            "scope_words": {name: self.scopes.words(name) for name in scopes.parse(found.scope)},
            "moves_money": [name for name in scopes.parse(found.scope) if self.scopes.financial(name)],
            "account": await self.store.read(_owner_name),
            "money": await self.store.read(partial(self._spends, found=found)),
            "lasts_ms": self.login_ms,
        }

    async def approve(self, arguments: Mapping[str, Any], actor: str) -> Any:
        """Approve `id` (from `find`, so that what was shown is what is approved), and `scope` to grant less. A scope that moves money is
        granted only by its name, as on the pages."""
        request_id, now = needed_text(arguments, "id"), self.clock()
        scope = optional_text(arguments, "scope")

        def job(db: Db) -> device.DeviceApproved | device.NotPending:
            row = db.fetch_one("SELECT scope FROM device_codes WHERE id = ?", request_id)
            asked = scopes.parse("" if row is None else row["scope"])
            usual = scopes.join(name for name in asked if not self.scopes.financial(name))
            granted = usual if scope is None else scope
            return device.approve(
                db, request_id, subject=user_accounts.owner_id(db), by=actor, scope=granted, now=now
            )

        outcome = await self.store.write(job)
        if isinstance(outcome, device.NotPending):
            raise _no_longer(outcome)
        return {**_request(outcome.request), "scope": outcome.scope}

    async def deny(self, arguments: Mapping[str, Any], actor: str) -> Any:
        request_id, now = needed_text(arguments, "id"), self.clock()
        outcome = await self.store.write(lambda db: device.deny(db, request_id, by=actor, now=now))
        if isinstance(outcome, device.NotPending):
            raise _no_longer(outcome)
        return _request(outcome.request)

    def _spends(self, db: Db, found: device.DeviceRequest) -> str:
        if self.spends is None:
            return ""
        return self.spends(db, user_accounts.owner_id(db), found.server, found.scope, self.clock())

    async def _find(self, typed: str) -> device.DeviceRequest:
        code = device.normalise(typed)
        if code is None:
            raise CommandRefused("that is not a code", "it looks like WDJB-MJHT: eight letters, no vowels")
        mac, now = device.user_code_mac(self.subkey(device.MAC_PURPOSE), code), self.clock()
        found = await self.store.read(lambda db: device.find(db, mac, now))
        if found is None:
            if over := await self.store.read(lambda db: device.how_it_ended(db, mac)):
                raise CommandRefused(
                    f"that code was {over} already", "ostiary sessions shows who is logged in"
                )
            raise CommandRefused(
                "no login is waiting with that code",
                "codes last a few minutes; ostiary pending lists who waits",
            )
        return found


async def make_claim_link(store: JobStore, origin: str, *, by: str, now: Millis) -> str | None:
    """Make a fresh one-time link for the owner, replacing any earlier; None once the server is claimed."""
    token = one_time_links.token_from(secrets.token_bytes(one_time_links.TOKEN_BYTES))

    def job(db: Db) -> bool:
        if user_accounts.claimed(db):
            return False
        one_time_links.make(
            db, kind=one_time_links.CLAIM, user_id=user_accounts.owner_id(db), token=token, by=by, now=now
        )
        return True

    return origin + one_time_links.path_of(token) if await store.write(job) else None


def _told_when_the_store_cannot(handler: Handler) -> Handler:
    """Refuse where the store cannot: a full disk is no internal error, and whoever is at the machine can free some space."""

    async def told(arguments: Mapping[str, Any], actor: str) -> Any:
        try:
            return await handler(arguments, actor)
        except StoreUnavailable as error:
            raise CommandRefused(str(error), error.hint or "") from error

    return told


def _no_longer(outcome: device.NotPending) -> CommandRefused:
    if outcome.reason == "user_not_enabled":
        return CommandRefused("the owner's account is disabled", "enable it first")
    if outcome.reason == "no_scope":
        return CommandRefused("nothing that was asked for may be granted", "name other scopes")
    return CommandRefused(
        "that login is no longer waiting",
        "it was decided already, or ran out; ostiary pending lists who waits",
    )


def _owner_name(db: Db) -> str:
    """Return as whom an approval here lets a device in."""
    row = db.fetch_one("SELECT name FROM users WHERE id = ?", user_accounts.owner_id(db))
    return "" if row is None else row["name"]


def _request(found: device.DeviceRequest) -> dict[str, Any]:
    return asdict(found)
