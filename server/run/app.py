"""The whole program, put together and run from start to stop. Only here are concrete things constructed.

    run > data directory and store > background (changes, sweeping, admin socket) > listeners > one task per connection

Sockets are bound first: a taken port is the commonest mistake, and early callers wait in the kernel's queue until all is there.
"""

from __future__ import annotations

import gc
import os
import secrets
from collections.abc import Callable, Mapping
from functools import partial
from shlex import quote
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import trio

from auth.keys import key_rotation, sealed_secrets
from auth.people import user_accounts
from auth.values.limits_and_lifetimes import DAY, MINUTE
from server.admin import control
from server.agents.base.catalog import CatalogError
from server.calls.servers.cannot_start import CannotStart
from server.calls.servers.server_opening import now_millis, subkeys
from server.lib.host_names import authority
from server.lib.log.logger import Logger
from server.lib.log.metrics import CONTENT_TYPE
from server.run import audit_trail, startup_banner, store_watch
from server.run.agent_outages import OutageWatch, tell_of_programs, words_of
from server.run.clock_watch import keep_watching
from server.run.listening_sockets import BoundSockets
from server.run.node_membership import Membership, this_node
from server.run.node_reports import SelfDescription
from server.run.one_process import OneProcess
from server.run.pages_ahead import LazyPages
from server.run.process_memory import give_large_blocks_back
from server.run.process_place import ProcessFigures, Steering
from server.run.request_routing import READY, lazy_pages, public_router
from server.run.served_certificate import (
    ServedCertificate,
    ends_at,
    of_an_authority,
    of_files,
    of_nodes,
    waits_for,
)
from server.run.services import Services, build, open_key
from server.run.settings_reload import ReadSettings, Reloading
from server.run.start_report import StartedServer, first_of, why_not
from server.run.store_place import may_serve, open_place
from server.run.timed_backups import BackupPlan, keep_backing_up
from server.settings.resolved_settings import Resolved
from server.settings.secret_reference import SecretUnreadable
from server.store import clock_doubt
from server.store.call_records.recording import keep_recording
from server.store.clock_doubt import ClockDoubt
from server.store.data_directory import DataDirectory
from server.store.jobs import CannotOpen, StoreError
from server.store.maintenance import keep_sweeping
from server.store.reserve_file import ReserveFile
from server.store.retention import Retention
from server.transport.admission.key_usage import keep_noting
from server.transport.http import listen
from server.transport.http.asgi import hosting
from server.transport.http.connection_limits import HttpLimits
from server.transport.http.health_probes import Probe, Readiness
from server.transport.http.server_tls import TlsError
from server.transport.http.sockets import EVERYWHERE, ListenError

if TYPE_CHECKING:
    from server.run.one_of_several import OneOfSeveral

# How often signing keys are looked at: their times are days, and an hour's delay is in their margin.
KEYS_SECONDS: Final = 3600
# What supervisors and balancers ask, who end a process that refuses them.
VITAL_PATHS: Final = frozenset({"/healthz", READY})
# For the answers to calls that the drain has cut off: they are short, and only a client that does not read leaves them unread.
LAST_WORD_SECONDS: Final = 1.0
# What happens below the application, by its name in `shared_state.Counters`.
CONNECTION_COUNTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "accepted": "Connections accepted",
        "accept_errors": "Times that no connection could be accepted, for want of descriptors or memory",
        "over_cap": "Connections refused because of the cap on all",
        "over_ip_cap": "Connections refused because of the cap per address",
        "refused": "Requests refused as malformed, too large or too late",
        "late": "Deadlines that passed",
        "stalled": "Connections cut because their peer did not read",
        "crashed": "Connections or requests that ended in an error of ours",
    }
)


def run(
    resolved: Resolved,
    log: Logger,
    place: OneProcess | OneOfSeveral,
    lines_dropped: Callable[[], int] = lambda: 0,
    read_settings: ReadSettings | None = None,
) -> None:
    """Serve until SIGTERM or Ctrl-C, then drain. `read_settings` reads changed settings. Raises `CannotStart`."""
    try:
        trio.run(serve, resolved, log, place, lines_dropped, read_settings)
    except* (
        CannotStart,
        CannotOpen,
        ListenError,
        TlsError,
        CatalogError,
        SecretUnreadable,
        control.CommandRefused,
        sealed_secrets.CannotUnseal,
    ) as group:
        raise why_not(group) from first_of(group)
    except* StoreError as group:
        problem = first_of(group)
        fault = problem.__cause__
        log.error(
            "store.stopped", reason=str(problem), exc_info=None if isinstance(fault, StoreError) else fault
        )
        raise CannotStart(
            f"the store had to stop: {problem}", problem.hint or "the log has the details"
        ) from problem


