"""The opening of an agent with an upstream: from its settings to the back-end that calls it, what it is believed, and as whom it is called.

Loaded only where there is such an agent."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from auth.values.identity_model import Millis
from server.agents.mcp.mcp_settings import McpConfig
from server.agents.mcp.trust.authorization_server import AuthorizationServers
from server.agents.mcp.trust.call_credentials import (
    MakeToken,
    TokenCredential,
    WithHeaders,
    asserted,
    client_credentials,
    exchanged,
    for_caller,
    for_everybody,
    own_token,
)
from server.agents.mcp.trust.definitions import canonical
from server.agents.mcp.trust.own_tokens import TokenIssuer
from server.agents.mcp.trust.owner_login import OwnerLogin
from server.agents.mcp.trust.person_connections import PersonalUpstream, PersonConnections
from server.agents.mcp.trust.person_identity import PersonCredential
from server.agents.mcp.trust.person_key import KeyCredential
from server.agents.mcp.trust.pin_rows import UpstreamKey
from server.agents.mcp.trust.upstream_registry import KnownUpstream, UpstreamRegistry
from server.agents.mcp.upstream_agent import MakeBuyer, McpBackend, TellReceipt
from server.agents.mcp.upstream_credentials import PayerCredential, StaticCredential
from server.client.mcp_session.session_request import Credential
from server.lib.log.logger import Logger
from server.lib.oauth_client.client_identity import BASIC, NONE, POST, ClientIdentity
from server.lib.oauth_client.oauth_fetcher import OAuthFetcher
from server.lib.secret import Secret
from server.settings.secret_reference import read_secret
from server.settings.setting_shapes import ServerConfig
from server.store.jobs import Store

if TYPE_CHECKING:
    from server.agents.mcp.remote_suspended import RemoteSuspended

# How it is called where the settings have the credential itself, and where there is none to show.
STATIC: Final = "the credential in the settings"
NOBODY: Final = "nobody"
# With whose account calls are made there: with the others each caller has one, and what is taken from it is no cost of ours.
OWNERS: Final = frozenset({STATIC, "login", "client-credentials"})


def open_desk(
    store: Store,
    subkey: Callable[[str], bytes],
    log: Logger,
    issuer: Callable[[], TokenIssuer] | None,
    *,
    clock: Callable[[], Millis],
    connections: PersonConnections | None = None,
    node: str = "",
) -> UpstreamRegistry:
    """Open the registry of all upstreams.

    Without an `issuer` nothing is kept beyond this process. `node` is the boot id of this one, where others may use the same database."""
    return UpstreamRegistry(
        store,
        clock=clock,
        subkey=subkey,
        entropy=secrets.token_bytes,
        log=log,
        issuer=issuer,
        ask=OAuthFetcher(),
        connections=connections,
        node=node,
    )


def sources_of(servers: Iterable[ServerConfig]) -> list[tuple[UpstreamKey, str]]:
    """Return the upstreams of these servers, and digests of where each is."""
    return [
        (UpstreamKey(server.name, agent.id), _source_of(agent))
        for server in servers
        for agent in server.agents
        if isinstance(agent, McpConfig)
    ]


def open_upstream(
    config: McpConfig,
    desk: UpstreamRegistry,
    *,
    server: str,
    headers: Mapping[str, Secret],
    environment: Mapping[str, str],
    name: str,
    log: Logger,
    buying: MakeBuyer | None = None,
    tell_receipt: TellReceipt | None = None,
    parked: RemoteSuspended | None = None,
) -> McpBackend:
    """Open the back-end of an upstream, and enter it in the registry. Raise `ValueError` and `SecretUnreadable` for settings that turn out not to work.

    `tell_receipt` tells the books what it takes for a call from an account of the owner."""
    key = UpstreamKey(server, config.id)
    guard = desk.guard(key, config.trust)
    static = StaticCredential(headers, read_secret(config.token) if config.token else None)
    login: OwnerLogin | None = None
    credential: Credential = static
    called = STATIC if config.sends_authorization else NOBODY
    if config.url and config.identity == "person-key":
        called = config.identity
        credential = WithHeaders(
            _by_key(config, desk, key), static, ours=("authorization", config.key_header.lower())
        )
    elif config.url and not config.sends_authorization:
        called = config.identity
        if config.identity == "login":
            login = desk.owner_login(key, config.url)
            credential = WithHeaders(login, static)
            if config.pay.written:
                credential = PayerCredential(credential)
        elif config.identity == "person":
            login = desk.owner_login(key, config.url)
            credential = WithHeaders(_personal(config, desk, key, login), static)
        else:
            whose = for_everybody if config.identity == "client-credentials" else for_caller(server)
            token = TokenCredential(key, _make(config, desk, server), whose, clock=desk.clock, log=log)
            credential = WithHeaders(token, static)
    backend = McpBackend(
        config,
        credential=credential,
        guard=guard,
        environment=environment,
        name=name,
        log=log,
        buying=buying,
        tell_receipt=tell_receipt if called in OWNERS else None,
        parked=parked,
    )
    served = desk.known.get(key)
    if served is not None and isinstance(served.backend, McpBackend):
        backend.succeed(served.backend)
    desk.enter(
        KnownUpstream(
            key=key,
            what=config.place,
            url=config.url,
            identity=called,
            guard=guard,
            login=login,
            backend=backend,
            again=backend.try_again,
        )
    )
    return backend


def open_connections(
    servers: Sequence[ServerConfig],
    store: Store,
    subkey: Callable[[str], bytes],
    log: Logger,
    *,
    clock: Callable[[], Millis],
) -> PersonConnections:
    """Open the accounts at all upstreams that are used with accounts of people. Raise `SecretUnreadable`."""
    ask = OAuthFetcher()
    upstreams = [
        PersonalUpstream(
            key=UpstreamKey(server.name, agent.id),
            resource=agent.oauth.audience or agent.url,
            issuer=agent.oauth.authorization_server or agent.url,
            by_key=agent.identity == "person-key",
            scope=agent.oauth.scope,
            identity=_identity(agent) if agent.oauth.client_id else None,
        )
        for server in servers
        for agent in server.agents
        if isinstance(agent, McpConfig) and agent.identity in ("person", "person-key")
    ]
    return PersonConnections(
        upstreams,
        store,
        servers=AuthorizationServers(ask, clock),
        ask=ask,
        clock=clock,
        subkey=subkey,
        entropy=secrets.token_bytes,
        log=log,
    )


def _personal(
    config: McpConfig, desk: UpstreamRegistry, key: UpstreamKey, ours: OwnerLogin
) -> PersonCredential:
    """Return the credential of the person who calls. Raise `ValueError`."""
    connections, label, url = _place_of(config, desk, key)
    credential = PersonCredential(label, url, ours=ours, login_of=lambda person: desk.login_of(key, person))
    connections.listen(key, credential.changed)
    return credential


def _by_key(config: McpConfig, desk: UpstreamRegistry, key: UpstreamKey) -> KeyCredential:
    """Return the credential of the person who calls, where each has a key. Raise `ValueError`."""
    connections, label, url = _place_of(config, desk, key)
    credential = KeyCredential(
        label,
        url,
        header=config.key_header,
        # Given for this address: where the settings have another, it is none.
        login_of=lambda person: desk.login_of(key, person, config.url),
        used=partial(connections.used, key),
    )
    connections.listen(key, credential.changed)
    return credential


def _place_of(
    config: McpConfig, desk: UpstreamRegistry, key: UpstreamKey
) -> tuple[PersonConnections, str, str]:
    """Return the accounts of people, what this upstream is called, and where people connect theirs. Raise `ValueError`."""
    connections, place = desk.connections, None
    if connections is not None:
        place = connections.place(key.server, key.agent)
    if connections is None or place is None or desk.issuer is None:
        raise ValueError(f'identity = "{config.identity}" needs a server that people log in to')
    return connections, place.label, desk.issuer().issuer + place.path


def _make(config: McpConfig, desk: UpstreamRegistry, server: str) -> MakeToken:
    oauth = config.oauth
    audience, scope, token_url = oauth.audience or config.url, oauth.scope, oauth.token_url
    if config.identity == "client-credentials":
        return client_credentials(desk.ask, token_url, _identity(config), audience=audience, scope=scope)
    if desk.issuer is None:
        raise ValueError(
            f'identity = "{config.identity}" needs a server whose keys are published: nothing is over stdio'
        )
    issuer = desk.issuer()
    if config.identity == "token":
        return own_token(issuer, audience, server=server, scope=scope, seconds=oauth.seconds)
    identity = _identity(config)
    if config.identity == "exchange":
        return exchanged(desk.ask, token_url, identity, issuer, server=server, audience=audience, scope=scope)
    return asserted(
        desk.ask,
        token_url,
        identity,
        issuer,
        authorization_server=oauth.authorization_server,
        server=server,
        audience=audience,
        scope=scope,
    )


def _identity(config: McpConfig) -> ClientIdentity:
    """Return the client that we are there. Raise `SecretUnreadable`."""
    oauth = config.oauth
    if not oauth.client_secret:
        return ClientIdentity(client_id=oauth.client_id, method=NONE)
    method = BASIC if oauth.client_auth == "basic" else POST
    return ClientIdentity(client_id=oauth.client_id, secret=read_secret(oauth.client_secret), method=method)


def _source_of(config: McpConfig) -> str:
    """Return its place as a digest: an address may hold what should not be read out of a database."""
    said = canonical([config.command, config.url, config.tcp, config.working_dir])
    return hashlib.sha256(said.encode()).hexdigest()
