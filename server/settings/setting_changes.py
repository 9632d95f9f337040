"""The changes that a running server can take from newly read settings, and those that wait for the next start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from server.settings.resolved_settings import Resolved
from server.settings.setting_shapes import Config, ServerConfig
from server.settings.settings_reader import kind_of

# Of a server: what it offers, and what it says of itself. Who is let in, and how the protocol is spoken, is settled at the start.
TAKEN: Final = (
    "title", "instructions", "description", "website", "icons", "tools", "groups", "default_tools", "financial",
    "unclassified", "price", "agents", "expose", "version", "anonymous_tools", "getting_started",
    "read_resource", "discovery", "old_names", "old_names_until", "policy", "policy_mode", "hooks", "redact",
)  # fmt: skip


class SettingsChange(msgspec.Struct, frozen=True, kw_only=True):
    """`servers`: those that change now, as they are from now on. `waits`: settings that count from the next start, by name."""

    servers: tuple[ServerConfig, ...] = ()
    waits: tuple[str, ...] = ()


def change(serving: Mapping[str, ServerConfig], started: Resolved, newer: Resolved) -> SettingsChange:
    """Compare newly read settings with the servers as they are now, and with everything as it was at the start."""
    waits = [
        field.name
        for field in msgspec.structs.fields(Config)
        # That one is written into the agents.
        if field.name != "programs_run_as"
        and getattr(started.config, field.name) != getattr(newer.config, field.name)
    ]
    # What servers refer to: where it is another, so are they.
    shared = [
        name
        for name, same in (
            ("scope", started.scopes.same_as(newer.scopes)),
            ("payments", started.payments == newer.payments),
            ("plan", started.plans == newer.plans),
            ("price", started.sells or not newer.sells),
        )
        if not same
    ]
    tables = {"acme": "acme", "telemetry": "telemetry", "upstream": "upstreams"}
    waits += [key for key, name in tables.items() if getattr(started, name) != getattr(newer, name)]
    if [server.name for server in started.servers] != [server.name for server in newer.servers]:
        waits += _names_that_differ(started, newer)
    if shared:
        waits += shared
        waits += [
            f"server {server.name}"
            for server in newer.servers
            if server.name in serving and server != serving[server.name]
        ]
        return SettingsChange(waits=tuple(waits))
    changed: list[ServerConfig] = []
    for server in newer.servers:
        now = serving.get(server.name)
        if now is None:
            continue
        taken = msgspec.structs.replace(now, **{name: getattr(server, name) for name in TAKEN})
        if _personal(now) != _personal(server):
            # Where people connect their accounts is settled at the start.
            taken = msgspec.structs.replace(taken, agents=now.agents)
            waits.append(
                f'server {server.name}: its upstreams with identity = "person", and the agents beside them'
            )
        waits += [
            f"server {server.name}: {field.name}"
            for field in msgspec.structs.fields(ServerConfig)
            if field.name not in TAKEN and getattr(server, field.name) != getattr(now, field.name)
        ]
        if taken != now:
            changed.append(taken)
    return SettingsChange(servers=tuple(changed), waits=tuple(waits))


def _personal(server: ServerConfig) -> list[msgspec.Struct]:
    return [
        agent
        for agent in server.agents
        if kind_of(agent) == "mcp" and getattr(agent, "identity", "") in ("person", "person-key")
    ]


def _names_that_differ(started: Resolved, newer: Resolved) -> list[str]:
    before = {server.name for server in started.servers}
    now = {server.name for server in newer.servers}
    differ = [f"server {name} (new)" for name in sorted(now - before)]
    differ += [f"server {name} (gone)" for name in sorted(before - now)]
    return differ or ["the order of the servers"]
