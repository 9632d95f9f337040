"""The whole program, put together and run from start to stop. Only here are concrete things constructed.

    run > data directory and store > background (changes, sweeping, admin socket) > listeners > one task per connection

Sockets are bound first: a taken port is the commonest mistake, and early callers wait in the kernel's queue until all is there.
"""

from __future__ import annotations

import gc
import os
import secrets
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, cast

import msgspec
import trio
from structlog.typing import FilteringBoundLogger

from auth import endpoints, entry, keys, users, wire
from auth.endpoints import Identity
from auth.model import Millis
from auth.policy import DAY, MINUTE, DevicePolicy, Policy, TokenPolicy
from auth.site import Site
from auth.visit import Parts
from server import __version__, agents, control
from server.admin import Admin, make_claim_link
from server.admission import Admission
from server.backends.catalog import Catalog, CatalogError
from server.calls import Calls
from server.http import guard, landing, listen
from server.http.asgi import Router
from server.http.exchange import Lent
from server.http.lazy import Lazily
from server.http.limits import Limits
from server.http.mcp import McpEndpoint
from server.http.proxy import Proxies
from server.http.serving import App
from server.http.sockets import ListenError, open_listeners
from server.http.tls import Tls, TlsError
from server.http.values import Answer, Direct
from server.mcp.messages import Implementation
from server.mcp.results import Server
from server.observe.metrics import CONTENT_TYPE, Metrics
from server.resolve import Resolved
from server.secret import SecretUnreadable
from server.store import keyfile, meta
from server.store.home import Home, open_home
from server.store.jobs import CannotOpen, Store, StoreError, StoreUnavailable
from server.store.keyfile import MasterKey
from server.store.maintenance import Retention, keep_sweeping
from server.store.sqlite import open_store
from server.subscriptions import Subscriptions

# Argon2id takes 26 ms and 19 MiB each: two at once keep the machine responsive while somebody guesses.
HASHES_AT_ONCE: Final = 2
# One Ctrl-C reaches the one-file program twice: from the terminal, and passed on by its launcher.
ECHO_SECONDS: Final = 0.5
# Subkeys carry an id, so that one purpose can be given a new key one day while the old one still reads.
SUBKEY_ID: Final = 1
# Paths that requests are counted under, besides the MCP endpoints.
LABELLED: Final = frozenset({"/token", "/device_authorization", "/revoke", "/device", "/signin", "/healthz"})


# Container objects made between two looks of the collector: some megabytes at most. The default, 700, is a few requests' worth.
COLLECT_EVERY: Final = 20_000
# A log line is for reading.
LOGGED_PATH_CHARACTERS: Final = 200


# What happens below the application, by its name in `serving.Counters`.
CONNECTION_COUNTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "accepted": "Connections accepted",
        "over_cap": "Connections refused because of the cap on all",
        "over_ip_cap": "Connections refused because of the cap per address",
        "refused": "Requests refused as malformed, too large or too late",
        "late": "Deadlines that passed",
        "stalled": "Connections cut because their peer did not read",
        "crashed": "Connections or requests that ended in an error of ours",
    }
)


class CannotStart(Exception):
    """Something on this machine prevents the start; the text says what, the hint what to do."""

    def __init__(self, problem: str, hint: str = "") -> None:
        super().__init__(problem)
        self.hint = hint


@dataclass(frozen=True, kw_only=True, slots=True)
class Started:
    """What there is to say once the server listens."""

    origin: str  # where a browser or client on this machine reaches it, or the issuer
    paths: tuple[str, ...]
    admin_origin: str | None
    claim_url: str | None  # a secret: for a terminal only
    needs_login: bool
    first_call: str | None  # a call that works as typed, where the demo is served


@dataclass(frozen=True, kw_only=True, slots=True)
class Services:
    """What the running server consists of. Functions take the parts they use, not this."""

    resolved: Resolved
    log: FilteringBoundLogger
    metrics: Metrics
    store: Store
    identity: Identity
    pages: Parts
    catalogs: Mapping[str, Catalog]
    subscriptions: Subscriptions
    boot_id: str
    started_at: Millis


def now_millis() -> Millis:
    return time.time_ns() // 1_000_000


