"""What the running server consists of, and how its parts are put together: identity, its pages, the agents, what counts.

Nothing is started here but agents; that, and the order of it, is app.py's. The agents, and what is lent of them to requests,
are calls/servers/server_opening.py's, which is all that stdio needs. Requests find their way in request_routing.py.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal

import msgspec
import trio

from auth import identity as identities
from auth import self_test
from auth.clients.client_registry import secret_hash
from auth.context.identity_parts import Hashing
from auth.identity import Identity
from auth.people import user_accounts
from auth.providers.provider_requests import Upstreams
from auth.values.identity_model import Millis
from auth.values.issuer_and_resources import Site
from auth.values.limits_and_lifetimes import (
    DAY,
    MINUTE,
    DevicePolicy,
    KeyPolicy,
    Policy,
    RegistrationPolicy,
    TokenPolicy,
)
from server import __version__
from server.agents.base.catalog import Catalog
from server.calls.charge_before_task import let_go_of
from server.calls.dispatch import use_inside
from server.calls.servers.agent_factory import Subkey
from server.calls.servers.endpoint import Endpoint
from server.calls.servers.me_resource import Me, TellsMoney
from server.calls.servers.server_opening import CannotStart, OpenServers, now_millis, open_servers, subkeys
from server.calls.servers.shown_servers import ShownServers
from server.calls.sessions.background_tasks import BackgroundTasks
from server.calls.tasks.task_engine import Tasks
from server.calls.tools_call import carry_out
from server.lib.log.logger import Logger
from server.lib.log.metrics import Metrics
from server.lib.oauth_client.oauth_fetcher import OAuthFetcher
from server.mcp.loads import Loads
from server.run import store_watch
from server.run.agent_outages import count_troubles
from server.run.audit_trail import TrailHead
from server.run.caller_limits import ProcessLimits
from server.run.client_documents import open_documents
from server.run.hash_queue import HASHES_AT_ONCE, HashQueue
from server.run.node_membership import Membership
from server.run.timed_backups import BackupOutcome
from server.settings.private_paths import kept_out_paths
from server.settings.provider_settings import providers
from server.settings.resolved_settings import Resolved
from server.settings.secret_reference import read_secret
from server.settings.tool_selection import SelectableNames
from server.store import keyfile, meta_rows
from server.store.call_records.call_book import CallBook
from server.store.call_records.recording import write_down
from server.store.data_directory import DataDirectory
from server.store.jobs import Change, Store
from server.store.keyfile import MasterKey
from server.store.store_probe import ReportingStore, StoreProbe
from server.transport.admission.credential_settings import access_of
from server.transport.bounded_log import BoundedLog

if TYPE_CHECKING:
    from auth.tokens.accepted_credentials import AcceptedCredentials
    from server.agents.mcp.trust.own_tokens import TokenIssuer
    from server.agents.mcp.trust.person_connections import PersonConnections
    from server.run.account_money import AccountMoney
    from server.run.node_message_loop import NodeMessageLoop
    from server.run.sellers import Money
    from server.telemetry.telemetry_start import Telemetry


class Services(msgspec.Struct, frozen=True, kw_only=True):
    """What the running server consists of. Functions take the parts they use, not this."""

    resolved: Resolved
    log: Logger
    bounded_log: BoundedLog  # for what anybody on the network can cause
    metrics: Metrics
    store: Store
    identity: Identity
    servers: OpenServers
    crew: BackgroundTasks
    loads: Loads
    limits: ProcessLimits
    probe: StoreProbe
    trail: TrailHead
    started_at: Millis
    calls: CallBook
    membership: Membership
    money: Money | None = None  # where something costs money
    cashier: AccountMoney | None = None  # the same
    telemetry: Telemetry | None = None  # where traces and metrics are sent
    correspondence: NodeMessageLoop | None = None  # where others may use the same database
    backups: BackupOutcome = msgspec.field(default_factory=BackupOutcome)  # written by who makes them

    @property
    def endpoints(self) -> Mapping[str, Endpoint]:
        return self.servers.endpoints

    def selectable(self) -> Mapping[str, SelectableNames]:
        """What selections of tools can name now, by server."""
        return {
            name: SelectableNames(groups=self.servers.settings[name].groups, tools=endpoint.catalog.named)
            for name, endpoint in self.endpoints.items()
        }

    @property
    def tasks(self) -> Tasks:
        return self.servers.tasks

    async def write_down(self) -> None:
        """The calls that wait to be recorded, now."""
        await write_down(self.calls, self.store, self.log, most_rows=self.resolved.config.call_rows)

    @property
    def boot_id(self) -> str:
        return self.servers.boot_id


async def open_key(resolved: Resolved, home: DataDirectory, store: Store) -> MasterKey:
    """The key file that belongs to this database, made at the very first start."""
    known = await store.read(lambda db: meta_rows.get(db, meta_rows.KEY_FINGERPRINT))
    return keyfile.open_key(
        resolved.config.key_file or home.key_file,
        known_fingerprint=known,
        random_bytes=secrets.token_bytes,
        environment=os.environ,
    )


async def build(
    resolved: Resolved,
    log: Logger,
    store: ReportingStore,
    key: MasterKey,
    trail: TrailHead,
    *,
    port: int,
    background: trio.Nursery,
    membership: Membership,
    worker: int = 0,
) -> Services:
    """Agents with work of their own do it in `background`. `worker`: its number, where this is one of several processes. Raises
    `CannotStart`."""
    config = resolved.config

    subkey = subkeys(key)
    policy = Policy(
        device=DevicePolicy(
            lifetime_ms=config.device_code_minutes * MINUTE, approve_from=config.device_approval
        ),
        tokens=TokenPolicy(
            access_ms=config.access_token_minutes * MINUTE,
            device_login_ms=config.login_days * DAY,
            code_login_ms=config.browser_login_days * DAY,
        ),
        registration=RegistrationPolicy(
            mode=config.registration,
            token_hash=_hash_of(config.registration_token),
            documents=config.client_documents,
            document_hosts=frozenset(name.lower() for name in config.client_document_hosts),
        ),
        keys=KeyPolicy(signs_ms=config.signing_key_days * DAY),
        assertions=any(each.assertions for each in resolved.upstreams),
    )
    upstreams = Upstreams(providers(resolved.upstreams), OAuthFetcher(), now_millis)
    access = access_of(resolved.servers)
    home = Site(
        issuer=resolved.canonical_issuer(port),
        loopback=resolved.loopback,
        servers=resolved.paths,
        aliases=resolved.aliases,
        scopes=resolved.scopes,
        without_login=resolved.open_servers.union(name for name, each in access.items() if not each.login),
        tried_by=_tried_by(resolved, access),
        announced=_announced(resolved),
        # Nobody comes from another machine then.
        **({"program": resolved.program} if resolved.loopback else {}),
    )
    catalogs: dict[str, Catalog] = {}
    endpoints: dict[str, Endpoint] = {}
    cashier = _cashier(resolved, store, subkey, catalogs)
    documents, fetch = open_documents(store, policy.registration)
    connections = _connections(resolved, store, subkey, log)
    identity = await identities.found(
        store,
        clock=now_millis,
        entropy=os.urandom,
        subkey=subkey,
        site=home,
        policy=policy,
        documents=documents,
        fetch=fetch,
        access=access,
        upstreams=upstreams,
        hashing=_hashing(),
        cashier=cashier,
        connections=connections,
        offerings=ShownServers(endpoints, resolved.paths, home.issuer),
    )
    if config.store:
        identity.heed_others()
    store.on_changes(identity.apply_changes)
    store.on_trust(identity.trust)
    await identity.key_ring.catch_up()  # only now: a change that nobody listens for would be missed
    if connections is not None:
        store.on_changes(connections.apply_changes)
    money = _money(resolved, store, subkey, log, identity, membership)
    _refuse_what_is_untrue(identity)
    metrics, loads, calls = Metrics(__version__), Loads(config.max_body_kib * 1024), CallBook()
    telemetry = _telemetry(resolved, metrics, log, worker)
    limits = ProcessLimits(resolved.limits, store, log, metrics, shared=not membership.alone)
    correspondence = _correspondence(store, membership, subkey, log, metrics)
    servers = await open_servers(
        resolved.servers,
        store,
        subkey,
        carry_out=partial(carry_out, inner=use_inside),
        let_go_of=let_go_of,
        log=log,
        measure=lambda name: partial(metrics.tool_called, name),
        background=background,
        data_dir=resolved.data_dir,
        kept_paths=kept_out_paths(resolved),
        allowed=identity.credentials.still,
        me=lambda server: (
            None
            if resolved.open_to_all(server)
            else Me(
                store,
                home.scopes,
                server=server.name,
                money=_has(cashier, server.name),
                clock=now_millis,
            )
        ),
        payments=resolved.payments,
        till=(lambda _: None) if money is None else money.make,
        limits=limits.make,
        loads=loads,
        issuer=partial(_issuer, identity),
        connections=connections,
        calls=calls,
        clients=config.max_connections,
        tracing=None if telemetry is None else telemetry.tracing,
        boot_id=membership.node.boot_id,
        letters=None if correspondence is None else correspondence.letters,
    )
    endpoints |= servers.endpoints
    catalogs |= {name: endpoint.catalog for name, endpoint in servers.endpoints.items()}
    for endpoint in servers.endpoints.values():
        store.on_audit(endpoint.step_ups.hear)
    store.on_changes(partial(_tell_desk, servers))
    store.on_changes(servers.tasks.apply_changes)  # after identity's: it is asked who may go on
    store.on_trust(servers.tasks.trust)
    store.on_trust(lambda _: membership.look_now())
    membership.on_lapse.append(servers.tasks.let_go_of_all)
    membership.on_loss.append(servers.tasks.look_for_left)
    _count(metrics, servers, loads, calls)
    if money is not None:
        money.count(metrics)
    store_watch.count(metrics, store, resolved.data_dir)
    metrics.gauge(
        "processes_alive",
        "Processes on this database that are alive, with this one",
        lambda: len(membership.alive),
    )
    metrics.gauge(
        "processes_silent",
        "Processes on this database that ended without a word in the last day, and are neither back nor replaced",
        lambda: membership.silent,
    )
    metrics.gauge(
        "clock_off_seconds",
        "How far the clock of this machine is at least from the database's",
        lambda: membership.clock_off_seconds,
    )
    count_troubles(metrics, servers.endpoints)
    metrics.counters(
        "policy_decisions",
        "What stood in front of tools has decided, by what it was",
        "decision",
        lambda: servers.policies.counts,
    )
    return Services(
        resolved=resolved,
        log=log,
        bounded_log=BoundedLog(log, everything=config.log_level == "debug"),
        metrics=metrics,
        store=store,
        identity=identity,
        servers=servers,
        crew=BackgroundTasks(log),
        loads=loads,
        limits=limits,
        probe=StoreProbe(store, clock=now_millis),
        trail=trail,
        money=money,
        cashier=cashier,
        started_at=now_millis(),
        calls=calls,
        telemetry=telemetry,
        membership=membership,
        correspondence=correspondence,
    )


def _tell_desk(servers: OpenServers, changes: Sequence[Change]) -> None:
    if servers.trust.desk is not None:
        servers.trust.desk.apply_changes(changes)


def _correspondence(
    store: Store, membership: Membership, subkey: Subkey, log: Logger, metrics: Metrics
) -> NodeMessageLoop | None:
    """None where nobody else can be there, and then nothing of it is loaded."""
    if membership.alone:
        return None
    from server.run.node_message_loop import NodeMessageLoop

    return NodeMessageLoop(store, membership, subkey, log, metrics)


def _telemetry(resolved: Resolved, metrics: Metrics, log: Logger, worker: int) -> Telemetry | None:
    """None where nobody collects them, and then nothing of it is loaded. Raises `CannotStart`, `SecretUnreadable`."""
    config = resolved.telemetry
    if config is None:
        return None
    from server.telemetry.telemetry_start import Telemetry

    instance = config.instance or os.uname().nodename
    if worker:  # each counts for itself
        config = msgspec.structs.replace(config, instance=f"{instance}/{worker}")
    try:
        return Telemetry(config, metrics, log, instance=instance)
    except ValueError as problem:
        raise CannotStart(f"telemetry: {problem}", "see [telemetry] in the settings") from problem


def _tried_by(
    resolved: Resolved, access: Mapping[str, AcceptedCredentials]
) -> Literal["", "owners", "people"]:
    """Who may try tools out: as people who are signed in, only where logins are accepted."""
    who = resolved.config.try_page
    return "" if who == "off" or not any(each.login for each in access.values()) else who


def _announced(resolved: Resolved) -> Mapping[str, Mapping[str, str]]:
    """Where calls are paid for by plain HTTP, and balances filled: an MCP client knows the address of `/mcp` alone."""
    if not resolved.sells:
        return {}
    from server.run.sellers import announced

    return {server.name: announced(resolved, server) for server in resolved.servers}


def _money(
    resolved: Resolved,
    store: Store,
    subkey: Subkey,
    log: Logger,
    identity: Identity,
    membership: Membership,
) -> Money | None:
    """None: nothing costs anything here, and nothing of it is loaded."""
    if not resolved.sells:
        return None
    from server.run.sellers import open_money

    parts = identity.parts
    found = open_money(
        resolved,
        store,
        subkey,
        log,
        boot_id=membership.node.boot_id,
        issuer=parts.site.issuer,
        signing_key=lambda: parts.keys.ring.signing(now_millis()),
    )
    membership.on_loss.append(found.settlements.look_for_left)
    return found


def _cashier(
    resolved: Resolved, store: Store, subkey: Subkey, catalogs: Mapping[str, Catalog]
) -> AccountMoney | None:
    """`catalogs` is filled in once they are open: whoever shows prices does so later."""
    if not resolved.sells:
        return None
    from server.run.sellers import open_cashier

    return open_cashier(resolved, store, subkey, catalogs)


def _connections(resolved: Resolved, store: Store, subkey: Subkey, log: Logger) -> PersonConnections | None:
    """None where no upstream is used with accounts of people. Raises `SecretUnreadable`."""
    if not any(
        getattr(agent, "identity", "") in ("person", "person-key")
        for server in resolved.servers
        for agent in server.agents
    ):
        return None
    from server.agents.mcp.trust.upstream_opening import open_connections

    return open_connections(resolved.servers, store, subkey, log, clock=now_millis)


def _issuer(identity: Identity) -> TokenIssuer:
    """Makes tokens of ours for upstreams, none of which is worth anything here."""
    from server.agents.mcp.trust.own_tokens import TokenIssuer

    parts = identity.parts
    site = parts.site
    return TokenIssuer(
        site.issuer,
        lambda: parts.keys.ring.signing(now_millis()),
        ours=[site.issuer, *(f"{site.issuer}{path}" for path in site.servers.values())],
        clock=now_millis,
        entropy=os.urandom,
    )


def _has(cashier: AccountMoney | None, server: str) -> TellsMoney | None:
    if cashier is None:
        return None
    return lambda db, principal: cashier.mine(db, principal, server, now_millis())


def _hashing() -> Hashing:
    limiter = trio.CapacityLimiter(HASHES_AT_ONCE)

    async def hash_passphrase(passphrase: str, salt: bytes) -> str:
        return await trio.to_thread.run_sync(user_accounts.hash_passphrase, passphrase, salt, limiter=limiter)

    async def verify_passphrase(passphrase: str, phc: str) -> bool:
        return await trio.to_thread.run_sync(
            user_accounts.verify_passphrase, passphrase, phc, limiter=limiter
        )

    return Hashing(hash_passphrase=hash_passphrase, verify_passphrase=verify_passphrase, place=HashQueue())


def _refuse_what_is_untrue(identity: Identity) -> None:
    if problems := self_test.examine(identity.parts):
        raise CannotStart(
            f"the self-test found {len(problems)} problem{'' if len(problems) == 1 else 's'}",
            "this is a bug, or the database is broken; `ostiary restore` puts a back-up in its place",
            problems,
        )


def _hash_of(reference: str) -> str:
    """Raises `SecretUnreadable`."""
    return secret_hash(read_secret(reference).reveal()) if reference else ""


def _count(metrics: Metrics, servers: OpenServers, loads: Loads, calls: CallBook) -> None:
    metrics.gauge(
        "tasks_living",
        "Tasks of the event loop: connections, streams, calls and what runs beside them",
        lambda: trio.lowlevel.current_statistics().tasks_living,
    )
    metrics.gauge(
        "subscriptions",
        "Open subscription streams",
        lambda: sum(each.subscriptions.count() for each in servers.endpoints.values()),
    )
    metrics.gauge(
        "sessions",
        "Sessions of the handshake era",
        lambda: sum(sessions.count() for sessions in servers.sessions.values()),
    )
    metrics.gauge(
        "large_requests_bytes", "What large requests that are under way weigh", lambda: loads.weight
    )
    metrics.counter(
        "large_requests_refused", "Large requests for which there was no room", lambda: loads.refused
    )
    metrics.counter(
        "calls_passed_over", "Calls that are counted and have no row of their own", lambda: calls.passed_over
    )
    metrics.counter("calls_missed", "Calls that could not even be counted", lambda: calls.missed)
