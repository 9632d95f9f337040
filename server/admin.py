"""What somebody at the machine may do: the commands behind the admin socket, each a line in a table.

A command reads its arguments, runs one job of identity, and answers plain data for the command line to show. The actor
(`local:<uid>`) comes from the socket, never from the arguments.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, cast

from auth import clients, device, links, users
from auth.db import Db, Store
from auth.entropy import SEED_BYTES
from auth.grants import admin as grants
from auth.grants.admin import Login
from auth.model import Client, Millis
from auth.scopes import Vocabulary
from server.control import Handler, Refused
from server.store.jobs import StoreUnavailable

# oauth.md §4.3: what a registration may be at most, whoever makes it.
LIST_ITEMS: Final = 10
ITEM_LENGTH: Final = 2_048


@dataclass(frozen=True, kw_only=True, slots=True)
class Admin:
    """The parts these commands need."""

    store: Store
    clock: Callable[[], Millis]
    subkey: Callable[[str], bytes]
    status: Callable[[], Mapping[str, Any]]
    origin: Callable[[], str]  # where a browser on this machine reaches us
    scopes: Vocabulary

    def commands(self) -> dict[str, Handler]:
        table: dict[str, Handler] = {
            "status": self.show_status,
            "claim": self.claim,
            "pending": self.pending,
            "find": self.find,
            "approve": self.approve,
            "deny": self.deny,
            "sessions": self.sessions,
            "revoke": self.revoke,
            "clients": self.clients,
            "clients.add": self.add_client,
            "clients.disable": self.disable_client,
            "clients.enable": self.enable_client,
        }
        return {name: _told_when_the_store_cannot(handler) for name, handler in table.items()}

    async def show_status(self, arguments: Mapping[str, Any], actor: str) -> Any:
        return dict(self.status())

    async def claim(self, arguments: Mapping[str, Any], actor: str) -> Any:
        if self.status().get("auth") == "none":  # there is no page behind a link either
            raise Refused(
                "this server asks nobody to log in, so it has no owner", 'start it with auth = "oauth" first'
            )
        link = await make_claim_link(self.store, self.origin(), by=actor, now=self.clock())
        if link is None:
            raise Refused("this server has its owner already", "sign in with the passphrase at /signin")
        return {"url": link}

    async def pending(self, arguments: Mapping[str, Any], actor: str) -> Any:
        now = self.clock()
        return [_request(found) for found in await self.store.read(lambda db: device.pending(db, now))]

    async def find(self, arguments: Mapping[str, Any], actor: str) -> Any:
        return _request(await self._find(_text(arguments, "code")))

    async def approve(self, arguments: Mapping[str, Any], actor: str) -> Any:
        """`id` (from `find`, so that what was shown is what is approved), and `scope` to grant less."""
        request_id, now = _text(arguments, "id"), self.clock()
        scope = None if arguments.get("scope") is None else _text(arguments, "scope")

        def job(db: Db) -> device.Approved | device.NotPending:
            return device.approve(db, request_id, subject=users.owner_id(db), by=actor, scope=scope, now=now)

        outcome = await self.store.write(job)
        if isinstance(outcome, device.NotPending):
            raise _no_longer(outcome)
        return {**_request(outcome.request), "scope": outcome.scope}

    async def deny(self, arguments: Mapping[str, Any], actor: str) -> Any:
        request_id, now = _text(arguments, "id"), self.clock()
        outcome = await self.store.write(lambda db: device.deny(db, request_id, by=actor, now=now))
        if isinstance(outcome, device.NotPending):
            raise _no_longer(outcome)
        return _request(outcome.request)

    async def sessions(self, arguments: Mapping[str, Any], actor: str) -> Any:
        now = self.clock()
        return [_session(login) for login in await self.store.read(lambda db: grants.sessions(db, now))]

    async def revoke(self, arguments: Mapping[str, Any], actor: str) -> Any:
        grant_id, now = _text(arguments, "id"), self.clock()
        if not await self.store.write(
            lambda db: grants.revoke(db, grant_id, reason="by hand", by=actor, now=now)
        ):
            raise Refused(f"there is no login {grant_id} to revoke", "ostiary sessions lists them")
        return {"id": grant_id}

    async def clients(self, arguments: Mapping[str, Any], actor: str) -> Any:
        return [_client(client) for client in await self.store.read(clients.listing)]

    async def add_client(self, arguments: Mapping[str, Any], actor: str) -> Any:
        registration = clients.Registration(
            name=_text(arguments, "name"),
            client_id=_text(arguments, "id") if arguments.get("id") is not None else None,
            auth_method=_text(arguments, "auth_method") if arguments.get("auth_method") else "none",
            grant_types=_texts(arguments, "grant_types") or clients.GRANT_TYPES,
            redirect_uris=_texts(arguments, "redirect_uris"),
            **({"scope": _text(arguments, "scope")} if arguments.get("scope") else {}),
        )
        if problems := registration.check(self.scopes):
            raise Refused("; ".join(problems))
        seed, now = secrets.token_bytes(SEED_BYTES), self.clock()
        added = await self.store.write(lambda db: clients.add(db, registration, seed=seed, by=actor, now=now))
        if added is None:
            raise Refused(
                f"the client id {registration.client_id} is taken", "ostiary clients list shows who has it"
            )
        return {**_client(added.client), "client_secret": added.secret.reveal() if added.secret else None}

    async def disable_client(self, arguments: Mapping[str, Any], actor: str) -> Any:
        return await self._switch(clients.disable, arguments, actor, "disable")

    async def enable_client(self, arguments: Mapping[str, Any], actor: str) -> Any:
        return await self._switch(clients.enable, arguments, actor, "enable")

    async def _switch(
        self, switch: Callable[..., bool], arguments: Mapping[str, Any], actor: str, verb: str
    ) -> Mapping[str, Any]:
        client_id, now = _text(arguments, "id"), self.clock()
        if not await self.store.write(lambda db: switch(db, client_id, by=actor, now=now)):
            raise Refused(f"there is no client {client_id} to {verb}", "ostiary clients list shows them")
        return {"id": client_id}

    async def _find(self, typed: str) -> device.DeviceRequest:
        code = device.normalise(typed)
        if code is None:
            raise Refused("that is not a code", "it looks like WDJB-MJHT: eight letters, no vowels")
        mac, now = device.user_code_mac(self.subkey(device.MAC_PURPOSE), code), self.clock()
        found = await self.store.read(lambda db: device.find(db, mac, now))
        if found is None:
            raise Refused(
                "no login is waiting with that code",
                "codes last a few minutes; ostiary pending lists who waits",
            )
        return found


async def make_claim_link(store: Store, origin: str, *, by: str, now: Millis) -> str | None:
    """A fresh one-time link for the owner, replacing any earlier; None once the server is claimed."""
    token = links.token_from(secrets.token_bytes(links.TOKEN_BYTES))

    def job(db: Db) -> bool:
        if users.claimed(db):
            return False
        links.make(db, kind=links.CLAIM, user_id=users.owner_id(db), token=token, by=by, now=now)
        return True

    return origin + links.path_of(token) if await store.write(job) else None


def _text(arguments: Mapping[str, Any], name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str) or not value or len(value) > 512:
        raise Refused(f"{name} is missing or too long")
    return value


def _texts(arguments: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value: object = arguments.get(name)
    if value is None:
        return ()
    if not isinstance(value, list):
        raise Refused(f"{name} is a list of texts")
    found = cast("list[object]", value)
    if len(found) > LIST_ITEMS or not all(
        isinstance(each, str) and len(each) <= ITEM_LENGTH for each in found
    ):
        raise Refused(f"{name} has at most {LIST_ITEMS} texts of at most {ITEM_LENGTH} characters")
    return tuple(cast("list[str]", found))


def _told_when_the_store_cannot(handler: Handler) -> Handler:
    """A full disk is no internal error: whoever is at the machine is the one who can free some space."""

    async def told(arguments: Mapping[str, Any], actor: str) -> Any:
        try:
            return await handler(arguments, actor)
        except StoreUnavailable as error:
            raise Refused(str(error), error.hint or "") from error

    return told


def _no_longer(outcome: device.NotPending) -> Refused:
    if outcome.reason == "user_not_enabled":
        return Refused("the owner's account is disabled", "enable it first")
    if outcome.reason == "no_scope":
        return Refused("nothing that was asked for may be granted", "name other scopes")
    return Refused(
        "that login is no longer waiting",
        "it was decided already, or ran out; ostiary pending lists who waits",
    )


def _request(found: device.DeviceRequest) -> dict[str, Any]:
    return asdict(found)


def _session(login: Login) -> dict[str, Any]:
    shown = (
        "id",
        "subject",
        "client_id",
        "client_name",
        "hostname",
        "server",
        "scope",
        "ip",
        "user_agent",
        "approved_by",
    )
    times = ("created_at", "last_used_at", "expires_at")
    return {
        **{name: getattr(login.grant, name) for name in (*shown, *times)},
        "user": login.user_name,
        "registered_name": login.registered_name,
        "usable": login.usable,
    }


def _client(client: Client) -> dict[str, Any]:
    shown = (
        "id",
        "kind",
        "name",
        "auth_method",
        "grant_types",
        "redirect_uris",
        "scope",
        "state",
        "created_at",
        "last_used_at",
    )
    return {name: getattr(client, name) for name in shown}