def run(
    resolved: Resolved,
    log: FilteringBoundLogger,
    *,
    announce: Callable[[Started], None],
    shows_claim_link: bool,
) -> None:
    """Serve until SIGTERM or Ctrl-C, then drain. Raises `CannotStart`.

    `shows_claim_link`: `announce` can show a secret to a person. A link is made only then, because a new one ends the last."""
    try:
        trio.run(partial(serve, resolved, log, announce=announce, shows_claim_link=shows_claim_link))
    except* (
        CannotOpen,
        ListenError,
        TlsError,
        CatalogError,
        SecretUnreadable,
        control.Refused,
        keys.CannotUnseal,
    ) as group:
        problem = _first(group)
        raise CannotStart(str(problem), getattr(problem, "hint", None) or "") from problem
    except* StoreError as group:
        problem = _first(group)
        log.error("store.stopped", reason=str(problem))
        raise CannotStart(
            f"the store had to stop: {problem}", problem.hint or "the log has the details"
        ) from problem


async def serve(
    resolved: Resolved,
    log: FilteringBoundLogger,
    *,
    announce: Callable[[Started], None],
    shows_claim_link: bool,
) -> None:
    config, draining = resolved.config, trio.Event()
    tls = _tls(resolved)
    public = _listen(config.host, config.port)
    admin = _listen("127.0.0.1", config.admin_port) if config.admin_port >= 0 else None
    with open_home(resolved.data_dir) as home:
        async with open_store(home.database, clock=now_millis, backups=home.backups) as store:
            key = await _open_key(resolved, home, store)
            services = await _build(resolved, log, store, key, port=public.port)
            async with trio.open_nursery() as background:
                background.start_soon(_sweep, services)
                await background.start(control.serve, home.path, _admin(services).commands(), log)
                async with trio.open_nursery() as listening:
                    await background.start(_stop_on_signals, draining, listening.cancel_scope, tls, log)
                    listens = await listening.start(_serve_public, services, public, tls, draining)
                    if admin:
                        await listening.start(_serve_admin, services, admin, draining)
                    _settle_memory()
                    announce(await _started(services, admin, shows_claim_link=shows_claim_link))
                    log.info(
                        "server.started",
                        version=__version__,
                        origin=services.identity.site.issuer,
                        listens=listens,
                        boot=services.boot_id,
                    )
                    await draining.wait()
                    log.info("server.draining", seconds=config.drain_seconds)
                await agents.close(list(services.catalogs.values()))
                background.cancel_scope.cancel()
    log.info("server.stopped")


# ── putting together ─────────────────────────────────────────────────────────────────────────────────────────────────


async def _open_key(resolved: Resolved, home: Home, store: Store) -> MasterKey:
    """The key file that belongs to this database, made at the very first start."""
    known = await store.read(lambda db: meta.get(db, meta.KEY_FINGERPRINT))
    key = keyfile.open_key(
        resolved.config.key_file or home.key_file,
        known_fingerprint=known,
        random_bytes=secrets.token_bytes,
        environment=os.environ,
    )
    await store.write(partial(keyfile.bind_key, fingerprint=key.fingerprint))
    return key


async def _build(
    resolved: Resolved, log: FilteringBoundLogger, store: Store, key: MasterKey, *, port: int
) -> Services:
    config = resolved.config

    @cache
    def subkey(purpose: str) -> bytes:
        return key.subkey(f"{purpose}/{SUBKEY_ID}")

    policy = Policy(
        device=DevicePolicy(lifetime_ms=config.device_code_minutes * MINUTE),
        tokens=TokenPolicy(
            access_ms=config.access_token_minutes * MINUTE, device_login_ms=config.login_days * DAY
        ),
    )
    home = Site(issuer=resolved.canonical_issuer(port), loopback=resolved.loopback, servers=resolved.paths)
    identity = await endpoints.found(
        store, clock=now_millis, entropy=secrets.token_bytes, subkey=subkey, site=home, policy=policy
    )
    store.on_changes(identity.apply_changes)
    hashing = trio.CapacityLimiter(HASHES_AT_ONCE)

    async def hash_passphrase(passphrase: str, salt: bytes) -> str:
        return await trio.to_thread.run_sync(users.hash_passphrase, passphrase, salt, limiter=hashing)

    async def verify_passphrase(passphrase: str, phc: str) -> bool:
        return await trio.to_thread.run_sync(users.verify_passphrase, passphrase, phc, limiter=hashing)

    pages = Parts(
        store=store,
        clock=now_millis,
        entropy=secrets.token_bytes,
        subkey=subkey,
        hash_passphrase=hash_passphrase,
        verify_passphrase=verify_passphrase,
        site=home,
        policy=policy,
    )
    try:
        catalogs = {server.name: agents.make_catalog(server, subkey) for server in resolved.servers}
    except ValueError as problem:
        raise CannotStart(
            f"an agent cannot be used: {problem}", "see [[server.agent]] in the settings"
        ) from problem
    metrics, subscriptions = Metrics(__version__), Subscriptions()
    metrics.gauge("subscriptions", "Open subscription streams", subscriptions.count)
    return Services(
        resolved=resolved,
        log=log,
        metrics=metrics,
        store=store,
        identity=identity,
        pages=pages,
        catalogs=catalogs,
        subscriptions=subscriptions,
        boot_id=secrets.token_hex(8),
        started_at=now_millis(),
    )


