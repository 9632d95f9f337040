"""Commands behind the admin socket for API keys: `ostiary api-keys create`, `list`, `revoke`."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from auth.people import user_accounts
from auth.people.user_accounts import UnfitEntry
from auth.tokens import api_keys
from auth.tokens.api_keys import ApiKey, ApiKeyNotMade, ApiKeyOrder
from auth.values import scopes
from auth.values.database import Db, JobStore
from auth.values.entropy import SEED_BYTES
from auth.values.identity_model import Millis
from auth.values.scopes import Vocabulary
from server.admin.bounded_arguments import lasting, needed_line, optional_line
from server.admin.control import CommandRefused, Handler, ListPage
from server.settings import tool_selection
from server.settings.tool_selection import BadSelection, SelectableNames

LONGEST_DAYS: Final = 3_650


class ApiKeyAdmin(msgspec.Struct, frozen=True, kw_only=True):
    store: JobStore
    clock: Callable[[], Millis]
    scopes: Vocabulary
    servers: Callable[[], Mapping[str, SelectableNames]]  # what they offer may change

    def commands(self) -> dict[str, Handler]:
        return {
            "api_keys": self.listing,
            # Not "create": that took days, and a server of then overlooks what it is told instead.
            "api_keys.make": self.create,
            "api_keys.revoke": self.revoke,
        }

    async def listing(self, arguments: Mapping[str, Any], actor: str) -> Any:
        """List a page. `at` is the last id of the page before; the newest of a page come first."""
        found = await self.store.read(partial(api_keys.page, after=_optional(arguments, "at") or ""))
        go_on = found[-1].id if len(found) == api_keys.LISTED else None
        found.sort(key=lambda key: (-key.created_at, key.id))
        return ListPage(rows=[_shown(key, self.clock()) for key in found], go_on=go_on)

    async def create(self, arguments: Mapping[str, Any], actor: str) -> Any:
        """Make a key. `user` is a name or an id, `user_id` an id and nothing else; without either it is the owner's."""
        now = self.clock()
        name, server = needed_line(arguments, "name", api_keys.MAX_NAME), _optional(arguments, "server")
        scope = _optional(arguments, "scope") or scopes.MCP.name
        tools = _optional(arguments, "tools") or ""
        self._check(server, scope, tools)
        words = f"a key lasts up to {LONGEST_DAYS} days, or for ever"
        lasts = lasting(arguments, days=LONGEST_DAYS, refused=words)
        user, user_id = _optional(arguments, "user"), _optional(arguments, "user_id")
        seed = secrets.token_bytes(SEED_BYTES)

        def job(db: Db) -> api_keys.NewApiKey | ApiKeyNotMade:
            whose = user_id or (user_accounts.owner_id(db) if user is None else user_id_of(db, user))
            order = ApiKeyOrder(
                name=name,
                user_id=whose,
                scope=scopes.join(scopes.parse(scope)),
                server=server,
                tools=tools,
                expires_at=None if lasts is None else now + lasts,
            )
            return api_keys.create(db, order, seed=seed, by=actor, now=now)

        made = await self.store.write(job)
        if isinstance(made, ApiKeyNotMade):
            raise _refused(made, user, name)
        return {**_shown(made.key, now), "key": made.secret.reveal()}

    async def revoke(self, arguments: Mapping[str, Any], actor: str) -> Any:
        key_id, now = needed_line(arguments, "id", 100), self.clock()
        if not await self.store.write(partial(api_keys.revoke, key_id=key_id, by=actor, now=now)):
            raise CommandRefused(f"there is no key {key_id} to revoke", "ostiary api-keys list shows them")
        return {"id": key_id}

    def _check(self, server: str | None, scope: str, tools: str) -> None:
        servers = self.servers()
        if server is not None and server not in servers:
            raise CommandRefused(f"there is no server {server}", f"there is {', '.join(servers)}")
        for name in scopes.parse(scope):
            if name not in self.scopes:
                raise CommandRefused(f"{name} is no scope", f"there is {', '.join(self.scopes.names)}")
        if not scopes.parse(scope):
            raise CommandRefused("a key has at least one scope")
        check_selection(tools, servers.values() if server is None else (servers[server],))


def check_selection(tools: str, servers: Collection[SelectableNames]) -> None:
    """Raise `CommandRefused` for a selection that cannot be read, or names what is nowhere."""
    try:
        strange = tool_selection.nowhere(tools, servers)
    except BadSelection as problem:
        raise CommandRefused(str(problem)) from problem
    if strange:
        raise CommandRefused(
            f"there is no tool or group {', '.join(strange)}", "ostiary tools URL lists them"
        )


def user_id_of(db: Db, typed: str) -> str:
    """Return whose name or id it is; empty for nobody's. Raise `CommandRefused` where it is one account's name and another's id: a name may look like one."""
    name = user_accounts.fit_name(typed)
    named = None if isinstance(name, UnfitEntry) else user_accounts.named(db, name)
    meant = {user.id for user in (named, user_accounts.find(db, typed)) if user is not None}
    if len(meant) > 1:
        raise CommandRefused(
            f"{typed} is the name of one user and the id of another", "ostiary users list shows both"
        )
    return next(iter(meant), "")


def _refused(made: ApiKeyNotMade, user: str | None, name: str) -> CommandRefused:
    match made.reason:
        case "no_user":
            return CommandRefused(
                f"there is no user {user or ''} whom a key could belong to",
                "ostiary users list shows who has joined",
            )
        case "beyond_the_user":
            return CommandRefused(
                f"a key cannot do more than its user {user or ''}".rstrip(),
                f"at most: {made.ceiling or 'nothing'}",
            )
        case "name_taken":
            return CommandRefused(f"there is a key called {name}", "ostiary api-keys list shows them")
        case "too_many":
            return CommandRefused("there are as many keys as this server keeps", "revoke some first")


_optional: Final = partial(optional_line, longest=api_keys.MAX_SELECTION)


def _shown(key: ApiKey, now: Millis) -> dict[str, Any]:
    shown = (
        "id", "name", "hint", "server", "scope", "created_by", "created_at", "expires_at", "last_used_at",
        "last_used_ip",
    )  # fmt: skip
    over = key.expires_at is not None and now >= key.expires_at
    return {
        **{name: getattr(key, name) for name in shown},
        "tools": key.tools,
        "user": key.user_name,
        "state": "expired" if over else "usable" if key.user_usable else "disabled",
    }
