"""Commands behind the admin socket for client programs: list, add, disable, remove, give another secret.

The other commands behind the admin socket are in command_table.py; how programs register themselves is identity's (auth/endpoints/client_registration.py).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from auth.clients import client_registry as clients
from auth.clients.client_registry import PRIVATE_KEY, ClientRegistration
from auth.jose.public_keys import SET_BYTES, BadKeys, set_from_text
from auth.values.database import JobStore
from auth.values.entropy import SEED_BYTES
from auth.values.identity_model import AUTHORIZATION_CODE, Client, Millis
from auth.values.scopes import Vocabulary
from server.admin.bounded_arguments import needed_text, optional_text, text, texts
from server.admin.control import CommandRefused, Handler, ListPage

# What a registration may be at most, whoever makes it.
LIST_ITEMS: Final = 10
ITEM_LENGTH: Final = 2_048


class ClientAdmin(msgspec.Struct, frozen=True, kw_only=True):
    """The parts these commands need."""

    store: JobStore
    clock: Callable[[], Millis]
    scopes: Vocabulary
    servers: Callable[[], Collection[str]]  # their names

    def commands(self) -> dict[str, Handler]:
        return {
            "clients": self.clients,
            "clients.add": self.add,
            "clients.disable": self.disable,
            "clients.enable": self.enable,
            "clients.remove": self.remove,
            "clients.rotate_secret": self.rotate_secret,
        }

    async def clients(self, arguments: Mapping[str, Any], actor: str) -> Any:
        """List a page. `at` is where the page before ended."""
        job = partial(clients.listing, after=_after(arguments))
        found = await self.store.read(job)
        last = found[-1] if len(found) == clients.LISTED else None
        return ListPage(
            rows=[_client(client) for client in found],
            go_on=None if last is None else [last.created_at, last.id],
        )

    async def add(self, arguments: Mapping[str, Any], actor: str) -> Any:
        """Add one: `name`, and what of the rest is not as usual; `public_key` is a PEM public key, a JWK or a JWK set."""
        registration = _registration(arguments)
        if problems := registration.check(self.scopes):
            raise CommandRefused("; ".join(problems))
        if registration.server is not None and registration.server not in self.servers():
            raise CommandRefused(
                f"there is no server {registration.server}", f"there is {', '.join(self.servers())}"
            )
        seed, now = secrets.token_bytes(SEED_BYTES), self.clock()
        added = await self.store.write(lambda db: clients.add(db, registration, seed=seed, by=actor, now=now))
        if added is None:
            raise CommandRefused(
                f"the client id {registration.client_id} is taken", "ostiary clients list shows who has it"
            )
        return {**_client(added.client), "client_secret": added.secret.reveal() if added.secret else None}

    async def disable(self, arguments: Mapping[str, Any], actor: str) -> Any:
        return await self._do(clients.disable, arguments, actor, "disable")

    async def enable(self, arguments: Mapping[str, Any], actor: str) -> Any:
        return await self._do(clients.enable, arguments, actor, "enable")

    async def remove(self, arguments: Mapping[str, Any], actor: str) -> Any:
        return await self._do(clients.remove, arguments, actor, "remove")

    async def rotate_secret(self, arguments: Mapping[str, Any], actor: str) -> Any:
        client_id, now, seed = needed_text(arguments, "id"), self.clock(), secrets.token_bytes(SEED_BYTES)
        secret = await self.store.write(
            lambda db: clients.rotate_secret(db, client_id, seed=seed, by=actor, now=now)
        )
        if secret is None:
            raise CommandRefused(
                f"there is no client {client_id} that has a secret", "ostiary clients list shows them"
            )
        return {"id": client_id, "client_secret": secret.reveal()}

    async def _do(
        self, job: Callable[..., bool], arguments: Mapping[str, Any], actor: str, verb: str
    ) -> Mapping[str, Any]:
        client_id, now = needed_text(arguments, "id"), self.clock()
        if not await self.store.write(lambda db: job(db, client_id, by=actor, now=now)):
            raise CommandRefused(
                f"there is no client {client_id} to {verb}",
                "ostiary clients list shows them" + ("; the built-in one stays" if verb == "remove" else ""),
            )
        return {"id": client_id}


def _registration(arguments: Mapping[str, Any]) -> ClientRegistration:
    redirect_uris = texts(arguments, "redirect_uris", most=LIST_ITEMS, longest=ITEM_LENGTH)
    introspects = arguments.get("introspects") is True
    grants = texts(arguments, "grant_types", most=LIST_ITEMS, longest=ITEM_LENGTH)
    if not grants and not introspects:
        grants = (*([AUTHORIZATION_CODE] if redirect_uris else []), *clients.GRANT_TYPES)
    jwks = _keys(arguments)
    jwks_uri = optional_text(arguments, "jwks_uri", ITEM_LENGTH)
    method = text(arguments, "auth_method") or "none"
    return ClientRegistration(
        name=needed_text(arguments, "name"),
        client_id=optional_text(arguments, "id"),
        auth_method=PRIVATE_KEY if method == "none" and (jwks or jwks_uri) else method,
        grant_types=grants,
        redirect_uris=redirect_uris,
        jwks=jwks,
        jwks_uri=jwks_uri,
        introspects=introspects,
        server=optional_text(arguments, "server"),
        **({"scope": scope} if (scope := text(arguments, "scope")) else {}),
    )


def _after(arguments: Mapping[str, Any]) -> tuple[Millis, str]:
    match arguments.get("at"):
        case None:
            return -1, ""
        case [int(created_at), str(client_id)]:
            return created_at, client_id
        case _:
            raise CommandRefused("at is where the page before ended")


def _keys(arguments: Mapping[str, Any]) -> str | None:
    if arguments.get("public_key") is None:
        return None
    try:
        return set_from_text(needed_text(arguments, "public_key", SET_BYTES))
    except BadKeys as problem:
        raise CommandRefused(f"the public key {problem}") from problem


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
        "introspects",
        "server",
        "client_uri",
        "jwks_uri",
        "network",
        "created_at",
        "authorized_at",
        "last_used_at",
    )
    return {name: getattr(client, name) for name in shown}
