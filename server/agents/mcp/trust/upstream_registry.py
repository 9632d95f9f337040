"""The upstreams of this process, with what was accepted of each and as whom it is called: for the agents that use them, and for whoever
is at the machine and decides about them.

A decision is written first and counts then. The offer with which an upstream was met is pinned at once and written behind: a crash between the
two meets it again. While other settings are tried, their upstreams stand beside those that serve: nobody sees them, and nothing that they were
met with is written, before `take`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec
import trio

from auth.values.database import JobStore
from auth.values.entropy import SEED_BYTES, Entropy
from auth.values.identity_model import Millis
from server.agents.base.backend import Trouble, Watched
from server.agents.mcp.trust import login_rows, pin_rows
from server.agents.mcp.trust.definition_guard import PinGuard, TrustMode
from server.agents.mcp.trust.definitions import Definition, DefinitionKey, seal_of
from server.agents.mcp.trust.login_rows import OURS, LoginVault, UpstreamLogin
from server.agents.mcp.trust.own_tokens import TokenIssuer
from server.agents.mcp.trust.owner_login import OwnerLogin
from server.agents.mcp.trust.person_connections import PersonConnections
from server.agents.mcp.trust.pin_rows import PinnedUpstream, UpstreamKey
from server.lib.log.logger import Logger
from server.lib.oauth_client.oauth_answers import Ask
from server.store.jobs import Change, Store, StoreError
from server.store.write_retry import WriteRetry

AGAIN_SECONDS: Final = 30.0  # after a store that could not write
SAME_ID: Final = "another upstream of this server has the same id; give each of them one of its own"


class NotAsShown(Exception):
    """The error of an offer that is not what somebody looked at: it changed meanwhile, or is gone."""


class _Met(msgspec.Struct, frozen=True):
    source: str
    definitions: Sequence[Definition]


class KnownUpstream(msgspec.Struct, kw_only=True):
    """One upstream while the server runs."""

    key: UpstreamKey
    what: str  # what its owner knows it by: an address, a command
    url: str  # empty for one that is not called over HTTP
    identity: str  # as whom it is called
    guard: PinGuard
    login: OwnerLogin | None = None  # where that is how it is called
    backend: object = None
    again: Callable[[], None] = lambda: None  # it is worth another try

    @property
    def revision(self) -> str:
        """The revision of MCP that is spoken with it; empty while there is no connection."""
        return str(getattr(self.backend, "revision", ""))

    @property
    def pages_ask(self) -> Sequence[str]:
        """The wishes of its pages that are not met as long as their owner has said nothing of them."""
        return getattr(self.backend, "pages_ask", ())

    def trouble(self) -> Trouble | None:
        return self.backend.trouble() if isinstance(self.backend, Watched) else self.guard.trouble()


class UpstreamRegistry:
    """The upstreams of one process. Without an `issuer` nothing is kept beyond it, and nobody knows its keys."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Callable[[], Millis],
        subkey: Callable[[str], bytes],
        entropy: Callable[[int], bytes],
        log: Logger,
        ask: Ask,
        issuer: Callable[[], TokenIssuer] | None = None,
        connections: PersonConnections | None = None,
        node: str = "",
    ) -> None:
        """Prepare an empty registry. `node` is the boot id of this one, where others may use the same database."""
        self.store: Final = store
        self.clock: Final = clock
        self.log: Final = log
        self.ask: Final = ask
        self.issuer: Final = issuer
        self.connections: Final = connections
        self.owed: Final = WriteRetry(store, log, "upstream.login_not_kept")
        self.vault: Final = LoginVault(subkey, entropy)
        self._node = node
        self._entropy = entropy
        self._known: dict[UpstreamKey, KnownUpstream] = {}
        self._coming: dict[UpstreamKey, KnownUpstream] | None = None  # while other settings are tried
        self._pinned: dict[UpstreamKey, PinnedUpstream] = {}
        self._met: dict[UpstreamKey, _Met] = {}  # not written yet
        self._met_coming: dict[UpstreamKey, _Met] = {}  # nor to be, before they serve
        self._changed_elsewhere: set[str] = set()
        self._woken = trio.Event()

    # ── for the agents ───────────────────────────────────────────────────────────────────────────────────────────────

    async def prepare(self, sources: Mapping[UpstreamKey, str]) -> None:
        """Read what was accepted of each, before its guard is asked for; `sources` are digests of where they are. Raise `StoreError`."""
        for key, source in sources.items():
            served = self._known.get(key)
            if served is not None and served.guard.source == source:
                self._pinned[key] = served.guard.pinned()
                continue
            self._pinned[key] = await self.store.read(partial(pin_rows.load, upstream=key, source=source))

    def guard(self, key: UpstreamKey, mode: TrustMode) -> PinGuard:
        """Return the guard of an upstream. Raise `ValueError`."""
        if mode == "pinned" and self.issuer is None:
            raise ValueError(
                'trust = "pinned" needs a server that keeps what was accepted, and nothing is kept over stdio;'
                ' write trust = "first-use"'
            )
        pinned = self._pinned[key]
        return PinGuard(
            key,
            mode,
            pinned,
            first=partial(self._first, key, pinned.source),
            clock=self.clock,
            log=self.log,
        )

    def owner_login(self, key: UpstreamKey, url: str) -> OwnerLogin:
        """Return the one login for all that are called with it, there: its refresh token is good for one use."""
        served = self._known.get(key)
        if served is not None and served.login is not None and served.url == url:
            return served.login
        return self.login_of(key, OURS, url)

    def login_of(self, key: UpstreamKey, person: str, url: str = "") -> OwnerLogin:
        return OwnerLogin(
            key,
            self.store,
            self.vault,
            self.ask,
            owed=self.owed,
            clock=self.clock,
            log=self.log,
            person=person,
            url=url,
            node=self._node,
        )

    def enter(self, upstream: KnownUpstream) -> None:
        """Enter an upstream. Raise `ValueError` where its name is another's."""
        those = self._known if self._coming is None else self._coming
        if upstream.key in those:
            raise ValueError(SAME_ID)
        those[upstream.key] = upstream

    async def begin_change(self, sources: Sequence[tuple[UpstreamKey, str]]) -> None:
        """Begin to try other settings, whose upstreams at the servers that they change are these; `take` or `dismiss` ends it.
        Raise `ValueError` and `StoreError`."""
        if len({key for key, _ in sources}) < len(sources):
            raise ValueError(SAME_ID)
        await self.prepare(dict(sources))
        self._coming = {}

    def take(self, backends: Collection[object]) -> None:
        """Let these serve from now on."""
        coming, self._coming = self._coming or {}, None
        those = [*self._known.values(), *coming.values()]
        self._known = {each.key: each for each in those if any(each.backend is one for one in backends)}
        for key in self._met.keys() - self._known.keys():
            del self._met[key]
        self._met |= {key: met for key, met in self._met_coming.items() if key in self._known}
        self._met_coming = {}
        if self._met:
            self._woken.set()

    def dismiss(self) -> None:
        """Leave all as it was."""
        self._coming, self._met_coming = None, {}

    async def run(self) -> None:
        """Write what was offered when an upstream was met and what logins owe, and read what others have decided, for as long as the server
        runs."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.owed.run)
            await self._keep_up()

    async def _keep_up(self) -> None:
        while True:
            await self._woken.wait()
            self._woken = trio.Event()
            await self._read_changed()
            while self._met:
                key = next(iter(self._met))
                try:
                    await self._pin_first(key, self.store)
                except StoreError as error:
                    self.log.warning("upstream.not_pinned", upstream=str(key), reason=str(error))
                    await trio.sleep(AGAIN_SECONDS)

    async def _pin_first(self, key: UpstreamKey, store: JobStore) -> None:
        """Write what it was met with, if that is still to be done: whatever else is decided of it comes after."""
        met = self._met.get(key)
        if met is None:
            return
        job = partial(
            pin_rows.accept_first,
            upstream=key,
            source=met.source,
            definitions=met.definitions,
            now=self.clock(),
        )
        await store.write(job)
        if self._met.get(key) is met:
            del self._met[key]

    def apply_changes(self, changes: Sequence[Change]) -> None:
        """Apply what the store's `on_changes` tells: somebody has accepted, forgotten, logged in or out, here or in another process."""
        names = {change.entity_id for change in changes if change.kind == pin_rows.CHANGE}
        if names:
            self._changed_elsewhere |= names
            self._woken.set()

    async def _read_changed(self) -> None:
        while self._changed_elsewhere:
            names, self._changed_elsewhere = self._changed_elsewhere, set()
            for upstream in [each for key, each in self._known.items() if str(key) in names]:
                key, source = upstream.key, upstream.guard.source
                try:
                    pinned = await self.store.read(partial(pin_rows.load, upstream=key, source=source))
                except StoreError as error:
                    self.log.warning("upstream.not_read", upstream=str(key), reason=str(error))
                    self._changed_elsewhere.add(str(key))
                    await trio.sleep(AGAIN_SECONDS)
                    continue
                if key not in self._met:  # what it was met with is not written yet
                    upstream.guard.take(pinned)
                if upstream.login is not None:
                    self._changed(upstream)

    def _first(self, key: UpstreamKey, source: str, definitions: Sequence[Definition]) -> None:
        self.log.info("upstream.met", upstream=str(key), accepted=len(definitions), trust="first-use")
        met = _Met(source, definitions)
        served = self._known.get(key)
        if self._coming is not None and (served is None or served.guard.source != source):
            self._met_coming[key] = met
            return
        self._met[key] = met
        self._woken.set()

    # ── for whoever is at the machine ────────────────────────────────────────────────────────────────────────────────

    @property
    def known(self) -> Mapping[UpstreamKey, KnownUpstream]:
        return self._known

    def named(self, name: str) -> list[KnownUpstream]:
        """Return those that can be meant by the whole name, or by its end where that is the only one."""
        exact = [each for key, each in self._known.items() if str(key) == name]
        return exact or [each for key, each in self._known.items() if key.agent == name]

    def withheld(self, upstream: KnownUpstream, keys: Sequence[DefinitionKey] | None) -> list[Definition]:
        """Return what of it waits to be accepted, or those of these that do."""
        wanted = None if keys is None else set(keys)
        blocked = upstream.guard.verdict.blocked
        return [each for each in blocked if wanted is None or each.key in wanted]

    def acceptable(self, upstream: KnownUpstream, keys: Sequence[DefinitionKey] | None) -> list[Definition]:
        """Return what is withheld and can be shown whole. Nothing else is ever accepted, wherever it is looked at."""
        return [each for each in self.withheld(upstream, keys) if each.is_whole]

    async def accept(
        self,
        upstream: KnownUpstream,
        keys: Sequence[DefinitionKey] | None,
        *,
        seal: str,
        by: str,
        store: JobStore | None = None,
    ) -> Sequence[Definition]:
        """Accept what was shown, whose seal is `seal`. Raise `NotAsShown`, and what the store raises.

        `store` is by which it is written, if not by the one that all is."""
        chosen = self.acceptable(upstream, keys)
        if seal_of(chosen) != seal:
            raise NotAsShown
        now, store = self.clock(), store or self.store
        await self._pin_first(upstream.key, store)
        await store.write(
            partial(
                pin_rows.accept,
                upstream=upstream.key,
                source=upstream.guard.source,
                definitions=chosen,
                by=by,
                now=now,
            )
        )
        for guard in self._guards(upstream):
            guard.accepted(chosen, by, now)
        return chosen

    async def forget(
        self, upstream: KnownUpstream, keys: Sequence[DefinitionKey] | None, *, by: str
    ) -> Sequence[DefinitionKey]:
        """Forget what was accepted, and return its keys. Raise what the store raises."""
        found = [key for key in upstream.guard.pins if keys is None or key in set(keys)]
        await self._pin_first(upstream.key, self.store)
        job = partial(
            pin_rows.forget,
            upstream=upstream.key,
            keys=None if keys is None else found,
            by=by,
            now=self.clock(),
        )
        await self.store.write(job)
        coming = (self._coming or {}).get(upstream.key)
        # Also where it comes from elsewhere: what is kept goes by its id.
        for guard in (upstream.guard, *(() if coming is None else (coming.guard,))):
            guard.forgotten(None if keys is None else found)
        return found

    def _guards(self, upstream: KnownUpstream) -> list[PinGuard]:
        """Return its own guard, and that of what may come in its place."""
        coming = (self._coming or {}).get(upstream.key)
        if coming is None or coming.guard.source != upstream.guard.source:
            return [upstream.guard]
        return [upstream.guard, coming.guard]

    async def log_in(self, upstream: KnownUpstream, login: UpstreamLogin, *, by: str) -> None:
        """Keep a login. Raise what the store raises."""
        sealed = self.vault.seal(upstream.key, OURS, login)
        login_id = Entropy(self._entropy(SEED_BYTES)).identifier("ul")
        await self.store.write(
            partial(
                login_rows.put,
                upstream=upstream.key,
                person=OURS,
                sealed=sealed,
                login_id=login_id,
                by=by,
                now=self.clock(),
            )
        )
        self._changed(upstream)

    async def log_out(self, upstream: KnownUpstream, *, by: str) -> bool:
        """End the login, and tell whether there was one. Raise what the store raises."""
        job = partial(
            login_rows.end, upstream=upstream.key, person=OURS, by=by, why="by its owner", now=self.clock()
        )
        ended = await self.store.write(job)
        self._changed(upstream)
        return ended

    def _changed(self, upstream: KnownUpstream) -> None:
        if upstream.login is not None:
            upstream.login.changed()
            upstream.again()