async def serve(
    resolved: Resolved,
    log: Logger,
    place: OneProcess | OneOfSeveral,
    lines_dropped: Callable[[], int] = lambda: 0,
    read_settings: ReadSettings | None = None,
) -> None:
    config, draining = resolved.config, trio.Event()
    give_large_blocks_back()
    certificate: ServedCertificate | None = of_files(resolved, log)
    ports = place.listen(config)
    public, plain, admin = ports.public, ports.plain, ports.admin
    with place.home(resolved.data_dir) as home:
        if not config.store:
            _warn_of_missing_database(home, log)
            certificate = certificate or await of_an_authority(resolved, home.path, log)
        ballast = ReserveFile(home.ballast)
        async with open_place(resolved, home, ballast) as store:
            store_watch.tell_of_damage(store, log)
            await may_serve(config, home, store)
            key = await open_key(resolved, home, store)
            node = this_node(
                secrets.token_hex(8),
                home.path,
                address=_where(public, config.host),
                worker=place.number,
            )
            membership = Membership(store, node, log, alone=not config.store)
            await membership.enter()
            async with (
                audit_trail.kept(home, store, key, log, keeps=place.keeps, shared=bool(config.store)) as head,
                trio.open_nursery() as background,
            ):
                background.start_soon(membership.run)
                services = await build(
                    resolved,
                    log,
                    store,
                    key,
                    head,
                    port=public.port,
                    background=background,
                    worker=place.number,
                    membership=membership,
                )
                description = SelfDescription(services)
                membership.describe = description
                if config.store:
                    certificate = certificate or await of_nodes(
                        resolved, home.path, store, membership, subkeys(key), log
                    )
                _look_after(services, home, background)
                background.start_soon(store_watch.keep_telling_of_slowness, store, log)
                if not config.store:
                    background.start_soon(store_watch.look_through_large_file, store, home.database, log)
                services.metrics.counter(
                    "log_lines_dropped", "Lines of the log that nobody took in time", lines_dropped
                )
                if services.money is not None:
                    await background.start(services.money.run)
                await background.start(services.tasks.run)
                if certificate is not None:
                    services.metrics.gauge(
                        "certificate_ends_at_seconds",
                        "When the certificate that is served is over, in seconds since 1970; 0 where there is none",
                        partial(ends_at, certificate),
                    )
                reloading = Reloading(
                    read_settings or (lambda: resolved),
                    resolved,
                    services.servers,
                    place.log_of_settings(log),
                )
                pages = lazy_pages(services, place, certificate)
                figures = ProcessFigures(
                    make_commands=partial(_commands, services, reloading, certificate, pages),
                    metrics=services.metrics,
                    readiness=partial(_readiness, services, certificate),
                )
                await background.start(place.answer, figures, home.path, log)
                with trio.CancelScope() as serving:
                    async with trio.open_nursery() as listening:
                        steering = Steering(
                            draining=draining,
                            everything=serving,
                            renew=(lambda: None) if certificate is None else certificate.reload,
                            reloading=reloading,
                        )
                        await background.start(place.heed, steering, log)
                        listens = await listening.start(
                            _serve_public, services, pages, public, certificate, draining, place
                        )
                        if admin:
                            await listening.start(_serve_admin, place, figures, admin, log, draining)
                        if plain:
                            listens += await listening.start(
                                _serve_plain, services, plain, certificate, draining
                            )
                        if certificate is not None:
                            background.start_soon(certificate.run)
                        _settle_memory()
                        started = await _started(
                            services, admin, certificate, shows_claim_link=place.shows_claim_link
                        )
                        place.ready(started, log, listens=listens, boot=services.boot_id)
                        description.state = "serving"
                        membership.look_now()
                        background.start_soon(pages.run)
                        if place.shows_claim_link:
                            pages.expect()  # by whoever stands before the terminal
                        if place.speaks:
                            _warn_of_open_servers(services)
                            tell_of_programs(resolved, log)
                            _warn_of_prices(services)
                            if not place.shows_claim_link:
                                await _warn_of_nobody(services)
                        if place.keeps:  # the start has what it needs
                            background.start_soon(store_watch.keep_ballast, ballast, log)
                        await draining.wait()
                        drained_by = trio.current_time() + config.drain_seconds
                        description.state = "draining"
                        membership.look_now()
                        store.hurry()
                        services.servers.begin_draining()
                        background.start_soon(_cut_off, services, drained_by)
                        place.draining(config.drain_seconds, log)
                    with trio.move_on_at(drained_by):
                        await services.crew.wait_idle()
                # Before the agents go: what runs is left to the next start, and does not fail for want of them.
                await services.tasks.stop()
                for endpoint in services.endpoints.values():
                    await endpoint.aclose()
                await services.limits.aclose()
                if services.money is not None:
                    await services.money.aclose()
                background.cancel_scope.cancel()
            talks = services.correspondence
            await membership.leave(None if talks is None else talks.goodbye())
    place.stopped(log)