def _admin(services: Services) -> Admin:
    issuer = services.identity.site.issuer

    def status() -> Mapping[str, Any]:
        return {
            "version": __version__,
            "origin": issuer,
            "paths": dict(services.resolved.paths),
            "data_dir": str(services.resolved.data_dir),
            "started_at": services.started_at,
            "auth": services.resolved.config.auth,
        }

    return Admin(
        store=services.store,
        clock=now_millis,
        subkey=services.identity.subkey,
        status=status,
        origin=lambda: issuer,
    )


def _settle_memory() -> None:
    """Everything that lives as long as the process is here by now: spare the collector from looking at it again and again.
    Requests leave hardly any cycles, so it may also come by less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_EVERY)


def _tls(resolved: Resolved) -> Tls | None:
    config = resolved.config
    if not config.tls_certificate:
        return None
    return Tls(Path(config.tls_certificate).expanduser(), Path(config.tls_key).expanduser())


# ── listening ────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True, slots=True)
class Bound:
    """Sockets that listen already, handed on by number."""

    binds: tuple[str, ...]
    port: int


def _listen(host: str, port: int) -> Bound:
    """Raises `ListenError`, before anything else was touched."""
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    sockets = open_listeners([address], backlog=Limits().backlog)
    return Bound(port=sockets[0].getsockname()[1], binds=tuple(f"fd://{sock.detach()}" for sock in sockets))


async def _serve_public(
    services: Services,
    bound: Bound,
    tls: Tls | None,
    draining: trio.Event,
    *,
    task_status: trio.TaskStatus[list[str]],
) -> None:
    config = services.resolved.config
    limits = Limits(
        body_bytes=config.max_body_kib * 1024,
        connections=config.max_connections,
        connections_per_ip=config.max_connections_per_ip,
        drain_seconds=config.drain_seconds,
    )
    settings = listen.ListenSettings(
        binds=bound.binds,
        log=services.log,
        tls=tls,
        limits=limits,
        trusted_proxies=services.resolved.trusted_proxies,
    )
    for name, help_text in CONNECTION_COUNTS.items():
        services.metrics.counter(f"connections_{name}", help_text, partial(getattr, settings.counters, name))
    await listen.serve(_public_app(services), settings, draining=draining, task_status=task_status)


async def _serve_admin(
    services: Services, bound: Bound, draining: trio.Event, *, task_status: trio.TaskStatus[list[str]]
) -> None:
    async def ready() -> str:
        try:
            await services.store.read(lambda db: db.fetch_one("SELECT 1 AS one"))
        except StoreError as error:
            return str(error)
        return ""

    from server.http import site

    probe = site.Probe(ready=ready, metrics=lambda: (services.metrics.exposition(), CONTENT_TYPE))
    settings = listen.ListenSettings(
        binds=bound.binds, log=services.log, limits=Limits(connections=64, drain_seconds=1.0)
    )
    await listen.serve(site.make_admin_site(probe), settings, draining=draining, task_status=task_status)


async def _stop_on_signals(
    draining: trio.Event,
    everything: trio.CancelScope,
    tls: Tls | None,
    log: FilteringBoundLogger,
    *,
    task_status: trio.TaskStatus[None],
) -> None:
    """The first SIGTERM or Ctrl-C drains, the second ends at once; SIGHUP reads a renewed certificate."""
    drains_since = float("inf")
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        task_status.started()
        async for number in signals:
            if number == signal.SIGHUP:
                _reload(tls, log)
            elif not draining.is_set():
                draining.set()
                drains_since = trio.current_time()
            elif trio.current_time() - drains_since > ECHO_SECONDS:
                everything.cancel()


def _reload(tls: Tls | None, log: FilteringBoundLogger) -> None:
    if tls is None:
        return
    try:
        tls.reload_tls()
    except TlsError as problem:
        log.error("tls.not_reloaded", reason=str(problem))
    else:
        log.info("tls.reloaded")


async def _sweep(services: Services) -> None:
    def report(outcome: dict[str, int] | StoreError) -> None:
        if isinstance(outcome, StoreError):
            services.log.warning("store.not_swept", reason=str(outcome))
        elif any(outcome.values()):
            services.log.info("store.swept", **outcome)

    await keep_sweeping(
        services.store, owner=services.boot_id, clock=now_millis, retention=Retention(), report=report
    )


# ── answering ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _public_app(services: Services) -> Router:
    """The router in front: `/mcp` to the raw endpoint, everything else to the Quart-Trio app."""
    resolved, config, issuer = services.resolved, services.resolved.config, services.identity.site.issuer
    door = guard.Guard(
        hosts=frozenset(
            name
            for host in (_host(issuer), *config.allowed_hosts)
            if (name := guard.authority(host.encode(), _scheme(issuer)))
        ),
        # The issuer's own pages always: a proxy that does not say it is https must not lock them out.
        origins=frozenset(
            name for origin in (issuer, *config.allowed_origins) if (name := guard.normal_origin(origin))
        ),
        any_origin="*" in config.allowed_origins,
    )
    answer = _answer_for(services)
    # Paths as metrics labels: a closed set, whatever is asked for.
    routes = {path: path for path in (*resolved.paths.values(), *LABELLED)}
    return Router(
        mcp={
            "" if position == 0 else name: _mcp_endpoint(services, name, catalog, door)
            for position, (name, catalog) in enumerate(services.catalogs.items())
        },
        direct=Direct(answer),
        is_direct=_is_for_programs,
        fallback=Lazily(partial(_pages_app, answer)),
        guard=door,
        log=services.log,
        proxies=Proxies(networks=resolved.trusted_proxies) if resolved.trusted_proxies else None,
        observe=lambda path, status: services.metrics.request(routes.get(path, "other"), status),
        tells_all=config.log_level == "debug",
    )


def _is_for_programs(path: str) -> bool:
    """What programs ask for: a login's documents and endpoints, and whether we live. The rest is for people."""
    return path in endpoints.ENDPOINTS or "/.well-known/" in path or path == "/healthz"


