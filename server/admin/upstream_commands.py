"""Commands behind the admin socket for upstreams: `ostiary upstream list`, `diff`, `accept`, `forget`, `login`, `logout`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from shlex import quote
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from auth.values.database import JobStore
from server.admin.bounded_arguments import needed_line
from server.admin.control import CommandRefused, Handler, ListPage
from server.agents.base.backend import Foreign
from server.agents.mcp.trust import login_rows
from server.agents.mcp.trust.definitions import KINDS, MAX_KEPT, DefinitionKey, seal_of
from server.agents.mcp.trust.login_rows import OURS, BadLogin
from server.lib.shortened import short_name
from server.store.jobs import Store

if TYPE_CHECKING:
    from server.agents.mcp.trust.upstream_registry import KnownUpstream, UpstreamRegistry

# Each may hold two texts of 64 KiB, which grow when they are written as JSON once more.
DIFF_PAGE: Final = 16
CHOSEN: Final = 500
NAME: Final = 200
# Of each upstream in the list: `diff` shows all.
NAMED: Final = 100
LIST: Final = "ostiary upstream list shows them"


class UpstreamAdmin(msgspec.Struct, frozen=True, kw_only=True):
    store: Store
    find_desk: Callable[[], UpstreamRegistry | None]  # None: this server has no upstream now
    accepting: JobStore | None = (
        None  # by which what is accepted is written, where that is not the desk's own
    )

    def commands(self) -> dict[str, Handler]:
        return {
            "upstreams": self.listing,
            "upstreams.diff": self.diff,
            "upstreams.accept": self.accept,
            "upstreams.forget": self.forget,
            "upstreams.place": self.place,
            "upstreams.login": self.log_in,
            "upstreams.logout": self.log_out,
        }

    async def listing(self, arguments: Mapping[str, Any], actor: str) -> Any:
        desk = self.find_desk()
        return [] if desk is None else [await self._shown(each) for each in desk.known.values()]

    async def diff(self, arguments: Mapping[str, Any], actor: str) -> Any:
        """Return what waits to be accepted: of `tools`, or all. `at`: how many came before. Each page says what all of them come to that
        are shown whole; the others cannot be accepted."""
        upstream, keys = self._meant(arguments), _chosen(arguments)
        waiting = self._desk.withheld(upstream, keys)
        _none_missing(upstream, keys, waiting)
        at = arguments.get("at")
        begin = at if isinstance(at, int) and not isinstance(at, bool) and at > 0 else 0
        page = waiting[begin : begin + DIFF_PAGE]
        pins, seal = upstream.guard.pins, seal_of(self._desk.acceptable(upstream, keys))
        rows = [
            {
                "kind": each.key.kind,
                "name": each.key.name,
                "since": upstream.guard.since(each.key),
                "old": pins[each.key].text if each.key in pins else "",
                "accepted_at": pins[each.key].accepted_at if each.key in pins else None,
                "accepted_by": pins[each.key].accepted_by if each.key in pins else None,
                "new": each.text,
                "digest": each.digest,
                "whole": each.is_whole,
                "seal": seal,
                "upstream": str(upstream.key),
            }
            for each in page
        ]
        more = begin + DIFF_PAGE < len(waiting)
        return ListPage(rows=rows, go_on=begin + DIFF_PAGE if more else None)

    async def accept(self, arguments: Mapping[str, Any], actor: str) -> Any:
        """Accept what was shown by `diff`, of which `seal` is."""
        from server.agents.mcp.trust.upstream_registry import NotAsShown  # loaded where there is an upstream

        upstream, keys = self._meant(arguments), _chosen(arguments)
        large = [each.key.name for each in self._desk.withheld(upstream, keys) if not each.is_whole]
        if keys is not None and large:
            raise CommandRefused(
                f"nobody can be shown the whole of what is larger than {MAX_KEPT // 1024} KiB, so it is not accepted: {short_name(large[0])}",
                'leave it out: tools = ["!NAME"] of the upstream',
            )
        try:
            accepted = await self._desk.accept(
                upstream, keys, seal=needed_line(arguments, "seal", NAME), by=actor, store=self.accepting
            )
        except NotAsShown:
            raise CommandRefused(
                "it offers something else by now than what was shown",
                f"ostiary upstream accept {quote(str(upstream.key))} shows it again",
            ) from None
        return {
            "upstream": str(upstream.key),
            "accepted": [{"kind": each.key.kind, "name": each.key.name} for each in accepted],
            "waiting": len(upstream.guard.verdict.blocked),
        }

    async def forget(self, arguments: Mapping[str, Any], actor: str) -> Any:
        upstream, keys = self._meant(arguments), _chosen(arguments)
        gone = await self._desk.forget(upstream, keys, by=actor)
        if not gone:
            raise CommandRefused(f"nothing of {upstream.key} was accepted that could be forgotten", LIST)
        return {
            "upstream": str(upstream.key),
            "forgotten": [{"kind": key.kind, "name": key.name} for key in gone],
        }

    async def place(self, arguments: Mapping[str, Any], actor: str) -> Any:
        """Say where to log in."""
        upstream = self._with_login(arguments)
        return {"upstream": str(upstream.key), "url": upstream.url}

    async def log_in(self, arguments: Mapping[str, Any], actor: str) -> Any:
        upstream = self._with_login(arguments)
        try:
            login = login_rows.read_login(arguments.get("login"))
        except BadLogin:
            raise CommandRefused("that is no login") from None
        await self._desk.log_in(upstream, login, by=actor)
        return {"upstream": str(upstream.key), "scope": login.scope}

    async def log_out(self, arguments: Mapping[str, Any], actor: str) -> Any:
        upstream = self._with_login(arguments)
        if not await self._desk.log_out(upstream, by=actor):
            raise CommandRefused(f"there is no login at {upstream.key}", LIST)
        return {"upstream": str(upstream.key)}

    @property
    def _desk(self) -> UpstreamRegistry:
        desk = self.find_desk()
        if desk is None or not desk.known:
            raise CommandRefused("this server has no upstream", 'an agent of kind = "mcp" has one')
        return desk

    def _meant(self, arguments: Mapping[str, Any]) -> KnownUpstream:
        name = needed_line(arguments, "upstream", NAME)
        found = self._desk.named(name)
        if len(found) == 1:
            return found[0]
        all_names = ", ".join(str(key) for key in list(self._desk.known)[:NAMED])
        if found:
            raise CommandRefused(
                f"{name} could be any of {', '.join(str(each.key) for each in found)}", "write the whole name"
            )
        raise CommandRefused(f"there is no upstream {name}", f"there is {all_names}")

    def _with_login(self, arguments: Mapping[str, Any]) -> KnownUpstream:
        upstream = self._meant(arguments)
        if upstream.login is not None:
            return upstream
        if not upstream.url:
            raise CommandRefused(f"{upstream.key} is no server at a url: there is nothing to log in to")
        raise CommandRefused(
            f"{upstream.key} is called as its settings say ({upstream.identity}), not with a login of the owner's",
            'identity = "login", without token and headers, has one',
        )

    async def _shown(self, upstream: KnownUpstream) -> dict[str, Any]:
        guard, trouble = upstream.guard, upstream.trouble()
        waiting = [
            {
                "kind": each.key.kind,
                "name": each.key.name,
                "since": guard.since(each.key),
                "changed": each.key in guard.pins,
            }
            for each in guard.verdict.blocked[:NAMED]
        ]
        return {
            "upstream": str(upstream.key),
            "what": upstream.what,
            "trust": guard.mode,
            "identity": upstream.identity,
            "revision": upstream.revision,
            "seen_at": guard.seen_at,
            "tools": sum(key.kind == "tool" for key in guard.offered),
            "accepted": len(guard.pins),
            "waiting": waiting,
            "waiting_count": len(guard.verdict.blocked),
            "gone": len(guard.verdict.gone),
            "left_out": list(upstream.backend.left_out()[:NAMED])
            if isinstance(upstream.backend, Foreign)
            else [],
            "pages_ask": list(upstream.pages_ask[:NAMED]),
            "trouble": None if trouble is None else {"words": trouble.words, "since": trouble.since},
            "login": await self._login(upstream),
        }

    async def _login(self, upstream: KnownUpstream) -> dict[str, Any] | None:
        """Describe the login, with nothing secret; None where there is none."""
        if upstream.login is None:
            return None

        def look(db: Any) -> Any:
            return db.fetch_one(
                "SELECT obtained_at, obtained_by FROM upstream_tokens WHERE server = ? AND agent = ? AND person = ?",
                upstream.key.server,
                upstream.key.agent,
                OURS,
            )

        row = await self.store.read(look)
        return None if row is None else {"since": row["obtained_at"], "by": row["obtained_by"]}


def _chosen(arguments: Mapping[str, Any]) -> list[DefinitionKey] | None:
    """Read `tools`: names, each a tool's unless a kind stands before it: `prompt:greet`, `template:file:///{path}`. None: all."""
    value = arguments.get("tools")
    if value is None:
        return None
    if not isinstance(value, list) or len(cast("list[object]", value)) > CHOSEN:
        raise CommandRefused(f"name at most {CHOSEN} tools, or all of them with --all")
    return [key_of(each) for each in cast("list[object]", value)]


def key_of(written: object) -> DefinitionKey:
    if not isinstance(written, str) or not written or len(written) > 4_096:
        raise CommandRefused("a tool is named by its name")
    kind, colon, name = written.partition(":")
    if colon and kind in KINDS and name:
        return DefinitionKey(kind, name)
    return DefinitionKey("tool", written)


def _none_missing(
    upstream: KnownUpstream, keys: Sequence[DefinitionKey] | None, waiting: Sequence[Any]
) -> None:
    missing = [key for key in keys or () if key not in {each.key for each in waiting}]
    if missing:
        named = ", ".join(f"{key.kind} {short_name(key.name)}" for key in missing[:5])
        raise CommandRefused(
            f"{upstream.key} has nothing of this name that waits to be accepted: {named}", LIST
        )
