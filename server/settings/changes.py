"""What of newly read settings a running server can take, and what has to wait until it is started again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from server.settings.policies import ToolConfig
from server.settings.reading import kind_of
from server.settings.resolve import Resolved
from server.settings.shapes import Config, ServerConfig

# Of a server: what it offers, and what it says of itself. Who is let in, and how the protocol is spoken, is settled at the start.
TAKEN: Final = (
    "title", "instructions", "description", "website", "icons", "tools", "groups", "default_tools", "financial",
    "unclassified", "price", "agents", "expose", "version",
)  # fmt: skip
_BOUNDS: Final = ("limit", "limit_all", "quota")
_PLAIN: Final = ToolConfig()


class SettingsChange(msgspec.Struct, frozen=True, kw_only=True):
    """`servers`: those that change now, as they are from now on. `waits`: settings that count from the next start, by name."""

    servers: tuple[ServerConfig, ...] = ()
    waits: tuple[str, ...] = ()


def change(serving: Mapping[str, ServerConfig], started: Resolved, newer: Resolved) -> SettingsChange:
    """`serving`: the servers as they are now; `started`: everything as it was at the start."""
    waits = [
        field.name
        for field in msgspec.structs.fields(Config)
        if getattr(started.config, field.name) != getattr(newer.config, field.name)
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
    if started.acme != newer.acme:
        waits.append("acme")
    if started.upstreams != newer.upstreams:
        waits.append("upstream")
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
        if _upstreams(now) != _upstreams(server):
            # What was accepted of them, and who is logged in there, is looked up at the start.
            taken = msgspec.structs.replace(taken, agents=now.agents)
            waits.append(f"server {server.name}: its MCP upstreams, and the agents beside them")
        tools, bounded = _tools(now, server)
        taken = msgspec.structs.replace(taken, tools=tools)
        waits += [f"server {server.name}: {name}" for name in bounded]
        waits += [
            f"server {server.name}: {field.name}"
            for field in msgspec.structs.fields(ServerConfig)
            if field.name not in TAKEN and getattr(server, field.name) != getattr(now, field.name)
        ]
        if taken != now:
            changed.append(taken)
    return SettingsChange(servers=tuple(changed), waits=tuple(waits))


def _upstreams(server: ServerConfig) -> list[tuple[int, msgspec.Struct]]:
    return [(place, agent) for place, agent in enumerate(server.agents) if kind_of(agent) == "mcp"]


def _tools(now: ServerConfig, newer: ServerConfig) -> tuple[dict[str, ToolConfig], list[str]]:
    """As they are taken, and which of their bounds wait: what was used of them is counted by those of the start."""
    taken: dict[str, ToolConfig] = {}
    waits: list[str] = []
    for name in {**newer.tools, **now.tools}:
        before, after = now.tools.get(name, _PLAIN), newer.tools.get(name, _PLAIN)
        waits += [
            f"tools.{name}.{bound}" for bound in _BOUNDS if getattr(before, bound) != getattr(after, bound)
        ]
        kept = msgspec.structs.replace(after, **{bound: getattr(before, bound) for bound in _BOUNDS})
        if name in newer.tools or kept != _PLAIN:
            taken[name] = kept
    return taken, waits


def _names_that_differ(started: Resolved, newer: Resolved) -> list[str]:
    before = {server.name for server in started.servers}
    now = {server.name for server in newer.servers}
    differ = [f"server {name} (new)" for name in sorted(now - before)]
    differ += [f"server {name} (gone)" for name in sorted(before - now)]
    return differ or ["the order of the servers"]