# ── getting ready ────────────────────────────────────────────────────────────────────────────────────────────────────


def _look_after(services: Services, home: DataDirectory, background: trio.Nursery) -> None:
    """Begin what goes on for as long as the server runs, whether or not anybody calls."""
    config, store, log = services.resolved.config, services.store, services.log
    begin = background.start_soon
    begin(services.trail.run)
    begin(services.bounded_log.run)
    if services.correspondence is not None:
        begin(services.correspondence.run)
        begin(services.limits.keep_giving_back)
    begin(_sweep, services)
    begin(_keep_keys, services)
    begin(keep_watching, log)
    begin(keep_noting, services.identity.credentials.usage, store, log)
    begin(partial(keep_recording, services.calls, store, log, most_rows=config.call_rows))
    begin(OutageWatch(services.endpoints, store, log, services.write_down).run)
    begin(services.probe.run)
    if services.telemetry is not None:
        begin(services.telemetry.run)
    if config.backup_hours:
        plan = BackupPlan(
            database=home.database,
            directory=services.resolved.backup_dir or home.backups,
            every_hours=config.backup_hours,
            keep=config.backup_keep,
        )
        begin(partial(keep_backing_up, plan, clock=now_millis, log=log, outcome=services.backups))
    begin(services.crew.run)
    for sessions in services.servers.sessions.values():
        begin(sessions.run)


async def _cut_off(services: Services, moment: float) -> None:
    """Tell calls that still run then, while their connection is there."""
    await trio.sleep_until(moment)
    services.servers.cut_off()


def _settle_memory() -> None:
    """Keep the collector from looking again and again at all that lives as long as the process."""
    gc.collect()
    gc.freeze()


def _warn_of_missing_database(home: DataDirectory, log: Logger) -> None:
    if home.key_file.exists() and not home.database.exists() and not home.elsewhere.exists():
        log.warning(
            "store.database_missing",
            path=str(home.database),
            hint="if its rows are in PostgreSQL, stop, and set `store`; else a new one is made. If there was a file, stop, and put a back-up"
            " in its place: ostiary restore FILE",
        )


def _warn_of_open_servers(services: Services) -> None:
    """Warn by name of servers that ask nobody who they are: the owner should not forget."""
    resolved = services.resolved
    for name in sorted(resolved.open_servers) if not resolved.loopback else ():
        services.log.warning("server.open_to_the_network", server=name, path=resolved.paths[name])


def _warn_of_prices(services: Services) -> None:
    if services.money is not None:
        from server.run import sales_summary

        for sentence in sales_summary.warnings(services.resolved, services.endpoints):
            services.log.warning("price.unpayable", reason=sentence)


async def _warn_of_nobody(services: Services) -> None:
    """Warn in the log that nobody owns the server, since no terminal shows the link."""
    if services.resolved.needs_login and not await services.store.read(user_accounts.claimed):
        command = f"ostiary claim --data-dir {quote(str(services.resolved.data_dir.absolute()))}"
        services.log.warning(
            "server.unclaimed", hint=f"on this machine, `{command}` shows the link that makes it yours"
        )


def _sold(services: Services) -> str | None:
    if services.money is None:
        return None
    from server.run import sales_summary

    return sales_summary.sold(services.resolved, services.endpoints)


# ── listening ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _where(bound: BoundSockets, host: str) -> str:
    """Return the place of this process, for people who look for it."""
    name = os.uname().nodename if host in (EVERYWHERE, "0.0.0.0", "::") else host
    return authority(name, bound.port)


async def _serve_public(
    services: Services,
    pages: LazyPages,
    bound: BoundSockets,
    certificate: ServedCertificate | None,
    draining: trio.Event,
    place: OneProcess | OneOfSeveral,
    *,
    task_status: trio.TaskStatus[list[str]],
) -> None:
    config = services.resolved.config
    limits = HttpLimits(
        body_bytes=config.max_body_kib * 1024,
        connections=config.max_connections,
        connections_per_ip=config.max_connections_per_ip,
        drain_seconds=config.drain_seconds,
        last_word_seconds=LAST_WORD_SECONDS,
    )
    settings = listen.ListenSettings(
        binds=bound.binds,
        log=services.log,
        tls=None if certificate is None else certificate.tls,
        limits=limits,
        trusted_proxies=services.resolved.trusted_proxies,
        shared=place.number > 0,
        vital_paths=VITAL_PATHS,
    )
    for name, help_text in CONNECTION_COUNTS.items():
        services.metrics.counter(f"connections_{name}", help_text, partial(getattr, settings.counters, name))
    await listen.serve(
        public_router(services, pages).resolve,
        settings,
        draining=draining,
        task_status=task_status,
    )