def _pages_app(answer: Answer) -> App:
    from server.http import site

    return site.make_site(answer)


def _mcp_endpoint(services: Services, name: str, catalog: Catalog, door: guard.Guard) -> McpEndpoint:
    settings = next(server for server in services.resolved.servers if server.name == name)
    admission = Admission(services.identity, open_to_all=services.resolved.config.auth == "none")
    lent = Lent(
        server=Server(
            Implementation(name="ostiary", version=__version__, title=settings.title or msgspec.UNSET),
            instructions=settings.instructions or None,
        ),
        calls=Calls(catalog, log=services.log, measure=partial(services.metrics.tool_called, name)),
        subscriptions=services.subscriptions,
        log=services.log,
    )
    return McpEndpoint(
        name=name,
        lent=lent,
        guard=door.admit,
        authenticate=admission.authenticate,
        forbid=admission.forbid,
        max_body_bytes=services.resolved.config.max_body_kib * 1024,
    )


def _answer_for(services: Services) -> Answer:
    """Identity's endpoints, then its pages, then the landing page; else 404."""
    identity, config = services.identity, services.resolved.config

    async def answer(request: wire.Request) -> wire.Reply:
        reply: wire.Reply | None = None
        # For the log: a claim link's path is a secret.
        endpoint = entry.endpoint_of(request.path) or request.path[:LOGGED_PATH_CHARACTERS]
        try:
            if config.auth == "oauth":
                reply = await identity.handle(request) or await entry.handle(request, services.pages)
        except StoreUnavailable as error:
            services.log.warning("store.unavailable", reason=str(error), path=endpoint)
            return landing.unavailable()
        except Exception:  # a bug: told once, here, because the framework would print the path
            services.log.exception("site.crashed", path=endpoint)
            return landing.broken()
        return reply or landing.answer(request, services.resolved, entropy=secrets.token_bytes)

    return answer


async def _started(services: Services, admin: Bound | None, *, shows_claim_link: bool) -> Started:
    issuer, config = services.identity.site.issuer, services.resolved.config
    needs_login = config.auth == "oauth"
    has_echo = any(catalog.get("echo") for catalog in services.catalogs.values())
    return Started(
        origin=issuer,
        paths=tuple(services.resolved.paths.values()),
        admin_origin=f"http://127.0.0.1:{admin.port}" if admin else None,
        claim_url=await _claim_link(services) if needs_login and shows_claim_link else None,
        needs_login=needs_login,
        first_call="echo text=hello" if has_echo else None,
    )


async def _claim_link(services: Services) -> str | None:
    issuer = services.identity.site.issuer
    return await make_claim_link(services.store, issuer, by="local:start", now=now_millis())


def _scheme(issuer: str) -> str:
    return issuer.partition("://")[0]


def _host(issuer: str) -> str:
    return issuer.partition("://")[2]


def _first(error: BaseException) -> Any:
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error
