"""Accounts that people have at upstreams with `identity = "person"`: the way there and back, and the tokens, each sealed for its person.

Implements `auth.values.connected_accounts.Connections` for the pages. A trip counts once, for the person and the browser that began it; the
answer must name the issuer that it was begun with (RFC 9207), and its code is redeemed with the verifier that only we have (RFC 7636).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final
from urllib.parse import urlsplit

import msgspec

from auth.keys.sealed_secrets import open_struct, seal_struct
from auth.providers.browser_trips import Trip, TripKind, made_up
from auth.values.connected_accounts import AccountPlace, CannotConnect, ConnectedAccount
from auth.values.database import Db
from auth.values.entropy import SEED_BYTES, Entropy
from auth.values.identity_model import Millis
from server.agents.mcp.trust import login_rows
from server.agents.mcp.trust.authorization_server import AuthorizationServers
from server.agents.mcp.trust.login_rows import LoginVault, UpstreamLogin
from server.agents.mcp.trust.pin_rows import UpstreamKey
from server.lib.log.logger import Logger
from server.lib.oauth_client.authorization_code import authorization_link, code_form, comes_from
from server.lib.oauth_client.client_identity import NONE, ClientIdentity
from server.lib.oauth_client.dynamic_registration import Registered
from server.lib.oauth_client.issuer_metadata import ServerMetadata
from server.lib.oauth_client.oauth_answers import Ask, OAuthFailure
from server.lib.oauth_client.token_requests import fetch_tokens
from server.lib.secret import Secret
from server.store.jobs import Change, Store, StoreDb

LISTED: Final = 100
KEY_CHARACTERS: Final = 4_096
# Keys of which it is known when they were last used.
USES_KNOWN: Final = 10_000


class PersonalUpstream(msgspec.Struct, frozen=True, kw_only=True):
    """An upstream that is used with accounts of people: what its settings say."""

    key: UpstreamKey
    resource: str
    issuer: str
    scope: str
    identity: ClientIdentity | None  # None: we register ourselves
    by_key: bool = False  # people paste a key of theirs

    @property
    def label(self) -> str:
        return urlsplit(self.issuer).netloc


class _Trip(Trip, frozen=True, kw_only=True):
    issuer: str
    token_endpoint: str
    names_itself: bool
    client: Registered


TRIPS: Final = TripKind(
    shape=_Trip,
    table="upstream_trips",
    of=("server", "agent", "user_id"),
    purpose="upstream-trips",
    bound="trip ",
)


class PersonConnections:
    """The accounts of all people at all such upstreams. Listeners are told whose login at which upstream is another now."""

    def __init__(
        self,
        upstreams: Sequence[PersonalUpstream],
        store: Store,
        *,
        servers: AuthorizationServers,
        ask: Ask,
        clock: Callable[[], Millis],
        subkey: Callable[[str], bytes],
        entropy: Callable[[int], bytes],
        log: Logger,
    ) -> None:
        self._upstreams: Mapping[UpstreamKey, PersonalUpstream] = {each.key: each for each in upstreams}
        self._store = store
        self._servers = servers
        self._ask = ask
        self._clock = clock
        self._subkey = subkey
        self._entropy = entropy
        self._log = log
        self._vault = LoginVault(subkey, entropy)
        self._last_used: OrderedDict[tuple[UpstreamKey, str], Millis] = OrderedDict()
        self._listeners: dict[UpstreamKey, Callable[[str], None]] = {}

    def listen(self, upstream: UpstreamKey, changed: Callable[[str], None]) -> None:
        """Listen: `changed` is given the id of a person whose login there is another now."""
        self._listeners[upstream] = changed

    def apply_changes(self, changes: Sequence[Change]) -> None:
        """Apply what the store's `on_changes` tells: nothing is remembered of an account that was locked or removed, nor of one at an
        upstream that was connected or taken away, here or in another process."""
        for change in changes:
            if (found := login_rows.whose(change)) is not None:
                for key, changed in self._listeners.items():
                    if str(key) == found[0]:
                        changed(found[1])
            elif change.kind == "user":
                for changed in self._listeners.values():
                    changed(change.entity_id)

    # ── for pages ────────────────────────────────────────────────────────────────────────────────────────────────────

    def place(self, server: str, agent: str) -> AccountPlace | None:
        found = self._upstreams.get(UpstreamKey(server, agent))
        if found is None:
            return None
        return AccountPlace(server=server, agent=agent, label=found.label, by_key=found.by_key)

    async def keep_key(self, place: AccountPlace, key: str, *, user_id: str) -> bool:
        upstream = self._upstreams[UpstreamKey(place.server, place.agent)]
        if not (upstream.by_key and 0 < len(key) <= KEY_CHARACTERS and all("!" <= c <= "~" for c in key)):
            return False
        await self._keep(
            upstream,
            user_id,
            UpstreamLogin(
                resource=upstream.resource,
                issuer=upstream.issuer,
                token_endpoint="",
                client_id="",
                auth_method=NONE,
                access_token=Secret(key),
                obtained_at=self._clock(),
            ),
        )
        return True

    def used(self, upstream: UpstreamKey, person: str) -> None:
        """Remember, as long as this process runs, that a person's key was sent there just now."""
        self._last_used[upstream, person] = self._clock()
        self._last_used.move_to_end((upstream, person))
        if len(self._last_used) > USES_KNOWN:
            self._last_used.popitem(last=False)

    async def leave(self, place: AccountPlace, *, user_id: str, cookie: str, origin: str) -> str:
        upstream = self._upstreams[UpstreamKey(place.server, place.agent)]
        redirect_uri = origin + place.callback
        try:
            server = await self._servers.find(upstream.issuer)
            client = await self._client(upstream, server, redirect_uri)
        except CannotConnect as problem:
            self._log.warning("upstream.cannot_connect", upstream=str(upstream.key), reason=str(problem))
            raise
        state, verifier = made_up(self._entropy), made_up(self._entropy)
        trip = _Trip(
            verifier=Secret(verifier),
            redirect_uri=redirect_uri,
            issuer=server.issuer,
            token_endpoint=server.token_endpoint,
            names_itself=server.names_itself,
            client=client,
        )
        await self._store.write(
            partial(
                _begin,
                upstream=upstream.key,
                user_id=user_id,
                state=state,
                cookie=cookie,
                sealed=TRIPS.seal(trip, state, self._subkey, self._entropy),
                now=self._clock(),
            )
        )
        return authorization_link(
            server.authorization_endpoint or "",
            client_id=client.client_id,
            redirect_uri=redirect_uri,
            state=state,
            verifier=verifier,
            more={"resource": upstream.resource, "scope": upstream.scope},
        )

    async def come_back(
        self, place: AccountPlace, *, state: str, code: str, iss: str, user_id: str, cookie: str
    ) -> bool:
        upstream = self._upstreams[UpstreamKey(place.server, place.agent)]
        of = (place.server, place.agent, user_id)
        trip = await TRIPS.come_back(
            self._store, self._subkey, *of, state=state, cookie=cookie, now=self._clock()
        )
        if trip is None:
            return False
        if not code:
            return True
        if not comes_from(trip.issuer, iss or None, always=trip.names_itself):
            self._log.warning("upstream.mixed_up", upstream=str(upstream.key))
            raise CannotConnect("sent an answer in another name, which was not used")
        form = code_form(
            code=code,
            redirect_uri=trip.redirect_uri,
            verifier=trip.verifier.reveal(),
            resource=upstream.resource,
        )
        try:
            tokens = await fetch_tokens(self._ask, trip.token_endpoint, form, trip.client.identity)
        except OAuthFailure as denied:
            self._log.warning("upstream.cannot_connect", upstream=str(upstream.key), reason=str(denied))
            raise CannotConnect(str(denied)) from None
        now = self._clock()
        login = UpstreamLogin(
            resource=upstream.resource,
            issuer=trip.issuer,
            token_endpoint=trip.token_endpoint,
            client_id=trip.client.client_id,
            client_secret=trip.client.client_secret,
            auth_method=trip.client.auth_method,
            access_token=tokens.access_token,
            refresh_token=tokens.refresh_token,
            scope=upstream.scope if tokens.scope is None else tokens.scope,
            obtained_at=now,
            expires_at=tokens.expires_at(now),
        )
        await self._keep(upstream, user_id, login)
        return True

    async def _keep(self, upstream: PersonalUpstream, user_id: str, login: UpstreamLogin) -> None:
        await self._store.write(
            partial(
                login_rows.put,
                upstream=upstream.key,
                person=user_id,
                sealed=self._vault.seal(upstream.key, user_id, login),
                login_id=Entropy(self._entropy(SEED_BYTES)).identifier("ul"),
                by=f"user:{user_id}",
                now=self._clock(),
            )
        )
        self._last_used.pop((upstream.key, user_id), None)
        self._changed(upstream.key, user_id)

    def listing(self, db: Db, user_id: str) -> list[ConnectedAccount]:
        rows = db.fetch_all(
            "SELECT server, agent, obtained_at FROM upstream_tokens WHERE user_id = ?"
            " ORDER BY server, agent LIMIT ?",
            user_id,
            LISTED,
        )
        found: list[ConnectedAccount] = []
        for row in rows:
            key = UpstreamKey(row["server"], row["agent"])
            known = self._upstreams.get(key)
            found.append(
                ConnectedAccount(
                    server=row["server"],
                    agent=row["agent"],
                    label=row["agent"] if known is None else known.label,
                    since=row["obtained_at"],
                    by_key=known is not None and known.by_key,
                    used=self._last_used.get((key, user_id)),
                )
            )
        return found

    async def end(self, server: str, agent: str, *, user_id: str) -> bool:
        key = UpstreamKey(server, agent)
        ended = await self._store.write(
            partial(
                login_rows.end,
                upstream=key,
                person=user_id,
                by=f"user:{user_id}",
                why="on the page You",
                now=self._clock(),
            )
        )
        self._changed(key, user_id)
        return ended

    def _changed(self, key: UpstreamKey, user_id: str) -> None:
        if (listener := self._listeners.get(key)) is not None:
            listener(user_id)

    # ── who we are there ─────────────────────────────────────────────────────────────────────────────────────────────

    async def _client(
        self, upstream: PersonalUpstream, server: ServerMetadata, redirect_uri: str
    ) -> Registered:
        if upstream.identity is not None:
            return Registered(
                issuer=server.issuer,
                redirect_uri=redirect_uri,
                client_id=upstream.identity.client_id,
                client_secret=upstream.identity.secret,
                auth_method=upstream.identity.method,
            )
        key, bound_to = self._subkey(TRIPS.purpose), f"client {upstream.key}"
        row = await self._store.read(partial(_registered, upstream=upstream.key))
        kept = None if row is None else open_struct(key, row, Registered, bound_to=bound_to)
        fits = kept is not None and (kept.issuer, kept.redirect_uri) == (server.issuer, redirect_uri)
        if kept is not None and fits and (kept.expires_at is None or self._clock() < kept.expires_at):
            return kept
        made = await self._servers.register(server, redirect_uri=redirect_uri, scope=upstream.scope)
        sealed = seal_struct(key, made, self._entropy, bound_to=bound_to)
        await self._store.write(partial(_remember, upstream=upstream.key, sealed=sealed))
        return made


def _begin(
    db: StoreDb, *, upstream: UpstreamKey, user_id: str, state: str, cookie: str, sealed: str, now: Millis
) -> None:
    """Begin a trip, as a job. A person has at most one to a place under way."""
    of = (upstream.server, upstream.agent, user_id)
    db.execute("DELETE FROM upstream_trips WHERE server = ? AND agent = ? AND user_id = ?", *of)
    TRIPS.begin(db, *of, state=state, cookie=cookie, sealed=sealed, now=now)


def _registered(db: StoreDb, *, upstream: UpstreamKey) -> str | None:
    row = db.fetch_one(
        "SELECT sealed FROM upstream_clients WHERE server = ? AND agent = ?", upstream.server, upstream.agent
    )
    return None if row is None else row["sealed"]


def _remember(db: StoreDb, *, upstream: UpstreamKey, sealed: str) -> None:
    db.execute(
        "INSERT INTO upstream_clients (server, agent, sealed) VALUES (?, ?, ?)"
        " ON CONFLICT (server, agent) DO UPDATE SET sealed = excluded.sealed",
        upstream.server,
        upstream.agent,
        sealed,
    )