async def _serve_plain(
    services: Services,
    bound: BoundSockets,
    certificate: ServedCertificate | None,
    draining: trio.Event,
    *,
    task_status: trio.TaskStatus[list[str]],
) -> None:
    """Serve http, for addresses typed without https, and for an authority that looks at a name."""
    from server.transport.http.redirecting import HttpsOnly, origins_of

    assert certificate is not None
    issuer = services.identity.parts.site.issuer
    app = HttpsOnly(
        origin=issuer,
        origins=origins_of(issuer, services.resolved.config.domain),
        key_authorization=certificate.key_authorization,
    )
    settings = listen.ListenSettings(
        binds=bound.binds,
        log=services.log,
        limits=HttpLimits(connections=256, connections_per_ip=32, body_bytes=64 * 1024, drain_seconds=1.0),
    )
    await listen.serve(hosting(app), settings, draining=draining, task_status=task_status)


async def _serve_admin(
    place: OneProcess | OneOfSeveral,
    figures: ProcessFigures,
    bound: BoundSockets,
    log: Logger,
    draining: trio.Event,
    *,
    task_status: trio.TaskStatus[list[str]],
) -> None:
    async def metrics() -> tuple[bytes, str]:
        return await place.metrics(figures), CONTENT_TYPE

    probe = Probe(ready=partial(place.readiness, figures), metrics=metrics)
    settings = listen.ListenSettings(
        binds=bound.binds, log=log, limits=HttpLimits(connections=64, drain_seconds=1.0)
    )
    await listen.serve(hosting(probe), settings, draining=draining, task_status=task_status)


async def _readiness(services: Services, certificate: ServedCertificate | None) -> Readiness:
    if missing := await store_watch.why_not_ready(services.probe):
        return Readiness(missing=missing)
    told = [f"out of order: {name}" for name in words_of(services.endpoints, now_millis())]
    # Without its certificate, too, it is ready: whoever is not sent anything can never prove its name.
    notes = (services.membership.words(), "" if certificate is None else certificate.note())
    return Readiness(told=[*told, *filter(None, notes)])


async def _sweep(services: Services) -> None:
    doubted = False

    def report(outcome: dict[str, int] | ClockDoubt | StoreError) -> None:
        nonlocal doubted
        if isinstance(outcome, StoreError):
            services.log.warning("store.not_swept", reason=str(outcome))
        elif isinstance(outcome, ClockDoubt):
            if not doubted:
                days, hours = round(outcome.ahead_ms / DAY), round(outcome.waits_ms / (60 * MINUTE))
                services.log.error("clock.suspicious", days_ahead=days, sweeps_in_hours=hours)
            doubted = True
        else:
            doubted = False
            if any(outcome.values()):
                services.log.info("store.swept", **outcome)

    retention = Retention(calls=services.resolved.config.call_days * DAY)
    await keep_sweeping(
        services.store, owner=services.boot_id, clock=now_millis, retention=retention, report=report
    )


async def _keep_keys(services: Services) -> None:
    """Make and retire keys. The audit trail, and with it the log, says what was done."""
    identity = services.identity
    while True:
        now = now_millis()
        try:
            # What a doubted clock says is over would be destroyed for good.
            if await services.store.read(partial(clock_doubt.look, now=now)) is None:
                await key_rotation.keep(
                    identity.parts.store,
                    subkey=identity.parts.subkey,
                    entropy=secrets.token_bytes,
                    policy=identity.parts.policy.keys,
                    tokens=identity.parts.policy.tokens,
                    now=now,
                )
        except StoreError as error:
            services.log.warning("keys.not_kept", reason=str(error))
        await trio.sleep(KEYS_SECONDS)


async def _started(
    services: Services,
    admin: BoundSockets | None,
    certificate: ServedCertificate | None,
    *,
    shows_claim_link: bool,
) -> StartedServer:
    issuer = services.identity.parts.site.issuer
    needs_login = services.resolved.needs_login
    return StartedServer(
        origin=issuer,
        paths=tuple(services.resolved.paths.values()),
        admin_origin=f"http://127.0.0.1:{admin.port}" if admin else None,
        claim_url=await _claim_link(services) if needs_login and shows_claim_link else None,
        needs_login=needs_login,
        serves=startup_banner.serves(services.endpoints),
        first_call=startup_banner.first_call(services.endpoints),
        sold=_sold(services),
        certificate=waits_for(certificate),
    )


def _commands(
    services: Services, reloading: Reloading, certificate: ServedCertificate | None, pages: LazyPages
) -> Mapping[str, control.Handler]:
    from server.run.admin_commands import commands_of

    return pages.heeding(commands_of(services, reloading, certificate))


async def _claim_link(services: Services) -> str | None:
    from server.admin.command_table import make_claim_link

    issuer = services.identity.parts.site.issuer
    return await make_claim_link(services.store, issuer, by="local:start", now=now_millis())
