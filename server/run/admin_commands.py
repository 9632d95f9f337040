"""The commands of the admin socket, made of the running server's services. Loaded with the first command that somebody gives."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import trio
from msgspec import structs
from msgspec.structs import asdict

from server import __version__
from server.admin.audit_commands import AuditAdmin
from server.admin.call_record_commands import CallsAdmin
from server.admin.certificate_commands import CertificateAdmin
from server.admin.command_table import Admin
from server.admin.control import Handler
from server.admin.ledger_commands import LedgerCommands
from server.admin.plan_commands import PlanAdmin
from server.admin.rights_check import RightsAdmin
from server.admin.token_key_commands import KeysAdmin
from server.admin.upstream_commands import UpstreamAdmin
from server.admin.voucher_commands import VoucherAdmin
from server.calls.servers.server_opening import now_millis
from server.console.overview import call_figures
from server.console.overview.outage_effects import AgentHit, told_hit
from server.console.overview.outages import outages
from server.payments.seller.plans import Plans
from server.run import store_watch
from server.run.node_reports import nodes_told
from server.run.served_certificate import ServedCertificate
from server.run.services import Services
from server.run.settings_reload import Reloading
from server.store.jobs import StoreUnavailable

# For all agents together: less than whoever asks waits for an answer.
TRY_SECONDS: Final = 12.0
# Of each server, of what its agents have and cannot be offered.
LEFT_OUT_NAMED: Final = 100


def _upstreams(services: Services) -> list[Mapping[str, Any]] | None:
    """None where there are none."""
    desk = services.servers.trust.desk
    if desk is None or not desk.known:
        return None
    return [
        {
            "name": str(key),
            "revision": each.revision,
            "trouble": None if (found := each.trouble()) is None else asdict(found),
        }
        for key, each in desk.known.items()
    ]


async def _behind(services: Services) -> Mapping[str, Any]:
    """What lies behind the servers and is out of order, and what came of the calls of a day, as far as the store can be read."""
    now = now_millis()
    found = await outages(services.endpoints, services.store, services.write_down, now)
    desk = services.servers.trust.desk
    upstreams = {} if desk is None else {id(each.backend): str(key) for key, each in desk.known.items()}
    hits = {upstreams[id(each.backend)]: each.hit for each in found if id(each.backend) in upstreams}
    listed = _upstreams(services)
    if listed is not None:
        listed = [{**each, **told_hit(hits.get(each["name"], AgentHit()))} for each in listed]
    return {
        "agents": [each.told() for each in found if id(each.backend) not in upstreams],
        "upstreams": listed,
        "day": await _day(services, now),
        "nodes": await _nodes(services),
    }


async def _nodes(services: Services) -> list[Mapping[str, Any]] | None:
    """None where that cannot be told; nobody where the rows are in a file."""
    try:
        return [each.told() for each in await nodes_told(services)]
    except StoreUnavailable:
        return None


async def _day(services: Services, now: int) -> Mapping[str, Any] | None:
    try:
        return asdict(await services.store.read(partial(call_figures.day, now=now)))
    except StoreUnavailable:
        return None


def audit_admin(services: Services) -> AuditAdmin:
    return AuditAdmin(
        store=services.store,
        clock=now_millis,
        subkey=services.identity.parts.subkey,
        committed_head=services.trail.audit.committed,
        written_heads=services.trail.audit.file.read,
    )


def upstream_admin(services: Services) -> UpstreamAdmin:
    return UpstreamAdmin(store=services.store, find_desk=lambda: services.servers.trust.desk)


def commands_of(
    services: Services, reloading: Reloading, certificate: ServedCertificate | None
) -> Mapping[str, Handler]:
    issuer = services.identity.parts.site.issuer

    def status() -> Mapping[str, Any]:
        return {
            "version": __version__,
            "origin": issuer,
            "paths": dict(services.resolved.paths),
            "data_dir": str(services.resolved.data_dir.absolute()),
            "started_at": services.started_at,
            "node": services.membership.told(),
            "settings": asdict(reloading.state),
            "auth": "oauth" if services.resolved.needs_login else "none",
            "held_back": services.limits.restraint.told(),
            "unheard_prices": {
                name: endpoint.unheard_prices
                for name, endpoint in services.endpoints.items()
                if endpoint.unheard_prices
            },
            "refused_names": {
                name: list(refused)
                for name, endpoint in services.endpoints.items()
                if (refused := endpoint.refused_names)
            },
            "old_names": {
                name: told
                for name, endpoint in services.endpoints.items()
                if (told := endpoint.old_names.told())
            },
            "left_out": {
                name: list(left_out[:LEFT_OUT_NAMED])
                for name, endpoint in services.endpoints.items()
                if (left_out := endpoint.catalog.all_left_out())
            },
            "upstreams": _upstreams(services),
            "certificate": None if certificate is None else certificate.described(),
            "backups": asdict(services.backups) if services.backups.every_hours else None,
        }

    cashier = services.cashier

    async def look_behind() -> Mapping[str, Any]:
        return await _behind(services)

    async def try_agents(arguments: Mapping[str, Any], actor: str) -> Any:
        """What lies behind the servers, once each of them was tried that can be."""
        with trio.move_on_after(TRY_SECONDS):
            for endpoint in services.endpoints.values():
                await endpoint.catalog.reach_all()
        return await look_behind()

    async def look_at_database(arguments: Mapping[str, Any], actor: str) -> Any:
        """None where the rows are in a file."""
        if not services.resolved.config.store:
            return None
        from server.run.store_place import database_told

        return await database_told(services.resolved.config)

    async def earned(now: int) -> Mapping[str, Any]:
        assert cashier is not None
        found = await cashier.takings.look(now)
        return {"today": found.today, "month": found.month, "unsettled": asdict(found.unsettled)}

    async def examine_money() -> Mapping[str, Any]:
        from server.run import sales_summary

        assert services.money is not None
        served = tuple(services.servers.settings.values())
        resolved = structs.replace(services.resolved, servers=served)
        return await sales_summary.examine(resolved, services.endpoints, services.money)

    admin = Admin(
        store=services.store,
        clock=now_millis,
        subkey=services.identity.parts.subkey,
        status=status,
        look_at_store=partial(store_watch.described, services.probe, services.resolved.data_dir),
        look_behind=look_behind,
        origin=lambda: issuer,
        scopes=services.identity.parts.site.scopes,
        spends=None if cashier is None else cashier.asks,
        earned=None if cashier is None else earned,
        login_ms=services.identity.parts.policy.tokens.device_login_ms,
        more={
            **KeysAdmin(parts=services.identity.parts).commands(),
            **audit_admin(services).commands(),
            **RightsAdmin(store=services.store).commands(),
            **CallsAdmin(store=services.store, write_down=services.write_down).commands(),
            "try_agents": try_agents,
            "database": look_at_database,
            **PlanAdmin(
                store=services.store, clock=now_millis, plans=Plans(services.resolved.plans).rules
            ).commands(),
            **LedgerCommands(
                store=services.store,
                clock=now_millis,
                subkey=services.identity.parts.subkey,
                committed_head=services.trail.ledger.committed,
                written_heads=services.trail.ledger.file.read,
            ).commands(),
            **CertificateAdmin(
                described=None if certificate is None else certificate.described,
                keeper=getattr(certificate, "keeper", None),
                store=services.store,
                clock=now_millis,
            ).commands(),
            **upstream_admin(services).commands(),
            **VoucherAdmin(
                store=services.store,
                clock=now_millis,
                plans=lambda: [plan.name for plan in services.resolved.plans],
            ).commands(),
        },
        examine_money=None if services.money is None else examine_money,
        servers=services.selectable,
    )
    return admin.commands()
